"""Whether a Pod could be placed at all: the same question, to the same nodes without tenants."""

from collections.abc import Iterable
from dataclasses import replace

from cardwise.engine.decide import answer, leading_word
from cardwise.model import NodeState, NodeView, Outcome, Signature
from cardwise.names import Reason


def hopeless(signature: Signature, views: Iterable[NodeView]) -> Reason | None:
    """Why a Pod fits on no node even were all cards idle, well and open; None: on one it would.

    Waiting for other Pods to end is in vain then: what must change is the Pod, or the nodes. The
    quota is left aside. Without any card among the nodes nothing is known: None.

    Args:
        signature: what the Pod asks.
        views: all nodes, candidates or not; equal ones cost one evaluation.
    """
    outcomes: dict[tuple[NodeState, tuple[str, ...]], Outcome] = {}
    for view in views:
        if not view.state.cards:
            continue
        state = _idle(view.state)
        key = state, view.uuids if signature.names_uuids else ()
        if key not in outcomes:
            empty = replace(view, state=state, problem=None)
            outcomes[key] = outcome = answer(signature, empty, {}, None)
            if outcome.picks is not None:
                return None
    return leading_word(outcome.reason for outcome in outcomes.values())


def _idle(state: NodeState) -> NodeState:
    return replace(
        state,
        cards=tuple(
            replace(
                card,
                healthy=True,
                cordoned=False,
                used_slots=0,
                used_memory_mib=0,
                used_cores=0,
                exclusive=False,
            )
            for card in state.cards
        ),
    )
