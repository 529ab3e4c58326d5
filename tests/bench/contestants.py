"""Who binds Pods in a trial: its processes, how they are started, and what they tell of themselves.

Each is started anew for each trial and ended after it, so that nobody pays for another's watches.
"""

import json
import math
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.ground import settings_of_gates
from bench.measures import Histogram, histogram, quantile
from cardwise import names
from controlplane.api import Api
from controlplane.launcher import SCHEDULER_ACCOUNT, ControlPlane, Process, free_port
from installation import PROGRAMS

VERBS = ("filter", "bind")
BATCHING_OFF = "--feature-gates=OpportunisticBatching=false"
THROTTLED_SECONDS = 0.025
"""A request that its own client kept back for longer was throttled. A bucket's bound."""
_READY_SECONDS = 120
_LIMITER = "rest_client_rate_limiter_duration_seconds"
_DECISIONS = "cardwise_decision_seconds"


@dataclass
class Running:
    """A contestant at work."""

    processes: dict[str, Process] = field(default_factory=dict)
    """By the role: ``kube-scheduler``, ``controller``, ``extender``."""
    latencies: Callable[[], dict[str, tuple[float, float]]] = dict
    """Median and p99 of each verb in seconds, of what was asked since the last call."""
    limiter: Callable[[], Histogram] = Histogram
    """How long kube-scheduler's own client kept its requests back, since its start."""
    reports: dict[str, Callable[[], str]] = field(default_factory=dict)
    """What a process tells Prometheus, by its role."""

    def end(self) -> None:
        """End the processes, the scheduler first: it must not see its extender go."""
        for process in reversed(self.processes.values()):
            process.terminate()


@dataclass(frozen=True)
class Contestant:
    """A way to have Pods bound."""

    name: str
    title: str
    scheduler: str
    """Whom its Pods name."""
    start: Callable[[ControlPlane, float], Running]
    """On a control plane, with the clients' limit (requests a second); returns when it is ready."""
    gated: bool = False


def contestants(url: str | None) -> dict[str, Contestant]:
    """Everybody, in the order of the table; ``url`` is the address of one more extender."""
    ours, stock = names.SCHEDULER_NAME, names.DEFAULT_SCHEDULER
    everybody = [
        Contestant("stock", "kube-scheduler as shipped", stock, _stock),
        Contestant("stock-all", "kube-scheduler, our profile's settings", ours, _stock_all),
        Contestant("nothing", "an extender that does nothing", ours, _nothing),
        Contestant("extender", "Cardwise, extender door", ours, _extender),
        Contestant("gates", "Cardwise, gates door", stock, _gates, gated=True),
    ]
    if url is not None:

        def start(cp: ControlPlane, qps: float) -> Running:
            return _with_scheduler(cp, qps, url, Running())

        everybody.append(Contestant("url", f"the extender at {url}", ours, start))
    return {each.name: each for each in everybody}


def _stock(cp: ControlPlane, qps: float) -> Running:
    """(a) Every setting as it comes but the client's limit."""
    scheduler = cp.start_default_scheduler(qps=qps)
    return Running({"kube-scheduler": scheduler}, limiter=_limiter(cp, scheduler))


def _stock_all(cp: ControlPlane, qps: float) -> Running:
    """(a') Every node scored, no answer kept for the next Pod: as where an extender is asked."""
    scheduler = cp.start_scheduler(extender_url=None, qps=qps, arguments=[BATCHING_OFF])
    return Running({"kube-scheduler": scheduler}, limiter=_limiter(cp, scheduler))


def _nothing(cp: ControlPlane, qps: float) -> Running:
    """(b) The program ``do_nothing``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    kubeconfig = cp.service_account_kubeconfig(SCHEDULER_ACCOUNT)
    argv = [
        sys.executable,
        "-m",
        "bench.do_nothing",
        f"--kubeconfig={kubeconfig}",
        f"--port={port}",
    ]
    extender = cp.start_process("do-nothing", argv)
    cp.wait("the extender to answer", lambda: _get(f"{url}/seconds"), _READY_SECONDS)
    seen = dict.fromkeys(VERBS, 0)

    def latencies() -> dict[str, tuple[float, float]]:
        told = {}
        for verb, seconds in json.loads(_get(f"{url}/seconds")).items():
            new, seen[verb] = seconds[seen[verb] :], len(seconds)
            told[verb] = (quantile(new, 0.5), quantile(new, 0.99))
        return told

    return _with_scheduler(cp, qps, url, Running({"extender": extender}, latencies))


def _extender(cp: ControlPlane, qps: float) -> Running:
    """(c) The controller, and the kube-scheduler that asks it."""
    port = free_port()
    running = controller(cp, f"--listen=127.0.0.1:{port}")
    return _with_scheduler(cp, qps, f"http://127.0.0.1:{port}", running)


def _gates(cp: ControlPlane, qps: float) -> Running:
    """(c') The controller, and the cluster's own kube-scheduler as it comes."""
    running = controller(cp, f"--config={settings_of_gates(cp.directory)}")
    scheduler = cp.start_default_scheduler(qps=qps)
    running.processes["kube-scheduler"] = scheduler
    running.limiter = _limiter(cp, scheduler)
    running.reports["kube-scheduler"] = _reports(cp, scheduler)
    return running


def controller(cp: ControlPlane, *options: str) -> Running:
    """The controller by itself, ready; ``options`` of its program."""
    port = free_port()
    reports = f"http://127.0.0.1:{port}"
    argv = [
        str(PROGRAMS / "cardwise-controller"),
        f"--kubeconfig={cp.service_account_kubeconfig(SCHEDULER_ACCOUNT)}",
        f"--metrics-listen=127.0.0.1:{port}",
        "--no-leader-election",
        *options,
    ]
    process = cp.start_process("controller", argv)
    cp.wait("the controller to be ready", lambda: _get(f"{reports}/readyz"), _READY_SECONDS)
    before: dict[str, Histogram] = {}

    def latencies() -> dict[str, tuple[float, float]]:
        text, told = _get(f"{reports}/metrics"), {}
        for verb in (*VERBS, "pin"):
            now = histogram(text, _DECISIONS, verb=verb)
            new = now.since(before.get(verb, Histogram()))
            before[verb] = now
            if new.count:
                told[verb] = (new.quantile(0.5), new.quantile(0.99))
        return told

    told = {"controller": lambda: _get(f"{reports}/metrics")}
    return Running({"controller": process}, latencies, reports=told)


def _with_scheduler(cp: ControlPlane, qps: float, url: str, running: Running) -> Running:
    scheduler = cp.start_scheduler(extender_url=url, qps=qps)
    running.processes["kube-scheduler"] = scheduler
    running.limiter = _limiter(cp, scheduler)
    running.reports["kube-scheduler"] = _reports(cp, scheduler)
    return running


def _reports(cp: ControlPlane, scheduler: Process) -> Callable[[], str]:
    address = scheduler.url or ""

    def read() -> str:
        api = Api(address, cp.ca, cp.admin_token)
        try:
            return str(api.request("GET", "/metrics"))
        finally:
            api.close()

    return read


def _limiter(cp: ControlPlane, scheduler: Process) -> Callable[[], Histogram]:
    read = _reports(cp, scheduler)
    return lambda: histogram(read(), _LIMITER)


def throttled(limiter: Histogram) -> float:
    """The part of a client's requests that its own limit kept back; NaN where it is not known."""
    return limiter.longer_than(THROTTLED_SECONDS) / limiter.count if limiter.count else math.nan


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (http only)
        return str(answer.read().decode())
