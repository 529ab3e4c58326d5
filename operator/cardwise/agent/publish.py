"""The loops: look at the cards, publish what is new, follow what an administrator sets.

A report goes out when it says something new or the heartbeat is due. What an administrator changes
in the GPUNode's ``spec`` comes by a watch, and so does its end.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from cardwise import names
from cardwise.agent.clock import Clock
from cardwise.agent.complaints import Complaints
from cardwise.agent.driver import Driver
from cardwise.agent.health import Change, Health
from cardwise.agent.known import Known
from cardwise.agent.probe import Report, dated, failed, probe, told
from cardwise.errors import ApiError, BadGPUNode
from cardwise.names import CardEvent
from cardwise.ports import GPUNodeStore, Readings
from cardwise.settings import Agent
from cardwise.wire.gpunodes import conditions_of, overrides_of
from cardwise.wire.gpunodes_written import report_of
from cardwise.wire.pods import version_number

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks at the cards. An illness is published within 10 s."""
FAILING_SECONDS = 20.0
"""At most between two looks while the driver fails, which begin at ``LOOK_SECONDS`` and double: to
open a library that fails can be costly. A driver that answers is published within 30 s."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a failed call; well within the 180 s after which a report is stale."""
ALONE_SECONDS = 2.0
"""For the first answer of the API server: then the cards are offered by what the driver says alone.
kubelet lets no container of a Pod with cards start again while nobody offers them."""


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Keeps one node's GPUNode up to date."""

    name: str
    read: Callable[[], Awaitable[Readings | None]]
    """The driver's readings: ``Nvml.read``, off the loop's thread because it may block."""
    store: GPUNodeStore
    settings: Agent
    clock: Clock
    health: Health = field(default_factory=Health)
    published: Callable[[dict[str, Any]], None] = lambda _: None
    """Told the GPUNode as the cluster has it, after each report."""
    changed: Callable[[Change], None] = lambda _: None
    """Told what is new about the health of cards and driver, before it is published."""
    probed: Callable[[Report, bool], None] = lambda _, __: None
    """Told what each look found, whether or not the cluster takes it, and whether what an
    administrator sets is in it."""
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1, so that a thousand agents don't move in step."""
    failures: int = field(default=0, init=False)
    """Reports that the cluster did not take."""
    _known: Known = field(default_factory=Known, init=False)
    _complaints: Complaints = field(default_factory=Complaints, init=False)
    _driver: Driver = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _begun: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._driver = Driver(self.read, self.clock.monotonic, self._complaints)

    async def run(self, stop: asyncio.Event) -> None:
        """Publish until ``stop`` is set. No failure of driver or cluster ends it."""
        async with asyncio.TaskGroup() as group:
            loops = (self._looking(), self._telling(), self._following())
            tasks = [group.create_task(loop) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()

    @property
    def report(self) -> Report | None:
        """What was last published; None before that."""
        return self._known.published

    def not_ready(self) -> str:
        """Why this node's cards are not offered as they should be; empty where they are."""
        known = self._known
        if not known.looked:
            return "the driver was not asked yet"
        if known.readings is None:
            return ""  # a machine without cards is as it should be
        if isinstance(known.readings, str):
            return f"the driver fails: {known.readings}"
        if complaint := self._complaints.last("cluster"):
            return complaint
        return "" if known.published is not None else "nothing is published yet"

    def hopeless(self) -> str:
        """Why only a new process may do better; empty where this one does well, or may yet."""
        return self._driver.hopeless()

    async def look(self) -> None:
        """Look at the cards once."""
        known = self._known
        readings = await self._driver.readings()
        if isinstance(readings, str):
            changes = self.health.fail(readings)
        elif readings is None:
            changes = ()
        else:
            readings, changes = self.health.judge(readings)
        known.readings, known.looked = readings, True
        for change in changes:
            self.changed(change)
        if known.read or known.alone:
            self._offer()
        self._news.set()

    async def tell(self) -> None:
        """Publish, where there is something new to say or the heartbeat is due.

        Raises:
            ApiError: the cluster did not take it; it is to be told again.
        """
        known = self._known
        if known.readings is None:
            return
        if not known.read:
            await self._read()
        # At most once more: the answer may bring overrides that change what is to be said.
        for _ in range(2):
            report = self._offer()
            if report is None:
                return
            if report == known.published and self.clock.monotonic() < known.due:
                return
            await self._publish(report)

    # --- the loops --------------------------------------------------------------------------------

    async def _looking(self) -> None:
        often = min(LOOK_SECONDS, self.settings.reportSeconds)
        pause = 0.0
        while True:
            await self.look()
            failing = isinstance(self._known.readings, str)
            pause = min(max(2 * pause, often), FAILING_SECONDS) if failing else 0.0
            await asyncio.sleep(pause or often)

    async def _telling(self) -> None:
        pause = 0.0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.tell()
            except ApiError as error:
                self.failures += 1
                self._complaints.complain(
                    "cluster", f"GPUNode {self.name} is not published: {error}"
                )
                pause = await self._rest(pause)
                self._news.set()
            else:
                pause = 0.0

    async def _following(self) -> None:
        """Keep a watch on the GPUNode, once it was published."""
        await self._begun.wait()
        pause = 0.0
        while True:
            try:
                async for document in self.store.watch(self.name):
                    self._see(document)
                    self._complaints.settle("watch")
                    pause = 0.0
            except ApiError as error:
                self._complaints.complain("watch", f"GPUNode {self.name} is not watched: {error}")
            pause = await self._rest(pause)

    async def _rest(self, pause: float) -> float:
        """Wait, longer each time; answers how long."""
        pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
        await asyncio.sleep(pause * (0.5 + self.jitter()))
        return pause

    # --- the driver and the cluster ---------------------------------------------------------------

    def _offer(self) -> Report | None:
        """Tell what is known now; None where there is no driver."""
        known = self._known
        if known.readings is None:
            return None
        report = (
            failed(self.name, known.readings)
            if isinstance(known.readings, str)
            else probe(self.name, known.readings, self.settings, known.overrides)
        )
        self.probed(report, known.read)
        return report

    async def _read(self) -> None:
        """Learn what an administrator set before this start.

        Raises:
            ApiError: the cluster does not tell it.
        """
        asked = asyncio.ensure_future(self.store.get(self.name))
        try:
            done, _ = await asyncio.wait({asked}, timeout=ALONE_SECONDS)
            if not done or asked.exception() is not None:
                self._known.alone = True
                self._offer()
            document = await asked
        finally:
            asked.cancel()
        self._learn(document)
        self._known.read = True

    async def _publish(self, report: Report) -> None:
        known = self._known
        now = self.clock.now()
        conditions = dated(report.conditions, known.conditions, now)
        status = report_of(
            replace(report.node, reported_at=now),
            driver_version=report.driver_version,
            conditions=conditions,
        )
        document = await self._apply(status)
        before, known.published = known.published, report
        known.conditions = conditions
        known.due = self.clock.monotonic() + self.settings.reportSeconds * (1 - 0.1 * self.jitter())
        self._complaints.settle("cluster")
        if report != before:
            _log.info("%s", told(report, before))
            self._tell_unknown(report, before)
        self._learn(document)
        self._begun.set()
        self.published(document)

    def _tell_unknown(self, report: Report, before: Report | None) -> None:
        """Have it heard that cards are closed because nobody says how much memory they have."""
        for condition in report.conditions:
            lasting = before is not None and condition in before.conditions
            if condition.type == names.CONDITION_MEMORY_UNKNOWN and not lasting:
                self.changed(Change(event=CardEvent.MEMORY_UNKNOWN, reason=condition.message))

    async def _apply(self, status: dict[str, Any]) -> dict[str, Any]:
        document = await self.store.apply_status(self.name, status, names.MANAGER_AGENT)
        if document is None:
            await self.store.create(self.name)
            document = await self.store.apply_status(self.name, status, names.MANAGER_AGENT)
        if document is None:
            raise ApiError(None, "there is no such Node, or it is gone as soon as it is made")
        return document

    def _see(self, document: dict[str, Any] | None) -> None:
        """Take in what the watch tells."""
        before = self._known.overrides
        if document is None:
            _log.info("GPUNode %s was deleted", self.name)
            self._known.published = None
        else:
            self._learn(document)
        if document is None or self._known.overrides != before:
            self._news.set()

    def _learn(self, document: dict[str, Any] | None) -> None:
        """Take from a GPUNode what is not ours to decide; nonsense leaves things as they are."""
        if document is None:
            return
        # The watch's cache may be behind the answer to a write.
        version = version_number(document)
        if version < self._known.version:
            return
        self._known.version = version
        if not self._known.conditions:
            self._known.conditions = conditions_of(document)
        try:
            overrides = overrides_of(document)
        except BadGPUNode as error:
            self._complaints.complain("overrides", f"the overrides stay as they were: {error}")
            return
        if overrides != self._known.overrides:
            _log.info("the overrides of GPUNode %s are now: %s", self.name, overrides)
            self._known.overrides = overrides
        self._complaints.settle("overrides")
