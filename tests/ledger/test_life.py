"""What of a Pod's life only a sequence shows; the single steps are in test_transitions.py."""

from dataclasses import replace

import pytest

from cardwise.ledger import HOLD_SECONDS, Stage
from cardwise.ledger import ledger as life
from cardwise.model import CardUse
from cardwise.names import Reason
from ledgers import (
    ELSEWHERE,
    HERE,
    LATER,
    THERE,
    A,
    B,
    P,
    at,
    bind,
    bound,
    cardless,
    check,
    gone,
    hold,
    pod,
    refuse,
    request,
    stage,
    told,
    two_nodes,
    unbound,
    unreadable,
    used,
)

# Waiting ------------------------------------------------------------------------------------------


def test_a_refusal_is_news_once_for_each_reason() -> None:
    ledger = two_nodes()
    told_news = [
        ledger.wait(P, None, reason, 1.0)
        for reason in (Reason.MEMORY, Reason.MEMORY, Reason.CORES, Reason.CORES, Reason.MEMORY)
    ]
    assert told_news == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("where", "news"),
    [
        pytest.param("held", True, id="a Pod that was held has a new story"),
        pytest.param("binding", False, id="one whose Binding is out does not wait"),
        pytest.param("booked", False, id="one that is booked does not wait"),
        pytest.param("gone", False, id="one that has ended does not wait"),
    ],
)
def test_a_refusal_is_news_for_a_pod_that_waits(where: str, news: bool) -> None:
    assert at(where).wait(P, request(), Reason.MEMORY, 3.0) is news


def test_a_waiting_pod_is_known_with_its_request_and_reason() -> None:
    ledger = two_nodes()
    ledger.wait(P, None, Reason.INVALID_REQUEST, 1.0)
    ledger.wait(P, request(), Reason.MEMORY, 2.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert (entry.pod, entry.request, entry.reason) == (P, request(), Reason.MEMORY)
    assert list(ledger.entries()) == [entry]


def test_the_first_refusal_is_kept_with_its_request() -> None:
    ledger = two_nodes()
    refuse(ledger)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert (entry.request, entry.reason, entry.changed) == (request(), Reason.MEMORY, 2.0)


def test_a_pod_that_was_held_waits_from_its_refusal_on() -> None:
    ledger = at("held")
    ledger.wait(P, request(), Reason.MEMORY, 7.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert (entry.stage, entry.changed) == (Stage.WAITING, 7.0)


# Holding ------------------------------------------------------------------------------------------


def test_a_held_pod_is_known_with_its_cards_and_request_and_has_no_reason() -> None:
    ledger = at("waiting")
    hold(ledger, A, now=4.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert (entry.booking, entry.node, entry.request) == (A, HERE, request())
    assert (entry.reason, entry.changed) == (None, 4.0)


def test_holding_anew_moves_the_cards() -> None:
    ledger = at("held")
    hold(ledger, ELSEWHERE)
    assert used(ledger, HERE)["a"].slots == 0
    assert used(ledger, THERE)["c"] == CardUse(1, 1000, 10)


@pytest.mark.parametrize(
    ("seconds", "given_up"),
    [
        pytest.param(HOLD_SECONDS, [], id="a hold of fifteen minutes stays"),
        pytest.param(HOLD_SECONDS + 1, [P], id="a second more, and it is given up"),
    ],
)
def test_how_long_a_hold_lasts(seconds: float, given_up: list[object]) -> None:
    ledger = two_nodes()
    hold(ledger, A, now=100.0)
    assert ledger.expire_holds(100.0 + seconds) == given_up


def test_holds_last_fifteen_minutes() -> None:
    assert HOLD_SECONDS == 900


def test_a_hold_that_is_asked_for_again_lasts_from_then() -> None:
    ledger = two_nodes()
    hold(ledger, A, now=0.0)
    hold(ledger, A, now=500.0)
    assert ledger.expire_holds(HOLD_SECONDS + 500.0) == []
    assert ledger.expire_holds(HOLD_SECONDS + 501.0) == [P]


def test_all_late_holds_are_given_up_and_no_other() -> None:
    ledger = two_nodes()
    hold(ledger, A, pod("old"), now=0.0)
    hold(ledger, A, pod("older"), now=0.0)
    hold(ledger, A, pod("new"), now=LATER)
    assert ledger.expire_holds(LATER) == [pod("old"), pod("older")]
    assert used(ledger)["a"].slots == 1


def test_the_hold_of_a_pod_that_has_ended_is_given_up_at_once() -> None:
    """A /filter that was under way when the Pod went: nobody would ever come for the cards."""
    ledger = at("gone")
    hold(ledger, A, now=3.0)
    assert ledger.expire_holds(3.0) == [P]
    assert used(ledger)["a"].slots == 0
    assert ledger.reconcile([], began=4.0, now=5.0) == []
    assert stage(ledger) is None
    check(ledger)


def test_a_dropped_hold_can_be_held_again() -> None:
    ledger = at("held")
    ledger.drop_hold(P.uid, 5.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert entry.changed == 5.0
    hold(ledger, B)
    assert stage(ledger) is Stage.HELD


# Binding ------------------------------------------------------------------------------------------


def test_the_cards_that_are_sent_are_those_held() -> None:
    ledger = at("held")
    assert ledger.begin_binding(P.uid, 7.0) == A
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert entry.changed == 7.0


@pytest.mark.parametrize("bound_then", [True, False])
def test_the_time_of_the_outcome_is_kept(bound_then: bool) -> None:
    ledger = at("binding")
    ledger.end_binding(P.uid, 8.0, bound=bound_then)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert entry.changed == 8.0


def test_mistakes_of_a_caller_say_where_the_pod_stands() -> None:
    with pytest.raises(AssertionError, match=r"^Pod default/p is waiting: it can't be bound$"):
        at("waiting").begin_binding(P.uid, 1.0)
    with pytest.raises(AssertionError, match=r"^Pod default/p is booked: it can't be held$"):
        hold(at("booked"), A)


def test_the_cards_on_another_node_are_taken_while_our_binding_is_out() -> None:
    """Somebody else bound the Pod: its cards there must not be given out until ours fails."""
    ledger = at("binding")
    ledger.see(bound(ELSEWHERE), 2.0)
    assert used(ledger, THERE)["c"] == CardUse(1, 1000, 10)
    ledger.end_binding(P.uid, 3.0, bound=False)
    assert stage(ledger) is Stage.BOOKED
    assert used(ledger, THERE)["c"] == CardUse(1, 1000, 10)
    check(ledger)


def test_a_garbled_allocation_closes_the_node_whatever_becomes_of_our_binding() -> None:
    ledger = at("binding")
    ledger.see(unreadable(), 2.0)
    ledger.end_binding(P.uid, 3.0, bound=False)
    assert told(ledger) == "booked, a, n1 closed"
    check(ledger)


def test_after_its_end_nothing_of_a_pod_counts_though_its_binding_is_out() -> None:
    ledger = at("binding, seen gone")
    ledger.see(bound(ELSEWHERE, version=9), 3.0)
    assert used(ledger, THERE)["c"].slots == 0
    assert used(ledger, HERE)["a"].slots == 1


def test_a_pod_that_failed_to_bind_starts_afresh() -> None:
    ledger = at("binding")
    ledger.end_binding(P.uid, 2.0, bound=False)
    bind(ledger, B, now=3.0)
    ledger.end_binding(P.uid, 4.0, bound=False)
    assert told(ledger) == "waiting +"


# Events -------------------------------------------------------------------------------------------


def test_events_of_one_version_are_all_applied() -> None:
    ledger = two_nodes()
    ledger.see(bound(A, version=5), 1.0)
    ledger.see(bound(B, version=5), 2.0)
    assert told(ledger) == "booked, b +"


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(unbound(version=9), id="an event while it was unbound"),
        pytest.param(bound(A, version=9), id="an event of its cards"),
        pytest.param(cardless(version=9), id="an event without cards"),
        pytest.param(unreadable(version=9), id="an event of garbled cards"),
    ],
)
def test_an_event_older_than_the_last_one_counts_for_nothing(newer: object) -> None:
    ledger = at("booked")
    ledger.see(newer, 2.0)  # type: ignore[arg-type]
    before = told(ledger)
    ledger.see(bound(B, version=8), 3.0)
    ledger.see(gone(version=8), 3.0)
    assert told(ledger) == before


def test_an_unbound_event_after_the_booking_does_not_end_it() -> None:
    """The answer of the API server may be quicker than its watch."""
    ledger = at("binding")
    ledger.end_binding(P.uid, 2.0, bound=True)
    ledger.see(unbound(version=1), 3.0)
    assert told(ledger) == "booked, a"


def test_the_annotation_of_an_unbound_pod_is_no_booking() -> None:
    """Section 9: the mirror reads none there; an event without a node changes nothing at all."""
    ledger = at("held")
    ledger.see(unbound(), 2.0)
    assert told(ledger) == "held, a"


def test_when_cards_change_is_kept() -> None:
    ledger = at("booked")
    ledger.see(bound(A, version=6), 5.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert entry.changed == 1.0
    ledger.see(bound(B, version=7), 6.0)
    assert entry.changed == 6.0


def test_two_garbled_pods_close_a_node_until_both_are_mended() -> None:
    ledger = two_nodes()
    ledger.see(unreadable(who=pod("p1")), 1.0)
    ledger.see(unreadable(who=pod("p2")), 1.0)
    assert ledger.view(HERE).problem_detail == "Pod default/p1: it is garbled"
    ledger.see(bound(A, pod("p1"), version=6), 2.0)
    assert ledger.view(HERE).problem is Reason.NODE_UNREADABLE
    ledger.see(gone(pod("p2"), version=6), 3.0)
    assert ledger.view(HERE).problem is None
    check(ledger)


def test_an_allocation_that_can_not_be_read_closes_its_node_without_a_word_of_why() -> None:
    ledger = two_nodes()
    ledger.see(replace(unreadable(), unreadable=""), 1.0)
    view = ledger.view(HERE)
    assert (view.problem, view.problem_detail) == (Reason.NODE_UNREADABLE, "Pod default/p: ")


def test_a_file_has_pods_without_versions() -> None:
    ledger = two_nodes()
    ledger.see(bound(A, version=0), 0.0)
    entry = ledger.entry(P.uid)
    assert entry is not None
    assert (entry.stage, entry.booking, entry.changed) == (Stage.BOOKED, A, 0.0)
    ledger.see(bound(B, version=0), 1.0)
    assert told(ledger) == "booked, b +"


# Memory -------------------------------------------------------------------------------------------


def test_the_oldest_ends_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "_TOMBSTONES", 3)
    ledger = two_nodes()
    for name in ("p1", "p2", "p3", "p4"):
        ledger.see(gone(pod(name)), 1.0)
    assert list(ledger._ended) == ["uid-p2", "uid-p3", "uid-p4"]


def test_twenty_thousand_ends_are_remembered() -> None:
    assert life._TOMBSTONES == 20_000


def test_finished_pods_and_pods_without_cards_leave_nothing_but_their_ends() -> None:
    ledger = two_nodes()
    for number in range(50):
        who, cpu = pod(f"p{number}"), pod(f"cpu{number}")
        ledger.wait(who, request(who), Reason.MEMORY, 1.0)
        bind(ledger, A, who)
        ledger.end_binding(who.uid, 2.0, bound=True)
        ledger.see(gone(who), 3.0)
        ledger.see(unbound(cpu), 1.0)
        ledger.see(cardless("cpu-node", cpu), 2.0)
        ledger.see(gone(cpu, node="cpu-node"), 3.0)
    assert list(ledger.entries()) == []
    assert (ledger._quota_use, set(ledger._nodes)) == ({}, {HERE, THERE})
    assert len(ledger._ended) == 100
    check(ledger)
