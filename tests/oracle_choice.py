"""How the oracle chooses k of the cards that passed: sections 2, 5 and 6 of docs/placement.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from oracle_cards import Case, card_score
from oracle_reading import PATHS, Card, Json, Node, sort_keys

# Ranking cards and sets of cards (sections 2 and 5)


@dataclass(frozen=True)
class Ranking:
    """The sort keys in written order, and the score of each card by UUID."""

    keys: tuple[str, ...]
    scores: Mapping[str, int]


def ranking_of(case: Case) -> Ranking:
    """How this container ranks the cards of this node."""
    scores = {card.uuid: card_score(case, card) for card in case.node.cards}
    return Ranking(sort_keys(case.request.chain), scores)


def numa_order(card: Card) -> tuple[int, int]:
    """Section 2.3: the lowest first, unknown after all known."""
    return (1, 0) if card.numa is None else (0, card.numa)


def key_value(key: str, ranking: Ranking, cards: Sequence[Card]) -> Any:
    """Section 5: a set under one key, the smaller first. A card is a set of one."""
    score = sum(ranking.scores[card.uuid] for card in cards)
    values = {"binpack": -score, "spread": score, "numa": sorted(map(numa_order, cards))}
    return values[key]


def rank(ranking: Ranking, cards: Sequence[Card]) -> list[Any]:
    """Sections 2.3, 2.4 and 5: key by key as written, then the smallest list of indexes."""
    by_keys = [key_value(key, ranking, cards) for key in ranking.keys]
    return [*by_keys, sorted(card.index for card in cards)]


def ranked(ranking: Ranking, cards: Iterable[Card]) -> list[Card]:
    """Cards, the best first."""
    return sorted(cards, key=lambda card: rank(ranking, [card]))


# Pairs of cards (section 5)


def link_of(node: Node, one: Card, other: Card) -> Json:
    """What is reported of a pair; nothing where it is not listed."""
    return (node.links or {}).get(frozenset((one.index, other.index)), {})


def nvlinks(node: Node, one: Card, other: Card) -> int:
    """How many NVLinks join a pair."""
    return int(link_of(node, one, other).get("nvlinks") or 0)


def pair_score(node: Node, one: Card, other: Card) -> int:
    """The path's score, plus 100 per NVLink."""
    path = link_of(node, one, other).get("path") or ""
    return PATHS.get(path, 0) + 100 * nvlinks(node, one, other)


def pair_sum(node: Node, cards: Iterable[Card]) -> int:
    """Over all pairs of a set."""
    return sum(pair_score(node, one, other) for one, other in combinations(cards, 2))


def all_joined(node: Node, cards: Iterable[Card]) -> bool:
    """Whether NVLink or NVSwitch joins every pair of a set."""
    return all(nvlinks(node, one, other) > 0 for one, other in combinations(cards, 2))


# Choosing (sections 2, 5 and 6)


def numa_groups(passed: Iterable[Card]) -> list[list[Card]]:
    """Section 6: the cards of each NUMA node; those whose node is unknown are out."""
    groups: dict[int, list[Card]] = {}
    for card in passed:
        if card.numa is not None:
            groups.setdefault(card.numa, []).append(card)
    return [groups[numa] for numa in sorted(groups)]


def topology_card(
    case: Case, ranking: Ranking, pool: Sequence[Card], passed: Sequence[Card]
) -> list[Card]:
    """Section 5, k = 1: of the cards with the lowest sum of pair scores, the best ranked."""
    sums = {
        card.uuid: sum(pair_score(case.node, card, other) for other in passed if other != card)
        for card in pool
    }
    lowest = [card for card in pool if sums[card.uuid] == min(sums.values())]
    return ranked(ranking, lowest)[:1]


def topology_set(
    case: Case, ranking: Ranking, pools: Iterable[Sequence[Card]]
) -> Sequence[Card] | None:
    """Section 5, k > 1: of all sets, the highest sum of pair scores, then the best ranked."""
    sets = [chosen for pool in pools for chosen in combinations(pool, case.container.count)]
    if case.request.topology_mode == "required":
        sets = [chosen for chosen in sets if all_joined(case.node, chosen)]
    if not sets:
        return None
    highest = max(pair_sum(case.node, chosen) for chosen in sets)
    closest = [chosen for chosen in sets if pair_sum(case.node, chosen) == highest]
    return min(closest, key=lambda chosen: rank(ranking, chosen))


def choose(case: Case, passed: Sequence[Card]) -> tuple[list[Card] | None, str | None]:
    """Checks 11 and 12: the cards in ranked order; or None and a word, if one is to be said."""
    k, ranking = case.container.count, ranking_of(case)
    if len(passed) < k:
        return None, None
    pools = [list(passed)]
    if case.request.numa_bind:
        pools = [group for group in numa_groups(passed) if len(group) >= k]
    if not pools:
        return None, "NumaNotFit"
    if "topology-aware" not in case.request.chain:
        best = [ranked(ranking, pool)[:k] for pool in pools]
        return min(best, key=lambda chosen: rank(ranking, chosen)), None
    if k == 1:
        pool = [card for group in pools for card in group]
        return topology_card(case, ranking, pool, passed), None
    chosen = topology_set(case, ranking, pools)
    return (ranked(ranking, chosen), None) if chosen else (None, "CardTopologyNotSatisfied")
