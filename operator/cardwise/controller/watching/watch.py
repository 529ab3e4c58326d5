"""Know whether our own watch lives, and mend what it missed.

An idle stream and a dead one look alike. So the controller annotates its own Pod and expects to see
that change come back: what comes back late was missed, and the ages of GPUNodes are counted only
while it comes back, because a blind controller must not take its own silence for the agents'.
"""

import asyncio
import logging
from collections.abc import Callable

from cardwise.controller.clock import Clock
from cardwise.controller.followers.classes import Classes
from cardwise.controller.lease.duty import Duty
from cardwise.controller.watching.mirror import Mirror
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.model import PodRef
from cardwise.names import HEARTBEAT
from cardwise.ports import Cluster

_log = logging.getLogger(__name__)

BEAT_SECONDS = 30.0
SILENCE_SECONDS = 120.0
"""Silence after which /livez fails."""
_TICK_SECONDS = 1.0
_AUDIT_SECONDS = 300.0
_SOON_SECONDS = 2.0
_HEARING_SECONDS = 10.0
"""How long the start waits for the watches: who can't have them answers by its own list."""
_LISTING_SECONDS = 120.0
"""For how long a list of Kopf's may put the comparison off: it is compared once it is over, for a
long list would else be compared again and again while it comes. That of 40,000 Pods takes a minute.
"""


class Health:
    """What the probes ask."""

    def __init__(self, duty: Duty, clock: Clock, *, own_pod: PodRef | None) -> None:
        """Start healthy.

        Args:
            duty: whether calls can be answered.
            clock: for the silence.
            own_pod: where heartbeats are written; None where this does not run in a Pod.
        """
        self._duty = duty
        self._clock = clock
        self.own_pod = own_pod
        self._echo = clock.monotonic()

    def heard(self) -> None:
        """A heartbeat came back through the watch."""
        self._echo = self._clock.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the last heartbeat came back; 0 without a Pod of our own."""
        return self._clock.monotonic() - self._echo if self.own_pod else 0.0

    def not_live(self) -> str:
        """Why this process should be restarted; empty when it should not."""
        if self.silence > SILENCE_SECONDS:
            return f"the watch is silent: no heartbeat came back for {self.silence:.0f} s"
        return ""

    def not_ready(self) -> str:
        """Why this process can't serve; empty when it can. A passive replica is ready.

        Else a rollout would wait for the second replica forever. One that can't act although its
        scheduler holds the Lease is not: kubelet restarts that scheduler for it. Where none runs
        beside it, its own elector gives the Lease back.
        """
        return self._duty.not_ready() or self._duty.stuck()


class Watchman:
    """The tasks that keep ledger and cluster together."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        mirror: Mirror,
        cluster: Cluster,
        classes: Classes,
        health: Health,
        clock: Clock,
        changed: Callable[[], None],
        hold_expired: Callable[[PodRef], None] = lambda _pod: None,
    ) -> None:
        self._ledger = ledger
        self._hold_expired = hold_expired
        self._classes = classes
        self._changed = changed
        self._mirror = mirror
        self._cluster = cluster
        self._health = health
        self._clock = clock
        self._doubt = asyncio.Event()
        self._failed = False
        """Whether the doubt is of more than a list of Kopf's."""
        self._listed = 0.0
        self._unheard: set[str] = set()
        """Plurals of the kinds whose watch has shown nothing yet, though there is some."""
        self._all_heard = asyncio.Event()

    def doubt(self) -> None:
        """Something may have been missed: list again soon."""
        self._failed = True
        self._doubt.set()

    def listed(self) -> None:
        """Kopf lists anew: what vanished meanwhile is told by nobody. List again after it."""
        self._listed = self._clock.monotonic()
        self._doubt.set()

    async def load(self) -> None:
        """List everything before the first answer; tries until it succeeds."""
        await self._classes.refresh()
        waits = [0.2, 0.5, 1.0, 2.0, 5.0]
        while True:
            try:
                await self._mirror.reconcile(self._cluster, first=True)
            except ApiError as error:
                _log.warning("the ledger can't be loaded yet: %s", error)
                await asyncio.sleep(waits.pop(0) if len(waits) > 1 else waits[0])
            else:
                self._unheard = set(self._mirror.found)
                return

    def heard(self, kind: str) -> None:
        """The watch of a kind, named by its plural, showed an object."""
        self._unheard.discard(kind)
        if not self._unheard:
            self._all_heard.set()

    async def hear(self) -> None:
        """Wait until each watch has begun: what came to be after our own list is on its way then.

        Else a Pod would hear of a Node made in between that it has no cards.
        """
        if not self._unheard:
            return
        try:
            async with asyncio.timeout(_HEARING_SECONDS):
                await self._all_heard.wait()
        except TimeoutError:
            kinds = ", ".join(sorted(self._unheard))
            _log.warning("the watches show nothing yet of what was listed of: %s", kinds)

    async def audit(self) -> None:
        """Compare with a fresh list every 5 minutes, and soon after a doubt, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_AUDIT_SECONDS):
                    await self._doubt.wait()
            except TimeoutError:
                pass
            else:
                await self._soon()
            self._doubt.clear()
            self._failed = False
            await self._classes.refresh()
            try:
                await self._mirror.reconcile(self._cluster)
            except ApiError as error:
                _log.warning("comparing the ledger with the cluster failed: %s", error)
                self.doubt()

    async def _soon(self) -> None:
        """Two seconds after a failure; of Kopf's list, two seconds of silence, or 120 at most."""
        latest = self._clock.monotonic() + _LISTING_SECONDS
        await asyncio.sleep(_SOON_SECONDS)
        while not self._failed:
            left = min(self._listed + _SOON_SECONDS, latest) - self._clock.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def tick(self) -> None:
        """Give up old holds and distrust old reports, once a second, until cancelled."""
        blind = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.monotonic()
            for pod in self._ledger.expire_holds(now):
                _log.info("the hold of Pod %s expired: kube-scheduler did not come back", pod)
                self._hold_expired(pod)
            silence = self._health.silence
            if silence >= 2 * BEAT_SECONDS:
                blind = silence
            else:
                # What we did not see for as long as we were blind is not the agents' silence.
                if blind:
                    self._ledger.excuse_reports(blind, now)
                blind = 0.0
                for node in self._ledger.age_reports(now):
                    _log.warning("GPUNode %s is stale: its agent stopped reporting", node)
            self._changed()

    async def beat(self, own: PodRef) -> None:
        """Annotate our own Pod, until cancelled."""
        while True:
            try:
                await self._cluster.annotate_pod(
                    own.namespace, own.name, HEARTBEAT, f"{self._clock.unix():.0f}"
                )
            except ApiError as error:
                _log.warning("the heartbeat can't be written: %s", error)
            await asyncio.sleep(BEAT_SECONDS)
