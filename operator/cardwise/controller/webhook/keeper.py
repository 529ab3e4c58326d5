"""Keep the webhook's certificates: read what is there, write the next step, until none is left.

What to write is decided by `certificates`; here is who asks the API server, and when.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import assert_never

from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.webhook import authority
from cardwise.controller.webhook.authority import Pair
from cardwise.controller.webhook.certificates import (
    CA_LIFE,
    CA_SECRET,
    DNS_NAMES,
    SERVING_LIFE,
    SERVING_SECRET,
    WEBHOOK,
    KeepCA,
    NewCA,
    NewServing,
    Seen,
    Step,
    Trust,
    ca_of,
    next_step,
    secret_of,
    trust_of,
)
from cardwise.errors import ApiError
from cardwise.names import SYSTEM_NAMESPACE
from cardwise.ports import Cluster

_log = logging.getLogger(__name__)
ROUND_SECONDS = 60.0
"""Between two looks; also how long every API server has to hear of a new caBundle."""
_AGAIN_SECONDS = 5.0
"""After a look that failed; twice that after the next, and so on up to a round."""
_PASSIVE_SECONDS = 1.0
_STEPS = 12
"""Of one round: where more are needed, somebody else writes the same objects."""


class CertificateKeeper:
    """Makes and renews the webhook's CA and certificate, and has the API server trust them."""

    def __init__(
        self, cluster: Cluster, duty: Duty, clock: Clock, *, round_seconds: float = ROUND_SECONDS
    ) -> None:
        """Make it.

        Args:
            cluster: where they are kept.
            duty: a passive replica writes nothing, nor does one that stops.
            clock: says how old a certificate is.
            round_seconds: between two looks.
        """
        self._cluster = cluster
        self._duty = duty
        self._clock = clock
        self._round_seconds = round_seconds
        self._known: tuple[bytes, ...] | None = None
        """The bundles at the end of the last round; None: there was none, or it went wrong."""
        self._pause = _AGAIN_SECONDS
        self._told = ""

    async def run(self) -> None:
        """Look, mend, wait, until cancelled."""
        while True:
            pause = await self.tend()
            await asyncio.sleep(pause)

    async def tend(self) -> float:
        """Look once, and mend what is to be mended.

        Returns:
            Seconds until the next look.
        """
        if self._duty.passive():
            self._known = None  # another replica may write
            return _PASSIVE_SECONDS
        try:
            await self._mend()
        except ApiError as error:
            self._known = None
            self._tell(str(error))
            pause, self._pause = self._pause, min(2 * self._pause, self._round_seconds)
            return pause
        self._told, self._pause = "", _AGAIN_SECONDS
        return self._round_seconds

    async def _mend(self) -> None:
        settled = self._known
        for _ in range(_STEPS):
            seen = await self._look()
            self._known = seen.bundles
            step = next_step(seen, self._now(), settled=seen.bundles == settled)
            if step is None or self._duty.stopping or self._duty.passive():
                return
            try:
                await self._take(step, seen)
            except ApiError as error:
                if error.status != 409:
                    raise
                # Somebody was faster: what is there now decides.
            else:
                _log.info("%s", _said(step))
        raise ApiError(None, "somebody else writes the webhook's certificates at the same time")

    async def _look(self) -> Seen:
        return Seen(
            ca=await self._cluster.secret(SYSTEM_NAMESPACE, CA_SECRET),
            serving=await self._cluster.secret(SYSTEM_NAMESPACE, SERVING_SECRET),
            configuration=await self._cluster.webhook_configuration(WEBHOOK),
        )

    async def _take(self, step: Step, seen: Seen) -> None:
        match step:
            case NewCA():
                pair = authority.new_ca(f"{WEBHOOK}-ca", self._now(), CA_LIFE)
                await self._write_ca(seen, pair, step.previous)
            case KeepCA():
                await self._write_ca(seen, ca_of(seen), step.previous)
            case Trust():
                change = trust_of(seen.configuration or {}, step.bundle)
                await self._cluster.patch_webhook_configuration(WEBHOOK, change)
            case NewServing():
                await self._write_serving(seen)
            case _:
                assert_never(step)

    async def _write_ca(self, seen: Seen, pair: Pair, previous: tuple[bytes, ...]) -> None:
        data = {"ca.crt": pair.certificate, "ca.key": pair.key}
        if previous:
            data["previous.crt"] = b"".join(previous)
        await self._cluster.write_secret(secret_of(seen.ca, CA_SECRET, "Opaque", data))

    async def _write_serving(self, seen: Seen) -> None:
        ca = ca_of(seen)
        pair = authority.new_serving(ca, DNS_NAMES, self._now(), SERVING_LIFE)
        data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": ca.certificate}
        secret = secret_of(seen.serving, SERVING_SECRET, "kubernetes.io/tls", data)
        await self._cluster.write_secret(secret)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.unix(), UTC)

    def _tell(self, why: str) -> None:
        """Say why it does not go on, once."""
        if why != self._told:
            self._told = why
            _log.warning("the webhook's certificates can't be looked after: %s", why)


def _said(step: Step) -> str:
    match step:
        case NewCA():
            return f"made a new CA for the webhook: {step.why}"
        case KeepCA():
            return f"wrote which CAs are trusted beside that of the webhook: {step.why}"
        case Trust():
            return f"wrote the caBundle of the webhook: {step.why}"
        case NewServing():
            return f"made a new certificate for the webhook: {step.why}"
        case _:
            assert_never(step)
