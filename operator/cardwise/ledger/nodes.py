"""What one node offers, and what is used of it: the account from which its view is made.

Tenancy goes by card UUID and outlives the GPUNode: tenants stay counted while a card, or the whole
GPUNode, is away, re-indexed or re-created (docs/placement.md section 9).
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from cardwise.engine.score import node_score
from cardwise.engine.usage import booking_uses
from cardwise.ledger.states import States
from cardwise.ledger.tenancy import NOBODY, Tenancy, state_of
from cardwise.model import Booking, Card, CardState, CardUse, GPUNode, NodeState, NodeView, PodRef
from cardwise.names import Reason


class NodeAccount:
    """One node: its report, its closed cards, and its tenants by Pod UID."""

    def __init__(self, name: str, changed: Callable[[str], None] = lambda _: None) -> None:
        """Know nothing of a node.

        Args:
            name: the node's.
            changed: called with it whenever a decision may see a difference.
        """
        self.name = name
        self._changed = changed
        self.report: GPUNode | None = None
        self.stale = False
        self.report_seen = 0.0
        """When ``reported_at`` was last seen to change, in the caller's monotonic seconds."""
        self.offers_cards = False
        self.boot_id = ""
        """Of the Node as it was seen last: another one, and the machine was started again."""
        self.rebooted = False
        """It was, and its agent has not reported since."""
        self.rejects = ""
        """Why no Pod is sent there for a while; empty where they are."""
        self.cordoned: frozenset[str] = frozenset()
        """By HAMi's annotation on the Node."""
        self._bookings: dict[str, tuple[PodRef, Booking]] = {}
        self._uses: dict[str, dict[str, CardUse]] = {}
        self._tenancies: dict[str, Tenancy] = {}
        """By UUID, of each card that has a tenant; what the bookings add up to."""
        self._states: dict[str, tuple[Tenancy, CardState]] = {}
        """By UUID: a card's state, and the tenancy that it was made of."""
        self._unreadable: dict[str, tuple[PodRef, str]] = {}
        self._handing: set[str] = set()
        """UIDs of Pods that are being bound, or have not been handed their cards yet."""
        self.made: NodeView | None = None
        """The view, while it holds: what a decision over many nodes looks at first."""

    # Facts about the node -------------------------------------------------------------------------

    def set_report(self, report: GPUNode | None, now: float) -> bool:
        """Take a GPUNode, or its absence; True when placement may see a difference."""
        known, self.report = self.report, report
        beats = report is not None and (known is None or known.reported_at != report.reported_at)
        if beats:
            self.report_seen = now
        woke = (self.stale or self.rebooted) and (beats or report is None)
        if woke:
            self.stale = self.rebooted = False
        if _same_offer(known, report) and not woke:
            return False
        self._count_all()
        return True

    def set_node(self, *, offers_cards: bool, cordoned: frozenset[str], boot_id: str = "") -> bool:
        """Take what the Node object says; True when placement may see a difference."""
        restarted = bool(boot_id and self.boot_id and boot_id != self.boot_id)
        self.boot_id = boot_id or self.boot_id
        # Until the agent speaks again, kubelet would fail every Pod with cards for good.
        restarted = restarted and self.report is not None and not self.rebooted
        if restarted:
            self.rebooted = True
        if not restarted and (offers_cards, cordoned) == (self.offers_cards, self.cordoned):
            return False
        self.offers_cards, self.cordoned = offers_cards, cordoned
        self._spoil(cards=True)
        return True

    def set_stale(self) -> None:
        """The report is too old to be trusted."""
        self.stale = True
        self._spoil()

    def set_rejects(self, why: str) -> None:
        """Close the node because kubelet there rejects Pods; empty opens it."""
        self.rejects = why
        self._spoil()

    # Tenants --------------------------------------------------------------------------------------

    def book(self, pod: PodRef, booking: Booking) -> None:
        """Count a Pod's cards."""
        if pod.uid in self._bookings:
            self._tenancies = self._without((pod.uid,))
        self._count(pod, booking, self.card_cores())
        self._spoil()

    def release(self, uid: str) -> bool:
        """Stop counting a Pod's cards; True when it had some."""
        if uid not in self._bookings:
            return False
        self._tenancies = self._without((uid,))
        del self._bookings[uid], self._uses[uid]
        self._handing.discard(uid)
        self._spoil()
        return True

    def set_handing(self, uid: str, *, handing: bool) -> None:
        """Say whether a Pod with cards here has still to be handed them."""
        if (uid in self._handing) != handing:
            self._handing ^= {uid}
            if self.by_hami:
                self._spoil()

    def mark_unreadable(self, pod: PodRef, why: str) -> None:
        """A bound Pod's allocation can't be read: close the node until it is mended."""
        self._unreadable[pod.uid] = (pod, why)
        self._spoil()

    def clear_unreadable(self, uid: str) -> bool:
        """The Pod is readable or gone; True when it had closed the node."""
        if self._unreadable.pop(uid, None) is None:
            return False
        self._spoil()
        return True

    def is_closed_by(self, uid: str) -> bool:
        """Whether this Pod's allocation can't be read."""
        return uid in self._unreadable

    def unreadable(self, without: Collection[str] = ()) -> list[tuple[PodRef, str]]:
        """The Pods whose allocation can't be read, and why; in the order of their UIDs."""
        return [known for uid, known in sorted(self._unreadable.items()) if uid not in without]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the node any more."""
        return not (
            self.report
            or self.offers_cards
            or self.cordoned
            or self.rejects
            or self._bookings
            or self._unreadable
        )

    def bookings(self) -> Iterator[tuple[PodRef, Booking]]:
        """Every Pod with cards here."""
        return iter(self._bookings.values())

    def pod_uses(self) -> Iterator[tuple[PodRef, dict[str, CardUse]]]:
        """Every Pod with cards here, and what it uses of each, by UUID."""
        return ((pod, self._uses[uid]) for uid, (pod, _) in self._bookings.items())

    # What a decision sees -------------------------------------------------------------------------

    def view(self, states: States, *, without: Collection[str] = ()) -> NodeView:
        """The node as a decision sees it.

        Args:
            states: numbers the state.
            without: UIDs whose bookings are left out, as if those Pods were gone.
        """
        if without:
            return self._make_view(states, without)
        if self.made is None:
            self.made = self._make_view(states, ())
        return self.made

    def uses(self, without: Collection[str] = ()) -> dict[str, CardUse]:
        """What is used of each card, by UUID; of cards that are not reported, too."""
        return {
            uuid: CardUse(it.slots, it.memory_mib, it.cores)
            for uuid, it in self._without(without).items()
        }

    def tenants(self, without: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """``namespace/name`` of each card's tenants, by UUID, sorted."""
        return {uuid: it.names for uuid, it in self._without(without).items()}

    def card_cores(self) -> dict[str, int]:
        """The cores of each reported card."""
        return {card.uuid: card.cores for card in self.report.cards} if self.report else {}

    def cards(self) -> tuple[Card, ...]:
        """The cards as reported, sorted by index."""
        return self.report.cards if self.report else ()

    def _count_all(self) -> None:
        """Count every booking anew: what whole cores come to depends on the card."""
        cores = self.card_cores()
        self._tenancies = {}
        for pod, booking in list(self._bookings.values()):
            self._count(pod, booking, cores)
        self._spoil(cards=True)

    def _count(self, pod: PodRef, booking: Booking, cores: Mapping[str, int]) -> None:
        """Count a booking that is not counted yet."""
        uses = booking_uses(booking, cores)
        self._bookings[pod.uid], self._uses[pod.uid] = (pod, booking), uses
        name, known = str(pod), self._tenancies
        for uuid, use in uses.items():
            known[uuid] = known.get(uuid, NOBODY).joined(name, use, exclusive=booking.exclusive)

    def _without(self, uids: Collection[str]) -> dict[str, Tenancy]:
        """The tenancies as if these Pods were gone."""
        if not uids:
            return self._tenancies
        left = self._tenancies.copy()
        for uid in set(uids) & self._bookings.keys():
            pod, booking = self._bookings[uid]
            for uuid, use in self._uses[uid].items():
                left[uuid] = left[uuid].left(str(pod), use, exclusive=booking.exclusive)
                if not left[uuid].names:
                    del left[uuid]
        return left

    def _spoil(self, *, cards: bool = False) -> None:
        """The view holds no more; with ``cards`` the states of its cards neither."""
        self.made = None
        if cards:
            self._states.clear()
        self._changed(self.name)

    def _make_view(self, states: States, without: Collection[str]) -> NodeView:
        problem, detail = self._problem(without)
        if self.report is None:
            return NodeView(name=self.name, problem=problem, problem_detail=detail)
        tenancies, cards = self._without(without), self.report.cards
        on = [tenancies.get(card.uuid, NOBODY) for card in cards]
        state = NodeState(cards=tuple(map(self._state, cards, on)), links=self.report.links)
        return NodeView(
            name=self.name,
            problem=problem,
            problem_detail=detail,
            state=state,
            state_id=states.number(state),
            score=node_score(state.cards),
            uuids=tuple(card.uuid for card in cards),
            tenants=tuple(tenancy.names for tenancy in on),
            troubles=tuple(card.unhealthy_reason for card in cards),
        )

    def _state(self, card: Card, tenancy: Tenancy) -> CardState:
        """A card's state with these tenants: the same object while nothing of it changes."""
        made_of, state = self._states.get(card.uuid, (None, None))
        if state is None or made_of is not tenancy:
            cordoned = card.uuid in self.cordoned or (
                self.report is not None and card.uuid in self.report.cordoned
            )
            state = state_of(card, tenancy, cordoned=cordoned)
            self._states[card.uuid] = tenancy, state
        return state

    def _problem(self, without: Collection[str]) -> tuple[Reason | None, str]:
        """A node-level refusal that stands before any card is looked at, and what it means."""
        if self.report is None:
            if self.offers_cards:
                return Reason.NODE_NOT_REPORTED, "it offers nvidia.com/gpu, but has no GPUNode"
            return Reason.NODE_HAS_NO_CARDS, ""
        if self.stale:
            return Reason.NODE_NOT_REPORTED, "its GPUNode is stale: the agent stopped reporting"
        if self.rebooted:
            return Reason.NODE_NOT_REPORTED, "it was started again, and its agent not yet"
        return self._closed(without)

    def _closed(self, without: Collection[str]) -> tuple[Reason | None, str]:
        """Why a node whose agent reports takes no Pod all the same, and what it means."""
        if unreadable := self.unreadable(without):
            pod, why = unreadable[0]
            return Reason.NODE_UNREADABLE, f"Pod {pod}: {why}"
        if self.rejects:
            return Reason.NODE_REJECTS_PODS, self.rejects
        if self.by_hami and not self._handing <= set(without):
            return Reason.NODE_HANDING_OVER, "HAMi hands another Pod its cards, one at a time"
        return None, ""

    @property
    def by_hami(self) -> bool:
        """Whether HAMi's device plugin hands out its cards, to one Pod at a time."""
        return self.report is not None and self.report.by_hami


def _same_offer(a: GPUNode | None, b: GPUNode | None) -> bool:
    """Whether two reports offer the same, whenever they were written."""
    if a is None or b is None:
        return a is b
    return (a.cards, a.links, a.cordoned, a.by_hami) == (b.cards, b.links, b.cordoned, b.by_hami)
