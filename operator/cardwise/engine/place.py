"""A whole Pod on one node: every container's cards, or the refusal.

The law is docs/placement.md sections 3, 7 and 8.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from cardwise.engine.candidates import Sight
from cardwise.engine.chain import Choice, choose
from cardwise.engine.score import card_score
from cardwise.engine.usage import Tally, cores_taken
from cardwise.model import (
    Ask,
    CardState,
    CardUse,
    CardVerdict,
    NodeState,
    Outcome,
    Pick,
    QuotaRoom,
    Signature,
)
from cardwise.names import MODE_MIG, Reason

MIG_DETAIL = "cards in mig mode are not placed yet"


def place(
    signature: Signature,
    state: NodeState,
    *,
    allowed: Sequence[bool] | None = None,
    room: QuotaRoom | None = None,
) -> Outcome:
    """Place a Pod on a node in this state; the same arguments always give the same outcome.

    Args:
        signature: what the Pod asks.
        state: the node, as other Pods use it.
        allowed: per card, whether the Pod's UUID lists allow it (None: all).
        room: what the namespace's quota leaves (None: no bound).
    """
    if max(ask.count for ask in signature.asks) > len(state.cards):
        return Outcome(reason=Reason.NODE_TOO_FEW_CARDS)
    pod = _PodOnNode(signature, state, allowed, room)
    picks: list[tuple[Pick, ...]] = []
    told: tuple[int, tuple[CardVerdict, ...]] | None = None
    for number, ask in enumerate(signature.asks):
        if ask.count == 0:
            picks.append(())
            continue
        sights = pod.look(ask)
        choice = choose(sights, ask.count, state.links)
        verdicts = _verdicts(sights, choice)
        if choice.chosen is None:
            return Outcome(
                reason=leading_reason(choice.refusals),
                container=number,
                cards=verdicts,
                detail=choice.detail or _detail(sights, choice),
            )
        if told is None:
            told = number, verdicts
        picks.append(pod.take(ask, sights, choice.chosen))
    container, cards = told or (0, ())
    return Outcome(picks=tuple(picks), container=container, cards=cards)


def leading_reason(refusals: Iterable[Reason | None]) -> Reason | None:
    """The word of a node: the most frequent, at a tie the later in the table (section 3).

    Where a later check refused a card, the words of checks 1 to 4 are not counted: they say which
    cards were out of the question, not why the others can't be had. Where all that got past them
    could take the request, and are only too few, theirs are the only words there are.
    """
    counts = Counter(reason for reason in refusals if reason is not None)
    words = {reason: n for reason, n in counts.items() if not reason.is_of_identity} or counts
    return max(words, key=lambda reason: (words[reason], reason.rank), default=None)


class _PodOnNode:
    """The Pod's own use of the node's cards, while its containers are placed one by one."""

    def __init__(
        self,
        signature: Signature,
        state: NodeState,
        allowed: Sequence[bool] | None,
        room: QuotaRoom | None,
    ) -> None:
        self._signature = signature
        self._cards = state.cards
        self._allowed = allowed
        self._tally: Tally[int] = Tally()
        self._quota = _QuotaTally(room, exclusive=signature.exclusive) if room else None

    def look(self, ask: Ask) -> list[Sight]:
        """See every card of the node as this container sees it."""
        sights: list[Sight] = []
        weights = self._signature.weights
        for position, card in enumerate(self._cards):
            sight = Sight(card, ask, self._signature, self._tally.seen(position))
            sight.score = card_score(
                card, weights, sight.used_slots, sight.used_memory_mib, sight.used_cores
            )
            if self._allowed is not None:
                sight.allowed = self._allowed[position]
            if self._quota is not None:
                sight.quota_fits = self._quota.fits(position, card, ask)
            sights.append(sight)
        return sights

    def take(self, ask: Ask, sights: list[Sight], chosen: list[Sight]) -> tuple[Pick, ...]:
        """Give the chosen cards to the container."""
        positions = {id(sight): position for position, sight in enumerate(sights)}
        picks: list[Pick] = []
        for sight in chosen:
            position, card = positions[id(sight)], sight.card
            taken = cores_taken(ask.cores, card.cores)
            self._tally.add(position, ask.kind, sight.memory_mib, taken)
            if self._quota is not None:
                self._quota.take(position, card, ask)
            picks.append(Pick(position, sight.memory_mib, ask.cores))
        return tuple(picks)


class _QuotaTally:
    """What the Pod takes of its namespace's quota so far (section 8).

    Kept apart from the use of the cards: a quota counts the cores that were asked, whatever
    ``coreScaling`` made of them, and an exclusive Pod's card as a whole, once.
    """

    def __init__(self, room: QuotaRoom, *, exclusive: bool) -> None:
        self._room = room
        self._exclusive = exclusive
        self._tally: Tally[int] = Tally()
        self._taken = CardUse()

    def fits(self, position: int, card: CardState, ask: Ask) -> bool:
        """Whether ``ask.count`` cards, each at what this one would cost, stay in the bounds."""
        cost = self._cost(position, card, ask)
        memory, cores = self._room.memory_mib, self._room.cores
        return (
            memory is None or self._taken.memory_mib + ask.count * cost.memory_mib <= memory
        ) and (cores is None or self._taken.cores + ask.count * cost.cores <= cores)

    def take(self, position: int, card: CardState, ask: Ask) -> None:
        """Count a card that was chosen."""
        cost = self._cost(position, card, ask)
        self._taken = CardUse(
            0, self._taken.memory_mib + cost.memory_mib, self._taken.cores + cost.cores
        )
        self._tally.add(position, ask.kind, ask.memory_on(card.memory_mib), ask.cores)

    def _cost(self, position: int, card: CardState, ask: Ask) -> CardUse:
        if not self._exclusive:
            return self._tally.growth(position, ask.memory_on(card.memory_mib), ask.cores)
        if self._tally.use(position).slots:
            return CardUse()
        return CardUse(0, card.memory_mib, card.cores)


def _verdicts(sights: Sequence[Sight], choice: Choice) -> tuple[CardVerdict, ...]:
    return tuple(
        CardVerdict(sight.card.index, sight.score, reason)
        for sight, reason in zip(sights, choice.refusals, strict=True)
    )


def _detail(sights: Sequence[Sight], choice: Choice) -> str:
    """Say what the word ``CardTypeMismatch`` hides: a card in mig mode is not placed yet."""
    for sight, reason in zip(sights, choice.refusals, strict=True):
        if reason is Reason.CARD_TYPE and sight.card.mode == MODE_MIG:
            return MIG_DETAIL
    return ""
