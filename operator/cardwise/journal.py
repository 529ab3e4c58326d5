"""What changed since somebody last looked: names by when they were last touched.

Whoever keeps answers about many nodes asks here which of them to look at again.
"""

from collections.abc import Collection
from typing import Final

START: Final = 0
"""A position before everything."""
_SLACK: Final = 1000


class Journal:
    """The nodes by when they were last touched."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._position = START
        self._horizon = START
        self._last: dict[str, int] = {}

    @property
    def position(self) -> int:
        """The position now."""
        return self._position

    def touch(self, name: str) -> None:
        """Note that an answer about this node may have changed."""
        self._position += 1
        self._last.pop(name, None)
        self._last[name] = self._position

    def since(self, position: int) -> tuple[int, set[str] | None]:
        """The position now, and the nodes touched since another; None: too long ago to tell."""
        if position < self._horizon:
            return self._position, None
        names = set()
        for name in reversed(self._last):
            if self._last[name] <= position:
                break
            names.add(name)
        return self._position, names

    def forget(self, known: Collection[str]) -> None:
        """Drop the names of nodes that are gone, once there are more of them than is of use."""
        if len(self._last) <= 2 * len(known) + _SLACK:
            return
        self._last = {name: at for name, at in self._last.items() if name in known}
        self._horizon = self._position
