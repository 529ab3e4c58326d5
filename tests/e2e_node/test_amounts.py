"""kubelet and the agent both write the Node's status by the door of gates, and do not fight."""

import time
from collections.abc import Iterator

import pytest

from cardwise import names
from cardwise.names import Door
from node.machine import why_not
from node.stage import SLOTS, Ward

MEMORY, CORES = 4 * 15360, 4 * 100


@pytest.fixture(scope="module")
def raised() -> Iterator[Ward]:
    """The node as it is where the door of gates is installed."""
    reason = why_not()
    if reason:
        pytest.skip(f"NO REAL NODE ON THIS MACHINE: {reason}")
    with Ward.raised(Door.GATES) as ward:
        yield ward


def amounts(ward: Ward) -> tuple[int, int, int]:
    """What the node has for Pods: slots, MiB, cores."""
    return (
        ward.node.allocatable(names.RESOURCE_COUNT),
        ward.node.allocatable(names.RESOURCE_MEMORY),
        ward.node.allocatable(names.RESOURCE_CORES),
    )


def advertises(ward: Ward, slots: int) -> None:
    """Wait until the node advertises all, with so many slots."""
    ward.cp.wait("the amounts", lambda: amounts(ward) == (slots, MEMORY, CORES), 30)


def seen(ward: Ward, seconds: float) -> set[tuple[int, int, int]]:
    """Everything that the node advertised meanwhile."""
    found, deadline = set(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        found.add(amounts(ward))
        time.sleep(0.05)
    return found


def test_kubelet_and_the_agent_agree(ward: Ward) -> None:
    """Over three of kubelet's own writes."""
    advertises(ward, SLOTS)
    assert seen(ward, 7) == {(SLOTS, MEMORY, CORES)}


def test_the_slots_of_a_sick_card_are_gone_and_stay_gone(ward: Ward) -> None:
    advertises(ward, SLOTS)

    ward.sick(1)

    advertises(ward, SLOTS * 3 // 4)
    assert seen(ward, 7) == {(SLOTS * 3 // 4, MEMORY, CORES)}
    ward.sick()
    advertises(ward, SLOTS)


@pytest.mark.parametrize("lost", [False, True], ids=["with-its-accounts", "without"])
def test_a_restart_of_kubelet_leaves_our_amounts(ward: Ward, lost: bool) -> None:
    advertises(ward, SLOTS)

    ward.restart_kubelet(lost=lost)

    advertises(ward, SLOTS)
    assert seen(ward, 5) == {(SLOTS, MEMORY, CORES)}
