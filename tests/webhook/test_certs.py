"""The certificate that is served: where it comes from, how it is exchanged, what is kept out."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import build
from cardwise.controller.webhook import authority as x509
from cardwise.controller.webhook.authority import Pair
from cardwise.settings import Settings
from cardwise_webhook import certs
from cardwise_webhook.certs import Certificate
from cardwise_webhook.metrics import Metrics
from cardwise_webhook.server import Health, mutating
from webhooks import NAME, Authority, Mount, review, trusting

# Real sockets keep real time.
pytestmark = [pytest.mark.looptime(False), pytest.mark.timeout(60)]

BODY = orjson.dumps(review(build.pod(gpumem=1000)))
DAY = 86400.0


class Server:
    """The webhook by TLS on a port, following a directory."""

    def __init__(self, directory: Path) -> None:
        self.mount = Mount(directory)
        self.metrics = Metrics()
        self.now = datetime.now(UTC).timestamp()
        self.certificate = Certificate(directory, self.metrics, unix=lambda: self.now)
        self.port = 0

    async def listen(self) -> web.AppRunner:
        app = mutating(Settings(), self.metrics, Health(self.certificate))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.certificate.context).start()
        self.port = runner.addresses[0][1]
        return runner

    def put(self, pair: Pair) -> None:
        self.mount.put(pair)
        self.certificate.look()

    def seen(self, authority: Authority, *, host: str | None = NAME, version: str = "") -> bytes:
        """The certificate that a client is shown, as PEM."""
        trust = trusting(authority.bundle)
        if version:
            trust.maximum_version = trust.minimum_version = ssl.TLSVersion[version]
        if host is None:
            trust.check_hostname = False
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain,
            trust.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()

    def metric(self, name: str) -> float:
        [line] = [it for it in self.metrics.render().decode().splitlines() if it.startswith(name)]
        return float(line.rpartition(" ")[2])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path / "tls")
    runner = await server.listen()
    yield server
    await runner.cleanup()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def seen(server: Server, authority: Authority, **how: str | None) -> bytes:
    return await asyncio.to_thread(lambda: server.seen(authority, **how))  # type: ignore[arg-type]


# Handshakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"version": "TLSv1_2"}, id="TLS 1.2"),
        pytest.param({"version": "TLSv1_3"}, id="TLS 1.3"),
        pytest.param({"host": None}, id="a client that names no server"),
    ],
)
async def test_clients_are_shown_the_newest_certificate(
    server: Server, authority: Authority, how: dict[str, str | None]
) -> None:
    for _ in range(3):
        pair = authority.issue()
        server.put(pair)

        shown = await seen(server, authority, **how)

        assert x509.Certificate.read(shown) == x509.Certificate.read(pair.certificate)


async def test_an_old_tls_is_refused(server: Server, authority: Authority) -> None:
    server.put(authority.issue())

    with pytest.raises(ssl.SSLError), pytest.warns(DeprecationWarning, match="TLSv1_1"):
        await seen(server, authority, version="TLSv1_1")


async def test_without_a_certificate_there_is_no_handshake(
    server: Server, authority: Authority
) -> None:
    server.certificate.look()

    with pytest.raises(ssl.SSLError):
        await seen(server, authority)


# Exchange -----------------------------------------------------------------------------------------


async def test_a_stream_of_requests_outlives_every_exchange(
    server: Server, authority: Authority
) -> None:
    other = Authority("another-ca")
    server.put(authority.issue())
    following = asyncio.create_task(server.certificate.follow())
    trust = trusting(authority.bundle, other.bundle)
    done: list[int] = []

    async def stream(*, keep: bool) -> None:
        connector = aiohttp.TCPConnector(ssl=trust, force_close=not keep)
        url = f"https://{NAME}:{server.port}/mutate"
        async with aiohttp.ClientSession(connector=connector) as session:
            while not exchanged.is_set():
                async with session.post(url, data=BODY) as answer:
                    assert answer.status == 200
                    assert (await answer.json())["response"]["allowed"] is True
                    done.append(answer.status)
                    if len(done) % 5 == 0:
                        progress.set()

    progress, exchanged = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for keep in (True, True, False, False):
            group.create_task(stream(keep=keep))
        for turn in range(40):
            progress.clear()
            await progress.wait()
            server.put((authority, other)[turn % 2].issue())
        exchanged.set()
    following.cancel()

    assert len(done) >= 160
    assert server.metric('cardwise_certificate_loads_total{result="ok"}') == 41
    assert server.metric('cardwise_certificate_loads_total{result="refused"}') == 0


async def test_a_connection_that_stands_is_not_touched(
    server: Server, authority: Authority
) -> None:
    server.put(authority.issue())
    url = f"https://{NAME}:{server.port}/mutate"
    connector = aiohttp.TCPConnector(ssl=trusting(authority.bundle), limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.post(url, data=BODY) as answer:
            await answer.read()
        server.put(Authority("of nobody's trust").issue())

        async with session.post(url, data=BODY) as answer:  # a new one would not be trusted
            assert answer.status == 200


async def test_the_files_are_looked_at_every_second(server: Server, authority: Authority) -> None:
    following = asyncio.create_task(server.certificate.follow())
    await asyncio.sleep(0)
    assert server.certificate.missing
    pair = authority.issue()
    server.mount.put(pair)

    async with asyncio.timeout(3.0):
        await server.certificate.found()

    assert x509.Certificate.read(await seen(server, authority)) == x509.Certificate.read(
        pair.certificate
    )
    following.cancel()


async def test_files_that_are_written_in_place_are_taken_too(
    tmp_path: Path, authority: Authority
) -> None:
    metrics = Metrics()
    certificate = Certificate(tmp_path, metrics)
    old, new = authority.issue(), authority.issue()
    for pair in (old, new):
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        certificate.look()  # between the two writes
        (tmp_path / "tls.key").write_bytes(pair.key)
        certificate.look()
        assert certificate.trouble == ""

    text = metrics.render().decode()
    assert 'cardwise_certificate_loads_total{result="ok"} 2.0' in text


# What is kept out ---------------------------------------------------------------------------------


def of_version_9(pem: bytes) -> bytes:
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    v3 = b"\xa0\x03\x02\x01\x02"
    return ssl.DER_cert_to_PEM_cert(der.replace(v3, v3[:-1] + b"\x08", 1)).encode()


def encrypted(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param(
            lambda good, other: Pair(certificate=good.certificate, key=other.key),
            "tls.key: it can't be used with the certificate: KEY_VALUES_MISMATCH",
            id="a key of another",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=b"x", key=good.key),
            "tls.crt is no certificate: ",
            id="no certificate",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=b"", key=good.key),
            "tls.crt is no certificate: ",
            id="an empty certificate",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=good.certificate[:-60], key=good.key),
            "tls.crt is no certificate: ",
            id="half a certificate",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=of_version_9(good.certificate), key=good.key),
            "tls.crt is no certificate: ",
            id="a version that there is not",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=good.certificate, key=b"x"),
            "tls.key: it can't be used with the certificate: ",
            id="no key",
        ),
        pytest.param(
            lambda good, _: Pair(certificate=good.certificate, key=encrypted(good.key)),
            "tls.key: it can't be used with the certificate: ",
            id="a key behind a password",
        ),
    ],
)
async def test_a_bad_pair_leaves_the_one_in_use(
    server: Server,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Pair, Pair], Pair],
    why: str,
) -> None:
    good = authority.issue()
    server.put(good)

    server.put(spoil(authority.issue(), authority.issue()))
    server.certificate.look()
    server.certificate.look()

    assert why in server.certificate.trouble
    assert server.certificate.missing == ""
    assert x509.Certificate.read(await seen(server, authority)) == x509.Certificate.read(
        good.certificate
    )
    [told] = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert told.startswith("the certificate in use is kept, because the new one can't be: ")
    assert "\n" not in told
    assert server.metric('cardwise_certificate_loads_total{result="refused"}') == 1
    better = authority.issue()
    server.put(better)
    assert server.certificate.trouble == ""
    assert x509.Certificate.read(await seen(server, authority)) == x509.Certificate.read(
        better.certificate
    )


@pytest.mark.parametrize("gone", ["..data", "tls.key", "tls.crt"])
async def test_files_that_are_gone_leave_the_one_in_use(
    server: Server, authority: Authority, gone: str
) -> None:
    good = authority.issue()
    server.put(good)
    (server.mount.path / gone).unlink()
    server.certificate.look()

    assert server.certificate.trouble.endswith("No such file or directory")
    assert x509.Certificate.read(await seen(server, authority)) == x509.Certificate.read(
        good.certificate
    )


async def test_a_directory_that_is_not_there_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(tmp_path / "nowhere", Metrics())
    for _ in range(3):
        certificate.look()

    assert certificate.missing.endswith("nowhere/tls.crt: No such file or directory")
    assert [it.getMessage() for it in caplog.records] == [
        f"no certificate yet: {tmp_path}/nowhere/tls.crt: No such file or directory"
    ]


async def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").mkdir()
    certificate = Certificate(tmp_path, Metrics())
    certificate.look()

    assert certificate.missing.endswith("tls.crt: Is a directory")


# Its end ------------------------------------------------------------------------------------------


async def test_the_metric_says_until_when_it_is_good(server: Server, authority: Authority) -> None:
    assert server.metric("cardwise_certificate_expires_timestamp_seconds") == 0
    server.put(authority.issue(life=timedelta(days=90)))

    left = server.metric("cardwise_certificate_expires_timestamp_seconds") - server.now
    assert left == pytest.approx(90 * DAY, abs=60)


@pytest.mark.parametrize(
    ("days", "lines"),
    [
        pytest.param(0, 0, id="new"),
        pytest.param(61, 0, id="when it should be renewed"),
        pytest.param(74, 0, id="a little late"),
        pytest.param(76, 1, id="overdue"),
        pytest.param(91, 1, id="expired"),
    ],
)
async def test_a_renewal_that_is_overdue_is_told(
    server: Server,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    days: int,
    lines: int,
) -> None:
    server.put(authority.issue(life=timedelta(days=90)))
    server.now += days * DAY
    server.certificate.look()
    server.certificate.look()

    told = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert len(told) == lines
    if lines:
        assert ("expired at" in told[0]) is (days > 90)
        assert "no Pod with cards can be created" in told[0]
        server.now += certs._REMIND_SECONDS + 1
        server.certificate.look()
        assert len([it for it in caplog.records if it.levelname == "WARNING"]) == 2


async def test_a_renewal_ends_the_warning(
    server: Server, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    server.put(authority.issue(began=timedelta(days=80), life=timedelta(days=90)))
    assert "expires at" in caplog.text
    caplog.clear()

    server.put(authority.issue())
    server.now += certs._REMIND_SECONDS + 1
    server.certificate.look()

    assert [it for it in caplog.records if it.levelname == "WARNING"] == []
