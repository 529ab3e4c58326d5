"""Both doors at once: one process, one ledger, two schedulers."""

from collections.abc import Iterator
from typing import Any

import pytest

from cardwise import names
from cardwise.names import Door
from controlplane.launcher import ControlPlane, free_port
from stage import Stage


class BothDoors(Stage):
    """A cluster with the overlay "both-doors"."""

    overlay = "both-doors"
    advertises = True

    def start_cardwise(self) -> None:
        """Start the controller, our kube-scheduler beside it, and the cluster's own."""
        self._port, self._reports_port = free_port(), free_port()
        self.start_controller()
        self.scheduler = self.cp.start_scheduler(
            extender_url=self.extender_url, configuration=self.installation.scheduler
        )
        self.own_scheduler = self.cp.start_default_scheduler()


@pytest.fixture(scope="module")
def both() -> Iterator[BothDoors]:
    """Two nodes with four cards in all."""
    with ControlPlane.start() as cp:
        stage = BothDoors(cp)
        stage.node("node-a", 2)
        stage.node("node-b", 2)
        yield stage


@pytest.fixture
def stage(both: BothDoors) -> Iterator[BothDoors]:
    yield both
    for name in both.pods():
        both.delete(name)
    assert both.legal() == []


def by(door: Door, **more: str) -> dict[str, Any]:
    """A Pod that takes a whole card, by this door."""
    return {"gpucores": 100, "gpumem": 1000, "annotations": {names.DOOR: door, **more}}


def doors(stage: Stage) -> dict[str, Door]:
    """By which door each Pod that is bound came."""
    own = {True: Door.GATES, False: Door.EXTENDER}
    return {
        name: own[pod["spec"]["schedulerName"] == "default-scheduler"]
        for name, pod in stage.pods().items()
        if "nodeName" in pod["spec"]
    }


def test_pods_of_both_doors_never_share_a_whole_card_and_all_are_served(stage: BothDoors) -> None:
    for number in range(12):
        stage.pod(f"p{number:02}", **by(list(Door)[number % 2]))
    served: dict[str, Door] = {}
    while len(served) < 12:
        due = min(4, 12 - len(served))
        stage.cp.wait("the next Pods", lambda due=due: len(doors(stage)) == due, 30)
        assert stage.legal() == []
        now = doors(stage)
        served |= now
        for name in now:
            stage.delete(name)
    assert sorted(served.values()).count(Door.GATES) == 6


def test_what_the_gates_can_not_judge_goes_by_the_extender(stage: BothDoors) -> None:
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    away = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    stage.pod("apart", gpumem=1000, spec={"affinity": {"podAntiAffinity": away}})
    stage.placed("apart")
    assert doors(stage) == {"apart": Door.EXTENDER}


def test_a_gang_goes_by_the_gates(stage: BothDoors) -> None:
    gang = {names.GANG: "g", names.GANG_SIZE: "2"}
    for name in ("a", "b"):
        stage.pod(name, gpumem=1000, annotations=gang)
    for name in ("a", "b"):
        stage.placed(name)
    assert doors(stage) == {"a": Door.GATES, "b": Door.GATES}
