"""When a node that rejects Pods is closed, and for how long: by steps, and for every course."""

from hypothesis import given
from hypothesis import strategies as st

from cardwise.ledger.rejections import RejectingNodes

FIRST, LONGEST, WITHIN, LIMIT = 60.0, 900.0, 60.0, 3


def nodes(limit: int = LIMIT, longest: float = LONGEST) -> RejectingNodes:
    return RejectingNodes(limit=limit, within=WITHIN, first=FIRST, longest=longest)


def closed_for(it: RejectingNodes, *times: float, node: str = "n1") -> list[float]:
    return [it.rejected(node, time) for time in times]


def test_the_last_of_so_many_closes_the_node() -> None:
    assert closed_for(nodes(), 0, 30, 59) == [0, 0, FIRST]


def test_one_that_is_old_counts_no_more() -> None:
    assert closed_for(nodes(), 0, 30, 60, 61) == [0, 0, 0, FIRST]


def test_each_node_has_an_account_of_its_own() -> None:
    it = nodes()
    closed_for(it, 0, 1)

    assert closed_for(it, 2, node="n2") == [0]
    assert closed_for(it, 3) == [FIRST]


def test_while_it_is_closed_nothing_counts_and_it_opens_once() -> None:
    it = nodes()
    closed_for(it, 0, 0, 0)

    assert closed_for(it, 1, 2, 3, 4) == [0] * 4
    assert it.opened(59.9) == []
    assert it.opened(60.0) == ["n1"]
    assert it.opened(61.0) == []


def test_a_start_ends_the_trial() -> None:
    it = nodes()
    closed_for(it, 0, 0, 0)
    it.opened(60.0)

    assert not it.started("n1"), "it was open already"
    assert closed_for(it, 61, 62, 63) == [0, 0, FIRST]


def test_a_start_opens_a_closed_node_and_one_elsewhere_does_not() -> None:
    it = nodes()
    closed_for(it, 0, 0, 0)

    assert not it.started("n2")
    assert it.started("n1")
    assert it.opened(99.0) == []


def test_a_node_that_rejected_nothing_for_long_is_a_node_as_any_other() -> None:
    it = nodes()
    closed_for(it, 0, 0, 0)
    it.opened(60.0)
    it.opened(60.0 + LONGEST)

    assert closed_for(it, 961, 962, 963) == [0, 0, FIRST]


def test_what_is_not_old_enough_is_not_forgotten() -> None:
    it = nodes()
    closed_for(it, 0, 0, 0)
    it.opened(60.0)
    it.opened(59.0 + LONGEST)

    assert closed_for(it, 961) == [2 * FIRST]


def test_accounts_of_nodes_that_are_gone_do_not_stay() -> None:
    it = nodes()
    for number in range(9):
        it.rejected(f"n{number}", 0.0)
    it.opened(LONGEST)

    assert it._nodes == {}


@given(
    st.lists(
        st.tuples(st.sampled_from(["rejected", "started", "time"]), st.integers(0, 400)),
        max_size=80,
    )
)
def test_no_node_is_closed_for_longer_than_the_bound_or_never_opened(
    steps: list[tuple[str, int]],
) -> None:
    """Red: ``rejected`` does not take the smaller of the two; ``opened`` compares with ``<``."""
    it, now, until = nodes(limit=1, longest=100.0), 0.0, None
    for what, amount in steps:
        if what == "time":
            now += amount
            opened = it.opened(now)
            assert opened == (["n1"] if until is not None and until <= now else [])
            until = None if opened else until
        elif what == "started":
            assert it.started("n1") == (until is not None)
            until = None
        elif seconds := it.rejected("n1", now):
            assert until is None, "it was closed already"
            assert FIRST <= seconds <= 100.0
            until = now + seconds
    assert it.opened(now + LONGEST) == (["n1"] if until is not None else [])
