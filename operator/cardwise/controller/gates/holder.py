"""Decide for one Pod, or for a gang, and hold cards and room; or say why they have to wait.

Nothing here is awaited: what was decided on is what is held.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cardwise.controller.clock import Clock
from cardwise.controller.gates.gangs import Gangs
from cardwise.controller.gates.surroundings import Surroundings
from cardwise.controller.gates.waiting import Waiting
from cardwise.controller.placing.decider import Decider
from cardwise.controller.reports.metrics import Metrics
from cardwise.controller.telling.teller import Teller
from cardwise.doors import needs_extender
from cardwise.gangs import Gang, Key, incomplete, without_size
from cardwise.ledger import Ledger
from cardwise.model import Booking
from cardwise.names import EventReason, WaitReason
from cardwise.noderules import NodeBook
from cardwise.wire.account import reason_of
from cardwise.wire.phrases import fitted


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Pod has to wait."""

    reason: WaitReason
    message: Callable[[], str]
    """Says it in full, as of now: over thousands of nodes that is the dearest part of a refusal."""


Held = tuple[Waiting, Booking]
"""A Pod, and what is held for it."""


class Holder:
    """Holds cards in the ledger and room in the book of nodes, both or neither."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        book: NodeBook,
        surroundings: Surroundings,
        decider: Decider,
        gangs: Gangs,
        teller: Teller,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._ledger = ledger
        self._book = book
        self._surroundings = surroundings
        self._decider = decider
        self._gangs = gangs
        self._teller = teller
        self._clock = clock
        self._metrics = metrics
        self.ask_size: Callable[[Key], None] = lambda _: None
        """Called where nobody said how many Pods a gang has."""

    def hold(self, waiting: Waiting, after: Sequence[Held] = ()) -> Booking | Refusal:
        """Decide, and hold cards and room for a Pod; or say why not.

        Args:
            waiting: the Pod.
            after: what is held for Pods of its gang that were tried before; empty for a Pod alone.
        """
        obstacle = self._surroundings.obstacle(waiting)
        if obstacle.unchecked:
            told = needs_extender(obstacle.unchecked)
            return Refusal(EventReason.NEEDS_EXTENDER_DOOR, lambda: told)
        if obstacle.waits_for:
            told = f"It waits for {obstacle.waits_for}, which is not there, or can't be used."
            return Refusal(EventReason.VOLUME_NOT_READY, lambda: told)
        with self._metrics.timed("gate") as timer:
            decision = self._decider.hold_chosen(
                waiting.request, lambda: self._surroundings.decision(waiting)
            )
            timer.result = "ok"
        self._teller.unknown_policies(waiting.request)
        if decision.node is None or decision.booking is None:
            reason = reason_of(decision, lambda: self._surroundings.others(waiting))
            return Refusal(
                reason,
                lambda: self._teller.account(
                    decision,
                    reason,
                    self._surroundings.others(waiting),
                    tried={str(member.pod) for member, _ in after},
                ),
            )
        self._book.take(waiting.pod.uid, decision.node, waiting.needs.load)
        self._teller.chosen(decision, self._ledger.view(decision.node))
        return decision.booking

    def hold_gang(
        self, gang: Gang, members: Sequence[Waiting], refused: Callable[[Refusal], None]
    ) -> list[Held]:
        """Hold for as many of a gang's Pods as it must have, or for none of them.

        Args:
            gang: one that has not begun.
            members: its Pods that wait, at least one, in the queue's order.
            refused: called with why it has to wait, while those that fit are still held: what the
                message tells is as of then.

        Returns:
            What is held; empty where the gang has to wait.
        """
        size = self._gangs.size(members, gang)
        if size is None:
            if gang.may_have_group:
                self.ask_size(gang.key)
            wrong = next((it.gang.unreadable for it in members if it.gang is not None), "")
            told = without_size(gang, wrong)
        elif len(members) < size:
            told = incomplete(gang, len(members), size)
        if size is None or len(members) < size:
            refused(Refusal(EventReason.GANG_INCOMPLETE, lambda: told))
            return []
        grew = self._ledger.grew, self._book.grew
        held: list[Held] = []
        for waiting in members[:size]:
            booking = self.hold(waiting, held)
            if isinstance(booking, Refusal):
                refused(_of_gang(gang, len(held), size, booking))
                self._let_go(held)
                self._ledger.grew, self._book.grew = grew  # nothing was given back
                return []
            held.append((waiting, booking))
        return held

    def _let_go(self, held: list[Held]) -> None:
        for waiting, _ in held:
            self._ledger.drop_hold(waiting.pod.uid, self._clock.monotonic())
            self._book.release(waiting.pod.uid)


def _of_gang(gang: Gang, fit: int, size: int, refusal: Refusal) -> Refusal:
    """The refusal of a gang: that of its first Pod that does not fit."""
    told = f"Gang {gang}: {fit} of {size} Pods would fit. "
    return Refusal(refusal.reason, lambda: fitted(told + refusal.message()))
