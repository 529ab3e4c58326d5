"""What a large cluster costs the controller: start, memory, and whether waiting Pods crowd others.

Each proof has a real control plane of its own, with nodes that are Ready because we say so. Run
them with ``make bench-scale``, or one with ``make bench-scale ARGS="--load"``. Nothing is asserted:
figures above their bars are marked. What is run whole goes to ``docs/performance/scale.json``, a
part with smaller numbers to ``.bench/``, unless ``--output`` says otherwise.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.ground import Crowd, agents, lay
from bench.scale import Figures, Told, loaded, waves
from bench.waiting import waiting
from controlplane.launcher import ROOT, ControlPlane

RESULTS = "scale.json"
_LOG_WIDTH = 140
_DEFAULTS = {
    "nodes": 5000,
    "pods": 40_000,
    "small_nodes": 1000,
    "waves_count": 12,
    "wave_pods": 2000,
    "waiting_pods": 5000,
    "seconds": 60.0,
    "calls": 300,
}

Proof = Callable[[ControlPlane, Crowd, argparse.Namespace, Told], Figures]


def _load(cp: ControlPlane, _: Crowd, options: argparse.Namespace, told: Told) -> Figures:
    return loaded(cp, options.nodes, options.pods, options.calls, told)


def _waves(cp: ControlPlane, crowd: Crowd, options: argparse.Namespace, told: Told) -> Figures:
    return waves(cp, crowd, options.waves_count, options.wave_pods, told)


def _waiting(cp: ControlPlane, _: Crowd, options: argparse.Namespace, told: Told) -> Figures:
    return waiting(cp, "extender", options.waiting_pods, options.seconds, told)


def _waiting_gates(cp: ControlPlane, _: Crowd, options: argparse.Namespace, told: Told) -> Figures:
    return waiting(cp, "gates", options.waiting_pods, options.seconds, told)


PROOFS: dict[str, tuple[Proof, str]] = {
    "load": (_load, "nodes"),
    "waves": (_waves, "small_nodes"),
    "waiting": (_waiting, "small_nodes"),
    "waiting-gates": (_waiting_gates, "small_nodes"),
}
"""By its option: the proof, and which number of nodes it has."""


def main() -> None:
    """Run what is asked for, and tell."""
    options = _options()
    console = Console()
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    machine = report.machine()
    if machine["is_busy"]:
        console.print("[yellow]The machine is busy: times are longer than they need be.[/]")
    done: dict[str, Figures] = {}
    for name in options.proofs:
        done[name] = _held(console, name, options)
        console.print(table(done[name]))
    directory = options.output or (ROOT / (".bench" if options.is_partial else "docs/performance"))
    path = directory / RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(path, machine, done), indent=1) + "\n")
    console.print(f"written: {path}", highlight=False)


def _held(console: Console, name: str, options: argparse.Namespace) -> Figures:
    """One proof, on a control plane of its own."""
    proof, size = PROOFS[name]
    nodes = getattr(options, size)
    began = time.monotonic()

    def told(text: str) -> None:
        console.print(f"{time.monotonic() - began:6.0f} s  {name}: {text}", highlight=False)

    with ControlPlane.start(audit=name != "load", kwok=False, controller_manager=False) as cp:
        crowd = Crowd(cp)
        try:
            lay(cp, crowd, nodes, lambda _: None)
            told(f"{nodes:,} nodes written")
            with agents(cp, nodes):
                return proof(cp, crowd, options, told)
        finally:
            crowd.close()


def table(found: Figures) -> Table:
    """A proof's figures, and the bars of those that have one."""
    made = Table(title=found.what)
    for column in ("figure", "measured", "bar"):
        made.add_column(column, justify="left" if column == "figure" else "right")
    missed = found.missed()
    for name, value in found.figures.items():
        bar = f"< {found.bars[name]:g}" if name in found.bars else ""
        made.add_row(name, _said(value), bar + (" MISSED" if name in missed else ""))
    return made


def _said(value: float | list[float]) -> str:
    if isinstance(value, list):
        return ", ".join(map(_said, value))
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def document(path: Path, machine: dict[str, Any], done: dict[str, Figures]) -> dict[str, Any]:
    """What is written: the proofs that were not run now stay as they were, with their machine."""
    before = json.loads(path.read_text()) if path.exists() else {}
    return {**before, **{name: {"machine": machine, **f.document()} for name, f in done.items()}}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in PROOFS:
        parser.add_argument(f"--{name}", dest="proofs", action="append_const", const=name)
    for name, value in _DEFAULTS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(value), default=value, help=f"default: {value:g}")
    parser.add_argument("--output", type=Path, help="directory for the JSON")
    options = parser.parse_args()
    options.proofs = options.proofs or list(PROOFS)
    options.is_partial = any(getattr(options, name) != value for name, value in _DEFAULTS.items())
    return options


if __name__ == "__main__":
    main()
