"""The whole controller in any order of calls, events, faults and ends (``machine.model``).

Here the same steps each time, by either door and by both; `make soak` takes others.
"""

from collections.abc import Callable

import pytest

from machine.runs import walk
from machine.tally import BOTH, EXTENDER, GATES, Tally, too_rare_in_a_short_run

EXAMPLES, STEPS = 135, 100


@pytest.mark.timeout(900)
def test_no_card_is_given_twice_and_nobody_waits_in_vain(
    record_property: Callable[[str, object], None],
) -> None:
    tallies = {door: Tally(door) for door in (EXTENDER, GATES, BOTH)}

    walk(0, tallies, examples=EXAMPLES, steps=STEPS)

    lines = [line for tally in tallies.values() for line in ["", *tally.lines()]]
    record_property("shown", "\n".join(lines))
    assert sum(tally.steps.total() for tally in tallies.values()) >= 10_000
    assert too_rare_in_a_short_run(tallies.values()) == []
