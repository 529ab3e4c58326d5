"""Which cards are well: a verdict that outlives the single look.

Separate from reading, because a card can answer every question and have failed all the same, and
because one good answer after a failure proves little. Pure: a look is what time is here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cardwise.names import CardEvent
from cardwise.ports import CardReading, Readings, Xid

GOOD_LOOKS = 2
"""One after the other, after which a card that was ill is well again."""

_NAMES = {
    48: "uncorrectable memory error",
    62: "the card's own controller halted",
    63: "a memory row was retired",
    64: "a memory row could not be retired",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the card's system processor does not answer",
    120: "the card's system processor failed",
}
"""What NVIDIA's catalogue of Xids says of the more frequent ones, in few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that people should hear of."""

    event: CardEvent
    card: CardReading | None = None
    """None: it is about the driver."""
    reason: str = ""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        if self.card is None:
            return f"the driver {_SENTENCES[self.event]}{reason}"
        return f"GPU {self.card.index} ({self.card.uuid}) {_SENTENCES[self.event]}{reason}"


_SENTENCES = {
    CardEvent.UNHEALTHY: "takes no new Pod",
    CardEvent.HEALTHY: "is well again",
    CardEvent.GONE: "is listed no more; its tenants stay counted until they end",
    CardEvent.DRIVER_FAILED: "fails, and the node's cards are not offered",
    CardEvent.DRIVER_ANSWERS: "answers again",
    CardEvent.MEMORY_UNKNOWN: "does not tell the memory of every card",
}


@dataclass(slots=True)
class _Illness:
    """Why a card is not well."""

    reason: str
    told: bool = True
    """False: the driver's failure was told, in place of each card's."""
    xid: bool = False
    """It has a number, which says more than what the card's questions then get."""
    good: int = 0
    """Looks that found nothing, since the last that did."""


class Health:
    """The verdicts about one machine's cards."""

    def __init__(self, ignored: Iterable[int] = ()) -> None:
        """Begin with no verdict.

        Args:
            ignored: Xids that a program on the card is to blame for.
        """
        self._ignored = frozenset(ignored)
        self._ill: dict[str, _Illness] = {}
        self._seen: dict[str, CardReading] = {}
        """The cards of the last look, by UUID."""
        self._failed = False

    def judge(self, readings: Readings) -> tuple[Readings, tuple[Change, ...]]:
        """The readings with each card's verdict in them, and what is news in that."""
        changes: list[Change] = []
        if self._failed:
            self._failed = False
            changes.append(Change(event=CardEvent.DRIVER_ANSWERS))
        xids = [xid for xid in readings.xids if xid.number not in self._ignored]
        cards = []
        for card in readings.cards:
            change = self._look(card, [xid for xid in xids if xid.uuid in ("", card.uuid)])
            if change is not None:
                changes.append(change)
            illness = self._ill.get(card.uuid)
            cards.append(replace(card, trouble=illness.reason if illness else ""))
        listed = {card.uuid: card for card in cards}
        for uuid in [uuid for uuid in self._seen if uuid not in listed]:
            self._ill.pop(uuid, None)
            changes.append(Change(event=CardEvent.GONE, card=self._seen[uuid]))
        self._seen = listed
        return replace(readings, cards=tuple(cards)), tuple(changes)

    def fail(self, why: str) -> tuple[Change, ...]:
        """The driver fails as a whole: no card is well, and that is news at the first time."""
        for uuid in self._seen:
            illness = self._ill.setdefault(uuid, _Illness(f"the driver failed: {why}", told=False))
            illness.good = 0
        if self._failed:
            return ()
        self._failed = True
        return (Change(event=CardEvent.DRIVER_FAILED, reason=why),)

    def _look(self, card: CardReading, xids: list[Xid]) -> Change | None:
        """Take in one look at one card."""
        illness = self._ill.get(card.uuid)
        if xids or card.trouble:
            if illness is None or not illness.told:
                new = _Illness(_reason(card, xids), xid=bool(xids))
                self._ill[card.uuid] = new
                return Change(event=CardEvent.UNHEALTHY, card=card, reason=new.reason)
            if xids or not illness.xid:
                illness.reason, illness.xid = _reason(card, xids), bool(xids)
            illness.good = 0
            return None
        if illness is None:
            return None
        illness.good += 1
        if illness.good < GOOD_LOOKS:
            return None
        del self._ill[card.uuid]
        if not illness.told:
            return None
        return Change(event=CardEvent.HEALTHY, card=card, reason=f"it had {illness.reason}")


def _reason(card: CardReading, xids: list[Xid]) -> str:
    numbers = sorted({xid.number for xid in xids})
    if not numbers:
        return card.trouble
    return ", ".join(
        f"Xid {number}: {_NAMES[number]}" if number in _NAMES else f"Xid {number}"
        for number in numbers
    )
