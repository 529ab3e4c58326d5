"""The node that the tests share, and the logs in the report of one that fails."""

from collections.abc import Generator, Iterator

import pytest

from node.ground import why_not
from node.stage import Ward


@pytest.fixture(scope="module")
def raised() -> Iterator[Ward]:
    """One control plane with one real node and Cardwise's agent for the tests of a file.

    No longer: a machine has one node at a time, and other files have one of another kind.
    """
    reason = why_not()
    if reason:
        pytest.skip(f"NO REAL NODE ON THIS MACHINE: {reason}")
    with Ward.raised() as ward:
        yield ward


@pytest.fixture
def ward(raised: Ward) -> Ward:
    """The node without Pods."""
    raised.clear()
    return raised


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the node's processes logged last."""
    report = yield
    ward = getattr(item, "funcargs", {}).get("ward")
    if report.failed and ward is not None and ward.cp.directory.exists():
        report.sections.append(("logs of the node", ward.tails()))
    return report
