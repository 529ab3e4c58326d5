"""What Cardwise places runs on a real node, and sees the cards that its annotation says."""

from collections.abc import Iterator

import pytest

import build
from cardwise import names
from cardwise.names import Door, Reason
from node.ground import why_not
from node.placing import PlacingStage
from node.pods import SEE
from stage import uuids


@pytest.fixture(scope="module", params=[Door.EXTENDER, Door.GATES])
def placing(request: pytest.FixtureRequest) -> Iterator[PlacingStage]:
    """One real node with all of Cardwise, for all tests of a door."""
    if reason := why_not():
        pytest.skip(f"NO REAL NODE ON THIS MACHINE: {reason}")
    with PlacingStage.on_a_node(request.param) as stage:
        yield stage


@pytest.fixture
def stage(placing: PlacingStage) -> Iterator[PlacingStage]:
    """The node without Pods; what a test leaves there must be legal."""
    placing.clear()
    yield placing
    assert placing.legal() == []


def test_a_container_prints_the_card_that_the_policies_chose(stage: PlacingStage) -> None:
    """Red: a device plugin that answers kubelet's own choice of ids."""
    stage.pod("busy", gpumem=1000, policy="spread")
    assert stage.placed("busy") == 0
    stage.pod("chosen", gpumem=2000, gpucores=30, policy="mutex,binpack")

    seen = stage.saw("chosen")

    assert stage.placed("chosen") == 1
    assert [seen["NVIDIA_VISIBLE_DEVICES"]] == uuids(stage.get("chosen"))
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"
    assert seen["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert stage.saw("busy")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    stage.phase("chosen", names.BIND_PHASE_SUCCESS)


def test_an_exclusive_pod_waits_for_a_card_and_starts_when_one_is_free(stage: PlacingStage) -> None:
    for index in range(4):
        stage.pod(f"p{index}", gpumem=1000, policy="mutex")
    for index in range(4):
        stage.saw(f"p{index}")
    stage.pod("late", gpumem=1000, policy="mutex,binpack")
    stage.pending("late", Reason.EXCLUSIVE)
    freed = uuids(stage.get("p2"))

    stage.delete("p2")

    assert [stage.saw("late")["NVIDIA_VISIBLE_DEVICES"]] == freed


def test_each_container_sees_its_own_part(stage: PlacingStage) -> None:
    """An init container, a sidecar, and two regular ones, the second without cards."""
    first = build.container("first", gpu=1, gpumem=3000) | {"command": ["sh", "-c", SEE]}
    beside = build.container("beside", gpu=1, gpumem=1500) | {"restartPolicy": "Always"}
    regular = [build.container("app", gpu=2, gpumem=500), build.container("plain")]

    stage.pod("several", init=[first, beside], containers=regular)

    seen = {name: stage.saw("several", name) for name in ("first", "beside", "app")}
    text = stage.get("several")["metadata"]["annotations"][names.ALLOCATED]
    *parts, plain, end = text.split(";")
    assert (plain, end) == ("", "")
    for (name, told), part in zip(seen.items(), parts, strict=True):
        cards = [card.split(",") for card in part.split(":") if card]
        assert told["NVIDIA_VISIBLE_DEVICES"].split(",") == [uuid for uuid, *_ in cards], name
        for index, (_, _, mib, _) in enumerate(cards):
            assert told[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] == f"{mib}m", name


def test_twenty_at_once_each_see_the_card_of_their_annotation(stage: PlacingStage) -> None:
    """Red: a device plugin that takes the oldest Pod for the one that kubelet asks for."""
    for number in range(20):
        stage.pod(f"p{number}", gpumem=1000 + number)

    for number in range(20):
        seen = stage.saw(f"p{number}", within=120)
        assert [seen["NVIDIA_VISIBLE_DEVICES"]] == uuids(stage.get(f"p{number}")), number
        assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{1000 + number}m"
