"""Nodes where kube-scheduler refused a Pod of an owner: its next Pods go elsewhere if they can.

The decision is the same for the same cluster, so without this the Pod that is made anew would be
pinned to the same node, and refused for the same reason that only kube-scheduler knows.
"""

from collections.abc import Collection

from cardwise.controller.clock import Clock

AVOIDED_SECONDS = 600.0


class Avoided:
    """Which owner's Pods avoid which nodes, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, float]] = {}

    def avoid(self, owner: str, node: str) -> None:
        """A Pod of this owner was refused there."""
        now = self._clock.monotonic()
        self._until.setdefault(owner, {})[node] = now + AVOIDED_SECONDS
        for old in [o for o, nodes in self._until.items() if max(nodes.values()) <= now]:
            del self._until[old]

    def nodes(self, owner: str) -> Collection[str]:
        """The nodes that Pods of this owner avoid now."""
        nodes = self._until.get(owner)
        if not nodes:
            return ()
        now = self._clock.monotonic()
        return [node for node, until in nodes.items() if until > now]
