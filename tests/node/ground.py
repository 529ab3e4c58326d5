"""What a node takes of this machine: root and packages, its one place, and its control groups.

As a program it prints why this machine can't have a node; nothing where it can.
"""

import contextlib
import fcntl
import functools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_BUILD: Final = HERE.parent / "controlplane" / "build.sh"
_LOCK: Final = Path("/var/lock/cardwise-node.lock")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_GONE_SECONDS: Final = 5.0
CONTAINERS: Final = "k8s.io"
"""containerd's control group for the containers of a Pod that names no parent."""


@functools.cache
def why_not(*, cdi: bool = True) -> str:
    """Why this machine can't have a node, with a containerd that has CDI or not; empty: it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "kubelet and containerd need root"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "node", "/run"],
        check=False,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        return f"no namespaces can be made here: {tried.stderr.strip()}"
    if not any((_CGROUPS / name).exists() for name in ("memory", "cgroup.controllers")):
        return f"no control groups are mounted at {_CGROUPS}"
    for more in [[]] if cdi else [[], ["containerd"]]:
        command = [HERE / "packages.sh", *more]
        packages = subprocess.run(command, check=False, capture_output=True, text=True)
        if packages.returncode == 3:
            return packages.stderr.splitlines()[-1]
    return ""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the machine's one place for a node; wait for it where another run has it."""
    with _LOCK.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("node: another run has a node on this machine; waiting for it\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_cgroups() -> None:
    """Remove the control groups of the containers, which are gone a moment after their kill."""
    deadline = time.monotonic() + _GONE_SECONDS
    while found := sorted(_CGROUPS.glob(f"*/{CONTAINERS}/**/"), reverse=True):
        for group in found:
            with contextlib.suppress(OSError):
                group.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def built() -> Path:
    return Path(output(_BUILD, "node"))


def without_cdi() -> Path:
    """Where the programs of a containerd that has no CDI are."""
    return Path(output(HERE / "packages.sh", "containerd")) / "usr/bin"


def output(*argv: str | Path) -> str:
    """The last line that a program printed."""
    return lines(*argv)[-1]


def lines(*argv: str | Path) -> list[str]:
    command = [str(word) for word in argv]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write(why_not())
