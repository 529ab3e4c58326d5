"""Whose Pods were evicted of late, and from which nodes: how often is enough, and where not again.

Owners go by their UIDs. What a restart forgets costs an owner a few evictions more.
"""

from collections import deque

from cardwise.controller.clock import Clock

MOST_EVICTIONS = 3
"""Of one owner's Pods, in `WINDOW_SECONDS`: what is refused again and again is no bad luck."""
WINDOW_SECONDS = 600.0
_ALWAYS = float("-inf")


class Evictions:
    """Those of the last `WINDOW_SECONDS`, by owner."""

    def __init__(self, clock: Clock) -> None:
        """Know of none."""
        self._clock = clock
        self._by_owner: dict[str, deque[tuple[float, str]]] = {}
        """Monotonic seconds and node of evictions that happened, or may have."""

    def __len__(self) -> int:
        """How many owners are remembered."""
        return len(self._by_owner)

    def charge(self, owner: str, node: str) -> None:
        """Note an eviction against its owner, and forget the old ones."""
        now = self._clock.monotonic()
        self._by_owner.setdefault(owner, deque(maxlen=MOST_EVICTIONS)).append((now, node))
        for old in [
            o for o, times in self._by_owner.items() if times[-1][0] + WINDOW_SECONDS <= now
        ]:
            del self._by_owner[old]

    def free_at(self, owner: str) -> float:
        """Monotonic seconds from which on another Pod of the owner may be evicted."""
        times = self._by_owner.get(owner) or deque()
        return times[0][0] + WINDOW_SECONDS if len(times) >= MOST_EVICTIONS else _ALWAYS

    def avoided(self, owner: str) -> list[str]:
        """The nodes from which an owner's Pods were evicted of late.

        The decision is the same for the same cluster: without this the next Pod would go to that
        node again, and be refused for the same reason, which only kube-scheduler knows.
        """
        since = self._clock.monotonic() - WINDOW_SECONDS
        return [node for time, node in self._by_owner.get(owner, ()) if time > since]
