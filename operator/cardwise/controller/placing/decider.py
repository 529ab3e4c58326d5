"""Decide on the ledger as it is and hold what was chosen, whichever door asks.

A decision and its hold are one step without an ``await``, so no two Pods are ever decided on the
same room.
"""

from collections.abc import Callable, Collection

from cardwise.controller.clock import Clock
from cardwise.controller.placing.standings import Standings
from cardwise.engine.decide import Memo, decide
from cardwise.ledger import Ledger
from cardwise.model import Decision, Request


class Decider:
    """The engine over one ledger."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self.memo = Memo()
        """What the engine remembers, for every decision on this ledger."""
        self._standings = Standings(ledger, self.memo)

    @property
    def states(self) -> int:
        """Outcomes that the memo holds."""
        return len(self.memo)

    def decide_and_hold(self, request: Request, names: Collection[str]) -> Decision:
        """Decide anew: an earlier hold of this Pod ends, as if it had never been.

        The outcomes of the decision are as of now, and change with the next.

        Args:
            request: the Pod.
            names: the nodes to choose from.
        """
        return self.hold_chosen(request, lambda: self._standings.decision(request, names))

    def decide(self, request: Request, names: Collection[str]) -> Decision:
        """Decide as the ledger is now, and hold nothing; for a Pod that holds nothing."""
        return self._standings.decision(request, names)

    def hold_chosen(self, request: Request, choose: Callable[[], Decision]) -> Decision:
        """As `decide_and_hold`, by a decision of the caller's: it is asked once the hold ended."""
        now = self._clock.monotonic()
        grew, entry = self._ledger.grew, self._ledger.entry(request.pod.uid)
        before = entry.booking if entry is not None else None
        self._ledger.drop_hold(request.pod.uid, now)
        decision = choose()
        if decision.booking is not None:
            self._ledger.hold(request, decision.booking, now)
            if decision.booking == before:
                self._ledger.grew = grew  # nothing was given back: no reason to wake anybody
        return decision

    def would_fit(self, request: Request, node: str, *, without: Collection[str]) -> bool:
        """Whether a Pod fits on a node once the Pods ``without`` (UIDs) are gone; holds nothing."""
        view = self._ledger.view(node, without=without)
        room = self._ledger.room(request.pod.namespace, without=without)
        return decide(request, [view], self.memo, room).node is not None
