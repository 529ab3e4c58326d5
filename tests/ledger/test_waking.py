"""When Pods that wait should be asked again, and which nodes' usage is to be told anew."""

from collections.abc import Callable

import pytest

from cardwise.ledger import Ledger
from cardwise.model import QuotaBound
from ledgers import (
    HERE,
    THERE,
    A,
    booking,
    bound,
    card,
    check,
    cordon,
    gone,
    pod,
    report,
    two_nodes,
)

OTHERS = "others"


def settled() -> Ledger:
    """``a`` cordoned by HAMi's annotation, ``c`` ill, an exclusive Pod on ``b``, a quota."""
    ledger = two_nodes()
    cordon(ledger, "a")
    ledger.apply_gpunode(report(THERE, card("c", healthy=False)), 1.0)
    ledger.see(bound(booking(HERE, "b", exclusive=True)), 1.0)
    ledger.set_bound("default", QuotaBound(memory_mib=5, cores=5))
    ledger.grew = False
    ledger.touched.clear()
    return ledger


@pytest.mark.parametrize(
    ("step", "want"),
    [
        pytest.param(lambda it: it.apply_gpunode(report(beat="2"), 9.0), False, id="a heartbeat"),
        pytest.param(lambda it: it.apply_gpunode(report(), 9.0), False, id="no change at all"),
        pytest.param(lambda it: it.apply_gpunode(report("n3"), 9.0), True, id="a new node"),
        pytest.param(
            lambda it: it.apply_gpunode(report(THERE, "c"), 9.0), True, id="a card is healthy again"
        ),
        pytest.param(
            lambda it: it.apply_gpunode(report(HERE, "b"), 9.0), False, id="a card is gone"
        ),
        pytest.param(
            lambda it: it.apply_gpunode(report(HERE, "a", card("b", memory=9000)), 9.0),
            True,
            id="the card of an exclusive Pod shrank: the quota counts less memory",
        ),
        pytest.param(
            lambda it: it.apply_gpunode(report(HERE, "a", card("b", cores=50)), 9.0),
            True,
            id="the card of an exclusive Pod shrank: the quota counts fewer cores",
        ),
        pytest.param(
            lambda it: it.apply_gpunode(report(HERE, card("a", memory=9000), "b"), 9.0),
            False,
            id="the card beside that of an exclusive Pod shrank",
        ),
        pytest.param(lambda it: it.remove_gpunode(THERE, 9.0), False, id="a GPUNode is gone"),
        pytest.param(
            lambda it: it.remove_gpunode(HERE, 9.0),
            True,
            id="a GPUNode with an exclusive Pod is gone: the quota counts what is booked",
        ),
        pytest.param(cordon, True, id="a cordon is lifted"),
        pytest.param(lambda it: cordon(it, "a", "b"), False, id="a cordon is put"),
        pytest.param(lambda it: cordon(it, "a"), False, id="the cordon is as it was"),
        pytest.param(
            lambda it: it.apply_node(HERE, offers_cards=False, cordoned=frozenset({"a"})),
            False,
            id="the Node offers no cards any more",
        ),
        pytest.param(
            lambda it: it.apply_node("n4", offers_cards=True, cordoned=frozenset()),
            True,
            id="a Node is heard of that offers cards: it was said to have none",
        ),
        pytest.param(
            lambda it: it.apply_node("n4", offers_cards=False, cordoned=frozenset()),
            False,
            id="a Node is heard of that offers none",
        ),
        pytest.param(lambda it: it.remove_node(HERE), False, id="a Node is gone"),
        pytest.param(lambda it: it.age_reports(999.0), False, id="agents fell silent"),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=6, cores=5)),
            True,
            id="a quota of memory is raised",
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=5, cores=6)),
            True,
            id="a quota of cores is raised",
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=4, cores=6)),
            True,
            id="a quota is raised and lowered",
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=5)),
            True,
            id="a quota of cores is lifted",
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound()), True, id="both quotas are lifted"
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=4, cores=4)),
            False,
            id="both quotas are lowered",
        ),
        pytest.param(
            lambda it: it.set_bound("default", QuotaBound(memory_mib=5, cores=5)),
            False,
            id="the quota is as it was",
        ),
        pytest.param(
            lambda it: it.set_bound(OTHERS, QuotaBound(memory_mib=5)),
            False,
            id="a namespace is bounded for the first time",
        ),
    ],
)
def test_waiting_pods_are_woken_exactly_when_room_grew(
    step: Callable[[Ledger], object], want: bool
) -> None:
    ledger = settled()
    step(ledger)
    assert ledger.grew is want
    check(ledger)


def test_there_is_nobody_to_wake_at_first() -> None:
    assert Ledger().grew is False


@pytest.mark.parametrize(
    ("step", "want"),
    [
        pytest.param(lambda it: it.apply_gpunode(report(beat="2"), 9.0), set(), id="a heartbeat"),
        pytest.param(lambda it: it.apply_gpunode(report(HERE, "a"), 9.0), {HERE}, id="cards"),
        pytest.param(lambda it: it.remove_gpunode(HERE, 9.0), {HERE}, id="a GPUNode is gone"),
        pytest.param(lambda it: it.remove_gpunode("n9", 9.0), set(), id="no GPUNode is gone"),
        pytest.param(lambda it: it.see(bound(A, pod("q")), 9.0), {HERE}, id="a new tenant"),
        pytest.param(lambda it: it.see(gone(version=6), 9.0), {HERE}, id="a tenant that left"),
        pytest.param(
            lambda it: it.see(bound(booking(THERE, "c"), version=6), 9.0),
            {HERE, THERE},
            id="a tenant that is elsewhere",
        ),
        pytest.param(lambda it: it.see(gone(pod("q")), 9.0), set(), id="a Pod without cards"),
        pytest.param(lambda it: cordon(it, "b"), set(), id="a cordon"),
    ],
)
def test_nodes_whose_cards_or_tenants_changed_are_told(
    step: Callable[[Ledger], object], want: set[str]
) -> None:
    ledger = settled()
    step(ledger)
    assert ledger.touched == want


def test_nodes_whose_gpunode_went_are_told_though_it_came_back() -> None:
    ledger = settled()
    ledger.remove_gpunode("n9", 9.0)
    assert ledger.removed == set()
    ledger.remove_gpunode(HERE, 9.0)
    ledger.apply_gpunode(report(), 9.0)
    assert ledger.removed == {HERE}


def test_every_change_of_what_gpunodes_offer_has_a_number() -> None:
    """Who adds up what the cluster offers need not do it again while the number stands."""
    ledger = Ledger()
    numbers = [ledger.offers]
    steps: list[Callable[[], None]] = [
        lambda: ledger.apply_gpunode(report(), 1.0),
        lambda: ledger.apply_gpunode(report(beat="2"), 2.0),
        lambda: ledger.apply_gpunode(report(HERE, "a", beat="2"), 3.0),
        lambda: ledger.remove_gpunode(HERE, 4.0),
        lambda: ledger.remove_gpunode("n9", 5.0),
        lambda: ledger.see(bound(A), 6.0),
        lambda: ledger.remove_gpunode(HERE, 7.0),
    ]
    for step in steps:
        step()
        numbers.append(ledger.offers)
    assert numbers == [0, 1, 1, 2, 3, 3, 3, 4]
