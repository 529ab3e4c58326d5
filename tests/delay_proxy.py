"""A reverse proxy to an API server that holds back what it says to one kind of watch.

A controller learns by its watches what happened, some time after it did: milliseconds on a quiet
machine, seconds on a busy one. Behind this proxy it is always late, so that a test sees what comes
of it. Plain HTTP in, verified TLS out; the caller's own credentials are passed on.

    python delay_proxy.py --server https://127.0.0.1:6443 --ca ca.crt --port 8080
        --watch /api/v1/pods --seconds 0.2
"""

import argparse
import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

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

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class Delays:
    """Which answers are late, and by how much."""

    def __init__(self, watch: str, seconds: float) -> None:
        """Hold back every piece of a watch on this path, in its order."""
        self._watch = watch
        self._seconds = seconds

    def of(self, request: web.Request) -> float:
        """Seconds by which the answer to this request is late."""
        watches = request.query.get("watch") in ("true", "1")
        return self._seconds if watches and request.path == self._watch else 0.0


class Proxy:
    """Passes requests on, and answers back as they come or later."""

    def __init__(self, server: str, session: aiohttp.ClientSession, delays: Delays) -> None:
        """Make a proxy to ``server``; the session decides what is trusted."""
        self._server = server
        self._session = session
        self._delays = delays

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        late = self._delays.of(request)
        async with self._session.request(
            request.method,
            URL(self._server + request.raw_path, encoded=True),
            headers=_end_to_end(request.headers),
            data=await request.read() or None,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            await copy(answer.content.iter_any(), response.write, late=late)
            await response.write_eof()
            return response


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


def through(kubeconfig: Path, port: int, changed: Path) -> Path:
    """Write a kubeconfig of the same user that goes by a proxy on this port of 127.0.0.1."""
    config = yaml.safe_load(kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"] = {"server": f"http://127.0.0.1:{port}"}
    changed.touch(mode=0o600)
    changed.write_text(yaml.safe_dump(config))
    return changed


async def serve(server: str, ca: Path, port: int, delays: Delays) -> None:
    """Serve until cancelled."""
    context = ssl.create_default_context(cafile=str(ca))
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", Proxy(server, session, delays).handle)
        # A caller that went away must not leave its watch open behind us.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--watch", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    said = parser.parse_args()
    asyncio.run(serve(said.server, said.ca, said.port, Delays(said.watch, said.seconds)))


if __name__ == "__main__":
    main()
