"""A whole controller over a fake cluster, on the loop's clock.

Nothing of it runs by itself: a test calls the verbs, hands over what the watch would show, and lets
time pass. ``running`` starts the background tasks, as the process would.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import Any

from cardwise.controller.app import Controller
from cardwise.controller.clock import Clock
from cardwise.controller.lease.tenure import Election
from cardwise.ledger import PodEntry, Stage
from cardwise.model import PodRef
from cardwise.settings import Settings
from cardwise.wire import extender
from fakes.cluster import Change, FakeCluster

Json = dict[str, Any]
_KINDS = {
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "storageclasses": "StorageClass",
}
UNIX = 1_780_000_000.0
"""Seconds since 1970 when the loop's clock shows 0."""
OWN = PodRef("cardwise-system", "cardwise-scheduler-0", "uid-own")


def loop_clock() -> Clock:
    """The loop's time for both clocks; no two readings of the second are equal."""
    loop, read = asyncio.get_running_loop(), iter(range(10**9))
    return Clock(monotonic=loop.time, unix=lambda: UNIX + loop.time() + next(read) * 1e-6)


class World:
    """A controller and its cluster."""

    def __init__(
        self,
        *documents: Json,
        settings: Settings | None = None,
        own_pod: PodRef | None = None,
        cluster: FakeCluster | None = None,
        clock: Clock | None = None,
        election: Election | None = None,
    ) -> None:
        self.cluster = cluster or FakeCluster(*documents)
        self.controller = Controller(
            cluster=self.cluster,
            settings=settings or Settings(),
            own_pod=own_pod,
            election=election,
            instance="test",
            clock=clock or loop_clock(),
        )
        self.ledger = self.controller.ledger
        self.mirror = self.controller.mirror

    async def load(self) -> "World":
        """List everything and open the gate, as the process does at its start."""
        await self.controller.watchman.load()
        self.controller.duty.loaded = True
        self.cluster.changes.clear()
        self.ledger.grew = False
        self.ledger.touched.clear()
        return self

    async def restarted(self) -> "World":
        """A new controller over the same cluster: holds are lost."""
        return await World(cluster=self.cluster).load()

    # kube-scheduler's calls -----------------------------------------------------------------------

    def filter(self, pod: Json, *names: str) -> Json:
        """POST /filter with node names."""
        body = {"Pod": pod, "NodeNames": list(names)}
        return self.controller.scheduler.filter(extender.filter_call(body))

    def chosen(self, pod: Json, *names: str) -> str:
        """The node that /filter chose; every other answer fails the test."""
        answer = self.filter(pod, *names)
        assert not answer["Error"], answer
        [node] = answer["NodeNames"]
        return str(node)

    async def bind(self, pod: Json, node: str = "n1", uid: str | None = None) -> str:
        """POST /bind; its ``Error``."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": uid or metadata["uid"],
            "Node": node,
        }
        return await self.controller.scheduler.bind(extender.bind_call(body))

    def preempt(self, pod: Json, victims: dict[str, Sequence[str]]) -> Json:
        """POST /preempt; the victims by node, of those kept."""
        body = {
            "Pod": pod,
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
                for node, uids in victims.items()
            },
        }
        answer = self.controller.scheduler.preempt(extender.preempt_call(body))
        kept: Json = answer["NodeNameToMetaVictims"]
        return kept

    # The watch ------------------------------------------------------------------------------------

    def show(self, change: Change) -> None:
        """One event of the watch reaches the controller."""
        take = {
            "Pod": self.mirror.see_pod,
            "GPUNode": self.mirror.see_gpunode,
            "Node": self.mirror.see_node,
            "ResourceQuota": self.mirror.see_quota,
            **{_KINDS[kind.name]: partial(self.mirror.see, kind) for kind in self.mirror.kinds},
        }.get(change.kind)
        if take is not None:
            take(change.object, deleted=change.type == "DELETED")

    def deliver(self) -> None:
        """Everything the watch has not shown yet, in order."""
        while self.cluster.changes:
            self.show(self.cluster.changes.popleft())

    # What came of it ------------------------------------------------------------------------------

    def entry(self, pod: Json) -> PodEntry | None:
        """What the ledger knows of a Pod."""
        return self.ledger.entry(pod["metadata"]["uid"])

    def stage(self, pod: Json) -> Stage | None:
        """Where a Pod stands."""
        entry = self.entry(pod)
        return None if entry is None else entry.stage

    def used(self, node: str = "n1") -> dict[str, int]:
        """MiB taken of each card of a node that has a tenant."""
        view = self.ledger.view(node)
        return {
            uuid: card.used_memory_mib
            for uuid, card in zip(view.uuids, view.state.cards, strict=True)
            if card.used_slots
        }

    async def events(self) -> list[tuple[str, str]]:
        """Reason and note of every event, once the queue is written."""
        async with background(self.controller.recorder.run()):
            await passing(60.0)
        return [(event["reason"], event["note"]) for event in self.cluster.events()]

    async def reasons(self) -> list[str]:
        """The reasons of ``events``."""
        return [reason for reason, _ in await self.events()]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what the process runs in the background."""
        async with background(*self.controller.tasks()):
            yield


@contextlib.asynccontextmanager
async def at_work(*documents: Json, settings: Settings | None = None) -> AsyncIterator[World]:
    """A controller at work over a cluster of these, whose watch shows every write at once."""
    world = await World(*documents, settings=settings).load()
    world.cluster.watch = world.show
    if world.controller.gates_door is not None:
        world.controller.gates_door.begin()
    async with world.running():
        await passing(0.1)
        yield world


@contextlib.asynccontextmanager
async def background(*coroutines: Any) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Run coroutines beside the block; one that died of an error fails the test."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def turns_while(work: Awaitable[object]) -> int:
    """How often others have their turn while something is done."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with background(take_turns()):
        await asyncio.sleep(0)
        await work
        return turns


async def passing(seconds: float) -> None:
    """Let the loop's time pass; nobody waits for it."""
    await asyncio.sleep(seconds)
