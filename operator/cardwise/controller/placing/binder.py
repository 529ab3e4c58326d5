"""Send Bindings and pins, and find out what became of those without an answer.

One write gives a Pod node, cards and identity at once. Until its outcome is known the cards stay
taken: a write that timed out may still land, so it is sent again, word for word, until the Pod is
seen placed, gone, or beyond its reach, or a refusal comes when none of those before can land any
more. Nothing else could be proved to be safe.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.placing.nodelocks import NodeLocks
from cardwise.controller.placing.writes import GONE, BindingWrite, Write
from cardwise.controller.watching.mirror import Mirror
from cardwise.errors import ApiError, BadAllocation
from cardwise.ledger import Ledger
from cardwise.model import Booking, PodRef, Request
from cardwise.names import ANNOTATION_BYTES_AT_BIND
from cardwise.ports import Cluster
from cardwise.wire import pods

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 6.0
"""How long a call of /bind waits for an outcome that is not known."""
_BETWEEN_SECONDS = 0.5
_LOCKED_SECONDS = 28.0
"""How long a write that nobody waits for waits for HAMi's lock of its node: as HAMi does with the
Pods of a gang."""
_LANDS_SECONDS = 65.0
"""When no write without an answer can land any more: kube-apiserver gives a request up after 60 s
(its ``--request-timeout``)."""
_UNKNOWN_STATUSES = frozenset({500, 502, 503, 504})
"""Answers after which the write may have happened all the same."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A write, and what it gives."""

    pod: PodRef
    booking: Booking
    write: Write
    term: int
    """In which it was decided."""


class Binder:
    """Takes a held Pod to its booking."""

    def __init__(
        self, ledger: Ledger, mirror: Mirror, cluster: Cluster, duty: Duty, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._cluster = cluster
        self._duty = duty
        self._clock = clock
        self._locks = NodeLocks(cluster, clock)
        self._settling: set[asyncio.Task[str]] = set()

    async def bind(self, request: Request, booking: Booking) -> str:
        """Bind a Pod that is held with these cards; otherwise as `place`."""
        write = BindingWrite.of(request, booking, int(self._clock.unix()))
        return await self.place(request, booking, write)

    async def place(
        self,
        request: Request,
        booking: Booking,
        write: Write,
        *,
        patience: float | None = _SETTLE_SECONDS,
    ) -> str:
        """Give a Pod the cards that are held for it.

        The caller has asked the duty, and nothing is awaited between that and the sending.

        Args:
            request: the Pod.
            booking: what is held.
            write: what gives it.
            patience: seconds to wait for an outcome that is not known; None: until it is.

        Returns:
            Why it does not have them, one sentence; empty when it has.
        """
        pod = request.pod
        total = request.annotation_bytes + write.annotation_bytes
        if total > ANNOTATION_BYTES_AT_BIND:
            self._ledger.drop_hold(pod.uid, self._clock.monotonic())
            return (
                f"the Pod's annotations would come to {total} bytes with its cards, above "
                f"{ANNOTATION_BYTES_AT_BIND}; make its own annotations shorter"
            )
        sent = _Sent(pod, booking, write, self._duty.term)
        self._ledger.begin_binding(pod.uid, self._clock.monotonic())
        if self._is_by_hami(booking.node):
            locked = _LOCKED_SECONDS if patience is None else 0.0
            if refusal := await self._lock(sent, locked):
                return self._over(sent, refusal)
        try:
            await write.send(self._cluster)
        except ApiError as error:
            return await self._failed(sent, error, patience)
        except BaseException:
            # Cancelled, say: the write is out, so its outcome must be found by somebody.
            self._settle_later(sent, lost=self._clock.monotonic())
            raise
        self._ledger.end_binding(pod.uid, self._clock.monotonic(), bound=True)
        return ""

    async def stop(self) -> None:
        """Give up on outcomes that are still not known: the next controller lists Pods anyway."""
        for task in self._settling:
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)
        await self._locks.stop()

    def _is_by_hami(self, node: str) -> bool:
        """Whether HAMi's device plugin hands out the node's cards."""
        account = self._ledger.account(node)
        return account is not None and account.by_hami

    async def _lock(self, sent: _Sent, patience: float) -> str:
        """Have HAMi's device plugin find this Pod; why it can't be, or empty."""
        try:
            refusal = await self._locks.take(sent.booking.node, sent.pod, patience=patience)
        except BaseException:
            self._over(sent, "cancelled")
            raise
        # Taking it took time: this replica may not be the one that acts any more.
        if not refusal and self._duty.term != sent.term:
            return "another replica was active meanwhile"
        return refusal or self._duty.refusal()

    async def _failed(self, sent: _Sent, error: ApiError, patience: float | None) -> str:
        """The write was refused, or nobody knows."""
        lost = float("-inf")
        if _is_unknown(error):
            lost = self._clock.monotonic()
            _log.warning(
                "%s of Pod %s has no known outcome yet: %s", sent.write.name, sent.pod, error
            )
        elif error.status == 404:
            return self._over(sent, GONE)
        elif error.status != 409:
            return self._over(sent, f"the API server refused {sent.write.name}: {error}")
        task = self._settle_later(sent, lost=lost)
        done, _ = await asyncio.wait({task}, timeout=patience)
        if not done:
            name = sent.write.name
            return f"the outcome of {name} is not known yet, it is being looked for: {error}"
        return task.result()

    def _settle_later(self, sent: _Sent, *, lost: float) -> "asyncio.Task[str]":
        task = asyncio.create_task(self._settle(sent, lost))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def _settle(self, sent: _Sent, lost: float) -> str:
        """Find out whether the Pod is placed, sending the same write again where it is not.

        Args:
            sent: the write.
            lost: monotonic seconds of the last write without an answer; minus infinity: none.
        """
        while True:
            try:
                outcome = await self._look_and_send(sent, lost)
            except ApiError as error:
                if error.status == 404:
                    return self._over(sent, GONE)
                now, outcome = self._clock.monotonic(), None
                if _is_unknown(error):
                    lost = now
                elif now - lost > _LANDS_SECONDS:
                    refused = f"the API server refused {sent.write.name}: {error}"
                    return self._over(sent, refused)
            if outcome is not None:
                return outcome
            await asyncio.sleep(_BETWEEN_SECONDS)

    async def _look_and_send(self, sent: _Sent, lost: float) -> str | None:
        """Look at the Pod; where it is not placed yet, send once more. None: not known yet."""
        pod = sent.pod
        try:
            found = await self._cluster.pod(pod.namespace, pod.name)
        except ApiError:
            return None  # whatever the refusal, it says nothing of the write
        if found is None or pods.pod_ref(found).uid != pod.uid:
            return self._over(sent, GONE)
        node = pods.placed_node(found)
        if node is not None:
            return self._found_placed(sent, found, node)
        if over := sent.write.over(found):
            return self._over(sent, over)
        if self._duty.refusal() or self._duty.term != sent.term:
            # The cards may be another replica's to give, or may have been since: nothing is sent.
            if self._clock.monotonic() - lost > _LANDS_SECONDS:
                return self._over(
                    sent, f"{sent.write.name} was given up: another replica was active"
                )
            return None
        await sent.write.send(self._cluster)
        self._ledger.end_binding(pod.uid, self._clock.monotonic(), bound=True)
        return ""

    def _found_placed(self, sent: _Sent, found: dict[str, Any], node: str) -> str:
        """The Pod is placed: by us as it was meant, or by somebody else."""
        try:
            ours = pods.booking_of(found) == sent.booking
        except BadAllocation:
            ours = False
        self._mirror.see_pod(found)
        self._ledger.end_binding(sent.pod.uid, self._clock.monotonic(), bound=ours)
        if not ours:
            self._unlock(sent)
        return "" if ours else f"the Pod is placed on {node} already, not by this decision"

    def _over(self, sent: _Sent, why: str) -> str:
        self._ledger.end_binding(sent.pod.uid, self._clock.monotonic(), bound=False)
        self._unlock(sent)
        return why

    def _unlock(self, sent: _Sent) -> None:
        if self._is_by_hami(sent.booking.node):
            self._locks.give_back(sent.booking.node, sent.pod)


def _is_unknown(error: ApiError) -> bool:
    """Whether the write may have happened all the same, or may happen yet."""
    return error.status is None or error.status in _UNKNOWN_STATUSES
