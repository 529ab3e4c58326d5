"""Pods that kubelet rejects on the node they were given: counted, and the node closed for a while.

The watch tells that a Pod failed as if it were deleted, and shows it as it was before, so whoever
ended is asked for once, with no haste: nothing waits for the answer, its cards are free already.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.telling.notes import Notes
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.ledger.rejections import RejectingNodes
from cardwise.model import PodRef
from cardwise.names import BIND_PHASE, BIND_PHASE_SUCCESS, NodeEvent
from cardwise.ports import Cluster
from cardwise.settings import Rejections
from cardwise.wire import pods
from cardwise.wire.events import node_ref
from cardwise.wire.fields import annotations_of, at
from cardwise.wire.rejections import rejection_of

_log = logging.getLogger(__name__)

_BETWEEN_SECONDS = 0.02
"""Between two questions: many Jobs may end at once, and Bindings come first."""
_AGAIN_SECONDS = 5.0
_TRIES = 3
_QUEUE = 1_000
"""Ended Pods that are not asked for yet; the oldest are given up first."""
_TOMBSTONES = 20_000
_TICK_SECONDS = 1.0

Json = dict[str, Any]


@dataclass(slots=True)
class _BoundPod:
    """A Pod of ours that is bound."""

    pod: PodRef
    node: str
    seen: float
    """Monotonic seconds of the last sighting."""
    started: bool = False
    tries: int = 0


class RejectedPods:
    """A follower of the mirror. What it counts, each replica counts for itself."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        ledger: Ledger,
        clock: Clock,
        settings: Rejections,
        notes: Notes,
        counted: Callable[[str, str], None] = lambda _node, _reason: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; it follows no Pod yet.

        Args:
            cluster: is asked about ended Pods, and takes events.
            ledger: where nodes are closed and opened.
            clock: for what is "of late".
            settings: how many rejections close a node, and for how long.
            notes: takes what is to be told of a node.
            counted: called with node and reason of each rejection.
            changed: called after the ledger changed.
        """
        self._cluster = cluster
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._counted = counted
        self._changed = changed
        self._rejections = RejectingNodes(
            limit=settings.limit,
            within=settings.withinSeconds,
            first=settings.closedSeconds,
            longest=settings.longestClosedSeconds,
        )
        self._bound: dict[str, _BoundPod] = {}
        """By UID."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._asked_for: deque[_BoundPod] = deque(maxlen=_QUEUE)
        self._news = asyncio.Event()

    # What is seen ---------------------------------------------------------------------------------

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone."""
        ref = pods.pod_ref(pod)
        if deleted or pods.is_finished(pod):
            # Whoever was being deleted has failed for that, if at all.
            self._end(ref.uid, ask=not pods.is_terminating(pod))
            return
        node = pods.bound_node(pod)
        if node is None or ref.uid in self._ended or not pods.has_allocation(pod):
            return
        now = self._clock.monotonic()
        known = self._bound.get(ref.uid)
        if known is None:
            known = self._bound[ref.uid] = _BoundPod(ref, node, now, started=_has_started(pod))
        elif not known.started and _has_started(pod):
            known.started = True
            if self._rejections.started(node):
                self._open(node, "a Pod has started there")
        known.seen = now

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """What a Node says of itself is of no interest here."""

    def listed(self, uids: set[str], began: float) -> None:
        """Whoever is not on a complete list, and was not seen since it began, has ended."""
        gone = [u for u, it in self._bound.items() if u not in uids and it.seen < began]
        for uid in gone:
            self._end(uid, ask=True)

    def _end(self, uid: str, *, ask: bool) -> None:
        known = self._bound.pop(uid, None)
        if known is None:
            return
        self._ended[uid] = None
        while len(self._ended) > _TOMBSTONES:
            self._ended.popitem(last=False)
        if ask:
            self._asked_for.append(known)
            self._news.set()

    # What follows ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask about ended Pods, and open nodes whose time is over, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask())
            group.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for node in self._rejections.opened(self._clock.monotonic()):
                self._open(node, "its time is over; the next Pod that it rejects closes it again")
                await self._notes.tell(
                    node_ref(node), NodeEvent.TAKES_PODS, "it takes new Pods again"
                )

    async def _ask(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._asked_for:
                bound = self._asked_for.popleft()
                try:
                    pod = await self._cluster.pod(bound.pod.namespace, bound.pod.name)
                except ApiError as error:
                    await self._ask_again(bound, error)
                    continue
                if pod is not None and pods.pod_ref(pod).uid == bound.pod.uid:
                    await self._judge(bound, pod)
                await asyncio.sleep(_BETWEEN_SECONDS)

    async def _ask_again(self, bound: _BoundPod, error: ApiError) -> None:
        _log.info("how Pod %s ended can't be read: %s", bound.pod, error)
        bound.tries += 1
        if bound.tries < _TRIES:
            self._asked_for.append(bound)
        await asyncio.sleep(_AGAIN_SECONDS)

    async def _judge(self, bound: _BoundPod, pod: Json) -> None:
        """Count a Pod that kubelet rejected; close its node if it is one too many."""
        rejection = rejection_of(pod)
        if rejection is None:
            return
        node = bound.node
        self._counted(node, rejection.reason)
        _log.info(
            "Pod %s was rejected on node %s by kubelet: %s: %s",
            bound.pod,
            node,
            rejection.reason,
            at(pod, "status", "message"),
        )
        # One that ran there tells of a kubelet that began anew, not of where new Pods may go.
        if bound.started or not rejection.of_cards:
            return
        seconds = self._rejections.rejected(node, self._clock.monotonic())
        if seconds:
            why = (
                f"kubelet rejected Pod after Pod there, the last {bound.pod} with "
                f"{rejection.reason}; the node is tried again after {seconds:g} s"
            )
            self._ledger.close_node(node, why)
            _log.warning("node %s is closed: %s", node, why)
            self._changed()
            await self._notes.tell(node_ref(node), NodeEvent.REJECTS_PODS, why)

    def _open(self, node: str, why: str) -> None:
        _log.info("node %s is open again: %s", node, why)
        self._ledger.open_node(node)
        self._changed()


def _has_started(pod: Json) -> bool:
    """Whether it was let start with its cards, whatever became of its program."""
    if at(pod, "status", "phase") == "Running":
        return True
    return annotations_of(pod).get(BIND_PHASE) == BIND_PHASE_SUCCESS
