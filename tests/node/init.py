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
OWN = {
    "run": "/run",
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "vgpu": "/usr/local/vgpu",
}
"""Directories of the node that the tests see, too."""
LOCAL = Path("/usr/local")
"""Of the node's own, with all that the machine has there but HAMi-core."""


def main(directory: Path) -> None:
    _mount("--make-rprivate", "/")
    for place in HIDDEN:
        _mount("-t", "tmpfs", "-o", "mode=755", "node", place)
    _own_local()
    for name, place in OWN.items():
        (directory / name).mkdir(exist_ok=True)
        Path(place).mkdir(exist_ok=True)
        _mount("--bind", str(directory / name), place)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (directory / "namespaces-ready").touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _own_local() -> None:
    """Make a place for HAMi-core without making it on the machine."""
    behind = Path("/var/lib/machine-local")
    behind.mkdir()
    _mount("--rbind", str(LOCAL), str(behind))
    _mount("-t", "tmpfs", "-o", "mode=755", "node", str(LOCAL))
    for place in behind.iterdir():
        if place.is_symlink():
            (LOCAL / place.name).symlink_to(place.readlink())
        elif place.is_dir() and place.name != "vgpu":
            (LOCAL / place.name).mkdir()
            _mount("--rbind", str(place), str(LOCAL / place.name))


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
