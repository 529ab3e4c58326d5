"""What becomes of a pinned Pod that kube-scheduler refuses on its node.

A pin can't be taken back: the Pod can go to this one node, or nowhere. So people are told what
kube-scheduler says, and after a while the Pod is evicted, so that its owner makes a new one, which
is decided anew. A Pod that nobody would make anew stays, with its cards.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.gates import pinned
from cardwise.controller.gates.evictions import MOST_EVICTIONS, WINDOW_SECONDS, Evictions
from cardwise.controller.gates.pinned import PinnedPod, State
from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling.recorder import Recorder
from cardwise.errors import ApiError
from cardwise.names import EventReason
from cardwise.ports import Cluster
from cardwise.settings import GatesSection
from cardwise.wire import pods
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)

TOLD_SECONDS = 5.0
"""How long a Pod must be refused before it is told of: kube-scheduler may just have looked too
early."""
TOLD_AGAIN_SECONDS = 300.0
"""Between two events on a Pod that stays as it is."""
_AGAIN_SECONDS = 10.0
"""After a budget for disruption, or an API server in trouble, did not let an eviction happen."""
_CHANGED_SECONDS = 1.0
"""After an eviction that met a newer version of the Pod."""
_LEAST_SECONDS = 0.001
_OFF_DUTY_SECONDS = 5.0
"""Between two looks whether this replica may act, while something is due."""
_REASONS = (EventReason.PINNED_NODE_REFUSED, EventReason.SCHEDULER_ABSENT)
_RESULTS = {404: "gone", 409: "changed", 429: "forbidden"}
_NEVER = float("inf")

Json = dict[str, Any]


@dataclass(slots=True)
class _Case:
    """One pinned Pod that is followed."""

    pinned: PinnedPod
    number: int
    """Of its version."""
    seen: float
    """Monotonic seconds of the newest sighting."""
    since: float
    """Monotonic seconds since when its state is what it is."""
    term: int
    """The term in which `since` was taken."""
    due: float = _NEVER
    """When something is to be done about it."""
    evicted: bool = False
    """Only its end is waited for: the watch shows it once more before that."""


class RefusedPods:
    """Follows pinned Pods until they are bound, and tells of, or evicts, those that are refused.

    A follower of the mirror. One task works for all of them, and sleeps until the next is due.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        recorder: Recorder,
        duty: Duty,
        clock: Clock,
        settings: GatesSection,
        counted: Callable[[str], None] = lambda _result: None,
    ) -> None:
        """Make it; it follows no Pod yet.

        Args:
            cluster: where Pods are evicted.
            recorder: of events.
            duty: nothing is told or evicted while this replica must not act, and ages begin anew
                with a term.
            clock: for ages.
            settings: how long a refusal is borne, and whether Pods are evicted.
            counted: called with the result of each try to evict: ``evicted``, ``gone``, ``changed``
                (a newer version was there), ``forbidden`` (by a budget), ``failed``.
        """
        self._cluster = cluster
        self._recorder = recorder
        self._duty = duty
        self._clock = clock
        self._borne = float(settings.refusedSeconds)
        self._evicts = settings.evictRefused
        self._counted = counted
        self._cases: dict[str, _Case] = {}
        """By the Pod's UID."""
        self._dues: list[tuple[float, str]] = []
        """A heap; an entry counts while it is its Pod's `due`."""
        self._news = asyncio.Event()
        self.evictions = Evictions(clock)

    # What is seen ---------------------------------------------------------------------------------

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone; that it is none of ours is seen at once."""
        uid = text(at(pod, "metadata", "uid"))
        case = self._cases.get(uid)
        if case is None and (deleted or not pinned.concerns_us(pod)):
            return
        number, now = pods.version_number(pod), self._clock.monotonic()
        if case is not None and number < case.number and not deleted:
            return  # it came late
        it = None if deleted else pinned.pinned_pod(pod)
        if it is None:
            self._drop(uid)
        elif case is not None and (case.evicted or case.pinned.state is it.state):
            case.pinned, case.number, case.seen = it, number, now
        else:
            case = self._cases[uid] = _Case(it, number, now, now, self._duty.term)
            self._restart(case)

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """Nodes are of no interest here: kube-scheduler says what is wrong with them."""

    def listed(self, uids: set[str], began: float) -> None:
        """Whoever is not on a complete list, and was not seen since it began, is gone."""
        gone = [u for u, case in self._cases.items() if u not in uids and case.seen < began]
        for uid in gone:
            self._drop(uid)

    def __len__(self) -> int:
        """How many Pods are followed."""
        return len(self._cases)

    def _drop(self, uid: str) -> None:
        case = self._cases.pop(uid, None)
        if case is not None and not case.evicted:
            self._recorder.forget(uid, _REASONS)

    # When something is due ------------------------------------------------------------------------

    def _restart(self, case: _Case) -> None:
        """Count from now on."""
        case.since, case.term, case.due = self._clock.monotonic(), self._duty.term, _NEVER
        if case.pinned.state is State.REFUSED:
            self._put(case, case.since + min(TOLD_SECONDS, self._borne))
        elif case.pinned.state is State.UNSEEN:
            self._put(case, case.since + self._borne)

    def _put(self, case: _Case, due: float) -> None:
        case.due = due
        heapq.heappush(self._dues, (due, case.pinned.pod.uid))
        self._news.set()

    def _head(self) -> _Case | None:
        """What is due next."""
        while self._dues:
            due, uid = self._dues[0]
            case = self._cases.get(uid)
            if case is not None and case.due == due:
                return case
            heapq.heappop(self._dues)  # the Pod went, or its time was changed
        return None

    async def run(self) -> None:
        """Tell and evict until cancelled."""
        while True:
            case = await self._next()
            if self._duty.refusal():
                await asyncio.sleep(_OFF_DUTY_SECONDS)
            elif case.term != self._duty.term:
                self._restart(case)  # what was before is another's account
            else:
                await self._act(case)

    async def _next(self) -> _Case:
        """Wait until something is due."""
        while True:
            self._news.clear()
            case = self._head()
            wait = None if case is None else case.due - self._clock.monotonic()
            if case is not None and wait is not None and wait <= 0:
                return case
            try:
                # A timer may fire a little early: without a least, it would do so for ever.
                async with asyncio.timeout(None if wait is None else max(wait, _LEAST_SECONDS)):
                    await self._news.wait()
            except TimeoutError:
                continue

    # What is done ---------------------------------------------------------------------------------

    async def _act(self, case: _Case) -> None:
        """Do what is due, on the Pod as it is now: the watch may be late."""
        ref, due = case.pinned.pod, case.due
        try:
            pod = await self._cluster.pod(ref.namespace, ref.name)
        except ApiError as error:
            _log.info("Pod %s can't be read: %s", ref, error)
            self._put(case, self._clock.monotonic() + _AGAIN_SECONDS)
            return
        if pod is None or text(at(pod, "metadata", "uid")) != ref.uid:
            self._drop(ref.uid)
            return
        self.see_pod(pod, deleted=False)
        if self._cases.get(ref.uid) is not case or case.due != due or self._duty.refusal():
            return  # it has become another matter meanwhile
        if case.pinned.state is State.UNSEEN:
            seconds = int(self._clock.monotonic() - case.since)
            note = pinned.absent_note(case.pinned, seconds)
            self._recorder.post(ref, EventReason.SCHEDULER_ABSENT, note)
            self._put(case, self._clock.monotonic() + TOLD_AGAIN_SECONDS)
        elif self._evictable_at(case) <= self._clock.monotonic():
            await self._evict(case)
        else:
            self._tell_refused(case)

    def _tell_refused(self, case: _Case) -> None:
        """Say what kube-scheduler says, and what follows."""
        it = case.pinned
        if not self._may_go(it):
            follows, again = pinned.stays_note(it), TOLD_AGAIN_SECONDS
        elif it.nominated:
            follows, again = pinned.NOMINATED_NOTE, self._borne
        elif self.evictions.free_at(it.owner) > case.since + self._borne:
            follows = pinned.spared_note(it, MOST_EVICTIONS, int(WINDOW_SECONDS / 60))
            again = TOLD_AGAIN_SECONDS
        else:
            follows = pinned.evicted_soon_note(it, int(self._borne))
            again = TOLD_AGAIN_SECONDS
        note = pinned.refused_note(it, follows)
        self._recorder.post(it.pod, EventReason.PINNED_NODE_REFUSED, note)
        self._put(case, min(self._clock.monotonic() + again, self._evictable_at(case)))

    def _may_go(self, it: PinnedPod) -> bool:
        """Whether Pods like it are evicted at all."""
        return self._evicts and bool(it.owner)

    def _evictable_at(self, case: _Case) -> float:
        """Monotonic seconds from which on the Pod may be evicted."""
        if not self._may_go(case.pinned) or case.pinned.nominated:
            return _NEVER
        return max(case.since + self._borne, self.evictions.free_at(case.pinned.owner))

    async def _evict(self, case: _Case) -> None:
        """Evict the Pod, if it is what was just seen: unbound, and refused."""
        it, seconds = case.pinned, int(self._clock.monotonic() - case.since)
        ref = it.pod
        try:
            await self._cluster.evict(ref.namespace, ref.name, uid=ref.uid, version=it.version)
        except ApiError as error:
            self._not_evicted(case, error)
            return
        self._counted("evicted")
        self.evictions.charge(it.owner, it.node)
        _log.info("Pod %s was evicted: node %s was refused for %d s", ref, it.node, seconds)
        case.evicted, case.due = True, _NEVER
        note = pinned.evicted_note(it, seconds)
        self._recorder.post(ref, EventReason.PINNED_NODE_REFUSED, note)

    def _not_evicted(self, case: _Case, error: ApiError) -> None:
        ref = case.pinned.pod
        self._counted(_RESULTS.get(error.status or 0, "failed"))
        if error.status == 404:
            self._drop(ref.uid)
            return
        if error.status is None:
            self.evictions.charge(case.pinned.owner, case.pinned.node)  # it may have happened
        _log.info("Pod %s was not evicted, it is tried again: %s", ref, error)
        again = _CHANGED_SECONDS if error.status == 409 else _AGAIN_SECONDS
        self._put(case, self._clock.monotonic() + again)
