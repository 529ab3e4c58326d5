"""Every node's answer to one question, kept up to date node by node.

Who asks the same again and again, as a queue does for Pods of one kind, need not look at every node
each time: only those whose cards, or whose other rules, changed in between.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable

from cardwise.engine.decide import Memo, answer, answer_weight, booking_on, leading_of
from cardwise.model import Decision, NodeView, Outcome, QuotaRoom, Request, Signature
from cardwise.names import NodePolicy, Reason

_Rank = tuple[int, str]
_SPARE = 64
"""Ranks out of date that a heap may hold before it is made anew, beside as many as are in use."""


class Standing:
    """The answers of all candidates, for one signature and one room in the quota.

    A cache of a pure function: `decision` says what `decide` over the same nodes would.
    """

    def __init__(self, signature: Signature, room: QuotaRoom | None, memo: Memo) -> None:
        """Know of no node.

        Args:
            signature: what is asked.
            room: what the namespace's quota leaves; another room is another question.
            memo: of answers by state, which all questions share.
        """
        self.room = room
        self._signature = signature
        self._memo = memo
        self._spread = signature.node_policy is NodePolicy.SPREAD
        self._views: dict[str, NodeView] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._words: Counter[Reason] = Counter()
        self._ranks: dict[str, _Rank] = {}
        self._heap: list[_Rank] = []

    def put(self, views: Iterable[NodeView]) -> None:
        """Take nodes as they are now."""
        known = self._memo.answers(self._signature, self.room)
        before = len(known)
        for view in views:
            outcome = answer(self._signature, view, known, self.room)
            self._forget(view.name)
            self._views[view.name], self._outcomes[view.name] = view, outcome
            if outcome.reason is not None:
                self._words[outcome.reason] += 1
            else:
                rank = self._ranks[view.name] = (
                    view.score if self._spread else -view.score,
                    view.name,
                )
                heapq.heappush(self._heap, rank)
        self._memo.added((len(known) - before) * answer_weight(self._signature))
        if len(self._heap) > 2 * len(self._ranks) + _SPARE:
            self._heap = sorted(self._ranks.values())

    def drop(self, name: str) -> None:
        """A node is no candidate any more."""
        if self._forget(name):
            del self._views[name], self._outcomes[name]

    def decision(self, request: Request, *, avoiding: Collection[str] = ()) -> Decision:
        """Choose for a Pod of this signature, as `decide` does.

        Its outcomes are those of now: the next node that is put or dropped changes them.

        Args:
            request: the Pod.
            avoiding: nodes that are chosen only where no other fits.
        """
        name = self._best()
        if name in avoiding:
            others = [rank for node, rank in self._ranks.items() if node not in avoiding]
            name = min(others)[1] if others else name
        view = self._views[name] if name is not None else None
        return Decision(
            request=request,
            node=name,
            booking=booking_on(request, view, self._outcomes[view.name]) if view else None,
            outcomes=self._outcomes,
            reason=None if view else leading_of(self._words),
        )

    def _best(self) -> str | None:
        while self._heap:
            rank = self._heap[0]
            if self._ranks.get(rank[1]) == rank:
                return rank[1]
            heapq.heappop(self._heap)
        return None

    def _forget(self, name: str) -> bool:
        """Take out what is known of a node's answer; whether there was any."""
        outcome = self._outcomes.get(name)
        if outcome is None:
            return False
        self._ranks.pop(name, None)
        if outcome.reason is not None:
            self._words[outcome.reason] -= 1
            if not self._words[outcome.reason]:
                del self._words[outcome.reason]
        return True
