"""What more than one process does with its command line: the log's form."""

import logging

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
