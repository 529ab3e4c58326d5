"""When room grew on a node, and what a booking takes of its namespace's quota."""

from dataclasses import replace

import pytest

from cardwise.engine.usage import quota_use
from cardwise.ledger.nodes import NodeAccount
from cardwise.ledger.room import room_grew
from cardwise.ledger.states import States
from cardwise.model import Booking, Card, CardUse, GPUNode, NodeView
from ledgers import booking, card, report, share
from states import INIT, REGULAR

T4 = card("a")


def one(*, slots: int = 10, healthy: bool = True, **more: object) -> GPUNode:
    """A node of one T4."""
    return report("n1", replace(T4, slots=slots, healthy=healthy), **more)


def view_of(node: GPUNode, *, problem: bool = False) -> NodeView:
    account = NodeAccount("n1")
    account.set_report(node, 0.0)
    if problem:
        account.set_stale()
    return account.view(States())


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param([T4], [T4], False, id="the same card"),
        pytest.param([], [T4], True, id="a new card"),
        pytest.param([T4], [], False, id="a card that is gone"),
        pytest.param([T4, card("b")], [T4], False, id="one of two cards is gone"),
        pytest.param([T4], [card("b", 0)], True, id="another card in its place"),
        pytest.param([replace(T4, healthy=False)], [T4], True, id="a card that is healthy again"),
        pytest.param([T4], [replace(T4, healthy=False)], False, id="a card that fell ill"),
        pytest.param(
            [replace(T4, healthy=False)],
            [replace(T4, healthy=False, memory_mib=99999)],
            False,
            id="a larger card that is ill",
        ),
        pytest.param([], [replace(T4, healthy=False)], False, id="a new card that is ill"),
        pytest.param([T4], [replace(T4, memory_mib=15361)], True, id="more memory"),
        pytest.param([T4], [replace(T4, memory_mib=15359)], False, id="less memory"),
        pytest.param([T4], [replace(T4, cores=101)], True, id="more cores"),
        pytest.param([T4], [replace(T4, cores=99)], False, id="fewer cores"),
        pytest.param([T4], [replace(T4, slots=11)], True, id="more slots"),
        pytest.param([T4], [replace(T4, slots=9)], False, id="fewer slots"),
        pytest.param([T4], [replace(T4, slots=9, cores=101)], True, id="fewer slots, more cores"),
        pytest.param([T4], [replace(T4, model="NVIDIA-A100")], True, id="another model"),
        pytest.param([T4], [replace(T4, numa=1)], True, id="another NUMA node"),
        pytest.param([T4], [replace(T4, mode="mps")], True, id="another mode"),
        pytest.param([T4], [replace(T4, index=1)], True, id="another index"),
        pytest.param(
            [T4],
            [replace(T4, pci_bus_id="0:9", unhealthy_reason="cool")],
            False,
            id="what no request asks for",
        ),
        pytest.param(
            [T4, card("b")], [T4, replace(card("b"), cores=101)], True, id="the second card grew"
        ),
    ],
)
def test_when_room_grew(before: list[Card], after: list[Card], want: bool) -> None:
    # A GPUNode of no cards is made apart: the builder takes it for "the usual two".
    nodes = [replace(report(), cards=tuple(cards)) for cards in (before, after)]
    assert room_grew(*map(view_of, nodes)) is want


def test_room_grew_where_a_cordon_was_lifted_and_not_where_one_was_put() -> None:
    open_card, closed = view_of(one()), view_of(one(cordoned=frozenset({"a"})))
    assert room_grew(closed, open_card)
    assert not room_grew(open_card, closed)
    assert not room_grew(closed, view_of(one(slots=11, cordoned=frozenset({"a"}))))


def test_room_grew_where_a_node_opened_and_not_where_it_closed() -> None:
    open_node, closed = view_of(one()), view_of(one(), problem=True)
    assert room_grew(closed, open_node)
    assert not room_grew(open_node, closed)
    assert not room_grew(closed, view_of(one(slots=11), problem=True))


def test_room_grew_where_links_came_to_be_known() -> None:
    """A required topology may be had now."""
    plain, linked = view_of(one()), view_of(one(links=()))
    assert room_grew(plain, linked)
    assert not room_grew(linked, view_of(one(healthy=False)))


# Quota --------------------------------------------------------------------------------------------

CARDS = {"a": card("a", memory=4000, cores=200), "b": card("b", memory=3000)}


@pytest.mark.parametrize(
    ("booked", "want"),
    [
        pytest.param(booking("n1"), CardUse(0, 0, 0), id="no card"),
        pytest.param(booking("n1", "a"), CardUse(0, 1000, 10), id="as booked"),
        pytest.param(booking("n1", "a", "b"), CardUse(0, 2000, 20), id="per card asked"),
        pytest.param(
            booking("n1", share("a", 2000, 100)),
            CardUse(0, 2000, 100),
            id="cores as booked, whatever coreScaling made of the card's",
        ),
        pytest.param(
            booking("n1", "a", exclusive=True),
            CardUse(0, 4000, 200),
            id="the whole card for an exclusive Pod",
        ),
        pytest.param(
            booking("n1", "a", "b", exclusive=True),
            CardUse(0, 7000, 300),
            id="all cards of an exclusive Pod",
        ),
        pytest.param(
            booking("n1", "away", exclusive=True),
            CardUse(0, 1000, 10),
            id="as booked where the card of an exclusive Pod is not reported",
        ),
        pytest.param(
            Booking(
                node="n1",
                containers=((share("a"),), (share("a"),)),
                kinds=(REGULAR, REGULAR),
                exclusive=True,
            ),
            CardUse(0, 4000, 200),
            id="a whole card counts once for all containers of an exclusive Pod",
        ),
        pytest.param(
            Booking(
                node="n1",
                containers=((share("a", 500, 5),), (share("a", 300, 30),)),
                kinds=(INIT, REGULAR),
            ),
            CardUse(0, 500, 30),
            id="the larger of init and regular containers",
        ),
    ],
)
def test_what_a_booking_counts_against_its_quota(booked: Booking, want: CardUse) -> None:
    assert quota_use(booked, CARDS) == want
