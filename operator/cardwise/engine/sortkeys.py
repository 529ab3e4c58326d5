"""Rank cards, and sets of cards, by the sort keys of a chain (policy.md sections 2 and 5).

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
