"""Where the processor time of our processes goes, sampled from outside while a trial runs."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.contestants import Running

_OURS = ("controller", "extender")
_RATE = 200
"""Samples a second."""


class Profiler:
    """Runs py-spy beside a trial, where it is installed: ``pip install py-spy``."""

    def __init__(self, directory: Path, nodes: int) -> None:
        """Write into a directory, with the number of nodes in the files' names."""
        beside = Path(sys.executable).with_name("py-spy")
        found = str(beside) if beside.exists() else shutil.which("py-spy")
        if found is None:
            raise SystemExit("--profile needs py-spy: .venv/bin/pip install py-spy")
        self._program = found
        self._directory = directory
        self._nodes = nodes
        directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def __call__(self, running: Running, name: str) -> Iterator[None]:
        """Sample the Python processes of a contestant: a line a stack, with its count."""
        sampling = [
            self._sample(process.pid, f"{name}-{self._nodes}-{role}.txt")
            for role, process in running.processes.items()
            if role in _OURS
        ]
        try:
            yield
        finally:
            for process in sampling:
                process.send_signal(signal.SIGINT)
            for process in sampling:
                process.wait(60)

    def _sample(self, pid: int, file: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                self._program,
                "record",
                f"--pid={pid}",
                f"--rate={_RATE}",
                "--format=raw",
                f"--output={self._directory / file}",
                "--nonblocking",
                "--gil",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
