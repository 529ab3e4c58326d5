"""Pods that wait beside Pods that fit: what `bench.scale_bench` proves of the queue."""

import time
from collections.abc import Iterable, Mapping

from bench.audit import AuditTail
from bench.contestants import Contestant, contestants
from bench.measures import cpu_seconds, lives, peak_mb, quantile, requests, total
from bench.mixes import MIXES, Mix
from bench.scale import (
    CARDS,
    QPS,
    WAVE_SECONDS,
    Figures,
    Told,
    create,
    settle,
    unbound,
    until_bound,
)
from cardwise import names
from controlplane.launcher import ControlPlane

_MINUTE = 60.0
_LOOK_SECONDS = 2.0
_OFTEN_SECONDS = 0.05
_A_SECOND = 5
"""Pods that fit, created beside those that wait."""
_NODE = "node-00000"
"""Its cards are cordoned, and each is what one of those that wait asks for."""
_BOUND = "create to bound, p99 s"
_GIVEN = "a card is uncordoned, to bound, at most s"
_BOUND_SECONDS = 5.0
_EVENTS = "events of waiting Pods a minute"
_WAKES = "wake-ups a minute"


def waiting(cp: ControlPlane, door: str, count: int, seconds: float, told: Told) -> Figures:
    """Have Pods bound while so many others wait that fit nowhere; then let room grow as well."""
    found = Figures(
        f"{count:,} Pods wait that fit nowhere, by the door of {door}",
        bars={_BOUND: _BOUND_SECONDS, _EVENTS: 90.0, _WAKES: 61.0, _GIVEN: _BOUND_SECONDS},
    )
    crowd = _Waiting(cp, contestants(None)[door], told)
    try:
        crowd.begin(count, int(seconds) + 1)
        for what, ending in (("nothing ends", False), ("a Pod ends each second", True)):
            found.figures |= crowd.beside(seconds, what, ending=ending)
        found.figures |= crowd.given()
        for name in (_BOUND, _EVENTS, _WAKES):
            found.figures[name] = max(
                value
                for key, value in found.figures.items()
                if key.startswith(f"{name},") and isinstance(value, float)
            )
        found.figures["memory at most, MB"] = peak_mb(crowd.pid)
    finally:
        crowd.running.end()
    return found


class _Waiting:
    """Pods that wait, and what goes on beside them."""

    def __init__(self, cp: ControlPlane, contestant: Contestant, told: Told) -> None:
        self._cp = cp
        self._contestant = contestant
        self._told = told
        self.running = contestant.start(cp, QPS)
        self.pid = self.running.processes["controller"].pid
        self._tail = AuditTail(cp)
        self._next = 10_000
        """The number of the next Pod that fits."""

    def begin(self, count: int, tenants: int) -> None:
        """Have so many Pods wait, beside some that have their cards."""
        for name in ("wait", "fit"):
            self._cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._create("fit", MIXES["alike"], range(tenants))
        until_bound(self._cp, "fit")
        began = time.monotonic()
        # A question of each Pod's own: what was answered to another is of no use to it.
        self._cordon(range(CARDS))
        for number in range(CARDS):
            self._create("wait", MIXES["alike"], [number], {names.USE_UUID: _uuid(number)})
        self._create("wait", MIXES["half"], range(10_000, 10_000 + 2 * count, 2))
        self._cp.wait("all to wait", lambda: self._pending() >= count + CARDS, WAVE_SECONDS)
        passed = time.monotonic() - began
        self._told(f"all refused once, {passed:.0f} s after the first was created")

    def beside(self, seconds: float, what: str, *, ending: bool) -> dict[str, float]:
        """Create Pods that fit, five a second; what became of them, and what it cost."""
        settle(self.pid)
        self._tail.begin()
        cpu, attempts, began = cpu_seconds(self.pid), self._attempts(), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            number = int(passed)
            self._create("fit", MIXES["alike"], range(self._next, self._next + _A_SECOND))
            self._next += _A_SECOND
            if ending:
                path = f"/api/v1/namespaces/fit/pods/p{number:05}"
                self._cp.request("DELETE", path, {"gracePeriodSeconds": 0})
            time.sleep(max(0.0, began + number + 1 - time.monotonic()))
        left = len(unbound(self._cp, "fit"))
        passed = time.monotonic() - began
        lines = self._tail.lines()
        record = lives(lines, "fit")
        created = len(record.created)
        self._told(f"{what}: {created - left} of {created} fitting Pods bound")
        return {
            f"fitting Pods created, {what}": float(created),
            f"of them not bound at the end, {what}": float(left),
            f"create to bound, median s, {what}": quantile(record.waits, 0.5),
            # One that is not bound has waited for so long at least.
            f"{_BOUND}, {what}": quantile([*record.waits, *[seconds] * left], 0.99),
            f"{_EVENTS}, {what}": _ours(requests(lines, "wait"), " events") * _MINUTE / passed,
            f"{_WAKES}, {what}": _ours(requests(lines), " patch nodes") * _MINUTE / passed,
            f"refusals a second, {what}": (self._attempts() - attempts) / passed,
            f"controller's processor, part, {what}": (cpu_seconds(self.pid) - cpu) / passed,
        }

    def given(self) -> dict[str, float]:
        """Uncordon card after card, for each of which one of those that wait asks."""
        took = []
        for number in range(CARDS):
            began = time.monotonic()
            self._cordon(range(number + 1, CARDS))
            path = f"/api/v1/namespaces/wait/pods/p{number:05}"
            while not self._cp.request("GET", path)["spec"].get("nodeName"):
                if time.monotonic() - began > _MINUTE:
                    break
                time.sleep(_OFTEN_SECONDS)
            took.append(time.monotonic() - began)
        self._told(f"cards uncordoned were given after {', '.join(f'{s:.1f}' for s in took)} s")
        return {_GIVEN: max(took), "the same, median s": quantile(took, 0.5)}

    def _create(
        self,
        namespace: str,
        mix: Mix,
        numbers: Iterable[int],
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        who = self._contestant
        create(self._cp, namespace, mix, numbers, who.scheduler, who.gated, annotations)

    def _cordon(self, numbers: Iterable[int]) -> None:
        path = f"/apis/{names.API_GROUP}/{names.API_VERSION}/{names.GPUNODE_PLURAL}/{_NODE}"
        change = {"spec": {"cordonedCards": [_uuid(number) for number in numbers]}}
        self._cp.request("PATCH", path, change, content_type="application/merge-patch+json")

    def _pending(self) -> float:
        time.sleep(_LOOK_SECONDS)
        return total(self.running.reports["controller"](), "cardwise_pending_pods")

    def _attempts(self) -> float:
        """How often kube-scheduler has found that a Pod fits nowhere."""
        text = self.running.reports["kube-scheduler"]()
        return total(text, "scheduler_schedule_attempts_total", result="unschedulable")


def _uuid(number: int) -> str:
    return f"GPU-{_NODE}-{number}"


def _ours(asked: dict[str, int], what: str) -> int:
    """Requests of the controller, which shares its account with kube-scheduler."""
    return sum(
        count
        for key, count in asked.items()
        if "cardwise-controller (" in key and "(kube-scheduler)" not in key and what in key
    )
