"""Follow the Lease: look at it, begin a term of ours with a fresh list, end one at once.

Beside `tenure`, which says what a look means, this is all that waits and asks.
"""

import asyncio
import logging
from collections.abc import Callable

from cardwise.controller.clock import Clock
from cardwise.controller.lease.tenure import Tenure
from cardwise.controller.watching.mirror import Mirror
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.ports import Cluster

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
"""Less than what kube-scheduler waits before it asks again for a Pod that was refused because its
Lease was not seen yet: 1 s."""
_AGAIN_SECONDS = 0.5
"""Between a list that failed and the next."""


class Activity:
    """Makes this replica active and passive as its kube-scheduler wins and loses the Lease."""

    def __init__(
        self,
        *,
        tenure: Tenure,
        lease: tuple[str, str],
        ledger: Ledger,
        mirror: Mirror,
        cluster: Cluster,
        clock: Clock,
        began: Callable[[], None],
    ) -> None:
        """Make it.

        Args:
            tenure: what is kept up to date.
            lease: namespace and name of the Lease.
            ledger: whose holds end with a term.
            mirror: what lists Pods at the beginning of a term.
            cluster: who is asked.
            clock: for the times of looks.
            began: called when this replica has become active.
        """
        self._tenure = tenure
        self._lease = lease
        self._ledger = ledger
        self._mirror = mirror
        self._cluster = cluster
        self._clock = clock
        self._began = began
        self._term = tenure.term
        self._told = ""
        self._seeing = True

    async def run(self) -> None:
        """Follow the Lease until cancelled."""
        beginning: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                await self._look()
                if self._tenure.term != self._term:
                    self._term = self._tenure.term
                    if beginning is not None:
                        beginning.cancel()  # its list is of a term that is over
                    self._drop_holds()
                    beginning = group.create_task(self._begin()) if self._tenure.ours else None
                self._tell()
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        asked = self._clock.monotonic()
        try:
            lease = await self._cluster.lease(*self._lease)
        except ApiError as error:
            if self._seeing:
                self._seeing = False
                _log.warning("the Lease %s/%s can't be read: %s", *self._lease, error)
        else:
            self._seeing = True
            self._tenure.see(lease, asked, self._clock.monotonic())

    async def _begin(self) -> None:
        """Wait until no other replica has a Binding under way, list, and be active."""
        await asyncio.sleep(self._tenure.begins - self._clock.monotonic())
        while True:
            try:
                await self._mirror.reconcile(self._cluster, first=True)
            except ApiError as error:
                _log.warning("Pods can't be listed, this replica is not active yet: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                break
        self._tenure.listed()
        self._tell()
        self._began()

    def _drop_holds(self) -> None:
        """What was held in one term means nothing in the next, nor to another replica."""
        now = self._clock.monotonic()
        for uid in [entry.pod.uid for entry in self._ledger.entries()]:
            self._ledger.drop_hold(uid, now)

    def _tell(self) -> None:
        state = self._tenure.refusal() or "this replica is active"
        if state != self._told:
            self._told = state
            _log.info("%s", state)
