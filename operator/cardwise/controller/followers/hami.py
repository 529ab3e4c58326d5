"""Nodes that HAMi's device plugin serves: each has a GPUNode, built from HAMi's annotations.

An agent of ours that reports on a node wins: what was built is withdrawn then. It is not forced:
where an agent's value stands, the API server refuses ours.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from cardwise.controller.clock import Clock, rfc3339
from cardwise.controller.lease.duty import Duty
from cardwise.errors import ApiError
from cardwise.names import (
    MANAGER_HAMI,
    NODE_REGISTER,
    NODE_SCORE,
    RESOURCE_COUNT,
    SOURCE,
    SOURCE_HAMI,
)
from cardwise.ports import Cluster
from cardwise.wire import registered
from cardwise.wire.fields import annotations_of, at, items, text
from cardwise.wire.gpunodes import is_by_agent, is_from_hami

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 1.0
_A_ROUND = 100
_AT_A_TIME = 10

Json = dict[str, Any]


class Shelf(Protocol):
    """Where built GPUNodes are kept."""

    async def put(self, document: Json, *, new: bool) -> None:
        """Keep one; ``new``: there is none of ours of this name.

        Raises:
            ApiError: it is not kept; status 409: an agent's values stand.
        """
        ...

    async def release(self, name: str, owners: list[Json]) -> None:
        """Give up what is ours of one, and leave the rest: its agent's, or an administrator's.

        ``owners`` stay its owners, so that it still goes with its Node.
        """
        ...

    async def remove(self, name: str, version: str) -> None:
        """Delete one as it was at a version."""
        ...


class StoredShelf:
    """In the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def put(self, document: Json, *, new: bool) -> None:
        """Apply our part of a GPUNode."""
        metadata = document["metadata"]
        if new:
            await self._cluster.apply_gpunode(metadata["name"], metadata, MANAGER_HAMI)
        await self._cluster.apply_gpunode_status(
            metadata["name"], document["status"], MANAGER_HAMI, force=False
        )

    async def release(self, name: str, owners: list[Json]) -> None:
        """Apply next to nothing: what nobody else owns goes."""
        await self._cluster.apply_gpunode_status(name, {}, MANAGER_HAMI)
        kept: Json = {"ownerReferences": owners} if owners else {}
        await self._cluster.apply_gpunode(name, kept, MANAGER_HAMI)

    async def remove(self, name: str, version: str) -> None:
        """Delete a GPUNode."""
        await self._cluster.delete_gpunode(name, version)


class MemoryShelf:
    """In this process alone, for one that may write nothing."""

    def __init__(self, show: Callable[..., None]) -> None:
        """Keep none; ``show`` is told of each as a watch would tell."""
        self._show = show
        self._kept: dict[str, Json] = {}

    def documents(self) -> list[Json]:
        """What is kept."""
        return list(self._kept.values())

    async def put(self, document: Json, *, new: bool) -> None:
        """Keep one."""
        self._kept[document["metadata"]["name"]] = document
        self._show(document, deleted=False)

    async def release(self, name: str, owners: list[Json]) -> None:
        """Forget one: a stored one of that name has been shown since."""
        self._kept.pop(name, None)

    async def remove(self, name: str, version: str) -> None:
        """Forget one, and say so."""
        if self._kept.pop(name, None) is not None:
            self._show({"metadata": {"name": name}}, deleted=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a GPUNode is to us."""

    ours: bool
    by_agent: bool
    has_spec: bool
    version: str
    owners: list[Json]


class HamiNodes:
    """Follows Nodes and GPUNodes, and keeps the built ones as HAMi's annotations are."""

    def __init__(
        self, shelf: Shelf, duty: Duty, clock: Clock, *, enabled: bool, seconds: int
    ) -> None:
        """Know of no node.

        Args:
            shelf: where they are kept.
            duty: a passive replica writes nothing.
            clock: for the heartbeats.
            enabled: False: none is built, and those that are there are withdrawn.
            seconds: between two heartbeats.
        """
        self._shelf = shelf
        self._duty = duty
        self._clock = clock
        self._enabled = enabled
        self._seconds = seconds
        self._nodes: dict[str, Json] = {}
        """Registered Nodes, without what is not looked at."""
        self._gpunodes: dict[str, _Seen] = {}
        self._due: dict[str, None] = {}
        self._written: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._told_forbidden = False

    # A follower of the mirror ---------------------------------------------------------------------

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """Pods play no part."""

    def listed(self, uids: set[str], began: float) -> None:
        """Pods play no part."""

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone."""
        name = text(at(node, "metadata", "name"))
        if deleted or not self._enabled or not registered.is_registered(node):
            if self._nodes.pop(name, None) is not None:
                self._due[name] = None
            return
        kept = _what_counts(node)
        if self._nodes.get(name) != kept:
            self._nodes[name] = kept
            self._due[name] = None

    def see_gpunode(self, document: Json, *, deleted: bool) -> None:
        """A GPUNode is there, changed, or gone."""
        name = text(at(document, "metadata", "name"))
        before = self._gpunodes.pop(name, None)
        if not deleted:
            self._gpunodes[name] = _seen(document)
        now = self._gpunodes.get(name)
        gone = now is None and before is not None
        withdrawn = now is not None and now.ours and (now.by_agent or name not in self._nodes)
        if (gone and name in self._nodes) or withdrawn:
            self._due[name] = None

    # Writing --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what changed, and the heartbeats, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self.write_some()

    async def write_some(self) -> bool:
        """Write up to a hundred nodes, the longest waiting first; False: not on duty yet."""
        if self._duty.refusal():
            return False
        now = self._clock.monotonic()
        for name in self._nodes:
            if now - self._written.get(name, -self._seconds) >= self._seconds:
                self._due.setdefault(name)
        names = list(self._due)[:_A_ROUND]
        for start in range(0, len(names), _AT_A_TIME):
            if self._duty.passive():
                return False
            await asyncio.gather(*map(self._step, names[start : start + _AT_A_TIME]))
        return True

    async def _step(self, name: str) -> None:
        """Bring one GPUNode to where it should be."""
        self._due.pop(name, None)
        seen, node = self._gpunodes.get(name), self._nodes.get(name)
        try:
            if seen is not None and seen.by_agent:
                if seen.ours:
                    await self._shelf.release(name, seen.owners)
                self._written[name] = self._clock.monotonic()
            elif node is not None:
                self._written[name] = self._clock.monotonic()
                document = registered.gpunode_document(node, self._now())
                self._tell(name, registered.trouble_of(document))
                await self._shelf.put(document, new=seen is None or not seen.ours)
            else:
                self._written.pop(name, None)
                self._told.pop(name, None)
                if seen is not None and seen.ours:
                    await self._withdraw(name, seen)
        except ApiError as error:
            self._failed(name, error)

    async def _withdraw(self, name: str, seen: _Seen) -> None:
        """Delete it, unless an administrator wrote into it."""
        if seen.has_spec:
            await self._shelf.release(name, seen.owners)
        else:
            await self._shelf.remove(name, seen.version)

    def _failed(self, name: str, error: ApiError) -> None:
        if error.status == 403:
            if not self._told_forbidden:
                self._told_forbidden = True
                _log.warning(
                    "GPUNodes of HAMi's nodes can't be written or withdrawn (the overlay migration "
                    "has the rights; by hand: kubectl delete gpunodes -l %s=%s): %s",
                    SOURCE,
                    SOURCE_HAMI,
                    error,
                )
        elif error.status == 409:
            # Another version of it, or an agent's values: that is shown by the watch. Else, later.
            _log.info("GPUNode %s was changed by somebody else: %s", name, error)
        elif error.status != 404:
            _log.info("GPUNode %s, of a node of HAMi's, was not written: %s", name, error)
            self._due[name] = None

    def _tell(self, name: str, trouble: str) -> None:
        if self._told.get(name, "") != trouble:
            self._told[name] = trouble
            if trouble:
                _log.warning("node %s of HAMi's offers no card: %s", name, trouble)

    def _now(self) -> str:
        return rfc3339(self._clock.unix())


def _what_counts(node: Json) -> Json:
    """What of a Node decides about its GPUNode."""
    written = annotations_of(node)
    metadata = {
        "name": text(at(node, "metadata", "name")),
        "uid": text(at(node, "metadata", "uid")),
        "annotations": {k: written[k] for k in (NODE_REGISTER, NODE_SCORE) if k in written},
    }
    amount = at(node, "status", "allocatable", RESOURCE_COUNT)
    return {"metadata": metadata, "status": {"allocatable": {RESOURCE_COUNT: amount}}}


def _seen(document: Json) -> _Seen:
    return _Seen(
        ours=is_from_hami(document),
        by_agent=is_by_agent(document),
        has_spec=bool(at(document, "spec")),
        version=text(at(document, "metadata", "resourceVersion")),
        owners=items(at(document, "metadata", "ownerReferences")),
    )
