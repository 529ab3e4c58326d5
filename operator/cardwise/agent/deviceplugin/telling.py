"""What the plugin tells of a Pod: its phase, for HAMi's tools, and an event where it is refused."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cardwise.agent.deviceplugin.verdict import Refusal
from cardwise.errors import ApiError
from cardwise.names import API_GROUP, BIND_PHASE, BIND_PHASE_FAILED, BIND_PHASE_SUCCESS
from cardwise.ports import NodePods
from cardwise.wire.events import event_body
from cardwise.wire.fields import annotations_of
from cardwise.wire.pods import pod_ref

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""The same refusal of the same Pod is not told again before: kubelet tries every few seconds."""
STARTED: Final = "started"
_AGENT: Final = f"{API_GROUP}/agent"
_REMEMBERED: Final = 1000


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True, kw_only=True)
class Teller:
    """Tells the cluster, beside the start itself: none waits for it, and none fails of it."""

    node: str
    pods: NodePods
    monotonic: Callable[[], float]
    counted: Callable[[str], None]
    """Told ``STARTED``, or a refusal's reason."""
    now: Callable[[], str] = _now
    _told: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    """When a refusal was last told, by the Pod's UID and the sentence."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def started(self, pod: dict[str, Any] | None) -> None:
        """The Pod was let start."""
        self.counted(STARTED)
        self._phase(pod, BIND_PHASE_SUCCESS)

    def refused(self, pod: dict[str, Any] | None, refusal: Refusal) -> None:
        """The Pod was not; None: there is no such Pod to tell of."""
        _log.warning("%s: %s", refusal.reason, refusal.message)
        if pod is None:
            return
        ref = pod_ref(pod)
        about = (ref.uid, refusal.message)
        moment = self.monotonic()
        if moment - self._told.get(about, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[about] = moment
        self.counted(refusal.reason)
        event = event_body(
            ref,
            warning=True,
            reason=refusal.reason,
            note=f"{self.node}: {refusal.message}",
            when=self.now(),
            serial=secrets.randbits(63),
            instance=self.node,
        )
        event |= {"reportingController": _AGENT, "action": "Starting"}
        self._beside(self.pods.create_event(event))
        self._phase(pod, BIND_PHASE_FAILED)

    async def finish(self) -> None:
        """Wait for what is on its way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _phase(self, pod: dict[str, Any] | None, phase: str) -> None:
        if pod is not None and annotations_of(pod).get(BIND_PHASE) != phase:
            self._beside(self.pods.set_phase(pod_ref(pod), phase))

    def _beside(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._try(telling))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _try(telling: Coroutine[Any, Any, None]) -> None:
        try:
            await telling
        except ApiError as error:
            _log.warning("not told of a Pod: %s", error)
