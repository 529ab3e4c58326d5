"""Notice who is on a card past us: without an allocation, or with one of no such card or room.

A second device plugin or scheduler, or a Pod that admission never saw, may give cards away that the
ledger knows nothing of. Nothing here can help but saying so: on the Pod, in the log, as metrics.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.telling.teller import Teller
from cardwise.ledger import Ledger, Stage
from cardwise.model import Booking, CardState, NodeView, PodRef
from cardwise.names import ALLOCATED, EventReason
from cardwise.wire import pods
from cardwise.wire.phrases import beyond_size, given_text

_log = logging.getLogger(__name__)

Json = dict[str, Any]
_AGAIN_SECONDS = 60.0
_NAMED = 4
"""Cards that a sentence names."""
_AGENT_STARTS = "its agent lets no Pod start that does not fit"
_HAMI_STARTS = "HAMi's device plugin starts them all the same: delete one"


class Strangers:
    """A follower of the mirror."""

    def __init__(self, ledger: Ledger, teller: Teller, clock: Clock) -> None:
        """Make it.

        Args:
            ledger: which nodes have cards of ours, and what is booked of them.
            teller: tells the Pods.
            clock: for the age of what was seen.
        """
        self._ledger = ledger
        self._teller = teller
        self._clock = clock
        self._seen: dict[str, tuple[PodRef, str, float]] = {}
        """By UID: Pods that have cards but no allocation, their nodes, and when they were seen."""
        self._told: set[str] = set()
        self._astray: set[str] = set()
        """UIDs of Pods that were told that their node does not have a card of theirs."""
        self._overbooked: dict[tuple[str, str], tuple[float, str]] = {}
        """By node and UUID: each card that was told of, when, and what is given out of it."""

    @property
    def unmanaged(self) -> dict[str, int]:
        """How many Pods have cards past us, by node; nodes without a GPUNode are not ours."""
        counts: dict[str, int] = {}
        for _, node, _ in self._seen.values():
            if self._is_ours(node):
                counts[node] = counts.get(node, 0) + 1
        return counts

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone."""
        node = pods.bound_node(pod)
        if node is None:
            return
        has_allocation = pods.has_allocation(pod)
        if not has_allocation and not pods.asks_cards(pod):
            return
        ref = pods.pod_ref(pod)
        entry = self._ledger.entry(ref.uid)
        ended = deleted or pods.is_finished(pod) or self._ledger.has_ended(ref.uid)
        # A Pod that has lost its allocation keeps its cards: they are still counted.
        if ended or has_allocation or (entry is not None and entry.booking is not None):
            self._seen.pop(ref.uid, None)
            self._told.discard(ref.uid)
            if ended:
                self._astray.discard(ref.uid)
            elif entry is not None and entry.booking is not None and entry.booking.node == node:
                account = self._ledger.account(node)
                self._compare(ref, entry.booking, account.card_cores() if account else {})
        else:
            self._seen[ref.uid] = ref, node, self._clock.monotonic()
            self._tell(ref, node)
        self._look(node)

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """Nodes tell nothing of who is on their cards."""

    def listed(self, uids: set[str], began: float) -> None:
        """Who is not in a complete list has ended; and what no event told of is looked at."""
        for uid, (ref, node, seen) in list(self._seen.items()):
            if uid not in uids and seen < began:
                del self._seen[uid]
                self._told.discard(uid)
            else:
                self._tell(ref, node)
        self._astray &= {uid for uid in self._astray if self._ledger.entry(uid) is not None}
        for card in [card for card in self._overbooked if not self._is_ours(card[0])]:
            del self._overbooked[card]
        for name in self._ledger.gpunode_names():
            self._look(name)
            if (account := self._ledger.account(name)) is None:
                continue
            cards = account.card_cores()
            for pod, booking in account.bookings():
                entry = self._ledger.entry(pod.uid)
                if entry is not None and entry.stage is Stage.BOOKED:
                    self._compare(pod, booking, cards)

    def _is_ours(self, node: str) -> bool:
        account = self._ledger.account(node)
        return account is not None and account.report is not None

    def _tell(self, ref: PodRef, node: str) -> None:
        """Say once of a Pod that nobody counts what it uses."""
        if ref.uid in self._told or not self._is_ours(node):
            return
        self._told.add(ref.uid)
        note = (
            f"The Pod is on node {node} without an allocation of Cardwise: what it uses of a card"
            " there is not counted. It was not admitted by Cardwise, or bound by somebody else;"
            " create it anew"
        )
        _log.warning("Pod %s: %s", ref, note)
        self._teller.warn(ref, EventReason.UNMANAGED_POD, note)

    def _compare(self, ref: PodRef, booking: Booking, cards: Collection[str]) -> None:
        """Say once of a Pod that it was given a card that is none of its node's."""
        if not cards:
            return  # of a node that reports no card at all, its agent says why
        absent = [
            share.uuid
            for shares in booking.containers
            for share in shares
            if share.uuid not in cards
        ]
        if not absent:
            self._astray.discard(ref.uid)
        elif ref.uid not in self._astray:
            self._astray.add(ref.uid)
            named, has = _listed(sorted({*absent})), _listed(list(cards))
            note = (
                f"The Pod's allocation names {named}, and node {booking.node} reports no such card;"
                f" it has {has}. The card is gone, or somebody else wrote the annotation"
                f" {ALLOCATED}; delete the Pod, so that its owner makes it anew"
            )
            _log.warning("Pod %s: %s", ref, note)
            self._teller.warn(ref, EventReason.ALLOCATION_MISMATCH, note)

    def _look(self, node: str) -> None:
        """Say of a card that more of it is given out than there is, and how much.

        Once, and again when that changed, at most once a minute.
        """
        view, now = self._ledger.view(node), self._clock.monotonic()
        for uuid, card in zip(view.uuids, view.state.cards, strict=True):
            if not card.is_overbooked:
                self._overbooked.pop((node, uuid), None)
                continue
            known, given = self._overbooked.get((node, uuid)), given_text(card)
            if known is None or (known[1] != given and now - known[0] >= _AGAIN_SECONDS):
                self._overbooked[node, uuid] = now, given
                self._tell_overbooked(view, uuid, card)

    def _tell_overbooked(self, view: NodeView, uuid: str, card: CardState) -> None:
        account = self._ledger.account(view.name)
        by_hami = account is not None and account.by_hami
        starts = _HAMI_STARTS if by_hami else _AGENT_STARTS
        note = f"{view.name}: {beyond_size(uuid, card)}; {starts}"
        _log.warning("%s", note)
        tenants = [] if account is None else [
            (self._since(pod.uid), pod)
            for pod, booking in account.bookings()
            if any(share.uuid == uuid for shares in booking.containers for share in shares)
        ]  # fmt: skip
        _, latest = max(tenants, key=lambda item: (item[0], str(item[1])))
        self._teller.warn(latest, EventReason.CARD_OVERBOOKED, note)

    def _since(self, uid: str) -> float:
        entry = self._ledger.entry(uid)
        return 0.0 if entry is None else entry.changed


def _listed(uuids: Sequence[str]) -> str:
    return ", ".join(uuids[:_NAMED]) + (", …" if len(uuids) > _NAMED else "")
