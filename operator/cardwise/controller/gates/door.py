"""The door of gates, put together."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.gates.dispatcher import Dispatcher
from cardwise.controller.gates.gangs import Gangs
from cardwise.controller.gates.holder import Holder
from cardwise.controller.gates.pinner import Pinner
from cardwise.controller.gates.podgroups import PodGroups
from cardwise.controller.gates.refused import RefusedPods
from cardwise.controller.gates.storage import Storage
from cardwise.controller.gates.surroundings import Surroundings
from cardwise.controller.gates.tracker import Tracker
from cardwise.controller.lease.duty import Duty
from cardwise.controller.placing.binder import Binder
from cardwise.controller.placing.decider import Decider
from cardwise.controller.reports.metrics import Metrics
from cardwise.controller.telling.recorder import Recorder
from cardwise.controller.telling.teller import Teller
from cardwise.controller.watching.mirror import Mirror
from cardwise.ledger import Ledger
from cardwise.noderules import NodeBook, Volumes
from cardwise.ports import Cluster
from cardwise.settings import Settings


class GatesDoor:
    """The whole door, wired but not running."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        mirror: Mirror,
        cluster: Cluster,
        decider: Decider,
        binder: Binder,
        teller: Teller,
        recorder: Recorder,
        duty: Duty,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        """Put it together, as a follower of the mirror."""
        book, volumes, gangs = NodeBook(), Volumes(), Gangs()
        self._refused = RefusedPods(
            cluster=cluster,
            recorder=recorder,
            duty=duty,
            clock=clock,
            settings=settings.gates,
            counted=metrics.evicted,
        )
        avoided = self._refused.evictions.avoided
        surroundings = Surroundings(ledger, book, volumes, decider.memo, avoided)
        holder = Holder(
            ledger=ledger,
            book=book,
            surroundings=surroundings,
            decider=decider,
            gangs=gangs,
            teller=teller,
            clock=clock,
            metrics=metrics,
        )
        self.dispatcher = dispatcher = Dispatcher(
            ledger=ledger,
            book=book,
            surroundings=surroundings,
            holder=holder,
            gangs=gangs,
            teller=teller,
            duty=duty,
            settings=settings,
            clock=clock,
        )

        def pin_ended(uid: str) -> None:
            dispatcher.pin_ended(uid)
            changed()  # what was held may have been given back

        self.pinner = dispatcher.pinner = Pinner(
            ledger=ledger,
            cluster=cluster,
            binder=binder,
            teller=teller,
            duty=duty,
            clock=clock,
            metrics=metrics,
            returned=dispatcher.returned,
            changed=mirror.see_pod,
            unplaced=dispatcher.unplaced,
            ended=pin_ended,
        )
        self._groups = PodGroups(cluster, said=dispatcher.size_said, waits=dispatcher.has_waiting)
        holder.ask_size = self._groups.ask
        tracker = Tracker(
            book,
            clock,
            waits=dispatcher.waits,
            placed=dispatcher.placed,
            gone=dispatcher.gone,
            is_given=dispatcher.is_given,
        )
        mirror.followers += [tracker, self._refused]
        mirror.kinds += Storage(volumes, dispatcher.grew).kinds()

    def look(self) -> None:
        """Look whether nodes have more room than before."""
        self.dispatcher.look()

    def grew(self) -> None:
        """Cards, or a quota, have more room than before."""
        self.dispatcher.grew()

    def begin(self) -> None:
        """This replica has become active."""
        self.dispatcher.grew()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What runs for as long as the controller does."""
        return [
            self.dispatcher.run(),
            self.dispatcher.told.tell_again(),
            self._groups.run(),
            self._refused.run(),
        ]

    async def stop(self, within: float) -> None:
        """Wait ``within`` seconds for the outcomes of what was sent."""
        with suppress(TimeoutError):  # the next controller reads them from the Pods
            await asyncio.wait_for(self.pinner.stop(), within)
