"""What the webhook counts, as Prometheus reads it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from cardwise_webhook.review import Result

_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 2, 4)


class Timer:
    """One request being timed."""

    def __init__(self) -> None:
        self.result = Result.ERROR
        """How it ended; set before the end."""


class Metrics:
    """Counts requests, and tells until when the certificate is good."""

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Make a registry of its own, so that several can live in one process.

        Args:
            clock: seconds, for durations.
        """
        self._clock = clock
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._requests = Counter(
            "cardwise_admission_requests_total",
            "Requests of the API server, by what became of them.",
            ["result"],
            registry=self._registry,
        )
        for result in Result:
            self._requests.labels(result.value)  # so that a rate has a beginning
        self._seconds = Histogram(
            "cardwise_admission_seconds",
            "Seconds from a request's head to its answer.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._expires = Gauge(
            "cardwise_certificate_expires_timestamp_seconds",
            "Until when the certificate that is served is good, in seconds since 1970; 0: none.",
            registry=self._registry,
        )
        self._loads = Counter(
            "cardwise_certificate_loads_total",
            "Certificates that were found in the directory, by whether they could be used.",
            ["result"],
            registry=self._registry,
        )
        for loaded in ("ok", "refused"):
            self._loads.labels(loaded)

    @contextmanager
    def timed(self) -> Iterator[Timer]:
        """Time and count one request."""
        timer, began = Timer(), self._clock()
        try:
            yield timer
        finally:
            self._seconds.observe(self._clock() - began)
            self._requests.labels(timer.result.value).inc()

    def certificate_loaded(self, expires: float) -> None:
        """A certificate is in use; ``expires`` in seconds since 1970."""
        self._loads.labels("ok").inc()
        self._expires.set(expires)

    def certificate_refused(self) -> None:
        """What was found can't be used."""
        self._loads.labels("refused").inc()

    def render(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
