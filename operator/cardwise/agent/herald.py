"""Events on the Node about its cards: written when there is time, never in the way of a report."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cardwise.agent.health import Change
from cardwise.errors import ApiError
from cardwise.names import CardEvent
from cardwise.ports import NodeEvents
from cardwise.wire.events import cluster_event_body, node_ref

_log = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0
"""Between two events that say the same of the same card: one that comes and goes must not flood."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_QUEUE = 100
"""Events that wait for the API server; the oldest are given up first."""
_GOOD = frozenset({CardEvent.HEALTHY, CardEvent.DRIVER_ANSWERS})


@dataclass(slots=True, kw_only=True)
class Herald:
    """Writes one node's events."""

    node: str
    store: NodeEvents
    now: Callable[[], datetime]
    """The time of day in UTC."""
    jitter: Callable[[], float] = random.random
    _waiting: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_QUEUE))
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _last: dict[tuple[CardEvent, str], float] = field(default_factory=dict)
    """When it was told, in Unix seconds, by what and of which card."""
    _serial: int = 0
    """Of the last event: it ends the event's name."""

    def tell(self, change: Change) -> None:
        """Queue an event; returns at once."""
        now = self.now()
        key = (change.event, change.card.uuid if change.card else "")
        if 0 <= now.timestamp() - self._last.get(key, float("-inf")) < AGAIN_SECONDS:
            return
        self._last[key] = now.timestamp()
        # Two of one moment are two events, and so are two between which the clock was set back.
        self._serial = max(self._serial + 1, int(now.timestamp() * 1_000_000))
        self._waiting.append(
            cluster_event_body(
                node_ref(self.node),
                warning=change.event not in _GOOD,
                reason=change.event,
                note=str(change),
                when=now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                serial=self._serial,
            )
        )
        self._news.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        pause = 0.0
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            event = self._waiting[0]
            try:
                await self.store.create_event(event)
            except ApiError as error:
                if error.status is None or error.status == 429 or error.status >= 500:
                    pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
                    await asyncio.sleep(pause * (0.5 + self.jitter()))
                    continue
                _log.warning("event %s was not written: %s", event["reason"], error)
            pause = 0.0
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()
