"""Sets of cards and the links inside them: docs/placement.md section 5."""

from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random

import pytest

from cardwise.engine.candidates import Sight
from cardwise.engine.topology import Links, best_set, loneliest
from exhaustive import best_of_all_sets, indexes
from states import LinkRow, card, link, policy, sight, signature

SPREAD = policy("spread,mutex").keys


def cards(count: int) -> list[Sight]:
    return [sight(card(index)) for index in range(count)]


def links(*rows: LinkRow) -> Links:
    return Links(link(*row) for row in rows)


@pytest.mark.parametrize(
    ("row", "want_score", "want_joined"),
    [
        pytest.param((0, 1, 0, "SYS"), 10, False, id="SYS: across sockets"),
        pytest.param((0, 1, 0, "NODE"), 20, False, id="NODE"),
        pytest.param((0, 1, 0, "PHB"), 30, False, id="PHB"),
        pytest.param((0, 1, 0, "PXB"), 40, False, id="PXB"),
        pytest.param((0, 1, 0, "PIX"), 50, False, id="PIX"),
        pytest.param((0, 1, 0, "BOARD"), 60, False, id="the same board"),
        pytest.param((0, 1, 1, "SYS"), 110, True, id="100 for an NVLink"),
        pytest.param((0, 1, 18, "NODE"), 1820, True, id="100 for each of 18"),
        pytest.param((0, 1, 4), 400, True, id="NVLinks, and a path that is not known"),
        pytest.param((0, 1, 0, "sys"), 0, False, id="a path that nobody knows scores nothing"),
        pytest.param((0, 2, 4), 0, False, id="a pair that is not listed"),
    ],
)
def test_pair(row: LinkRow, want_score: int, want_joined: bool) -> None:
    """Section 5: HAMi's pair score."""
    first, second = cards(2)

    for pair in (links(row).pair(first, second), links(row).pair(second, first)):
        assert (pair.score, pair.joined) == (want_score, want_joined)


@pytest.mark.parametrize(
    ("eligible", "fitting", "rows", "want"),
    [
        pytest.param(
            [0, 1, 2],
            [0, 1, 2],
            [(0, 1, 1), (0, 2, 2), (1, 2, 1, "PIX")],
            [1],
            id="the lowest sum of pair scores",
        ),
        pytest.param(
            [0, 1, 2],
            [0, 1, 2],
            [(0, 1, 1)],
            [2],
            id="a pair of cards stays whole for who needs two",
        ),
        pytest.param([0, 1], [0, 1], [(0, 1, 4)], [0, 1], id="equal sums all stay"),
        pytest.param([0, 1, 2], [0, 1, 2], [], [0, 1, 2], id="no pair is listed: all stay"),
        pytest.param(
            [0, 1],
            [0, 1, 2],
            [(0, 2, 1), (0, 1, 0, "SYS")],
            [1],
            id="links to fitting cards that are not eligible count",
        ),
        pytest.param(
            [0, 1], [0, 1], [(0, 2, 1)], [0, 1], id="links to cards that do not fit do not count"
        ),
        pytest.param([1], [0, 1], [(0, 1, 1)], [1], id="a single one stays, whatever its links"),
        pytest.param([], [], [], [], id="none"),
    ],
)
def test_loneliest(
    eligible: list[int], fitting: list[int], rows: list[LinkRow], want: list[int]
) -> None:
    """Section 5, k = 1: good groups stay whole."""
    seen = cards(3)

    kept = loneliest([seen[i] for i in eligible], [seen[i] for i in fitting], links(*rows))

    assert [one.card.index for one in kept] == want


def mesh(*groups: Sequence[int], nvlinks: int = 1) -> list[LinkRow]:
    """NVLinks between every two cards of a group."""
    return [(a, b, nvlinks) for group in groups for a, b in combinations(group, 2)]


def path_between_all(count: int, path: str) -> list[LinkRow]:
    return [(a, b, 0, path) for a, b in combinations(range(count), 2)]


@pytest.mark.parametrize(
    ("count", "rows", "joined", "want"),
    [
        pytest.param(
            2,
            [(0, 1, 1), (0, 2, 2), (1, 2, 1, "PIX")],
            False,
            {0, 2},
            id="the pair with the highest score",
        ),
        pytest.param(
            2, [(0, 1, 0, "BOARD"), (2, 3, 1)], False, {2, 3}, id="NVLink beats the board"
        ),
        pytest.param(2, [(2, 3, 0, "PIX")], False, {2, 3}, id="a path beats an unlisted pair"),
        pytest.param(2, [], False, {0, 1}, id="no pair is listed: the smallest indexes"),
        pytest.param(2, [], True, None, id="joined, and nothing is"),
        pytest.param(2, path_between_all(4, "BOARD"), True, None, id="a board is no NVLink"),
        pytest.param(2, [(0, 1, 0, "BOARD"), (2, 3, 1)], True, {2, 3}, id="joined: the only pair"),
        pytest.param(
            3, mesh([0, 1], [1, 2], [1, 3], [2, 3]), True, {1, 2, 3}, id="joined: the only triangle"
        ),
        pytest.param(
            3, [(0, 1, 4), (1, 2, 4), (2, 3, 4), (0, 3, 4)], True, None, id="a ring has no triangle"
        ),
        pytest.param(
            3,
            [(0, 1, 4), (1, 2, 4), (2, 3, 4), (0, 3, 4)],
            False,
            {0, 1, 2},
            id="not joined: a part of the ring will do",
        ),
        pytest.param(
            3,
            [(0, 1, 9), *mesh([1, 2, 3])],
            True,
            {1, 2, 3},
            id="joined: not the strongest pair if no third card joins both",
        ),
        pytest.param(
            3,
            [(0, 1, 3), *mesh([1, 2, 3], nvlinks=2)],
            False,
            {1, 2, 3},
            id="exact, not greedy: the best pair is not in the best set of three",
        ),
        pytest.param(4, mesh([0, 1, 2, 3]), True, {0, 1, 2, 3}, id="all cards"),
        pytest.param(4, mesh([0, 1, 2]), True, None, id="all cards, and one is not joined"),
        pytest.param(5, mesh([0, 1, 2, 3]), False, None, id="more cards than there are"),
        pytest.param(
            2,
            [*mesh([0, 1], [2, 3], nvlinks=2)],
            True,
            {0, 1},
            id="equal sums: the lexicographically smallest list of indexes",
        ),
    ],
)
def test_best_set_of_four_cards(
    count: int, rows: list[LinkRow], joined: bool, want: set[int] | None
) -> None:
    """Section 5, k > 1."""
    found = best_set([cards(4)], count, links(*rows), SPREAD, joined=joined)

    assert (found if found is None else {seen.card.index for seen in found}) == want


@pytest.mark.parametrize(
    ("chain", "want"),
    [
        pytest.param("mutex,spread", {2, 3}, id="spread: the lowest total score"),
        pytest.param("mutex,binpack", {4, 5}, id="binpack: the highest total score"),
        pytest.param("mutex,numa", {6, 7}, id="numa: the smaller list of NUMA nodes"),
        pytest.param("numa,binpack", {6, 7}, id="numa first"),
        pytest.param("binpack,numa", {4, 5}, id="binpack first"),
    ],
)
def test_equal_sums_are_told_apart_by_the_sort_keys(chain: str, want: set[int]) -> None:
    """Section 5: among equals a set is ranked as a card is."""
    node = [
        sight(card(0, tenants=2, numa=1)),
        sight(card(1, tenants=2, numa=1)),
        sight(card(2, tenants=0, numa=3)),
        sight(card(3, tenants=1, numa=3)),
        sight(card(4, tenants=5, numa=2)),
        sight(card(5, tenants=1, numa=2)),
        sight(card(6, tenants=2, numa=0)),
        sight(card(7, tenants=3, numa=4)),
    ]

    found = best_set(
        [node],
        2,
        links(*mesh([0, 1], [2, 3], [4, 5], [6, 7])),
        policy(chain).keys,
        joined=True,
    )

    assert found is not None
    assert {seen.card.index for seen in found} == want


def test_cards_linked_alike_are_chosen_by_the_sort_keys() -> None:
    """Section 5: behind one NVSwitch links say nothing, so the keys choose."""
    node = [sight(card(index, tenants=tenants)) for index, tenants in enumerate([3, 1, 2, 0])]
    switch = links(*mesh(range(4), nvlinks=18))

    emptiest = best_set([node], 2, switch, policy("mutex,spread").keys, joined=True)
    fullest = best_set([node], 2, switch, policy("mutex,binpack").keys, joined=True)

    assert emptiest is not None
    assert fullest is not None
    assert {seen.card.index for seen in emptiest} == {1, 3}
    assert {seen.card.index for seen in fullest} == {0, 2}


def test_a_set_lies_in_one_pool() -> None:
    """Section 6: with numa-bind, sets on one NUMA node."""
    seen = cards(4)
    strong = links((0, 2, 9), (0, 1, 1), (2, 3, 2))

    found = best_set([seen[:2], seen[2:]], 2, strong, SPREAD, joined=True)

    assert found is not None
    assert [one.card.index for one in found] == [2, 3]


def test_a_pool_that_is_too_small_is_passed_over() -> None:
    seen = cards(4)

    found = best_set([seen[:1], seen[1:]], 2, links(*mesh(range(4))), SPREAD, joined=True)

    assert found is not None
    assert {one.card.index for one in found} == {1, 2}


def test_equal_pools_go_by_rank_whatever_their_order() -> None:
    seen = cards(4)
    alike = links(*mesh([0, 1], [2, 3]))

    for pools in ([seen[:2], seen[2:]], [seen[2:], seen[:2]]):
        found = best_set(pools, 2, alike, SPREAD, joined=True)
        assert found is not None
        assert {one.card.index for one in found} == {0, 1}


def _ring(a: int, b: int) -> int:
    return min(b - a, 12 - b + a)


def _differing_bits(a: int, b: int) -> int:
    return (a ^ b).bit_count()


SYMMETRIC: dict[str, Callable[[int, int], int]] = {
    "a ring of neighbours": lambda a, b: int(_ring(a, b) == 1),
    "a ring, near is good": lambda a, b: 7 - _ring(a, b),
    "a ring, far is good": _ring,
    "a cube": lambda a, b: int(_differing_bits(a, b) == 1),
    "a cube, far is good": _differing_bits,
    "three switches": lambda a, b: 18 if a % 3 == b % 3 else 0,
    "one switch": lambda _a, _b: 18,
    "pairs of twins": lambda a, b: 3 if a // 2 == b // 2 else (a // 2 + b // 2) % 3,
    "pairs of cards linked crosswise": lambda a, b: 0 if a // 2 == b // 2 else 1 + (a % 2 != b % 2),
    "one switch, and three apart": lambda a, b: 4 if b < 9 else int(a == b - 1),
}
"""NVLinks between two of twelve cards: tables with many equal sums, where a bound cuts little."""


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("count", [2, 3, 5, 9])
@pytest.mark.parametrize("joined", [False, True], ids=["any", "joined"])
@pytest.mark.parametrize("heavy", [1, 10**25], ids=["light", "heavy"])
def test_the_best_set_of_twelve_cards_with_regular_links(
    name: str, count: int, joined: bool, heavy: int
) -> None:
    """Section 5: exact where many sets are worth the same, and where weights make scores huge."""
    node = [sight(card(at, tenants=at * 5 % 3, numa=at * 7 % 4 or None)) for at in range(12)]
    for one in node:
        one.score *= heavy
    table = Links(link(a, b, SYMMETRIC[name](a, b)) for a, b in combinations(range(12), 2))
    for chain in ("mutex,spread", "binpack,numa", "numa,mutex"):
        keys = policy(chain).keys

        found = best_set([node], count, table, keys, joined=joined)

        assert indexes(found) == best_of_all_sets(node, count, table, keys, joined=joined)


@pytest.mark.parametrize(
    ("nvlinks", "want_first"),
    [
        pytest.param(lambda _a, _b: 18, [0, 3, 6, 9, 12, 15, 18, 21], id="one switch"),
        pytest.param(
            lambda a, b: 18 if a // 8 == b // 8 else 0,
            [0, 1, 2, 3, 4, 5, 6, 7],
            id="eight switches",
        ),
        pytest.param(
            lambda a, b: 4 if a // 4 == b // 4 else 1,
            [0, 1, 2, 3, 12, 13, 14, 15],
            id="groups of four in a mesh",
        ),
    ],
)
def test_a_node_of_64_cards_is_searched_in_no_time(
    nvlinks: Callable[[int, int], int], want_first: list[int]
) -> None:
    """Section 5, exact and bounded: trying all sets would take days, and a test has seconds."""
    node = [sight(card(at, tenants=at % 3)) for at in range(64)]
    table = Links(link(a, b, nvlinks(a, b)) for a, b in combinations(range(64), 2))

    found = best_set([node], 8, table, SPREAD, joined=True)

    assert indexes(found) == want_first


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("count", [8, 16, 32])
def test_a_table_that_no_machine_has_is_not_searched_for_ever(count: int, joined: bool) -> None:
    """64 cards, no two linked alike: a set all the same. Red when ``_Search`` counts no steps."""
    random = Random(1)
    node = [sight(card(at, tenants=at % 3)) for at in range(64)]
    table = Links(
        link(a, b, random.choice([1, 2, 4, 6]), random.choice(["SYS", "PHB", "PIX"]))
        for a, b in combinations(range(64), 2)
    )

    found = best_set([node], count, table, SPREAD, joined=joined)

    assert len(indexes(found) or []) == count


def test_the_largest_numbers_are_exact() -> None:
    """The sort keys never outweigh a point of pair score, nor links a pair that is not joined."""
    heavy = [sight(card(at), question=signature(weights=(10**18, 1, 1))) for at in range(4)]
    heavy[0].score = heavy[1].score = 10**25
    table = links((0, 1, 0, "NODE"), (2, 3, 0, "SYS"), (0, 2, 64), (1, 2, 1))

    assert indexes(best_set([heavy], 2, table, SPREAD, joined=False)) == [0, 2]
    far = links((0, 1, 0, "NODE"), (2, 3, 0, "SYS"))
    assert indexes(best_set([heavy], 2, far, SPREAD, joined=False)) == [0, 1]
    assert best_set([heavy], 3, table, SPREAD, joined=True) is None
