"""The two clocks of the controller, as one value that a test can replace, and times as text."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds that never jump: for ages and deadlines."""
    unix: Callable[[], float] = time.time
    """Seconds since 1970: for what is written down."""


def rfc3339(unix_seconds: float) -> str:
    """A time as the API has it (``metav1.Time``): in UTC, to the second."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(unix_seconds: float) -> str:
    """A time as Leases and events have it (``metav1.MicroTime``): in UTC, to the microsecond."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
