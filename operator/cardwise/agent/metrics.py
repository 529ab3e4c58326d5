"""What an agent counts (docs/operations.md, "Metrics")."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Summary, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cardwise.agent.health import Change
from cardwise.agent.probe import Report
from cardwise.ports import Readings

_CARD = ("node", "device_uuid", "device_index", "device_type")


class Metrics:
    """One agent's metrics."""

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, node: str, *, report: Callable[[], Report | None], failures: Callable[[], int]
    ) -> None:
        """Make a registry of its own, so that several can live in one process.

        Args:
            node: the node's name.
            report: what was last published.
            failures: how many reports the cluster did not take.
        """
        self._node = node
        self._registry = CollectorRegistry()
        self._probe = Summary(
            "cardwise_probe_seconds", "Seconds of a look at all cards.", registry=self._registry
        )
        self._changes = Counter(
            "cardwise_card_changes",
            "What became of cards, by the reason of its event.",
            ["node", "device_uuid", "reason"],
            registry=self._registry,
        )
        self._xids = Counter(
            "cardwise_card_xids",
            "Errors that the driver told of, those of programs too.",
            ["node", "device_uuid", "xid"],
            registry=self._registry,
        )
        self._starts = Counter(
            "cardwise_starts",
            "Pods let start on this node, or refused: again for another reason, or after a minute.",
            ["node", "result"],
            registry=self._registry,
        )
        self._registry.register(_Reported(node, report, failures))

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Time one look."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._probe.observe(time.perf_counter() - began)

    def changed(self, change: Change) -> None:
        """Count a change of a card, or of the driver, which has no UUID."""
        uuid = change.card.uuid if change.card else ""
        self._changes.labels(self._node, uuid, change.event).inc()

    def read(self, readings: Readings) -> None:
        """Count what the driver told."""
        for xid in readings.xids:
            self._xids.labels(self._node, xid.uuid, xid.number).inc()

    def started(self, result: str) -> None:
        """Count a Pod that was let start (``started``), or refused (the reason of its event)."""
        self._starts.labels(self._node, result).inc()

    def render(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)


class _Reported(Collector):
    """Gauges of the last report: series of cards that are gone vanish by themselves."""

    def __init__(
        self, node: str, report: Callable[[], Report | None], failures: Callable[[], int]
    ) -> None:
        self._node = node
        self._report = report
        self._failures = failures

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Every gauge, as of now."""
        healthy = GaugeMetricFamily(
            "cardwise_card_healthy", "Whether a card takes new Pods.", labels=_CARD
        )
        report = self._report()
        for card in report.node.cards if report else ():
            labels = [self._node, card.uuid, str(card.index), card.model]
            healthy.add_metric(labels, int(card.healthy))
        yield healthy
        yield CounterMetricFamily(
            "cardwise_report_failures", "Reports not taken by the cluster.", value=self._failures()
        )
