"""The other loop: what the node's cards come to stands in its Node's status, and stays there.

Only for the door of gates, where the cluster's own kube-scheduler looks there. A watch on the one
Node sees at once when kubelet, which keeps these fields, sets them to zero, or makes the Node anew.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cardwise.agent.complaints import Complaints
from cardwise.errors import ApiError, BadGPUNode
from cardwise.ports import NodeStatus
from cardwise.wire.nodestatus import changes_of, resources_of

_log = logging.getLogger(__name__)

BETWEEN_SECONDS = 1.0
"""Between two writes, and between two watches: whoever undoes ours is not raced."""
LONGEST_PAUSE = 30.0
"""Seconds after failed calls, which begin at ``BETWEEN_SECONDS`` and double."""
LEAVE_SECONDS = 5.0
"""For the last call of a process that is ending; kubelet gives it 10 s in all."""


@dataclass(slots=True, kw_only=True)
class Advertiser:
    """Keeps what one node advertises."""

    name: str
    store: NodeStatus
    bounded: bool = True
    """As ``resources_of`` takes it."""
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1, so that a thousand agents don't move in step."""
    _wanted: dict[str, int] | None = field(default=None, init=False)
    """None: nothing was published since the start, so what stands there may stay."""
    _node: dict[str, Any] | None = field(default=None, init=False)
    """As the watch saw it last."""
    _begun: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _complaints: Complaints = field(default_factory=Complaints, init=False)

    def learn(self, gpunode: dict[str, Any]) -> None:
        """Take in what was published."""
        try:
            self._wanted = resources_of(gpunode, bounded=self.bounded)
        except BadGPUNode as error:
            self._complaints.complain("gpunode", f"what is advertised stays as it was: {error}")
            return
        self._begun.set()
        self._news.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Advertise what was learnt, again and again, until ``stop`` is set.

        No failure of the cluster ends it.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow()), group.create_task(self._keep())]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def retire(self, stop: asyncio.Event) -> None:
        """Take back what an earlier agent advertised, where nothing is to be advertised."""
        pause = 0.0
        while not stop.is_set():
            try:
                await self._take_back()
            except ApiError as error:
                pause = self._failed("node", f"may still advertise its cards: {error}", pause)
                await _sleep(stop, pause)
            else:
                return

    async def leave(self) -> None:
        """At the end: take back what is advertised if Cardwise is being uninstalled.

        A mere rollout leaves it, because the next agent would write the same.
        """
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                if not await self.store.installed():
                    await self._take_back()
        except (ApiError, TimeoutError) as error:
            _log.warning(
                "node %s goes on advertising its cards if Cardwise is being uninstalled: %s",
                self.name,
                str(error) or "no answer in time",
            )

    async def _follow(self) -> None:
        """Keep a watch on the Node, once there is something to advertise."""
        await self._begun.wait()
        pause = 0.0
        while True:
            try:
                async for node in self.store.watch(self.name):
                    self._node = node
                    self._news.set()
                    pause = self._well("watch")
            except ApiError as error:
                pause = self._failed("watch", f"is not watched: {error}", pause)
            await asyncio.sleep((pause or BETWEEN_SECONDS) * (0.5 + self.jitter()))

    async def _keep(self) -> None:
        """Write whenever the Node and what is wanted differ."""
        pause = 0.0
        while True:
            await self._news.wait()
            self._news.clear()
            # What the answer to a write tells may be older than what the watch told meanwhile, so
            # the watch alone is believed.
            node, wanted = self._node, self._wanted
            if node is None or wanted is None:
                continue
            changes = changes_of(node, wanted)
            if not changes:
                continue
            try:
                await self._advertise(changes)
            except ApiError as error:
                pause = self._failed("node", f"does not advertise its cards: {error}", pause)
                self._news.set()
            else:
                pause = self._well("node")
            await asyncio.sleep(pause * (0.5 + self.jitter()) if pause else BETWEEN_SECONDS)

    async def _take_back(self) -> None:
        node = await self.store.get(self.name)
        if node is not None and (changes := changes_of(node, {})):
            await self._advertise(changes)

    async def _advertise(self, changes: Mapping[str, int | None]) -> None:
        await self.store.advertise(self.name, changes)
        told = [f"{'no' if amount is None else amount} {name}" for name, amount in changes.items()]
        _log.info("node %s advertises %s", self.name, ", ".join(told))

    def _failed(self, about: str, sentence: str, pause: float) -> float:
        """Say it, and how long to wait now."""
        self._complaints.complain(about, f"node {self.name} {sentence}")
        return min(max(2 * pause, BETWEEN_SECONDS), LONGEST_PAUSE)

    def _well(self, about: str) -> float:
        self._complaints.settle(about)
        return 0.0


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
