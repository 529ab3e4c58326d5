"""Write events on Pods, never on the path of an answer.

The same reason on the same Pod is one event that counts up, at most once a minute. All but
``CardsAllocated`` share about one write a second, newest first: with hundreds of waiting Pods the
last news is worth more than the first, and Bindings must not wait behind either.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from cardwise.controller.clock import Clock, rfc3339_micro
from cardwise.controller.lease.duty import Duty
from cardwise.errors import ApiError
from cardwise.model import PodRef
from cardwise.names import EventReason
from cardwise.ports import Cluster
from cardwise.wire.events import again_body, event_body

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 60.0
_BURST = 5
_PER_SECOND = 1.0
_LEAST_SECONDS = 0.001
_QUEUE = 1_000
_REMEMBERED = 10_000


Note = str | Callable[[], str]
"""What an event says; or what says so once it is written, empty where that is nothing any more."""


@dataclass(slots=True)
class _Posted:
    """One event as far as it is known here."""

    pod: PodRef
    warning: bool
    reason: str
    note: Note
    name: str = ""
    """Its object's name; empty while it was never written."""
    count: int = 0
    """How often it happened."""
    written: float = float("-inf")
    """Monotonic seconds of the last write."""


class Recorder:
    """Queues events and writes them when there is time."""

    def __init__(self, cluster: Cluster, clock: Clock, duty: Duty, instance: str) -> None:
        """Make a recorder.

        Args:
            cluster: where events are written.
            clock: for their times, and for the limits.
            duty: a passive replica writes none.
            instance: which controller this is, e.g. its Pod's name.
        """
        self._cluster = cluster
        self._clock = clock
        self._duty = duty
        self._instance = instance
        self._known: OrderedDict[tuple[str, str], _Posted] = OrderedDict()
        self._urgent: deque[_Posted] = deque(maxlen=_QUEUE)
        self._waiting: OrderedDict[tuple[str, str], _Posted] = OrderedDict()
        self._news_urgent = asyncio.Event()
        self._news_waiting = asyncio.Event()
        self._told_forbidden = False

    def wants(self, pod: PodRef, reason: str) -> bool:
        """Whether ``post`` would write: so that a message need not be made in vain.

        An event that is not wanted is counted all the same.
        """
        posted = self._known.get((pod.uid, reason))
        if posted is None or self._clock.monotonic() - posted.written >= _AGAIN_SECONDS:
            return True
        posted.count += 1
        return False

    def post(self, pod: PodRef, reason: str, note: Note, *, warning: bool = True) -> None:
        """Queue an event; returns at once.

        A note that is work to make is given as a function: where thousands wait and are refused
        again and again, few of their notes are ever written.
        """
        key = (pod.uid, reason)
        posted = self._known.get(key)
        if posted is None:
            posted = self._known[key] = _Posted(pod, warning, reason, note)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        posted.count += 1
        posted.note = note  # the latest account is told
        if reason == EventReason.CARDS_ALLOCATED:
            self._urgent.append(posted)
            self._news_urgent.set()
            return
        self._waiting[key] = posted
        self._waiting.move_to_end(key)
        if len(self._waiting) > _QUEUE:
            late, _ = self._waiting.popitem(last=False)
            self._known.pop(late, None)
        self._news_waiting.set()

    def forget(self, uid: str, reasons: tuple[str, ...]) -> None:
        """The Pod is gone: what waits to be written about it is not worth a write any more."""
        for reason in reasons:
            self._waiting.pop((uid, reason), None)
            self._known.pop((uid, reason), None)

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_urgent())
            group.create_task(self._write_waiting())

    async def _write_urgent(self) -> None:
        while True:
            await self._news_urgent.wait()
            self._news_urgent.clear()
            while self._urgent:
                await self._write(self._urgent.popleft())

    async def _write_waiting(self) -> None:
        tokens, filled = float(_BURST), self._clock.monotonic()
        while True:
            await self._news_waiting.wait()
            self._news_waiting.clear()
            while self._waiting:
                now = self._clock.monotonic()
                tokens, filled = min(_BURST, tokens + (now - filled) * _PER_SECOND), now
                if tokens < 1:
                    # At least so long: what rounding leaves of a token must not be waited for.
                    await asyncio.sleep(max((1 - tokens) / _PER_SECOND, _LEAST_SECONDS))
                    continue
                _, posted = self._waiting.popitem(last=True)
                if not self._has_note(posted):
                    await asyncio.sleep(0)  # to find that out was work
                    continue
                tokens -= 1
                await self._write(posted)

    def _has_note(self, posted: _Posted) -> bool:
        """Make the note, where that was left until now."""
        if callable(posted.note) and not self._duty.passive():
            posted.note = posted.note()
        return bool(posted.note)

    async def _write(self, posted: _Posted) -> None:
        """Create the event, or say that it happened again."""
        if self._duty.passive() or callable(posted.note):
            return  # the active replica sees the same, and tells
        posted.written = self._clock.monotonic()
        now = self._clock.unix()
        when = rfc3339_micro(now)
        try:
            if posted.name:
                try:
                    again = again_body(posted.count, when, posted.note)
                    await self._cluster.count_event(posted.pod.namespace, posted.name, again)
                except ApiError as error:
                    if error.status != 404:  # it is gone after an hour: begin anew
                        raise
                else:
                    return
            body = event_body(
                posted.pod,
                warning=posted.warning,
                reason=posted.reason,
                note=posted.note,
                when=when,
                serial=int(now * 1_000_000),
                instance=self._instance,
            )
            await self._cluster.create_event(body)
            posted.name, posted.count = body["metadata"]["name"], 1
        except ApiError as error:
            self._tell(posted, error)

    def _tell(self, posted: _Posted, error: ApiError) -> None:
        """Say once that events may not be written; of others, say each."""
        if error.status == 403:
            if not self._told_forbidden:
                self._told_forbidden = True
                _log.warning("events can't be written, placement goes on: %s", error)
        elif error.status != 404:  # the namespace went with the Pod
            _log.info("event %s of Pod %s was not written: %s", posted.reason, posted.pod, error)
