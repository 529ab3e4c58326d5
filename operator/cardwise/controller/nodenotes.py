"""Events of the controller on Nodes: rare, written at once, never on the path of an answer."""

import logging

from cardwise.controller.clock import Clock, rfc3339_micro
from cardwise.controller.gate import Gate
from cardwise.errors import ApiError
from cardwise.names import NodeEvent
from cardwise.ports import Cluster
from cardwise.wire.events import node_event_body

_log = logging.getLogger(__name__)


class NodeNotes:
    """Writes them; a passive replica writes none."""

    def __init__(self, cluster: Cluster, gate: Gate, clock: Clock, instance: str) -> None:
        """Make it; ``instance`` says which controller this is, e.g. its Pod's name."""
        self._cluster = cluster
        self._gate = gate
        self._clock = clock
        self._instance = instance

    async def tell(self, node: str, reason: NodeEvent, note: str) -> None:
        """Post an event on a Node; one that is not taken is logged."""
        if self._gate.passive():
            return
        now = self._clock.unix()
        event = node_event_body(
            node,
            warning=reason is not NodeEvent.TAKES_PODS,
            reason=reason,
            note=note,
            when=rfc3339_micro(now),
            serial=int(now * 1_000_000),
            controller=self._instance,
        )
        try:
            await self._cluster.create_event(event)
        except ApiError as error:
            _log.info("event %s of Node %s was not written: %s", reason, node, error)
