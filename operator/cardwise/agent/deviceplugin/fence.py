"""The fence: a booking that over-books a card is not started, whatever its cause.

The node's bookings are replayed in one order: those that have started, then by the time of binding,
then by UID. Every agent and every try gives the same answer for the same Pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cardwise.engine.usage import booking_uses
from cardwise.model import NO_USE, Booking, Card, CardUse, PodRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A Pod of this node with its cards."""

    pod: PodRef
    booking: Booking
    started: bool
    """Whether a container of it was started, as far as anybody knows."""
    bound_at: int
    """Unix seconds."""


@dataclass(slots=True)
class _Load:
    """What is taken of one card, and by whom."""

    use: CardUse = NO_USE
    exclusive: bool = False
    tenants: tuple[PodRef, ...] = ()


def overbooked(uid: str, tenants: Iterable[Tenant], cards: Sequence[Card]) -> str | None:
    """Why this Pod must not start: a sentence about the first card that it over-books.

    Args:
        uid: one of the tenants.
        tenants: every unfinished Pod of the node that has cards.
        cards: as the node offers them.

    Returns:
        None where each of its cards has room for it. A card that the node does not have is not
        judged.
    """
    known = {card.uuid: card for card in cards}
    sizes = {card.uuid: card.cores for card in cards}
    loads: dict[str, _Load] = {}
    for tenant in sorted(tenants, key=_turn):
        uses = booking_uses(tenant.booking, sizes)
        why = _refusal(tenant, uses, loads, known)
        if tenant.pod.uid == uid:
            return why
        # What does not fit and has not started never will, so it takes no room.
        if tenant.started or why is None:
            for uuid, use in uses.items():
                load = loads.setdefault(uuid, _Load())
                load.use = _sum(load.use, use)
                load.exclusive |= tenant.booking.exclusive
                load.tenants = (*load.tenants, tenant.pod)
    raise ValueError(f"{uid} is none of the tenants")


def _turn(tenant: Tenant) -> tuple[bool, int, str]:
    return (not tenant.started, tenant.bound_at, tenant.pod.uid)


def _refusal(
    tenant: Tenant,
    uses: Mapping[str, CardUse],
    loads: Mapping[str, _Load],
    cards: Mapping[str, Card],
) -> str | None:
    for uuid, use in uses.items():
        card, load = cards.get(uuid), loads.get(uuid, _Load())
        if card is None:
            continue
        what = _excess(card, load.use, use)
        if load.tenants and (load.exclusive or tenant.booking.exclusive):
            what = "the card is held exclusively"
        if what:
            before = ", ".join(map(str, load.tenants)) or "nobody"
            return f"GPU {card.index} ({uuid}): {what}; before it: {before}"
    return None


def _excess(card: Card, taken: CardUse, use: CardUse) -> str:
    """Which of the card's amounts the use goes beyond; empty: none."""
    for unit, has, before, more in (
        ("slots", card.slots, taken.slots, use.slots),
        ("MiB", card.memory_mib, taken.memory_mib, use.memory_mib),
        ("cores", card.cores, taken.cores, use.cores),
    ):
        # What asks nothing of an amount takes nothing too much of it.
        if more and before + more > has:
            return f"{before} + {more} {unit} are booked of {has}"
    return ""


def _sum(a: CardUse, b: CardUse) -> CardUse:
    return CardUse(a.slots + b.slots, a.memory_mib + b.memory_mib, a.cores + b.cores)
