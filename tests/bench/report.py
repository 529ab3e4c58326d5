"""What a run tells: medians and ratios of its trials, as a table, as JSON, and as plots."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.measures import middle
from bench.mixes import MIXES
from bench.svg import Chart, drawn
from bench.trial import Result
from controlplane.launcher import ROOT, program

BASE = "stock-all"
"""What the others are compared with: (a')."""
RESULTS = "cluster.json"
ORDER = ("stock", BASE, "nothing", "extender", "gates", "url")
"""The table's."""
_BUSY = 0.25
"""A load average above this part of the processors before the run: somebody else was at work."""
_PARTS = ("kube-apiserver", "etcd", "kube-scheduler", "controller", "extender")


@dataclass
class Run:
    """Everything that a run measured."""

    titles: dict[str, str]
    """Of the contestants."""
    limits: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Trials that could not be held, in words."""

    def add_to(self, earlier: dict[str, Any]) -> None:
        """Go on with what a run before wrote.

        Raises:
            ValueError: it was made elsewhere, of something else, or with other limits.
        """
        alike = ("processor", "cores", "versions")
        if any(earlier["machine"][what] != self.machine[what] for what in alike):
            raise ValueError(f"it is of {earlier['machine']['versions']}, or of another machine")
        if {**earlier["limits"], "rounds": None} != {**self.limits, "rounds": None}:
            raise ValueError("it was made with other limits")
        self.machine["is_busy"] |= earlier["machine"]["is_busy"]
        self.titles = {**earlier["titles"], **self.titles}
        self.results = [Result.read(trial) for trial in earlier["trials"]]
        self.failed = list(earlier["failed"])

    def rounds(self, nodes: int, mix: str) -> int:
        """How many rounds of a kind of trial there are."""
        return max((r.round for r in self.results if (r.nodes, r.mix) == (nodes, mix)), default=0)

    def of(self, contestant: str, nodes: int, mix: str) -> list[Result]:
        """The rounds of one trial, in order."""
        key = (contestant, nodes, mix)
        return [r for r in self.results if (r.contestant, r.nodes, r.mix) == key]

    def kinds(self) -> list[tuple[int, str]]:
        """Numbers of nodes and mixes, in the order in which they came."""
        return list(dict.fromkeys((r.nodes, r.mix) for r in self.results))

    def contestants(self) -> list[str]:
        """Who has results, in the table's order."""
        there = {r.contestant for r in self.results}
        return [name for name in ORDER if name in there]

    def void(self) -> list[str]:
        """Why figures can't be used, a sentence each; (a') throttled makes all of them void."""
        return [
            f"{self.titles[r.contestant]}, {r.nodes:,} nodes, {r.mix}, round {r.round}: "
            f"{r.throttled:.0%} of kube-scheduler's requests waited for its own limit, and the API "
            f"server turned {r.turned_away} away"
            for r in self.results
            if r.is_throttled
        ]

    @property
    def is_void(self) -> bool:
        """Whether (a') was throttled, or the limit of any was part of what was measured."""
        return any(r.is_throttled for r in self.results if r.contestant == BASE)

    def ratio(self, contestant: str, nodes: int, mix: str) -> float:
        """To (a'), round by round; the median. NaN where one of the two is missing."""
        base = {r.round: r.rate for r in self.of(BASE, nodes, mix)}
        mine = self.of(contestant, nodes, mix)
        return middle(r.rate / base[r.round] for r in mine if r.round in base)

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        medians = [
            {
                "contestant": name,
                "nodes": nodes,
                "mix": mix,
                "rate": _number(middle(r.rate for r in found)),
                "ratio": _number(self.ratio(name, nodes, mix)),
            }
            for nodes, mix in self.kinds()
            for name in self.contestants()
            if (found := self.of(name, nodes, mix))
        ]
        return {
            "machine": self.machine,
            "titles": self.titles,
            "limits": self.limits,
            "is_void": self.is_void,
            "void": self.void(),
            "failed": self.failed,
            "medians": medians,
            "trials": [r.document() for r in self.results],
        }


def machine() -> dict[str, Any]:
    """Where and on what the run is made."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": model,
        "cores": cores,
        "memory_gb": round(memory / 1e9, 1),
        "kernel": platform.release(),
        "load_before": round(load, 2),
        "is_busy": load > _BUSY * cores,
        "versions": {
            "cardwise": _revision(),
            "python": _python(),
            "kopf": version("kopf"),
            "aiohttp": version("aiohttp"),
            "kubernetes": _said([str(program("kube-apiserver")), "--version"]).split()[-1],
            "etcd": _said([str(program("etcd")), "--version"]).splitlines()[0].split()[-1],
        },
    }


def _python() -> str:
    """The version, and whether it is the system's: others are often built slower."""
    of = " (the system's)" if sys.base_prefix == "/usr" else ""
    return f"{platform.python_version()}{of}"


def _said(argv: Sequence[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _revision() -> str:
    """The commit, with a mark where files differ from it; the version where there is no git."""
    try:
        found = _said(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"])
    except (OSError, subprocess.CalledProcessError):
        return version("cardwise")
    return found.strip()


def table(run: Run, nodes: int, mix: str) -> Table:
    """The medians of one kind of trial."""
    titled = Table(title=f"{nodes:,} nodes x 8 cards, {MIXES[mix].title}", title_justify="left")
    titled.add_column("who binds", no_wrap=True)
    for column in (
        "Pods/s",
        "created/s",
        "÷ (a')",
        "p50 s",
        "p99 s",
        "CPU\nms/Pod",
        "of it\nours",
        "peak\nMB",
        "/filter\nms",
        "/bind\nms",
        "",
    ):
        titled.add_column(column, justify="right", no_wrap=True)
    for name in run.contestants():
        found = run.of(name, nodes, mix)
        if found:
            titled.add_row(f"{run.titles[name].partition(' ')[0]} {name}", *_row(run, found))
    return titled


def _row(run: Run, found: list[Result]) -> list[str]:
    first = found[0]
    ours = "controller" if "controller" in first.cpu_ms_per_pod else "extender"
    notes = [
        word
        for word, holds in (
            ("starved", any(r.is_starved for r in found)),
            ("THROTTLED", any(r.is_throttled for r in found)),
            (f"{min(r.bound for r in found)} bound", not all(r.is_finished for r in found)),
        )
        if holds
    ]
    return [
        _shown(middle(r.rate for r in found), ".0f"),
        _shown(middle(r.created_rate for r in found), ".0f"),
        _shown(run.ratio(first.contestant, first.nodes, first.mix), ".2f"),
        _shown(middle(r.p50_seconds for r in found), ".2f"),
        _shown(middle(r.p99_seconds for r in found), ".2f"),
        _shown(middle(r.cpu_ms for r in found), ".1f"),
        _shown(middle(r.cpu_ms_per_pod.get(ours, math.nan) for r in found), ".1f"),
        _shown(middle(r.peak_mb.get(ours, math.nan) for r in found), ".0f"),
        _latency(found, "filter"),
        _latency(found, "bind" if "bind" in first.latency_ms else "pin"),
        " ".join(notes),
    ]


def _latency(found: Iterable[Result], verb: str) -> str:
    told = [r.latency_ms[verb] for r in found if verb in r.latency_ms]
    if not told:
        return ""
    p50, p99 = middle(p for p, _ in told), middle(p for _, p in told)
    return f"{p50:.1f}, {p99:.1f}"


def _shown(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def write(run: Run, directory: Path) -> list[Path]:
    """Write JSON and plots; the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {RESULTS: json.dumps(run.document(), indent=1) + "\n"}
    nodes = list(dict.fromkeys(nodes for nodes, mix in run.kinds() if mix == "alike"))
    if nodes:
        groups = [(n, "alike") for n in nodes]
        labels = [f"{n:,} nodes" for n in nodes]
        files["rates.svg"] = drawn(_rates(run, "Pods bound a second, all alike", groups, labels))
        files["cpu.svg"] = drawn(_cpu(run, groups, labels))
    for count in dict.fromkeys(n for n, _ in run.kinds()):
        groups = [(n, mix) for n, mix in run.kinds() if n == count]
        if len(groups) > 1:
            title = f"Pods bound a second at {count:,} nodes, by what they ask for"
            chart = _rates(run, title, groups, [MIXES[mix].title for _, mix in groups])
            files[f"mixes-{count}.svg"] = drawn(chart)
    for name, text in files.items():
        (directory / name).write_text(text)
    return [directory / name for name in files]


def _rates(run: Run, title: str, groups: Sequence[tuple[int, str]], labels: Sequence[str]) -> Chart:
    bars = {
        run.titles[name]: [
            _number(middle(r.rate for r in run.of(name, *group))) for group in groups
        ]
        for name in run.contestants()
    }
    return Chart(title, "Pods/s", labels, bars)


def _cpu(run: Run, groups: Sequence[tuple[int, str]], labels: Sequence[str]) -> Chart:
    def parts(name: str, group: tuple[int, str]) -> dict[str, float] | None:
        found = run.of(name, *group)
        if not found:
            return None
        return {part: middle(r.cpu_ms_per_pod.get(part, 0.0) for r in found) for part in _PARTS}

    bars = {name: [parts(name, group) for group in groups] for name in run.contestants()}
    title = "Processor time a Pod, by process, all alike"
    return Chart(title, "ms", labels, bars, parts=_PARTS)
