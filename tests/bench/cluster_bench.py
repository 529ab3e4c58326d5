"""How many Pods a second are bound, by whom, at what cost: on a real control plane, side by side.

Contestants take turns on the same cluster, round by round, because a slow moment of the machine
slows all of them: **what counts are the ratios to (a')**, kube-scheduler alone with our profile's
settings. Nothing is asserted. Run it with ``make bench``; a part of it with, say,
``make bench ARGS="--nodes 1000 --only extender,stock-all"``: its results go to ``.bench/`` unless
``--output`` says otherwise. ``--add`` puts them to those that are there: a whole, made in parts.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import report
from bench.contestants import Contestant, contestants
from bench.ground import CLIENTS, Crowd, lay
from bench.mixes import MIXES
from bench.profiles import Profiler
from bench.report import BASE, Run
from bench.trial import Course, Result
from controlplane.api import ApiError
from controlplane.launcher import ROOT, ControlPlane, ControlPlaneError

_LETTERS = {
    "stock": "(a)",
    BASE: "(a')",
    "nothing": "(b)",
    "extender": "(c)",
    "gates": "(c')",
    "url": "(d)",
}
"""What tables and docs/performance call them."""
_WHOLE_NODES = (100, 1000, 5000)
_MIXED_NODES = 1000
"""Where every mix is run, when nothing is said; elsewhere Pods are all alike."""
_LOG_WIDTH = 160
_URL_SECONDS = 600.0
_PUBLISHED = ROOT / "docs/performance"
_PARTIAL = ROOT / ".bench"


def main() -> None:
    """Run what is asked for, and tell."""
    options = _options()
    console = Console()
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    everybody = contestants(options.url)
    chosen = _chosen(options.only, everybody)
    run = Run(
        titles={name: f"{_LETTERS[name]} {everybody[name].title}" for name in chosen},
        limits=_limits(options),
        machine=report.machine(),
    )
    directory = options.output or (_PARTIAL if options.is_partial else _PUBLISHED)
    if options.add:
        _go_on(run, directory / report.RESULTS)
    _introduce(console, run)
    plan = _plan(options)
    for nodes in dict.fromkeys(nodes for nodes, _ in plan):
        mixes = [mix for count, mix in plan if count == nodes]
        _at(console, run, options, nodes, mixes, [everybody[name] for name in chosen])
    _conclude(console, run, directory)


def _go_on(run: Run, path: Path) -> None:
    if not path.exists():
        return
    try:
        run.add_to(json.loads(path.read_text()))
    except (ValueError, KeyError) as error:
        raise SystemExit(f"--add: {path} can't be gone on with: {error}") from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=_numbers, help="e.g. 100,5000")
    parser.add_argument("--pods", type=int, default=1000, help="bound by each, in each round")
    parser.add_argument("--only", type=_words, help=f"of {', '.join(contestants(''))}")
    parser.add_argument("--mix", type=_words, help=f"of {', '.join(MIXES)}")
    parser.add_argument("--rounds", type=int, default=3, help="the median of which is told")
    parser.add_argument("--url", help="one more extender: what kube-scheduler's urlPrefix is")
    parser.add_argument("--qps", type=float, default=2000, help="limit of every client")
    parser.add_argument("--pace", type=float, help="Pods created a second; else as fast as it goes")
    parser.add_argument(
        "--profile", type=Path, help="directory for a profile of each process of ours"
    )
    parser.add_argument("--output", type=Path, help="directory for JSON and plots")
    parser.add_argument("--add", action="store_true", help="to what is there already")
    options = parser.parse_args()
    for mix in options.mix or ():
        if mix not in MIXES:
            parser.error(f"--mix {mix}: there are {', '.join(MIXES)}")
    for name in options.only or ():
        if name not in contestants(options.url):
            parser.error(f"--only {name}: there are {', '.join(contestants(options.url))}")
    if options.url is not None and not options.url.startswith("http://"):
        parser.error(f"--url {options.url}: kube-scheduler is told to ask by http://")
    if options.url is not None and len(options.nodes or _WHOLE_NODES) > 1:
        parser.error("--url: say one number of --nodes; each has a cluster of its own to know")
    narrowed = (options.nodes, options.only, options.mix, options.pace, options.profile)
    options.is_partial = any(narrowed) or options.pods < 1000 or options.rounds < 3
    return options


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _words(text: str) -> list[str]:
    return text.split(",")


def _chosen(only: list[str] | None, everybody: dict[str, Contestant]) -> list[str]:
    return [name for name in everybody if only is None or name in only]


def _plan(options: argparse.Namespace) -> list[tuple[int, str]]:
    """Numbers of nodes and mixes."""
    if options.mix:
        return [(nodes, mix) for nodes in options.nodes or _WHOLE_NODES for mix in options.mix]
    mixed = [_MIXED_NODES] if options.nodes is None else []
    return [
        (nodes, mix)
        for nodes in options.nodes or _WHOLE_NODES
        for mix in (MIXES if nodes in mixed else ["alike"])
    ]


def _limits(options: argparse.Namespace) -> dict[str, object]:
    scheduler = f"qps {options.qps:g}, burst {2 * options.qps:g}"
    return {
        "kube-scheduler, whoever it asks": scheduler,
        "controller, and the extender that does nothing": "no limit, 64 connections",
        "the extender at --url": "its own: start it with " + scheduler,
        "kube-apiserver": "4000 requests and 2000 changes in flight",
        "Pods are created by": f"{CLIENTS} connections"
        + (f", {options.pace:g} a second" if options.pace else ", as fast as they are taken"),
        "pods": options.pods,
        "rounds": options.rounds,
    }


def _introduce(console: Console, run: Run) -> None:
    where = run.machine
    versions = ", ".join(f"{name} {value}" for name, value in where["versions"].items())
    console.print(
        f"{where['processor']}, {where['cores']} cores, {where['memory_gb']} GB, "
        f"Linux {where['kernel']}\n{versions}",
        highlight=False,
    )
    for title in run.titles.values():
        console.print(f"  {title}", highlight=False)
    for what, limit in run.limits.items():
        console.print(f"  {what}: {limit}", highlight=False)
    if where["is_busy"]:
        console.print(
            f"[yellow]The machine is busy ({where['load_before']}): only ratios mean anything.[/]"
        )


def _at(
    console: Console,
    run: Run,
    options: argparse.Namespace,
    nodes: int,
    mixes: list[str],
    chosen: list[Contestant],
) -> None:
    """Everything at one number of nodes, on one control plane."""
    with ControlPlane.start(audit=True, kwok=False, controller_manager=False) as cp:
        crowd = Crowd(cp)
        try:
            with _progress(console) as progress:
                task = progress.add_task(f"{nodes:,} nodes", total=nodes)
                lay(cp, crowd, nodes, lambda _: progress.advance(task))
            if options.url is not None:
                _await_extender(console, cp, options.url)
            profiler = Profiler(options.profile, nodes) if options.profile else None
            course = Course(
                cp, crowd, nodes, options.pods, options.qps, options.pace, profiler=profiler
            )
            for mix in mixes:
                done = run.rounds(nodes, mix)
                for number in range(done + 1, done + options.rounds + 1):
                    # Nobody is always the first after the nodes were written.
                    turn = (number - 1) % len(chosen)
                    for contestant in chosen[turn:] + chosen[:turn]:
                        _hold(console, run, course, contestant, mix, number)
                console.print(report.table(run, nodes, mix))
        finally:
            crowd.close()


def _hold(
    console: Console, run: Run, course: Course, contestant: Contestant, mix: str, number: int
) -> None:
    """One trial; one that fails is told of, and the others go on."""
    title = f"{course.nodes:,} nodes, {mix}, round {number}: {run.titles[contestant.name]}"
    began = time.monotonic()
    try:
        with _progress(console) as progress:
            task = progress.add_task(title, total=course.pods)
            result = course.run(
                contestant, MIXES[mix], number, lambda done: progress.update(task, completed=done)
            )
    except (ControlPlaneError, ApiError, OSError) as error:
        run.failed.append(f"{title}: {str(error).splitlines()[0]}")
        console.print(f"{title}: {error}", style="red", markup=False, highlight=False)
        return
    run.results.append(result)
    console.print(f"{title}: {_line(result, time.monotonic() - began)}", highlight=False)


def _line(result: Result, seconds: float) -> str:
    short = "" if result.is_finished else f", ONLY {result.bound} OF {result.expected} BOUND"
    slow = ", THROTTLED" if result.is_throttled else ""
    return f"{result.rate:.0f} Pods/s{short}{slow} (trial {seconds:.0f} s)"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a line a trial is enough for a log
    )


def _await_extender(console: Console, cp: ControlPlane, url: str) -> None:
    """Wait until somebody answers at ``--url``: it needs to know the cluster, which is new."""
    console.print(f"start the extender now: KUBECONFIG={cp.admin_kubeconfig}")

    def answers() -> bool:
        try:
            urllib.request.urlopen(url, timeout=5)  # noqa: S310 (the user's own)
        except urllib.error.HTTPError:
            return True  # it speaks HTTP
        return True

    cp.wait(f"an extender at {url}", answers, _URL_SECONDS)


def _conclude(console: Console, run: Run, directory: Path) -> None:
    for sentence in run.void():
        console.print(f"[red]{sentence}[/]")
    if run.is_void:
        console.print("[bold red]VOID: (a') was throttled by its own limits; raise --qps.[/]")
    if run.machine["is_busy"]:
        console.print("[yellow]The machine was busy before the run: only ratios mean anything.[/]")
    if run.results:
        for path in report.write(run, directory):
            console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    main()
