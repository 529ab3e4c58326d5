"""The controller's process over a fake cluster: it starts, answers, is stopped, or is killed.

It starts and ends as ``serving.serve`` does it, without the servers.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import build
from cardwise.controller.lease.tenure import WRITE_SECONDS, Election
from cardwise.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cardwise.settings import Settings
from controllers import OWN, World
from fakes.cluster import Change, FakeCluster
from machine.streams import Streams

Json = dict[str, Any]
HOST = "host-a"
_ANSWER_SECONDS = 12.0
"""How long ``serving.serve`` lets answers that have begun take."""
_RESTART_SECONDS = 1.0
_DOWN = "the controller does not answer"


class Process:
    """At most one controller at a time."""

    def __init__(self, cluster: FakeCluster, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self.world: World | None = None
        """None while there is no process."""
        self.streams: Streams | None = None
        """None until the first list is complete."""
        self._running: set[asyncio.Task[Any]] = set()
        self._calls: set[asyncio.Task[str]] = set()
        self.own_uid = OWN.uid
        cluster.put(build.pod(OWN.name, namespace=OWN.namespace, uid=OWN.uid, gpus=None, node="n1"))

    # Its life -------------------------------------------------------------------------------------

    def start(self) -> None:
        election = Election(namespace=SYSTEM_NAMESPACE, name=SCHEDULER_NAME, identity=HOST)
        self.world = World(
            cluster=self._cluster, own_pod=OWN, election=election, settings=self._settings
        )
        if self.world.controller.elector is not None:
            self.world.controller.elector._dice = lambda: 0.5  # a walk is the same each time
        self._run(self._serve(self.world))

    async def _serve(self, world: World) -> None:
        controller = world.controller
        await controller.watchman.load()
        for task in controller.tasks():
            self._run(task)
        self.streams = Streams(controller, self._cluster)
        for kind in self.streams.by_kind:
            self.streams.list_anew(kind)
        controller.duty.loaded = True
        controller.health.heard()
        controller.waker.begin()
        if controller.gates_door is not None:
            controller.gates_door.begin()

    async def stop(self) -> None:
        """SIGTERM: what has begun is answered."""
        if self.world is not None:
            controller = self.world.controller
            controller.duty.stopping = True
            if self._calls:
                await asyncio.wait(self._calls, timeout=_ANSWER_SECONDS)
            if controller.gates_door is not None:
                await controller.gates_door.stop(_ANSWER_SECONDS)
            await controller.binder.stop()
            if controller.elector is not None:
                await controller.elector.release()
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL. A new one starts a second later."""
        world, self.world = self.world, None
        if world is None:
            return
        if self.streams is not None:
            self.streams.close()
            self.streams = None
        world.controller.duty.stopping = True  # who is cancelled in the midst of a write sends none
        gates = world.controller.gates_door
        pins = gates.pinner._under_way.values() if gates is not None else ()
        ending = [*self._calls, *self._running, *pins]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._running.clear()
        await world.controller.binder.stop()
        loop = asyncio.get_running_loop()
        # What the API server holds back for longer than the Binding's deadline, and then carries
        # out, no successor can know of (docs/decisions/0007, "What was given up"): it is left out.
        loop.call_later(WRITE_SECONDS, self._cluster.forget_late)
        loop.call_later(_RESTART_SECONDS, self.start)

    def lose_lease(self, seconds: float) -> None:
        """Another replica has the Lease for so long, and does nothing with it."""
        held = self._cluster.objects["Lease"][SYSTEM_NAMESPACE, SCHEDULER_NAME]
        turns = held["spec"]["leaseTransitions"] + 1

        def write(holder: str, duration: float) -> None:
            lease = self._cluster.get("Lease", SCHEDULER_NAME, SYSTEM_NAMESPACE)
            lease["spec"] |= {
                "holderIdentity": holder,
                "leaseDurationSeconds": int(duration),
                "leaseTransitions": turns,
                "renewTime": f"{asyncio.get_running_loop().time():.6f}",
            }
            self._cluster.put(lease)

        write("host-b_1", seconds + 12)
        asyncio.get_running_loop().call_later(seconds, write, "", 1)

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._running.add(asyncio.ensure_future(work))

    def died(self) -> list[BaseException]:
        """What parts of it died of; none of them ever ends by itself."""
        ended = [task for task in self._running if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]

    @property
    def is_active(self) -> bool:
        return self.world is not None and not self.world.controller.duty.refusal()

    # What reaches it ------------------------------------------------------------------------------

    def take(self, change: Change) -> None:
        if self.streams is not None:
            self.streams.take(change)

    def filter(self, pod: Json, names: Sequence[str]) -> Json:
        if self.world is None:
            return {"Error": _DOWN}
        return self.world.filter(pod, *names)

    def preempt(self, pod: Json, victims: Mapping[str, Sequence[str]]) -> Json:
        if self.world is None:
            return {}
        return self.world.preempt(pod, dict(victims))

    async def bind(self, pod: Json, node: str) -> str:
        if self.world is None:
            return _DOWN
        call = asyncio.ensure_future(self.world.bind(pod, node))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.wait({call})
        return _DOWN if call.cancelled() else call.result()
