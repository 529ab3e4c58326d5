"""The process between: plain HTTP in, verified TLS out; the caller's own credentials are passed on.

    python fault_server.py --server https://127.0.0.1:6443 --ca ca.crt --port 8080

``fault_proxy`` says what it can do to a request, and tells it what to do.
"""

import argparse
import asyncio
import contextlib
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
from aiohttp import web
from yarl import URL

from fault_proxy import CUT, DELAY, GONE, HALF, HOLD, ILL, KEEP, LOST, TOLD, Plan

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

_WATCH_SECONDS: Final = (0.2, 3.0)
"""How long a watch lives that is cut off."""
_DELAY_SECONDS: Final = (0.1, 3.0)
"""On both sides of the two seconds that a Binding is waited for."""

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class _Answer:
    """A whole answer of the API server."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class _Told:
    """What the next request of a kind meets."""

    ends: str
    """Of its path."""
    fault: str
    method: str = ""
    """Empty: any."""


@dataclass
class _Held:
    """A request, or its answer, that waits to be released."""

    path: str
    since: float
    on: "asyncio.Future[bool]"


@dataclass
class _Watch:
    """A watch under way."""

    path: str
    life: asyncio.Timeout
    silent: bool = False
    """It says nothing any more, and does not end."""


class Proxy:
    """Passes requests on, and answers back as they come, or as the plan says."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        """Make a proxy to ``server``; the session decides what is trusted."""
        self._server = server
        self._session = session
        self._plan = Plan()
        self._next: list[_Told] = []
        self._held: _Held | None = None
        self._met: Counter[str] = Counter()
        self._number = 0
        self._behind: set[asyncio.Task[_Answer | None]] = set()
        self._watching: list[_Watch] = []

    # --- what a test says -------------------------------------------------------------------------

    async def told(self, request: web.Request) -> web.Response:
        """Take a word of the test."""
        match request.path.removeprefix(TOLD):
            case "plan":
                self._follow(Plan(**await request.json()))
            case "next":
                self._next.append(_Told(**await request.json()))
            case "silence":
                ends = (await request.json())["ends"]
                for watch in self._watching:
                    watch.silent |= watch.path.endswith(ends)
            case "release":
                assert self._held is not None
                self._held.on.set_result((await request.json())["on"])
                self._held = None
        held = None
        if self._held is not None:
            age = asyncio.get_running_loop().time() - self._held.since
            held = {"path": self._held.path, "age": age}
        state = {"met": self._met, "requests": self._number, "watches": len(self._watching)}
        return web.json_response({**state, "held": held})

    def _follow(self, plan: Plan) -> None:
        self._plan = plan
        # Watches live long: those of before would meet too late what is planned now.
        for watch in self._watching if plan.watches else ():
            if not watch.silent:
                watch.life.reschedule(0.0)

    # --- what a controller says -------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        if request.path.startswith(TOLD):
            return await self.told(request)
        self._number += 1
        watch = request.query.get("watch") in ("true", "1")
        kind, when = self._fault(request, watch=watch)
        if kind:
            self._met[kind] += 1
        match kind:
            case "drop":
                return _hang_up(request)
            case "busy":
                return _refuse(429, "too many requests", {"Retry-After": "1"})
            case "broken":
                return _refuse(500, "it was told to fail")
            case "frozen":
                await _for_good()
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

    def _fault(self, request: web.Request, *, watch: bool) -> tuple[str, float]:
        for told in self._next:
            if request.path.endswith(told.ends) and told.method in ("", request.method):
                self._next.remove(told)
                return told.fault, 0.0
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
            watch = _Watch(request.path, asyncio.timeout(seconds if kind in _LINES else None))

            async def say(piece: bytes) -> None:
                if watch.silent:
                    await _for_good()
                await response.write(piece)

            try:
                async with watch.life:
                    self._watching.append(watch)
                    await copy(answer.content.iter_any(), say, late=late)
            except TimeoutError:
                await say(_LINES.get(kind, b""))
                if kind not in (GONE, ILL):
                    _hang_up(request)
                    return response
            finally:
                self._watching.remove(watch)
            if watch.silent:
                await _for_good()
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


async def _for_good() -> None:
    """Wait until the caller goes away."""
    await asyncio.Event().wait()


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
