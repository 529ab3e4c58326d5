"""What is logged once, however often it goes wrong."""

import pytest

from cardwise.agent.complaints import Complaints


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param(["a: no", "a: no"], ["no"], id="the same again is no news"),
        pytest.param(["a: no", "a: not"], ["no", "not"], id="something else is"),
        pytest.param(["a: no", "b: no"], ["no", "no"], id="of another thing it is"),
        pytest.param(["a: no", "a:", "a: no"], ["no", "no"], id="once it was well, it is"),
        pytest.param(["a: no", "b:", "a: no"], ["no"], id="another thing is well"),
    ],
)
def test_what_is_logged(
    steps: list[str], want: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Red: `complain` logs always, or what is of another thing never; `settle` does nothing."""
    complaints = Complaints()
    for step in steps:
        about, _, sentence = step.partition(": ")
        if sentence:
            complaints.complain(about, sentence)
        else:
            complaints.settle(about.rstrip(":"))

    assert caplog.messages == want


def test_what_is_wrong_now() -> None:
    complaints = Complaints()
    complaints.complain("a", "no")

    assert (complaints.last("a"), complaints.last("b")) == ("no", "")
