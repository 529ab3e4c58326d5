"""Every node's answer to one question, kept up to date node by node.

Who asks the same again and again, as a queue does for Pods of one kind, need not look at every node
each time: only those whose cards, or whose other rules, changed in between.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Container, Iterable

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
        self._sign = 1 if signature.node_policy is NodePolicy.SPREAD else -1
        self._by_state = not signature.names_uuids
        self._views: dict[str, NodeView] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._refusals: dict[str, Reason] = {}
        self._words: Counter[Reason] = Counter()
        self._heap: list[_Rank] = []
        """Of the nodes that fit the best is first; what is out of date is left in it."""

    @property
    def is_remembered(self) -> bool:
        """Whether the memo has the answers, too: else this keeps what was to be forgotten."""
        return self._memo.knows(self._signature, self.room)

    def put(self, views: Iterable[NodeView]) -> None:
        """Take nodes as they are now."""
        known = self._memo.answers(self._signature, self.room)
        before = len(known)
        ranks: list[_Rank] = []
        for view in views:
            name = view.name
            if name in self._outcomes:
                self._forget(name)
            outcome = known.get(view.state_id) if self._by_state and view.problem is None else None
            if outcome is None:
                outcome = answer(self._signature, view, known, self.room)
            self._views[name], self._outcomes[name] = view, outcome
            if outcome.reason is not None:
                self._words[outcome.reason] += 1
                self._refusals[name] = outcome.reason
            else:
                ranks.append((self._sign * view.score, name))
        self._memo.added((len(known) - before) * answer_weight(self._signature))
        self._rank(ranks)

    def _rank(self, ranks: list[_Rank]) -> None:
        """Put nodes that fit into the order."""
        fitting = len(self._outcomes) - len(self._refusals)
        if len(ranks) == fitting or len(self._heap) + len(ranks) > 2 * fitting + _SPARE:
            self._heap = ranks if len(ranks) == fitting else self._ranks()
            heapq.heapify(self._heap)
        else:
            for rank in ranks:
                heapq.heappush(self._heap, rank)

    def _ranks(self) -> list[_Rank]:
        return [
            (self._sign * view.score, name)
            for name, view in self._views.items()
            if name not in self._refusals
        ]

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
            others = [rank for rank in self._ranks() if rank[1] not in avoiding]
            name = min(others)[1] if others else name
        view = self._views[name] if name is not None else None
        return Decision(
            request=request,
            node=name,
            booking=booking_on(request, view, self._outcomes[view.name]) if view else None,
            outcomes=self._outcomes,
            reason=None if view else leading_of(self._words),
            refusals=self._refusals,
        )

    def choice(self, request: Request, among: Container[str], *, tries: int) -> Decision | None:
        """Choose one of these nodes as `decide` over them would, by asking of each in its turn.

        Args:
            request: the Pod.
            among: nodes; of those that are no candidates here none may fit.
            tries: how many are asked of, the best first.

        Returns:
            A decision that tells of the chosen node alone; None where none of the first fits.
        """
        passed: list[_Rank] = []
        chosen: str | None = None
        while len(passed) < tries and (name := self._best()) is not None:
            if name in among:
                chosen = name
                break
            passed.append(heapq.heappop(self._heap))
        for rank in passed:
            heapq.heappush(self._heap, rank)
        if chosen is None:
            return None
        view, outcome = self._views[chosen], self._outcomes[chosen]
        return Decision(
            request=request,
            node=chosen,
            booking=booking_on(request, view, outcome),
            outcomes={chosen: outcome},
            reason=None,
            refusals={},
        )

    def _best(self) -> str | None:
        while self._heap:
            score, name = self._heap[0]
            view = self._views.get(name)
            if view is not None and name not in self._refusals and self._sign * view.score == score:
                return name
            heapq.heappop(self._heap)
        return None

    def _forget(self, name: str) -> bool:
        """Take out what is known of a node's answer; whether there was any."""
        outcome = self._outcomes.get(name)
        if outcome is None:
            return False
        if outcome.reason is not None:
            del self._refusals[name]
            self._words[outcome.reason] -= 1
            if not self._words[outcome.reason]:
                del self._words[outcome.reason]
        return True
