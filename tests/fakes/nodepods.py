"""The Pods of a node without a cluster: ``ports.NodePods`` in memory."""

import asyncio
import copy
from typing import Any

from cardwise.errors import ApiError
from cardwise.model import PodRef

Json = dict[str, Any]


class FakeNodePods:
    """What an API server would hold of one node, what it was told, and failures to come."""

    def __init__(self, *pods: Json) -> None:
        self.documents = list(pods)
        self.lists = 0
        self.phases: list[tuple[str, str]] = []
        """Name and phase, in the order of the writes."""
        self.events: list[Json] = []
        self.failures: list[ApiError] = []
        """Raised by the next lists, one each."""
        self.refuses_writes = False
        self.silent_seconds = 0.0
        """How long a list takes, the deadline apart."""

    async def pods(self, node: str, *, within: float) -> list[Json]:
        self.lists += 1
        if self.failures:
            raise self.failures.pop(0)
        # What is true when the server reads, which is soon; the answer may take its time.
        found = copy.deepcopy([pod for pod in self.documents if pod["spec"]["nodeName"] == node])
        silent = self.silent_seconds
        await asyncio.sleep(min(silent, within))
        if silent >= within:
            raise ApiError(None, "no answer from the API server: TimeoutError")
        return found

    async def set_phase(self, pod: PodRef, phase: str) -> None:
        self._write()
        self.phases.append((pod.name, phase))

    async def create_event(self, event: Json) -> None:
        self._write()
        self.events.append(event)

    def _write(self) -> None:
        if self.refuses_writes:
            raise ApiError(403, "forbidden")
