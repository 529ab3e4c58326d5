"""A controller's two ports for tests that send what nobody should."""

import logging
from collections.abc import Iterator

import pytest

from served import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One controller for a module: what one call leaves behind, the next ones meet."""
    with serving() as it:
        yield it


@pytest.fixture
def unbroken(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No handler may have died, whatever was answered for it; and no card stays held."""
    yield
    ledger = served.world.ledger
    for entry in list(ledger.entries()):
        ledger.drop_hold(entry.pod.uid, 0.0)
    # By their phase: when a fixture ends, the records of the test itself are set aside already.
    told = caplog.get_records("call")
    assert [each.getMessage() for each in told if each.levelno >= logging.ERROR] == []
    assert [each.getMessage() for each in told if each.exc_info] == []
