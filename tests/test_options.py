"""What more than one process does with its command line: the log's form."""

import logging
import subprocess
import sys

import pytest

from cardwise.options import EveryLine

ONE = "INFO here: pod=default/p gpu=0 kept"


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param("pod=default/p gpu=0 kept", ONE, id="a line"),
        pytest.param(
            "pod=default/p gpu=0 kept\npod=default/p gpu=1 kept",
            f"{ONE}\nINFO here: pod=default/p gpu=1 kept",
            id="two",
        ),
        pytest.param("", "INFO here: ", id="none"),
        pytest.param(
            "here\nhere: \n", "INFO here: here\nINFO here: here: \nINFO here: ", id="alike"
        ),
    ],
)
def test_every_line_of_a_message_begins_as_the_first(message: str, want: str) -> None:
    # Red: the formatter is logging's own.
    record = logging.LogRecord("here", logging.INFO, "", 0, "%s", (message,), None)

    assert EveryLine("%(levelname)s %(name)s: %(message)s").format(record) == want


def test_the_log_of_a_process_is_written_so() -> None:
    # Red: `start_logging` keeps logging's own formatter.
    program = """
import logging
from cardwise.options import start_logging
start_logging("info")
logging.getLogger("here").info("%s", "one\\ntwo")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    ends = [line.partition(" INFO ")[2] for line in ran.stderr.splitlines()]
    assert ends == ["here: one", "here: two"]
