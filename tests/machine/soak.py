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
from machine.tally import Tally

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
        tally = Tally()
        return 0 if _walk(options.seed, tally, console) else 1
    kept = _Kept(_KEPT / f"{_code()}.json")
    if kept.tally.examples:
        console.print(f"soak: going on after {kept.tally.steps.total()} steps, at seed {kept.seed}")
    while kept.tally.steps.total() < options.steps:
        began, tally = time.monotonic(), Tally()
        if not _walk(kept.seed, tally, console):
            return 1
        kept.add(tally)
        speed = tally.steps.total() / (time.monotonic() - began)
        console.print(
            f"soak: {kept.tally.steps.total()} of {options.steps} steps, no violation"
            f" (seed {kept.seed - 1}, {speed:.0f} steps/s)"
        )
    rare = kept.tally.too_rare()
    console.print("\n".join([*kept.tally.lines(), *rare, "violations: 0"]))
    return 1 if rare else 0


def _walk(seed: int, tally: Tally, console: Console) -> bool:
    try:
        walk(seed, tally, examples=_EXAMPLES, steps=_STEPS)
    except Exception:  # noqa: BLE001 - whatever it was, it is the result
        console.print(traceback.format_exc(), markup=False)
        console.print(f"soak: a law was broken; again with: make soak SEED={seed}")
        return False
    return True


class _Kept:
    """What is kept between runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seed, self.tally = 1, Tally()
        if path.exists():
            kept: dict[str, Any] = json.loads(path.read_text())
            self.seed, self.tally = kept["seed"], Tally.load(kept["tally"])

    def add(self, tally: Tally) -> None:
        self.seed += 1
        self.tally.add(tally)
        self._path.parent.mkdir(exist_ok=True)
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps({"seed": self.seed, "tally": self.tally.dump()}))
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
