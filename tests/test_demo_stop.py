"""`make demo-stop` is done when the demo's last process has ended, not when it was told to end."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo import kept
from demo.kept import Ending

Start = Callable[[str], "subprocess.Popen[bytes]"]
_DEMO = """
import signal, sys, threading, time
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
print("there", flush=True)
stop.wait()
time.sleep({ends_after})
"""
_SOON, _LATE = "0.4", "3600"


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "demo.pid"


@pytest.fixture
def start(tmp_path: Path, pid_file: Path) -> Iterator[Start]:
    """Starts a program that takes so many seconds to end, once it is told to."""
    started = []

    def run(ends_after: str, script: str = "demo.py") -> "subprocess.Popen[bytes]":
        (tmp_path / script).write_text(_DEMO.format(ends_after=ends_after))
        program = [sys.executable, str(tmp_path / script)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # it takes signals from here on
        pid_file.parent.mkdir(exist_ok=True)
        pid_file.write_text(str(process.pid))
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_a_demo_that_is_stopped_has_ended(start: Start, pid_file: Path) -> None:
    # Red: `stop` without `select`.
    process = start(_SOON)

    assert kept.stop(pid_file) is Ending.STOPPED

    assert process.poll() == 0
    assert not pid_file.exists()
    assert kept.stop(pid_file) is Ending.NONE


def test_a_demo_that_does_not_end_is_told_of_and_may_be_asked_again(
    start: Start, pid_file: Path
) -> None:
    # Red: `stop` takes the file away all the same.
    process = start(_LATE)

    assert kept.stop(pid_file, within=0.1) is Ending.LASTS
    assert Ending.LASTS.status == 1
    assert pid_file.read_text() == str(process.pid)

    process.kill()
    process.wait()
    assert kept.stop(pid_file) is Ending.NONE


@pytest.mark.parametrize("written", ["", "nonsense", "-1", "0", "4194304999"])
def test_a_number_of_no_process_is_no_demo(pid_file: Path, written: str) -> None:
    pid_file.parent.mkdir()
    pid_file.write_text(written)

    assert kept.stop(pid_file) is Ending.NONE
    assert not pid_file.exists()


def test_a_process_that_is_no_demo_is_left_alone(start: Start, pid_file: Path) -> None:
    # Red: `stop` without a look at the command.
    process = start(_SOON, script="other.py")

    assert kept.stop(pid_file) is Ending.NONE
    assert process.poll() is None


def test_the_demo_writes_its_own_number(pid_file: Path) -> None:
    kept.note(pid_file)

    assert pid_file.read_text() == str(os.getpid())
