"""The policies at work: a control plane, a node of four simulated T4s, and real kubectl.

Every step shows the command as a person would type it and checks what the API server answers; no
outcome is read from a process of ours. The status is 0 only if every outcome is as stated.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from rich.console import Console

from cardwise.names import Door
from controlplane.launcher import ControlPlane, ControlPlaneError, KubectlError
from demo import kept
from demo.hami_play import HamiPlay
from demo.matrix import MATRIX, Step
from demo.theatre import Theatre, Unexpected

_PID_FILE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cardwise" / "demo.pid"
)

_INSTALLED = {
    Door.EXTENDER: (
        "Cardwise is installed by manifests/overlays/default. No Pod here names a scheduler or a"
        " number of cards: the admission webhook adds them."
    ),
    Door.GATES: (
        "Cardwise is installed by manifests/overlays/gates, and the one kube-scheduler is the"
        " cluster's own, as it comes. No Pod here has a gate or a number of cards: the admission"
        " webhook adds them, and the gate goes when node and cards are decided."
    ),
}

_GO_ON = {
    Door.EXTENDER: (
        "\nmake demo KEEP=1 leaves all of it running; make demo DOOR=gates shows the other door."
    ),
    Door.GATES: (
        "\nmake demo DOOR=gates KEEP=1 leaves all of it running; make demo shows the other door."
    ),
}


def main() -> int:
    """Run the demo; 0 when every outcome was as stated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--door", type=Door, choices=list(Door), default=Door.EXTENDER, help="how Pods come to us"
    )
    parser.add_argument(
        "--hami", action="store_true", help="a cluster that HAMi serves, without Cardwise"
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--stop", action="store_true", help="stop what --keep left running")
    parser.add_argument("--owner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stop:
        return _stop_kept()
    if options.keep and not options.owner:
        return _stop_kept(quiet=True) or _run_detached()
    if options.hami:
        return _play_hami(keep=options.keep)
    return _play(options.door, keep=options.keep)


def _play_hami(*, keep: bool) -> int:
    """Set up a cluster that HAMi serves, and leave the steps to who reads the page."""
    console = Console(width=110, highlight=False, soft_wrap=True)
    try:
        console.print("Starting etcd, kube-apiserver and KWOK …")
        with ControlPlane.start() as cp:
            play = HamiPlay(cp)
            console.print("Two nodes have HAMi's annotations, and HAMi placed these Pods:")
            console.print(str(cp.kubectl("get", "pods", "-o", "wide")), markup=False)
            console.print("The way on is docs/migrating-from-hami.md.")
            if keep:
                stop = threading.Event()
                threading.Thread(target=play.run, args=(stop,), daemon=True).start()
                _keep(cp, console)
                stop.set()
            else:
                console.print("\nmake demo HAMI=1 KEEP=1 leaves it running.")
    except (ControlPlaneError, KubectlError) as error:
        console.print(f"[bold red]✘[/] {error}", markup=True)
        return 1
    return 0


def _play(door: Door, *, keep: bool) -> int:
    """Set the stage, play every step, and say how it went."""
    console = Console(width=110, highlight=False, soft_wrap=True)
    done: list[str] = []
    try:
        console.print("Starting etcd, kube-apiserver, KWOK, kube-scheduler and Cardwise …")
        with ControlPlane.start() as cp:
            theatre = Theatre(cp, console, door)
            console.print(_INSTALLED[door])
            steps = MATRIX[door]
            for number, step in enumerate(steps, start=1):
                title = _title(step)
                console.rule(f"[bold]{number}/{len(steps)}  {title}", align="left")
                step(theatre)
                done.append(title)
            console.rule("[bold green]every outcome was as stated", align="left")
            for title in done:
                console.print(f"  [green]✔[/] {title}")
            if keep:
                _keep(cp, console)
            else:
                console.print(_GO_ON[door])
    except (Unexpected, ControlPlaneError, KubectlError) as error:
        console.print(f"[bold red]✘ not as stated:[/] {error}", markup=True)
        return 1
    return 0


def _title(step: Step) -> str:
    return (step.__doc__ or "").split("\n")[0]


def _keep(cp: ControlPlane, console: Console) -> None:
    """Hand the cluster over, and wait until somebody stops it."""
    console.print(
        f"\nIt goes on running. Look at it with\n\n  export KUBECONFIG={cp.admin_kubeconfig}"
    )
    console.print("  .venv/bin/kubectl get gpunodes")
    console.print(
        "  .venv/bin/kubectl apply -f examples/cluster/pod.yaml\n\nand stop it with: make demo-stop"
    )
    kept.note(_PID_FILE)
    # From here on nobody listens: what is still printed must not fail for want of a reader.
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


def _run_detached() -> int:
    """Play in a process of its own, which outlives this one once every step has passed."""
    owner = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:], "--owner"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "FORCE_COLOR": "1"} if sys.stdout.isatty() else None,
    )
    assert owner.stdout is not None
    try:
        for line in owner.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        owner.terminate()
        return 130
    try:
        return owner.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return 0


def _stop_kept(*, quiet: bool = False) -> int:
    """Stop what an earlier run left running, and wait until it has ended."""
    ending = kept.stop(_PID_FILE)
    if not quiet or ending.status:
        print(ending.told)
    return ending.status


if __name__ == "__main__":
    sys.exit(main())
