"""What a Pod uses of a card, container by container (docs/placement.md section 7).

One rule for a Pod being placed and for a Pod already bound: ordinary init containers run before the
regular ones, so their use and that of the regular ones do not add up; sidecars run beside all that
comes after them.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from cardwise.model import NO_USE, WHOLE_CORES, Booking, Card, CardUse, ContainerKind

K = TypeVar("K")


class Tally(Generic[K]):
    """The use of one Pod, card by card, while its containers are counted in annotation order.

    Cards are named by any key: a position while placing, a UUID while reading.
    """

    __slots__ = ("_peak", "_steady")

    def __init__(self) -> None:
        self._steady: dict[K, CardUse] = {}
        self._peak: dict[K, CardUse] = {}

    def seen(self, card: K) -> CardUse:
        """What the next container sees of the Pod's own: sidecars and regular ones so far.

        An ordinary init container, too: in annotation order, only sidecars come before it there.
        """
        return self._steady.get(card, NO_USE)

    def add(self, card: K, kind: ContainerKind, memory_mib: int, cores: int) -> None:
        """Count one container's part of one card."""
        before = self._steady.get(card, NO_USE)
        together = CardUse(before.slots + 1, before.memory_mib + memory_mib, before.cores + cores)
        if kind is ContainerKind.INIT:
            # One slot, whatever it runs beside: sidecars have slots of their own.
            alone = CardUse(1, together.memory_mib, together.cores)
            self._peak[card] = _larger(self._peak.get(card, NO_USE), alone)
        else:
            self._steady[card] = together

    def use(self, card: K) -> CardUse:
        """The Pod's use of the card for its whole life."""
        steady, peak = self._steady.get(card, NO_USE), self._peak.get(card)
        return steady if peak is None else _larger(peak, steady)

    def growth(self, card: K, memory_mib: int, cores: int) -> CardUse:
        """How much ``use`` would grow if the next container took this part (slots left out)."""
        seen, use = self.seen(card), self.use(card)
        return CardUse(
            0,
            max(0, seen.memory_mib + memory_mib - use.memory_mib),
            max(0, seen.cores + cores - use.cores),
        )

    def uses(self) -> dict[K, CardUse]:
        """The use of every card that the Pod has, those of init containers first."""
        return {card: self.use(card) for card in {**self._peak, **self._steady}}


def cores_taken(booked: int, card_cores: int) -> int:
    """Percent of a card that a booking takes: one of 100 is all that the card has (section 1)."""
    return card_cores if booked >= WHOLE_CORES else booked


def booking_uses(booking: Booking, card_cores: Mapping[str, int]) -> dict[str, CardUse]:
    """The use of each card of a booking, by UUID.

    Args:
        booking: what a Pod holds.
        card_cores: the cores of each known card; a card that is not there counts 100.
    """
    tally: Tally[str] = Tally()
    for kind, shares in zip(booking.kinds, booking.containers, strict=True):
        # A foreign text may name a card twice for one container: both parts, at the same time.
        parts: dict[str, CardUse] = {}
        for share in shares:
            part = parts.get(share.uuid, NO_USE)
            cores = cores_taken(share.cores, card_cores.get(share.uuid, WHOLE_CORES))
            parts[share.uuid] = CardUse(1, part.memory_mib + share.memory_mib, part.cores + cores)
        for uuid, part in parts.items():
            tally.add(uuid, kind, part.memory_mib, part.cores)
    return tally.uses()


def quota_use(booking: Booking, cards: Mapping[str, Card]) -> CardUse:
    """What a booking counts against its namespace's quota (docs/placement.md section 8).

    Cores as booked, whatever ``coreScaling`` made of the card's; an exclusive Pod's cards as whole
    ones. A card that is not reported counts as booked.
    """
    memory = cores = 0
    for uuid, use in booking_uses(booking, {}).items():
        card = cards.get(uuid) if booking.exclusive else None
        memory += card.memory_mib if card else use.memory_mib
        cores += card.cores if card else use.cores
    return CardUse(0, memory, cores)


def _larger(a: CardUse, b: CardUse) -> CardUse:
    """The larger of each number."""
    return CardUse(max(a.slots, b.slots), max(a.memory_mib, b.memory_mib), max(a.cores, b.cores))
