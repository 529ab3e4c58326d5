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

_KEPT = 64
"""Questions whose answers are kept: of those asked last. Of 5,000 nodes one has some 2 MB."""
_ASKED = 256
"""Questions of which is known which nodes they were about."""
_LONG = 16
"""A question that weighs more in the memo is not remembered: one of many containers, or with lists
of UUIDs, which may come to a megabyte."""
_ALIKE = 16
"""Two sets of nodes are alike where they differ by less than one in so many."""


@dataclass(slots=True)
class _Kept:
    """The answers to one question, the nodes that they are of, and what they are as of."""

    standing: Standing
    names: frozenset[str] = frozenset()
    position: int = START


class Standings:
    """Decides on the ledger, remembering what it can."""

    def __init__(self, ledger: Ledger, memo: Memo) -> None:
        """Remember nothing yet.

        Args:
            ledger: who has which card.
            memo: of answers by state, which all questions share.
        """
        self._ledger = ledger
        self._memo = memo
        self._kept: dict[Signature, _Kept] = {}
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
        rare = room is not None or len(names) < 2 or question_weight(signature) > _LONG
        if rare or not self._is_again(signature, names):
            return decide(request, self._ledger.views(names), self._memo, room)
        return self._up_to_date(signature).decision(request)

    def _is_again(self, signature: Signature, names: Collection[str]) -> bool:
        """Whether whoever asked this last asked about the same nodes, or nearly.

        Then it pays to keep the answers: the next may do so, too.
        """
        asked = names if isinstance(names, frozenset) else frozenset(names)
        if asked == self._names:
            asked = self._names
        self._names = asked
        before = self._asked.pop(signature, None)
        self._asked[signature] = asked
        if len(self._asked) > _ASKED:
            del self._asked[next(iter(self._asked))]
        if before is None or before is asked:
            return before is asked
        return len(before ^ asked) * _ALIKE < len(asked)

    def _up_to_date(self, signature: Signature) -> Standing:
        """The answers of the nodes that are asked about now."""
        kept = self._kept.pop(signature, None)
        changed: Collection[str] | None = None
        if kept is not None:
            changed = self._changed(kept)
        if kept is None or changed is None:
            kept, changed = _Kept(Standing(signature, None, self._memo)), self._names
        kept.standing.put(self._ledger.views(changed))
        kept.names, kept.position = self._names, self._ledger.journal.position
        self._kept[signature] = kept
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.standing

    def _changed(self, kept: _Kept) -> set[str] | None:
        """The nodes to look at again; None: all. Those that are not asked about are dropped."""
        _, touched = self._ledger.journal.since(kept.position)
        if touched is None:
            return None
        touched &= self._names
        if kept.names is not self._names:
            for gone in kept.names - self._names:
                kept.standing.drop(gone)
            touched |= self._names - kept.names
        return touched
