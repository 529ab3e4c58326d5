"""Sets of cards ranked by the links inside them (policy.md sections 5 and 6).

The search over sets is exact. It stays small because cards that are linked alike to all others
("twins": the eight cards behind one NVSwitch, say) are interchangeable as far as links go. Sets are
searched by how many cards of each kind of twin they hold; inside a kind the sort keys say which.
What is left is cut by an upper bound on what the remaining picks can add.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cardwise.engine.candidates import Sight
from cardwise.engine.sortkeys import Rank, ranked, set_rank
from cardwise.model import Link
from cardwise.names import PolicyName

PATH_SCORE = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "BOARD": 60}
NVLINK_SCORE = 100
_FORBIDDEN = -1_000_000_000
"""Stands for a pair that may not be in a set: no sum of scores makes up for it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """How two cards are joined: HAMi's pair score, and whether an NVLink joins them."""

    score: int = 0
    joined: bool = False


_UNLISTED = Pair()


class Links:
    """The link table of a node, asked by card index."""

    __slots__ = ("_pairs",)

    def __init__(self, links: Iterable[Link]) -> None:
        self._pairs: dict[tuple[int, int], Pair] = {}
        for link in links:
            pair = Pair(
                PATH_SCORE.get(link.path, 0) + NVLINK_SCORE * link.nvlinks, link.nvlinks > 0
            )
            self._pairs[link.first, link.second] = pair
            self._pairs[link.second, link.first] = pair

    def pair(self, a: Sight, b: Sight) -> Pair:
        """The pair of two cards; one that is not listed scores 0 and has no NVLink."""
        return self._pairs.get((a.card.index, b.card.index), _UNLISTED)


def loneliest(eligible: Sequence[Sight], fitting: Sequence[Sight], links: Links) -> list[Sight]:
    """For one card asked: those whose links to the other fitting cards sum up lowest.

    Taking such a card leaves the well-joined groups whole for who needs several.
    """
    sums = [
        sum(links.pair(card, other).score for other in fitting if other is not card)
        for card in eligible
    ]
    least = min(sums, default=0)
    return [card for card, total in zip(eligible, sums, strict=True) if total == least]


def best_set(
    pools: Iterable[Sequence[Sight]],
    count: int,
    links: Links,
    keys: Sequence[PolicyName],
    *,
    joined: bool,
) -> list[Sight] | None:
    """The best set of ``count`` cards out of one of the pools, or None when there is none.

    Args:
        pools: a set lies in one pool (all fitting cards, or those of one NUMA node).
        count: cards asked, at least 2.
        links: how the cards are joined.
        keys: rank sets whose links are worth the same.
        joined: every pair of the set must be joined by NVLink or NVSwitch.
    """
    best: tuple[int, Rank] | None = None
    chosen: list[Sight] | None = None
    for pool in pools:
        if len(pool) < count:
            continue
        search = _Search(pool, count, links, keys, joined)
        for total, cards in search.best():
            rank = (-total, set_rank(cards, keys))
            if best is None or rank < best:
                best, chosen = rank, cards
    return chosen


class _Search:
    """Branch and bound over how many cards of each kind of twin a set holds."""

    def __init__(
        self,
        pool: Sequence[Sight],
        count: int,
        links: Links,
        keys: Sequence[PolicyName],
        joined: bool,
    ) -> None:
        self._count = count
        kinds = _twins(ranked(pool, keys), links)
        # Well-joined kinds first: a good set is found early, and the bound cuts more.
        kinds.sort(
            key=lambda kind: (
                -sum(links.pair(kind[0], other).score for other in pool if other is not kind[0]),
                kind[0].card.index,
            )
        )
        self._kinds = kinds

        def worth(pair: Pair) -> int:
            return pair.score if pair.joined or not joined else _FORBIDDEN

        self._inner = [
            worth(links.pair(kind[0], kind[1])) if len(kind) > 1 else 0 for kind in kinds
        ]
        self._outer = [[worth(links.pair(a[0], b[0])) for b in kinds] for a in kinds]
        self._later = [self._best_later(first) for first in range(len(kinds) + 1)]
        self._best = -1  # below every sum of scores, above every sum with a forbidden pair
        self._found: list[tuple[int, ...]] = []

    def best(self) -> list[tuple[int, list[Sight]]]:
        """All kinds of set that share the highest sum, each with its best-ranked cards."""
        self._descend(0, self._count, 0, [], [0] * len(self._kinds))
        return [
            (
                self._best,
                [
                    card
                    for kind, taken in zip(self._kinds, counts, strict=True)
                    for card in kind[:taken]
                ],
            )
            for counts in self._found
        ]

    def _descend(self, at: int, left: int, total: int, counts: list[int], gains: list[int]) -> None:
        """Choose how many cards of kind ``at``; ``gains`` is what one card of each kind adds."""
        if left == 0:
            if total > self._best:
                self._best, self._found = total, []
            if total == self._best:
                self._found.append((*counts, *[0] * (len(self._kinds) - len(counts))))
            return
        if at == len(self._kinds) or total + self._bound(at, left, gains) < self._best:
            return
        inner, outer = self._inner[at], self._outer[at]
        for taken in range(min(left, len(self._kinds[at])), -1, -1):
            added = taken * gains[at] + taken * (taken - 1) // 2 * inner
            grown = (
                [gain + taken * score for gain, score in zip(gains, outer, strict=True)]
                if taken
                else gains
            )
            self._descend(at + 1, left - taken, total + added, [*counts, taken], grown)

    def _bound(self, at: int, left: int, gains: list[int]) -> int:
        """No ``left`` cards of the kinds from ``at`` on can add more than this.

        A card adds its links to what is chosen, and half of its links to the other new cards: at
        most its ``left - 1`` best ones. Doubled, so that it stays an integer.
        """
        best: list[int] = []
        for kind, later in zip(range(at, len(self._kinds)), self._later[at], strict=True):
            value = 2 * gains[kind] + later[left - 1]
            best.extend([value] * min(left, len(self._kinds[kind])))
        best.sort(reverse=True)
        return sum(best[:left]) // 2

    def _best_later(self, first: int) -> list[list[int]]:
        """For each kind from ``first`` on: the sum of one card's n best links to cards there."""
        sums: list[list[int]] = []
        kinds = range(first, len(self._kinds))
        for kind in kinds:
            scores = [self._inner[kind]] * (len(self._kinds[kind]) - 1)
            for other in kinds:
                if other != kind:
                    scores += [self._outer[kind][other]] * len(self._kinds[other])
            scores.sort(reverse=True)
            running = [0]
            for score in scores[: self._count]:
                running.append(running[-1] + score)
            running += [running[-1]] * (self._count + 1 - len(running))
            sums.append(running)
        return sums


def _twins(pool: Sequence[Sight], links: Links) -> list[list[Sight]]:
    """Group cards that are linked alike to every other card of the pool, best-ranked first."""
    kinds: list[list[Sight]] = []
    for card in pool:
        for kind in kinds:
            if all(
                links.pair(card, other) == links.pair(kind[0], other)
                for other in pool
                if other is not card and other is not kind[0]
            ):
                kind.append(card)
                break
        else:
            kinds.append([card])
    return kinds
