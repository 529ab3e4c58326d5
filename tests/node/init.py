"""The first process of the node's namespaces: mounts what is the node's own, and reaps orphans.

Run in new mount and PID namespaces, as `init.py DIRECTORY`. kubelet and containerd write to fixed
places (kubelet's plugin directory among them): here those are directories of DIRECTORY, or empty
file systems in memory. When this process is killed, the kernel kills every process of the node, and
the mounts go with the last one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

HIDDEN = ("/var/lib", "/var/log")
"""Empty in the node, whatever the machine has there."""
OWN = {"run": "/run", "kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd"}
"""Directories of the node that the tests see, too."""


def main(directory: Path) -> None:
    _mount("--make-rprivate", "/")
    for place in HIDDEN:
        _mount("-t", "tmpfs", "-o", "mode=755", "node", place)
    for name, place in OWN.items():
        (directory / name).mkdir(exist_ok=True)
        Path(place).mkdir(exist_ok=True)
        _mount("--bind", str(directory / name), place)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (directory / "namespaces-ready").touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
