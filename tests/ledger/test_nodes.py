"""One node's account: what it offers, what is used of it, and what a decision sees of both."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.engine.score import node_score
from cardwise.ledger.nodes import NodeAccount
from cardwise.ledger.states import States
from cardwise.model import (
    Booking,
    Card,
    CardState,
    CardUse,
    GPUNode,
    Link,
    NodeState,
    NodeView,
)
from cardwise.names import Reason
from ledgers import booking, card, pod, report, share
from states import INIT, REGULAR, SIDECAR


def account(known: GPUNode | None = None, *booked: Booking) -> NodeAccount:
    """A node with this GPUNode (``a`` and ``b``), and a Pod ``p0``, ``p1``… for each booking."""
    built = NodeAccount("n1")
    built.set_report(known or report(), 1.0)
    for number, taken in enumerate(booked):
        built.book(pod(f"p{number}"), taken)
    return built


def seen(node: NodeAccount, *without: str) -> NodeView:
    return node.view(States(), without=without)


def use(node: NodeAccount, *without: str) -> dict[str, CardUse]:
    """What a decision sees used of each card."""
    view = seen(node, *without)
    return {
        uuid: CardUse(it.used_slots, it.used_memory_mib, it.used_cores)
        for uuid, it in zip(view.uuids, view.state.cards, strict=True)
    }


def test_nothing_is_known_of_a_new_node() -> None:
    node = NodeAccount("n1")
    assert (node.name, node.report, node.stale, node.report_seen) == ("n1", None, False, 0.0)
    assert (node.offers_cards, node.cordoned, node.uses()) == (False, frozenset(), {})


# What a decision sees -----------------------------------------------------------------------------


def test_a_view_has_all_that_a_card_offers_and_all_that_is_used_of_it() -> None:
    odd = Card(uuid="a", index=3, model="NVIDIA-X", memory_mib=500, cores=150, slots=4, numa=1,
               mode="mps", healthy=False, unhealthy_reason="Xid 79", pci_bus_id="0:4")  # fmt: skip
    plain = card("b", 4)
    links = (Link(first=3, second=4, nvlinks=2),)
    node = account(report("n1", odd, plain, links=links), booking("n1", "a", exclusive=True))
    view = node.view(States())
    used_card = CardState(index=3, model="NVIDIA-X", memory_mib=500, cores=150, slots=4, numa=1,
                          mode="mps", healthy=False, cordoned=False, used_slots=1,
                          used_memory_mib=1000, used_cores=10, exclusive=True)  # fmt: skip
    idle_card = CardState(index=4, model="NVIDIA-Tesla T4", memory_mib=15360)
    assert view == NodeView(
        name="n1",
        state=NodeState(cards=(used_card, idle_card), links=links),
        state_id=1,
        score=node_score([used_card, idle_card]),
        uuids=("a", "b"),
        tenants=(("default/p0",), ()),
        troubles=("Xid 79", ""),
    )


def test_tenants_add_up_card_by_card() -> None:
    both = Booking(node="n1", containers=((share("a"), share("b")),), kinds=(REGULAR,))
    node = account(None, booking("n1", "a"), both, booking("n1", share("b", 500, 100)))
    assert use(node) == {"a": CardUse(2, 2000, 20), "b": CardUse(2, 1500, 110)}
    assert seen(node).tenants == (("default/p0", "default/p1"), ("default/p1", "default/p2"))


def test_containers_count_as_section_7_says() -> None:
    containers = ((share("a", 500),), (share("a", 100),), (share("a", 300),))
    booked = Booking(node="n1", containers=containers, kinds=(INIT, SIDECAR, REGULAR))
    assert use(account(None, booked))["a"] == CardUse(2, 500, 20)


def test_tenants_are_named_in_order() -> None:
    node = account()
    for name in ("z", "x", "y"):
        node.book(pod(name), booking("n1", "a"))
    assert seen(node).tenants[0] == ("default/x", "default/y", "default/z")


def test_a_pod_that_is_booked_anew_counts_once() -> None:
    node = account(None, booking("n1", "a"))
    node.book(pod("p0"), booking("n1", "b"))
    assert use(node) == {"a": CardUse(), "b": CardUse(1, 1000, 10)}


def test_whole_cores_are_all_that_a_scaled_card_has() -> None:
    whole = booking("n1", share("a", 1000, 100))
    node = account(report("n1", card("a", cores=150)), whole)
    assert use(node)["a"].cores == 150


def test_only_the_cards_of_an_exclusive_pod_are_locked() -> None:
    node = account(None, booking("n1", "a", exclusive=True), booking("n1", "b"))
    assert [it.exclusive for it in seen(node).state.cards] == [True, False]


@pytest.mark.parametrize(
    "gone", [("uid-p0",), ["uid-p0"], {"uid-p0"}], ids=["tuple", "list", "set"]
)
def test_a_view_without_a_pod_is_as_if_it_were_gone(gone: tuple[str, ...]) -> None:
    node = account(None, booking("n1", "a", exclusive=True), booking("n1", "a", "b"))
    left = account()
    left.book(pod("p1"), booking("n1", "a", "b"))
    numbers = States()
    with_all = node.view(numbers)
    assert node.view(numbers, without=gone) == left.view(numbers)
    assert node.view(numbers) is with_all


def test_a_node_without_a_report_shows_no_cards() -> None:
    node = NodeAccount("n1")
    node.book(pod("p"), booking("n1", "a"))
    assert seen(node) == NodeView(name="n1", problem=Reason.NODE_HAS_NO_CARDS)
    node.set_node(offers_cards=True, cordoned=frozenset())
    assert seen(node) == NodeView(
        name="n1",
        problem=Reason.NODE_NOT_REPORTED,
        problem_detail="it offers nvidia.com/gpu, but has no GPUNode",
    )


def test_the_problems_of_a_node_in_the_laws_order() -> None:
    node = account(None, booking("n1", "a"))
    told = [seen(node).problem_detail]
    node.mark_unreadable(pod("q"), "it is garbled")
    node.mark_unreadable(pod("o"), "it is worse")
    told.append(seen(node).problem_detail)
    node.set_stale()
    told.append(seen(node).problem_detail)
    assert told == [
        "",
        "Pod default/o: it is worse",
        "its GPUNode is stale: the agent stopped reporting",
    ]
    assert seen(node).problem is Reason.NODE_NOT_REPORTED
    assert use(node)["a"] == CardUse(1, 1000, 10)


def test_a_garbled_pod_closes_its_node_until_it_is_left_out() -> None:
    node = account()
    node.mark_unreadable(pod("q"), "it is garbled")
    view = seen(node)
    assert (view.problem, view.problem_detail) == (
        Reason.NODE_UNREADABLE,
        "Pod default/q: it is garbled",
    )
    assert seen(node, "uid-q").problem is None
    assert seen(node, "uid-other").problem is Reason.NODE_UNREADABLE
    assert (node.is_closed_by("uid-q"), node.is_closed_by("uid-p")) == (True, False)
    assert node.clear_unreadable("uid-q")
    assert not node.clear_unreadable("uid-q")
    assert seen(node).problem is None


@pytest.mark.parametrize(
    ("by_report", "by_node"),
    [
        pytest.param({"a"}, set(), id="by its GPUNode"),
        pytest.param(set(), {"a"}, id="by HAMi's annotation on the Node"),
        pytest.param({"a"}, {"a"}, id="by both"),
        pytest.param({"a", "gone"}, {"unknown"}, id="beside cards that are not there"),
    ],
)
def test_a_card_is_cordoned_by_either_source(by_report: set[str], by_node: set[str]) -> None:
    node = account(report(cordoned=frozenset(by_report)))
    node.set_node(offers_cards=True, cordoned=frozenset(by_node))
    assert [it.cordoned for it in seen(node).state.cards] == [True, False]


# Tenancy goes by UUID -----------------------------------------------------------------------------


def test_tenants_outlive_their_gpunode() -> None:
    node = account(None, booking("n1", "a", exclusive=True))
    before = seen(node)
    node.set_report(None, 2.0)
    assert node.uses() == {"a": CardUse(1, 1000, 10)}
    assert (node.cards(), node.card_cores()) == ((), {})
    node.set_report(report(), 3.0)
    assert seen(node) == before


def test_tenants_follow_their_card_to_another_index() -> None:
    node = account(None, booking("n1", "a"))
    node.set_report(report("n1", card("b", 0), card("a", 1)), 2.0)
    view = seen(node)
    assert view.uuids == ("b", "a")
    assert [it.used_slots for it in view.state.cards] == [0, 1]
    assert view.tenants == ((), ("default/p0",))


def test_a_card_that_is_away_keeps_its_tenants() -> None:
    node = account(None, booking("n1", "a"), booking("n1", "b"))
    node.set_report(report("n1", "b"), 2.0)
    assert use(node) == {"b": CardUse(1, 1000, 10)}
    node.set_report(report("n1", "a", "b"), 3.0)
    assert use(node)["a"] == CardUse(1, 1000, 10)


def test_whole_cores_are_counted_anew_when_the_card_is_scaled() -> None:
    node = account(None, booking("n1", share("a", 1000, 100)))
    assert use(node)["a"].cores == 100
    node.set_report(report("n1", card("a", cores=200)), 2.0)
    assert use(node)["a"].cores == 200


# Changes ------------------------------------------------------------------------------------------


def test_a_heartbeat_alone_changes_nothing_that_a_decision_sees() -> None:
    node = account()
    view = seen(node)
    assert not node.set_report(report(beat="2"), 5.0)
    assert node.view(States()) is view
    assert node.report_seen == 5.0


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"cards": (card("a"),)}, id="cards"),
        pytest.param({"links": ()}, id="links"),
        pytest.param({"cordoned": frozenset({"a"})}, id="cordons"),
    ],
)
def test_an_offer_that_changed_is_seen_without_a_heartbeat(changed: dict[str, object]) -> None:
    node = account()
    view = seen(node)
    assert node.set_report(replace(report(), **changed), 5.0)  # type: ignore[arg-type]
    assert seen(node) != view
    assert node.report_seen == 1.0


def test_a_gpunode_that_goes_and_comes_back_is_seen_at_once() -> None:
    node = account()
    assert node.set_report(None, 5.0)
    assert not node.set_report(None, 6.0)
    assert node.report_seen == 1.0
    assert node.set_report(report(), 7.0)
    assert node.report_seen == 7.0


def test_a_stale_report_is_trusted_again_with_its_next_heartbeat_only() -> None:
    node = account()
    node.set_stale()
    assert node.set_report(report(cordoned=frozenset({"a"})), 5.0)
    assert seen(node).problem is Reason.NODE_NOT_REPORTED
    assert node.set_report(report(cordoned=frozenset({"a"}), beat="2"), 6.0)
    assert seen(node).problem is None


def test_a_gpunode_that_is_made_anew_is_not_stale() -> None:
    node = account()
    node.set_stale()
    node.set_report(None, 5.0)
    assert node.stale is False
    node.set_report(report(), 6.0)
    assert seen(node).problem is None


def test_a_node_tells_whether_it_changed() -> None:
    node = account()
    assert node.set_node(offers_cards=True, cordoned=frozenset())
    assert not node.set_node(offers_cards=True, cordoned=frozenset())
    assert node.set_node(offers_cards=True, cordoned=frozenset({"a"}))
    assert node.set_node(offers_cards=False, cordoned=frozenset({"a"}))


def test_a_pod_is_released_once() -> None:
    node = account(None, booking("n1", "a"))
    assert node.release("uid-p0")
    assert not node.release("uid-p0")
    assert use(node)["a"] == CardUse()
    assert list(node.bookings()) == []


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda it: it.book(pod("q"), booking("n1", "b")), id="a booking"),
        pytest.param(lambda it: it.release("uid-p0"), id="a release"),
        pytest.param(lambda it: it.mark_unreadable(pod("q"), "bad"), id="a garbled Pod"),
        pytest.param(lambda it: it.set_stale(), id="a silent agent"),
        pytest.param(
            lambda it: it.set_node(offers_cards=False, cordoned=frozenset({"a"})), id="a cordon"
        ),
        pytest.param(lambda it: it.set_report(report("n1", "a"), 9.0), id="a lost card"),
        pytest.param(lambda it: it.set_report(None, 9.0), id="a lost GPUNode"),
    ],
)
def test_no_change_is_hidden_by_the_view_made_before_it(step: object) -> None:
    node = account(None, booking("n1", "a"))
    before = seen(node)
    step(node)  # type: ignore[operator]
    assert seen(node) != before


def test_what_closed_a_node_is_not_remembered_by_its_view() -> None:
    node = account()
    node.mark_unreadable(pod("q"), "bad")
    closed = seen(node)
    node.clear_unreadable("uid-q")
    assert seen(node) != closed


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda it: it.set_report(report(), 1.0), id="a GPUNode"),
        pytest.param(
            lambda it: it.set_node(offers_cards=True, cordoned=frozenset()), id="cards on offer"
        ),
        pytest.param(
            lambda it: it.set_node(offers_cards=False, cordoned=frozenset({"a"})), id="a cordon"
        ),
        pytest.param(lambda it: it.book(pod("q"), booking("n1", "a")), id="a tenant"),
        pytest.param(lambda it: it.mark_unreadable(pod("q"), "bad"), id="a garbled Pod"),
        pytest.param(lambda it: it.set_rejects("bad"), id="rejected Pods"),
    ],
)
def test_a_node_of_which_anything_is_known_is_not_empty(step: object) -> None:
    node = NodeAccount("n1")
    assert node.is_empty
    step(node)  # type: ignore[operator]
    assert not node.is_empty


def test_a_closed_node_says_why_and_is_as_before_when_it_opens() -> None:
    node = account(None, booking("n1", "a"))
    before = seen(node)
    node.set_rejects("kubelet rejects")
    assert (seen(node).problem, seen(node).problem_detail) == (
        Reason.NODE_REJECTS_PODS,
        "kubelet rejects",
    )
    node.set_rejects("")
    assert seen(node) == before


def test_a_node_that_was_started_again_waits_for_its_agent() -> None:
    node = account()
    node.set_node(offers_cards=True, cordoned=frozenset(), boot_id="1")
    assert not node.set_node(offers_cards=True, cordoned=frozenset(), boot_id="1")
    assert not node.set_node(offers_cards=True, cordoned=frozenset()), "a Node that says nothing"
    assert node.set_node(offers_cards=True, cordoned=frozenset(), boot_id="2")
    assert seen(node).problem is Reason.NODE_NOT_REPORTED
    assert node.set_report(report(cordoned=frozenset({"a"})), 5.0)
    assert seen(node).problem is Reason.NODE_NOT_REPORTED, "no heartbeat"
    assert node.set_report(report(beat="2"), 6.0)
    assert seen(node).problem is None


def test_the_start_of_a_node_without_a_report_closes_nothing_later() -> None:
    node = NodeAccount("n1")
    node.set_node(offers_cards=True, cordoned=frozenset(), boot_id="1")
    node.set_node(offers_cards=True, cordoned=frozenset(), boot_id="2")
    node.set_report(report(), 1.0)
    assert seen(node).problem is None


# However it came about ----------------------------------------------------------------------------

UIDS = tuple(f"p{number}" for number in range(4))
SHARES = st.lists(
    st.builds(share, st.sampled_from("abz"), st.integers(0, 3), st.sampled_from([0, 10, 100])),
    min_size=1,
    max_size=3,
)
TAKEN = st.builds(
    lambda shares, kind, exclusive: Booking(
        node="n1", containers=(tuple(shares),), kinds=(kind,), exclusive=exclusive
    ),
    SHARES,
    st.sampled_from([REGULAR, SIDECAR, INIT]),
    st.booleans(),
)
REPORTS = st.builds(
    lambda cores, healthy, cordoned: report(
        "n1", replace(card("a", cores=cores), healthy=healthy), card("b", 1), cordoned=cordoned
    ),
    st.sampled_from([100, 150]),
    st.booleans(),
    st.sampled_from([frozenset(), frozenset("a")]),
)
STEPS = st.one_of(
    st.tuples(st.just("book"), st.sampled_from(UIDS), TAKEN),
    st.tuples(st.just("release"), st.sampled_from(UIDS), st.none()),
    st.tuples(st.just("report"), st.none(), st.none() | REPORTS),
    st.tuples(st.just("cordon"), st.none(), st.sampled_from([frozenset(), frozenset("b")])),
    st.tuples(st.just("look"), st.none(), st.none()),
)


def made_at_once(node: NodeAccount, gone: frozenset[str]) -> NodeAccount:
    """The same facts, told to an account that never heard of anything else."""
    built = NodeAccount(node.name)
    built.set_node(offers_cards=False, cordoned=node.cordoned)
    if node.report is not None:
        built.set_report(node.report, 1.0)
    for who, taken in node.bookings():
        if who.uid not in gone:
            built.book(who, taken)
    return built


@given(
    st.lists(TAKEN, min_size=2, max_size=4),
    st.lists(STEPS, max_size=8),
    st.sets(st.sampled_from(UIDS), min_size=1).map(frozenset),
)
def test_what_is_kept_of_tenants_is_what_they_add_up_to(
    booked: list[Booking], steps: list[tuple[str, str, Any]], gone_names: frozenset[str]
) -> None:
    node, numbers = account(None, *booked), States()
    for what, who, value in steps:
        match what:
            case "book":
                node.book(pod(who), value)
            case "release":
                node.release(pod(who).uid)
            case "report":
                node.set_report(value, 1.0)
            case "cordon":
                node.set_node(offers_cards=False, cordoned=value)
            case _:
                node.view(numbers)
    gone = frozenset(pod(name).uid for name in gone_names)
    left = made_at_once(node, gone)
    assert node.view(numbers, without=gone) == left.view(numbers)
    assert (node.uses(gone), node.tenants(gone)) == (left.uses(), left.tenants())
    now = made_at_once(node, frozenset())
    assert node.view(numbers) == now.view(numbers)
    assert (node.uses(), node.tenants()) == (now.uses(), now.tenants())
