"""Where a controller's time goes, by the stacks that ``make bench ARGS="--profile DIR"`` writes.

    PYTHONPATH=tests .venv/bin/python -m bench.shares DIR/extender-alike-1-1000-controller.txt

A sample is of a moment in which the process ran **or waited for a processor**: on a machine that is
full, whoever wakes another waits for it. So sample with ``--pace``, at a rate that leaves the
machine room.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

PARTS: dict[str, tuple[str, ...]] = {
    "sending: the kernel, and whom it wakes": ("_writelines (aiohttp/", "write_bytes (aiohttp/"),
    "comparing with a list": ("Watchman.audit (",),
    "log lines": ("(logging/__init__.py", "card_lines (cardwise/"),
    "events on Pods": ("(cardwise/controller/telling/recorder.py", "Teller.bound ("),
    "usage of GPUNodes": ("(cardwise/controller/telling/usage.py",),
    "metrics": ("(cardwise/controller/reports/",),
    "followers of the mirror": (
        "(cardwise/controller/followers/",
        "(cardwise/controller/shadow.py",
        "(cardwise/controller/gates/refused.py",
    ),
    "/bind and pins: client of the API server": ("Client.request (cardwise/",),
    "door of gates: queue and node rules": ("(cardwise/controller/gates/", "(cardwise/noderules/"),
    "mirror and ledger": ("(cardwise/controller/watching/mirror.py",),
    "Kopf: watch, JSON": ("(kopf/_cogs/clients/",),
    "Kopf: an event to its handler": ("(kopf/",),
    "/filter: body": ("decoded (cardwise/wire/extender.py", "filter_call", "filter_result ("),
    "/filter: decision": (
        "(cardwise/controller/placing/decider.py",
        "(cardwise/controller/placing/standings.py",
    ),
    "/filter: rest": ("answer_filter (",),
    "/bind: rest": ("answer_bind (",),
    "HTTP server": ("(aiohttp/web",),
    "HTTP, TLS and loop": ("",),
}
"""Parts, and what stands in a frame of a stack that is of it; the first that fits is meant."""
_SECONDS = 1 / 200
"""Of a sample."""


def part_of(stack: str) -> str:
    """The part that a stack belongs to; frames are joined by semicolons, the outermost first."""
    return next(part for part, words in PARTS.items() if any(word in stack for word in words))


def shares(lines: Iterable[str]) -> Counter[str]:
    """Samples by part; a line is a stack and how often it was seen."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        found[part_of(stack)] += int(count)
    return found


def main() -> None:
    """Print a table a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--pods", type=int, default=1000, help="bound while it was sampled")
    options = parser.parse_args()
    for path in options.files:
        found = shares(path.read_text().splitlines())
        table = Table("part", "ms a Pod", "%", title=path.stem, title_justify="left")
        for part, count in [("all", found.total()), *found.most_common()]:
            ms = 1000 * count * _SECONDS / options.pods
            table.add_row(part, f"{ms:.2f}", f"{100 * count / found.total():.0f}")
        Console().print(table)


if __name__ == "__main__":
    main()
