"""The model of kube-scheduler's queue says what was measured, and what a longer back-off does."""

from math import inf

import pytest

from bench.measures import quantile
from bench.queue_model import waits


@pytest.mark.parametrize(
    ("waiting", "attempt", "after", "seconds", "want"),
    [
        # Measured: 4 bound in 20 s, after 17 s at the median. The attempt's time was not taken.
        pytest.param(2000, 0.0095, 30.0, 20.0, range(1, 11), id="2,000 waiting"),
        # Measured: 25 bound in 12 s, an attempt taking 5.6 ms.
        pytest.param(1500, 0.0056, 27.0, 12.0, range(12, 31), id="1,500 waiting"),
    ],
)
def test_it_says_what_was_measured_with_the_shipped_back_off(
    waiting: int, attempt: float, after: float, seconds: float, want: range
) -> None:
    took = waits(waiting, attempt, longest=2, after=after, seconds=seconds)

    assert sum(each < inf for each in took) in want


def median(took: list[float]) -> float:
    """Of those that were bound."""
    return quantile([each for each in took if each < inf], 0.5)


@pytest.mark.parametrize(
    ("longest", "after", "want"),
    [
        pytest.param(2, 150, 10.0, id="one round, where the back-off is shorter than that"),
        pytest.param(30, 150, 0.01, id="none, where it is longer"),
        pytest.param(30, 0, 10.0, id="one, until the crowd was asked about a few times"),
    ],
)
def test_a_newcomer_waits_for_one_round_of_those_whose_back_off_is_over(
    longest: float, after: float, want: float
) -> None:
    took = waits(2000, 0.005, longest=longest, after=after, seconds=25)

    assert median(took) == pytest.approx(want, rel=0.1)


def test_where_nobody_waits_a_pod_is_bound_at_once() -> None:
    assert max(waits(0, 0.01, longest=2)) < 0.02
