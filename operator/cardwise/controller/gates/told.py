"""What those who wait behind a gate are told, and when: the same words for all Pods of a group.

Apart from whoever decides, who hands over an answer and need not know whom it reaches.
"""

import asyncio

from cardwise.controller.clock import Clock
from cardwise.controller.gates.holder import Refusal
from cardwise.controller.gates.queue import Group, Queue, Rank
from cardwise.controller.gates.waiting import Waiting
from cardwise.controller.telling.teller import Teller
from cardwise.ledger import Ledger
from cardwise.model import InvalidRequest, PodRef
from cardwise.names import EventReason, Reason

_LOOK_SECONDS, _AGAIN_SECONDS = 60.0, 1200.0
"""An event is kept for an hour by default: whoever waits longer is told of again."""
_KEPT_BACK = EventReason.KEPT_BACK


class Told:
    """Tells the Pods of the queue why they wait, and the ledger, which counts them."""

    def __init__(
        self, ledger: Ledger, queue: Queue, teller: Teller, clock: Clock, *, name_tenants: bool
    ) -> None:
        """Nobody was told anything.

        Args:
            ledger: keeps why each Pod waits.
            queue: whose Pods are told.
            teller: writes the events.
            clock: for how long ago a Pod was told.
            name_tenants: whether Pods of other namespaces are named.
        """
        self._ledger = ledger
        self._queue = queue
        self._teller = teller
        self._clock = clock
        self._name_tenants = name_tenants
        self._at: dict[str, float] = {}
        """By UID: monotonic seconds when its Pod was last told why it waits."""

    def tell(self, waiting: Waiting, group: Group) -> None:
        """Tell a Pod what its group was told."""
        group.untold.pop(waiting.pod.uid, None)
        if group.reason is not None:
            now = self._clock.monotonic()
            self._at[waiting.pod.uid] = now
            self._ledger.wait(waiting.pod, waiting.request, group.reason, now)
            self._teller.waits(waiting.pod, group.reason, lambda: group.message)

    def invalid(self, request: InvalidRequest) -> None:
        """Tell a Pod that what it asks can't be read: it waits, but not in the queue."""
        now = self._clock.monotonic()
        self._ledger.wait(request.pod, None, Reason.INVALID_REQUEST, now)
        self._teller.invalid(request)

    def refused(self, group: Group, refusal: Refusal) -> None:
        """Tell a group why it has to wait.

        All are told where the reason is new, else the first again, and those who came since.
        """
        news = group.reason is not refusal.reason
        group.reason = refusal.reason

        def renewed() -> str:
            group.message = refusal.message()
            return group.message

        if news:
            renewed()
            self._tell_all(group)
        else:
            self._teller.waits(group.first.pod, refusal.reason, renewed)
            if group.untold:
                renewed()
                self._tell_untold(group)

    def kept_back(self, rank: Rank, first: PodRef) -> None:
        """Tell whoever is behind a place in the queue for whom it waits."""
        for group in self._queue:
            if group.closed or group.rank <= rank:
                continue
            # All of a group are of one namespace.
            seen = first.namespace == group.first.pod.namespace or self._name_tenants
            who = f"Pod {first}" if seen else "a Pod of another namespace"
            message = f"Kept back by {who}, which is before it in the queue and fits nowhere."
            if (group.reason, group.message) != (_KEPT_BACK, message):
                group.reason, group.message = _KEPT_BACK, message
                self._tell_all(group)
            else:
                self._tell_untold(group)

    async def tell_again(self) -> None:
        """Tell again, now and then, of Pods that wait for long, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            late = self._clock.monotonic() - _AGAIN_SECONDS
            for group in list(self._queue):
                for waiting in list(group):
                    if self._at.get(waiting.pod.uid, late) <= late:
                        self.tell(waiting, group)
                await asyncio.sleep(0)

    def forget(self, uid: str) -> None:
        """A Pod does not wait any more."""
        self._at.pop(uid, None)

    def _tell_all(self, group: Group) -> None:
        for waiting in list(group):
            self.tell(waiting, group)

    def _tell_untold(self, group: Group) -> None:
        """Tell those who came since the others of their group were told."""
        for uid in list(group.untold):
            if (waiting := self._queue.get(uid)) is not None:
                self.tell(waiting, group)
