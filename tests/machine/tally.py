"""What a run of the state machine did, and whether that is enough of everything."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXTENDER, GATES, BOTH = "extender", "gates", "both"
"""The doors of a walk."""
_EVERYWHERE = (
    "delete",
    "force delete",
    "finish",
    "restart",
    "re-list",
    "GPUNode change",
    "quota change",
    "events lost",
    "events delayed",
    "event repeated",
    "events re-ordered",
    "API fault",
    "time passes",
    "rest",
)
_BY_EXTENDER = (
    "create",
    "filter",
    "preempt",
    "bind",
    "another plugin refuses",
    "another plugin allows",
    "bound by another scheduler",
    "hold expiry",
)
_BY_GATES = (
    "create gated",
    "gang",
    "other gate goes",
    "Pod changed",
    "fate of a pin",
    "refused after the pin",
    "Pod without cards",
    "Node change",
)
ACTIONS = {
    EXTENDER: (*_EVERYWHERE, *_BY_EXTENDER),
    GATES: (*_EVERYWHERE, *_BY_GATES),
    BOTH: (*_EVERYWHERE, *_BY_EXTENDER, *_BY_GATES),
}
FILTERS = ("fitted", "refused", "error")
_UNKNOWN = (
    "500",
    "no answer, not carried out",
    "no answer, carried out before",
    "no answer, carried out later",
)
BINDS = ("success", "409", "404", *_UNKNOWN)
PINS = ("success", "409", "404", "403", "422", "429", "500, carried out", *_UNKNOWN)
_SHARE = 0.01
"""Of all steps, say, that a kind of step makes up at least in a long run."""
_SHARE_OF_A_SHORT_RUN = 0.005
"""What is drawn at 1 % and more may be half of that in some thousand steps, by chance alone."""
STOPPED, KILLED = "controller stopped", "controller killed"
SCHEDULER, TOGETHER, ELSEWHERE = "kube-scheduler", "both", "the Lease goes elsewhere"
RESTARTS = {
    EXTENDER: (STOPPED, KILLED, SCHEDULER, TOGETHER),
    GATES: (STOPPED, KILLED, ELSEWHERE),
    BOTH: (STOPPED, KILLED, SCHEDULER, TOGETHER),
}


@dataclass
class Tally:
    """Counts of the walks of one door; sums of several can be made."""

    door: str
    examples: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    filters: Counter[str] = field(default_factory=Counter)
    binds: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    """Bindings sent again because nobody knew what became of the first."""
    pins: Counter[str] = field(default_factory=Counter)
    pin_repeats: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    quiet: Counter[str] = field(default_factory=Counter)
    """What was found, and checked, when all was quiet."""

    def add(self, other: "Tally") -> None:
        self.examples += other.examples
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def dump(self) -> dict[str, Any]:
        return {
            "door": self.door,
            "examples": self.examples,
            **{name: dict(getattr(self, name)) for name in _COUNTERS},
        }

    @staticmethod
    def load(kept: dict[str, Any]) -> "Tally":
        return Tally(kept["door"], kept["examples"], *(Counter(kept[name]) for name in _COUNTERS))

    def too_rare(self, share: float = _SHARE) -> list[str]:
        """What happened too seldom for the run to prove anything about it."""
        rare = [
            *_rare("steps", self.steps, ACTIONS[self.door], share),
            *_rare("restarts", self.restarts, RESTARTS[self.door], share),
        ]
        if self.door != GATES:
            rare += [
                *_rare("Bindings", self.binds, BINDS, share),
                *_rare("filters", self.filters, ("fitted", "refused"), 0.20),
                *_rare("filters", self.filters, ("error",), share),
            ]
        if self.door != EXTENDER:
            rare += _rare("pins", self.pins, PINS, share)
        return [f"{self.door}: {line}" for line in rare]

    def lines(self) -> list[str]:
        """A table, for people."""
        return [
            f"{self.steps.total()} steps in {self.examples} runs of the whole controller,"
            f" door {self.door}",
            *_table("steps", self.steps),
            *_table("filters", self.filters),
            *_table("Bindings", self.binds),
            *_table("repeats", self.repeats),
            *_table("pins", self.pins),
            *_table("repeats", self.pin_repeats),
            *_table("restarts", self.restarts),
            *_table("when quiet", self.quiet, shares=False),
        ]


def too_rare_in_a_short_run(tallies: Iterable[Tally]) -> list[str]:
    """What the walks of all doors together did too seldom: of one door alone chance says more."""
    together = Tally(BOTH)
    for tally in tallies:
        together.add(tally)
    return together.too_rare(_SHARE_OF_A_SHORT_RUN)


_COUNTERS = ("steps", "filters", "binds", "repeats", "pins", "pin_repeats", "restarts", "quiet")


def _rare(of: str, counts: Counter[str], wanted: Iterable[str], share: float) -> list[str]:
    total = counts.total()
    return [
        f"{kind}: {counts[kind]} of {total} {of}, less than {share:.1%}"
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
