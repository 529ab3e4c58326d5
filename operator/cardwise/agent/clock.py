"""Time, as the agent's loops need it, and the machine's own."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time, as the loop needs it."""

    def now(self) -> str:
        """The time of day as RFC 3339 text in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> str:
        """The time of day as RFC 3339 text in UTC, to the second."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()
