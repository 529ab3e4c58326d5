"""The answers that are kept up to date are those that are found afresh."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import build
from asks import ASKS, asked
from cardwise.engine.decide import Memo, decide
from cardwise.engine.standing import Standing
from cardwise.ledger import Ledger, Sighting
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.pods import booking_of, pod_ref
from states import card, request, signature, state, view

NAMES = ["n1", "n2", "n3", "n4"]

Step = Callable[[Ledger], str]
"""Changes a ledger, and says which node it concerns."""


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A node that is reported, closed or gone; a tenant that comes or goes."""
    node, letter = draw(st.sampled_from(NAMES)), draw(st.sampled_from("ab"))
    what = draw(st.sampled_from(["reported", "cordoned", "gone", "tenant", "tenant gone"]))

    def take(ledger: Ledger) -> str:
        pod = build.pod(
            f"t-{letter}", node=node, allocated=build.allocation(f"GPU-{node}-{letter}", mib=8000)
        )
        seen = Sighting(pod=pod_ref(pod), version=1, node=node, booking=booking_of(pod))
        match what:
            case "reported":
                ledger.apply_gpunode(gpunode_of(build.gpunode(node, 2)), 0)
            case "cordoned":
                ledger.apply_node(
                    node, offers_cards=True, cordoned=frozenset({f"GPU-{node}-{letter}"})
                )
            case "gone":
                ledger.remove_gpunode(node, 0)
            case "tenant":
                ledger.see(seen, 0)
            case _:
                ledger.see(Sighting(pod=seen.pod, version=2, node=node, gone=True), 0)
        return node

    return take


@given(st.lists(steps(), max_size=30), st.sampled_from(ASKS))
@settings(deadline=None)
def test_it_says_what_a_decision_over_all_nodes_says(
    history: list[Step], about: dict[str, Any]
) -> None:
    # Red: `_forget` leaves the refusal, or takes no account of a word that went.
    ledger, wanted = Ledger(), asked(**about)
    standing = Standing(wanted.signature, None, Memo())
    position = 0
    for step in history:
        step(ledger)
        position, touched = ledger.journal.since(position)
        assert touched is not None
        for name in touched:
            if name not in ledger:
                standing.drop(name)
        standing.put(ledger.views(name for name in touched if name in ledger))
        kept = standing.decision(wanted)
        fresh = decide(wanted, ledger.views(ledger.node_names()), Memo())
        assert (kept.node, kept.booking, kept.reason) == (fresh.node, fresh.booking, fresh.reason)
        assert dict(kept.outcomes) == dict(fresh.outcomes)


def test_a_node_that_was_the_best_and_is_not_any_more_is_passed_over() -> None:
    # Red: `_best` compares no score.
    question = signature(policy="binpack")
    standing = Standing(question, None, Memo())
    standing.put([view("n1", state(card(0, tenants=2))), view("n2", state(card(0, tenants=1)))])
    assert standing.decision(request(question)).node == "n1"

    standing.put([view("n1", state(card(0)))])

    assert standing.decision(request(question)).node == "n2"


def test_what_is_out_of_date_does_not_pile_up() -> None:
    # Red: `_rank` makes the order anew only where all that fit were put.
    question = signature(policy="binpack")
    standing = Standing(question, None, Memo())
    standing.put([view("n1", state(card(0))), view("n2", state(card(0)))])
    for step in range(2000):
        standing.put([view("n1", state(card(0, tenants=step % 2)))])
    assert len(standing._heap) < 200
