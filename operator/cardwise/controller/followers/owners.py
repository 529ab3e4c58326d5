"""Notice a second device plugin on a node of ours (docs/operations.md, "When something is off").

Both register ``nvidia.com/gpu``; kubelet believes who came last, hands its devices out, and our
Pods fail at their start, or get another's cards. Kubelet tells nobody whose devices it counts, but
how many it counts: a number that is not that of our slots is another's.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cardwise.controller.clock import Clock, rfc3339
from cardwise.controller.telling.notes import Notes
from cardwise.ledger import Ledger
from cardwise.ledger.nodes import NodeAccount
from cardwise.model import NO_USE, Condition
from cardwise.names import CONDITION_OWNER_CONFLICT, RESOURCE_COUNT, NodeEvent
from cardwise.wire.events import node_ref
from cardwise.wire.fields import at, text
from cardwise.wire.gpunodes import slots_offered
from cardwise.wire.nodestatus import advertised

_log = logging.getLogger(__name__)

_ROUND_SECONDS = 10.0
LASTING_SECONDS = 60.0
"""For which the numbers must differ: kubelet learns of a change after us, and sometimes before."""

Json = dict[str, Any]


@dataclass(slots=True)
class _Offer:
    """What a Node says of ``nvidia.com/gpu``."""

    count: int
    since: float | None = None
    """Monotonic seconds since when it does not fit its GPUNode; None: it does."""
    condition: Condition | None = None


class Owners:
    """A follower of the mirror."""

    def __init__(self, ledger: Ledger, clock: Clock, notes: Notes) -> None:
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._offers: dict[str, _Offer] = {}
        """By Node; only those that offer some."""

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """Pods are of no interest here."""

    def listed(self, uids: set[str], began: float) -> None:
        """Pods are of no interest here."""

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone."""
        name, count = text(at(node, "metadata", "name")), slots_offered(node)
        if deleted or not count or RESOURCE_COUNT in advertised(node):
            # What an agent of ours wrote is nobody else's.
            gone = self._offers.pop(name, None)
            if gone is not None and gone.condition is not None:
                self._ledger.touched.add(name)
        elif (known := self._offers.get(name)) is not None:
            known.count = count
        else:
            self._offers[name] = _Offer(count)

    def conditions(self, node: str) -> Sequence[Condition]:
        """What is to stand on its GPUNode."""
        offer = self._offers.get(node)
        return () if offer is None or offer.condition is None else (offer.condition,)

    async def run(self) -> None:
        """Compare now and then, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            for name, note in self.compare():
                await self._notes.tell(node_ref(name), NodeEvent.OWNER_CONFLICT, note)

    def compare(self) -> list[tuple[str, str]]:
        """Compare every node's numbers; which conflicts are new, and what to say of them."""
        news, now = [], self._clock.monotonic()
        for name, offer in self._offers.items():
            account = self._ledger.account(name)
            if account is None or not _is_ours(account) or _fits(account, offer.count):
                if offer.condition is not None:
                    _log.info("node %s: %s is ours alone again", name, RESOURCE_COUNT)
                    self._ledger.touched.add(name)
                offer.since = offer.condition = None
                continue
            offer.since = now if offer.since is None else offer.since
            if now - offer.since < LASTING_SECONDS:
                continue
            before, note = offer.condition, _sentence(offer.count, max(_advertised(account)))
            if before is not None and before.message == note:
                continue
            offer.condition = self._condition(note, before)
            self._ledger.touched.add(name)
            if before is None:
                _log.warning("node %s: %s", name, note)
                news.append((name, note))
        return news

    def _condition(self, note: str, before: Condition | None) -> Condition:
        return Condition(
            type=CONDITION_OWNER_CONFLICT,
            holds=True,
            reason="CountsDiffer",
            message=note,
            since=before.since if before is not None else rfc3339(self._clock.unix()),
        )


def _is_ours(account: NodeAccount) -> bool:
    """Whether our device plugin serves the node and its report holds: else nothing can be said."""
    reported = account.report is not None and not account.stale and not account.rebooted
    return reported and not account.by_hami


def _fits(account: NodeAccount, count: int) -> bool:
    """Whether a number may be ours; of a node that offers no slot no number is told of."""
    if count == sum(card.slots for card in account.cards()):
        return True  # asked first: of thousands of nodes it mostly is
    advertised = _advertised(account)
    return not advertised or count in advertised


def _advertised(account: NodeAccount) -> frozenset[int]:
    """The numbers that our device plugin, or our agent, may advertise.

    A device plugin's are all slots, of which kubelet counts those of healthy cards; what an agent
    writes for the door of gates is more where tenants have more than is offered.
    """
    cards, uses = account.cards(), account.uses()
    slots = {card.uuid: card.slots for card in cards}
    return frozenset(
        {
            sum(slots.values()),
            sum(card.slots for card in cards if card.healthy),
            sum(max(slots.get(u, 0), uses.get(u, NO_USE).slots) for u in slots.keys() | uses),
        }
    ) - {0}


def _sentence(allocatable: int, expected: int) -> str:
    return (
        f"allocatable {RESOURCE_COUNT} is {allocatable}, expected {expected}: another device plugin"
        " registers the same resource on this node; remove it there, e.g. by NVIDIA's node label"
        " nvidia.com/gpu.deploy.device-plugin=false"
    )
