"""The state machine: the whole controller, and everybody and everything around it.

A step is one thing that one of them does (``steps``). Little time passes in it, so that the next
one meets what it began: an event on its way, a Binding without an answer, a list half read. After
every step the ``laws`` hold; at the end all faults are over, and ``quiet`` looks at what is left.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import build
from cardwise.wire.pods import bound_node
from controllers import passing
from fakes.cluster import Change
from machine import laws, quiet
from machine.cluster import CountingCluster
from machine.fleet import Fleet
from machine.kube_scheduler import KubeScheduler
from machine.loop import JumpingLoop
from machine.process import Process
from machine.steps import ALL
from machine.streams import Streams
from machine.tally import Tally

Json = dict[str, Any]
T = TypeVar("T")
MOMENT = 0.001
"""Seconds of a step."""
ASKS: dict[str, Json] = {
    "small": {"gpumem": 500},
    "usual": {"gpumem": 1000, "gpucores": 30},
    "packed": {"gpumem": 1000, "policy": "binpack"},
    "large": {"gpumem": 3000},
    "half a card": {"gpus": 1, "percent": 50},
    "mutex": {"gpumem": 1000, "policy": "mutex,binpack"},
    "exclusive": {"gpumem": 500, "exclusive": "true"},
    "whole cores": {"gpumem": 500, "gpucores": 100},
    "two cards": {"gpus": 2, "gpumem": 1500, "gpucores": 20},
    "two mutex cards": {"gpus": 2, "gpumem": 500, "policy": "mutex,spread"},
    "two containers": {
        "containers": [
            build.container("a", gpu=1, gpumem=700),
            build.container("b", gpu=1, gpumem=2000, gpucores=20),
        ]
    },
}
"""What Pods ask for."""


class Model(RuleBasedStateMachine):
    """A cluster, kube-scheduler, the controller, and whatever comes between them."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        tally.examples += 1
        self.made = 0
        self.asks = sorted(ASKS)
        self.looked_at = 0
        """The cluster's version when its cards were last looked at."""
        self.is_watch_honest = True
        """Late at most: where events get lost, only a list shows what was due before."""
        self.loop = JumpingLoop()
        self.complaints = laws.Complaints(self.loop)
        self.wait_for(self._begin())

    async def _begin(self) -> None:
        self.cluster = CountingCluster(self.tally)
        self.process = Process(self.cluster)
        self.scheduler = KubeScheduler(self.cluster, self.process, self.tally)
        self.fleet = Fleet(self.cluster)
        self.cluster.watch = self._hear
        self.scheduler.start()
        self.process.start()
        self.agents = asyncio.ensure_future(self.fleet.run())
        await quiet.active(self)

    def _hear(self, change: Change) -> None:
        if change.kind == "Pod":
            laws.at_every_write(self)
        self.scheduler.see(change)
        self.process.take(change)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(honest=st.booleans())
    def choose_the_watch(self, honest: bool) -> None:
        self.is_watch_honest = honest

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One of the things that are possible now, each as often as its weight says."""
        names = [it.name for it in ALL.values() if it.is_possible(self) for _ in range(it.weight)]
        chosen = ALL[data.draw(st.sampled_from(names), label="step")]
        self.tally.steps[chosen.name] += 1

        async def act() -> None:
            acting = chosen.act(self, data)
            if acting is not None:
                await acting
            await passing(MOMENT)

        self.wait_for(act())

    @property
    def streams(self) -> Streams:
        """The watches of the controller that is there now."""
        assert self.process.streams is not None
        return self.process.streams

    # Pods -----------------------------------------------------------------------------------------

    def put_pod(self, name: str, namespace: str, ask: str) -> str:
        """A new Pod, and its UID; a name that is taken gets a number."""
        self.made += 1
        if (namespace, name) in self.cluster.objects["Pod"]:
            name = f"{name}-{self.made}"
        uid = f"u{self.made}"
        self.cluster.put(build.pod(name, namespace=namespace, uid=uid, **ASKS[ask]))
        return uid

    def pods(self, *, bound: bool) -> list[Json]:
        """Those that are not finished."""
        return [pod for pod in self.cluster.alive() if bool(bound_node(pod)) is bound]

    def quotas(self) -> list[str]:
        """The namespaces that have one."""
        return [namespace for namespace, _ in self.cluster.objects["ResourceQuota"]]

    def remove(self, pod: Json) -> None:
        """Take a Pod away, unless it is gone by now."""
        metadata = pod["metadata"]
        held = self.cluster.objects["Pod"].get((metadata["namespace"], metadata["name"]))
        if held is not None and held["metadata"]["uid"] == metadata["uid"]:
            self.cluster.remove("Pod", metadata["name"], metadata["namespace"])

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def laws_hold(self) -> None:
        for law in laws.ALWAYS:
            law(self)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.wait_for(quiet.settle(self))
        finally:
            self.complaints.close()
            self.wait_for(quiet.end())
            self.loop.close()
