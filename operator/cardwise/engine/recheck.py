"""Whether cards that were chosen a moment ago can still be given.

A hold is counted like a booking from the moment it is made, so nobody can take its room; but the
cards themselves may have turned sick, been closed or shrunk, or a Pod bound elsewhere may have
turned up on them.
"""

from cardwise.engine.usage import booking_uses
from cardwise.model import WHOLE_CORES, Booking, CardState, NodeView, Share


def still_fits(booking: Booking, view: NodeView) -> bool:
    """Check a hold again: health, cordon, room, locks, and whole cores on either side.

    Args:
        booking: the cards that are held.
        view: their node now, as if the hold were not there.
    """
    if view.problem is not None:
        return False
    cards = dict(zip(view.uuids, view.state.cards, strict=True))
    uses = booking_uses(booking, {uuid: card.cores for uuid, card in cards.items()})
    for uuid, use in uses.items():
        card = cards.get(uuid)
        if card is None or not card.healthy or card.cordoned or card.exclusive:
            return False
        if booking.exclusive and card.used_slots:
            return False
        if (
            card.used_slots + use.slots > card.slots
            or card.used_memory_mib + use.memory_mib > card.memory_mib
            or card.used_cores + use.cores > card.cores
        ):
            return False
    return not any(
        _is_barred(share, cards[share.uuid]) for shares in booking.containers for share in shares
    )


def _is_barred(share: Share, card: CardState) -> bool:
    """Whole cores beside a tenant, or none where others have all (checks 9 and 10)."""
    if share.cores >= WHOLE_CORES:
        return card.used_slots > 0
    return share.cores == 0 and card.used_cores >= card.cores
