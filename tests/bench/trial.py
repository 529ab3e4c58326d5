"""One trial: a contestant, so many Pods, and what it took."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bench.audit import AuditTail
from bench.contestants import Contestant, Running, throttled
from bench.ground import Crowd
from bench.measures import (
    Lives,
    cpu_by_name,
    forget_peak,
    lives,
    peak_mb,
    quantile,
    requests,
)
from bench.mixes import Mix, pod
from controlplane.api import Api
from controlplane.launcher import ControlPlane, Process

_WARM = 4
"""Pods that are bound before the clock runs: connections, first lists, and the first answer."""
TRIAL_SECONDS = 100.0
"""A trial that takes longer ends unfinished. With what it takes to settle it is below the age at
which GPUNodes count as stale: no agent reports here."""
_LOOK_SECONDS = 0.1
_SETTLE_SECONDS, _QUIET_SECONDS, _QUIET_PART = 70.0, 4.0, 0.25
"""Before the clock runs the contestant's processes have to take less than a quarter of a processor
for four seconds, unless they never do."""
_EVENTS_SECONDS = 10.0
"""Events are written behind: for so long at most they are waited for after the last Binding, for
they are part of what a Pod costs."""
BENCH = "bench"
"""This process, which creates the Pods: it takes its share of the machine, too."""
_STARVED_PART = 0.9
_THROTTLED_PART = 0.01
"""Of a client's requests: above it the client's own limit was part of what was measured."""


@dataclass
class Result:
    """What came of a trial."""

    contestant: str
    nodes: int
    mix: str
    round: int
    pods: int
    """How many were created."""
    expected: int
    """How many fit."""
    bound: int = 0
    seconds: float = math.nan
    """From the first creation to the last Binding, by the API server's record."""
    rate: float = math.nan
    """Pods a second."""
    created_rate: float = math.nan
    """Pods created a second: nobody can be faster."""
    p50_seconds: float = math.nan
    """From a Pod's creation to its Binding."""
    p99_seconds: float = math.nan
    cpu_ms_per_pod: dict[str, float] = field(default_factory=dict)
    """By process; that of the bench itself is told, and is in no sum."""
    peak_mb: dict[str, float] = field(default_factory=dict)
    """By process; of etcd and kube-apiserver since the trial's beginning."""
    latency_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Median and p99 by verb, by the extender's or controller's own account."""
    requests_per_pod: dict[str, float] = field(default_factory=dict)
    """Of the API server, by who asked what; those that came less than once in a hundred Pods are
    left out."""
    throttled: float = math.nan
    """Part of kube-scheduler's requests that its own limit kept back for more than 25 ms."""
    turned_away: int = 0
    """Requests that the API server refused as too many."""
    ready_seconds: float = math.nan
    """From the start of the contestant's processes until they were ready."""

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time a Pod, of all processes but the bench itself."""
        return sum(ms for name, ms in self.cpu_ms_per_pod.items() if name != BENCH)

    @property
    def is_throttled(self) -> bool:
        """Whether limits were part of what was measured."""
        return self.throttled > _THROTTLED_PART or self.turned_away > 0

    @property
    def is_starved(self) -> bool:
        """Whether Pods did not come faster than they were bound."""
        return self.rate > _STARVED_PART * self.created_rate

    @property
    def is_finished(self) -> bool:
        """Whether all were bound that fit."""
        return self.bound >= self.expected

    def document(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        known = {name: _known(value) for name, value in asdict(self).items()}
        return {**known, "is_throttled": self.is_throttled, "is_finished": self.is_finished}

    @classmethod
    def read(cls, document: dict[str, Any]) -> "Result":
        """From what `document` wrote."""
        return cls(**{each.name: _read(document[each.name]) for each in fields(cls)})


def _known(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return None
        case dict():
            return {name: _known(each) for name, each in value.items()}
        case tuple():
            return [_known(each) for each in value]
    return value


def _read(value: Any) -> Any:
    match value:
        case None:
            return math.nan
        case dict():
            return {name: _read(each) for name, each in value.items()}
        case list():
            return tuple(map(_read, value))
    return value


@dataclass
class Course:
    """Runs trials on one control plane."""

    cp: ControlPlane
    crowd: Crowd
    nodes: int
    pods: int
    qps: float
    pace: float | None = None
    """Pods created a second; None: as fast as they are taken."""
    profiler: Callable[[Running, str], contextlib.AbstractContextManager[None]] | None = None

    def __post_init__(self) -> None:
        self._tail = AuditTail(self.cp)

    def run(
        self, contestant: Contestant, mix: Mix, number: int, told: Callable[[int], None]
    ) -> Result:
        """Run one; ``told`` of how many are bound, again and again."""
        namespace = f"{contestant.name}-{mix.name}-{number}"
        self.cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        result = Result(
            contestant=contestant.name,
            nodes=self.nodes,
            mix=mix.name,
            round=number,
            pods=self.pods,
            expected=sum(map(mix.fits, range(self.pods))),
        )
        began = time.monotonic()
        running = contestant.start(self.cp, self.qps)
        result.ready_seconds = time.monotonic() - began
        try:
            self._warm(contestant, mix, f"{namespace}-warm")
            self._settle(running)
            self._measure(contestant, mix, namespace, running, result, told)
        finally:
            running.end()
            for used in (namespace, f"{namespace}-warm"):
                self._clear(used)
        return result

    def _profiled(self, running: Running, name: str) -> contextlib.AbstractContextManager[None]:
        return self.profiler(running, name) if self.profiler else contextlib.nullcontext()

    def _warm(self, contestant: Contestant, mix: Mix, namespace: str) -> None:
        """Have a few Pods bound, of those that fit."""
        self.cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._tail.begin()
        numbers = [number for number in range(2 * _WARM) if mix.fits(number)][:_WARM]
        self._create(contestant, mix, namespace, numbers)
        bound = self._counter(namespace, len(numbers))
        self.cp.wait(f"{contestant.title} to bind", lambda: bound() >= len(numbers), 60)

    def _settle(self, running: Running) -> None:
        """Let what follows a start come to its end: first lists, and what is made of them."""
        pids = {name: process.pid for name, process in running.processes.items()}
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            before = cpu_by_name(pids)
            time.sleep(_QUIET_SECONDS)
            after = cpu_by_name(pids)
            if sum(after.values()) - sum(before.values()) < _QUIET_PART * _QUIET_SECONDS:
                return

    def _measure(
        self,
        contestant: Contestant,
        mix: Mix,
        namespace: str,
        running: Running,
        result: Result,
        told: Callable[[int], None],
    ) -> None:
        pids = {name: process.pid for name, process in self._processes(running).items()}
        pids[BENCH] = os.getpid()
        for pid in pids.values():
            forget_peak(pid)
        running.latencies()
        limiter, before = running.limiter(), cpu_by_name(pids)
        self._tail.begin()
        look = self._counter(namespace, result.expected)
        deadline = time.monotonic() + TRIAL_SECONDS
        with self._profiled(running, namespace):
            self._create(contestant, mix, namespace, range(self.pods))
            while (bound := look()) < result.expected and time.monotonic() < deadline:
                told(bound)
                time.sleep(_LOOK_SECONDS)
            self._tail.calm(namespace, _EVENTS_SECONDS)
        after = cpu_by_name(pids)
        lines = self._tail.lines()
        record = lives(lines, namespace)
        self._confirm(record, namespace)
        self._take(record, result)
        each = max(1, result.bound)
        result.requests_per_pod = {
            who: count / each for who, count in requests(lines).most_common() if count * 100 >= each
        }
        result.cpu_ms_per_pod = {n: 1000 * (after[n] - before[n]) / each for n in pids}
        result.peak_mb = {name: peak_mb(pid) for name, pid in pids.items()}
        result.latency_ms = {
            verb: (1000 * p50, 1000 * p99) for verb, (p50, p99) in running.latencies().items()
        }
        result.throttled = throttled(running.limiter().since(limiter))

    def _counter(self, namespace: str, expected: int) -> Callable[[], int]:
        """How many Pods of a namespace are bound, of so many, each time it is asked."""
        record, news = Lives(), self._tail.news()

        def look() -> int:
            lives(news(), namespace, record)
            if len(record.bound) < expected <= len(record.bound) + len(record.doubtful):
                self._confirm(record, namespace)
            return len(record.bound)

        return look

    def _confirm(self, record: Lives, namespace: str) -> None:
        """Look at the Pods themselves where the log does not know whether they are bound."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        asked = {name: self.cp.request("GET", f"{pods}/{name}") for name in record.doubtful}
        record.confirm(name for name, found in asked.items() if found["spec"].get("nodeName"))

    @staticmethod
    def _take(record: Lives, result: Result) -> None:
        result.bound = len(record.bound)
        result.seconds, result.rate = record.seconds, record.rate
        result.created_rate = record.created_rate
        result.p50_seconds = quantile(record.waits, 0.5)
        result.p99_seconds = quantile(record.waits, 0.99)
        result.turned_away = record.turned_away

    def _processes(self, running: Running) -> dict[str, Process]:
        core = {"kube-apiserver": self.cp.api_server, "etcd": self.cp.etcd}
        return {**core, **running.processes}

    def _create(
        self, contestant: Contestant, mix: Mix, namespace: str, numbers: range | list[int]
    ) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        documents = [
            pod(mix, number, scheduler=contestant.scheduler, gated=contestant.gated)
            for number in numbers
        ]

        def create(api: Api, document: dict[str, Any]) -> None:
            api.request("POST", path, document)

        self.crowd.each(create, self._paced(documents))

    def _paced(self, documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        began = time.monotonic()
        for number, document in enumerate(documents):
            if self.pace:
                time.sleep(max(0.0, began + number / self.pace - time.monotonic()))
            yield document

    def _clear(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        now = {"gracePeriodSeconds": 0}
        self.cp.request("DELETE", path, now)

        def gone() -> bool:
            return not self.cp.request("GET", f"{path}?limit=1")["items"]

        self.cp.wait(f"the Pods of {namespace} to go", gone, 60)
