"""What the ledger holds, as gauges, read when somebody scrapes: what is gone vanishes by itself."""

from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cardwise.engine.usage import booking_uses
from cardwise.ledger import Ledger, Stage
from cardwise.model import Card
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY

_MIB = 1024 * 1024
_ZONE = "vGPU"
_CARD = ("zone", "node", "device_uuid", "device_index", "device_type")


class LedgerCollector(Collector):
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
