"""Whether a Pod could be placed at all: the same question, to the same nodes without tenants."""

from collections.abc import Iterable
from dataclasses import replace

from cardwise.engine.decide import answer, leading_word
from cardwise.model import NodeState, NodeView, Signature
from cardwise.names import Reason

_Key = tuple[object, ...]


def hopeless(signature: Signature, views: Iterable[NodeView]) -> Reason | None:
    """Why a Pod fits on no node even were all cards idle, well and open; None: on one it would.

    Waiting for other Pods to end is in vain then: what must change is the Pod, or the nodes. The
    quota is left aside. Without any card among the nodes nothing is known: None.

    Args:
        signature: what the Pod asks.
        views: all nodes, candidates or not; equal ones cost one evaluation.
    """
    words: dict[_Key, Reason | None] = {}
    for view in views:
        if not view.state.cards:
            continue
        if signature.use_uuids and signature.use_uuids.isdisjoint(view.uuids):
            words[()] = Reason.CARD_UUID
            continue
        key = (_offer(view.state), view.uuids if signature.names_uuids else ())
        if key not in words:
            empty = replace(view, state=_idle(view.state), problem=None)
            outcome = answer(signature, empty, {}, None)
            if outcome.picks is not None:
                return None
            words[key] = outcome.reason
    return leading_word(words.values())


def _offer(state: NodeState) -> _Key:
    """What a node offers, whoever uses it: far cheaper to compare than its idle state."""
    cards = state.cards
    return (
        *((c.index, c.model, c.memory_mib, c.cores, c.slots, c.numa, c.mode) for c in cards),
        state.links,
    )


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
