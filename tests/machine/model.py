"""The state machine: the whole controller, and everybody and everything around it.

A step is one thing that one of them does (``steps``). Little time passes in it, so that the next
one meets what it began: an event on its way, a Binding without an answer, a list half read. After
every step the ``laws`` hold; at the end all faults are over, and ``quiet`` looks at what is left.
"""

import asyncio
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import build
from cardwise.names import Door
from cardwise.settings import Scheduling, Settings
from cardwise.wire.pods import bound_node
from controllers import passing
from fakes.cluster import Change
from machine import laws, quiet
from machine.cluster import CountingCluster
from machine.fleet import Fleet
from machine.gated import gated, gates, pinned, waits_for_us
from machine.kube_scheduler import KubeScheduler
from machine.loop import JumpingLoop
from machine.pins import Pins
from machine.process import Process
from machine.steps_of_gates import ALL
from machine.stock_scheduler import StockScheduler
from machine.streams import Streams
from machine.tally import BOTH, EXTENDER, GATES, Tally

Json = dict[str, Any]
T = TypeVar("T")
MOMENT = 0.001
"""Seconds of a step."""
DOORS: dict[str, Scheduling] = {
    EXTENDER: Scheduling(),
    GATES: Scheduling(door=Door.GATES),
    BOTH: Scheduling(bothDoors=True),
}
"""What is installed."""
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

    tally: Tally
    doors: frozenset[Door]

    def __init__(self, tallies: Mapping[str, Tally]) -> None:
        super().__init__()
        self._tallies = tallies
        self.made = 0
        self.gated: set[str] = set()
        """UIDs of all Pods that were made with our gate, and ask for cards."""
        self.gang_of: dict[str, tuple[str, str]] = {}
        """By UID: namespace and name of its gang."""
        self.disturbed_gangs: set[tuple[str, str]] = set()
        """Those where something came between the decision and its pins, or a Pod ended."""
        self.asks = sorted(ASKS)
        self.looked_at = 0
        """The cluster's version when its cards were last looked at."""
        self.is_watch_honest = True
        """Late at most: where events get lost, only a list shows what was due before."""
        self.loop = JumpingLoop()
        self.complaints = laws.Complaints(self.loop)

    @initialize(door=st.deferred(lambda: st.sampled_from(sorted(DOORS))), honest=st.booleans())
    def begin(self, door: str, honest: bool) -> None:
        """Choose what is installed, and how good the watch is."""
        self.tally = self._tallies[door]
        self.tally.examples += 1
        self.is_watch_honest = honest
        scheduling = DOORS[door]
        self.doors = frozenset(Door) if scheduling.bothDoors else frozenset({scheduling.door})
        self.wait_for(self._begin(Settings(scheduling=scheduling)))

    async def _begin(self, settings: Settings) -> None:
        self.cluster = CountingCluster(self.tally)
        self.process = Process(self.cluster, settings)
        self.scheduler = KubeScheduler(self.cluster, self.process, self.tally)
        self.stock = StockScheduler(self.cluster)
        self.pins = self.cluster.pins = Pins(self)
        self.fleet = Fleet(self.cluster)
        self.cluster.watch = self._hear
        if Door.EXTENDER in self.doors:
            self.scheduler.start()
        self.process.start()
        self.agents = asyncio.ensure_future(self.fleet.run())
        await quiet.active(self)

    def _hear(self, change: Change) -> None:
        if change.kind == "Pod":
            laws.at_every_write(self)
        self.pins.see(change)
        self.scheduler.see(change)
        self.stock.see(change)
        self.process.take(change)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

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

    @property
    def is_up(self) -> bool:
        """Whether the controller may act, and a kube-scheduler that it needs is there."""
        is_served = self.scheduler.is_alive or Door.EXTENDER not in self.doors
        return self.process.is_active and is_served

    # Pods -----------------------------------------------------------------------------------------

    def put_pod(self, name: str, namespace: str, ask: str) -> str:
        """A new Pod for a kube-scheduler of ours, and its UID; a taken name gets a number."""
        uid, name = self._new(name, namespace)
        self.cluster.put(build.pod(name, namespace=namespace, uid=uid, **ASKS[ask]))
        return uid

    def put_gated(self, name: str, namespace: str, ask: str, wish: str, **more: Any) -> str:
        """A new Pod behind our gate, and its UID; ``more`` as of ``gated``."""
        uid, name = self._new(name, namespace)
        about = {"priority": 0, "created": self.loop.time(), **more}
        pod = gated(name, namespace, uid, ASKS[ask], wish=wish, **about)
        self.gated.add(uid)
        if about.get("gang"):
            self.gang_of[uid] = namespace, about["gang"]
        self.cluster.put(pod)
        return uid

    def put_other(self, name: str, namespace: str, node: str, cpu: str) -> None:
        """A new Pod that asks for no card, where kube-scheduler put it."""
        uid, name = self._new(name, namespace)
        asks = [build.container(requests={"cpu": cpu})]
        pod = build.pod(name, namespace=namespace, uid=uid, node=node, containers=asks)
        self.cluster.put(pod)

    def _new(self, name: str, namespace: str) -> tuple[str, str]:
        self.made += 1
        if (namespace, name) in self.cluster.objects["Pod"]:
            name = f"{name}-{self.made}"
        return f"u{self.made}", name

    def pods(self, *, bound: bool) -> list[Json]:
        """Those that are not finished, and not behind a gate or pinned."""
        return [
            pod
            for pod in self.cluster.alive()
            if bool(bound_node(pod)) is bound and not gates(pod) and not pinned(pod)
        ]

    def behind_gates(self) -> list[Json]:
        """Those that are not finished, and gated."""
        return [pod for pod in self.cluster.alive() if gates(pod)]

    def waiting(self) -> list[Json]:
        """Those that nothing but their cards keeps waiting, by the door of gates."""
        return [pod for pod in self.cluster.alive() if waits_for_us(pod)]

    def pinned(self) -> list[Json]:
        """Those that wait to be bound to their node."""
        return [pod for pod in self.cluster.alive() if pinned(pod)]

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
            if sys.exc_info()[0] is None and hasattr(self, "doors"):
                self.wait_for(quiet.settle(self))
        finally:
            self.complaints.close()
            self.wait_for(quiet.end())
            self.loop.close()
