"""Both doors installed: one process, one ledger, and no card given by each of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from bookings import agree
from cardwise import names
from cardwise.names import Door, Reason
from stage import Json, Stage

PODS = 60
DOORS = (Door.EXTENDER, Door.GATES)


class BothDoors(Stage):
    """Our kube-scheduler runs beside the cluster's own."""

    overlay = "both-doors"
    advertises = True

    def start_cardwise(self) -> None:
        super().start_cardwise()
        self.own_scheduler = self.cp.start_default_scheduler()


@pytest.fixture(scope="module")
def theatre() -> Iterator[BothDoors]:
    with BothDoors.raised(audit=True) as raised:
        yield raised


def by(door: Door) -> Json:
    return {names.DOOR: str(door)}


def came_by(pod: Json) -> Door:
    ours = pod["spec"]["schedulerName"] == names.SCHEDULER_NAME
    return Door.EXTENDER if ours else Door.GATES


@pytest.mark.parametrize(
    ("first", "second"), [DOORS, DOORS[::-1]], ids=["extender first", "gates first"]
)
def test_a_pod_waits_for_the_card_of_one_that_came_by_the_other_door(
    stage: Stage, first: Door, second: Door
) -> None:
    stage.node("node-a", 1)
    stage.pod("first", gpumem=1000, policy="mutex", annotations=by(first))
    stage.placed("first")
    stage.pod("second", gpumem=1000, policy="mutex", annotations=by(second))
    stage.pending("second", Reason.EXCLUSIVE)

    stage.delete("first")

    stage.placed("second", within=5)
    assert came_by(stage.get("second")) is second


def test_of_many_pods_by_either_door_none_gets_the_card_of_another(stage: Stage) -> None:
    random = Random(6)
    stage.node("node-a", 4, cpu="200")
    fields = [
        {
            "gpumem": random.choice((1000, 4000, 8000)),
            "policy": random.choice((None, "binpack", "mutex")),
            "annotations": by(DOORS[number % 2]),
        }
        for number in range(PODS)
    ]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: stage.pod(f"p{n:02}", **fields[n]), range(PODS)))

    stage.cp.wait("no Pod to wait that would fit", lambda: not stage.fitting(), 60)
    assert stage.legal() == []
    stage.cp.wait("ledger and cluster to agree", lambda: agree(stage), 20)
    bound = [pod for pod in stage.pods().values() if "nodeName" in pod["spec"]]
    assert {came_by(pod) for pod in bound} == {*DOORS}
    for name in [pod["metadata"]["name"] for pod in bound][::2]:
        stage.cp.request("DELETE", stage.path(name))
    stage.cp.wait("no Pod to wait that would fit now", lambda: not stage.fitting(), 60)
    assert stage.legal() == []


def test_what_the_gates_can_not_judge_goes_by_the_extender_and_a_gang_by_the_gates(
    stage: Stage,
) -> None:
    stage.node("node-a", 4)
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    away = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    stage.pod("apart", gpumem=1000, spec={"affinity": {"podAntiAffinity": away}})
    for name in ("a", "b"):
        stage.pod(name, gpumem=1000, annotations={names.GANG: "g", names.GANG_SIZE: "2"})

    found = {name: came_by(stage.get(name)) for name in stage.pods() if stage.placed_at(name)}

    assert found == {"apart": Door.EXTENDER, "a": Door.GATES, "b": Door.GATES}
