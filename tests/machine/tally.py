"""What a run of the state machine did, and whether that is enough of everything."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ACTIONS = (
    "create",
    "filter",
    "preempt",
    "bind",
    "another plugin refuses",
    "another plugin allows",
    "delete",
    "force delete",
    "finish",
    "bound by another scheduler",
    "restart",
    "re-list",
    "GPUNode change",
    "quota change",
    "hold expiry",
    "events lost",
    "events delayed",
    "event repeated",
    "events re-ordered",
    "API fault",
    "time passes",
    "rest",
)
FILTERS = ("fitted", "refused", "error")
BINDS = (
    "success",
    "409",
    "404",
    "500",
    "no answer, not carried out",
    "no answer, carried out before",
    "no answer, carried out later",
)
RESTARTS = ("controller stopped", "controller killed", "kube-scheduler", "both")


@dataclass
class Tally:
    """Counts of one run; sums of several can be made."""

    examples: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    filters: Counter[str] = field(default_factory=Counter)
    binds: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    """Bindings sent again because nobody knew what became of the first."""
    restarts: Counter[str] = field(default_factory=Counter)
    quiet: Counter[str] = field(default_factory=Counter)
    """What was found, and checked, when all was quiet."""

    def add(self, other: "Tally") -> None:
        self.examples += other.examples
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def dump(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            **{name: dict(getattr(self, name)) for name in _COUNTERS},
        }

    @staticmethod
    def load(kept: dict[str, Any]) -> "Tally":
        return Tally(kept["examples"], *(Counter(kept[name]) for name in _COUNTERS))

    def too_rare(self) -> list[str]:
        """What happened too seldom for the run to prove anything about it."""
        return [
            *_rare("steps", self.steps, ACTIONS, 0.01),
            *_rare("Bindings", self.binds, BINDS, 0.01),
            *_rare("filters", self.filters, ("fitted", "refused"), 0.20),
            *_rare("filters", self.filters, ("error",), 0.01),
            *_rare("restarts", self.restarts, RESTARTS, 0.01),
        ]

    def lines(self) -> list[str]:
        """A table, for people."""
        return [
            f"{self.steps.total()} steps in {self.examples} runs of the whole controller",
            *_table("steps", self.steps),
            *_table("filters", self.filters),
            *_table("Bindings", self.binds),
            *_table("repeats", self.repeats),
            *_table("restarts", self.restarts),
            *_table("when quiet", self.quiet, shares=False),
        ]


_COUNTERS = ("steps", "filters", "binds", "repeats", "restarts", "quiet")


def _rare(of: str, counts: Counter[str], wanted: Iterable[str], share: float) -> list[str]:
    total = counts.total()
    return [
        f"{kind}: {counts[kind]} of {total} {of}, less than {share:.0%}"
        for kind in wanted
        if counts[kind] < share * max(total, 1)
    ]


def _table(title: str, counts: Counter[str], *, shares: bool = True) -> list[str]:
    total = counts.total() or 1
    return [
        f"  {title if at == 0 else '':10}  {kind:30} {count:9}"
        + (f"  {count / total:6.1%}" if shares else "")
        for at, (kind, count) in enumerate(counts.most_common())
    ]
