"""Whose turn it is: whoever waits behind our gate is decided as soon as there is room.

No clock drives it. A Pod that comes, room that grows, and a pin that ends are the only things after
which another answer is possible, and each of them is told here in the same step.
"""

import asyncio
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.gates.gangs import Gangs
from cardwise.controller.gates.holder import Holder, Refusal
from cardwise.controller.gates.pinner import Pinner
from cardwise.controller.gates.queue import Group, Queue, Rank
from cardwise.controller.gates.surroundings import Surroundings, gang_kind
from cardwise.controller.gates.told import Told
from cardwise.controller.gates.waiting import Waiting, read
from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling.teller import Teller
from cardwise.gangs import Gang, Key, gang_of
from cardwise.ledger import Ledger, Stage
from cardwise.model import Booking, PodRef
from cardwise.names import EventReason
from cardwise.noderules import NodeBook
from cardwise.settings import Settings
from cardwise.wire import pods

_OFF_DUTY_SECONDS = 0.5
"""Between two looks whether this replica may act, while it may not."""
_GANG_SECONDS = 5.0
"""How long nobody else is decided while a gang's pins are under way: the room of one that has to be
read again must not go to another, and no more of the gang may join before it has begun for good."""

_OWNERS_TO_MEND = (
    EventReason.NEEDS_EXTENDER_DOOR,
    EventReason.VOLUME_NOT_READY,
    EventReason.GANG_INCOMPLETE,
)

Json = dict[str, Any]


class Dispatcher:
    """Takes Pods from the watch to their pins."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        book: NodeBook,
        surroundings: Surroundings,
        holder: Holder,
        gangs: Gangs,
        teller: Teller,
        duty: Duty,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._book = book
        self._surroundings = surroundings
        self._holder = holder
        self._gangs = gangs
        self._duty = duty
        self._settings = settings
        self._clock = clock
        self._queue = Queue()
        names = settings.events.nameTenants
        self.told = Told(ledger, self._queue, teller, clock, name_tenants=names)
        self._due = asyncio.Event()
        self._to_open: dict[str, tuple[PodRef, str]] = {}
        """By UID: Pods that wait for nothing, and their resourceVersions."""
        self._barrier: tuple[Rank, PodRef] | None = None
        """In strict order: nobody behind this place, and the Pod there, is decided before room
        grows."""
        self._gang_pins: dict[str, float] = {}
        """By UID: until when nobody else is decided for this Pod's sake (monotonic seconds)."""
        self._timer: asyncio.TimerHandle | None = None
        self.pinner: Pinner
        """Set by whoever puts the two together."""

    # What is seen ---------------------------------------------------------------------------------

    def waits(self, pod: Json) -> None:
        """A Pod is not placed."""
        uid = pods.pod_ref(pod).uid
        if not pods.waits_at_gate(pod):
            self._drop(uid)
            return
        waiting = read(pod, self._settings)
        if isinstance(waiting, Waiting):
            known = self._queue.get(uid)
            if not self.pinner.is_put_off(waiting) and (
                known is None or known.version != waiting.version
            ):
                self.returned(waiting)
            return
        self._drop(uid)
        if waiting is None:
            # It asks for no card, and need not wait for any.
            self._to_open[uid] = pods.pod_ref(pod), pods.resource_version(pod)
            self._due.set()
        else:
            self.told.invalid(waiting)

    def is_given(self, uid: str) -> bool:
        """Whether a Pod has its cards, or its pin is under way."""
        entry = self._ledger.entry(uid)
        booked = entry is not None and entry.stage in (Stage.BINDING, Stage.BOOKED)
        return booked or self.pinner.is_under_way(uid)

    def placed(self, pod: Json) -> None:
        """A Pod is placed, by whomever."""
        uid = pods.pod_ref(pod).uid
        self._drop(uid)
        if (gang := gang_of(pod)) is not None and self._gangs.placed(gang, uid):
            self._regroup(gang.key)
        self.look()

    def gone(self, uid: str) -> None:
        """A Pod ended."""
        self._drop(uid)
        self.unplaced(uid)
        self.look()

    def unplaced(self, uid: str) -> None:
        """A Pod's pin came to nothing: it takes no room, and its gang has not begun by it."""
        self._book.release(uid)
        if (ended := self._gangs.gone(uid)) is not None:
            self._regroup(ended)

    def returned(self, waiting: Waiting) -> None:
        """A Pod waits, or waits again."""
        self.unplaced(waiting.pod.uid)
        group = self._put(waiting)
        if waiting.gang is not None and not group.begun:
            self._queue.open(group)  # it may be complete now
        if group.closed:
            self.told.tell(waiting, group)
        self._due.set()
        self.look()

    def look(self) -> None:
        """Look whether nodes have more room than before."""
        if self._book.grew:
            self.grew()

    def grew(self) -> None:
        """Room grew somewhere: everybody is asked again."""
        self._book.grew = False
        self._barrier = None
        self._queue.reopen()
        self._due.set()

    def pin_ended(self, uid: str) -> None:
        """A pin came to its end, whatever that was."""
        self._gang_pins.pop(uid, None)
        self._due.set()

    def size_said(self, key: Key, size: int) -> None:
        """The PodGroup of a gang says its size."""
        self._gangs.sizes[key] = size
        self._queue.open_kind(gang_kind(key))
        self._due.set()

    def has_waiting(self, key: Key) -> bool:
        """Whether a Pod of a gang waits."""
        return self._queue.has(gang_kind(key))

    # What is done ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self._decide_all()

    async def _decide_all(self) -> None:
        """Ask for whoever is next, until nobody is left that could get another answer."""
        while (group := self._queue.first()) is not None or self._to_open:
            if self._duty.refusal():
                self._look_again(_OFF_DUTY_SECONDS)
                return
            if group is None or self._to_open:
                self._open_all()
                continue
            if self.pinner.is_full or self._is_kept_back(group):
                return  # a pin that ends sets it going again, or room that grows
            if not self._place(group) and self._settings.gates.strictOrder:
                self._keep_back(group)
            await asyncio.sleep(0)  # the pin goes out, and others have their turn

    def _keep_back(self, group: Group) -> None:
        """In strict order whoever is behind waits, but for what its owner has to mend."""
        if group.reason not in _OWNERS_TO_MEND:
            self._barrier = group.rank, group.first.pod

    def _open_all(self) -> None:
        for pod, version in self._to_open.values():
            self.pinner.open(pod, version)
        self._to_open.clear()

    def _is_kept_back(self, group: Group) -> bool:
        """Whether others must be served, or be settled, before this group."""
        if self._barrier is not None and group.rank > self._barrier[0]:
            self.told.kept_back(*self._barrier)
            return True
        if self._gang_pins:
            wait = max(self._gang_pins.values()) - self._clock.monotonic()
            if wait > 0:
                self._look_again(wait)
                return True
        return False

    def _look_again(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()  # whatever it was for is looked at now
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due.set)

    def _place(self, group: Group) -> bool:
        """Decide for a group's next Pod, or for all of a gang; False when it has to wait."""
        first = group.first
        if self._surroundings.kind(first, begun=group.begun) != group.kind:
            # Others came or went that want no such Pod near them, or its volumes changed.
            for waiting in list(group):
                self._put(waiting)
            return True
        if first.gang is not None and not group.begun:
            return self._place_gang(group, first.gang)
        booking = self._holder.hold(first)
        if isinstance(booking, Refusal):
            self._close(group, booking)
            return False
        self._pin(first, booking)
        return True

    def _place_gang(self, group: Group, gang: Gang) -> bool:
        """Decide for a gang that has not begun: all its Pods, or none."""
        held = self._holder.hold_gang(gang, list(group), lambda why: self._close(group, why))
        until = self._clock.monotonic() + _GANG_SECONDS
        for waiting, booking in held:
            self._gang_pins[waiting.pod.uid] = until
            self._pin(waiting, booking)
        return bool(held)

    def _pin(self, waiting: Waiting, booking: Booking) -> None:
        uid = waiting.pod.uid
        begins = waiting.gang is not None and self._gangs.placed(waiting.gang, uid)
        self._leave(uid)
        if begins and waiting.gang is not None:
            self._regroup(waiting.gang.key)
        self.pinner.begin(waiting, booking)

    def _put(self, waiting: Waiting) -> Group:
        begun = waiting.gang is not None and self._gangs.is_begun(waiting.gang.key)
        return self._queue.put(waiting, self._surroundings.kind(waiting, begun=begun), begun=begun)

    def _regroup(self, key: Key) -> None:
        """A gang has begun, so that its rest joins one by one; or it is as if it never had."""
        for group in list(self._queue):
            gang = group.first.gang if len(group) else None
            if gang is not None and gang.key == key:
                for waiting in list(group):
                    self._put(waiting)
        self._due.set()

    def _close(self, group: Group, refusal: Refusal) -> None:
        """A group has to wait."""
        group.closed = True
        self.told.refused(group, refusal)

    def _drop(self, uid: str) -> None:
        """A Pod does not wait any more, for whatever reason."""
        self._leave(uid)
        self.pinner.forget(uid)

    def _leave(self, uid: str) -> None:
        """A Pod is not in the queue any more."""
        self.told.forget(uid)
        self._to_open.pop(uid, None)
        waiting = self._queue.drop(uid)
        if waiting is None:
            return
        if waiting.gang is not None and not self.has_waiting(waiting.gang.key):
            self._gangs.forget_size(waiting.gang.key)
        if self._barrier is not None:
            self.grew()  # it may have been the one that kept others back
