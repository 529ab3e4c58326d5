"""Give decided Pods their cards, several at a time, and bring back those whose pin came to nothing.

A pin is for one version of its Pod. Where somebody changed the Pod meanwhile it is read again and
decided again; where the API server refuses the pin itself, it is tried again later and later.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.gates.waiting import Waiting
from cardwise.controller.lease.duty import Duty
from cardwise.controller.lease.tenure import WRITE_SECONDS
from cardwise.controller.placing.binder import Binder
from cardwise.controller.placing.writes import LATE, PinWrite
from cardwise.controller.reports.metrics import Metrics
from cardwise.controller.telling.teller import Teller
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.model import Booking, PodRef
from cardwise.ports import Cluster
from cardwise.wire import pins, pods

_log = logging.getLogger(__name__)

AT_ONCE = 48
"""Pins under way: enough to keep an API server busy, fewer than the client's connections."""
_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
"""Before a Pod whose pin was refused is tried again; twice as long each time."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Later:
    """A Pod that is tried again later."""

    version: str
    timer: asyncio.TimerHandle


class Pinner:
    """Sends pins for Pods that are held."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        cluster: Cluster,
        binder: Binder,
        teller: Teller,
        duty: Duty,
        clock: Clock,
        metrics: Metrics,
        returned: Callable[[Waiting], None],
        changed: Callable[[Json], None],
        unplaced: Callable[[str], None],
        ended: Callable[[str], None],
    ) -> None:
        """Make it.

        Args:
            ledger: where a hold is given back that is not pinned after all.
            cluster: where a changed Pod is read again.
            binder: sends, and finds out what became of it.
            teller: tells what came of it.
            duty: asked again right before the sending.
            clock: for the time in the annotations.
            metrics: counts.
            returned: called with a Pod that waits again as it was.
            changed: called with a Pod that was read again.
            unplaced: called with a Pod's UID where its pin came to nothing, before the former two.
            ended: called with a Pod's UID after its pin, whatever became of it.
        """
        self._ledger = ledger
        self._cluster = cluster
        self._binder = binder
        self._teller = teller
        self._duty = duty
        self._clock = clock
        self._metrics = metrics
        self._returned = returned
        self._changed = changed
        self._unplaced = unplaced
        self._ended = ended
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._later: dict[str, _Later] = {}
        self._tries: dict[str, int] = {}
        self._over: set[str] = set()
        """UIDs whose pin is under way, and that were seen placed or gone meanwhile."""

    @property
    def is_full(self) -> bool:
        """Whether no more pins should be begun now."""
        return len(self._under_way) >= AT_ONCE

    def is_under_way(self, uid: str) -> bool:
        """Whether the Pod's pin was begun and has not ended."""
        return uid in self._under_way

    def is_put_off(self, waiting: Waiting) -> bool:
        """Whether this very version of the Pod is to be tried again later; another is not."""
        later = self._later.get(waiting.pod.uid)
        if later is None:
            return False
        if later.version == waiting.version:
            return True
        self._later.pop(waiting.pod.uid).timer.cancel()
        return False

    def forget(self, uid: str) -> None:
        """The Pod is placed, or ended: it is not tried again."""
        if uid in self._under_way:
            self._over.add(uid)
        self._tries.pop(uid, None)
        if (later := self._later.pop(uid, None)) is not None:
            later.timer.cancel()

    def begin(self, waiting: Waiting, booking: Booking) -> None:
        """Pin a Pod that is held with these cards; returns at once."""
        uid = waiting.pod.uid
        self._start(uid, self._run(waiting, booking, self._duty.term))

    def open(self, pod: PodRef, version: str) -> None:
        """Open the gate of a Pod that asks for no card; returns at once."""
        if pod.uid not in self._under_way:
            self._start(pod.uid, self._open(pod, pins.open_patch(pod, version)))

    async def stop(self) -> None:
        """Wait for what has begun; nothing new is sent, because this process is off duty."""
        for later in self._later.values():
            later.timer.cancel()
        while self._under_way:
            await asyncio.wait(self._under_way.values())

    def _start(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way[uid] = task
        task.add_done_callback(lambda _: self._done(uid, task))

    async def _open(self, pod: PodRef, patch: Json) -> None:
        try:
            await self._cluster.patch_pod(pod.namespace, pod.name, patch, within=WRITE_SECONDS)
        except ApiError as error:
            _log.warning("the gate of Pod %s, which asks for no card, stays shut: %s", pod, error)
            version = patch["metadata"]["resourceVersion"]
            await self._read_again(pod, version, lambda: self.open(pod, version))

    def _done(self, uid: str, task: "asyncio.Task[None]") -> None:
        if self._under_way.get(uid) is task:
            del self._under_way[uid]
        # A Pod that was read again may be on its way anew before this task has quite ended.
        if uid not in self._under_way:
            self._over.discard(uid)
            self._ended(uid)

    async def _run(self, waiting: Waiting, booking: Booking, term: int) -> None:
        uid, request = waiting.pod.uid, waiting.request
        if self._duty.refusal() or self._duty.term != term:
            # Nothing was sent, and the cards may be another replica's to give.
            self._ledger.drop_hold(uid, self._clock.monotonic())
            self._returned(waiting)
            return
        now = int(self._clock.unix())
        write = PinWrite.of(request, booking, now, waiting.version, waiting.terms)
        with self._metrics.timed("pin") as timer:
            error = await self._binder.place(request, booking, write, patience=None)
            timer.result = "error" if error else "ok"
        if not error:
            self._tries.pop(uid, None)
            self._teller.bound(request, booking, self._ledger.view(booking.node))
            return
        if error not in LATE:
            self._teller.not_bound(request.pod, error)
        await self._read_again(request.pod, waiting.version, lambda: self._returned(waiting))

    async def _read_again(self, pod: PodRef, version: str, again: Callable[[], None]) -> None:
        """A write came to nothing: the Pod's newest state is what counts.

        What the watch showed of it meanwhile was put aside, and it may have ended.

        Args:
            pod: which Pod.
            version: the one that the write was for.
            again: called later where the Pod is still the same.
        """
        # At once: while it is read, its gang must not go on as if one of it were placed.
        self._unplaced(pod.uid)
        try:
            found = await self._cluster.pod(pod.namespace, pod.name)
        except ApiError as error:
            _log.info("Pod %s can't be read again yet: %s", pod, error)

            def read() -> None:
                self._start(pod.uid, self._read_again(pod, version, again))

            self._try_later(pod.uid, version, read)
            return
        if found is None or pods.pod_ref(found).uid != pod.uid or pods.is_finished(found):
            return
        if pods.resource_version(found) != version:
            self._under_way.pop(pod.uid, None)
            self._changed(found)
        elif pod.uid not in self._over:
            self._try_later(pod.uid, version, again)

    def _try_later(self, uid: str, version: str, again: Callable[[], None]) -> None:
        tries = self._tries[uid] = self._tries.get(uid, 0) + 1
        seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (tries - 1))

        def now() -> None:
            del self._later[uid]
            again()

        timer = asyncio.get_running_loop().call_later(seconds, now)
        self._later[uid] = _Later(version, timer)
