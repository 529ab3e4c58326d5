"""Events on a Node without a cluster: ``ports.NodeEvents`` in memory."""

import copy
from typing import Any

from cardwise.errors import ApiError


class FakeNodeEvents:
    """The events that were written, and failures to come."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.calls = 0
        self.failures: list[ApiError] = []
        """Raised by the next calls, one each."""

    async def create_event(self, event: dict[str, Any]) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        self.events.append(copy.deepcopy(event))

    def told(self) -> list[str]:
        """The events' reasons."""
        return [event["reason"] for event in self.events]
