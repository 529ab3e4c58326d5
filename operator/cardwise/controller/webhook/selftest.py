"""Ask the API server, again and again, whether it reaches the webhook; say where it does not.

Whoever creates a Pod with cards is refused while it does not, and told why; whoever runs the
cluster is told here, before that. What is asked for is a dry run of a PodTemplate in our own
namespace, through an entry of the webhook's configuration that is there for it: nothing is stored,
no right to create Pods is needed, and nobody's Pod is touched.
"""

import asyncio
import logging
from typing import Any, Final

from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling.notes import Notes
from cardwise.controller.webhook.certificates import WEBHOOK
from cardwise.errors import ApiError
from cardwise.names import (
    GATE,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    SCHEDULER_NAME,
    SELF_TEST_LABEL,
    SYSTEM_NAMESPACE,
    WebhookEvent,
)
from cardwise.ports import Cluster
from cardwise.wire import pins
from cardwise.wire.events import webhook_ref
from cardwise.wire.fields import at, mapping

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 30.0
_AGAIN_SECONDS = 10.0
"""After a test that failed, or told nothing."""
_PASSIVE_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
"""A webhook that is just being installed or rolled out is given so long before an event tells."""
_REMIND_SECONDS = 1_800.0
"""An event is kept for an hour, and what lasts longer is to be seen all the time."""
_FAILED_CALL = "failed calling webhook"
"""What the API server says where it can't reach or trust one."""
_NOT_ASKED = (
    f"the API server did not ask it: MutatingWebhookConfiguration {WEBHOOK} is absent, or is not "
    "the one of this version; apply the manifests again"
)
TEMPLATE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "PodTemplate",
    "metadata": {
        "generateName": "cardwise-self-test-",
        "namespace": SYSTEM_NAMESPACE,
        "labels": {SELF_TEST_LABEL: "on"},
    },
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "self-test",
                    "image": "cardwise",
                    "resources": {"limits": {RESOURCE_COUNT: "1", RESOURCE_MEMORY: "1"}},
                }
            ]
        }
    },
}
"""What is asked for: as little as a Pod that the webhook leads to a door."""


class SelfTest:
    """Knows whether the API server reaches the webhook, and tells when that changes."""

    def __init__(
        self,
        cluster: Cluster,
        duty: Duty,
        clock: Clock,
        notes: Notes,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Make it.

        Args:
            cluster: whose API server is asked.
            duty: a passive replica asks nothing.
            clock: how long it has been away.
            notes: writes its events.
            patience_seconds: from the first test that failed to the event.
        """
        self._cluster = cluster
        self._duty = duty
        self._clock = clock
        self._notes = notes
        self._patience_seconds = patience_seconds
        self.reachable: bool | None = None
        """What the last test found; None: there was none, or it told nothing of the webhook."""
        self._failing_since: float | None = None
        """Monotonic seconds of the first test in a row that failed."""
        self._told: float | None = None
        """Monotonic seconds of the last event of a webhook that is still away."""

    async def run(self) -> None:
        """Test, tell, wait, until cancelled."""
        while True:
            pause = await self.look()
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Test once, and tell what is to be told.

        Returns:
            Seconds until the next test.
        """
        if self._duty.passive():
            self.reachable = self._failing_since = self._told = None
            return _PASSIVE_SECONDS
        try:
            trouble = await self._trouble()
        except ApiError as error:
            self.reachable = None
            _log.debug("whether the webhook is reached is not known: %s", error)
            return _AGAIN_SECONDS
        self.reachable = not trouble
        if trouble:
            await self._failed(trouble)
            return _AGAIN_SECONDS
        await self._passed()
        return _ROUND_SECONDS

    async def _trouble(self) -> str:
        """Why the webhook is not reached; empty where it is.

        Raises:
            ApiError: the API server did not get as far as asking it.
        """
        try:
            made = await self._cluster.dry_run_pod_template(TEMPLATE)
        except ApiError as error:
            if _FAILED_CALL in str(error):
                return str(error)
            raise
        template = mapping(at(made, "template"))
        led = at(template, "spec", "schedulerName") == SCHEDULER_NAME
        return "" if led or GATE in pins.gates_of(template) else _NOT_ASKED

    async def _failed(self, trouble: str) -> None:
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        due = self._failing_since + self._patience_seconds
        if self._told is not None:
            due = self._told + _REMIND_SECONDS
        if now >= due:
            self._told = now
            note = f"Pods with cards can't be created, the webhook is not reached: {trouble}"
            _log.warning("%s", note)
            await self._post(WebhookEvent.UNREACHABLE, note)

    async def _passed(self) -> None:
        told, self._told, self._failing_since = self._told, None, None
        if told is not None:
            note = "the webhook is reached again"
            _log.info("%s", note)
            await self._post(WebhookEvent.REACHABLE, note)

    async def _post(self, reason: WebhookEvent, note: str) -> None:
        """Post an event on the webhook's configuration."""
        try:
            configuration = await self._cluster.webhook_configuration(WEBHOOK)
        except ApiError as error:
            _log.info("event %s was not written: %s", reason, error)
            return
        if configuration is not None:  # else there is nothing to describe, and the log has it
            await self._notes.tell(webhook_ref(configuration), reason, note)
