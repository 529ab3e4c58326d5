"""What the Lease of the kube-scheduler beside us allows now, by what was seen of it, and when.

Pure bookkeeping over looks at the Lease; ``activity`` does the looking. Two rules of it keep two
replicas from binding at the same time, without comparing the clocks of two machines:

- A holder may bind until 5 s before another scheduler could take the Lease, counted from the
  earliest moment at which the last renewal that it saw can have been written; and only while its
  last look at the Lease is no older than 4 s.
- Who takes the Lease begins when the former holder can have no Binding under way any more: the
  duration of the Lease less 3 s after the last renewal of it was seen, or 6 s after the Lease was
  seen not to be its any more. The first is over when a Lease expired; the second is what a Lease
  costs that was given back.

A third keeps a scheduler from holding the Lease in vain: a controller that can't act beside it for
20 s says so, and kubelet restarts that scheduler, which gives the Lease back.
"""

import socket
from dataclasses import dataclass, field
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cardwise.wire.fields import at, quoted, text

WRITE_SECONDS = 2.0
"""Deadline of one Binding, or of one pin."""
_MARGIN_SECONDS = 5.0
_BLIND_SECONDS = 4.0
_AFTER_LOOK_SECONDS = _BLIND_SECONDS + WRITE_SECONDS
STUCK_SECONDS = 20.0
"""A holder that could not act for so long will not by itself. It is more than the longest beginning
of a term: the 6 s, and a list of a large cluster."""
_NEVER = float("-inf")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """Which Lease the schedulers of all replicas compete for, and which of them is ours."""

    namespace: str = SYSTEM_NAMESPACE
    name: str = SCHEDULER_NAME
    identity: str = field(default_factory=socket.gethostname)
    """The host name that the identity of the scheduler beside us begins with."""


@dataclass(frozen=True, slots=True)
class _Record:
    """What a Lease says. Its times are another machine's: they are compared for equality alone."""

    holder: str = ""
    transitions: object = None
    renewed: object = None
    seconds: float = 0.0

    @property
    def hands(self) -> tuple[str, object]:
        """Another value: the Lease went to other hands, or through them."""
        return self.holder, self.transitions


class Tenure:
    """Whether the Lease is our scheduler's, since when, and until when we may act by it."""

    def __init__(self, identity: str, clock: Clock) -> None:
        """Know nothing yet.

        Args:
            identity: the host name that our scheduler's identity begins with.
            clock: its monotonic time is compared with that of the looks.
        """
        self.term = 0
        """Counts the hands that the Lease was seen in."""
        self._prefix = f"{identity}_"  # kube-scheduler calls itself <host name>_<UUID>
        self._clock = clock
        self._record: _Record | None = None
        self._looked = _NEVER
        self._renewed = _NEVER
        self._listed = False
        self._others_until = _NEVER
        self._well = clock.monotonic()
        """When we last could act, or another was there to, or this term began."""

    # What was seen --------------------------------------------------------------------------------

    def see(self, lease: Json | None, asked: float, answered: float) -> None:
        """Take what a look at the Lease showed.

        Args:
            lease: None where there is none.
            asked: monotonic seconds when the look began.
            answered: monotonic seconds when its answer was there.
        """
        self._take(_record_of(lease), asked, answered)
        if not self.ours or not self.refusal():
            self._well = answered

    def _take(self, record: _Record, asked: float, answered: float) -> None:
        known = self._record
        before, self._looked, self._record = self._looked, asked, record
        if known is None or record.hands != known.hands:
            given_up = answered + _AFTER_LOOK_SECONDS
            # Whoever looked away may have missed another's whole term.
            seen_all = asked - before <= _BLIND_SECONDS
            self._others_until = min(self._others_until, given_up) if seen_all else given_up
            self.term += 1
            self._listed = False
            self._well = answered
        elif record.renewed == known.renewed:
            return
        # The look before showed another state, so this one was written after that look began. In
        # the first look of all there is no telling: its renewal may be as old as it likes.
        self._renewed = before
        if record.holder and not self.ours:
            sent_until = record.seconds - _MARGIN_SECONDS
            self._others_until = max(self._others_until, answered + sent_until + WRITE_SECONDS)

    def listed(self) -> None:
        """Pods were listed, and the list was begun in this term, after `begins`."""
        self._listed = True

    # What follows ---------------------------------------------------------------------------------

    @property
    def ours(self) -> bool:
        """Whether our scheduler was the holder when the Lease was last seen."""
        return self._record is not None and self._record.holder.startswith(self._prefix)

    @property
    def begins(self) -> float:
        """Monotonic seconds from which on no other replica has a Binding under way."""
        return self._others_until

    def refusal(self) -> str:
        """Why this replica must not act now; empty when it may."""
        record = self._record
        if record is None:
            return "this replica is not active: it has not seen the Lease yet"
        if not self.ours:
            holder = quoted(record.holder, 120) if record.holder else "nobody"
            return f"this replica is not active: the Lease is held by {holder}"
        if not self._listed:
            return "this replica is not active yet: it took the Lease over and lists Pods first"
        now = self._clock.monotonic()
        if now >= self._looked + _BLIND_SECONDS:
            return "this replica is not active: it can't see its Lease"
        if now >= self._renewed + record.seconds - _MARGIN_SECONDS:
            return "this replica is not active: it saw no renewal of its Lease for too long"
        return ""

    def stuck(self) -> str:
        """Why our scheduler holds the Lease in vain, as far as we know; empty while it does not."""
        if self._record is not None and not self.ours:
            return ""  # another acts, or will
        if self._clock.monotonic() < self._well + STUCK_SECONDS:
            return ""
        return self.refusal()


def _record_of(lease: Json | None) -> _Record:
    spec = at(lease, "spec")
    seconds = at(spec, "leaseDurationSeconds")
    return _Record(
        holder=text(at(spec, "holderIdentity")),
        transitions=at(spec, "leaseTransitions"),
        renewed=at(spec, "renewTime"),
        seconds=float(seconds) if isinstance(seconds, int) else 0.0,
    )
