"""Events of the controller on objects without a namespace: Nodes, and the webhook's configuration.

Rare, written at once, never on the path of an answer.
"""

import logging
from typing import Any

from cardwise.controller.clock import Clock, rfc3339_micro
from cardwise.controller.lease.duty import Duty
from cardwise.errors import ApiError
from cardwise.names import NodeEvent, WebhookEvent
from cardwise.ports import Cluster
from cardwise.wire.events import cluster_event_body

_log = logging.getLogger(__name__)
_GOOD = {NodeEvent.TAKES_PODS, WebhookEvent.REACHABLE}
"""An end of trouble is no warning."""


class Notes:
    """Writes them; a passive replica writes none."""

    def __init__(self, cluster: Cluster, duty: Duty, clock: Clock, instance: str) -> None:
        """Make it; ``instance`` says which controller this is, e.g. its Pod's name."""
        self._cluster = cluster
        self._duty = duty
        self._clock = clock
        self._instance = instance

    async def tell(
        self, regarding: dict[str, Any], reason: NodeEvent | WebhookEvent, note: str
    ) -> None:
        """Post an event on an object, given as ``wire.events`` names it.

        One that is not taken is logged.
        """
        if self._duty.passive():
            return
        now = self._clock.unix()
        event = cluster_event_body(
            regarding,
            warning=reason not in _GOOD,
            reason=reason,
            note=note,
            when=rfc3339_micro(now),
            serial=int(now * 1_000_000),
            controller=self._instance,
        )
        try:
            await self._cluster.create_event(event)
        except ApiError as error:
            about = f"{regarding['kind']} {regarding['name']}"
            _log.info("event %s of %s was not written: %s", reason, about, error)
