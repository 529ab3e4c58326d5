"""Keep the ledger as the cluster is: events as they come, and a full list against what they missed.

Kopf does not say when its first list is over, tells no DELETED for what vanished while it was away,
and does not repeat an event whose handler failed. So the truth is a list of our own: once before
anything is answered, and again whenever something may have been missed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cardwise.controller.clock import Clock
from cardwise.controller.watching.reading import Reading
from cardwise.errors import ApiError, BadGPUNode
from cardwise.ledger import Ledger, Sighting
from cardwise.model import PodRef, QuotaBound
from cardwise.ports import Cluster
from cardwise.settings import Settings
from cardwise.wire import gpunodes, pods, quotas
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)

Json = dict[str, Any]
_TURN = 20
"""Objects of a list that are read in a row, some milliseconds; then questions have their turn."""
_Key = tuple[str, str, str]
"""Kind, namespace, and name."""


class _Take(Protocol):
    def __call__(self, document: Json, *, deleted: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """One more kind of object that somebody keeps an account of."""

    resource: tuple[str, str, str]
    """Group, version and plural."""
    pages: Callable[[Cluster], AsyncIterator[list[Json]]]
    """Lists all of it."""
    take: _Take
    """Takes one that is there, changed, or gone."""
    known: Callable[[], set[tuple[str, str]]]
    """Namespace and name of each that was taken and is not gone."""

    @property
    def name(self) -> str:
        """The plural, by which it is told from others."""
        return self.resource[2]


class Follower(Protocol):
    """Whoever else keeps an account of what the mirror is shown, in the same order."""

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone; events may come late, and more than once."""
        ...

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone; never older than what was shown before."""
        ...

    def listed(self, uids: set[str], began: float) -> None:
        """A complete list of unfinished Pods, asked for at ``began`` (monotonic seconds)."""
        ...


class Mirror:
    """Turns what the API server shows into changes of the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        clock: Clock,
        *,
        changed: Callable[[], None] = lambda: None,
        unreadable: Callable[[PodRef, str], None] = lambda _pod, _why: None,
    ) -> None:
        """Make a mirror.

        Args:
            ledger: what is changed.
            settings: ``scheduling.initShrink`` decides how init containers count.
            clock: when an event was seen.
            changed: called after every change.
            unreadable: called with a Pod whose allocation can't be read, and why.
        """
        self._ledger = ledger
        self._shadow = settings.scheduling.shadow
        self._clock = clock
        self._changed = changed
        self._reading = Reading(
            ledger, init_shrink=settings.scheduling.initShrink, unreadable=unreadable
        )
        self._quotas: dict[str, dict[str, QuotaBound]] = {}
        self._warned: dict[tuple[str, str], tuple[str, ...]] = {}
        """What was last said of a quota, so that it is said once."""
        self._shown: dict[_Key, int] = {}
        """What events showed since the list under way began, and its resourceVersion."""
        self._listing = asyncio.Lock()
        """Two lists at a time would take each other's account of what events showed."""
        self._reports: dict[str, int] = {}
        """The resourceVersion of the GPUNode that the ledger was told last, by name."""
        self.node_names: set[str] = set()
        """Every Node that exists."""
        self.found: set[str] = set()
        """Plurals of the kinds, of GPUNodes, Nodes and Pods, of which the last list had some."""
        self.repairs = 0
        """How often a list had to mend the ledger."""
        self.followers: list[Follower] = []
        self.gpunode_followers: list[_Take] = []
        """Who else is shown every GPUNode."""
        self.unstored: Callable[[], list[Json]] = list
        """GPUNodes that no API server keeps, where somebody makes such."""
        self.kinds: list[Kind] = []
        """Beside Pods, GPUNodes, Nodes and ResourceQuotas."""

    # Events ---------------------------------------------------------------------------------------

    def see_pod(self, pod: Json, *, deleted: bool = False) -> None:
        """A Pod is there, changed, or gone."""
        sighting = self._reading.read(pod, deleted=deleted)
        if sighting is not None:
            self._ledger.see(sighting, self._clock.monotonic())
        for follower in self.followers:
            follower.see_pod(pod, deleted=deleted)
        if sighting is not None:
            self._changed()

    def see_gpunode(self, document: Json, *, deleted: bool = False) -> None:
        """A GPUNode is there, changed, or gone."""
        self._note("gpunode", document)
        self._take_gpunode(document, deleted=deleted)
        self._changed()

    def see_node(self, document: Json, *, deleted: bool = False) -> None:
        """A Node is there, changed, or gone."""
        self._note("node", document)
        self._take_node(document, deleted=deleted)
        self._changed()

    def see_quota(self, document: Json, *, deleted: bool = False) -> None:
        """A ResourceQuota is there, changed, or gone."""
        self._note("quota", document)
        self._take_quota(document, deleted=deleted)
        self._changed()

    def see(self, kind: Kind, document: Json, *, deleted: bool = False) -> None:
        """An object of one more kind is there, changed, or gone."""
        self._note(kind.name, document)
        kind.take(document, deleted=deleted)
        self._changed()

    def _note(self, kind: str, document: Json) -> None:
        """Remember what an event showed while a list is under way: the list may be older."""
        if self._listing.locked():
            self._shown[_key(kind, document)] = pods.version_number(document)

    # Lists ----------------------------------------------------------------------------------------

    async def reconcile(self, cluster: Cluster, *, first: bool = False) -> int:
        """List everything and mend what differs; how many bookings were mended.

        Args:
            cluster: who is asked.
            first: a beginning, of the process or of a term: what is found is no repair.

        Raises:
            ApiError: a list failed; what was listed before it is applied.
        """
        async with self._listing:
            await self._list_nodes(cluster)
            for kind in self.kinds:
                await self._list(kind.name, kind.pages(cluster), kind.take, kind.known())
            began = self._clock.monotonic()
            listed: list[Sighting] = []
            uids: set[str] = set()
            async for page in cluster.unfinished_pods():
                for at_once in range(0, len(page), _TURN):
                    some = page[at_once : at_once + _TURN]
                    sightings = [self._reading.read(pod, listed=True) for pod in some]
                    listed += [sighting for sighting in sightings if sighting is not None]
                    uids.update(self._follow(some))
                    await asyncio.sleep(0)
            some_of = {
                "gpunodes": self._ledger.gpunode_names(),
                "nodes": self.node_names,
                "pods": uids,
            }
            self.found = {kind for kind, some in some_of.items() if some}
            repairs = self._ledger.reconcile(listed, began, self._clock.monotonic())
            self._reading.keep(uids)
            for follower in self.followers:
                follower.listed(uids, began)
        if not first:
            self.repairs += len(repairs)
            for repair in repairs:
                _log.warning("the ledger was mended: Pod %s: %s", repair.pod, repair.what)
        self._changed()
        return 0 if first else len(repairs)

    def _follow(self, page: list[Json]) -> Iterator[str]:
        """Show the Pods of a page to the followers; their UIDs."""
        for pod in page:
            for follower in self.followers:
                follower.see_pod(pod, deleted=False)
            yield text(at(pod, "metadata", "uid"))

    async def _list_nodes(self, cluster: Cluster) -> None:
        """List GPUNodes, Nodes and ResourceQuotas; what is not there any more is gone."""
        gone = {("", name) for name in self._ledger.gpunode_names()}
        await self._list("gpunode", self._gpunodes(cluster), self._take_gpunode, gone)
        gone = {("", name) for name in self.node_names}
        await self._list("node", cluster.nodes(), self._take_node, gone)
        gone = {(namespace, name) for namespace, known in self._quotas.items() for name in known}
        await self._list("quota", cluster.quotas(), self._take_quota, gone)

    async def _gpunodes(self, cluster: Cluster) -> AsyncIterator[list[Json]]:
        """Every GPUNode, the stored ones first; a kind that the cluster lacks has none stored."""
        stored: set[str] = set()
        try:
            async for page in cluster.gpunodes():
                stored.update(_name(document) for document in page)
                yield page
        except ApiError as error:
            if error.status != 404 or not self._shadow:
                raise
        yield [document for document in self.unstored() if _name(document) not in stored]

    async def _list(
        self, kind: str, pages: AsyncIterator[list[Json]], take: _Take, known: set[tuple[str, str]]
    ) -> None:
        """Take every object of a list, and as deleted those that were known and are not in it.

        A long list is old when its last page comes: what an event showed meanwhile is newer.
        """
        self._shown.clear()
        async for page in pages:
            for number, document in enumerate(page):
                if number % _TURN == 0:
                    await asyncio.sleep(0)
                key = _key(kind, document)
                known.discard(key[1:])
                if pods.version_number(document) >= self._shown.get(key, 0):
                    take(document, deleted=False)
        for namespace, name in sorted(known):
            if (kind, namespace, name) not in self._shown:
                take({"metadata": {"namespace": namespace, "name": name}}, deleted=True)

    # Steps ----------------------------------------------------------------------------------------

    def _take_gpunode(self, document: Json, *, deleted: bool = False) -> None:
        now = self._clock.monotonic()
        for take in self.gpunode_followers:
            take(document, deleted=deleted)
        name, version = _name(document), 0 if deleted else pods.version_number(document)
        if version and self._reports.get(name) == version:
            return  # a list shows what is known, of thousands of nodes
        self._reports.pop(name, None)
        if deleted:
            self._ledger.remove_gpunode(name, now)
            return
        try:
            self._ledger.apply_gpunode(gpunodes.gpunode_of(document), now)
        except BadGPUNode as error:
            _log.warning("%s; no card of it is offered", error)
            self._ledger.remove_gpunode(name, now)
        self._reports[name] = version

    def _take_node(self, document: Json, *, deleted: bool = False) -> None:
        name = _name(document)
        for follower in self.followers:
            follower.see_node(document, deleted=deleted)
        if deleted:
            self.node_names.discard(name)
            self._ledger.remove_node(name)
            return
        self.node_names.add(name)
        self._ledger.apply_node(
            name,
            offers_cards=gpunodes.offers_cards(document),
            cordoned=gpunodes.cordoned_by_annotation(document),
            boot_id=text(at(document, "status", "nodeInfo", "bootID")),
        )

    def _take_quota(self, document: Json, *, deleted: bool = False) -> None:
        namespace, name = text(at(document, "metadata", "namespace")), _name(document)
        known = self._quotas.setdefault(namespace, {})
        bound = QuotaBound() if deleted else quotas.bound_of(document)
        warnings = () if deleted else quotas.warnings_of(document)
        if warnings != self._warned.pop((namespace, name), ()):
            for warning in warnings:
                _log.warning("%s", warning)
        if warnings:
            self._warned[namespace, name] = warnings
        if bound == QuotaBound():
            known.pop(name, None)
        else:
            known[name] = bound
        self._ledger.set_bound(namespace, quotas.merge(known.values()))
        if not known:
            del self._quotas[namespace]


def _name(document: Json) -> str:
    return text(at(document, "metadata", "name"))


def _key(kind: str, document: Json) -> _Key:
    return kind, text(at(document, "metadata", "namespace")), _name(document)
