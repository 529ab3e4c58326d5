"""The proxy that the end-to-end tests put before the API server: each fault is what it says."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fault_proxy
from cardwise.errors import ApiError
from cardwise.kube import Client, connect
from fakes.apiserver import ApiServer, Reply
from fault_proxy import Plan
from fault_server import Proxy, copy, listening


async def said(*when: float, cut_off: bool = False) -> AsyncIterator[bytes]:
    """Pieces at these seconds, each its own number."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, second in enumerate(when):
        await asyncio.sleep(began + second - loop.time())
        yield str(number).encode()
    if cut_off:
        raise ConnectionError("cut off")


class Heard:
    """What was written, and when."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self.pieces: list[tuple[bytes, float]] = []

    async def write(self, piece: bytes) -> None:
        second = asyncio.get_running_loop().time() - self._began
        self.pieces.append((piece, round(second, 3)))


async def test_every_piece_is_late_by_the_same_time_and_in_its_order() -> None:
    heard = Heard()

    await copy(said(0.0, 0.1, 0.1, 5.0), heard.write, late=0.2)

    assert heard.pieces == [(b"0", 0.2), (b"1", 0.3), (b"2", 0.3), (b"3", 5.2)]


async def test_an_answer_that_is_not_held_back_comes_at_once() -> None:
    heard = Heard()

    await copy(said(0.0, 1.0), heard.write, late=0.0)

    assert heard.pieces == [(b"0", 0.0), (b"1", 1.0)]


async def test_an_answer_that_is_cut_off_is_cut_off_here_too() -> None:
    heard = Heard()

    with pytest.raises(ConnectionError, match="cut off"):
        await copy(said(0.0, 1.0, cut_off=True), heard.write, late=0.2)

    assert [piece for piece, _ in heard.pieces] == [b"0", b"1"]


# Each fault, on real sockets ----------------------------------------------------------------------


class Between:
    """A client, a proxy, and who answers behind it."""

    def __init__(self, server: ApiServer, url: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._url = url
        self._session = session
        self.client: Client

    async def tell(self, what: str, body: Any = None) -> Any:
        """What a test says to the proxy."""
        async with self._session.put(f"{self._url}/-/{what}", json=body) as answer:
            return await answer.json()

    async def held(self) -> None:
        """Wait until something is held."""
        while (await self.tell("state"))["held"] is None:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.01)

    async def watch(self) -> bytes:
        """A watch, to its end."""
        async with self._session.get(f"{self._url}/api/v1/pods?watch=true") as answer:
            answer.raise_for_status()
            said = b""
            try:
                async for piece in answer.content.iter_any():
                    said += piece
            except aiohttp.ClientPayloadError:
                return said + b" cut"
            return said


@pytest.fixture
async def between(tmp_path: Path) -> AsyncIterator[Between]:
    async with (
        ApiServer(Reply({"kind": "Status", "status": "Success"})).running() as server,
        aiohttp.ClientSession() as session,
        listening(Proxy(server.url, session)) as url,
    ):
        it = Between(server, url, session)
        server.url = url
        it.client = await connect(server.kubeconfig(tmp_path))
        yield it
        await it.client.close()


async def outcome(between: Between) -> int | str | None:
    """What a write comes to, as the controller sees it."""
    try:
        await between.client.request("POST", "/a/binding", body={"a": 1}, within=5.0)
    except ApiError as error:
        return error.status
    return "done"


@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    ("fault", "want", "arrived"),
    [
        (fault_proxy.DROP, None, 0),
        (fault_proxy.BUSY, 429, 0),
        (fault_proxy.BROKEN, 500, 0),
        (fault_proxy.DELAY, "done", 1),
        (fault_proxy.HALF, None, 1),
        (fault_proxy.LOST, None, 1),
    ],
)
async def test_what_a_fault_does_to_a_write(
    between: Between, fault: str, want: int | str | None, arrived: int
) -> None:
    await between.tell("next", {"ends": "/binding", "fault": fault})

    assert await outcome(between) == want
    assert len(between.server.seen) == arrived
    assert await outcome(between) == "done", "only the next one"
    assert (await between.tell("state"))["met"] == {fault: 1}


@pytest.mark.looptime(False)
async def test_a_fault_for_one_method_lets_the_others_pass(between: Between) -> None:
    told = {"ends": "/binding", "fault": fault_proxy.BUSY}
    await between.tell("next", {**told, "method": "PATCH"})
    await between.tell("next", {**told, "method": "POST"})

    assert await outcome(between) == 429

    assert await outcome(between) == "done"


@pytest.mark.looptime(False)
@pytest.mark.parametrize("on", [True, False], ids=["goes on", "is dropped"])
@pytest.mark.parametrize(("fault", "arrived"), [(fault_proxy.HOLD, 0), (fault_proxy.KEEP, 1)])
async def test_a_write_is_held_though_its_caller_went_away(
    between: Between, fault: str, arrived: int, on: bool
) -> None:
    await between.tell("next", {"ends": "/binding", "fault": fault})
    calling = asyncio.create_task(outcome(between))
    await between.held()
    assert len(between.server.seen) == arrived

    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await between.tell("release", {"on": on})
    await asyncio.sleep(0.1)

    assert len(between.server.seen) == (1 if on else arrived)


@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(fault_proxy.CUT, b'{"type":"MODIF cut', id="in the middle of a line"),
        pytest.param(fault_proxy.GONE, b'"code": 410}}\n', id="with 410"),
    ],
)
async def test_how_a_watch_ends(between: Between, fault: str, want: bytes) -> None:
    between.server.replies = [Reply(b'{"type":"ADDED"}\n', delay=0.0)]
    await between.tell("plan", {"watches": {fault: 1.0}})
    between.server.hangs = True

    said = await between.watch()

    assert said.startswith(b'{"type":"ADDED"}\n')
    assert said.endswith(want)


@pytest.mark.looptime(False)
@pytest.mark.parametrize("watch", [True, False], ids=["a watch", "a write"])
async def test_what_is_frozen_is_not_passed_on_and_not_answered(
    between: Between, watch: bool
) -> None:
    await between.tell("plan", {"watches" if watch else "requests": {fault_proxy.FROZEN: 1.0}})
    asking = asyncio.create_task(between.watch() if watch else outcome(between))

    done, _ = await asyncio.wait({asking}, timeout=0.3)

    assert not done
    assert between.server.seen == []
    assert (await between.tell("state"))["met"] == {fault_proxy.FROZEN: 1}
    asking.cancel()
    await between.tell("plan", {})
    assert await outcome(between) == "done"


@pytest.mark.looptime(False)
async def test_a_watch_that_was_silenced_says_nothing_and_does_not_end(between: Between) -> None:
    between.server.replies = [Reply(b'{"type":"ADDED"}\n')]
    between.server.hangs = True
    watching = asyncio.create_task(between.watch())
    while (await between.tell("state"))["watches"] == 0:  # noqa: ASYNC110 - over HTTP
        await asyncio.sleep(0.01)

    await between.tell("silence", {"ends": "/pods"})
    between.server.over.set()  # behind the proxy it says more, and ends
    # What is planned for watches meets only those that still speak.
    await between.tell("plan", {"watches": {fault_proxy.CUT: 1.0}})

    done, _ = await asyncio.wait({watching}, timeout=0.3)
    assert not done
    watching.cancel()


def test_a_seed_decides() -> None:
    shares = dict.fromkeys(fault_proxy.OF_REQUESTS, 0.1)

    def drawn(seed: int) -> list[str]:
        plan = Plan(seed=seed, requests=shares)
        return [plan.fault(number, watch=False)[0] for number in range(2000)]

    met = Counter(drawn(1))
    assert drawn(1) == drawn(1) != drawn(2)
    assert met.keys() == {*fault_proxy.OF_REQUESTS, ""}
    assert all(120 < met[kind] < 280 for kind in fault_proxy.OF_REQUESTS)
    assert Plan().fault(1, watch=True)[0] == ""
