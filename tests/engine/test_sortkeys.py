"""The order of cards, and of sets: docs/placement.md section 2, rules 3, 4 and 6, section 5."""

import pytest

from cardwise.engine.candidates import Sight
from cardwise.engine.sortkeys import ranked, set_rank, set_worths
from states import card, policy, sight


def shown(index: int, numa: int | None = 0, score: int = 0) -> Sight:
    """A card with this score."""
    seen = sight(card(index, numa=numa))
    seen.score = score
    return seen


@pytest.mark.parametrize(
    ("chain", "cards", "want"),
    [
        pytest.param(
            "binpack,mutex",
            [shown(0, 0, 10), shown(1, 0, 20), shown(2, 0, 15)],
            [1, 2, 0],
            id="binpack: the highest score first",
        ),
        pytest.param(
            "spread,mutex",
            [shown(0, 0, 15), shown(1, 0, 20), shown(2, 0, 10)],
            [2, 0, 1],
            id="spread: the lowest score first",
        ),
        pytest.param(
            "numa",
            [shown(0, None), shown(1, 2), shown(2, 0), shown(3, 1)],
            [2, 3, 1, 0],
            id="numa: the lowest node first, unknown last",
        ),
        pytest.param(
            "numa", [shown(0, 0, 99), shown(1, 1, 5)], [0, 1], id="numa alone looks at no score"
        ),
        pytest.param(
            "numa", [shown(1, 7, 0), shown(0, 7, 9)], [0, 1], id="numa alone: then the index"
        ),
        pytest.param(
            "binpack",
            [shown(0, 1, 15), shown(1, 0, 15)],
            [1, 0],
            id="binpack alone: equal scores, the lower NUMA node",
        ),
        pytest.param(
            "spread",
            [shown(0, 1, 15), shown(1, 0, 15)],
            [1, 0],
            id="spread alone: equal scores, the lower NUMA node",
        ),
        pytest.param(
            "binpack,mutex",
            [shown(0, 1, 15), shown(1, 0, 15)],
            [0, 1],
            id="in a chain of two names equal scores go by index",
        ),
        pytest.param(
            "binpack", [shown(0, 1, 20), shown(1, 0, 10)], [0, 1], id="binpack: score beats NUMA"
        ),
        pytest.param(
            "numa,spread",
            [shown(0, 1, 5), shown(1, 0, 99), shown(2, 0, 10)],
            [2, 1, 0],
            id="numa,spread: the first key dominates",
        ),
        pytest.param(
            "spread,numa",
            [shown(0, 1, 5), shown(1, 0, 99), shown(2, 0, 5)],
            [2, 0, 1],
            id="spread,numa: equal scores go by NUMA node",
        ),
        pytest.param(
            "binpack,spread",
            [shown(0, 0, 5), shown(1, 0, 9)],
            [1, 0],
            id="binpack,spread: the second of two opposites has nothing to say",
        ),
        pytest.param(
            "binpack,numa",
            [shown(5, 0, 3), shown(2, 0, 3), shown(9, 0, 3)],
            [2, 5, 9],
            id="a full tie goes to the smaller index",
        ),
        pytest.param("spread", [], [], id="no cards"),
    ],
)
def test_ranked(chain: str, cards: list[Sight], want: list[int]) -> None:
    """Section 2, rules 3, 4 and 6."""
    order = ranked(cards, policy(chain).keys)
    backwards = ranked(reversed(cards), policy(chain).keys)

    assert [seen.card.index for seen in order] == want
    assert backwards == order


@pytest.mark.parametrize(
    ("chain", "better", "worse"),
    [
        pytest.param(
            "binpack,mutex",
            [shown(4, 0, 9), shown(5, 0, 1)],
            [shown(0, 0, 5), shown(1, 0, 4)],
            id="binpack: the highest total",
        ),
        pytest.param(
            "spread,mutex",
            [shown(4, 0, 9), shown(5, 0, 1)],
            [shown(0, 0, 5), shown(1, 0, 6)],
            id="spread: the lowest total",
        ),
        pytest.param(
            "numa,mutex",
            [shown(8, 3), shown(9, 0)],
            [shown(0, 1), shown(1, 1)],
            id="numa: the smaller sorted list of nodes",
        ),
        pytest.param(
            "numa,mutex",
            [shown(8, 0), shown(9, 9)],
            [shown(0, None), shown(1, 0)],
            id="numa: unknown last",
        ),
        pytest.param(
            "numa,spread",
            [shown(8, 0, 9), shown(9, 0, 9)],
            [shown(0, 0, 0), shown(1, 1, 0)],
            id="the first key dominates",
        ),
        pytest.param(
            "numa,spread",
            [shown(8, 0, 1), shown(9, 0, 1)],
            [shown(0, 0, 2), shown(1, 0, 2)],
            id="the second key decides between equals",
        ),
        pytest.param(
            "spread,mutex",
            [shown(9, 1), shown(0, 1)],
            [shown(1, 0), shown(2, 0)],
            id="a full tie goes to the smaller list of indexes, however it is listed",
        ),
        pytest.param(
            "spread,mutex",
            [shown(0), shown(3), shown(4)],
            [shown(0), shown(3), shown(5)],
            id="lists of indexes are compared to their end",
        ),
    ],
)
def test_set_rank(chain: str, better: list[Sight], worse: list[Sight]) -> None:
    """Section 5: a set is ranked as a card is, key by key."""
    keys = policy(chain).keys

    assert set_rank(better, keys) < set_rank(worse, keys)
    assert set_rank(better[::-1], keys) == set_rank(better, keys)


def test_worths_of_cards_for_a_set() -> None:
    """Section 5, as numbers: spread, then numa, then the index, for sets of two of three cards."""
    cards = [shown(7, 1, 30), shown(2, 0, 10), shown(5, None, 10)]

    # Index: 1, 4, 2 (at most 6 for two). NUMA: 3, 9, 1 (at most 12). Score: 0, 20, 20.
    assert set_worths(cards, policy("spread,numa").keys, 2) == [
        (0 * 13 + 3) * 7 + 1,
        (20 * 13 + 9) * 7 + 4,
        (20 * 13 + 1) * 7 + 2,
    ]


def test_worths_follow_the_first_key() -> None:
    cards = [shown(0, 1, 30), shown(1, 0, 10)]

    fullest = set_worths(cards, policy("binpack,numa").keys, 1)
    lowest = set_worths(cards, policy("numa,binpack").keys, 1)

    assert fullest[0] > fullest[1]
    assert lowest[0] < lowest[1]
