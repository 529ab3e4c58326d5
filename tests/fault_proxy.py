"""A reverse proxy to an API server that makes it as unkind as a bad day: late, cut off, lost.

A controller learns by its watches what happened, some time after it did, and writes without always
hearing what came of it. Behind this proxy a seed decides which requests go wrong and how, so that a
test sees what comes of it; or a test says it of the next request, and may hold that one for as long
as it likes. Plain HTTP in, verified TLS out; the caller's own credentials are passed on.

    python fault_proxy.py --server https://127.0.0.1:6443 --ca ca.crt --port 8080

It does nothing until it is told to: `FaultProxy` is the test's side of it, and starts it.
"""

import argparse
import asyncio
import contextlib
import json
import ssl
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self, TypeAlias

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from controlplane.launcher import ControlPlane, Process, free_port

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers about one connection, of which there are two here."""
_BODY_BYTES: Final = 16 * 1024 * 1024

DROP: Final = "drop"
"""The connection is closed, and nothing was passed on."""
BUSY: Final = "busy"
"""429, and nothing was passed on."""
BROKEN: Final = "broken"
"""500, and nothing was passed on."""
DELAY: Final = "delay"
"""Passed on seconds later, whether or not the caller still waits."""
HALF: Final = "half"
"""Passed on; half of the answer, then the connection is closed."""
LOST: Final = "lost"
"""Passed on; nothing of the answer, the connection is closed."""
CUT: Final = "cut"
"""A watch ends in the middle of a line."""
GONE: Final = "gone"
"""A watch ends by saying 410: whoever watches must list anew."""
ILL: Final = "ill"
"""A watch ends by saying 500."""
HOLD: Final = "hold"
"""Not passed on until it is released; then passed on, or dropped."""
KEEP: Final = "keep"
"""Passed on; the answer is not delivered until it is released."""

OF_REQUESTS: Final = (DROP, BUSY, BROKEN, DELAY, HALF, LOST)
OF_WATCHES: Final = (DROP, BUSY, BROKEN, CUT, GONE)
_TOLD: Final = "/-/"
"""Where the proxy itself is spoken to."""
_WATCH_SECONDS: Final = (0.2, 3.0)
"""How long a watch lives that is cut off."""
_DELAY_SECONDS: Final = (0.1, 3.0)
"""On both sides of the two seconds that a Binding is waited for."""

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class Plan:
    """What goes wrong, and how often."""

    seed: int = 0
    requests: Mapping[str, float] = field(default_factory=dict)
    """The share of requests that meet each of ``OF_REQUESTS``."""
    watches: Mapping[str, float] = field(default_factory=dict)
    """The share of watches that meet each of ``OF_WATCHES``."""
    late: Mapping[str, float] = field(default_factory=dict)
    """By path: seconds by which every piece of a watch is late, in its order."""

    def fault(self, number: int, *, watch: bool) -> tuple[str, float]:
        """What becomes of a request, and a number from 0 to 1 that says when."""
        random = Random(f"{self.seed}/{number}")
        drawn, when = random.random(), random.random()
        for kind, share in (self.watches if watch else self.requests).items():
            if drawn < share:
                return kind, when
            drawn -= share
        return "", when


@dataclass(frozen=True)
class _Answer:
    """A whole answer of the API server."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class _Held:
    """A request, or its answer, that waits to be released."""

    path: str
    since: float
    on: "asyncio.Future[bool]"


class Proxy:
    """Passes requests on, and answers back as they come, or as the plan says."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        """Make a proxy to ``server``; the session decides what is trusted."""
        self._server = server
        self._session = session
        self._plan = Plan()
        self._next: list[tuple[str, str]] = []
        self._held: _Held | None = None
        self._met: Counter[str] = Counter()
        self._number = 0
        self._behind: set[asyncio.Task[_Answer | None]] = set()
        self._watching: set[asyncio.Timeout] = set()

    # --- what a test says -------------------------------------------------------------------------

    async def told(self, request: web.Request) -> web.Response:
        """Take a word of the test."""
        match request.path.removeprefix(_TOLD):
            case "plan":
                self._plan = Plan(**await request.json())
                # Watches live for minutes: those of before would never meet what is planned now.
                for running in self._watching if self._plan.watches else ():
                    running.reschedule(0.0)
            case "next":
                told = await request.json()
                self._next.append((told["ends"], told["fault"]))
            case "release":
                assert self._held is not None
                self._held.on.set_result((await request.json())["on"])
                self._held = None
        held = None
        if self._held is not None:
            age = asyncio.get_running_loop().time() - self._held.since
            held = {"path": self._held.path, "age": age}
        return web.json_response({"met": self._met, "requests": self._number, "held": held})

    # --- what a controller says -------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        if request.path.startswith(_TOLD):
            return await self.told(request)
        self._number += 1
        watch = request.query.get("watch") in ("true", "1")
        kind, when = self._fault(request.path, watch=watch)
        if kind:
            self._met[kind] += 1
        match kind:
            case "drop":
                return _hang_up(request)
            case "busy":
                return _refuse(429, "too many requests", {"Retry-After": "1"})
            case "broken":
                return _refuse(500, "it was told to fail")
        if watch:
            return await self._watch(request, kind, _between(_WATCH_SECONDS, when))
        return await self._answer(request, kind, _between(_DELAY_SECONDS, when))

    async def _answer(self, request: web.Request, kind: str, delay: float) -> web.StreamResponse:
        answer = await self._whole(request, kind, delay)
        if answer is None or kind == LOST:
            return _hang_up(request)
        if kind == HALF:
            return await _half(request, answer)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    def _fault(self, path: str, *, watch: bool) -> tuple[str, float]:
        for told in self._next:
            if path.endswith(told[0]):
                self._next.remove(told)
                return told[1], 0.0
        return self._plan.fault(self._number, watch=watch)

    async def _whole(self, request: web.Request, kind: str, delay: float) -> _Answer | None:
        """The API server's answer; None where the request was dropped after all."""
        body = await request.read()
        task = asyncio.create_task(self._ask(request, body, kind, delay))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        # A caller that went away, or died, has sent its request all the same.
        return await asyncio.shield(task)

    async def _ask(
        self, request: web.Request, body: bytes, kind: str, delay: float
    ) -> _Answer | None:
        if kind == DELAY:
            await asyncio.sleep(delay)
        if kind == HOLD and not await self._released(request.path):
            return None
        async with self._send(request, body) as answer:
            whole = _Answer(answer.status, _end_to_end(answer.headers), await answer.read())
        if kind == KEEP and not await self._released(request.path):
            return None
        return whole

    async def _released(self, path: str) -> bool:
        loop = asyncio.get_running_loop()
        self._held = _Held(path, loop.time(), loop.create_future())
        return await self._held.on

    async def _watch(self, request: web.Request, kind: str, seconds: float) -> web.StreamResponse:
        """Pass a watch on: to its end, or for so long."""
        late = self._plan.late.get(request.path, 0.0)
        async with self._send(request, b"") as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            try:
                async with asyncio.timeout(seconds if kind in _LINES else None) as running:
                    self._watching.add(running)
                    await copy(answer.content.iter_any(), response.write, late=late)
            except TimeoutError:
                await response.write(_LINES.get(kind, b""))
                if kind not in (GONE, ILL):
                    _hang_up(request)
                    return response
            finally:
                self._watching.discard(running)
            await response.write_eof()
            return response

    def _send(self, request: web.Request, body: bytes) -> Any:
        return self._session.request(
            request.method,
            URL(self._server + request.raw_path, encoded=True),
            headers=_end_to_end(request.headers),
            data=body or None,
            allow_redirects=False,
        )


def _status(code: int, message: str) -> dict[str, Any]:
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**kind, "message": message, "code": code}


def _error(code: int, message: str) -> bytes:
    return json.dumps({"type": "ERROR", "object": _status(code, message)}).encode() + b"\n"


_LINES: Final = {
    CUT: b'{"type":"MODIF',
    GONE: _error(410, "too old resource version"),
    ILL: _error(500, "it was told to fail"),
}
"""The last that a watch says."""


def _refuse(code: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(_status(code, message), status=code, headers=headers)


def _hang_up(request: web.Request) -> web.Response:
    """Close the connection; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


async def _half(request: web.Request, answer: _Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    await response.prepare(request)
    await response.write(answer.body[: len(answer.body) // 2])
    _hang_up(request)
    return response


def _between(bounds: tuple[float, float], where: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * where


async def copy(pieces: AsyncIterator[bytes], write: Write, *, late: float) -> None:
    """Write each piece so many seconds after it came, in their order and at their distance."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()

    async def take() -> None:
        try:
            async for piece in pieces:
                queue.put_nowait((loop.time() + late, piece))
        finally:
            queue.put_nowait((loop.time() + late, None))

    taking = asyncio.create_task(take())
    try:
        while True:
            due, piece = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if piece is None:
                break
            await write(piece)
        await taking  # raises what cut the answer off
    finally:
        taking.cancel()


def _end_to_end(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in headers.items() if key.lower() not in _HOP_BY_HOP]


# --- the test's side ------------------------------------------------------------------------------


class FaultProxy:
    """A proxy before the API server of a control plane, in a process of its own."""

    def __init__(self, cp: ControlPlane, plan: Plan | None = None) -> None:
        """Start it, and wait until it answers."""
        self.cp = cp
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process: Process = cp.start_process(
            "fault-proxy",
            [
                sys.executable,
                __file__,
                f"--server={cp.server}",
                f"--ca={cp.ca}",
                f"--port={self.url.rpartition(':')[2]}",
            ],
            env={"PYTHONPATH": str(Path(__file__).parent)},
        )
        cp.wait("the proxy to answer", self._answers, 30)
        if plan is not None:
            self.plan(plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()

    def through(self, kubeconfig: Path) -> Path:
        """Write a kubeconfig of the same user that goes by this proxy."""
        config = yaml.safe_load(kubeconfig.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"] = {"server": self.url}
        changed = kubeconfig.with_suffix(".proxied")
        changed.touch(mode=0o600)
        changed.write_text(yaml.safe_dump(config))
        return changed

    def plan(self, plan: Plan) -> None:
        """From now on this goes wrong."""
        self._tell("plan", asdict(plan))

    def next(self, ends: str, fault: str) -> None:
        """Let the next request for a path that ends so meet this fault."""
        self._tell("next", {"ends": ends, "fault": fault})

    def release(self, *, on: bool) -> None:
        """Let the held request go on its way, or its answer; or drop it."""
        self._tell("release", {"on": on})

    def held(self) -> float | None:
        """Seconds since something is held; None where nothing is."""
        held = self._tell("state")["held"]
        return None if held is None else float(held["age"])

    def met(self) -> Counter[str]:
        """How often each fault was met."""
        return Counter(self._tell("state")["met"])

    def requests(self) -> int:
        """How many requests there were."""
        return int(self._tell("state")["requests"])

    def _answers(self) -> bool:
        try:
            self._tell("state")
        except OSError:
            return False
        return True

    def _tell(self, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - its own address
            self.url + _TOLD + what, json.dumps(body).encode(), method="PUT"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)


# --- the process ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(proxy: Proxy, port: int = 0) -> AsyncIterator[str]:
    """Serve a proxy on this loop; its address."""
    app = web.Application(client_max_size=_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    # A caller that went away must not leave its watch open behind us.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def serve(server: str, ca: Path, port: int) -> None:
    """Serve until cancelled."""
    context = ssl.create_default_context(cafile=str(ca))
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as session,
        listening(Proxy(server, session), port),
    ):
        await asyncio.Event().wait()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    said = parser.parse_args()
    asyncio.run(serve(said.server, said.ca, said.port))


if __name__ == "__main__":
    main()
