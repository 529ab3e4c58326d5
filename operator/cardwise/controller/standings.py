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
        passing = room is not None or len(names) < 2 or question_weight(signature) > _LONG
        if not passing:
            asked, before = self._noted(signature, names)
            # Then it pays to keep the answers: the next may ask about these nodes, too.
            if before is not None and _alike(before, asked):
                return self._up_to_date(signature, asked).decision(request)
        return decide(request, self._ledger.views(names), self._memo, room)

    def _noted(
        self, signature: Signature, names: Collection[str]
    ) -> tuple[frozenset[str], frozenset[str] | None]:
        """Note which nodes a question is about; those, and those it was about the time before."""
        asked = names if isinstance(names, frozenset) else frozenset(names)
        if asked is not self._names and asked == self._names:
            asked = self._names
        self._names = asked
        before = self._asked.pop(signature, None)
        self._asked[signature] = asked
        if len(self._asked) > _ASKED:
            del self._asked[next(iter(self._asked))]
        return asked, before

    def _up_to_date(self, signature: Signature, asked: frozenset[str]) -> Standing:
        """The answers of the nodes that are asked about."""
        kept = self._kept.pop(signature, None)
        changed: Collection[str] | None = None
        if kept is not None:
            changed = self._changed(kept, asked)
        if kept is None or changed is None:
            kept, changed = _Kept(Standing(signature, None, self._memo)), asked
        kept.standing.put(self._ledger.views(changed))
        kept.names, kept.position = asked, self._ledger.journal.position
        self._kept[signature] = kept
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.standing

    def _changed(self, kept: _Kept, asked: frozenset[str]) -> set[str] | None:
        """The nodes to look at again; None: all. Those that are not asked about are dropped."""
        _, touched = self._ledger.journal.since(kept.position)
        if touched is None:
            return None
        touched &= asked
        if kept.names is not asked:
            for gone in kept.names - asked:
                kept.standing.drop(gone)
            touched |= asked - kept.names
        return touched


def _alike(before: frozenset[str], asked: frozenset[str]) -> bool:
    return before is asked or len(before ^ asked) * _ALIKE < len(asked)
