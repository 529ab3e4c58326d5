"""The node that the tests share, and the logs in the report of one that fails."""

from collections.abc import Generator, Iterator

import pytest

from controlplane.launcher import ControlPlane
from node.machine import Node, why_not


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """One control plane with one real node for all tests."""
    reason = why_not()
    if reason:
        pytest.skip(f"NO REAL NODE ON THIS MACHINE: {reason}")
    with ControlPlane.start(kwok=False) as cp, Node.start(cp, "node-a") as started:
        started.wait_until_ready()
        yield started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the node's processes logged last."""
    report = yield
    node = getattr(item, "funcargs", {}).get("node")
    if report.failed and node is not None and node.directory.exists():
        report.sections.append(("logs of the node", node.tails()))
    return report
