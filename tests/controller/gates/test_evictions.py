"""How often the Pods of one owner are evicted, and which nodes they are kept from."""

import pytest

from cardwise.controller.clock import Clock
from cardwise.controller.gates.evictions import MOST_EVICTIONS, WINDOW_SECONDS, Evictions


class Time:
    """A clock that a test sets, and what is remembered by it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.evictions = Evictions(Clock(monotonic=lambda: self.now))

    def evicted(self, *nodes: str, owner: str = "o", between: float = 1.0) -> None:
        """Pods of an owner, one after the other."""
        for node in nodes:
            self.evictions.charge(owner, node)
            self.now += between


@pytest.mark.parametrize(
    ("count", "free"),
    [
        pytest.param(0, True, id="an owner that nobody knows"),
        pytest.param(MOST_EVICTIONS - 1, True, id="one less than is enough"),
        pytest.param(MOST_EVICTIONS, False, id="as many as are enough"),
        pytest.param(MOST_EVICTIONS + 2, False, id="more than are enough"),
    ],
)
def test_after_how_many_an_owner_is_left_alone(count: int, free: bool) -> None:
    time = Time()
    time.evicted(*["n1"] * count)

    assert (time.evictions.free_at("o") <= time.now) is free
    assert time.evictions.free_at("another") <= time.now


def test_an_owner_is_free_again_when_the_first_of_the_last_ones_is_old() -> None:
    """Red: `free_at` goes by the last of them."""
    time = Time()
    time.evicted(*["n1"] * MOST_EVICTIONS, between=10.0)

    assert time.evictions.free_at("o") == 1000.0 + WINDOW_SECONDS


def test_its_pods_are_kept_from_the_nodes_of_late_and_from_no_others() -> None:
    """Red: `avoided` does not look at the time."""
    time = Time()
    time.evicted("n1", between=WINDOW_SECONDS - 1)
    time.evicted("n2", between=0.5)
    early = time.evictions.avoided("o")
    time.now += 1

    assert (early, time.evictions.avoided("o")) == (["n1", "n2"], ["n2"])
    assert time.evictions.avoided("another") == []


def test_owners_of_long_ago_are_forgotten() -> None:
    """Red: `charge` deletes nothing."""
    time = Time()
    time.evicted("n1", owner="before", between=WINDOW_SECONDS)
    time.evicted("n1", owner="now")

    assert len(time.evictions) == 1
