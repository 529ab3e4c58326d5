"""The stage that most end-to-end tests share, and the logs in the report of one that fails."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

import audit
from cardwise.names import Door
from fault_proxy import FaultProxy
from stage import Stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test that needs a stage its door; both, or the one of gates, where marked so.

    `both_doors(gates_long=True)`: by that door it is one of the long ones.
    All have one, so that pytest puts those of a door together: it takes seconds to start.
    """
    if "theatre" in metafunc.fixturenames:
        doors = list(_doors(metafunc.definition))
        metafunc.parametrize("theatre", doors, indirect=True, scope="session")


def _doors(test: pytest.Item) -> Iterator[Any]:
    both = test.get_closest_marker("both_doors")
    alone = test.get_closest_marker("gates_alone")
    if not alone:
        yield pytest.param(Door.EXTENDER, id="extender")
    if both or alone:
        long = both is not None and both.kwargs.get("gates_long", False)
        yield pytest.param(Door.GATES, id="gates", marks=[pytest.mark.long] if long else [])


@pytest.fixture(scope="session")
def theatre(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One control plane with Cardwise for all tests of a door."""
    with Stage.raised(audit=True, door=request.param) as raised:
        yield raised
        assert audit.refused(raised.cp) == set(), "a right was missing"


@pytest.fixture
def stage(theatre: Stage) -> Iterator[Stage]:
    """An empty stage; what a test leaves on it must be legal."""
    theatre.clear()
    yield theatre
    assert theatre.legal() == []


@pytest.fixture
def proxy(stage: Stage) -> Iterator[FaultProxy]:
    """A proxy, which does nothing yet, between the stage's controller and the API server."""
    with FaultProxy(stage.cp, kinds=stage.kinds) as proxy:
        stage.controller.terminate()
        stage.start_controller(kubeconfig=proxy.through(stage.account))
        yield proxy
        stage.controller.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what our processes logged last, whatever it was that failed."""
    report = yield
    stage = getattr(item, "funcargs", {}).get("stage")
    # Where the last test fails in its end, the logs have gone with the control plane.
    if report.failed and stage is not None and stage.cp.directory.exists():
        report.sections.append(("logs of the cluster's processes", stage.tails()))
    return report
