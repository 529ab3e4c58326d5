"""All nodes and all quotas together: what is closed, what is bounded, and when room grew."""

from collections.abc import Callable

import pytest

from cardwise.ledger import STALE_SECONDS, Ledger, Sighting
from cardwise.model import CardUse, NodeView, QuotaBound, QuotaRoom
from cardwise.names import Reason
from ledgers import (
    HERE,
    THERE,
    A,
    P,
    booking,
    bound,
    card,
    cardless,
    check,
    cordon,
    gone,
    hold,
    pod,
    report,
    share,
    two_nodes,
    unreadable,
    used,
)

NOTHING: frozenset[str] = frozenset()
OTHERS = "others"


# Nodes --------------------------------------------------------------------------------------------


def test_a_node_that_nobody_knows_has_no_cards() -> None:
    assert Ledger().view("n1") == NodeView(name="n1", problem=Reason.NODE_HAS_NO_CARDS)
    assert Ledger().account("n1") is None


def test_views_come_in_the_order_of_their_names() -> None:
    views = list(two_nodes().views(["n2", "nobody", "n1"]))
    assert [view.name for view in views] == ["n2", "nobody", "n1"]
    assert [len(view.uuids) for view in views] == [1, 0, 2]


def test_nodes_in_one_state_have_one_number() -> None:
    ledger = Ledger()
    for name in ("n1", "n2", "n3"):
        ledger.apply_gpunode(report(name, card("a"), card("b")), 0.0)
    ledger.see(bound(booking("n3", "a")), 1.0)
    numbers = [view.state_id for view in ledger.views(["n1", "n2", "n3"])]
    assert numbers[0] == numbers[1] != numbers[2]


def test_a_view_without_a_pod_leaves_out_what_it_holds() -> None:
    ledger = two_nodes()
    hold(ledger, A)
    assert ledger.view(HERE).state.cards[0].used_slots == 1
    assert ledger.view(HERE, without={P.uid}).state.cards[0].used_slots == 0


def test_gpunodes_are_named_in_order() -> None:
    ledger = Ledger()
    for name in ("n3", "n1", "n2"):
        ledger.apply_gpunode(report(name), 0.0)
    cordon(ledger, "a", node="n0")
    assert ledger.gpunode_names() == ["n1", "n2", "n3"]
    assert ledger.account("n0") is not None


def test_what_is_told_of_a_node_is_gathered_in_one_account() -> None:
    ledger = two_nodes()
    cordon(ledger, "a")
    ledger.see(bound(A), 1.0)
    account = ledger.account(HERE)
    assert account is not None
    assert account.report == report()
    assert (account.offers_cards, account.cordoned) == (True, frozenset({"a"}))
    assert list(account.bookings()) == [(P, A)]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(["node", "gpunode", "pod"], id="the Node goes first"),
        pytest.param(["gpunode", "node", "pod"], id="the GPUNode goes first"),
        pytest.param(["pod", "gpunode", "node"], id="the tenant goes first"),
    ],
)
def test_a_node_is_forgotten_with_the_last_that_is_known_of_it(order: list[str]) -> None:
    ledger = two_nodes()
    cordon(ledger, "a")
    ledger.see(bound(A), 1.0)
    ends: dict[str, Callable[[], None]] = {
        "node": lambda: ledger.remove_node(HERE),
        "gpunode": lambda: ledger.remove_gpunode(HERE, 2.0),
        "pod": lambda: ledger.see(gone(version=6), 3.0),
    }
    known = []
    for what in order:
        known.append(ledger.account(HERE) is not None)
        ends[what]()
        check(ledger)
    assert known == [True, True, True]
    assert ledger.account(HERE) is None


@pytest.mark.parametrize(
    "mended",
    [
        pytest.param(gone(version=6), id="it ends"),
        pytest.param(cardless("n9", version=6), id="its annotation is taken away"),
        pytest.param(bound(booking(THERE, "c"), version=6), id="it is seen elsewhere"),
    ],
)
def test_a_garbled_pod_on_an_unknown_node_closes_it_until(mended: Sighting) -> None:
    ledger = two_nodes()
    ledger.see(unreadable("n9"), 1.0)
    assert ledger.account("n9") is not None
    ledger.see(mended, 2.0)
    assert ledger.account("n9") is None
    check(ledger)


def test_a_garbled_pod_on_an_unknown_node_is_its_tenant_once_mended() -> None:
    ledger = two_nodes()
    ledger.see(unreadable("n9"), 1.0)
    ledger.see(bound(booking("n9", "z"), version=6), 2.0)
    account = ledger.account("n9")
    assert account is not None
    assert account.uses() == {"z": CardUse(1, 1000, 10)}
    check(ledger)


def test_a_node_without_cards_leaves_nothing() -> None:
    ledger = Ledger()
    ledger.apply_node("cpu", offers_cards=False, cordoned=NOTHING)
    ledger.remove_node("cpu")
    ledger.remove_node("never there")
    ledger.remove_gpunode("never there", 1.0)
    check(ledger)
    assert ledger.account("cpu") is None


def test_a_node_that_is_gone_offers_nothing_and_cordons_nothing() -> None:
    ledger = Ledger()
    ledger.see(bound(A), 1.0)
    cordon(ledger, "a")
    ledger.remove_node(HERE)
    account = ledger.account(HERE)
    assert account is not None
    assert (account.offers_cards, account.cordoned) == (False, NOTHING)


def test_tenants_are_there_before_and_after_their_gpunode() -> None:
    ledger = Ledger()
    ledger.see(bound(A), 1.0)
    ledger.apply_gpunode(report(), 2.0)
    assert used(ledger)["a"] == CardUse(1, 1000, 10)
    ledger.remove_gpunode(HERE, 3.0)
    assert ledger.view(HERE).problem is Reason.NODE_HAS_NO_CARDS
    ledger.apply_gpunode(report(), 4.0)
    assert used(ledger)["a"] == CardUse(1, 1000, 10)
    check(ledger)


# Silent agents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "closed"),
    [
        pytest.param(STALE_SECONDS, [], id="three minutes of silence are borne"),
        pytest.param(STALE_SECONDS + 1, [HERE], id="a second more, and the node is closed"),
    ],
)
def test_how_long_a_report_is_trusted(seconds: float, closed: list[str]) -> None:
    ledger = Ledger()
    ledger.apply_gpunode(report(), 100.0)
    cordon(ledger, node="no-report")
    assert ledger.age_reports(100.0 + seconds) == closed
    assert (ledger.view(HERE).problem is Reason.NODE_NOT_REPORTED) == bool(closed)
    check(ledger)


def test_reports_are_trusted_for_three_minutes() -> None:
    assert STALE_SECONDS == 180


def test_a_node_is_closed_once_and_opened_by_its_next_heartbeat() -> None:
    ledger = two_nodes()
    ledger.apply_gpunode(report(THERE, "c", beat="2"), 150.0)
    assert ledger.age_reports(200.0) == [HERE]
    assert ledger.age_reports(300.0) == []
    ledger.apply_gpunode(report(), 300.0)
    assert ledger.view(HERE).problem is Reason.NODE_NOT_REPORTED
    assert not ledger.grew
    ledger.apply_gpunode(report(beat="2"), 300.0)
    assert ledger.view(HERE).problem is None
    assert ledger.grew
    assert ledger.age_reports(400.0) == [THERE]


@pytest.mark.parametrize(
    ("excused", "at", "closed"),
    [
        pytest.param(50.0, 231.0, [HERE], id="older than the silence excuses"),
        pytest.param(50.0, 230.0, [], id="as old as the silence excuses"),
        pytest.param(500.0, 280.0, [], id="never younger than now"),
        pytest.param(500.0, 281.0, [HERE], id="as old as if it had come now"),
    ],
)
def test_a_silence_of_the_watch_is_no_silence_of_the_agents(
    excused: float, at: float, closed: list[str]
) -> None:
    ledger = Ledger()
    ledger.apply_gpunode(report(), 0.0)
    ledger.excuse_reports(excused, 100.0)
    assert ledger.age_reports(at) == closed


# Quotas -------------------------------------------------------------------------------------------


def test_a_namespace_without_a_bound_has_no_room_to_speak_of() -> None:
    ledger = two_nodes()
    ledger.see(bound(A), 1.0)
    assert ledger.room("default") is None
    assert ledger.bound("default") == QuotaBound()
    assert dict(ledger.bounded_namespaces()) == {}
    assert ledger.quota_use("default") == CardUse(0, 1000, 10)


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        pytest.param(QuotaBound(memory_mib=1500, cores=50), QuotaRoom(500, 40), id="both"),
        pytest.param(QuotaBound(memory_mib=1500), QuotaRoom(500, None), id="memory alone"),
        pytest.param(QuotaBound(cores=50), QuotaRoom(None, 40), id="cores alone"),
        pytest.param(QuotaBound(memory_mib=0, cores=0), QuotaRoom(-1000, -10), id="0 blocks"),
    ],
)
def test_what_a_namespace_may_still_take(limit: QuotaBound, want: QuotaRoom) -> None:
    ledger = two_nodes()
    ledger.see(bound(A), 1.0)
    ledger.see(bound(A, pod("q", OTHERS)), 1.0)
    ledger.set_bound("default", limit)
    assert ledger.room("default") == want
    assert ledger.bound("default") == limit
    assert dict(ledger.bounded_namespaces()) == {"default": limit}
    assert ledger.room(OTHERS) is None


def test_bookings_and_holds_count_alike_and_all_nodes_together() -> None:
    ledger = two_nodes()
    hold(ledger, A)
    ledger.see(bound(booking(THERE, share("c", 500, 100)), pod("q")), 1.0)
    assert ledger.quota_use("default") == CardUse(0, 1500, 110)
    assert ledger.quota_use("default", without={P.uid}) == CardUse(0, 500, 100)
    assert ledger.quota_use("default", without=["uid-q", P.uid]) == CardUse(0, 0, 0)
    assert ledger.quota_use("nobody") == CardUse(0, 0, 0)
    ledger.set_bound("default", QuotaBound(memory_mib=2000, cores=200))
    assert ledger.room("default", without={P.uid}) == QuotaRoom(1500, 100)
    ledger.drop_hold(P.uid, 2.0)
    assert ledger.quota_use("default") == CardUse(0, 500, 100)
    check(ledger)


def test_a_quota_that_is_lifted_is_forgotten() -> None:
    ledger = Ledger()
    ledger.set_bound("default", QuotaBound(cores=1))
    ledger.set_bound("default", QuotaBound())
    ledger.set_bound("never bounded", QuotaBound())
    assert dict(ledger.bounded_namespaces()) == {}
    assert ledger.room("default") is None


def test_the_card_of_an_exclusive_pod_counts_as_it_is_now() -> None:
    """What the administrator scales after the Pod was bound counts, too."""
    ledger = two_nodes()
    ledger.see(bound(booking(HERE, "a", exclusive=True)), 1.0)
    ledger.see(bound(A, pod("q")), 1.0)
    uses = [ledger.quota_use("default")]
    ledger.apply_gpunode(report(HERE, card("a", memory=20000, cores=150)), 2.0)
    uses.append(ledger.quota_use("default"))
    ledger.remove_gpunode(HERE, 3.0)
    uses.append(ledger.quota_use("default"))
    ledger.apply_gpunode(report(), 4.0)
    uses.append(ledger.quota_use("default"))
    assert uses == [
        CardUse(0, 16360, 110),
        CardUse(0, 21000, 160),
        CardUse(0, 2000, 20),
        CardUse(0, 16360, 110),
    ]
    check(ledger)
