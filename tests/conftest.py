"""How much Hypothesis searches, and what every end-to-end test is given."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# pytest-timeout limits a test; a limit an example would only make slow machines flaky.
settings.register_profile("base", deadline=None, suppress_health_check=[HealthCheck.too_slow])
BASE = settings.get_profile("base")
settings.register_profile("ci", BASE, derandomize=True, max_examples=100, print_blob=True)
settings.register_profile("dev", BASE, max_examples=50)
settings.register_profile("thorough", BASE, max_examples=5_000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)

UNIT_SECONDS = {"ci": 30, "thorough": 900}
SHOWN = "shown"
E2E = tuple(Path(__file__).parent / name for name in ("e2e", "e2e_node"))
pytest.register_assert_rewrite("contract.suite", "contract.nodestatus")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what needs more than the five seconds of a unit test its time.

    A test's own ``timeout`` mark wins. End-to-end tests talk to real processes, so their loop
    keeps real time.
    """
    for item in items:
        if any(item.path.is_relative_to(place) for place in E2E):
            item.add_marker("e2e")
            item.add_marker(pytest.mark.looptime(False))
            item.add_marker(pytest.mark.xdist_group(_stage_of(item)))
            _allow(item, seconds=300)
        elif PROFILE != "dev" or _searches(item):
            _allow(item, seconds=UNIT_SECONDS.get(PROFILE, 30))


def _stage_of(item: pytest.Item) -> str:
    """File and door: one process runs these, one after the other, on the stage they share."""
    spec = getattr(item, "callspec", None)
    door = spec.params.get("theatre", "") if spec else ""
    return f"{item.path.stem} {door}".strip()


def _searches(item: pytest.Item) -> bool:
    """Whether Hypothesis runs it: the first search on a machine builds tables for seconds."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def _allow(item: pytest.Item, *, seconds: int) -> None:
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(seconds))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have to show of a run that passed (``record_property("shown", text)``).

    A worker process of pytest-xdist has no terminal of its own.
    """
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == SHOWN and getattr(report, "when", "") == "call":
                    terminalreporter.write_line(text)
