"""The life of every Pod in the ledger: who holds which card, and since when."""

from collections import OrderedDict
from collections.abc import Iterable

from cardwise.ledger.accounts import Accounts
from cardwise.ledger.pods import PodEntry, Repair, Sighting, Stage
from cardwise.model import Booking, PodRef, Request
from cardwise.names import WaitReason

HOLD_SECONDS = 15 * 60
"""A hold that kube-scheduler never came back for is given up after this long."""
_TOMBSTONES = 20_000
_UNDER_WAY = (Stage.HELD, Stage.BINDING)
"""Between /filter and the outcome of the Binding."""


class Ledger(Accounts):
    """All nodes, all Pods with cards, all quotas, as of the last event that was applied."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, PodEntry] = {}
        # UIDs that ended: a late event must not bring them back. Bounded; the periodic list mends
        # what an even later event might break.
        self._ended: OrderedDict[str, None] = OrderedDict()

    # A Pod's life, as /filter and /bind drive it --------------------------------------------------

    def entry(self, uid: str) -> PodEntry | None:
        """What is known of a Pod."""
        return self._pods.get(uid)

    def entries(self) -> Iterable[PodEntry]:
        """Every Pod that is known."""
        return self._pods.values()

    def wait(self, pod: PodRef, request: Request | None, reason: WaitReason, now: float) -> bool:
        """A Pod was refused; True when it did not wait for the same reason before."""
        entry = self._pods.get(pod.uid)
        if entry is None:
            if pod.uid in self._ended:
                return False
            self._pods[pod.uid] = PodEntry(pod, Stage.WAITING, now, request=request, reason=reason)
            return True
        if entry.stage is Stage.HELD:
            self.drop_hold(pod.uid, now)
        if entry.stage is not Stage.WAITING:
            return False
        news = entry.reason is not reason
        entry.request, entry.reason = request, reason
        return news

    def hold(self, request: Request, booking: Booking, now: float) -> None:
        """Hold cards for a Pod; a hold it had is given up."""
        entry = self._pods.get(request.pod.uid)
        if entry is None:
            entry = self._pods[request.pod.uid] = PodEntry(request.pod, Stage.HELD, now)
        elif entry.stage not in (Stage.WAITING, Stage.HELD):
            raise AssertionError(f"Pod {request.pod} is {entry.stage.value}: it can't be held")
        self._take(entry, booking, now)
        entry.stage, entry.request, entry.reason, entry.changed = Stage.HELD, request, None, now

    def drop_hold(self, uid: str, now: float) -> None:
        """Give up a hold: the Pod waits again."""
        entry = self._pods.get(uid)
        if entry is not None and entry.stage is Stage.HELD:
            self._free(entry)
            entry.stage, entry.changed = Stage.WAITING, now

    def expire_holds(self, now: float) -> list[PodRef]:
        """Give up holds that nobody will come back for: too old, or of a Pod that has ended.

        The latter is what a /filter leaves that was answered after the Pod's end was seen.
        """
        late = [
            entry
            for entry in self._pods.values()
            if entry.stage is Stage.HELD
            and (now - entry.changed > HOLD_SECONDS or entry.pod.uid in self._ended)
        ]
        for entry in late:
            self.drop_hold(entry.pod.uid, now)
        return [entry.pod for entry in late]

    def has_ended(self, uid: str) -> bool:
        """Whether the Pod's end was seen, not too long ago."""
        return uid in self._ended

    def begin_binding(self, uid: str, now: float) -> Booking:
        """The Binding of a held Pod is about to be sent."""
        entry = self._pods[uid]
        if entry.stage is not Stage.HELD or entry.booking is None:
            raise AssertionError(f"Pod {entry.pod} is {entry.stage.value}: it can't be bound")
        entry.stage, entry.changed = Stage.BINDING, now
        self._hand_over(entry.pod, entry.booking.node, done=False)
        return entry.booking

    def end_binding(self, uid: str, now: float, *, bound: bool) -> None:
        """The outcome of a Binding is known: the Pod has its cards, or waits again."""
        entry = self._pods[uid]
        if entry.stage is not Stage.BINDING:
            return
        entry.changed = now
        if entry.seen_gone:
            self._end(entry)
        elif bound or entry.seen_bound:
            entry.stage, entry.seen_bound, entry.seen_cardless = Stage.BOOKED, False, False
        else:
            self._free(entry)
            entry.stage = Stage.WAITING
            if entry.seen_cardless:
                del self._pods[uid]

    # A Pod's life, as the watch shows it ----------------------------------------------------------

    def see(self, sighting: Sighting, now: float) -> None:
        """Apply one event. Older than what is known of that UID: no effect."""
        uid = sighting.pod.uid
        entry = self._pods.get(uid)
        if uid in self._ended:
            return
        if entry is not None and (entry.seen_gone or sighting.version < entry.version):
            return
        if sighting.gone:
            self._see_gone(sighting, entry)
        elif sighting.node is not None:
            self._see_bound(sighting, sighting.node, entry, now)
        elif entry is not None:
            # Still unbound: it says nothing about cards. A booking may be newer than this event.
            entry.version = sighting.version

    def reconcile(self, listed: Iterable[Sighting], began: float, now: float) -> list[Repair]:
        """Compare with a complete, consistent list of Pods, and mend what differs.

        A line that shows a Pod bound is as good as an event, unless it is older than what is
        booked. A Pod that is not in the list has ended, unless it is held or being bound, or
        changed after the list began: the list may be older than that.

        Args:
            listed: every Pod of the cluster, finished ones may be left out.
            began: monotonic seconds when the list was asked for.
            now: monotonic seconds.
        """
        repairs: list[Repair] = []
        alive: set[str] = set()
        for sighting in listed:
            if sighting.gone:
                continue
            uid = sighting.pod.uid
            alive.add(uid)
            entry = self._pods.get(uid)
            if sighting.node is None or (entry is not None and _is_newer(entry, began)):
                continue
            differed = self._differs(sighting, sighting.node, entry)
            self.see(sighting, now)
            if differed and not self._differs(sighting, sighting.node, self._pods.get(uid)):
                repairs.append(Repair(sighting.pod, "its booking was not as on the Pod"))
        for entry in list(self._pods.values()):
            if entry.pod.uid in alive or entry.stage in _UNDER_WAY or entry.changed >= began:
                continue
            if entry.stage is Stage.BOOKED:
                repairs.append(Repair(entry.pod, "it was booked, but is no more"))
            self._end(entry)
        return repairs

    # Steps ----------------------------------------------------------------------------------------

    def _see_gone(self, sighting: Sighting, entry: PodEntry | None) -> None:
        if entry is None:
            self._entomb(sighting.pod.uid)
        elif entry.stage is Stage.BINDING:
            # Our own request is still out: its cards are freed when its outcome is known.
            entry.seen_gone = True
        else:
            self._end(entry)

    def _see_bound(self, sighting: Sighting, node: str, entry: PodEntry | None, now: float) -> None:
        booking, unreadable = sighting.booking, sighting.unreadable
        if booking is None and unreadable is None:
            if entry is not None:
                self._see_bound_without_cards(entry, node, sighting.version)
            return
        if entry is None:
            entry = self._pods[sighting.pod.uid] = PodEntry(sighting.pod, Stage.WAITING, now)
        entry.version = sighting.version
        if booking is not None:
            # At once, though a Binding of ours may still be out: a Pod is bound only once, so what
            # it shows is what it has, and the cards of any other Binding will not be its.
            self._reopen(entry.pod, node)
            self._take(entry, booking, now)
            self._hand_over(entry.pod, node, done=not sighting.handing)
        else:
            self._close(entry, node, unreadable or "")
        if entry.stage is Stage.BINDING:
            entry.seen_bound, entry.seen_cardless = True, False
        elif entry.stage is not Stage.BOOKED:
            entry.stage, entry.reason, entry.changed = Stage.BOOKED, None, now

    def _close(self, entry: PodEntry, node: str, why: str) -> None:
        """Close the node. Cards that the Pod was known to have there stay counted."""
        if entry.node != node:
            self._free(entry)
        self._account(node).mark_unreadable(entry.pod, why)
        self.touched.add(node)
        entry.node = node

    def _see_bound_without_cards(self, entry: PodEntry, node: str, version: int) -> None:
        """Bound, with no allocation: somebody else bound it, or took its allocation away.

        The node is readable again. Cards that were booked, or whose Binding is out, stay taken.
        """
        entry.version = version
        self._reopen(entry.pod, node)
        if entry.stage in (Stage.WAITING, Stage.HELD) or (
            entry.stage is Stage.BOOKED and entry.booking is None
        ):
            self._free(entry)
            del self._pods[entry.pod.uid]
        elif entry.stage is Stage.BINDING:
            if entry.booking is None:  # it was seen garbled on another node, and is no more
                self._free(entry)
                entry.seen_bound = False
            # Where it was seen with cards before, they were its: only its annotation was taken.
            entry.seen_cardless = not entry.seen_bound

    def _differs(self, sighting: Sighting, node: str, entry: PodEntry | None) -> bool:
        """Whether a Pod that a list shows bound is not in the ledger as the list has it."""
        account = self.account(node)
        if (sighting.unreadable is not None) != (
            account is not None and account.is_closed_by(sighting.pod.uid)
        ):
            return True
        if entry is None or entry.stage in (Stage.WAITING, Stage.HELD):
            return entry is not None or sighting.booking is not None
        return sighting.booking not in (None, entry.booking)

    def _end(self, entry: PodEntry) -> None:
        """The Pod is gone: free its cards, and never believe an older event of it again."""
        self._free(entry)
        del self._pods[entry.pod.uid]
        self._entomb(entry.pod.uid)

    def _entomb(self, uid: str) -> None:
        self._ended[uid] = None
        while len(self._ended) > _TOMBSTONES:
            self._ended.popitem(last=False)

    def _take(self, entry: PodEntry, booking: Booking, now: float) -> None:
        """Give an entry these cards, in place of what it had."""
        if entry.booking != booking:
            self._free(entry)
            self._charge(entry.pod, booking)
            entry.booking, entry.node, entry.changed = booking, booking.node, now

    def _free(self, entry: PodEntry) -> None:
        """Take the cards from an entry."""
        if entry.node is not None:
            self._discharge(entry.pod, entry.node)
        entry.booking = entry.node = None


def _is_newer(entry: PodEntry, began: float) -> bool:
    """Whether an entry may know better than a list that began then what cards its Pod has."""
    return entry.stage is Stage.BOOKED and entry.changed >= began
