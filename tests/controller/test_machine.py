"""The whole controller in any order of calls, events, faults and ends (``machine.model``).

Here the same 10,000 steps each time; `make soak` takes others.
"""

import pytest
from rich.console import Console

from machine.runs import walk
from machine.tally import Tally

EXAMPLES, STEPS = 105, 100


@pytest.mark.timeout(900)
def test_no_card_is_given_twice_and_nobody_waits_in_vain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()

    walk(0, tally, examples=EXAMPLES, steps=STEPS)

    with capsys.disabled():
        Console(highlight=False, soft_wrap=True).print("\n".join(["", *tally.lines()]))
    assert tally.steps.total() >= 10_000
    assert tally.too_rare() == []
