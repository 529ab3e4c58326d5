"""Which nodes are candidates for a Pod, by kube-scheduler's own rules.

It has them from the controller's own watches, because a Pod that is pinned to a node where the
cluster's kube-scheduler refuses it can't be moved any more.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from cardwise.controller.gates.gangs import Key
from cardwise.controller.gates.waiting import Waiting
from cardwise.ledger import Ledger
from cardwise.names import NodeReason, Reason
from cardwise.noderules import NodeBook, Volumes


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes to choose from, and why the others with cards are none."""

    names: Collection[str] = ()
    others: dict[str, NodeReason] = field(default_factory=dict)
    waits_for: str = ""
    """For people: what is not there yet, so that no node will do."""
    unchecked: str = ""
    """The field that only kube-scheduler can judge."""


def gang_kind(key: Key) -> Hashable:
    """The kind of a gang's Pods, whatever each of them asks."""
    return "gang", key


class Surroundings:
    """Node rules over the nodes that have cards."""

    def __init__(
        self,
        ledger: Ledger,
        book: NodeBook,
        volumes: Volumes,
    ) -> None:
        self._ledger = ledger
        self._book = book
        self._volumes = volumes

    def kind(self, waiting: Waiting) -> Hashable:
        """Equal, at a time, for Pods that get the same answer now."""
        if waiting.gang is not None:
            return gang_kind(waiting.gang.key)
        judged = self._volumes.judge(waiting.needs)
        if waiting.unchecked or judged.unchecked or judged.waits_for:
            return "blocked", waiting.pod.uid
        request = waiting.request
        # A quota is the namespace's, and so is what a message may tell of tenants.
        mine = request.signature, request.pod.namespace, request.priority > 0
        return mine, self._book.kind(waiting.needs, judged.reach)

    def candidates(self, waiting: Waiting) -> Candidates:
        """The nodes that a Pod may be pinned to."""
        if waiting.unchecked:
            return Candidates(unchecked=waiting.unchecked)
        judged = self._volumes.judge(waiting.needs)
        if judged.waits_for or judged.unchecked:
            return Candidates(waits_for=judged.waits_for, unchecked=judged.unchecked)
        # Where no node has cards, all are asked about, to say so.
        known = self._ledger.node_names() or self._book.names()
        names = [name for name in known if name in self._book]
        others = self._book.refusals(waiting.needs, names, judged.reach)
        return Candidates(
            names=[name for name in names if name not in others] if others else names,
            others=others,
        )

    def telling(self, candidates: Candidates) -> dict[str, NodeReason]:
        """The nodes with cards that are no candidates: one without is not worth a word."""
        return {
            name: word
            for name, word in candidates.others.items()
            if self._ledger.view(name).problem is not Reason.NODE_HAS_NO_CARDS
        }
