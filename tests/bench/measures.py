"""What is measured of a trial: pure functions over the records of others, and looks at /proc.

Times of Pods are the API server's own, by its audit log; latencies of an extender are those that it
keeps itself; processor time and memory are the kernel's.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

_TICKS = os.sysconf("SC_CLK_TCK")


# The API server's record --------------------------------------------------------------------------


@dataclass
class Lives:
    """When the Pods of one namespace were created and bound, in Unix seconds, by name."""

    created: dict[str, float] = field(default_factory=dict)
    """When their creation was asked for."""
    bound: dict[str, float] = field(default_factory=dict)
    """When their Binding was answered."""
    doubtful: dict[str, float] = field(default_factory=dict)
    """When a Binding was answered that was made or not, nobody knows: the API server was too late,
    or failed. By name; those that another answer shows to be bound are in `bound` alone."""
    turned_away: int = 0
    """Requests of anybody that the API server answered with 429: it was too busy for them."""

    def confirm(self, placed: Iterable[str]) -> None:
        """These of the doubtful Pods are on a node: what was answered was made all the same."""
        for name in placed:
            if name in self.doubtful:
                self.bound[name] = self.doubtful.pop(name)

    @property
    def seconds(self) -> float:
        """From the first creation to the last Binding; NaN where none was bound."""
        if not self.bound:
            return math.nan
        return max(self.bound.values()) - min(self.created.values())

    @property
    def rate(self) -> float:
        """Pods a second."""
        return len(self.bound) / self.seconds if self.bound else math.nan

    @property
    def created_rate(self) -> float:
        """Pods created a second; NaN of fewer than two."""
        if len(self.created) < 2:
            return math.nan
        return len(self.created) / (max(self.created.values()) - min(self.created.values()))

    @property
    def waits(self) -> list[float]:
        """Seconds from creation to Binding, of each Pod that was bound."""
        return [at - self.created[name] for name, at in self.bound.items() if name in self.created]


def lives(lines: Iterable[bytes], namespace: str, found: Lives | None = None) -> Lives:
    """Read the audit log's lines; those of other namespaces count only as turned away.

    Args:
        lines: of the log, in its order.
        namespace: whose Pods are meant.
        found: what earlier lines told, which is added to.
    """
    found = found or Lives()
    own = f'"namespace":"{namespace}"'.encode()
    for line in lines:
        if b'"code":429' in line:
            found.turned_away += 1
        elif own in line and b'"resource":"pods"' in line and b'"verb":"create"' in line:
            _read(json.loads(line), found)
    return found


def _read(event: dict, found: Lives) -> None:
    about, code = event["objectRef"], event.get("responseStatus", {}).get("code", 0)
    name = about.get("name", "")
    match about.get("subresource"):
        case None if code == 201:
            found.created[name] = _unix(event["requestReceivedTimestamp"])
        case "binding" if code == 201:
            found.bound.setdefault(name, _unix(event["stageTimestamp"]))
            found.doubtful.pop(name, None)
        case "binding" if not 200 <= code < 500 and name not in found.bound:
            found.doubtful[name] = _unix(event["stageTimestamp"])


def events(lines: Iterable[bytes], namespace: str) -> int:
    """How many events on objects of a namespace were written, by the audit log."""
    own = f'"namespace":"{namespace}"'.encode()
    return sum(b'"resource":"events"' in line and own in line for line in lines)


def requests(lines: Iterable[bytes], namespace: str | None = None) -> Counter[str]:
    """How often who asked what: the account's last word, the verb, the resource.

    With a namespace, only of what was asked there.
    """
    found: Counter[str] = Counter()
    for line in lines:
        event = json.loads(line)
        about = event.get("objectRef", {})
        if namespace is not None and about.get("namespace") != namespace:
            continue
        what = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        account = event["user"]["username"].rpartition(":")[2]
        agent = event.get("userAgent", "").partition("/")[0]
        found[f"{account} ({agent}) {event['verb']} {what}"] += 1
    return found


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# Numbers ------------------------------------------------------------------------------------------


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of them does not pass; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def middle(values: Iterable[float]) -> float:
    """The median of those that are numbers; NaN of none."""
    numbers = [value for value in values if not math.isnan(value)]
    return median(numbers) if numbers else math.nan


# What Prometheus reads ----------------------------------------------------------------------------


@dataclass
class Histogram:
    """How often something took at most so long: counts by upper bound in seconds, ascending."""

    counts: dict[float, float] = field(default_factory=dict)

    @property
    def count(self) -> float:
        """How often it happened."""
        return self.counts.get(math.inf, 0.0)

    def longer_than(self, bound: float) -> float:
        """How often it took longer than a bound, which must be one of a bucket."""
        return self.count - self.counts.get(bound, self.count)

    def since(self, before: "Histogram") -> "Histogram":
        """What was added since."""
        return Histogram({b: n - before.counts.get(b, 0.0) for b, n in self.counts.items()})

    def quantile(self, part: float) -> float:
        """Seconds, as if durations lay evenly within their bucket; NaN where nothing happened."""
        low = below = 0.0
        for bound in sorted(self.counts):
            here = self.counts[bound]
            if here and here >= part * self.count:
                if math.isinf(bound):
                    return low  # all that is known: at least so long
                return low + (bound - low) * (part * self.count - below) / (here - below)
            low, below = bound, here
        return math.nan


def histogram(text: str, name: str, **labels: str) -> Histogram:
    """Sum up the series of a histogram, in Prometheus' text, that have these labels."""
    # Of a large cluster's hundred thousands of lines the parser is given its own alone.
    own = "\n".join(line for line in text.splitlines() if line.startswith(f"{name}_bucket{{"))
    found = Histogram()
    for family in text_string_to_metric_families(own):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                bound = float(sample.labels["le"])
                found.counts[bound] = found.counts.get(bound, 0.0) + sample.value
    return found


def total(text: str, name: str, **labels: str) -> float:
    """Sum up the series of a counter or a gauge, in Prometheus' text, that have these labels."""
    own = "\n".join(
        line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))
    )
    return sum(
        sample.value
        for family in text_string_to_metric_families(own)
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    )


# The kernel's accounts ----------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, in user and kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mb(pid: int) -> float:
    """The most memory that a process had resident since `forget_peak`, in 10^6 bytes."""
    return _memory_mb(pid, "VmHWM:")


def now_mb(pid: int) -> float:
    """The memory that a process has resident, in 10^6 bytes."""
    return _memory_mb(pid, "VmRSS:")


def _memory_mb(pid: int, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"process {pid} has ended")


def forget_peak(pid: int) -> None:
    """Let `peak_mb` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_by_name(pids: Mapping[str, int]) -> dict[str, float]:
    """`cpu_seconds` of several processes."""
    return {name: cpu_seconds(pid) for name, pid in pids.items()}
