"""A cluster as its objects tell it: who holds which card, and what the nodes' rules are.

Pure: the same ledger, node rules and readings as in the controller, from lists that were read once.
What only the controller knows (holds of a few seconds, nodes that it closed for a while) is not in
any object, and so not here.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cardwise.cli import complaints
from cardwise.errors import BadAllocation, BadGPUNode
from cardwise.ledger import Ledger, Sighting
from cardwise.model import GPUNode, NodeView
from cardwise.names import ALLOCATED
from cardwise.noderules import NodeBook, load_of
from cardwise.settings import Settings
from cardwise.wire import cordons, gpunodes, pods, quotas
from cardwise.wire.account import ClusterSize
from cardwise.wire.fields import at, text

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What was read of a cluster."""

    now: float
    """Unix seconds by the API server's clock, when it was read."""
    gpunodes: Sequence[Json] = ()
    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    """Unfinished ones."""
    quotas: Sequence[Json] = ()


class World:
    """The ledger and the node rules of that cluster."""

    def __init__(
        self, objects: Objects, settings: Settings, *, ignored: Collection[str] = ()
    ) -> None:
        """Take all in.

        Args:
            objects: the cluster's.
            settings: the controller's.
            ignored: resources that kube-scheduler is told to ignore, as for `NodeBook`.
        """
        self.ledger = Ledger()
        self.book = NodeBook(ignored=ignored)
        self.notes: list[str] = []
        """Sentences about objects that can't be read."""
        self._misspelt: dict[str, str] = {}
        """By node: an annotation that is nearly the one that closes cards, mostly none."""
        self._now = objects.now
        self._settings = settings
        for document in objects.gpunodes:
            self._take_gpunode(document)
        for document in objects.nodes:
            self._take_node(document)
        for pod in objects.pods:
            self._take_pod(pod)
        self._take_quotas(objects.quotas)
        self.ledger.age_reports(self._now)

    @property
    def size(self) -> ClusterSize:
        """The largest card and the most cards of a node."""
        nodes = [view.state.cards for view in self.ledger.views(self.ledger.gpunode_names())]
        return ClusterSize(
            largest_card_mib=max((card.memory_mib for cards in nodes for card in cards), default=0),
            most_cards=max((len(cards) for cards in nodes), default=0),
        )

    def views(self, *, without: str = "") -> dict[str, NodeView]:
        """Every Node by name, as if a Pod (its UID) were gone."""
        entry = self.ledger.entry(without)
        views = {view.name: view for view in self.ledger.views(self.book.names())}
        if entry is not None and entry.node in views:
            views[entry.node] = self.ledger.view(entry.node, without={without})
        return views

    def complaints(self, names: Iterable[str]) -> list[str]:
        """Sentences on what is wrong with the cards of some nodes, the first few."""
        told = []
        for name in names:
            wrong = complaints.of_cards(self.ledger, name, self._misspelt.get(name, ""))
            told += [f"node {name}: {sentence}" for sentence in wrong]
        return complaints.some(told, "cardwise top has the cards")

    def _take_gpunode(self, document: Json) -> None:
        try:
            report = gpunodes.gpunode_of(document)
        except BadGPUNode as error:
            self.notes.append(f"{error}; no card of it is offered")
            return
        self.ledger.apply_gpunode(report, _reported(report, self._now))

    def _take_node(self, document: Json) -> None:
        name = text(at(document, "metadata", "name"))
        self._misspelt[name] = cordons.misspelt_cordon(document)
        self.book.apply_node(document)
        self.ledger.apply_node(
            name,
            offers_cards=gpunodes.offers_cards(document),
            cordoned=gpunodes.cordoned_by_annotation(document),
        )

    def _take_pod(self, pod: Json) -> None:
        node = pods.placed_node(pod)
        if node is None:
            return
        ref = pods.pod_ref(pod)
        self.book.take(ref.uid, node, load_of(pod))
        if not pods.has_allocation(pod):
            return
        booking, unreadable = None, None
        try:
            booking = pods.booking_of(pod, init_shrink=self._settings.scheduling.initShrink)
        except BadAllocation as error:
            unreadable = f"{ALLOCATED} {error}"
        self.ledger.see(
            Sighting(
                pod=ref,
                version=0,
                node=node,
                booking=booking,
                unreadable=unreadable,
                handing=pods.is_handing(pod),
            ),
            self._now,
        )

    def _take_quotas(self, documents: Iterable[Json]) -> None:
        by_namespace: dict[str, list[Json]] = {}
        for document in documents:
            namespace = text(at(document, "metadata", "namespace"))
            by_namespace.setdefault(namespace, []).append(document)
            self.notes += quotas.warnings_of(document)
        for namespace, known in by_namespace.items():
            self.ledger.set_bound(namespace, quotas.merge(quotas.bound_of(each) for each in known))


def unix_seconds(written: str) -> float | None:
    """An RFC 3339 time; None where it is none."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _reported(report: GPUNode, now: float) -> float:
    """When a node's agent reported last. Of one that does not say so nobody knows: now."""
    seen = unix_seconds(report.reported_at)
    return now if seen is None else min(now, seen)
