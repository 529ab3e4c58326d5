"""Metrics: HAMi's names, so that dashboards keep working, and our own (docs/operations.md).

The gauges of the ledger are in `ledger_metrics`, those of cards and their Pods in `card_metrics`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cardwise.controller.reports.card_metrics import CardMetrics
from cardwise.controller.reports.ledger_metrics import LedgerCollector
from cardwise.ledger import Ledger

_NOT_KNOWN = float("nan")
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
        reachable: Callable[[], bool | None] = lambda: None,
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
            reachable: whether the API server reaches the webhook; None is not known.
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
        Gauge(
            "cardwise_webhook_reachable",
            "Whether the API server reaches the webhook; NaN where that was not tested.",
            registry=self._registry,
        ).set_function(lambda: _NOT_KNOWN if (known := reachable()) is None else known)
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
        self._cards = CardMetrics(ledger)
        self._registry.register(
            LedgerCollector(
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
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """The same in parts, between which others may have their turn."""
        yield generate_latest(self._registry)
        for part in self._cards.parts():
            yield part.encode()
