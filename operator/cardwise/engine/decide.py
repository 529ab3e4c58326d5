"""Over nodes: place the Pod on each, choose one (docs/placement.md sections 3 and 4).

Nodes in the same state are the same question, so answers are kept in a ``Memo``: a thousand idle
nodes cost one evaluation, and the next equal request costs the one node that changed.
"""

from collections import Counter
from collections.abc import Iterable

from cardwise.engine.place import place
from cardwise.model import (
    Booking,
    Decision,
    NodeView,
    Outcome,
    QuotaRoom,
    Request,
    Share,
    Signature,
)
from cardwise.names import NodePolicy, Reason

_Key = int | tuple[int, tuple[bool, ...]]
_CHARACTERS = 64
"""Of a user's word that weigh as much as an answer."""
_PICKS = 16
"""Cards given that weigh as much as the rest of an answer."""
_MOST_CARDS = 64
"""A node has no more: who asks for more gets none."""
_SECONDARY = frozenset({Reason.NODE_NOT_REPORTED, Reason.NODE_TOO_FEW_CARDS})


class Memo:
    """Outcomes that are known already, by signature, quota room and node state.

    A cache of a pure function: with or without it every answer is the same.
    """

    def __init__(self, limit: int = 200_000) -> None:
        """Make an empty memo.

        Args:
            limit: outcomes kept, each question counted as one more a container, a UUID, a part of
                a model's name, and 64 characters of one; an outcome of many cards counts more,
                too. Above it, those of the longest unused question go first.
        """
        self._limit = limit
        self._answers: dict[tuple[Signature, QuotaRoom | None], dict[_Key, Outcome]] = {}
        self._size = 0
        self.forgotten = 0
        """How many questions were dropped so far."""

    def __len__(self) -> int:
        """Outcomes and questions that are kept."""
        return self._size

    def answers(self, signature: Signature, room: QuotaRoom | None) -> dict[_Key, Outcome]:
        """The answers known for a question; the caller adds to them, then calls ``added``."""
        question = (signature, room)
        known = self._answers.pop(question, None)
        if known is None:
            known = {}
            self._size += question_weight(signature)
        self._answers[question] = known  # last in the dictionary's order: used last
        return known

    def knows(self, signature: Signature, room: QuotaRoom | None) -> bool:
        """Whether a question was asked and is not forgotten."""
        return (signature, room) in self._answers

    def added(self, count: int) -> None:
        """Take note of the weight of answers that were added, and drop old ones above the limit."""
        self._size += count
        while self._size > self._limit:
            oldest = next(iter(self._answers))
            answers = self._answers.pop(oldest)
            self.forgotten += 1
            self._size -= question_weight(oldest[0]) + len(answers) * answer_weight(oldest[0])


def question_weight(signature: Signature) -> int:
    """What a question counts beside its answers: it may stay without any, and be long."""
    several = (
        signature.use_uuids,
        signature.nouse_uuids,
        signature.use_types,
        signature.nouse_types,
    )
    written = sum(1 + len(word) // _CHARACTERS for words in several for word in words)
    return len(signature.asks) + written


def answer_weight(signature: Signature) -> int:
    """What one answer counts in a memo: of most Pods 1, of one with hundreds of containers more."""
    return 1 + sum(min(ask.count, _MOST_CARDS) for ask in signature.asks) // _PICKS


def decide(
    request: Request, views: Iterable[NodeView], memo: Memo, room: QuotaRoom | None = None
) -> Decision:
    """Choose a node and its cards for a Pod, or say of every node why it can't be.

    Args:
        request: the Pod.
        views: the nodes to choose from; their order does not matter.
        memo: what is known already.
        room: what the namespace's quota leaves.
    """
    signature = request.signature
    known = memo.answers(signature, room)
    before = len(known)
    outcomes: dict[str, Outcome] = {}
    refusals: dict[str, Reason] = {}
    best: NodeView | None = None
    spread = signature.node_policy is NodePolicy.SPREAD
    best_rank: tuple[int, str] | None = None
    by_state = not signature.names_uuids
    for view in views:
        outcome = known.get(view.state_id) if by_state and view.problem is None else None
        if outcome is None:
            outcome = answer(signature, view, known, room)
        outcomes[view.name] = outcome
        if outcome.reason is not None:
            refusals[view.name] = outcome.reason
        else:
            rank = (view.score if spread else -view.score, view.name)
            if best_rank is None or rank < best_rank:
                best, best_rank = view, rank
    memo.added((len(known) - before) * answer_weight(signature))
    return Decision(
        request=request,
        node=best.name if best else None,
        booking=booking_on(request, best, outcomes[best.name]) if best else None,
        outcomes=outcomes,
        reason=None if best else leading_word(refusals.values()),
        refusals=refusals,
    )


def leading_word(reasons: Iterable[Reason | None]) -> Reason | None:
    """The word of most nodes, at a tie the later in the table (section 3).

    Words that say a node was out of the question (not reported, too few cards, or checks 1 to 4)
    count only where there are no others; that a node has no cards at all, only where no node has
    any: CPU-only nodes, however many, are no news to who asks for a card.
    """
    return leading_of(Counter(reason for reason in reasons if reason is not None))


def leading_of(counts: Counter[Reason]) -> Reason | None:
    """As `leading_word`, of words that are counted already."""
    cards = counts.copy()
    del cards[Reason.NODE_HAS_NO_CARDS]
    telling = {r: n for r, n in cards.items() if r not in _SECONDARY and not r.is_of_identity}
    words = telling or cards or counts
    return max(words, key=lambda reason: (words[reason], reason.rank), default=None)


_PROBLEMS = {reason: Outcome(reason=reason) for reason in Reason}


def answer(
    signature: Signature, view: NodeView, known: dict[_Key, Outcome], room: QuotaRoom | None
) -> Outcome:
    """One node's outcome, from the answers of a memo where it is known.

    That a node hands cards over is its answer only to a Pod that would fit there: any other waits
    for something that lasts.
    """
    if view.problem not in (None, Reason.NODE_HANDING_OVER):
        return _problem(view.problem, view.problem_detail)
    allowed: tuple[bool, ...] | None = None
    key: _Key = view.state_id
    if signature.names_uuids:
        allowed = tuple(_allows(signature, uuid) for uuid in view.uuids)
        key = (view.state_id, allowed)
    outcome = known.get(key)
    if outcome is None:
        outcome = known[key] = place(signature, view.state, allowed=allowed, room=room)
    if view.problem is not None and outcome.reason is None:
        return _problem(view.problem, view.problem_detail)
    return outcome


def _problem(reason: Reason, detail: str) -> Outcome:
    return Outcome(reason=reason, detail=detail) if detail else _PROBLEMS[reason]


def _allows(signature: Signature, uuid: str) -> bool:
    """Whether the Pod's UUID lists allow a card; nouse wins (section 1)."""
    if uuid in signature.nouse_uuids:
        return False
    return not signature.use_uuids or uuid in signature.use_uuids


def booking_on(request: Request, view: NodeView, outcome: Outcome) -> Booking:
    """Turn positions into the UUIDs of the node that was chosen."""
    assert outcome.picks is not None  # noqa: S101 - the caller chose a node that fits
    return Booking(
        node=view.name,
        containers=tuple(
            tuple(Share(view.uuids[pick.position], pick.memory_mib, pick.cores) for pick in picks)
            for picks in outcome.picks
        ),
        kinds=tuple(ask.kind for ask in request.signature.asks),
        exclusive=request.signature.exclusive,
    )
