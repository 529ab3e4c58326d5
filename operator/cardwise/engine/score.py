"""Scores of cards and nodes: integers in millionths (docs/placement.md section 4).

Integers, so that two cards that are equally full compare equal and the log shows exactly what was
compared. Each score is rounded half up once, from the exact value.
"""

from collections.abc import Iterable

from cardwise.model import CardState, Weights

_SCALE = 10 * 1_000_000


def card_score(
    card: CardState, weights: Weights, used_slots: int, used_memory_mib: int, used_cores: int
) -> int:
    """How full a card is, before the container that asks. A capacity of 0 contributes 0.

    Args:
        card: its capacities.
        weights: of the Pod.
        used_slots: by its tenants and the Pod's own earlier containers.
        used_memory_mib: likewise, in MiB.
        used_cores: likewise, in percent.
    """
    return _millionths(
        (weights.slot * used_slots, card.slots),
        (weights.core * used_cores, card.cores),
        (weights.memory * used_memory_mib, card.memory_mib),
    )


def node_score(cards: Iterable[CardState]) -> int:
    """How full a node is, over all its cards, before the Pod. Weights never touch it."""
    slots = cores = memory = used_slots = used_cores = used_memory = 0
    for card in cards:
        slots += card.slots
        cores += card.cores
        memory += card.memory_mib
        used_slots += card.used_slots
        used_cores += card.used_cores
        used_memory += card.used_memory_mib
    return _millionths((used_slots, slots), (used_cores, cores), (used_memory, memory))


def _millionths(*fractions: tuple[int, int]) -> int:
    """Ten times the sum of the fractions, in millionths, rounded half up; x/0 is left out."""
    over, under = 0, 1
    for numerator, denominator in fractions:
        if numerator and denominator > 0:
            over = over * denominator + numerator * under
            under *= denominator
    return (2 * _SCALE * over + under) // (2 * under)
