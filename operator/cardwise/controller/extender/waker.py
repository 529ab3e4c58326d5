"""Have waiting Pods asked for again when room grew.

kube-scheduler retries a refused Pod when any Node's annotation changes; a change of a custom
resource, or of our memory, wakes nobody. So one annotation on one Node is bumped, after the ledger
changed, at most once a second, and only if some Pod was refused since the last time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.names import WAKE
from cardwise.ports import Cluster

_log = logging.getLogger(__name__)
_BETWEEN_SECONDS = 1.0


class Waker:
    """Watches the ledger's growth on behalf of the Pods that wait."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        clock: Clock,
        duty: Duty,
        node_names: Callable[[], Iterable[str]],
        grew: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a waker.

        Args:
            ledger: whose growth is looked at.
            cluster: where the annotation is written.
            clock: for the annotation's value.
            duty: a passive replica wakes nobody.
            node_names: the Nodes that exist; the smallest name is written to.
            grew: called when room grew, for those who need no annotation to hear of it.
        """
        self._ledger = ledger
        self._cluster = cluster
        self._clock = clock
        self._duty = duty
        self._node_names = node_names
        self._grew = grew
        self._refused = False
        self._due = asyncio.Event()

    def refused(self) -> None:
        """A Pod was refused: the next growth is worth telling."""
        self._refused = True

    def begin(self) -> None:
        """A beginning: wake once, for who waited before and what grew is not known."""
        self._due.set()

    def look(self) -> None:
        """Look at the ledger after it changed."""
        if self._ledger.grew:
            self._ledger.grew = False
            self._grew()
            if self._refused:
                self._due.set()

    async def run(self) -> None:
        """Write the annotation whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            if self._duty.passive():
                continue  # whoever becomes active wakes once
            # Before the write: a Pod that is refused while it is under way must count for the next.
            self._refused = False
            if not await self._wake():
                self._refused = True
                self._due.set()
            await asyncio.sleep(_BETWEEN_SECONDS)

    async def _wake(self) -> bool:
        """Bump the annotation on the first Node that takes it."""
        for name in sorted(self._node_names()):
            try:
                await self._cluster.annotate_node(name, WAKE, f"{self._clock.unix():.3f}")
            except ApiError as error:
                _log.warning("waking waiting Pods by Node %s failed: %s", name, error)
                if error.status != 404:
                    return False
            else:
                return True
        return True  # no Node at all: nobody can be placed, so nobody need be woken
