"""Make and read certificates: a CA of our own, and what it vouches for.

All that knows of X.509. Bytes are PEM, and times have a zone; what to do about them is
`certificates`'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(hours=1)
"""A new certificate is good for clocks that are this much behind."""
_NOTHING = dict.fromkeys(
    (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    ),
    False,
)
_UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)
"""What the library raises for PEM of all kinds that is not what is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was read."""

    x509: x509.Certificate

    @classmethod
    def read(cls, pem: bytes) -> Self | None:
        """The first certificate of some PEM; None where there is none."""
        found = cls.read_all(pem)
        return found[0] if found else None

    @classmethod
    def read_all(cls, pem: bytes) -> tuple[Self, ...]:
        """Every certificate of some PEM, in its order; none where one of them can't be read."""
        try:
            found = tuple(map(cls, x509.load_pem_x509_certificates(pem)))
            for each in found:
                each.x509.public_key()
                # Read when they are asked for, and then it would be too late.
                _ = (each.x509.subject, each.x509.extensions, each.begins, each.expires)
        except _UNREADABLE:
            return ()
        return found

    @property
    def pem(self) -> bytes:
        """As PEM, always in the same form."""
        return self.x509.public_bytes(Encoding.PEM)

    @property
    def begins(self) -> datetime:
        """The first moment at which it is good."""
        return self.x509.not_valid_before_utc

    @property
    def expires(self) -> datetime:
        """The last moment at which it is good."""
        return self.x509.not_valid_after_utc

    @property
    def is_ca(self) -> bool:
        """Whether it may vouch for others."""
        try:
            return self.x509.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            return False

    @property
    def dns_names(self) -> frozenset[str]:
        """Whom it is for."""
        try:
            found = self.x509.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return frozenset()
        return frozenset(found.value.get_values_for_type(x509.DNSName))

    @property
    def has_our_kind_of_key(self) -> bool:
        """Whether `new_serving` can sign with its key."""
        return isinstance(self.x509.public_key(), ec.EllipticCurvePublicKey)

    def owns(self, key: bytes) -> bool:
        """Whether this is its private key, as PEM without a password."""
        try:
            public = load_pem_private_key(key, None).public_key()
        except _UNREADABLE:
            return False
        form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        return public.public_bytes(*form) == self.x509.public_key().public_bytes(*form)

    def vouches_for(self, other: "Certificate") -> bool:
        """Whether the other was signed with this one's key."""
        try:
            other.x509.verify_directly_issued_by(self.x509)
        except (*_UNREADABLE, InvalidSignature):
            return False
        return True


def new_ca(name: str, now: datetime, life: timedelta) -> Pair:
    """Make a CA that vouches for itself.

    Args:
        name: for people.
        now: when it begins, but for `BACKDATED`.
        life: how long from now it is good.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    certificate = (
        _begun(subject, key.public_key(), now, now + life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(**{**_NOTHING, "key_cert_sign": True, "crl_sign": True}), critical=True
        )
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def new_serving(ca: Pair, names: Sequence[str], now: datetime, life: timedelta) -> Pair:
    """Make a certificate for a TLS server.

    Args:
        ca: who vouches for it; it is good for no longer than that.
        names: DNS names of the server, the first one for people too.
        now: when it begins, but for `BACKDATED`.
        life: how long from now it is good.
    """
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = load_pem_private_key(ca.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)  # noqa: S101 - `new_ca` made it
    key = ec.generate_private_key(ec.SECP256R1())
    expires = min(now + life, issuer.not_valid_after_utc)
    certificate = (
        _begun(_named(names[0]), key.public_key(), now, expires)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**_NOTHING, "digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _begun(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
