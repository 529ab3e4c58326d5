"""Walks of the state machine, by Hypothesis without its mutations.

Hypothesis makes most of its examples from earlier ones, by repeating parts of them. That finds bugs
of parsers; a walk of a hundred steps becomes a hundred times the same step. So its own provider is
used under another name: examples are then drawn afresh, and a failing one is shrunk as ever. Nor
does it draw numbers that stand in the code: which code is loaded would change the walks.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test

from machine.model import Model
from machine.tally import Tally


class FreshProvider(HypothesisProvider):
    """Draws by the seed alone."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


AVAILABLE_PROVIDERS["fresh"] = f"{__name__}.{FreshProvider.__name__}"


def walk(number: int, tallies: Mapping[str, Tally], *, examples: int, steps: int) -> None:
    """Take the walks of this seed; the same each time.

    Raises:
        AssertionError: a law was broken; printed is the shortest walk to it.
    """

    def begin() -> Model:
        return Model(tallies)

    run_state_machine_as_test(
        seed(number)(begin),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=1 + steps,  # the first chooses the door
            backend="fresh",
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
