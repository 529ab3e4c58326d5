"""The loop: probe, compare, publish (contracts.md, "GPUNode").

A report goes out when it says something new or the heartbeat is due. The answer to each is the
GPUNode as it then is, so an administrator's change of its ``spec`` is seen without another call.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cardwise import names
from cardwise.agent.probe import Report, failed, probe
from cardwise.errors import ApiError, BadGPUNode, NvmlUnavailable
from cardwise.model import Condition, NodeOverrides
from cardwise.ports import GPUNodeStore, Readings
from cardwise.settings import Agent
from cardwise.wire.gpunodes import conditions_of, overrides_of, report_of

LOG = logging.getLogger(__name__)

PROBE_SECONDS = 10.0
"""Between two probes: how late a card's failure may be seen."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a failed call; well within the 180 s after which a report is stale."""

NO_LIBRARY = "this machine has no NVIDIA library (libnvidia-ml.so.1), so it has no cards to report"


class Clock(Protocol):
    """Time, as the loop needs it."""

    def now(self) -> str:
        """The time of day as RFC 3339 text in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...


@dataclass(slots=True)
class _Memory:
    """What the loop knows from one round to the next."""

    overrides: NodeOverrides = field(default_factory=NodeOverrides)
    conditions: tuple[Condition, ...] = ()
    """As last published, for the time of their last change."""
    published: Report | None = None
    due: float = 0.0
    """When the next heartbeat is due."""
    read: bool = False
    """Whether the GPUNode was read since the start."""
    complaints: dict[str, str] = field(default_factory=dict)
    """What was last logged as wrong with the driver, the cluster and the overrides, so that it is
    not logged again."""


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Keeps one node's GPUNode up to date."""

    name: str
    read: Callable[[], Awaitable[Readings | None]]
    """The driver's readings: ``Nvml.read``, off the loop's thread because it may block."""
    store: GPUNodeStore
    settings: Agent
    clock: Clock
    published: Callable[[dict[str, Any]], None] = lambda _: None
    """Told the GPUNode as the cluster has it, after each report."""
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1, so that a thousand agents don't move in step."""
    _memory: _Memory = field(default_factory=_Memory, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Publish until ``stop`` is set. No failure of driver or cluster ends it."""
        pause = 0.0
        while not stop.is_set():
            try:
                await self.round()
            except ApiError as error:
                pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
                self._complain("cluster", f"GPUNode {self.name} is not published: {error}")
            else:
                pause = 0.0
            calm = min(PROBE_SECONDS, self.settings.reportSeconds)
            await _wait(stop, pause * (0.5 + self.jitter()) if pause else calm)

    async def round(self) -> None:
        """Probe once, and publish where it says something new or the heartbeat is due.

        Raises:
            ApiError: the cluster did not take it; the next round tries again.
        """
        memory = self._memory
        readings = await self._readings()
        if readings is None:
            return
        if not memory.read:
            self._learn(await self.store.get(self.name))
            memory.read = True
        # At most once more: the answer may bring overrides that change what is to be said.
        for _ in range(2):
            report = (
                failed(self.name, readings)
                if isinstance(readings, str)
                else probe(self.name, readings, self.settings, memory.overrides)
            )
            if report == memory.published and self.clock.monotonic() < memory.due:
                return
            await self._publish(report)

    async def _readings(self) -> Readings | str | None:
        """What the driver says; a text says why it fails, None that there is none."""
        try:
            readings = await self.read()
        except NvmlUnavailable as error:
            self._complain("driver", f"the driver fails: {error}")
            return str(error)
        if readings is None:
            self._complain("driver", f"no GPUNode: {NO_LIBRARY}")
        else:
            self._memory.complaints.pop("driver", None)
        return readings

    async def _publish(self, report: Report) -> None:
        memory = self._memory
        now = self.clock.now()
        conditions = _dated(report.conditions, memory.conditions, now)
        status = report_of(
            replace(report.node, reported_at=now),
            driver_version=report.driver_version,
            conditions=conditions,
        )
        document = await self._apply(status)
        before, memory.published = memory.published, report
        memory.conditions = conditions
        memory.due = self.clock.monotonic() + self.settings.reportSeconds * (
            1 - 0.1 * self.jitter()
        )
        memory.complaints.pop("cluster", None)
        if report != before:
            LOG.info("%s", _told(report, before))
        self._learn(document)
        self.published(document)

    async def _apply(self, status: dict[str, Any]) -> dict[str, Any]:
        document = await self.store.apply_status(self.name, status, names.MANAGER_AGENT)
        if document is None:
            await self.store.create(self.name)
            document = await self.store.apply_status(self.name, status, names.MANAGER_AGENT)
        if document is None:
            raise ApiError(None, "it is gone as soon as it is made")
        return document

    def _learn(self, document: dict[str, Any] | None) -> None:
        """Take from a GPUNode what is not ours to decide; nonsense leaves things as they are."""
        if document is None:
            return
        if not self._memory.conditions:
            self._memory.conditions = conditions_of(document)
        try:
            overrides = overrides_of(document)
        except BadGPUNode as error:
            self._complain("overrides", f"the overrides stay as they were: {error}")
            return
        if overrides != self._memory.overrides:
            LOG.info("the overrides of GPUNode %s are now: %s", self.name, overrides)
            self._memory.overrides = overrides
        self._memory.complaints.pop("overrides", None)

    def _complain(self, about: str, sentence: str) -> None:
        if sentence != self._memory.complaints.get(about):
            LOG.warning("%s", sentence)
            self._memory.complaints[about] = sentence


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


def _dated(
    conditions: tuple[Condition, ...], before: tuple[Condition, ...], now: str
) -> tuple[Condition, ...]:
    """Each condition with the time when it last changed its mind."""
    since = {(condition.type, condition.holds): condition.since for condition in before}
    return tuple(
        replace(condition, since=since.get((condition.type, condition.holds)) or now)
        for condition in conditions
    )


def _told(report: Report, before: Report | None) -> str:
    """One line about a new report: what it says, and what is new in it."""
    node = report.node
    healthy = sum(card.healthy for card in node.cards)
    line = f"GPUNode {node.name} published: {len(node.cards)} cards, {healthy} healthy"
    for condition in report.conditions:
        line += f"; {condition.type}={condition.holds} ({condition.reason}: {condition.message})"
    if before is None:
        return f"{line}; the first since the start"
    was = {card.uuid: card for card in before.node.cards}
    changed = [f"card {card.index}" for card in node.cards if was.pop(card.uuid, None) != card]
    gone = [f"card {card.index} gone" for card in was.values()]
    links = ["links"] if node.links != before.node.links else []
    return f"{line}; changed: {', '.join([*changed, *gone, *links]) or 'conditions'}"
