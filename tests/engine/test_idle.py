"""Whether a Pod could be placed at all."""

from dataclasses import replace

import pytest

from cardwise.engine.idle import hopeless
from cardwise.model import CardState, NodeView, Signature
from cardwise.names import Reason
from told import ask, card, request, view


def signature(*asks: object, **fields: object) -> Signature:
    return request(*asks, **fields).signature  # type: ignore[arg-type]


def full(index: int, **fields: object) -> CardState:
    """A card that nobody gets anything of."""
    return replace(
        card(index, used=15360, slots_used=10), **{"exclusive": True, "used_cores": 100, **fields}
    )


@pytest.mark.parametrize(
    ("asked", "views", "want"),
    [
        pytest.param(signature(), [view("n1", full(0))], None, id="its tenants may leave"),
        pytest.param(
            signature(), [view("n1", full(0, healthy=False))], None, id="its card may get well"
        ),
        pytest.param(
            signature(), [view("n1", full(0, cordoned=True))], None, id="its card may be opened"
        ),
        pytest.param(
            signature(),
            [view("n1", full(0), problem=Reason.NODE_NOT_REPORTED)],
            None,
            id="its agent may report again",
        ),
        pytest.param(
            signature(ask(mib=15361)),
            [view("n1", card(0))],
            Reason.MEMORY,
            id="no card is so large",
        ),
        pytest.param(
            signature(ask(count=2, mib=1)),
            [view("n1", card(0)), view("n2", card(0))],
            Reason.NODE_TOO_FEW_CARDS,
            id="no node has so many",
        ),
        pytest.param(
            signature(ask(mib=10000), ask(mib=10000)),
            [view("n1", card(0))],
            Reason.MEMORY,
            id="its containers together are too large for the only card",
        ),
        pytest.param(
            signature(ask(mib=10000), ask(mib=10000)),
            [view("n1", card(0)), view("n2", card(0), card(1))],
            None,
            id="they are not for a node with two",
        ),
        pytest.param(
            signature(use_types=("a100",)),
            [view("n1", card(0))],
            Reason.CARD_TYPE,
            id="no such model",
        ),
        pytest.param(
            signature(use_uuids=frozenset({"GPU-z"})),
            [view("n1", card(0))],
            Reason.CARD_UUID,
            id="no such card",
        ),
        pytest.param(
            signature(use_uuids=frozenset({"GPU-b"})),
            [view("n1", full(0)), view("n2", full(0), full(1))],
            None,
            id="the card that it names is there",
        ),
        pytest.param(signature(), [], None, id="there is no node"),
        pytest.param(signature(), [view("n1")], None, id="there is no card"),
    ],
)
def test_a_pod_is_hopeless(asked: Signature, views: list[NodeView], want: Reason | None) -> None:
    assert hopeless(asked, views) is want
