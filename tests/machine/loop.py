"""An event loop whose time passes only when nothing else is left to do.

Separate from ``looptime``, which serves the other tests: this one is used from synchronous code, by
Hypothesis, thousands of times a second.
"""

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

_TURN_SECONDS = 1e-7
"""What one turn of the loop takes at least: who waits for the clock to move must see it move."""


class _Jump(selectors.BaseSelector):
    """Waits by moving the clock. Nothing from outside ever comes."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.now += max(_TURN_SECONDS, timeout)
        return []


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 0 s and jumps from one timer to the next."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now
