"""What the ledger keeps of a Pod, and what it is told of one.

A Pod's life: waiting → held → binding → booked → gone, never backwards but for held → waiting. The
entry is data; the rules of moving are the ledger's.
"""

from dataclasses import dataclass
from enum import Enum

from cardwise.model import Booking, PodRef, Request
from cardwise.names import WaitReason


class Stage(Enum):
    """Where a Pod stands."""

    WAITING = "waiting"
    """It was refused; it holds nothing."""
    HELD = "held"
    """/filter chose cards; nothing is written yet."""
    BINDING = "binding"
    """The Binding was sent; until the outcome is known the cards are taken."""
    BOOKED = "booked"
    """It has its cards: bound with them, or pinned to their node."""


@dataclass(slots=True)
class PodEntry:
    """What the ledger knows of one Pod that asks for cards."""

    pod: PodRef
    stage: Stage
    changed: float
    """Monotonic seconds of the last change of stage or cards."""
    booking: Booking | None = None
    """The cards; None while waiting, and for a bound Pod whose allocation can't be read."""
    request: Request | None = None
    """What it asked, where /filter saw it: so that /bind can check its hold or decide anew."""
    reason: WaitReason | None = None
    """Why it waits."""
    version: int = 0
    """The newest resourceVersion seen in an event of this UID."""
    node: str | None = None
    """Where it is placed, held or being bound."""
    seen_bound: bool = False
    """While binding: the watch already showed it bound; ``booking`` is what it showed."""
    seen_cardless: bool = False
    """While binding: the watch already showed it bound without cards, by somebody else."""
    seen_gone: bool = False
    """While binding: the watch already showed its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one event, or one line of a list, says of a Pod."""

    pod: PodRef
    version: int
    node: str | None = None
    """Where it is placed: bound, or pinned; None while it is not."""
    booking: Booking | None = None
    unreadable: str | None = None
    """Why its allocation annotation can't be read."""
    handing: bool = False
    """It is placed, and has not been handed its cards yet."""
    gone: bool = False
    """Deleted, Succeeded or Failed: it holds nothing any more, and never will."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One difference between the ledger and a consistent list, and what was done about it."""

    pod: PodRef
    what: str
