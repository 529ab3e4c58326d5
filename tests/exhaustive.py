"""The best set of cards by trying all of them: slow, and plainly docs/placement.md section 5."""

from collections.abc import Sequence
from itertools import combinations

from cardwise.engine.candidates import Sight
from cardwise.engine.sortkeys import set_rank
from cardwise.engine.topology import Links
from cardwise.names import PolicyName


def best_of_all_sets(
    cards: Sequence[Sight],
    count: int,
    links: Links,
    keys: tuple[PolicyName, ...],
    *,
    joined: bool,
) -> list[int] | None:
    """The indexes of the best set, sorted; None when there is none."""

    def total(chosen: Sequence[Sight]) -> int:
        return sum(links.pair(a, b).score for a, b in combinations(chosen, 2))

    sets = [
        chosen
        for chosen in combinations(cards, count)
        if not joined or all(links.pair(a, b).joined for a, b in combinations(chosen, 2))
    ]
    best = min(sets, key=lambda chosen: (-total(chosen), set_rank(chosen, keys)), default=None)
    return indexes(best)


def indexes(chosen: Sequence[Sight] | None) -> list[int] | None:
    """The indexes of a set, sorted, so that two sets can be compared."""
    return None if chosen is None else sorted(one.card.index for one in chosen)
