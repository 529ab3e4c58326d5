"""Whether a hold can still be given: docs/placement.md section 9, checks 9 and 10."""

import pytest

from cardwise.engine.recheck import still_fits
from cardwise.model import Booking, ContainerKind, NodeState, NodeView, Share
from cardwise.names import Reason
from states import INIT, REGULAR, card, state, view


def hold(
    *shares: Share,
    kinds: tuple[ContainerKind, ...] = (REGULAR,),
    exclusive: bool = False,
) -> Booking:
    """Cards held for one container, or for as many containers as there are kinds, one each."""
    parts = (shares,) if len(kinds) == 1 else tuple((share,) for share in shares)
    return Booking(node="n1", containers=parts, kinds=kinds, exclusive=exclusive)


def node(shown: NodeState, problem: Reason | None = None) -> NodeView:
    return view("n1", shown, problem=problem, uuids=["a", "b"][: len(shown.cards)])


SMALL = Share("a", 1000, 30)
COOL = Share("a", 1000, 0)
LOCK = hold(SMALL, exclusive=True)
WHOLE = hold(Share("a", 15360, 100))


@pytest.mark.parametrize(
    ("held", "shown", "want"),
    [
        pytest.param(hold(SMALL), state(card()), True, id="an idle card"),
        pytest.param(hold(), state(card()), True, id="a hold without cards"),
        pytest.param(hold(SMALL), state(card(healthy=False)), False, id="it has turned sick"),
        pytest.param(hold(SMALL), state(card(cordoned=True)), False, id="it was closed"),
        pytest.param(hold(Share("c", 1000, 0)), state(card()), False, id="it is gone"),
        pytest.param(
            hold(SMALL, Share("b", 1000, 0)), state(card()), False, id="one of two is gone"
        ),
        pytest.param(
            hold(SMALL, Share("b", 1000, 0)),
            state(card(0), card(1, healthy=False)),
            False,
            id="one of two has turned sick",
        ),
        pytest.param(
            hold(SMALL, Share("b", 1000, 0)), state(card(0), card(1)), True, id="both are well"
        ),
        pytest.param(
            hold(SMALL),
            state(card(tenants=1, exclusive=True)),
            False,
            id="an exclusive Pod turned up on it",
        ),
        pytest.param(LOCK, state(card(tenants=1)), False, id="exclusive, and a tenant turned up"),
        pytest.param(LOCK, state(card()), True, id="exclusive, and alone"),
        pytest.param(hold(SMALL), state(card(tenants=9)), True, id="the last slot"),
        pytest.param(hold(SMALL), state(card(tenants=10)), False, id="no slot is left"),
        pytest.param(hold(SMALL), state(card(used_mib=14360)), True, id="the last MiB"),
        pytest.param(hold(SMALL), state(card(used_mib=14361)), False, id="one MiB is missing"),
        pytest.param(hold(SMALL), state(card(used_cores=70)), True, id="the last cores"),
        pytest.param(hold(SMALL), state(card(used_cores=71)), False, id="one percent is missing"),
        pytest.param(WHOLE, state(card(cores=150)), True, id="all cores are all the card has"),
        pytest.param(WHOLE, state(card(memory=15359)), False, id="its memory shrank"),
        pytest.param(
            hold(Share("a", 1000, 100)),
            state(card(tenants=1)),
            False,
            id="whole cores, and a tenant without cores turned up",
        ),
        pytest.param(
            hold(Share("b", 1000, 0), Share("a", 1000, 100), kinds=(REGULAR, REGULAR)),
            state(card(0, tenants=1), card(1)),
            False,
            id="whole cores in the second container",
        ),
        pytest.param(
            hold(Share("a", 1000, 100), Share("a", 1000, 100), kinds=(INIT, REGULAR)),
            state(card()),
            True,
            id="whole cores for both, one after the other",
        ),
        pytest.param(
            hold(COOL), state(card(used_cores=99)), True, id="no cores, and one percent is left"
        ),
        pytest.param(hold(COOL), state(card(used_cores=100)), False, id="no cores, and none left"),
        pytest.param(
            hold(Share("a", 9000, 0), Share("a", 9000, 0), kinds=(INIT, REGULAR)),
            state(card()),
            True,
            id="init and regular container do not add up",
        ),
        pytest.param(
            hold(Share("a", 9000, 0), Share("a", 9000, 0), kinds=(REGULAR, REGULAR)),
            state(card()),
            False,
            id="two regular containers do",
        ),
    ],
)
def test_still_fits(held: Booking, shown: NodeState, want: bool) -> None:
    """Health, cordon, room, locks and whole cores, as they are now."""
    assert still_fits(held, node(shown)) is want


@pytest.mark.parametrize(
    "problem", [Reason.NODE_NOT_REPORTED, Reason.NODE_HAS_NO_CARDS, Reason.NODE_UNREADABLE]
)
def test_nothing_fits_on_a_node_with_a_problem(problem: Reason) -> None:
    assert not still_fits(hold(SMALL), node(state(card()), problem))


def test_a_view_whose_uuids_are_not_parallel_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer"):
        still_fits(hold(SMALL), view("n1", state(card(0), card(1)), uuids=["a"]))
