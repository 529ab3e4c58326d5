"""The webhook's certificates: what is written when, and what the API server meets meanwhile."""

import asyncio
import base64
import copy
import itertools
import ssl
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import DNSName
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.webhook import authority, keeper
from cardwise.controller.webhook.authority import Certificate, Pair
from cardwise.controller.webhook.certificates import (
    CA_LIFE,
    CA_SECRET,
    DNS_NAMES,
    OVERLAP,
    SERVING_LIFE,
    SERVING_SECRET,
    WEBHOOK,
    KeepCA,
    NewCA,
    NewServing,
    Seen,
    Trust,
    next_step,
)
from cardwise.controller.webhook.keeper import CertificateKeeper
from controllers import background, passing
from fakes.cluster import FakeCluster, refused, unanswered

Json = dict[str, Any]
SYSTEM = "cardwise-system"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def encoded(**data: bytes) -> Json:
    return {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}


def secret(name: str, kind: str = "Opaque", **data: bytes) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": SYSTEM, "name": name, "resourceVersion": "1"},
        "type": kind,
        "data": encoded(**data),
    }


def ca_secret(pair: Pair, previous: bytes = b"", **data: bytes) -> Json:
    more = {"previous_crt": previous} if previous else {}
    return secret(CA_SECRET, ca_crt=pair.certificate, ca_key=pair.key, **{**more, **data})


def serving_secret(pair: Pair, ca: bytes, **data: bytes) -> Json:
    held = {"tls_crt": pair.certificate, "tls_key": pair.key, "ca_crt": ca, **data}
    return secret(SERVING_SECRET, "kubernetes.io/tls", **held)


def configuration(*bundles: bytes) -> Json:
    """A MutatingWebhookConfiguration with a webhook for each bundle; an empty one is left out."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK, "resourceVersion": "1"},
        "webhooks": [
            {
                "name": f"pods-{place}.cardwise.dev",
                "clientConfig": {
                    "service": {"namespace": SYSTEM, "name": WEBHOOK, "path": "/mutate"},
                    **({"caBundle": base64.b64encode(bundle).decode()} if bundle else {}),
                },
            }
            for place, bundle in enumerate(bundles)
        ],
    }


def made_ca(at: datetime = NOW, life: timedelta = CA_LIFE) -> Pair:
    return authority.new_ca("cardwise-webhook-ca", at, life)


def made(ca: Pair, at: datetime = NOW, life: timedelta = SERVING_LIFE, *names: str) -> Pair:
    return authority.new_serving(ca, names or DNS_NAMES, at, life)


def trusts(bundle: bytes, leaf: bytes, at: datetime) -> bool:
    """Whether a client that knows this bundle alone accepts the certificate, by the rules of X.509.

    Judged by a verifier of the library's own, not by what made or chose the certificates.
    """
    roots = x509.load_pem_x509_certificates(bundle)
    verifier = PolicyBuilder().store(Store(roots)).time(at.replace(tzinfo=None))
    try:
        verifier.build_server_verifier(DNSName(DNS_NAMES[0])).verify(
            x509.load_pem_x509_certificate(leaf), []
        )
    except VerificationError:
        return False
    return True


# What a certificate is ----------------------------------------------------------------------------


def test_a_certificate_is_accepted_with_its_ca_and_no_other() -> None:
    ca, other = made_ca(), made_ca()
    leaf = made(ca).certificate

    assert trusts(ca.certificate, leaf, NOW)
    assert trusts(other.certificate + ca.certificate, leaf, NOW)
    assert not trusts(other.certificate, leaf, NOW)


@pytest.mark.parametrize(
    ("later", "accepted"),
    [
        pytest.param(-timedelta(minutes=59), True, id="by a clock an hour behind"),
        pytest.param(-timedelta(minutes=61), False, id="by a clock further behind"),
        pytest.param(89 * DAY, True, id="in its last day"),
        pytest.param(91 * DAY, False, id="after its end"),
    ],
)
def test_how_long_a_certificate_is_accepted(later: timedelta, accepted: bool) -> None:
    ca = made_ca()

    assert trusts(ca.certificate, made(ca).certificate, NOW + later) is accepted


def test_a_certificate_ends_with_its_ca() -> None:
    ca = made_ca(life=10 * DAY)

    leaf = Certificate.read(made(ca).certificate)
    assert leaf is not None
    assert leaf.expires == NOW + 10 * DAY


def test_a_certificate_can_vouch_for_nobody() -> None:
    ca = made_ca()
    serving = made(ca)
    leaf = Certificate.read(serving.certificate)
    assert leaf is not None
    assert not leaf.is_ca

    below = authority.new_serving(serving, DNS_NAMES, NOW, SERVING_LIFE).certificate
    assert not trusts(ca.certificate, below, NOW)


def test_python_s_own_tls_accepts_it_beside_a_ca_of_the_same_name() -> None:
    now = datetime.now(UTC)
    old, new = made_ca(now), made_ca(now)
    for ca in (old, new):
        client = ssl.create_default_context(cadata=(old.certificate + new.certificate).decode())
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(server, made(ca, now))

        shake_hands(server, client, DNS_NAMES[0])


def load(context: ssl.SSLContext, pair: Pair) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory; it raises where one side does not want the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert all(side.version() for side in sides)


# What to write next -------------------------------------------------------------------------------

CA, OLD, OTHER = made_ca(), made_ca(NOW - 4 * 365 * DAY), made_ca(NOW - DAY)
SERVING, BY_OLD, BY_OTHER = made(CA), made(OLD), made(OTHER)
BOTH = configuration(CA.certificate + OLD.certificate)
WELL = {
    "ca": ca_secret(CA),
    "serving": serving_secret(SERVING, CA.certificate),
    "configuration": configuration(CA.certificate),
}


def nameless(pem: bytes) -> bytes:
    """The same certificate for a name that can't be read; its key still is its key."""
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    return ssl.DER_cert_to_PEM_cert(der.replace(b"cardwise", b"\xff" * 8)).encode()


def after(seen: Json, now: datetime = NOW, *, settled: bool = True) -> Any:
    return next_step(Seen(**{**WELL, **seen}), now, settled=settled)


@pytest.mark.parametrize(
    ("seen", "later"),
    [
        pytest.param({}, timedelta(0), id="all is well"),
        pytest.param({}, 59 * DAY, id="a month before its end"),
        pytest.param({"configuration": None}, timedelta(0), id="no configuration to fill"),
        pytest.param(
            {"configuration": configuration()}, timedelta(0), id="a configuration of nothing"
        ),
        pytest.param(
            {"ca": ca_secret(CA, OLD.certificate), "configuration": BOTH},
            OVERLAP - MINUTE,
            id="the CA before is still trusted",
        ),
    ],
)
def test_nothing_is_written(seen: Json, later: timedelta) -> None:
    assert after(seen, NOW + later) is None


@pytest.mark.parametrize(
    ("ca", "why"),
    [
        pytest.param(None, "there is none", id="nothing"),
        pytest.param(secret(CA_SECRET), "ca.crt is no certificate", id="an empty Secret"),
        pytest.param({**ca_secret(CA), "data": None}, "ca.crt is no certificate", id="no data"),
        pytest.param(
            {**ca_secret(CA), "data": {"ca.crt": "%%%", "ca.key": 7}},
            "ca.crt is no certificate",
            id="no base64",
        ),
        pytest.param(
            ca_secret(Pair(certificate=CA.certificate[:-90], key=CA.key)),
            "ca.crt is no certificate",
            id="half a certificate",
        ),
        pytest.param(
            ca_secret(Pair(certificate=nameless(CA.certificate), key=CA.key)),
            "ca.crt is no certificate",
            id="a name that is no text",
        ),
        pytest.param(
            ca_secret(Pair(certificate=CA.certificate, key=OTHER.key)),
            "ca.key does not belong to ca.crt",
            id="the key of another",
        ),
        pytest.param(
            ca_secret(Pair(certificate=CA.certificate, key=b"x")),
            "ca.key does not belong to ca.crt",
            id="no key",
        ),
        pytest.param(ca_secret(SERVING), "ca.crt is no CA of ours", id="no CA"),
        pytest.param(
            ca_secret(made_ca(NOW + 2 * DAY)), "it is good only from 2026-12-01", id="of tomorrow"
        ),
        pytest.param(ca_secret(OLD), "it expires at 2027-11-29", id="in its last year"),
        pytest.param(
            ca_secret(made_ca(NOW - 6 * 365 * DAY)), "it expires at 2025-", id="expired long ago"
        ),
    ],
)
def test_a_new_ca_is_made(ca: Json | None, why: str) -> None:
    step = after({"ca": ca})

    assert isinstance(step, NewCA)
    assert step.why.startswith(why)
    # Whatever happened to the Secret: what the API server trusts may be in use.
    assert CA.certificate in step.previous


def test_a_new_ca_keeps_those_that_are_in_use_the_newest_first() -> None:
    expired = made_ca(NOW - 6 * 365 * DAY).certificate
    step = after(
        {
            "ca": ca_secret(OLD, OTHER.certificate + expired),
            "serving": serving_secret(BY_OLD, OLD.certificate),
            "configuration": configuration(OLD.certificate + SERVING.certificate, CA.certificate),
        }
    )

    assert step.previous == (CA.certificate, OTHER.certificate, OLD.certificate)


def test_a_new_ca_does_not_keep_more_and_more() -> None:
    many = [made_ca(NOW - age * DAY).certificate for age in range(1, 9)]

    step = after({"ca": None, "configuration": configuration(b"".join(reversed(many)))})

    assert step.previous == (CA.certificate, *many[:3])


@pytest.mark.parametrize(
    ("seen", "later", "previous"),
    [
        pytest.param(
            {"ca": ca_secret(CA, OLD.certificate)},
            OVERLAP + MINUTE,
            (),
            id="a week after the webhook was given a certificate of the new one",
        ),
        pytest.param(
            {"ca": ca_secret(CA, b"x")}, timedelta(0), (), id="where what is kept is no certificate"
        ),
        pytest.param(
            {"ca": ca_secret(CA, OLD.certificate + made_ca(NOW - 6 * 365 * DAY).certificate)},
            timedelta(0),
            (OLD.certificate,),
            id="without one that expired",
        ),
        pytest.param(
            {
                "serving": serving_secret(BY_OTHER, OTHER.certificate),
                "configuration": configuration(OTHER.certificate),
            },
            timedelta(0),
            (OTHER.certificate,),
            id="with the one in use, where somebody exchanged the Secret",
        ),
    ],
)
def test_the_cas_before_are_written_anew(
    seen: Json, later: timedelta, previous: tuple[bytes, ...]
) -> None:
    step = after(seen, NOW + later)

    assert isinstance(step, KeepCA)
    assert step.previous == previous


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({"serving": None}, id="there is no certificate of the webhook"),
        pytest.param(
            {"serving": serving_secret(BY_OLD, OLD.certificate)}, id="it is of the CA before"
        ),
    ],
)
def test_the_cas_before_are_kept_until_the_webhook_has_a_certificate_of_the_new(seen: Json) -> None:
    both = CA.certificate + OLD.certificate
    step = after(
        {"ca": ca_secret(CA, OLD.certificate), "configuration": configuration(both), **seen},
        NOW + 80 * DAY,
        settled=False,
    )

    assert not isinstance(step, KeepCA | Trust)


@pytest.mark.parametrize(
    ("held", "ca", "want"),
    [
        pytest.param((b"",), ca_secret(CA), CA.certificate, id="where it is empty"),
        pytest.param((b"x",), ca_secret(CA), CA.certificate, id="where it is nonsense"),
        pytest.param((OLD.certificate,), ca_secret(CA), CA.certificate, id="of another CA"),
        pytest.param(
            (CA.certificate, b""), ca_secret(CA), CA.certificate, id="of a webhook among several"
        ),
        pytest.param(
            (OLD.certificate,),
            ca_secret(CA, OLD.certificate),
            CA.certificate + OLD.certificate,
            id="with the CA before",
        ),
        pytest.param(
            (CA.certificate + OLD.certificate,), ca_secret(CA), CA.certificate, id="without it"
        ),
    ],
)
def test_the_bundle_is_written(held: tuple[bytes, ...], ca: Json, want: bytes) -> None:
    step = after({"ca": ca, "configuration": configuration(*held)})

    assert isinstance(step, Trust)
    assert step.bundle == want


@pytest.mark.parametrize(
    ("serving", "why"),
    [
        pytest.param(None, "there is none", id="nothing"),
        pytest.param(secret(SERVING_SECRET), "tls.crt is no certificate", id="an empty Secret"),
        pytest.param(
            serving_secret(SERVING, CA.certificate, tls_key=BY_OLD.key),
            "tls.key does not belong to tls.crt",
            id="the key of another",
        ),
        pytest.param(
            serving_secret(BY_OLD, OLD.certificate),
            "it is not signed by the CA",
            id="of another CA",
        ),
        pytest.param(
            serving_secret(made(CA, NOW, SERVING_LIFE, "elsewhere.svc"), CA.certificate),
            "it is for other names",
            id="for another server",
        ),
        pytest.param(
            serving_secret(made(CA, NOW + 2 * DAY), CA.certificate),
            "it is good only from 2026-12-01",
            id="of tomorrow",
        ),
        pytest.param(
            serving_secret(made(CA, NOW - 91 * DAY), CA.certificate),
            "it expires at 2026-11-28",
            id="expired",
        ),
    ],
)
def test_a_certificate_that_nobody_accepts_is_replaced_at_once(
    serving: Json | None, why: str
) -> None:
    step = after({"serving": serving}, settled=False)

    assert isinstance(step, NewServing)
    assert step.why.startswith(why)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(
            {"serving": serving_secret(made(CA, NOW - 61 * DAY), CA.certificate)},
            id="in its last month",
        ),
        pytest.param(
            {
                "ca": ca_secret(CA, OLD.certificate),
                "serving": serving_secret(BY_OLD, OLD.certificate),
                "configuration": configuration(CA.certificate + OLD.certificate),
            },
            id="of the CA before",
        ),
        pytest.param(
            {"serving": serving_secret(SERVING, OLD.certificate)}, id="beside another ca.crt"
        ),
    ],
)
def test_a_certificate_that_is_accepted_is_replaced_once_the_bundle_has_settled(seen: Json) -> None:
    assert after(seen, settled=False) is None
    assert isinstance(after(seen, settled=True), NewServing)


def test_a_ca_with_a_key_of_another_kind_is_replaced() -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 900 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, authority.hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pair = Pair(certificate=certificate.public_bytes(Encoding.PEM), key=pem)

    step = after({"ca": ca_secret(pair), "configuration": configuration(pair.certificate)})

    assert isinstance(step, NewCA)
    assert step.why == "ca.crt is no CA of ours"
    assert pair.certificate in step.previous


# The keeper ---------------------------------------------------------------------------------------


class Ground:
    """A cluster, a keeper of its certificates, and a clock."""

    def __init__(self, *documents: Json, round_seconds: float = keeper.ROUND_SECONDS) -> None:
        self.cluster = FakeCluster(*documents)
        self.duty = Duty()
        self.ahead = 0.0
        self._round_seconds = round_seconds
        self.keeper = self.other()

    def other(self) -> CertificateKeeper:
        """Another process's keeper of the same objects."""
        loop = asyncio.get_running_loop()
        clock = Clock(monotonic=loop.time, unix=self.unix)
        return CertificateKeeper(self.cluster, self.duty, clock, round_seconds=self._round_seconds)

    def unix(self) -> float:
        return NOW.timestamp() + asyncio.get_running_loop().time() + self.ahead

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.unix(), UTC)

    def held(self, name: str, key: str) -> bytes:
        found = self.cluster.objects["Secret"].get((SYSTEM, name), {})
        return base64.b64decode(found.get("data", {}).get(key, ""))

    def bundle(self) -> bytes:
        [webhook] = self.cluster.get("MutatingWebhookConfiguration", WEBHOOK)["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def writes(self) -> list[str]:
        """What was written, in order, and forget it."""
        short = {CA_SECRET: "ca", SERVING_SECRET: "serving", WEBHOOK: "bundle"}
        found = [
            short[call[-1]]
            for call in self.cluster.calls
            if call[0] in ("write_secret", "patch_webhook_configuration")
        ]
        self.cluster.calls.clear()
        return found

    def serves(self) -> bool:
        """Whether the API server accepts what the webhook is given to serve."""
        return trusts(self.bundle(), self.held(SERVING_SECRET, "tls.crt"), self.now)


async def test_at_first_the_ca_then_the_bundle_then_the_certificate() -> None:
    ground = Ground(configuration(b""))

    pause = await ground.keeper.tend()

    assert pause == 60.0
    assert ground.writes() == ["ca", "bundle", "serving"]
    assert ground.serves()
    secrets = ground.cluster.objects["Secret"]
    assert secrets[SYSTEM, CA_SECRET]["type"] == "Opaque"
    assert secrets[SYSTEM, CA_SECRET]["data"].keys() == {"ca.crt", "ca.key"}
    assert secrets[SYSTEM, SERVING_SECRET]["type"] == "kubernetes.io/tls"
    assert secrets[SYSTEM, SERVING_SECRET]["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert ground.held(SERVING_SECRET, "ca.crt") == ground.bundle()


async def test_without_a_configuration_the_certificate_is_made_all_the_same() -> None:
    ground = Ground()
    await ground.keeper.tend()
    assert ground.writes() == ["ca", "serving"]

    ground.cluster.put(configuration(b""))
    await ground.keeper.tend()

    assert ground.writes() == ["bundle"]
    assert ground.serves()


async def test_while_all_is_well_nothing_is_written() -> None:
    ground = Ground(configuration(b""))
    async with background(ground.keeper.run()):
        await passing(10.0)
        ground.writes()
        await passing(3 * 3600.0)

    assert ground.writes() == []


async def test_what_a_person_broke_is_mended_within_a_minute() -> None:
    ground = Ground(configuration(b""))
    async with background(ground.keeper.run()):
        await passing(10.0)
        for spoil, writes in [
            (lambda: ground.cluster.put(configuration(b"")), ["bundle"]),
            (lambda: ground.cluster.put(configuration(OTHER.certificate)), ["bundle"]),
            (lambda: ground.cluster.remove("Secret", SERVING_SECRET, SYSTEM), ["serving"]),
            (lambda: ground.cluster.put(secret(SERVING_SECRET, x=b"x")), ["serving"]),
            (
                lambda: ground.cluster.remove("Secret", CA_SECRET, SYSTEM),
                ["ca", "bundle", "serving"],
            ),
            (lambda: ground.cluster.put(secret(CA_SECRET)), ["ca", "bundle", "serving"]),
        ]:
            ground.writes()
            spoil()
            await passing(125.0)
            assert ground.writes() == writes
            assert ground.serves()


async def test_what_is_not_ours_of_a_secret_stays() -> None:
    ground = Ground(configuration(b""))
    held = secret(SERVING_SECRET, "Opaque", x=b"x")
    held["metadata"]["labels"] = {"team": "ours"}
    ground.cluster.put(held)

    await ground.keeper.tend()

    kept = ground.cluster.get("Secret", SERVING_SECRET, SYSTEM)
    assert kept["metadata"]["labels"] == {"team": "ours"}
    assert kept["type"] == "Opaque"  # it can't be changed
    assert kept["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert ground.serves()


async def test_a_passive_replica_writes_nothing_and_looks_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground(configuration(b""))
    monkeypatch.setattr(ground.duty, "passive", lambda: "another replica acts")

    assert await ground.keeper.tend() == 1.0

    assert ground.cluster.calls == []


async def test_a_replica_that_became_passive_meanwhile_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground(configuration(b""))
    ground.cluster.slow("secret", 0.5)
    asyncio.get_running_loop().call_later(
        0.2, lambda: monkeypatch.setattr(ground.duty, "passive", lambda: "no longer")
    )

    await ground.keeper.tend()

    assert ground.writes() == []


async def test_nothing_is_written_after_sigterm() -> None:
    ground = Ground(configuration(b""))
    ground.duty.stopping = True

    await ground.keeper.tend()

    assert ground.writes() == []


async def test_it_tries_again_soon_and_says_once_why(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(configuration(b""))
    ground.cluster.fail("write_secret", *[refused(403, "secrets is forbidden")] * 5)

    pauses = [await ground.keeper.tend() for _ in range(6)]

    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    told = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert told == ["the webhook's certificates can't be looked after: secrets is forbidden"]
    assert ground.serves()
    ground.cluster.fail("secret", refused(403, "secrets is forbidden"))
    assert await ground.keeper.tend() == 5.0
    assert [it.getMessage() for it in caplog.records if it.levelname == "WARNING"] == told * 2


async def test_a_conflict_is_decided_anew() -> None:
    ground = Ground(configuration(b""))
    ground.cluster.fail("write_secret", refused(409), None, refused(409))
    ground.cluster.fail("patch_webhook_configuration", refused(409))

    assert await ground.keeper.tend() == 60.0
    assert ground.serves()


async def test_whoever_always_loses_gives_up_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(configuration(b""))
    ground.cluster.fail("write_secret", *[refused(409)] * 12)

    assert await ground.keeper.tend() == 5.0
    assert "somebody else writes" in caplog.text


async def test_a_secret_that_may_not_be_changed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground({**secret(CA_SECRET), "immutable": True}, configuration(b""))

    await ground.keeper.tend()

    assert f'Secret "{CA_SECRET}" is invalid: field is immutable' in caplog.text


async def test_of_two_at_once_one_ca_is_left() -> None:
    ground = Ground(configuration(b""))
    ground.cluster.slow("write_secret", 0.1)
    ground.cluster.slow("secret", 0.1)
    two = [ground.keeper, ground.other()]

    await asyncio.gather(*(each.tend() for each in two))

    assert ground.serves()
    ground.writes()
    for each in two:
        await each.tend()
    assert ground.writes() == []


async def test_it_says_what_it_did_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ground = Ground(configuration(b""))
    await ground.keeper.tend()

    assert [it.getMessage() for it in caplog.records] == [
        "made a new CA for the webhook: there is none",
        "wrote the caBundle of the webhook: it did not hold the CAs in use, and no other",
        "made a new certificate for the webhook: there is none",
    ]
    assert b"PRIVATE" not in caplog.text.encode()


# The years ----------------------------------------------------------------------------------------


class Fleet:
    """Webhooks that read their Secret late, and API servers that hear of a bundle late."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._served: list[tuple[datetime, bytes]] = []
        self._bundles: list[tuple[datetime, bytes]] = []

    def look(self) -> None:
        """Remember what is there; called after every write and every so often."""
        now, leaf = self.ground.now, self.ground.held(SERVING_SECRET, "tls.crt")
        for known, value in ((self._served, leaf), (self._bundles, self.ground.bundle())):
            if value and (not known or known[-1][1] != value):
                known.append((now, value))

    def refusals(self) -> list[str]:
        """Which API server refuses which webhook now."""
        now = self.ground.now
        leaves = _within(self._served, now, timedelta(hours=6))
        bundles = _within(self._bundles, now, timedelta(seconds=40))
        return [
            f"{now}: certificate {leaf} of {len(self._served)}, bundle {bundle} of"
            f" {len(self._bundles)}"
            for leaf in leaves
            for bundle in bundles
            if not trusts(self._bundles[bundle][1], self._served[leaf][1], now)
        ]


def _within(known: list[tuple[datetime, bytes]], now: datetime, late: timedelta) -> Iterator[int]:
    """What somebody may have who hears of a change so late: the last, and what it replaced."""
    for place, (_, until) in enumerate(pairwise([*(since for since, _ in known), None])):
        if until is None or until + late >= now:
            yield place


@pytest.mark.timeout(300)
async def test_for_nine_years_no_webhook_is_ever_refused() -> None:
    ground = Ground(configuration(b""))
    fleet = Fleet(ground)
    cas, refusals, writes = set(), [], 0
    for _ in range(9 * 365 // 2):
        await ground.keeper.tend()
        writes += len(ground.writes())
        fleet.look()
        refusals += fleet.refusals()
        cas.add(ground.held(CA_SECRET, "ca.crt"))
        # By the clock of the wall: the loop's does not resolve a second of so many years.
        ground.ahead += 2 * DAY.total_seconds()

    assert refusals == []
    assert len(cas) == 3
    assert 9 * 365 / 62 < writes < 9 * 365 / 60 + 15
    assert not ground.held(CA_SECRET, "previous.crt")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["before", "after", "unheard"])
@pytest.mark.parametrize("crash", range(5))
async def test_a_crash_at_any_write_of_a_change_of_ca_refuses_nobody(how: str, crash: int) -> None:
    old = made_ca(NOW - 4 * 365 * DAY)
    ground = Ground(
        ca_secret(old),
        serving_secret(made(old), old.certificate),
        configuration(old.certificate),
    )
    fleet = Fleet(ground)
    if how != "unheard":
        crash_at(ground.cluster, crash, before=how == "before")
    else:
        for verb in ("write_secret", "patch_webhook_configuration"):
            ground.cluster.fail(verb, *[None] * (crash // 2), unanswered(lands=3.0, after=10.0))
    fleet.look()
    refusals: list[str] = []
    running = ground.keeper
    for pause in [300.0] * 12 + [6 * 3600.0] * 4 * 9:
        try:
            await running.tend()
        except Crash:
            running = ground.other()  # another replica, which knows nothing
            await running.tend()
        fleet.look()
        refusals += fleet.refusals()
        await passing(pause)

    assert refusals == []
    assert ground.serves()
    assert ground.bundle() == ground.held(CA_SECRET, "ca.crt") != old.certificate


def crash_at(cluster: FakeCluster, which: int, *, before: bool) -> None:
    """Let the process be gone just before or after a write."""
    write, writes = cluster.put, itertools.count()

    def put(document: Json) -> Json:
        ours = next(writes) == which
        if ours and before:
            raise Crash
        held = write(document)
        if ours:
            raise Crash
        return held

    cluster.put = put  # type: ignore[method-assign]


class Crash(Exception):
    """The process is gone."""


async def test_the_new_ca_is_known_a_minute_before_it_is_used() -> None:
    old = made_ca(NOW - 4 * 365 * DAY)
    ground = Ground(
        ca_secret(old), serving_secret(made(old), old.certificate), configuration(old.certificate)
    )
    async with background(ground.keeper.run()):
        await passing(30.0)
        assert ground.writes() == ["ca", "bundle"]
        assert ground.bundle() == ground.held(CA_SECRET, "ca.crt") + old.certificate
        await passing(60.0)
        assert ground.writes() == ["serving"]
    assert ground.serves()


async def test_the_old_ca_is_dropped_a_week_after_the_new_one_is_used() -> None:
    old = made_ca(NOW - 4 * 365 * DAY)
    ground = Ground(
        ca_secret(old),
        serving_secret(made(old), old.certificate),
        configuration(old.certificate),
        round_seconds=3600.0,
    )
    async with background(ground.keeper.run()):
        await passing(2 * 3600.0 + 60.0)
        assert ground.writes() == ["ca", "bundle", "serving"]
        await passing(OVERLAP.total_seconds() - 2 * 3600.0)
        assert ground.writes() == []
        await passing(4 * 3600.0)
        assert ground.writes() == ["ca", "bundle"]
    assert ground.bundle() == ground.held(CA_SECRET, "ca.crt") != old.certificate
    assert ground.serves()


async def test_a_restart_begins_the_minute_anew() -> None:
    old = made_ca(NOW - 4 * 365 * DAY)
    ground = Ground(
        ca_secret(old), serving_secret(made(old), old.certificate), configuration(old.certificate)
    )
    await ground.keeper.tend()
    assert ground.writes() == ["ca", "bundle"]

    other = ground.other()
    await other.tend()
    assert ground.writes() == []
    await other.tend()
    assert ground.writes() == ["serving"]


@pytest.mark.parametrize("between", ["an error", "another replica's turn"])
async def test_what_was_known_before_is_not_relied_on_after(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = made_ca(NOW - 4 * 365 * DAY)
    ground = Ground(
        ca_secret(old), serving_secret(made(old), old.certificate), configuration(old.certificate)
    )
    await ground.keeper.tend()
    assert ground.writes() == ["ca", "bundle"]

    if between == "an error":
        ground.cluster.fail("secret", refused(500))
        await ground.keeper.tend()
    else:
        with monkeypatch.context() as context:
            context.setattr(ground.duty, "passive", lambda: "another replica acts")
            await ground.keeper.tend()

    await ground.keeper.tend()
    assert ground.writes() == []


async def test_a_ca_before_is_dropped_by_hand() -> None:
    ground = Ground(configuration(b""))
    await ground.keeper.tend()
    known = ground.bundle()
    ground.cluster.remove("Secret", CA_SECRET, SYSTEM)
    for _ in range(3):
        await ground.keeper.tend()
    assert ground.bundle() == ground.held(CA_SECRET, "ca.crt") + known

    held = ground.cluster.get("Secret", CA_SECRET, SYSTEM)
    del held["data"]["previous.crt"]
    ground.cluster.put(held)
    await ground.keeper.tend()

    assert ground.bundle() == ground.held(CA_SECRET, "ca.crt")
    assert ground.serves()


async def test_taking_over_from_cert_manager_refuses_nobody() -> None:
    ground = Ground(
        serving_secret(BY_OTHER, OTHER.certificate),
        configuration(OTHER.certificate),
        round_seconds=3600.0,
    )
    fleet = Fleet(ground)
    refusals = []
    async with background(ground.keeper.run()):
        for _ in range(10 * 24):
            fleet.look()
            refusals += fleet.refusals()
            await passing(3600.0)

    assert refusals == []
    assert ground.bundle() == ground.held(CA_SECRET, "ca.crt") != OTHER.certificate


async def test_a_ca_that_comes_back_from_a_backup_refuses_nobody() -> None:
    ground = Ground(configuration(b""), round_seconds=3600.0)
    fleet = Fleet(ground)
    ancient = made_ca(NOW - 200 * DAY)
    refusals = []
    async with background(ground.keeper.run()):
        await passing(10.0)
        fleet.look()
        ground.cluster.put(ca_secret(ancient))
        for _ in range(10 * 24):
            await passing(3600.0)
            fleet.look()
            refusals += fleet.refusals()

    assert refusals == []
    assert ground.bundle() == ancient.certificate


async def test_a_sleep_past_the_end_of_everything_is_mended_at_once() -> None:
    ground = Ground(configuration(b""))
    await ground.keeper.tend()
    ground.writes()
    ground.ahead += (7 * 365 * DAY).total_seconds()
    assert not ground.serves()

    await ground.keeper.tend()

    assert ground.writes() == ["ca", "bundle", "serving"]
    assert ground.serves()


async def test_a_clock_that_was_years_ahead_is_mended_at_once() -> None:
    ground = Ground(configuration(b""))
    ground.ahead = (3 * 365 * DAY).total_seconds()
    await ground.keeper.tend()
    ground.ahead = 0.0
    assert not ground.serves()

    await ground.keeper.tend()

    assert ground.serves()


# Anything in the Secrets --------------------------------------------------------------------------

PEMS = st.sampled_from(
    [
        b"",
        b"x",
        CA.certificate,
        CA.key,
        OLD.certificate,
        OLD.key,
        OTHER.certificate + OLD.certificate,
        b"a comment\n" + CA.certificate,
        SERVING.certificate,
        SERVING.key,
        BY_OLD.certificate + OLD.certificate,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ]
)
DATA = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("ca_crt", "ca_key", "previous_crt", "tls_crt", "tls_key"), PEMS)
)
ODD = st.sampled_from([None, [], "x", {"ca.crt": 7}, {"tls.crt": "é"}])


def secrets(name: str, kind: str) -> st.SearchStrategy[Json | None]:
    whole = DATA.map(lambda data: secret(name, kind, **data))
    return st.none() | whole | ODD.map(lambda data: {**secret(name, kind), "data": data})


@given(
    secrets(CA_SECRET, "Opaque"),
    secrets(SERVING_SECRET, "Opaque"),
    st.none() | st.lists(PEMS, max_size=2).map(lambda bundles: configuration(*bundles)),
)
async def test_whatever_is_there_two_rounds_mend_it(
    ca: Json | None, serving: Json | None, hook: Json | None
) -> None:
    ground = Ground(*(copy.deepcopy(it) for it in (ca, serving, hook) if it is not None))

    for _ in range(2):
        assert await ground.keeper.tend() == 60.0
    ground.writes()
    await ground.keeper.tend()

    assert ground.writes() == []
    now = ground.now
    leaf = ground.held(SERVING_SECRET, "tls.crt")
    assert trusts(ground.held(CA_SECRET, "ca.crt"), leaf, now)
    for webhook in (hook or {}).get("webhooks", ()):
        name = webhook["name"]
        [held] = [
            each
            for each in ground.cluster.get("MutatingWebhookConfiguration", WEBHOOK)["webhooks"]
            if each["name"] == name
        ]
        assert trusts(base64.b64decode(held["clientConfig"]["caBundle"]), leaf, now)
