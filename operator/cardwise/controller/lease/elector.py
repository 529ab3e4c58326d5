"""Compete for the Lease as kube-scheduler does, where none runs beside us.

Separate from ``tenure`` and ``activity``: they say who may act, by looks at the Lease alone,
whoever it is that writes it. Here it is taken, renewed and given back, and nothing else follows.

Every write names the version that it replaces. A renewal that comes late, or a second time,
therefore changes nothing once another has written, and of two that take an expired Lease at the
same moment one is refused.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from cardwise.controller.clock import Clock, rfc3339_micro
from cardwise.errors import ApiError
from cardwise.ports import Cluster
from cardwise.wire.fields import at, mapping, quoted, text

_log = logging.getLogger(__name__)

LEASE_SECONDS = 12
"""How long after a renewal another may take the Lease; this and the next two are kube-scheduler's
of `manifests/components/extender/scheduler.yaml`, where the sum of the worst case stands."""
RETRY_SECONDS = 1.0
_GIVE_UP_SECONDS = 9.0
"""After so long without a renewal that was answered, no more is sent before the Lease was read."""
_JITTER = 1.2
"""Of the retry, for those who wait: they must not all ask at the same moment."""
_RELEASED_SECONDS = 1
"""Duration of a Lease that was given back; the API server takes no 0."""
ASIDE_SECONDS = 5.0
"""Whoever gave the Lease back leaves it to others for so long: they look every 2.2 s or sooner."""
_RELEASE_AGAIN_SECONDS = 0.2

Json = dict[str, Any]


class Elector:
    """One candidate for the Lease, under one identity."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        lease: tuple[str, str],
        host: str,
        clock: Clock,
        stuck: Callable[[], str] = lambda: "",
        dice: Callable[[], float] = random.random,
    ) -> None:
        """Make a candidate that has not begun.

        Args:
            cluster: where the Lease is.
            lease: its namespace and name.
            host: what `Tenure` takes for ours: the identity is the host and a UUID.
            clock: for deadlines, and for the times written into the Lease.
            stuck: why the Lease is held in vain; empty while it is not.
            dice: from 0 to 1, for the jitter.
        """
        self.identity = f"{host}_{uuid4()}"
        self._cluster = cluster
        self._lease = lease
        self._clock = clock
        self._stuck = stuck
        self._dice = dice
        self._known: Json | None = None
        """The Lease as we wrote it last; None: it is not ours."""
        self._spec: Json | None = None
        """As it was last seen, and since when: another's times are compared for equality alone."""
        self._since = 0.0
        self._renewed: float | None = None
        """Monotonic seconds when the last renewal that was answered began; None: not the holder."""
        self._over = False
        self._writing = asyncio.Lock()
        self._trouble = ""

    @property
    def holds(self) -> bool:
        """Whether the Lease is ours as far as we know; who may act is `Tenure`'s to say."""
        return self._renewed is not None

    async def run(self) -> None:
        """Compete until cancelled; after `release` it only waits."""
        while True:
            await self._compete()
            if self.holds and (why := self._stuck()):
                await self._stand_aside(why)
            await asyncio.sleep(RETRY_SECONDS * (1 if self.holds else 1 + _JITTER * self._dice()))

    async def release(self, *, within: float = 5.0) -> None:
        """Compete no more, and give the Lease back, so that another need not wait for its end.

        To be called when nothing that was written by its leave is under way any more.

        Args:
            within: seconds; a Lease that can't be given back by then ends by itself.
        """
        self._over = True
        try:
            async with asyncio.timeout(within):
                async with self._writing:
                    pass  # a write that has begun is known before the Lease is read
                while True:
                    if await self._give_back():
                        return
                    await asyncio.sleep(_RELEASE_AGAIN_SECONDS)
        except TimeoutError:
            _log.warning("the Lease %s/%s could not be given back: it runs out", *self._lease)

    # Steps ----------------------------------------------------------------------------------------

    async def _compete(self) -> None:
        """Renew the Lease, or take it where it is free; trouble is told of once."""
        try:
            await self._once(self._clock.monotonic())
        except ApiError as error:
            if error.status == 409:
                return  # another was quicker: the next look shows who
            if not self._trouble:
                _log.warning("the Lease %s/%s can't be read or written: %s", *self._lease, error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    async def _once(self, asked: float) -> None:
        if self._over:
            return
        if self._renewed is not None and asked >= self._renewed + _GIVE_UP_SECONDS:
            self._lose("no renewal was answered for too long")
        # As a rule nobody wrote since we did: then a renewal needs no look.
        if self._known is not None and await self._renewed_unseen(self._known, asked):
            return
        lease = await self._cluster.lease(*self._lease)
        self._see(lease)
        if self._may_take(asked):
            await self._write(lease, asked)
        elif self.holds:
            self._lose(f"it is held by {quoted(at(lease, 'spec', 'holderIdentity'), 120)}")

    async def _renewed_unseen(self, known: Json, asked: float) -> bool:
        """Renew the version that we wrote; False where it is not there any more."""
        try:
            await self._write(known, asked)
        except ApiError:
            return False  # whether it was written or not, a look shows
        return True

    async def _write(self, lease: Json | None, asked: float) -> None:
        """Make the Lease ours, or ours for longer.

        Args:
            lease: the version that is replaced; None: there is none.
            asked: monotonic seconds, before the outcome of anything here was known.
        """
        if self._over:
            return
        async with self._writing:
            written = await self._cluster.write_lease(self._ours(lease))
        taken, self._renewed, self._known = not self.holds, asked, written
        self._see(written)
        if taken:
            _log.info("the Lease %s/%s is held by %s", *self._lease, self.identity)

    async def _stand_aside(self, why: str) -> None:
        """Leave the Lease to another replica, which may be able to do what we can't."""
        _log.warning("the Lease %s/%s is given back: %s", *self._lease, why)
        await self._give_back()
        self._known = self._renewed = None
        await asyncio.sleep(ASIDE_SECONDS)

    async def _give_back(self) -> bool:
        """Write that nobody holds the Lease; whether it is not ours any more."""
        try:
            lease = await self._cluster.lease(*self._lease)
            spec = mapping(at(lease, "spec"))
            if lease is None or spec.get("holderIdentity") != self.identity:
                return True
            now = self._now()
            free = {
                "holderIdentity": "",
                "leaseDurationSeconds": _RELEASED_SECONDS,
                "leaseTransitions": _count(spec.get("leaseTransitions")),
                "acquireTime": now,
                "renewTime": now,
            }
            await self._cluster.write_lease({**lease, "spec": free})
        except ApiError as error:
            _log.info("the Lease %s/%s is not given back yet: %s", *self._lease, error)
            return False
        _log.info("the Lease %s/%s was given back", *self._lease)
        return True

    def _lose(self, why: str) -> None:
        _log.warning("the Lease %s/%s is lost: %s", *self._lease, why)
        self._known = self._renewed = None

    # What a Lease says ----------------------------------------------------------------------------

    def _see(self, lease: Json | None) -> None:
        """Remember since when the Lease has been as it is."""
        spec = mapping(at(lease, "spec"))
        if spec != self._spec:
            self._spec, self._since = spec, self._clock.monotonic()

    def _may_take(self, asked: float) -> bool:
        """Whether the Lease that was seen is ours, nobody's, or too old, by our own clock."""
        spec = self._spec or {}
        if text(spec.get("holderIdentity")) in ("", self.identity):
            return True
        return asked >= self._since + _count(spec.get("leaseDurationSeconds"))

    def _ours(self, lease: Json | None) -> Json:
        """The Lease as we would have it: renewed where it is ours, else taken."""
        now = self._now()
        namespace, name = self._lease
        was = mapping(at(lease, "spec"))
        spec: Json = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "leaseTransitions": _count(was.get("leaseTransitions")),
            "acquireTime": now,
            "renewTime": now,
        }
        if was.get("holderIdentity") == self.identity:
            spec["acquireTime"] = was.get("acquireTime") or now
        elif lease is not None:
            spec["leaseTransitions"] += 1
        if lease is not None:
            return {**lease, "spec": spec}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": spec,
        }

    def _now(self) -> str:
        return rfc3339_micro(self._clock.unix())


def _count(value: object) -> int:
    """A whole number that is not negative; 0 where something else stands."""
    return max(0, value) if isinstance(value, int) else 0
