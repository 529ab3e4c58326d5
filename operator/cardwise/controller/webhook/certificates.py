"""The webhook's certificates: what to write next, given what is there and what time it is.

Three objects of the cluster hold them. The order in which they are written is what keeps the API
server from ever meeting a certificate that it does not trust, wherever the writer stops::

    1. Secret of the CA            the new CA, and in previous.crt the ones before it
    2. MutatingWebhookConfiguration    caBundle: the new CA and the ones before it
    3. Secret of the webhook       a certificate of the new CA, once 2 has reached every API server
    4. Secret of the CA            without previous.crt, once every webhook has read 3
    5. MutatingWebhookConfiguration    caBundle: the CA alone

Each step is decided from what is there alone, so any replica can go on where another one stopped.
Nothing here asks, waits or writes: `keeper` does.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from cardwise.controller.webhook.authority import BACKDATED, Certificate, Pair
from cardwise.names import SYSTEM_NAMESPACE
from cardwise.wire.fields import at, items, text

Json: TypeAlias = dict[str, Any]

WEBHOOK: Final = "cardwise-webhook"
"""The names of the MutatingWebhookConfiguration and of the Service that it calls."""
CA_SECRET: Final = "cardwise-webhook-ca"  # noqa: S105 - a name
"""The controller's alone."""
SERVING_SECRET: Final = "cardwise-webhook-tls"  # noqa: S105 - a name
"""Mounted by the webhook; of the same shape as cert-manager's."""
DNS_NAMES: Final = (
    f"{WEBHOOK}.{SYSTEM_NAMESPACE}.svc",
    f"{WEBHOOK}.{SYSTEM_NAMESPACE}.svc.cluster.local",
    f"{WEBHOOK}.{SYSTEM_NAMESPACE}",
)
CA_LIFE: Final = timedelta(days=5 * 365)
CA_RENEWED: Final = timedelta(days=365)
"""Before its end: what a CA vouches for never has to end before its time."""
SERVING_LIFE: Final = timedelta(days=90)
SERVING_RENEWED: Final = timedelta(days=30)
"""Before its end."""
OVERLAP: Final = timedelta(days=7)
"""How long CAs before the present one are trusted after the webhook was given a certificate of the
present one: kubelets bring it within minutes, those of machines in trouble later."""
_MOST_PREVIOUS: Final = 4
"""CAs that are trusted beside the present one, however often somebody deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The three objects as they are; None where one is not there."""

    ca: Json | None
    serving: Json | None
    configuration: Json | None

    @property
    def bundles(self) -> tuple[bytes, ...]:
        """The caBundle of each webhook of the configuration."""
        return tuple(
            _decoded(at(webhook, "clientConfig", "caBundle"))
            for webhook in items(at(self.configuration, "webhooks"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCA:
    """Make a CA, and keep those that still vouch for something."""

    previous: tuple[bytes, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCA:
    """Write the CA that is there, with these before it."""

    previous: tuple[bytes, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Have the API server trust these CAs."""

    bundle: bytes
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServing:
    """Have the CA that is there vouch for a new certificate of the webhook."""

    why: str


Step: TypeAlias = NewCA | KeepCA | Trust | NewServing


def next_step(seen: Seen, now: datetime, *, settled: bool) -> Step | None:
    """What to write next; None where all is as it should be, or has to wait.

    Args:
        seen: what is there.
        now: the time, with its zone.
        settled: whether every API server has had the time to hear of the bundle that is there.
    """
    ca = Certificate.read(data_of(seen.ca, "ca.crt"))
    why = _trouble_of_ca(seen.ca, ca, now)
    if ca is None or why:
        return NewCA(previous=tuple(_vouching(seen, now)), why=why)
    previous = _previous(seen, ca, now)
    if b"".join(previous) != data_of(seen.ca, "previous.crt"):
        return KeepCA(previous=previous, why=f"CAs before it that are in use: {len(previous)}")
    bundle = b"".join((ca.pem, *previous))
    if any(each != bundle for each in seen.bundles):
        return Trust(bundle=bundle, why="it did not hold the CAs in use, and no other")
    why = _trouble_of_serving(seen.serving, ca, now)
    if why and (settled or not _is_trusted(seen, now)):
        return NewServing(why=why)
    return None


def data_of(secret: Json | None, key: str) -> bytes:
    """What a Secret holds under a key; empty where it holds nothing that can be read."""
    return _decoded(at(secret, "data", key))


def ca_of(seen: Seen) -> Pair:
    """The CA that is there; only where `next_step` asks for no new one."""
    certificate = Certificate.read(data_of(seen.ca, "ca.crt"))
    assert certificate is not None  # noqa: S101
    return Pair(certificate=certificate.pem, key=data_of(seen.ca, "ca.key"))


def secret_of(before: Json | None, name: str, kind: str, data: dict[str, bytes]) -> Json:
    """The Secret to write: new, or the one that was read with other data.

    Args:
        before: as it was read; its version is in it, so that nobody's change is overwritten.
        name: of a new one.
        kind: the ``type`` of a new one; of one that is there it can't be changed.
        data: all that it is to hold.
    """
    new: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": SYSTEM_NAMESPACE, "name": name},
        "type": kind,
    }
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {**new, **(before or {}), "data": encoded}


def trust_of(configuration: Json, bundle: bytes) -> Json:
    """The change of a MutatingWebhookConfiguration (a strategic merge) that sets the bundle."""
    encoded = base64.b64encode(bundle).decode()
    return {
        "metadata": {"resourceVersion": at(configuration, "metadata", "resourceVersion")},
        "webhooks": [
            {"name": at(webhook, "name"), "clientConfig": {"caBundle": encoded}}
            for webhook in items(at(configuration, "webhooks"))
        ],
    }


def _trouble_of_ca(secret: Json | None, ca: Certificate | None, now: datetime) -> str:
    """Why there must be a new CA; empty where there need not."""
    if secret is None:
        return "there is none"
    if ca is None:
        return "ca.crt is no certificate"
    if not ca.is_ca or not ca.has_our_kind_of_key:
        return "ca.crt is no CA of ours"
    if not ca.owns(data_of(secret, "ca.key")):
        return "ca.key does not belong to ca.crt"
    if now < ca.begins:
        return f"it is good only from {ca.begins} on"
    if now + CA_RENEWED >= ca.expires:
        return f"it expires at {ca.expires}"
    return ""


def _trouble_of_serving(secret: Json | None, ca: Certificate, now: datetime) -> str:
    """Why the webhook needs a new certificate; empty where it does not."""
    if secret is None:
        return "there is none"
    leaf = Certificate.read(data_of(secret, "tls.crt"))
    if leaf is None:
        return "tls.crt is no certificate"
    if not leaf.owns(data_of(secret, "tls.key")):
        return "tls.key does not belong to tls.crt"
    if not ca.vouches_for(leaf) or data_of(secret, "ca.crt") != ca.pem:
        return "it is not signed by the CA"
    if not leaf.dns_names.issuperset(DNS_NAMES):
        return "it is for other names"
    if now < leaf.begins:
        return f"it is good only from {leaf.begins} on"
    if now + SERVING_RENEWED >= leaf.expires:
        return f"it expires at {leaf.expires}"
    return ""


def _is_trusted(seen: Seen, now: datetime) -> bool:
    """Whether the API server is content with the present certificate, so that there is time."""
    leaf = Certificate.read(data_of(seen.serving, "tls.crt"))
    return (
        leaf is not None
        and leaf.owns(data_of(seen.serving, "tls.key"))
        and leaf.begins <= now < leaf.expires
        and DNS_NAMES[0] in leaf.dns_names
        and all(
            any(ca.vouches_for(leaf) for ca in Certificate.read_all(bundle))
            for bundle in seen.bundles
        )
    )


def _vouching(seen: Seen, now: datetime) -> Iterator[bytes]:
    """The CAs that a certificate in use may be signed by, the newest first.

    The Secrets may be gone or hold anything; what the API server trusts then still tells.
    """
    held = [
        data_of(seen.ca, "ca.crt"),
        data_of(seen.ca, "previous.crt"),
        data_of(seen.serving, "ca.crt"),
        *seen.bundles,
    ]
    known = {each.pem: each for pem in held for each in _good(Certificate.read_all(pem), now)}
    newest = sorted(known.values(), key=lambda each: each.begins, reverse=True)
    for certificate in newest[:_MOST_PREVIOUS]:
        yield certificate.pem


def _previous(seen: Seen, ca: Certificate, now: datetime) -> tuple[bytes, ...]:
    """Those CAs before the present one that may still vouch for a certificate in use."""
    leaf = Certificate.read(data_of(seen.serving, "tls.crt"))
    if leaf is not None and ca.vouches_for(leaf) and leaf.begins <= now - OVERLAP - BACKDATED:
        return ()
    before = Certificate.read_all(data_of(seen.ca, "previous.crt"))
    # Where somebody exchanged the CA by hand, only what the API server trusts tells the one before.
    trusted = (each for bundle in seen.bundles for each in Certificate.read_all(bundle))
    in_use = (each for each in trusted if leaf is not None and each.vouches_for(leaf))
    good = {each.pem: None for each in _good((*before, *in_use), now) if each != ca}
    return tuple(good)


def _good(certificates: Iterable[Certificate], now: datetime) -> Iterator[Certificate]:
    return (each for each in certificates if each.is_ca and now < each.expires)


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(text(value))
    except (binascii.Error, ValueError):
        return b""
