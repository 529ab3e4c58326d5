"""The two clocks of the controller, as one value that a test can replace."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds that never jump: for ages and deadlines."""
    unix: Callable[[], float] = time.time
    """Seconds since 1970: for what is written down."""
