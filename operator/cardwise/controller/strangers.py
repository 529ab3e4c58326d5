"""Notice who is on a card past us: without an allocation, or with one beyond the card's size.

A second device plugin or scheduler, or a Pod that admission never saw, may give cards away that the
ledger knows nothing of. Nothing here can help but saying so: on the Pod, in the log, as metrics.
"""

import logging
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.teller import Teller
from cardwise.ledger import Ledger
from cardwise.model import CardState, NodeView, PodRef
from cardwise.names import EventReason
from cardwise.wire import pods

_log = logging.getLogger(__name__)

Json = dict[str, Any]
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
        self._overbooked: set[tuple[str, str]] = set()
        """Node and UUID of each card that was told of."""

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
            self._forget(ref.uid)
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
                self._forget(uid)
            else:
                self._tell(ref, node)
        for name in self._ledger.gpunode_names():
            self._look(name)

    def _forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._told.discard(uid)

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

    def _look(self, node: str) -> None:
        """Say once of a card that more of it is given out than there is."""
        view = self._ledger.view(node)
        for uuid, card in zip(view.uuids, view.state.cards, strict=True):
            if not card.is_overbooked:
                self._overbooked.discard((node, uuid))
            elif (node, uuid) not in self._overbooked:
                self._overbooked.add((node, uuid))
                self._tell_overbooked(view, uuid, card)

    def _tell_overbooked(self, view: NodeView, uuid: str, card: CardState) -> None:
        account = self._ledger.account(view.name)
        by_hami = account is not None and account.by_hami
        note = (
            f"{view.name}: GPU {card.index} ({uuid}) is given out beyond its size:"
            f" {card.used_slots}/{card.slots} slots, {card.used_memory_mib}/{card.memory_mib} MiB,"
            f" {card.used_cores}/{card.cores} % cores. Somebody wrote allocations past Cardwise, or"
            f" the card offers less than it did; {_HAMI_STARTS if by_hami else _AGENT_STARTS}"
        )
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
