"""The HTTP surface, over a real socket: statuses, limits, deadlines, probes, metrics."""

import asyncio
import gzip
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

import build
from cardwise.settings import Settings
from cardwise_webhook import server
from cardwise_webhook.certs import Certificate
from cardwise_webhook.metrics import Metrics
from cardwise_webhook.server import Health, mutating, reports
from webhooks import Authority, Mount, review

# Real sockets keep real time.
pytestmark = [pytest.mark.looptime(False), pytest.mark.timeout(30)]

Json = dict[str, Any]
PLAIN = orjson.dumps(review(build.pod(gpumem=1000)))
MIB = 1024 * 1024


@dataclass
class Served:
    """Both applications on a port each, without TLS."""

    port: int
    reports: str
    metrics: Metrics
    certificate: Certificate
    health: Health
    mount: Mount
    session: aiohttp.ClientSession

    async def post(self, body: bytes, path: str = "/mutate", **headers: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.post(url, data=io.BytesIO(body), headers=headers) as answer:
            return answer.status, await answer.text()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"{self.reports}{path}") as answer:
            return answer.status, await answer.text()

    async def raw(self, *parts: bytes, wait: float = 0.0) -> bytes:
        """Send bytes as they are and wait for the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(wait)
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()

    async def counted(self) -> dict[str, float]:
        """How many requests ended in which way, without the ways that none did."""
        _, text = await self.get("/metrics")
        found = re.findall(
            r'^cardwise_admission_requests_total\{result="(\w+)"\} (\S+)', text, re.MULTILINE
        )
        return {result: float(count) for result, count in found if float(count)}


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, lingering_time=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    metrics = Metrics()
    mount = Mount(tmp_path / "tls")
    certificate = Certificate(mount.path, metrics)
    health = Health(certificate)
    async with (
        listening(mutating(Settings(), metrics, health)) as port,
        listening(reports(metrics, health)) as reporting,
        aiohttp.ClientSession() as session,
    ):
        base = f"http://127.0.0.1:{reporting}"
        yield Served(port, base, metrics, certificate, health, mount, session)


async def test_a_review_is_answered_as_json(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}/mutate"

    async with served.session.post(url, params={"timeout": "5s"}, data=PLAIN) as answer:
        body = await answer.json()

    assert answer.status == 200
    assert answer.content_type == "application/json"
    assert body["response"]["allowed"] is True


async def test_a_connection_is_kept_and_used_again(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for _ in range(3):
        writer.write(request(PLAIN))
        assert b" 200 " in await reader.readline()
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: close" not in head
        await reader.readexactly(int(re.findall(rb"Content-Length: (\d+)", head)[0]))
    writer.close()


def request(body: bytes, *, length: int | None = None, path: str = "/mutate") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("pod", "changes", "result"),
    [
        pytest.param(build.pod(), {}, "changed", id="changed"),
        pytest.param(build.pod(gpumem=1000), {}, "unchanged", id="left as it is"),
        pytest.param(build.pod(gpus=None), {}, "ignored", id="none of our business"),
        pytest.param(build.pod(gpumem="16Gi"), {}, "denied", id="denied"),
        pytest.param(None, {}, "bad", id="no review"),
    ],
)
async def test_every_request_is_counted_by_its_result(
    served: Served, pod: Any, changes: Json, result: str
) -> None:
    assert await served.counted() == {}

    await served.post(orjson.dumps(review(pod, **changes)))

    assert await served.counted() == {result: 1.0}
    _, text = await served.get("/metrics")
    assert "cardwise_admission_seconds_count 1.0" in text


async def test_a_denial_is_logged_with_its_pod(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    await served.post(orjson.dumps(review(build.pod("bad", gpumem="16Gi"))))
    await served.post(PLAIN)

    [line] = [it.getMessage() for it in caplog.records if it.name == "cardwise_webhook.server"]
    assert line.startswith("default/bad: denied: container app: nvidia.com/gpumem")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        pytest.param(b"{", 400, "The body is not JSON: ", id="no JSON"),
        pytest.param(b"{}", 400, "The body is null of null, not AdmissionReview", id="no review"),
        pytest.param(
            b" " * (16 * MIB + 1), 413, "The body has more than 16777216 bytes.", id="too large"
        ),
    ],
)
async def test_a_broken_body_gets_one_sentence(
    served: Served, body: bytes, status: int, sentence: str
) -> None:
    code, text = await served.post(body)

    assert code == status
    assert text.startswith(sentence)
    assert text.count("\n") == 1
    assert await served.counted() == {"bad": 1.0}


async def test_a_body_that_says_it_is_too_large_is_not_waited_for(served: Served) -> None:
    answer = await served.raw(request(b"{", length=17 * MIB))

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"\r\n\r\nThe body has more than 16777216 bytes.\n")


async def test_a_body_in_pieces_is_held_to_the_size_too(served: Served) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * MIB

    url = f"http://127.0.0.1:{served.port}/mutate"
    async with served.session.post(url, data=pieces()) as answer:
        assert answer.status == 413


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        pytest.param(gzip.compress(PLAIN), "gzip", 200, id="packed"),
        pytest.param(gzip.compress(b" " * (17 * MIB)), "gzip", 413, id="packed, and too large"),
        pytest.param(PLAIN, "gzip", 400, id="not packed as it says"),
    ],
)
async def test_packed_bodies(served: Served, body: bytes, encoding: str, status: int) -> None:
    code, text = await served.post(body, **{"Content-Encoding": encoding})

    assert code == status, text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/mutate", 405, id="to read"),
        pytest.param("POST", "/", 404, id="elsewhere"),
        pytest.param("POST", "/bind", 404, id="as if it were the extender"),
        pytest.param("GET", "/metrics", 404, id="metrics on the API server's port"),
    ],
)
async def test_other_addresses_do_nothing(
    served: Served, method: str, path: str, status: int
) -> None:
    url = f"http://127.0.0.1:{served.port}{path}"
    async with served.session.request(method, url, data=PLAIN) as answer:
        assert answer.status == status


async def test_no_review_can_be_sent_to_the_port_of_the_reports(served: Served) -> None:
    async with served.session.post(f"{served.reports}/mutate", data=PLAIN) as answer:
        assert answer.status == 404


async def test_a_mistake_of_ours_is_an_error_without_a_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(body: bytes, settings: Settings) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(server, "answer", broken)

    status, text = await served.post(PLAIN)

    assert status == 500
    assert "inside" not in text
    assert "Traceback" not in text
    assert await served.counted() == {"error": 1.0}
    monkeypatch.undo()
    assert (await served.post(PLAIN))[0] == 200


async def test_a_caller_that_goes_away_is_no_mistake_of_ours(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = request(b"", length=100).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    writer.write(head)
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"

    writer.close()
    async with asyncio.timeout(5):
        await served.health.idle()

    assert await served.counted() == {"bad": 1.0}
    assert [it for it in caplog.records if it.exc_info] == []


# Deadlines ----------------------------------------------------------------------------------------


async def test_a_body_that_does_not_come_is_cut(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS", 0.2)

    answer = await served.raw(request(b"{", length=100))

    assert answer.startswith(b"HTTP/1.1 504 ")
    assert b"Connection: close" in answer
    assert answer.endswith(b"\r\n\r\nThe body did not come within 0.2 s.\n")
    assert await served.counted() == {"late": 1.0}


async def test_a_body_that_comes_in_drops_is_cut(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS", 0.2)

    answer = await served.raw(request(b"{", length=100), *[b" "] * 5, wait=0.05)

    assert answer.startswith(b"HTTP/1.1 504 ")


async def test_the_api_server_may_give_it_less(served: Served) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    answer = await served.raw(request(b"{", length=100, path="/mutate?timeout=1s"))

    assert answer.endswith(b"The body did not come within 1 s.\n")
    assert 0.9 < loop.time() - began < 4.0


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("1s", 1.0),
        ("5s", 5.0),
        ("30s", 5.0),
        ("0s", 5.0),
        ("-1s", 5.0),
        ("1h", 5.0),
        ("", 5.0),
        ("1s1s", 5.0),
        ("٣s", 5.0),
    ],
)
def test_how_long_a_request_may_take(timeout: str, seconds: float) -> None:
    assert server._allowed(timeout) == seconds


async def test_a_slow_body_keeps_nobody_else_waiting(served: Served) -> None:
    slow = asyncio.create_task(served.raw(request(b"{", length=100, path="/mutate?timeout=2s")))
    await asyncio.sleep(0.1)

    for _ in range(20):
        assert (await served.post(PLAIN))[0] == 200

    assert not slow.done()
    await slow


# Health and metrics -------------------------------------------------------------------------------


async def test_it_is_alive_and_not_ready_until_there_is_a_certificate(served: Served) -> None:
    served.certificate.look()

    for path in ("/healthz", "/livez"):
        assert await served.get(path) == (200, "ok\n")
    status, why = await served.get("/readyz")
    assert status == 503
    assert why.startswith("there is no certificate to serve yet: ")
    assert why.rstrip().endswith("tls.crt: No such file or directory")

    served.mount.put(Authority().issue())
    served.certificate.look()
    assert await served.get("/readyz") == (200, "ok\n")


async def test_while_it_stops_it_answers_and_asks_to_be_left(served: Served) -> None:
    served.mount.put(Authority().issue())
    served.certificate.look()
    served.health.stopping = True

    assert await served.get("/readyz") == (503, "the webhook is stopping\n")
    answer = await served.raw(request(PLAIN))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in answer


async def test_the_api_servers_port_tells_health_too(served: Served) -> None:
    for path, status in [("/healthz", 200), ("/livez", 200), ("/readyz", 503)]:
        async with served.session.get(f"http://127.0.0.1:{served.port}{path}") as answer:
            assert answer.status == status


async def test_metrics_tell_of_the_process_too(served: Served) -> None:
    _, text = await served.get("/metrics")

    for name in (
        *("process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"),
        'cardwise_admission_requests_total{result="denied"} 0.0',
        "cardwise_certificate_expires_timestamp_seconds 0.0",
    ):
        assert f"\n{name}" in text
