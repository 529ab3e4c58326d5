"""Take and give back HAMi's lock of a node, around the write that places a Pod there.

For nodes whose cards HAMi's device plugin hands out (docs/decisions/0013). The lock is changed only
as it was read, so of two that want it one gets it, HAMi's own scheduler among them. Who hands the
cards over removes it; here it is given back where the Pod was not placed after all.
"""

import asyncio
import logging

from cardwise.controller.clock import Clock
from cardwise.controller.placing import lockvalue
from cardwise.errors import ApiError
from cardwise.model import PodRef
from cardwise.names import NODE_LOCK
from cardwise.ports import Cluster
from cardwise.wire.fields import quoted

_log = logging.getLogger(__name__)

_BETWEEN_SECONDS = 0.5
_WRITE_SECONDS = 5.0


class NodeLocks:
    """HAMi's locks, as far as they are ours to take."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._giving_back: set[asyncio.Task[None]] = set()

    async def take(self, node: str, pod: PodRef, *, patience: float) -> str:
        """Take a node's lock for a Pod.

        Args:
            node: the node's name.
            pod: who is to have it; it may have it already.
            patience: seconds to wait for somebody else's; 0: try once.

        Returns:
            Why it can't be had, one sentence; empty when the Pod has it.
        """
        until = self._clock.monotonic() + patience
        while True:
            try:
                why = await self._try(node, pod)
            except ApiError as error:
                why = f"HAMi's lock of node {node} can't be taken: {error}"
            if not why or self._clock.monotonic() >= until:
                return why
            await asyncio.sleep(_BETWEEN_SECONDS)

    def give_back(self, node: str, pod: PodRef) -> None:
        """The Pod is not placed there after all; returns at once."""
        task = asyncio.create_task(self._give_back(node, pod))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def stop(self) -> None:
        """Wait for what is being given back."""
        await asyncio.gather(*self._giving_back)

    async def _try(self, node: str, pod: PodRef) -> str:
        document = await self._cluster.node(node)
        if document is None:
            return f"node {node} is gone"
        lock = lockvalue.lock_of(document)
        now = self._clock.unix()
        if lock is not None and lock.is_of(pod) and not lock.is_over(now):
            return ""
        if lock is not None and not lock.is_over(now) and not await self._is_abandoned(lock):
            if lock.since is None:
                return (
                    f"HAMi's lock of node {node}, annotation {NODE_LOCK}, is {quoted(lock.value)}, "
                    "which names no time, so it never ends: remove it where HAMi hands out nothing"
                )
            holder = f" to Pod {lock.namespace}/{lock.name}" if lock.name else ""
            return f"HAMi hands out cards of node {node}{holder}, one Pod at a time; ask again"
        patch = lockvalue.lock_patch(document, lockvalue.value_of(pod, int(now)))
        await self._cluster.patch_node(node, patch, within=_WRITE_SECONDS)
        return ""

    async def _is_abandoned(self, lock: lockvalue.Lock) -> bool:
        """Whether the Pod that holds a lock is gone, so that nobody will ever remove it."""
        if not lock.name:
            return False
        return await self._cluster.pod(lock.namespace, lock.name) is None

    async def _give_back(self, node: str, pod: PodRef) -> None:
        try:
            document = await self._cluster.node(node)
            lock = lockvalue.lock_of(document) if document is not None else None
            if document is not None and lock is not None and lock.is_of(pod):
                patch = lockvalue.lock_patch(document, None)
                await self._cluster.patch_node(node, patch, within=_WRITE_SECONDS)
        except ApiError as error:
            # It is over by itself after a while, and then anybody's.
            _log.warning("HAMi's lock of node %s for Pod %s stays: %s", node, pod, error)
