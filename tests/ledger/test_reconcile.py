"""A complete list of Pods against the ledger: what it mends, and what it must leave alone."""

import pytest

from cardwise.ledger import Ledger, Repair, Sighting, Stage
from cardwise.model import CardUse
from ledgers import (
    ELSEWHERE,
    HERE,
    STAGES,
    THERE,
    A,
    B,
    P,
    at,
    bind,
    booking,
    bound,
    cardless,
    check,
    gone,
    hold,
    pod,
    refuse,
    stage,
    told,
    two_nodes,
    unbound,
    unreadable,
    used,
)

CHANGED, LOST = "its booking was not as on the Pod", "it was booked, but is no more"


@pytest.mark.parametrize("where", STAGES)
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(bound(A, version=6), id="bound with the same card"),
        pytest.param(bound(B, version=6), id="bound with another card"),
        pytest.param(bound(ELSEWHERE, version=6), id="bound on another node"),
        pytest.param(cardless(version=6), id="bound without cards"),
        pytest.param(unreadable(version=6), id="bound with garbled cards"),
        pytest.param(unreadable(THERE, version=6), id="bound on another node, garbled"),
    ],
)
def test_a_line_that_shows_a_pod_bound_is_as_good_as_an_event(where: str, line: Sighting) -> None:
    """Held and being bound, too: only a Pod that is not bound can be older in a list."""
    by_list, by_event = at(where), at(where)
    by_list.reconcile([line], began=8.0, now=9.0)
    by_event.see(line, 9.0)
    assert told(by_list) == told(by_event)
    check(by_list)


# The outcomes of what is no event: a line of an unbound or finished Pod, or no line. A stage that
# is left out: nothing changes.
ENDED = {
    "waiting": "gone",
    "booked": "gone +",
    "garbled": "gone +",
    "booked, then garbled": "gone +",
}


@pytest.mark.parametrize("where", STAGES)
@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param([unbound(version=6)], {}, id="listed and not bound"),
        pytest.param([], ENDED, id="not listed"),
        pytest.param([gone(version=6)], ENDED, id="listed as finished"),
        pytest.param([unbound(pod("q"))], ENDED, id="only others are listed"),
    ],
)
def test_a_pod_that_is_not_in_the_list_has_ended(
    where: str, lines: list[Sighting], want: dict[str, str]
) -> None:
    """Unless it is held or being bound: those end by what is under way."""
    ledger = at(where)
    before = told(ledger)
    ledger.reconcile(lines, began=8.0, now=9.0)
    assert told(ledger) == want.get(where, before)
    check(ledger)


@pytest.mark.parametrize(
    ("where", "lines", "want"),
    [
        pytest.param("not known", [bound(A)], [CHANGED], id="a booking nobody had told of"),
        pytest.param("waiting", [bound(A)], [CHANGED], id="a Pod that was thought to wait"),
        pytest.param("held", [bound(A)], [CHANGED], id="a held Pod that is bound by now"),
        pytest.param("booked", [bound(B)], [CHANGED], id="other cards"),
        pytest.param("booked", [bound(ELSEWHERE)], [CHANGED], id="another node"),
        pytest.param("not known", [unreadable()], [CHANGED], id="a garbled allocation"),
        pytest.param("booked", [unreadable()], [CHANGED], id="an allocation garbled since"),
        pytest.param("garbled", [bound(A)], [CHANGED], id="an allocation mended since"),
        pytest.param("booked, then garbled", [bound(A)], [CHANGED], id="mended to what it was"),
        pytest.param("garbled", [cardless()], [CHANGED], id="a garbled allocation taken away"),
        pytest.param("waiting", [cardless()], [CHANGED], id="bound by somebody, without cards"),
        pytest.param("booked", [], [LOST], id="a booking whose Pod is no more"),
        pytest.param("garbled", [], [LOST], id="a garbled Pod that is no more"),
        pytest.param("booked", [gone()], [LOST], id="a booking whose Pod has finished"),
        pytest.param("waiting", [], [], id="a Pod that waited and is no more: nothing was wrong"),
        pytest.param("booked", [bound(A)], [], id="the booking is as on the Pod"),
        pytest.param("booked", [cardless()], [], id="a booking stays without its annotation"),
        pytest.param("booked", [unbound()], [], id="a booking stays in a list that is odd"),
        pytest.param("garbled", [unreadable()], [], id="garbled as before"),
        pytest.param("binding", [bound(A)], [], id="our own Binding, before its answer"),
        pytest.param("binding", [bound(B)], [CHANGED], id="cards that are not those we sent"),
        pytest.param("not known", [cardless()], [], id="a CPU Pod"),
        pytest.param("not known", [unbound()], [], id="a new Pod"),
        pytest.param("not known", [gone()], [], id="a finished Pod"),
        pytest.param("gone", [bound(A)], [], id="a line older than the end of its Pod"),
    ],
)
def test_each_repair_is_told(where: str, lines: list[Sighting], want: list[str]) -> None:
    repairs = at(where).reconcile(lines, began=8.0, now=9.0)
    assert repairs == [Repair(P, what) for what in want]


@pytest.mark.parametrize("order", [["kept", "lost"], ["lost", "kept"]], ids=" before ".join)
def test_every_pod_that_is_not_listed_has_ended(order: list[str]) -> None:
    ledger = two_nodes()
    for name in order:
        ledger.see(bound(A, pod(name)), 1.0)
    assert ledger.reconcile([bound(A, pod("kept"))], began=8.0, now=9.0) == [
        Repair(pod("lost"), LOST)
    ]


def test_a_second_list_finds_nothing_to_mend() -> None:
    ledger = two_nodes()
    ledger.see(bound(A, pod("lost")), 1.0)
    ledger.see(bound(A, pod("moved")), 1.0)
    ledger.see(unreadable(who=pod("mended")), 1.0)
    lines = [
        bound(B, pod("moved"), version=6),
        bound(booking(THERE), pod("mended"), version=6),
        bound(ELSEWHERE, pod("new")),
        unreadable(THERE, pod("garbled")),
    ]
    repairs = ledger.reconcile(lines, began=8.0, now=9.0)
    assert repairs == [
        Repair(pod("moved"), CHANGED),
        Repair(pod("mended"), CHANGED),
        Repair(pod("new"), CHANGED),
        Repair(pod("garbled"), CHANGED),
        Repair(pod("lost"), LOST),
    ]
    assert ledger.reconcile(lines, began=10.0, now=11.0) == []
    assert ledger.reconcile(lines, began=12.0, now=13.0) == []
    check(ledger)


def booked_at(now: float) -> Ledger:
    ledger = two_nodes()
    ledger.see(bound(A), now)
    return ledger


@pytest.mark.parametrize(
    ("changed", "lines", "want"),
    [
        pytest.param(7.9, [], None, id="booked before the list began: it has ended"),
        pytest.param(8.0, [], Stage.BOOKED, id="booked as the list began: it may be missing"),
        pytest.param(8.1, [], Stage.BOOKED, id="booked after the list began: it may be missing"),
    ],
)
def test_a_list_ends_only_what_is_older_than_it(
    changed: float, lines: list[Sighting], want: Stage | None
) -> None:
    ledger = booked_at(changed)
    ledger.reconcile(lines, began=8.0, now=9.0)
    assert stage(ledger) is want


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(7.9, "b", id="booked before the list began: the list knows better"),
        pytest.param(8.0, "a", id="booked as the list began: the ledger knows better"),
    ],
)
def test_a_list_changes_only_bookings_that_are_older_than_it(changed: float, want: str) -> None:
    ledger = booked_at(changed)
    repairs = ledger.reconcile([bound(B, version=6)], began=8.0, now=9.0)
    assert used(ledger)[want].slots == 1
    assert len(repairs) == (want == "b")


def test_a_line_older_than_an_event_changes_nothing_and_is_no_repair() -> None:
    ledger = two_nodes()
    ledger.see(bound(A, version=7), 1.0)
    assert ledger.reconcile([bound(B, version=6)], began=8.0, now=9.0) == []
    assert used(ledger)["a"] == CardUse(1, 1000, 10)


def test_a_pod_that_ended_after_the_list_began_does_not_come_back() -> None:
    ledger = booked_at(1.0)
    ledger.see(gone(version=7), 8.5)
    assert ledger.reconcile([bound(A, version=6)], began=8.0, now=9.0) == []
    assert told(ledger) == "gone +"


def test_a_pod_that_began_to_wait_after_the_list_began_stays() -> None:
    ledger = two_nodes()
    refuse(ledger)  # at 2
    ledger.reconcile([], began=1.0, now=3.0)
    assert stage(ledger) is Stage.WAITING


def test_a_booking_whose_answer_came_after_the_list_began_stays() -> None:
    """The list was read before the Binding reached the API server."""
    ledger = two_nodes()
    bind(ledger, A, now=1.0)
    ledger.end_binding(P.uid, 8.5, bound=True)
    assert ledger.reconcile([], began=8.0, now=9.0) == []
    assert told(ledger) == "booked, a"


def test_a_mended_booking_is_as_young_as_the_list() -> None:
    ledger = booked_at(1.0)
    ledger.reconcile([bound(B, version=6)], began=8.0, now=9.0)
    ledger.reconcile([], began=8.5, now=10.0)
    assert told(ledger) == "booked, b +"


def test_a_pod_that_a_list_ended_stays_ended() -> None:
    ledger = booked_at(1.0)
    ledger.reconcile([], began=8.0, now=9.0)
    ledger.see(bound(A, version=6), 10.0)
    assert told(ledger) == "gone +"


def test_cards_bound_elsewhere_are_taken_though_the_pod_is_held_here() -> None:
    """Its event was lost, and the hold would last for fifteen minutes."""
    ledger = two_nodes()
    hold(ledger, A, now=1.0)
    assert ledger.reconcile([bound(ELSEWHERE)], began=8.0, now=9.0) == [Repair(P, CHANGED)]
    assert used(ledger, THERE)["c"].slots == 1
    assert used(ledger, HERE)["a"].slots == 0


LINES = [
    bound(A, pod("p1")),
    bound(A, pod("p2")),
    bound(ELSEWHERE, pod("p3")),
    unbound(pod("waits")),
    cardless(HERE, pod("cpu")),
    gone(pod("finished")),
]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES, id="in one order"),
        pytest.param(LINES[::-1], id="in the other"),
        pytest.param(LINES[3:] + LINES[:3], id="in a third"),
    ],
)
def test_a_ledger_is_loaded_by_its_first_list(lines: list[Sighting]) -> None:
    ledger = two_nodes()
    ledger.reconcile(lines, began=0.0, now=1.0)
    assert sorted(entry.pod.name for entry in ledger.entries()) == ["p1", "p2", "p3"]
    assert used(ledger) == {"a": CardUse(2, 2000, 20), "b": CardUse()}
    assert used(ledger, THERE) == {"c": CardUse(1, 1000, 10)}
    check(ledger)
