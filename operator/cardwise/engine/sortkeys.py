"""Rank cards, and sets of cards, by the sort keys of a chain (docs/placement.md sections 2 and 5).

Smaller ranks come first, and the card index ends every rank, so that the order is total: the same
question always has the same answer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from cardwise.engine.candidates import Sight
from cardwise.names import PolicyName

Rank: TypeAlias = tuple[Any, ...]
_UNKNOWN_NUMA = 2**31
"""Sorts after every NUMA node that is known."""


def _fullest(sight: Sight) -> int:
    return -sight.score


def _emptiest(sight: Sight) -> int:
    return sight.score


def _numa(sight: Sight) -> int:
    numa = sight.card.numa
    return _UNKNOWN_NUMA if numa is None else numa


CARD_KEYS: dict[PolicyName, Callable[[Sight], int]] = {
    PolicyName.BINPACK: _fullest,
    PolicyName.SPREAD: _emptiest,
    PolicyName.NUMA: _numa,
}


def _set_fullest(cards: Sequence[Sight]) -> int:
    return -sum(sight.score for sight in cards)


def _set_emptiest(cards: Sequence[Sight]) -> int:
    return sum(sight.score for sight in cards)


def _set_numa(cards: Sequence[Sight]) -> tuple[int, ...]:
    return tuple(sorted(_numa(sight) for sight in cards))


SET_KEYS: dict[PolicyName, Callable[[Sequence[Sight]], int | tuple[int, ...]]] = {
    PolicyName.BINPACK: _set_fullest,
    PolicyName.SPREAD: _set_emptiest,
    PolicyName.NUMA: _set_numa,
}


def ranked(cards: Iterable[Sight], keys: Sequence[PolicyName]) -> list[Sight]:
    """Sort cards by the keys as written; the smaller index breaks what is left."""
    ranks = [CARD_KEYS[key] for key in keys]
    return sorted(cards, key=lambda sight: (*[rank(sight) for rank in ranks], sight.card.index))


def set_rank(cards: Sequence[Sight], keys: Sequence[PolicyName]) -> Rank:
    """The rank of a set: key by key, then the lexicographically smallest list of indexes."""
    indexes = tuple(sorted(sight.card.index for sight in cards))
    return (*[SET_KEYS[key](cards) for key in keys], indexes)


def set_worths(cards: Sequence[Sight], keys: Sequence[PolicyName], count: int) -> list[int]:
    """One number a card: of two sets of ``count``, the larger sum has the smaller ``set_rank``.

    All that ranks a set adds up over its cards. Scores do. Of two lists of NUMA nodes the smaller
    has more of the lowest node in which they differ, so a node is worth more than ``count`` cards
    on all later ones; an index likewise is worth more than all later ones together.
    """
    columns = [_worths(cards, key, count) for key in keys]
    columns.append(_places([sight.card.index for sight in cards], base=2))
    worths = [0] * len(cards)
    for column in columns:
        # A step of an earlier key outweighs all that this one can add.
        step = 1 + sum(sorted(column)[-count:])
        worths = [worth * step + value for worth, value in zip(worths, column, strict=True)]
    return worths


def _worths(cards: Sequence[Sight], key: PolicyName, count: int) -> list[int]:
    """What one key alone finds a card worth, from 0."""
    ranks = [CARD_KEYS[key](sight) for sight in cards]
    if key is PolicyName.NUMA:
        return _places(ranks, base=count + 1)
    last = max(ranks)
    return [last - rank for rank in ranks]


def _places(ranks: Sequence[int], base: int) -> list[int]:
    """A power of the base for each rank, the highest for the smallest rank."""
    powers = {rank: base**place for place, rank in enumerate(sorted(set(ranks), reverse=True))}
    return [powers[rank] for rank in ranks]
