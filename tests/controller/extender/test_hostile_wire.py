"""Callers that speak no HTTP, half of it, or too slowly: on both ports, the open one above all."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build
from cardwise.controller.extender.http import reports, verbs
from controllers import World
from served import Served, filtering, port_of

pytestmark = pytest.mark.timeout(120)

bounded = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
BODY = json.dumps(filtering(build.pod("x", gpumem=1))).encode()
STATUS = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3}) ")
CHUNKED = b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(*headers: bytes, length: int | None = len(BODY), body: bytes = BODY) -> bytes:
    """A call of /filter as bytes."""
    lines = [b"POST /filter HTTP/1.1", b"Host: x", *headers]
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    return b"\r\n".join([*lines, b"", body])


def get(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    """A call without a body as bytes."""
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: x", *headers, b"", b""])


def statuses(answers: bytes) -> list[int]:
    """The status of every answer."""
    return [int(found) for found in STATUS.findall(answers)]


def refused_or_answered(answers: bytes) -> None:
    """Each is an answer, or says what was wrong, and tells nothing of the inside."""
    for status in statuses(answers):
        assert status == 200 or 400 <= status < 500, answers
    assert b"Traceback" not in answers
    assert b".py" not in answers


# No HTTP ------------------------------------------------------------------------------------------

NO_HTTP = {
    "zero bytes": b"\x00" * 100 + b"\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET /metrics HTTP/1.1\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "another version": b"GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n",
    "a path of 100,000 characters": get(b"/" + b"a" * 100_000),
    "a header of 100,000 characters": get(b"/metrics", b"X: " + b"a" * 100_000),
    "5,000 headers": get(b"/metrics", *(b"X%d: 1" % at for at in range(5000))),
    "a header without a colon": get(b"/metrics", b"X"),
    "a zero byte in a header": get(b"/metrics", b"X: \x00"),
    "two lengths": post(b"Content-Length: 5"),
    "a negative length": post(b"Content-Length: -5", length=None),
    "a length that is a word": post(b"Content-Length: many", length=None),
    "a length and chunks": post(b"Transfer-Encoding: chunked"),
    "a chunk of no size": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
    "a chunk too large to count": CHUNKED + b"f" * 30 + b"\r\nhello\r\n",
    "an unknown transfer": post(b"Transfer-Encoding: junk", length=None),
    "packed in a way nobody knows": post(b"Content-Encoding: br"),
    "not packed as it says": post(b"Content-Encoding: deflate"),
    "not packed, with a length that lies": post(b"Content-Encoding: gzip", length=10_000),
    "an expectation nobody meets": post(b"Expect: miracles"),
    "another protocol": post(b"Connection: upgrade", b"Upgrade: websocket"),
    "half an IPv6 address": get(b"http://[::1/metrics"),
    "a tunnel": get(b"example.com:443", method=b"CONNECT"),
    "a path that is no UTF-8": get(b"/%ff%00%zz"),
    "a path with bytes above ASCII": get("/é".encode()),
    "steps back": get(b"/../../etc/passwd"),
    "a method nobody knows": get(b"/metrics", method=b"BREW"),
    "no method": get(b"/metrics", method=b""),
    "odd cookies and dates": get(b"/healthz", b"Cookie: \xff=;;=", b"If-Modified-Since: \xff"),
    "a body where none belongs": get(b"/metrics", b"Content-Length: 5") + b"hello",
    "more body than it says": post(length=5),
}


@pytest.mark.usefixtures("unbroken")
@pytest.mark.parametrize("raw", [pytest.param(raw, id=what) for what, raw in NO_HTTP.items()])
def test_what_is_no_http(served: Served, raw: bytes) -> None:
    """Red when ``_CallersFaults`` hands a record on as it is."""
    for port in (served.verbs_port, served.reports_port):
        answers = served.sent(port, raw)

        assert statuses(answers)
        refused_or_answered(answers)
    assert "cardwise_holds" in served.metrics()


@pytest.mark.usefixtures("unbroken")
@bounded
@given(
    method=st.sampled_from([b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"]),
    path=st.sampled_from([b"/metrics", b"/healthz", b"/filter", b"/", b"*", b"//", b"/readyz/"]),
    more=st.binary(max_size=20).filter(lambda more: not more.startswith(b"\r\n")),
    header=st.binary(max_size=30),
)
def test_odd_calls(served: Served, method: bytes, path: bytes, more: bytes, header: bytes) -> None:
    for port in (served.verbs_port, served.reports_port):
        raw = get(path + more, header, b"Connection: close", method=method)
        refused_or_answered(served.sent(port, raw))


@pytest.mark.usefixtures("unbroken")
@bounded
@given(raw=st.binary(min_size=1, max_size=300))
def test_any_bytes(served: Served, raw: bytes) -> None:
    for port in (served.verbs_port, served.reports_port):
        refused_or_answered(served.sent(port, raw + b"\r\n\r\n"))


@pytest.mark.usefixtures("unbroken")
def test_calls_sent_together_are_answered_in_their_order(served: Served) -> None:
    calls = [get(b"/healthz"), post(), get(b"/nothing"), post(body=b"{", length=1), get(b"/livez")]

    answers = served.sent(served.verbs_port, b"".join(calls))

    assert statuses(answers) == [200, 200, 404, 400, 200]


@pytest.mark.usefixtures("unbroken")
def test_who_hangs_up_in_the_middle_leaves_nothing(served: Served) -> None:
    """Red when ``_body`` lets a ``ConnectionError`` through."""
    served.rest()
    before = served.tasks(), served.files()
    for raw in (
        post(length=len(BODY) + 50),
        CHUNKED + b"ffff\r\nhalf a chunk",
        CHUNKED,
        b"GET /metrics HTTP/1.1\r\nHost:",
        b"",
    ):
        for port in (served.verbs_port, served.reports_port) * 20:
            served.sent(port, raw, patience=0.01)

    served.rest()

    assert (served.tasks(), served.files()) == before


# Slow and many, on the loop's clock ---------------------------------------------------------------


@contextlib.asynccontextmanager
async def ports(*, finish_seconds: float = 12.0) -> AsyncIterator[tuple[list[int], list[float]]]:
    """Both ports, and how long each took to stop."""
    world = await World(build.gpunode("n1"), build.node_object("n1")).load()
    parts = world.controller
    apps = [
        verbs(parts.scheduler, parts.metrics, parts.health),
        reports(parts.metrics, parts.health),
    ]
    runners = [await port_of(app, finish_seconds=finish_seconds) for app in apps]
    stopped: list[float] = []
    yield [runner.addresses[0][1] for runner in runners], stopped
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def stop(runner: web.AppRunner) -> None:
        await runner.cleanup()
        stopped.append(loop.time() - began)

    await asyncio.gather(*(stop(runner) for runner in runners))


async def opened(port: int, raw: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which something was said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await writer.drain()
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One answer's head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"Content-Length: ([0-9]+)", head)
    assert found is not None
    return head + await reader.readexactly(int(found[1]))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(post(length=len(BODY) + 1), id="one byte short"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n", id="chunks without an end"),
    ],
)
async def test_a_body_that_does_not_end_is_given_up_and_nobody_waits_for_it(raw: bytes) -> None:
    """Red when ``_body`` has no deadline."""
    async with ports() as ((port, _), _):
        loop = asyncio.get_running_loop()
        slow, writer = await opened(port, raw)
        other, another = await opened(port, post())
        assert statuses(await answer(other)) == [200]
        began = loop.time()

        said = await answer(slow)

        assert statuses(said) == [408]
        assert said.endswith(b"\r\n\r\nThe body did not come within 5 s.\n")
        assert loop.time() - began < 6.0
        writer.close()
        another.close()


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        pytest.param(b"", 0.5, id="nothing"),
        pytest.param(b"GET /met", 0.5, id="half a line"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\n", 0.5, id="half a head"),
        pytest.param(post(length=len(BODY) + 50), 6.0, id="half a body"),
        pytest.param(get(b"/healthz"), 0.5, id="a whole call"),
    ],
)
async def test_whoever_stays_connected_does_not_keep_the_process_from_its_end(
    raw: bytes, seconds: float
) -> None:
    """Red when ``runner`` leaves ``lingering_time`` as the library has it."""
    async with ports() as (both, stopped):
        kept = [await opened(port, raw) for port in both for _ in range(100)]
        await asyncio.sleep(0.05)
        for port in both:
            reader, writer = await opened(port, get(b"/healthz"))
            assert (await answer(reader)).endswith(b"ok\n")
            writer.close()

    for _, writer in kept:
        writer.close()
    assert max(stopped) < seconds, stopped
