"""The nodes' answers to the questions that were asked last, kept up to date for kube-scheduler.

It asks about all nodes for each Pod, and Pods come in kinds: of thousands of answers, those of the
few nodes where something happened since are looked at again. A cache: what it says is what `decide`
over the same nodes would say.
"""

from collections.abc import Collection
from dataclasses import dataclass

from cardwise.engine.decide import Memo, decide, question_weight
from cardwise.engine.standing import Standing
from cardwise.journal import START
from cardwise.ledger import Ledger
from cardwise.model import Decision, Request, Signature
from cardwise.wire.nodenames import NodeNames

_KEPT = 64
"""Questions whose answers are kept: of those asked last. Of 5,000 nodes one has 0.6 MB, and 5.5
where no two are in the same state."""
_ASKED = 256
"""Questions of which is known which nodes they were about."""
_LONG = 16
"""A question that weighs more in the memo is not remembered: one of many containers, or with lists
of UUIDs, which may come to a megabyte."""
_ALIKE = 16
"""Two sets of nodes are alike where they differ by less than one in so many."""
FEW = 100
"""Nodes that are looked at one by one, for a person to read of each why it does not fit."""
_TRIES = 8
"""Nodes of which it is looked whether they are among those asked about, before these are read."""


@dataclass(slots=True)
class _Kept:
    """The answers to one question, the nodes that they are of, and what they are as of."""

    standing: Standing
    names: frozenset[str] = frozenset()
    position: int = START


class Standings:
    """Decides on the ledger, remembering what it can.

    A question is answered in one of three ways, which say the same: from the answers of all nodes
    of the ledger, without looking at what nodes are asked about but whether the best is among them;
    from the answers of the nodes asked about, where it was about the same the time before; afresh.
    """

    def __init__(self, ledger: Ledger, memo: Memo, *, few: int = FEW) -> None:
        """Remember nothing yet.

        Args:
            ledger: who has which card.
            memo: of answers by state, which all questions share.
            few: a question about no more nodes is answered by a look at each of them.
        """
        self._ledger = ledger
        self._memo = memo
        self._few = few
        self._kept: dict[tuple[Signature, bool], _Kept] = {}
        """By the question, and whether the answers are those of all nodes of the ledger."""
        self._forgotten = memo.forgotten
        """What the memo forgets is not kept either: its limit is that of both."""
        self._asked: dict[Signature, frozenset[str]] = {}
        self._names: frozenset[str] = frozenset()
        """Those asked about last: most questions are about the same nodes, and share them."""

    def decision(self, request: Request, names: Collection[str]) -> Decision:
        """Choose one of these nodes, and its cards.

        The outcomes are as of now, and change with the next decision.
        """
        room = self._ledger.room(request.pod.namespace)
        signature = request.signature
        # What a quota leaves changes with each Pod of its namespace: each time another question.
        passing = room is not None or len(names) < 2 or question_weight(signature) > _LONG
        if not passing:
            chosen = self._chosen_of_all(request, names)
            if chosen is not None:
                return chosen
            asked, before = self._noted(signature, names)
            # Then it pays to keep the answers: the next may ask about these nodes, too.
            if before is not None and _alike(before, asked):
                return self._of_those_asked(signature, asked).decision(request)
        return decide(request, self._ledger.views(names), self._memo, room)

    def _chosen_of_all(self, request: Request, names: Collection[str]) -> Decision | None:
        """The choice, where nearly all nodes are asked about and it is among the best of all.

        A node that the ledger does not know has no cards, so whoever fits is one of the ledger's.
        """
        signature = request.signature
        if len(names) <= self._few or signature not in self._asked:
            return None
        all_nodes = self._ledger.node_count
        if (all_nodes - len(names)) * _ALIKE > all_nodes:
            return None
        kept = self._kept.pop((signature, True), None)
        touched = self._touched(kept)
        if kept is None or touched is None:
            kept = _Kept(Standing(signature, None, self._memo))
            touched = set(self._ledger.node_names())
        gone = {name for name in touched if name not in self._ledger}
        for name in gone:
            kept.standing.drop(name)
        self._keep((signature, True), kept, touched - gone)
        self._asked[signature] = self._asked.pop(signature)
        return kept.standing.choice(request, names, tries=_TRIES)

    def _noted(
        self, signature: Signature, names: Collection[str]
    ) -> tuple[frozenset[str], frozenset[str] | None]:
        """Note which nodes a question is about; those, and those it was about the time before."""
        asked = names.distinct if isinstance(names, NodeNames) else frozenset(names)
        if asked is not self._names and asked == self._names:
            asked = self._names
        self._names = asked
        before = self._asked.pop(signature, None)
        self._asked[signature] = asked
        if len(self._asked) > _ASKED:
            del self._asked[next(iter(self._asked))]
        return asked, before

    def _of_those_asked(self, signature: Signature, asked: frozenset[str]) -> Standing:
        """The answers of the nodes that are asked about."""
        kept = self._kept.pop((signature, False), None)
        changed = self._touched(kept)
        if kept is None or changed is None:
            kept, changed = _Kept(Standing(signature, None, self._memo)), set(asked)
        changed &= asked
        for gone in kept.names - asked if kept.names is not asked else ():
            kept.standing.drop(gone)
        changed |= asked - kept.names if kept.names is not asked else set()
        kept.names = asked
        self._keep((signature, False), kept, changed)
        return kept.standing

    def _touched(self, kept: _Kept | None) -> set[str] | None:
        """The nodes where something happened since; None: all, for all that is known."""
        return None if kept is None else self._ledger.journal.since(kept.position)[1]

    def _keep(
        self, question: tuple[Signature, bool], kept: _Kept, changed: Collection[str]
    ) -> None:
        """Bring answers up to date, and keep them as those asked for last."""
        kept.standing.put(self._ledger.views(changed))
        kept.position = self._ledger.journal.position
        self._kept[question] = kept
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        if self._forgotten != self._memo.forgotten:
            self._forgotten = self._memo.forgotten
            self._kept = {q: k for q, k in self._kept.items() if k.standing.is_remembered}


def _alike(before: frozenset[str], asked: frozenset[str]) -> bool:
    return before is asked or len(before ^ asked) * _ALIKE < len(asked)
