"""Whether a node has more room than before: what lets those who wait be asked again."""

from cardwise.model import CardState, NodeView


def room_grew(before: NodeView, after: NodeView) -> bool:
    """Whether a Pod that did not fit on a node may fit there now; no for a mere heartbeat.

    What closes cards, or makes them smaller, wakes nobody. Whatever else changed may let one in: a
    card of another model, say, or a new link.
    """
    if after.problem is not None:
        return False
    known: dict[str, CardState] = {}
    if before.problem is None and before.state.links == after.state.links:
        known = dict(zip(before.uuids, before.state.cards, strict=True))
    return any(
        _offers_more(known.get(uuid), card)
        for uuid, card in zip(after.uuids, after.state.cards, strict=True)
    )


def _offers_more(before: CardState | None, after: CardState) -> bool:
    if not after.healthy or after.cordoned:
        return False
    if before is None or not before.healthy or before.cordoned:
        return True
    return (
        _kind(before) != _kind(after)
        or after.memory_mib > before.memory_mib
        or after.cores > before.cores
        or after.slots > before.slots
    )


def _kind(card: CardState) -> tuple[object, ...]:
    """What some requests ask of a card, and others forbid."""
    return card.index, card.model, card.numa, card.mode
