"""What the node offers, as the last probe of its cards found it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from cardwise.model import Card


@dataclass(slots=True)
class Offer:
    """The cards, for all who need them; whoever waits is told of a change."""

    cards: tuple[Card, ...] = ()
    """Empty before the first probe, and while the driver fails."""
    oversold: bool = False
    """Whether the node offers more memory than its cards have."""
    settled: bool = True
    """Whether what an administrator sets for this node is in it. Where the API server was never
    reached, nobody knows: kubelet hears of the slots all the same, and no Pod is judged."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next change, which has an event of its own for the change after it."""

    def learn(self, cards: Sequence[Card], *, oversold: bool, settled: bool = True) -> None:
        """This is what there is from now on."""
        before = (self.cards, self.oversold)
        self.settled = settled
        self.cards, self.oversold = tuple(cards), oversold
        if before != (self.cards, self.oversold):
            told, self.changed = self.changed, asyncio.Event()
            told.set()
