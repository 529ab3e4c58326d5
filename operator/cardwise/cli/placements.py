"""What became of Pods, in a simulation or in a cluster: values, for whoever prints them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cardwise.model import Decision, NodeView, Outcome, PodRef

NODES_TOLD = 20
"""Of more nodes, only some are told of, unless all are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What became of one Pod."""

    pod: PodRef
    decision: Decision | None = None
    """None: its request is invalid, so no node was looked at."""
    views: Mapping[str, NodeView] = field(default_factory=dict)
    """The nodes to tell of, by name, as they were before the Pod."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Nodes that were no candidates, and why."""
    reason: str | None = None
    """Why it waits; None when it is placed."""
    message: str = ""
    never: bool = False
    """Whether no Pod that ends makes room for it: no card of the cluster could ever take it."""
    warnings: tuple[str, ...] = ()

    @property
    def node(self) -> str | None:
        """Where it goes."""
        return self.decision.node if self.decision else None

    def outcome(self, name: str) -> Outcome | None:
        """What the engine said of a node; None where it was no candidate."""
        return self.decision.outcomes.get(name) if self.decision else None

    def word(self, name: str) -> str | None:
        """Why a node does not take it: our word, or kube-scheduler's for no candidate."""
        outcome = self.outcome(name)
        if outcome is None:
            return self.unfit.get(name)
        return outcome.reason.value if outcome.reason else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of all Pods, in their order, and what of the documents had no part in it."""

    placements: tuple[Placement, ...]
    notes: tuple[str, ...]


def shortened(placement: Placement) -> Placement:
    """Keep of many nodes the chosen one, or the first that say the reason: the rest is a crowd."""
    decision = placement.decision
    if decision is None or len(placement.views) <= NODES_TOLD:
        return placement
    names = (
        [decision.node]
        if decision.node
        else sorted(
            placement.views, key=lambda name: (placement.word(name) != placement.reason, name)
        )[:NODES_TOLD]
    )
    outcomes = decision.outcomes
    return replace(
        placement,
        decision=replace(
            decision, outcomes={name: outcomes[name] for name in names if name in outcomes}
        ),
        views={name: placement.views[name] for name in names},
        unfit={name: word for name, word in placement.unfit.items() if name in names},
    )
