"""A controller's two ports over real sockets, and a caller that may send anything.

The servers run on a thread with a loop of its own, so that Hypothesis may ask them again and again
as a stranger would: over HTTP, with a client that knows nothing of them, or by bytes.
"""

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

import build
from cardwise import names
from cardwise.controller import server
from cardwise.controller.extender.http import reports, verbs
from controllers import World

Json = dict[str, Any]
NODES = ["n1", "n2", "unknown"]
SECONDS = 10.0
"""An answer that takes longer fails the test."""


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """Its body."""
        return orjson.loads(self.text)


class Served:
    """A controller's verbs on a port, its reports on another."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop, *ports: int) -> None:
        self.world = world
        self.verbs_port, self.reports_port = ports
        self._loop = loop
        self._connection = self._new()

    def _new(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.verbs_port, timeout=SECONDS)

    def post(self, verb: str, body: bytes) -> Answer:
        """Ask; no answer in time fails the test."""
        try:
            self._connection.request("POST", f"/{verb}", body=body)
            answer = self._connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        except (http.client.HTTPException, OSError):
            self._connection.close()
            self._connection = self._new()
            raise

    def ask(self, verb: str, body: Any) -> Answer:
        """Ask in proper JSON."""
        return self.post(verb, orjson.dumps(body, default=str))

    def metrics(self) -> str:
        """What Prometheus reads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.reports_port, timeout=SECONDS)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def sent(self, port: int, raw: bytes, *, patience: float = 0.3) -> bytes:
        """Send bytes; what comes back until the server hangs up, or says nothing for a while.

        Args:
            port: one of the two.
            raw: what is sent.
            patience: seconds of silence after which the caller hangs up.
        """
        pieces = []
        with (
            # It may hang up before it heard all of it.
            contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError),
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection,
        ):
            connection.sendall(raw)
            connection.settimeout(patience)
            while piece := connection.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)

    def compare(self) -> None:
        """The ledger is compared with the cluster: no Pod that was asked about is there."""
        work = self.world.mirror.reconcile(self.world.cluster)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def rest(self) -> None:
        """Let those end who still wait for the rest of a body, by the servers' own limit."""
        time.sleep(2.2)

    def tasks(self) -> int:
        """Tasks that have not ended."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result(SECONDS)

    def files(self) -> int:
        """Open files and sockets of this process, this caller's included."""
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    """A controller over two nodes with cards, and a Pod that waits."""
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    found: list[Served] = []

    async def serve() -> None:
        world = await World(
            build.gpunode("n1", 64, slots=1000),
            build.gpunode("n2", 4),
            *(build.node_object(name) for name in ("n1", "n2")),
            build.pod("known", gpumem=1000),
        ).load()
        parts = world.controller
        runners = [
            await port_of(verbs(parts.scheduler, parts.metrics, parts.health)),
            await port_of(reports(parts.metrics, parts.health)),
        ]
        found.append(Served(world, loop, *(runner.addresses[0][1] for runner in runners)))
        ready.set()
        await stop.wait()
        for runner in runners:
            await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(20)
    try:
        yield found[0]
    finally:
        found[0].close()
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


async def port_of(app: web.Application, *, finish_seconds: float = 1.0) -> web.AppRunner:
    """Serve an application on a free port, as the process serves it."""
    runner = server.runner(app, finish_seconds=finish_seconds)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner


def holds(answer: Answer) -> None:
    """The promise: an answer of the verb's, or one sentence why there is none."""
    assert answer.status in (200, 400, 413), answer
    assert "Traceback" not in answer.text
    if answer.status == 200:
        assert isinstance(answer.json, dict)
    else:
        assert answer.text.count("\n") == 1
        assert answer.text.endswith("\n")
        assert len(answer.text) < 1000


def filtering(pod: Any, nodes: Any = NODES) -> Json:
    """A call of /filter."""
    return {"Pod": pod, "NodeNames": nodes}


def preempting(pod: Any) -> Json:
    """A call of /preempt."""
    victims = {"Pods": [{"UID": "uid-1"}, {"UID": "uid-2"}], "NumPDBViolations": 1}
    return {"Pod": pod, "NodeNameToMetaVictims": {"n1": victims, "unknown": victims}}


def binding(uid: str = "uid-default-known", node: str = "n1") -> Json:
    """A call of /bind."""
    return {"PodName": "known", "PodNamespace": "default", "PodUID": uid, "Node": node}


def whole() -> Json:
    """A Pod in which there is much to spoil; as it is, it goes to n1."""
    return build.pod(
        "w",
        containers=[
            build.container("a", gpu=1, gpumem=1000, gpucores=10, priority=1),
            build.container("b", gpu=2, percent=50),
        ],
        init=[build.container("i", gpu=1, sidecar=True)],
        policy="mutex,binpack,numa",
        node_policy="spread",
        weights="slot=1,core=1,memory=1",
        exclusive="true",
        topology="required",
        numa_bind="true",
        annotations={
            names.USE_UUID: ",".join(f"GPU-n1-{build.letter(card)}" for card in range(20)),
            names.NOUSE_UUID: "GPU-n1-b",
            names.USE_TYPE: "t4,a100",
            names.NOUSE_TYPE: "h100",
            names.VGPU_MODE: "hami-core",
        },
        allocated="GPU-n1-a,NVIDIA,1000,0:;",
    )
