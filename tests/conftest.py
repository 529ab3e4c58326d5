"""How much Hypothesis searches, and what every end-to-end test is given."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# pytest-timeout limits a test; a deadline an example would only make slow machines flaky.
settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "thorough",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)

E2E = Path(__file__).parent / "e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what needs more than the five seconds of a unit test its time.

    A test's own ``timeout`` mark wins. End-to-end tests talk to real processes, so their loop
    keeps real time.
    """
    for item in items:
        if item.path.is_relative_to(E2E):
            item.add_marker("e2e")
            item.add_marker(pytest.mark.looptime(False))
            _allow(item, seconds=300)
        elif PROFILE == "thorough":
            _allow(item, seconds=900)


def _allow(item: pytest.Item, *, seconds: int) -> None:
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(seconds))
