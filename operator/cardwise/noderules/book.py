"""Every node, what the Pods there take of it, and what it would refuse a Pod for."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from cardwise.journal import Journal
from cardwise.names import NodeReason
from cardwise.noderules.answers import Answers
from cardwise.noderules.needs import Load, Needs, Repulsion
from cardwise.noderules.nodes import NodeFacts, Occupancy, facts_of
from cardwise.noderules.repelling import Repelling
from cardwise.noderules.volumes import ANYWHERE, Reach

_KINDS_KEPT: Final = 64
_NO_BOUND: Final = 2**200


class _Taken(NamedTuple):
    node: str
    load: Load


class NodeBook:
    """All nodes and the Pods on them.

    Args:
        untold_is_no_bound: True where nodes may be told of in part, or not at all: what is not
            said of a node then refuses nobody. kube-scheduler takes it for nothing, and so does
            the book by default.
        ignored: resources that kube-scheduler is told to ignore, as ours are by the extender door.
    """

    def __init__(self, *, untold_is_no_bound: bool = False, ignored: Collection[str] = ()) -> None:
        """Know of no node."""
        self._ignored = ignored
        self._facts: dict[str, NodeFacts] = {}
        self._occupied: dict[str, Occupancy] = {}
        self._taken: dict[str, _Taken] = {}
        self._repelling = Repelling()
        self._untold = _NO_BOUND if untold_is_no_bound else 0
        self._journal, self._facts_journal = Journal(), Journal()
        self._lasting = Answers(self._facts_journal, _KINDS_KEPT)
        self._answers = Answers(self._journal, _KINDS_KEPT)
        self.grew = False
        """Something happened that may let a waiting Pod in; whoever has looked sets it back."""

    def __contains__(self, name: object) -> bool:
        """Whether a Node of this name was told of."""
        return name in self._facts

    def names(self) -> list[str]:
        """Every Node that was told of."""
        return list(self._facts)

    # What happens -------------------------------------------------------------------------------

    def apply_node(self, node: Mapping[str, Any]) -> None:
        """Take in a Node as it is now; most of its updates change nothing that matters here."""
        facts = facts_of(node)
        before = self._facts.get(facts.name)
        if facts == before:
            return
        self._facts[facts.name] = facts
        if before is None or before.labels != facts.labels:
            self._relabel(facts.name, facts.labels)
        self._touch_facts(facts.name)
        self.grew = True

    def remove_node(self, name: str) -> None:
        """Forget a Node that is gone; its Pods stay counted until they are released."""
        if self._facts.pop(name, None) is None:
            return
        self._relabel(name, None)
        self._touch_facts(name)
        # Whoever is still counted there keeps nobody away from its neighbours any more.
        self.grew = True
        self._journal.forget(self._facts)
        self._facts_journal.forget(self._facts)

    def take(self, uid: str, node: str, load: Load) -> None:
        """Count a Pod where it is, or is to be: bound ones, whose ever, and those pinned.

        A Pod is counted once: the newest ``node`` and ``load`` of a UID replace the earlier ones.
        """
        before = self._taken.get(uid)
        if before is not None:
            if before == (node, load):
                return
            self.release(uid)
        # One text for a node's name, not one for every Pod.
        node = self._facts[node].name if node in self._facts else node
        self._taken[uid] = _Taken(node, load)
        self._occupied.setdefault(node, Occupancy()).add(load)
        self._journal.touch(node)
        for repulsion in load.repulsions:
            self._touch(self._repelling.change(node, repulsion, 1))

    def release(self, uid: str) -> None:
        """Count a Pod no more: it is finished or gone."""
        taken = self._taken.pop(uid, None)
        if taken is None:
            return
        occupancy = self._occupied[taken.node]
        occupancy.drop(taken.load)
        if not occupancy.pods:
            del self._occupied[taken.node]
        self._journal.touch(taken.node)
        for repulsion in taken.load.repulsions:
            self._touch(self._repelling.change(taken.node, repulsion, -1))
        self.grew = True

    # What is asked ------------------------------------------------------------------------------

    def kind(self, needs: Needs, reach: Reach = ANYWHERE) -> Hashable:
        """Equal, at a time, for Pods that get the same answer from every node.

        It changes when Pods come or go that want no Pod of such labels near them.
        """
        return needs.kind, reach, self._repelling.meeting(needs.namespace, needs.labels)

    def refusal(self, needs: Needs, node: str, reach: Reach = ANYWHERE) -> NodeReason | None:
        """Why a Pod can't go to a node, whatever its cards; None when it can.

        Args:
            needs: the Pod's.
            node: its name; a node that was not told of is refused by its name.
            reach: where the Pod's volumes let it go (`Volumes.judge`).
        """
        facts = self._facts.get(node)
        if facts is None:
            return None if self._untold else NodeReason.AFFINITY
        meeting = self._repelling.meeting(needs.namespace, needs.labels)
        return facts.refusal(needs.rules, reach) or self._passing(facts, needs.load, meeting)

    def refusals(
        self, needs: Needs, names: Collection[str], reach: Reach = ANYWHERE
    ) -> dict[str, NodeReason]:
        """The nodes among ``names`` that a Pod can't go to, whatever their cards, and why.

        The answers of a kind are kept, so asking again costs what was touched in between.
        """
        answers, known = self._all_refusals(needs, reach), self._facts
        told = {name: answers[name] for name in names if name in answers}
        if not self._untold:
            told |= {name: NodeReason.AFFINITY for name in names if name not in known}
        return told

    def answers(self, needs: Needs, reach: Reach = ANYWHERE) -> Mapping[str, NodeReason]:
        """As `refusals`, of all nodes that were told of; it holds until something happens."""
        return self._all_refusals(needs, reach)

    def touched_since(self, position: int) -> tuple[int, set[str] | None]:
        """Where the book is now, and the nodes whose answers may differ from those at a position.

        Begin with 0. None instead of nodes: it was too long ago to tell, so any may differ.
        """
        return self._journal.since(position)

    # Within -------------------------------------------------------------------------------------

    def _all_refusals(self, needs: Needs, reach: Reach) -> dict[str, NodeReason]:
        meeting = self._repelling.meeting(needs.namespace, needs.labels)
        facts, rules, load = self._facts, needs.rules, needs.load
        lasting = self._lasting.of(
            (rules, reach), facts, lambda name: facts[name].refusal(rules, reach)
        )
        return self._answers.of(
            (needs.kind, reach, meeting),
            facts,
            lambda name: lasting.get(name) or self._passing(facts[name], load, meeting),
        )

    def _passing(
        self, facts: NodeFacts, load: Load, meeting: tuple[Repulsion, ...]
    ) -> NodeReason | None:
        """What those who are there now refuse, or leave too little of."""
        if meeting and self._repelling.is_repelled(facts.name, meeting):
            return NodeReason.OTHERS
        occupancy = self._occupied.get(facts.name, _NOBODY_THERE)
        return occupancy.shortage(load, facts.room, self._untold, self._ignored)

    def _relabel(self, name: str, labels: Mapping[str, str] | None) -> None:
        occupancy = self._occupied.get(name, _NOBODY_THERE)
        self._touch(self._repelling.relabel(name, labels, occupancy.repulsions))

    def _touch_facts(self, name: str) -> None:
        self._facts_journal.touch(name)
        self._journal.touch(name)

    def _touch(self, names: Iterable[str]) -> None:
        for name in names:
            self._journal.touch(name)


_NOBODY_THERE: Final = Occupancy()
