"""Two results of the same benchmark as ratios: what a change, or another machine, made of it.

Takes what ``make bench-micro`` (of each figure the least time) or ``make bench`` (of each median
the rate) wrote. Below 1 the second took less time, or bound fewer Pods a second.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Figures = dict[str, float]


def figures(document: dict[str, Any]) -> tuple[str, Figures]:
    """The unit and the figures of a result.

    Raises:
        ValueError: it is neither's.
    """
    if "benchmarks" in document:
        return "µs", {
            each["fullname"].rpartition("/")[2]: 1e6 * each["stats"]["min"]
            for each in document["benchmarks"]
        }
    if "medians" in document:
        return "Pods/s", {
            f"{each['contestant']}, {each['nodes']} nodes, {each['mix']}": each["rate"]
            for each in document["medians"]
            if each["rate"] is not None
        }
    raise ValueError("it has neither benchmarks nor medians")


def ratios(before: Figures, after: Figures) -> Figures:
    """The second by the first, of what both have."""
    return {name: after[name] / before[name] for name in before if name in after}


def table(unit: str, before: Figures, after: Figures) -> Table:
    """Every figure that both have, the largest change first, then their mean.

    The geometric one: twice as fast here and half as fast there is as fast.
    """
    found = ratios(before, after)
    shown = Table()
    for column in ("figure", f"A, {unit}", f"B, {unit}", "B ÷ A"):
        shown.add_column(column, justify="left" if column == "figure" else "right", no_wrap=True)
    for name in sorted(found, key=lambda name: -abs(math.log(found[name]))):
        shown.add_row(
            escape(name), f"{before[name]:,.1f}", f"{after[name]:,.1f}", f"{found[name]:.2f}"
        )
    if found:
        shown.add_section()
        shown.add_row("geometric mean", "", "", f"{geometric_mean(found.values()):.2f}")
    return shown


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    options = parser.parse_args()
    read = []
    for path in (options.a, options.b):
        try:
            read.append(figures(json.loads(path.read_text())))
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path}: {error}") from error
    (unit, before), (other, after) = read
    if unit != other:
        raise SystemExit("these are results of two different benchmarks")
    console = Console()
    console.print(table(unit, before, after))
    for path, mine, others in ((options.a, before, after), (options.b, after, before)):
        if alone := sorted(mine.keys() - others.keys()):
            console.print(f"in {path} alone: {', '.join(alone)}", highlight=False, markup=False)


if __name__ == "__main__":
    main()
