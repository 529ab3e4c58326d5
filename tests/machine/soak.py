"""Walk the state machine for a long time: 200,000 steps and more, by `make soak`.

Seed after seed, a thousand steps each. What was done is kept, so that a run which was broken off
goes on where it was, as long as neither the product nor the machine changed.
"""

import argparse
import hashlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console

from machine.runs import walk
from machine.tally import BOTH, EXTENDER, GATES, Tally

_ROOT = Path(__file__).parents[2]
_KEPT = _ROOT / ".soak"
_EXAMPLES, _STEPS = 10, 100
_CODE = ("operator/cardwise/**/*.py", "tests/*.py", "tests/fakes/*.py", "tests/machine/*.py")


def main() -> int:
    """Walk, and print what came of it; 1 where a law was broken, or something was too rare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, help="this seed alone, as a violation tells it")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if options.seed is not None:
        return 0 if _walk(options.seed, _tallies(), console) else 1
    kept = _Kept(_KEPT / f"{_code()}.json")
    if kept.steps:
        console.print(f"soak: going on after {kept.steps} steps, at seed {kept.seed}")
    while kept.steps < options.steps:
        began, before, tallies = time.monotonic(), kept.steps, _tallies()
        if not _walk(kept.seed, tallies, console):
            return 1
        kept.add(tallies)
        speed = (kept.steps - before) / (time.monotonic() - began)
        console.print(
            f"soak: {kept.steps} of {options.steps} steps, no violation"
            f" (seed {kept.seed - 1}, {speed:.0f} steps/s)"
        )
    lines = [line for tally in kept.tallies.values() for line in tally.lines()]
    rare = [line for tally in kept.tallies.values() for line in tally.too_rare()]
    console.print("\n".join([*lines, *rare, "violations: 0"]))
    return 1 if rare else 0


def _tallies() -> dict[str, Tally]:
    return {door: Tally(door) for door in (EXTENDER, GATES, BOTH)}


def _walk(seed: int, tallies: dict[str, Tally], console: Console) -> bool:
    try:
        walk(seed, tallies, examples=_EXAMPLES, steps=_STEPS)
    except Exception:  # noqa: BLE001 - whatever it was, it is the result
        console.print(traceback.format_exc(), markup=False)
        console.print(f"soak: a law was broken; again with: make soak SEED={seed}")
        return False
    return True


class _Kept:
    """What is kept between runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seed, self.tallies = 1, _tallies()
        if path.exists():
            kept: dict[str, Any] = json.loads(path.read_text())
            self.seed = kept["seed"]
            self.tallies = {each["door"]: Tally.load(each) for each in kept["tallies"]}

    @property
    def steps(self) -> int:
        return sum(tally.steps.total() for tally in self.tallies.values())

    def add(self, tallies: dict[str, Tally]) -> None:
        self.seed += 1
        for door, tally in tallies.items():
            self.tallies[door].add(tally)
        self._path.parent.mkdir(exist_ok=True)
        draft = self._path.with_suffix(".draft")
        tallies = [tally.dump() for tally in self.tallies.values()]
        draft.write_text(json.dumps({"seed": self.seed, "tallies": tallies}))
        draft.replace(self._path)


def _code() -> str:
    """What the walks depend on: kept counts of other code say nothing of this."""
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(_ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
