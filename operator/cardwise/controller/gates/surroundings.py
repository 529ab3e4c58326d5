"""Which nodes may take a Pod, and which of them is chosen, over and over for Pods of one kind.

Node rules are checked by the controller's own watches, because a Pod that is pinned to a node where
the cluster's kube-scheduler refuses it can't be moved any more. The answers of a kind are kept, and
each decision looks at those nodes only where something happened since the last.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

from cardwise.controller.gates.waiting import Waiting
from cardwise.engine.decide import Memo
from cardwise.engine.standing import Standing
from cardwise.gangs import Key
from cardwise.ledger import Ledger
from cardwise.model import Decision
from cardwise.names import NodeReason, Reason
from cardwise.noderules import NodeBook, Volumes

_KEPT = 64
"""Questions whose answers are kept: of those asked last."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The answers to one question, and what they are as of."""

    standing: Standing
    cards: int
    """A position in the ledger's journal."""
    rules: int
    """A position in that of the node rules."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no node can be chosen, whatever the nodes are like; at most one is not empty."""

    waits_for: str = ""
    """For people: what is not there yet."""
    unchecked: str = ""
    """The field that only kube-scheduler can judge."""


def gang_kind(key: Key) -> Hashable:
    """The kind of the Pods of a gang that has not begun, whatever each of them asks."""
    return "gang", key


class Surroundings:
    """Cards and node rules together."""

    def __init__(
        self,
        ledger: Ledger,
        book: NodeBook,
        volumes: Volumes,
        memo: Memo,
        avoided: Callable[[str], Collection[str]],
    ) -> None:
        """Look at nothing yet.

        Args:
            ledger: who has which card.
            book: the rules about nodes.
            volumes: where the Pods' volumes are.
            memo: of the engine.
            avoided: says which nodes the Pods of an owner (its UID) go to only if they must.
        """
        self._avoided = avoided
        self._ledger = ledger
        self._book = book
        self._volumes = volumes
        self._memo = memo
        self._kept: dict[Hashable, _Kept] = {}
        self._forgotten = memo.forgotten
        """What the memo forgets is not kept either: its limit is that of both."""

    def kind(self, waiting: Waiting, *, begun: bool) -> Hashable:
        """Equal, at a time, for Pods that get the same answer now.

        Args:
            waiting: the Pod.
            begun: whether it has a gang that has begun: then it joins alone.
        """
        if waiting.gang is not None and not begun:
            return gang_kind(waiting.gang.key)
        obstacle = self.obstacle(waiting)
        if obstacle != _NONE:
            return "blocked", waiting.pod.uid
        question = self._question(waiting)
        return question if waiting.gang is None else (waiting.gang.key, question)

    def obstacle(self, waiting: Waiting) -> Obstacle:
        """What keeps the Pod from being decided at all."""
        if waiting.unchecked:
            return Obstacle(unchecked=waiting.unchecked)
        judged = self._volumes.judge(waiting.needs)
        if judged.unchecked or judged.waits_for:
            return Obstacle(waits_for=judged.waits_for, unchecked=judged.unchecked)
        return _NONE

    def decision(self, waiting: Waiting) -> Decision:
        """Choose a node and cards for a Pod, as the engine would among the nodes that may take it.

        The outcomes of the decision are as of now, and change with the next.
        """
        ledger, book, request = self._ledger, self._book, waiting.request
        question, room = self._question(waiting), ledger.room(request.pod.namespace)
        kept = self._kept.pop(question, None)
        standing = kept.standing if kept is not None else None
        cards, touched = ledger.journal.since(kept.cards if kept else 0)
        rules, others = book.touched_since(kept.rules if kept else 0)
        names = touched | others if touched is not None and others is not None else None
        if standing is None or standing.room != room or names is None:
            standing = Standing(request.signature, room, self._memo)
            # Where no node has cards, all are asked about, to say so.
            names = set(ledger.node_names() or book.names())
        refused = book.answers(waiting.needs, self._volumes.judge(waiting.needs).reach)
        candidates = []
        for name in names:
            if (
                self._is_refused(name, refused)
                or name not in book
                or (name not in ledger and not ledger.is_bare)
            ):
                standing.drop(name)
            else:
                candidates.append(name)
        standing.put(ledger.views(candidates))
        self._kept[question] = _Kept(standing, cards, rules)
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        if self._forgotten != self._memo.forgotten:
            self._forgotten = self._memo.forgotten
            self._kept = {q: k for q, k in self._kept.items() if k.standing.is_remembered}
        return standing.decision(request, avoiding=self._avoided(waiting.owner))

    def others(self, waiting: Waiting) -> dict[str, NodeReason]:
        """The nodes with cards that a Pod can't go to by their rules, and why."""
        refused = self._book.answers(waiting.needs, self._volumes.judge(waiting.needs).reach)
        return {
            name: refused[name]
            for name in self._ledger.node_names()
            if self._is_refused(name, refused)
            and self._ledger.view(name).problem is not Reason.NODE_HAS_NO_CARDS
        }

    def _is_refused(self, name: str, refused: Mapping[str, NodeReason]) -> bool:
        """Whether the rules speak of a node; whose agent is silent advertises nothing for that."""
        word = refused.get(name)
        if word is NodeReason.RESOURCE:
            return self._ledger.view(name).problem is None
        return word is not None

    def _question(self, waiting: Waiting) -> Hashable:
        request, reach = waiting.request, self._volumes.judge(waiting.needs).reach
        # A quota is the namespace's, and so is what a message may tell of tenants.
        mine = request.signature, request.pod.namespace, request.priority > 0
        return mine, self._book.kind(waiting.needs, reach)


_NONE = Obstacle()
