"""An extender that does nothing: it answers one node, another each time, and binds in one write.

What Python, aiohttp and one HTTP call to the API server cost at the least; so it uses the server
and the client that the controller has. ``GET /seconds`` tells what each call took, by verb.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import orjson
import uvloop
from aiohttp import web

from bench.mixes import REFUSED
from cardwise.controller import server
from cardwise.errors import ApiError
from cardwise.kube import connect
from cardwise.kube.client import Client

Json = dict[str, Any]


class DoNothing:
    """The two verbs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turn = count()
        self.seconds: dict[str, list[float]] = {"filter": [], "bind": []}

    async def filter(self, asked: Json) -> Json:
        """Return one node of those asked about, or none where the Pod says that none fits."""
        nodes = asked["NodeNames"]
        if REFUSED in asked["Pod"]["metadata"].get("labels", {}):
            return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(nodes, "refused")}
        return {"NodeNames": [nodes[next(self._turn) % len(nodes)]]}

    async def bind(self, asked: Json) -> Json:
        """Bind."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": asked["PodName"], "uid": asked["PodUID"]},
            "target": {"kind": "Node", "name": asked["Node"]},
        }
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        try:
            await self._client.request("POST", path, body=binding)
        except ApiError as error:
            return {"Error": str(error)}
        return {"Error": ""}

    def app(self) -> web.Application:
        """The application that kube-scheduler talks to."""
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/filter", self._timed("filter", self.filter))
        app.router.add_post("/bind", self._timed("bind", self.bind))
        app.router.add_get("/seconds", self._tell)
        return app

    def _timed(
        self, verb: str, answer: Callable[[Json], Awaitable[Json]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            began = time.perf_counter()
            body = orjson.dumps(await answer(orjson.loads(await request.read())))
            self.seconds[verb].append(time.perf_counter() - began)
            return web.Response(body=body, content_type="application/json")

        return handle

    async def _tell(self, _: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(self.seconds), content_type="application/json")


async def main(kubeconfig: str, port: int) -> None:
    """Serve until killed."""
    client = await connect(kubeconfig)
    runner = server.runner(DoNothing(client).app(), finish_seconds=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(main(options.kubeconfig, options.port))
