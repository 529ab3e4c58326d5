"""When a node where kubelet rejects one Pod after the other is closed, and for how long.

A rejected Pod has failed for good, and its owner makes another, which is decided for the same node
as it looks as free as before: without an end, and quickly. Time is an argument here.
"""

from collections import deque
from dataclasses import dataclass, field

_MOST_DOUBLINGS = 30


@dataclass(slots=True)
class _Node:
    """One node where a Pod was rejected since the last that started."""

    times: deque[float] = field(default_factory=deque)
    """Of the rejections that count, oldest first."""
    closings: int = 0
    """One after the other, with no Pod started in between."""
    until: float = 0.0
    """When it opens, or has opened."""
    closed: bool = False


class RejectingNodes:
    """The nodes where Pods were rejected of late."""

    def __init__(self, *, limit: int, within: float, first: float, longest: float) -> None:
        """Know of no rejection.

        Args:
            limit: rejections that close a node; 0: none does.
            within: seconds in which they come, one after the other.
            first: seconds for which it is closed then; twice as many each time after that.
            longest: never for more seconds than these.
        """
        self._limit = limit
        self._within = within
        self._first = first
        self._longest = longest
        self._nodes: dict[str, _Node] = {}

    def rejected(self, node: str, now: float) -> float:
        """A Pod was rejected there; for how many seconds that closes the node, mostly 0.

        A node that has been closed and where no Pod started since is closed by the first one.
        """
        known = self._nodes.setdefault(node, _Node())
        if not self._limit or known.closed:
            return 0.0
        known.times.append(now)
        while known.times[0] <= now - self._within:
            known.times.popleft()
        if len(known.times) < (1 if known.closings else self._limit):
            return 0.0
        seconds = min(self._first * (1 << min(known.closings, _MOST_DOUBLINGS)), self._longest)
        known.times.clear()
        known.closings += 1
        known.until, known.closed = now + seconds, True
        return seconds

    def started(self, node: str) -> bool:
        """A Pod started there, so all is forgiven; True where the node was closed."""
        known = self._nodes.pop(node, None)
        return known is not None and known.closed

    def opened(self, now: float) -> list[str]:
        """The nodes whose time is over; each is told once, and then on trial."""
        over = [n for n, it in self._nodes.items() if it.closed and it.until <= now]
        for node in over:
            self._nodes[node].closed = False
        self._forget(now)
        return over

    def _forget(self, now: float) -> None:
        """Whoever has rejected nothing for so long, is a node as any other."""
        for node, known in list(self._nodes.items()):
            last = max(known.until, known.times[-1] if known.times else known.until)
            if last + self._longest <= now:
                del self._nodes[node]
