"""Scores of cards and nodes: docs/placement.md section 4."""

import pytest

from cardwise.engine.score import card_score, node_score
from cardwise.model import CardState, Weights
from states import card


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        pytest.param(card(), 0, id="an idle card"),
        pytest.param(card(tenants=1), 1_651_042, id="a T4 with one tenant of 1000 MiB"),
        pytest.param(card(tenants=2), 3_302_083, id="a T4 with two"),
        pytest.param(
            card(tenants=10, used_mib=15360, used_cores=100), 30_000_000, id="a full card"
        ),
        pytest.param(
            card(tenants=2, used_mib=2048, used_cores=1, memory=8192, cores=4),
            7_000_000,
            id="a fifth of the slots, a quarter of cores and memory",
        ),
        pytest.param(
            card(tenants=1, used_mib=0, slots=1), 10_000_000, id="the only slot of a card"
        ),
        pytest.param(
            card(tenants=1, used_mib=0, slots=0), 0, id="no slots offered: they contribute nothing"
        ),
        pytest.param(
            card(tenants=1, used_mib=5, used_cores=5, memory=0, cores=0),
            1_000_000,
            id="no memory and no cores offered: the slots alone",
        ),
        pytest.param(
            card(tenants=20, used_mib=0), 20_000_000, id="an over-booked card is more than full"
        ),
    ],
)
def test_card_score(shown: CardState, want: int) -> None:
    """Section 4: ten times the used fractions, in millionths."""
    used = (shown.used_slots, shown.used_memory_mib, shown.used_cores)

    assert card_score(shown, Weights(), *used) == want


@pytest.mark.parametrize(
    ("weights", "want_a", "want_b"),
    [
        pytest.param(Weights(), 11_000_000, 10_000_000, id="equal weights"),
        pytest.param(Weights(memory=3), 13_000_000, 14_000_000, id="memory thrice"),
        pytest.param(Weights(core=3), 29_000_000, 12_000_000, id="cores thrice"),
        pytest.param(Weights(slot=2), 12_000_000, 17_000_000, id="slots twice"),
        pytest.param(Weights(slot=0, core=0), 1_000_000, 2_000_000, id="memory alone"),
        pytest.param(Weights(slot=0, memory=0), 9_000_000, 1_000_000, id="cores alone"),
    ],
)
def test_weights(weights: Weights, want_a: int, want_b: int) -> None:
    """Section 4: each weight multiplies its fraction."""
    of_100 = card(memory=100)

    assert card_score(of_100, weights, 1, 10, 90) == want_a
    assert card_score(of_100, weights, 7, 20, 10) == want_b


@pytest.mark.parametrize(
    ("used_mib", "memory", "want"),
    [
        pytest.param(1, 3, 3_333_333, id="a third is rounded down"),
        pytest.param(2, 3, 6_666_667, id="two thirds are rounded up"),
        pytest.param(1, 20_000_000, 1, id="half a millionth is rounded up"),
        pytest.param(49, 1_000_000_000, 0, id="a hair under half a millionth is rounded down"),
        pytest.param(3, 20_000_000, 2, id="one and a half is rounded up, not to the even number"),
        pytest.param(2**31 - 1, 2**31 - 1, 10_000_000, id="the largest sizes are exact"),
    ],
)
def test_rounding(used_mib: int, memory: int, want: int) -> None:
    """Section 4: half up, from the exact value."""
    assert card_score(card(memory=memory), Weights(), 0, used_mib, 0) == want


def test_a_score_is_rounded_once_and_not_term_by_term() -> None:
    # Three times 0.4 of a millionth: rounded one by one they would be nothing.
    shown = card(slots=25_000_000, cores=25_000_000, memory=25_000_000)

    assert card_score(shown, Weights(), 1, 1, 1) == 1


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        pytest.param([], 0, id="a node without cards"),
        pytest.param([card(0), card(1)], 0, id="an idle node"),
        pytest.param(
            [card(0, tenants=5, used_mib=4000, used_cores=50, memory=8000)],
            15_000_000,
            id="a card that is half used",
        ),
        pytest.param(
            [card(0, tenants=5, used_mib=4000, used_cores=50, memory=8000), card(1, memory=8000)],
            7_500_000,
            id="with an idle card beside it half as much",
        ),
        pytest.param(
            [card(0, tenants=1, used_mib=0, slots=1), card(1, slots=9)],
            1_000_000,
            id="sums are divided, not scores averaged",
        ),
        pytest.param(
            [card(0, tenants=1, healthy=False), card(1, tenants=1, cordoned=True)],
            1_651_042,
            id="cards that take no tenant count too",
        ),
        pytest.param(
            [card(0, used_cores=10, cores=50), card(1, used_cores=20, cores=100)],
            2_000_000,
            id="cores are summed like the rest",
        ),
    ],
)
def test_node_score(cards: list[CardState], want: int) -> None:
    """Section 4: over the node's cards, before this Pod; weights do not touch it."""
    assert node_score(cards) == want
