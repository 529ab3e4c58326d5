"""Metrics: HAMi's names, so that dashboards keep working, and our own (docs/operations.md).

Gauges are read from the ledger when they are scraped: series of Pods and cards that are gone vanish
by themselves.
"""

import time
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cardwise.engine.usage import booking_uses
from cardwise.ledger import Ledger, Stage
from cardwise.model import Card
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY

_MIB = 1024 * 1024
_ZONE = "vGPU"
_CARD = ("zone", "node", "device_uuid", "device_index", "device_type")
_BUCKETS = (
    0.0005,
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.128,
    0.256,
    0.512,
    1,
    2,
    4,
    8,
)


class Timer:
    """One call being timed."""

    def __init__(self) -> None:
        self.result = "error"
        """How it ended; set before the end."""


class Metrics:
    """Counts what is done, and reports what the ledger holds."""

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(  # noqa: PLR0913 - who is asked for what, once each
        self,
        ledger: Ledger,
        *,
        repairs: Callable[[], int] = lambda: 0,
        states: Callable[[], int] = lambda: 0,
        conflicts: Callable[[], Mapping[str, str]] = dict,
        unmanaged: Callable[[], Mapping[str, int]] = dict,
        active: Callable[[], bool] = lambda: True,
        bypassed: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make a registry of its own, so that several can live in one process.

        Args:
            ledger: what the gauges show.
            repairs: how often a list had to mend the ledger.
            states: outcomes that the engine's memo holds.
            conflicts: DeviceClasses that take a resource name of ours.
            unmanaged: how many Pods have cards past us, by node.
            active: whether this replica is the one that acts.
            bypassed: Pods that wait without having passed our admission.
            clock: seconds, for durations.
        """
        self._clock = clock
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "cardwise_decision_seconds",
            "Seconds to answer a call of kube-scheduler, to decide at a gate, or to pin.",
            ["verb", "result"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._bind_seconds = Histogram(
            "cardwise_bind_seconds",
            "Seconds of a /bind or a pin, the API server's write included.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._decisions = Counter(
            "cardwise_decisions_total",
            "Decisions, by result and leading reason.",
            ["result", "reason"],
            registry=self._registry,
        )
        self._evictions = Counter(
            "cardwise_evictions_total",
            "Tries to evict a Pod that kube-scheduler refuses on the node it was pinned to.",
            ["result"],
            registry=self._registry,
        )
        Gauge(
            "cardwise_bypassed_pods",
            "Pods with cards that wait and never passed our admission.",
            registry=self._registry,
        ).set_function(bypassed)
        self._rejected = Counter(
            "cardwise_pods_rejected_total",
            "Pods with cards that kubelet rejected on the node they were given, by its reason.",
            ["node", "reason"],
            registry=self._registry,
        )
        self._shadow = Counter(
            "cardwise_shadow_total",
            "Pods that somebody else placed, by where they would have gone.",
            ["result"],
            registry=self._registry,
        )
        self._expired = 0
        self._registry.register(
            _LedgerCollector(
                ledger, repairs, states, conflicts, unmanaged, active, lambda: self._expired
            )
        )

    @contextmanager
    def timed(self, verb: str) -> Iterator[Timer]:
        """Time one call."""
        timer, began = Timer(), self._clock()
        try:
            yield timer
        finally:
            seconds = self._clock() - began
            self._seconds.labels(verb, timer.result).observe(seconds)
            if verb in {"bind", "pin"}:
                self._bind_seconds.observe(seconds)

    def decided(self, result: str, reason: str) -> None:
        """Count a decision."""
        self._decisions.labels(result, reason).inc()

    def evicted(self, result: str) -> None:
        """Count a try to evict a Pod."""
        self._evictions.labels(result).inc()

    def rejected(self, node: str, reason: str) -> None:
        """Count a Pod that kubelet rejected."""
        self._rejected.labels(node, reason).inc()

    def shadowed(self, result: str) -> None:
        """Count a Pod that was compared."""
        self._shadow.labels(result).inc()

    def hold_expired(self) -> None:
        """Count a hold that nobody came back for."""
        self._expired += 1

    def render(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)


class _LedgerCollector(Collector):
    """Gauges that are read from the ledger when they are asked for."""

    def __init__(
        self,
        ledger: Ledger,
        repairs: Callable[[], int],
        states: Callable[[], int],
        conflicts: Callable[[], Mapping[str, str]],
        unmanaged: Callable[[], Mapping[str, int]],
        active: Callable[[], bool],
        expired: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._conflicts = conflicts
        self._unmanaged = unmanaged
        self._expired = expired
        self._active = active
        self._repairs = repairs
        self._states = states

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every gauge, as of now."""
        yield from self._own()
        yield from self._strangers()
        yield from self._room()
        yield from self._cards()
        yield from self._tenants()
        yield from self._quotas()

    def _own(self) -> Iterator[GaugeMetricFamily]:
        waiting = Count(
            # None: its hold was given up, and nobody has asked since.
            str(entry.reason or "")
            for entry in self._ledger.entries()
            if entry.stage is Stage.WAITING
        )
        pending = GaugeMetricFamily(
            "cardwise_pending_pods", "Pods that wait for cards.", labels=["reason"]
        )
        for reason in sorted(waiting):
            pending.add_metric([reason], waiting[reason])
        yield pending
        holds = sum(entry.stage is Stage.HELD for entry in self._ledger.entries())
        yield GaugeMetricFamily("cardwise_holds", "Holds that are not bound yet.", value=holds)
        yield GaugeMetricFamily(
            "cardwise_holds_expired_total",
            "Holds given up because kube-scheduler did not come back.",
            value=self._expired(),
        )
        sent = sum(entry.stage is Stage.BINDING for entry in self._ledger.entries())
        yield GaugeMetricFamily(
            "cardwise_bindings", "Bindings and pins whose outcome is not known yet.", value=sent
        )
        yield GaugeMetricFamily(
            "cardwise_ledger_repairs_total",
            "Bookings that a list had to mend.",
            value=self._repairs(),
        )
        yield GaugeMetricFamily(
            "cardwise_active",
            "Whether this replica is the one that answers and writes.",
            value=int(self._active()),
        )
        yield GaugeMetricFamily(
            "cardwise_engine_states", "Outcomes that the engine remembers.", value=self._states()
        )

        taken = GaugeMetricFamily(
            "cardwise_device_class_conflict",
            "DeviceClasses that take a resource name of ours.",
            labels=["device_class", "resource"],
        )
        for name, resource in sorted(self._conflicts().items()):
            taken.add_metric([name, resource], 1)
        yield taken

    def _cards(self) -> Iterator[GaugeMetricFamily]:
        families = {
            name: GaugeMetricFamily(name, text, labels=labels)
            for name, text, labels in [
                ("hami_gpu_memory_limit_bytes", "Memory of a card.", _CARD),
                ("hami_gpu_core_limit_ratio", "Cores of a card.", _CARD),
                ("hami_gpu_memory_allocated_bytes", "Memory given out.", (*_CARD, "device_cores")),
                ("hami_gpu_shared_count", "Slots given out.", _CARD),
                ("hami_gpu_core_allocated_ratio", "Cores given out.", _CARD),
                ("hami_node_gpu_memory_allocated_ratio", "Part of the memory given out.", _CARD),
                (
                    "hami_node_gpu_overview",
                    "Memory given out, beside what a card has.",
                    (*_CARD, "device_cores", "device_memory_limit"),
                ),
            ]
        }
        for node in self._ledger.gpunode_names():
            account = self._ledger.account(node)
            if account is None:
                continue
            uses = account.uses()
            for card in account.cards():
                labels = _labels(node, card)
                use = uses.get(card.uuid)
                slots, memory, cores = (use.slots, use.memory_mib, use.cores) if use else (0, 0, 0)
                add = {name: family.add_metric for name, family in families.items()}
                add["hami_gpu_memory_limit_bytes"](labels, card.memory_mib * _MIB)
                add["hami_gpu_core_limit_ratio"](labels, card.cores)
                add["hami_gpu_memory_allocated_bytes"]([*labels, str(card.cores)], memory * _MIB)
                add["hami_gpu_shared_count"](labels, slots)
                add["hami_gpu_core_allocated_ratio"](labels, cores)
                if card.memory_mib:
                    part = memory / card.memory_mib
                    add["hami_node_gpu_memory_allocated_ratio"](labels, part)
                sizes = [str(card.cores), str(card.memory_mib)]
                add["hami_node_gpu_overview"]([*labels, *sizes], memory * _MIB)
        yield from families.values()

    def _strangers(self) -> Iterator[GaugeMetricFamily]:
        pods = GaugeMetricFamily(
            "cardwise_unmanaged_pods",
            "Pods that have cards of a node of ours, but no allocation.",
            labels=["node"],
        )
        for node, count in sorted(self._unmanaged().items()):
            pods.add_metric([node], count)
        yield pods

    def _room(self) -> Iterator[GaugeMetricFamily]:
        """How far the free memory is scattered, and which cards have too many tenants."""
        free = GaugeMetricFamily(
            "cardwise_free_memory_mebibytes",
            "Memory on cards of a node that take new Pods.",
            labels=["node"],
        )
        largest = GaugeMetricFamily(
            "cardwise_free_memory_largest_mebibytes", "The most of it on one card.", labels=["node"]
        )
        over = GaugeMetricFamily(
            "cardwise_card_overbooked", "Cards with more given out than they have.", labels=_CARD
        )
        for view in self._ledger.views(self._ledger.gpunode_names()):
            cards = view.state.cards
            rooms = [card.room_mib for card in cards] if view.problem is None else []
            free.add_metric([view.name], sum(rooms))
            largest.add_metric([view.name], max(rooms, default=0))
            for uuid, card in zip(view.uuids, cards, strict=True):
                if card.is_overbooked:
                    over.add_metric([_ZONE, view.name, uuid, str(card.index), card.model], 1)
        yield free
        yield largest
        yield over

    def _tenants(self) -> Iterator[GaugeMetricFamily]:
        labels = ("zone", "namespace", "node", "pod", "container_index", "device_uuid")
        memory = GaugeMetricFamily(
            "hami_vgpu_memory_allocated_bytes", "Memory of a Pod on a card.", labels=labels
        )
        cores = GaugeMetricFamily(
            "hami_vgpu_core_allocated_ratio", "Cores of a Pod on a card.", labels=labels
        )
        for entry in self._ledger.entries():
            booking = entry.booking
            account = self._ledger.account(booking.node) if booking else None
            if booking is None or account is None:
                continue
            for uuid, use in booking_uses(booking, account.card_cores()).items():
                # A Pod's containers are told as one, as HAMi does.
                values = [_ZONE, entry.pod.namespace, booking.node, entry.pod.name, "0", uuid]
                memory.add_metric(values, use.memory_mib * _MIB)
                cores.add_metric(values, use.cores)
        yield memory
        yield cores

    def _quotas(self) -> Iterator[GaugeMetricFamily]:
        labels = ("zone", "namespace", "quota_name")
        limit = GaugeMetricFamily(
            "hami_resource_quota_limit", "Bound of a namespace.", labels=labels
        )
        used = GaugeMetricFamily(
            "hami_resource_quota_used", "What its Pods hold.", labels=(*labels, "limit")
        )
        for namespace, bound in sorted(self._ledger.bounded_namespaces().items()):
            use = self._ledger.quota_use(namespace)
            for name, most, value in [
                (QUOTA_MEMORY, bound.memory_mib, use.memory_mib),
                (QUOTA_CORES, bound.cores, use.cores),
            ]:
                if most is not None:
                    limit.add_metric([_ZONE, namespace, name], most)
                    used.add_metric([_ZONE, namespace, name, str(most)], value)
        yield limit
        yield used


def _labels(node: str, card: Card) -> list[str]:
    return [_ZONE, node, card.uuid, str(card.index), card.model]
