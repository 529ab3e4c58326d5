"""Sets of cards ranked by the links inside them (docs/placement.md sections 5 and 6).

The search over sets is exact. What a set is worth is one integer, the sum of what its cards and its
pairs are worth, and no two sets are worth the same. The search stays small for three reasons. Cards
that are linked alike to all others ("twins": those behind one NVSwitch, say) are interchangeable as
far as links go, so it asks how many cards of each kind of twin a set holds, and the sort keys say
which. An upper bound on what the remaining picks can add cuts most of the rest. And the last few
cards are not searched at all: what each of their subsets is worth is known beforehand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from cardwise.engine.candidates import Sight
from cardwise.engine.sortkeys import set_worths
from cardwise.model import Link
from cardwise.names import PolicyName

PATH_SCORE = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "BOARD": 60}
NVLINK_SCORE = 100
_TAIL = 8
"""Cards whose subsets are listed (256 of them): half of the 16 cards of the largest common node."""
_HALF = _TAIL // 2
"""A subset of them is named by its bits in two halves, whose links to other cards are summed up."""
_STEPS = 20_000
"""Steps of one search, half a second for 64 cards. 16 cards that are linked at random need up to
300, 24 need up to 9,000."""


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
    enough = [pool for pool in pools if len(pool) >= count]
    if not enough:
        return None
    everyone = [card for pool in enough for card in pool]
    worths = set_worths(everyone, keys, count)
    # One point of pair score outweighs all that the sort keys say of a set. Even, so that half of
    # it is an integer.
    point = 2 * (1 + sum(sorted(worths)[-count:]))
    own = dict(zip(map(id, everyone), worths, strict=True))
    best, chosen = -1, None
    for pool in enough:
        # The best-ranked card first: where links leave a choice, it goes before the others.
        cards = sorted(pool, key=lambda card: own[id(card)], reverse=True)
        table = _worth_of_pairs(cards, links, point, joined=joined)
        search = _Search([own[id(card)] for card in cards], table, count, best)
        if search.best > best:
            best, chosen = search.best, [cards[at] for at in search.found()]
    return chosen


def _worth_of_pairs(
    cards: Sequence[Sight], links: Links, point: int, *, joined: bool
) -> list[list[int]]:
    """What every two cards are worth together; a set with a forbidden pair is worth less than 0."""
    pairs = [[links.pair(card, other) for other in cards] for card in cards]
    forbidden = -point * (1 + sum(pair.score for row in pairs for pair in row))
    return [
        [point * pair.score if pair.joined or not joined else forbidden for pair in row]
        for row in pairs
    ]


class _Search:
    """Branch and bound over how many cards of each kind of twin a set holds.

    Cards are numbers here, the best-ranked first.
    """

    def __init__(self, own: list[int], pairs: list[list[int]], count: int, above: int) -> None:
        """Search for the set that is worth most, if that is more than ``above``.

        Args:
            own: what each card is worth by itself, falling.
            pairs: what every two cards are worth together, even numbers.
            count: cards in a set.
            above: what is known already.
        """
        self.best = above
        self._found: tuple[list[int], int] = ([], 0)
        # Well-joined kinds first: a good set is found early, and the bound cuts more.
        kinds = sorted(_twins(pairs), key=lambda kind: (-sum(pairs[kind[0]]), kind[0]))
        self._kinds = kinds
        self._pairs = pairs
        self._own = own
        head = len(kinds)
        while head and sum(map(len, kinds[head - 1 :])) <= _TAIL:
            head -= 1
        self._head = head
        self._tail = [card for kind in kinds[head:] for card in kind]
        self._tail_sets = _subsets(self._tail, own, pairs, count)
        self._rest = [[card for kind in kinds[at:] for card in kind] for at in range(head + 1)]
        self._inside = [self._worths_inside(kind) for kind in kinds[:head]]
        self._links = [
            [pairs[kind[0]][card] for card in self._rest[at + 1]]
            for at, kind in enumerate(kinds[:head])
        ]
        self._most: dict[tuple[int, int], list[int]] = {}
        self._steps = _STEPS
        self._descend(0, count, 0, [], [0] * len(own))

    def found(self) -> list[int]:
        """The cards of the best set."""
        counts, subset = self._found
        head = [card for kind, n in zip(self._kinds, counts, strict=False) for card in kind[:n]]
        return head + [card for bit, card in enumerate(self._tail) if subset >> bit & 1]

    def _descend(self, at: int, left: int, total: int, counts: list[int], gains: list[int]) -> None:
        """Choose how many cards of kind ``at``.

        Args:
            at: the kind.
            left: cards still to be chosen.
            total: what the chosen ones are worth.
            counts: how many cards of each earlier kind were chosen.
            gains: what the links to the chosen ones add to each card from this kind on.
        """
        self._steps -= 1
        if self._steps < 0:
            return
        if at == self._head:
            self._finish(left, total, counts, gains)
            return
        if total + self._bound(at, left, gains) <= self.best:
            return
        inside, links = self._inside[at], self._links[at]
        gain, gains = gains[0], gains[len(inside) - 1 :]
        for taken in range(min(left, len(inside) - 1), 0, -1):
            grown = [known + taken * link for known, link in zip(gains, links, strict=True)]
            added = taken * gain + inside[taken]
            self._descend(at + 1, left - taken, total + added, [*counts, taken], grown)
        self._descend(at + 1, left, total, [*counts, 0], gains)

    def _worths_inside(self, kind: list[int]) -> list[int]:
        """What the first n cards of a kind are worth, for every n from 0."""
        inner = self._pairs[kind[0]][kind[-1]]
        own = accumulate((self._own[card] for card in kind), initial=0)
        return [worth + n * (n - 1) // 2 * inner for n, worth in enumerate(own)]

    def _finish(self, left: int, total: int, counts: list[int], gains: list[int]) -> None:
        """Complete a set by the best subset of the tail."""
        most = total + _largest(gains, left)
        sets = self._tail_sets[left]
        if not sets or most + sets[0][0] <= self.best:
            return
        low, high = _sums(total, gains[:_HALF]), _sums(0, gains[_HALF:])
        for inner, a, b in sets:
            worth = inner + low[a] + high[b]
            if worth > self.best:
                self.best, self._found = worth, (counts, a | b << _HALF)
            elif most + inner <= self.best:
                return

    def _bound(self, at: int, left: int, gains: list[int]) -> int:
        """No ``left`` cards of the kinds from ``at`` on can add more than this."""
        most = self._most.get((at, left))
        if most is None:
            most = self._most[at, left] = [self._most_of(at, left, card) for card in self._rest[at]]
        return _largest(map(add, gains, most), left)

    def _most_of(self, at: int, left: int, card: int) -> int:
        """What a card of the kinds from ``at`` on adds at most, beside its links to chosen ones.

        Its own worth, and half of its links to the other new cards: at most its best ones. The
        other half is theirs.
        """
        row = self._pairs[card]
        links = [row[other] for other in self._rest[at] if other != card]
        return self._own[card] + _largest(links, left - 1) // 2


def _largest(values: Iterable[int], count: int) -> int:
    """The sum of the ``count`` largest values."""
    return sum(sorted(values, reverse=True)[: max(0, count)])


def _sums(base: int, values: list[int]) -> list[int]:
    """``base`` and the sum of every subset of some values, by the subset's bits."""
    sums = [base]
    for value in values:
        sums += [known + value for known in sums]
    return sums


def _subsets(
    cards: list[int], own: list[int], pairs: list[list[int]], count: int
) -> list[list[tuple[int, int, int]]]:
    """Every subset of some cards by size up to ``count``: its worth, and its bits by half.

    Of a size, those that are worth most are first.
    """
    sums, sizes = [0], [0]
    for at, card in enumerate(cards):
        added = [own[card]]
        for other in cards[:at]:
            pair = pairs[card][other]
            added += [known + pair for known in added]
        sums += [known + more for known, more in zip(sums, added, strict=True)]
        sizes += [size + 1 for size in sizes]
    by_size: list[list[tuple[int, int, int]]] = [[] for _ in range(max(count, len(cards)) + 1)]
    for subset, (size, total) in enumerate(zip(sizes, sums, strict=True)):
        by_size[size].append((total, subset & (1 << _HALF) - 1, subset >> _HALF))
    for sets in by_size:
        sets.sort(reverse=True)
    return by_size


def _twins(pairs: list[list[int]]) -> list[list[int]]:
    """Group cards that are linked alike to every other card."""
    kinds: list[list[int]] = []
    for card, row in enumerate(pairs):
        for kind in kinds:
            first = pairs[kind[0]]
            if all(
                row[other] == first[other] or other in (card, kind[0]) for other in range(len(row))
            ):
                kind.append(card)
                break
        else:
            kinds.append([card])
    return kinds
