"""What the ledger holds, as gauges, read when somebody scrapes: what is gone vanishes by itself."""

from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cardwise.controller.reports.card_metrics import ZONE
from cardwise.ledger import Ledger, Stage
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY


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

    def _strangers(self) -> Iterator[GaugeMetricFamily]:
        pods = GaugeMetricFamily(
            "cardwise_unmanaged_pods",
            "Pods that have cards of a node of ours, but no allocation.",
            labels=["node"],
        )
        for node, count in sorted(self._unmanaged().items()):
            pods.add_metric([node], count)
        yield pods

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
                    limit.add_metric([ZONE, namespace, name], most)
                    used.add_metric([ZONE, namespace, name, str(most)], value)
        yield limit
        yield used
