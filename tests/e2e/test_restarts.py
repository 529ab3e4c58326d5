"""The annotation on the bound Pod is the truth: whoever reads it anew counts the same tenants."""

import time

import pytest

import build
from cardwise import names
from cardwise.names import Reason
from stage import GPUNODES, Stage

pytestmark = pytest.mark.both_doors
ENDINGS = [
    pytest.param(False, id="asked to end"),
    pytest.param(True, id="killed"),
]


def end(stage: Stage, *, kill: bool) -> None:
    if kill:
        stage.controller.kill()
    else:
        assert stage.controller.terminate(timeout=20) == 0


def bookings(stage: Stage) -> dict[str, str]:
    """The allocation of every bound Pod of this test."""
    return {
        name: pod["metadata"]["annotations"][names.ALLOCATED]
        for name, pod in stage.pods().items()
        if "nodeName" in pod["spec"]
    }


def test_hamis_tenants_are_counted_from_the_first_decision(stage: Stage) -> None:
    end(stage, kill=False)
    stage.bare_node("node-a", gpus=40)
    stage.report(build.gpunode("node-a", 4, prefix="GPU-"))
    # HAMi's codec leaves an empty segment at the end, and writes a word more a card.
    stage.tenant("t0", "GPU-a,NVIDIA,1000,0:;;")
    stage.tenant("t1", "GPU-b,NVIDIA,2000,30,0:GPU-c,NVIDIA,2000,30,0:;", gpus=2)

    stage.launch_controller()
    # A new Pod is asked about at once: so that there is a question in every moment of the start,
    # and in the first ones after it.
    asked, ready_since = 0, float("inf")
    while time.monotonic() < ready_since + 0.5:
        stage.pod(f"p{asked}", gpumem=1000, policy="mutex")
        asked += 1
        if ready_since == float("inf") and stage.is_ready():
            ready_since = time.monotonic()
        time.sleep(0.02)

    stage.cp.wait("one to be placed", lambda: len(bookings(stage)) == 3, 20)
    (placed,) = bookings(stage).keys() - {"t0", "t1"}
    assert stage.placed(placed) == 3
    waits = f"p{asked - 1}" if placed != f"p{asked - 1}" else "p0"
    stage.pending(waits, Reason.EXCLUSIVE, nodes=1)
    refused = [line for line in lines(stage) if "fits on none" in line]
    assert refused
    assert [line for line in refused if not line.endswith(Reason.EXCLUSIVE)] == []


def lines(stage: Stage) -> list[str]:
    """What the controller logged about this test's Pods."""
    log = stage.controller.log.read_text().splitlines()
    return [line for line in log if f"pod={stage.namespace}/" in line]


@pytest.mark.parametrize("kill", ENDINGS)
def test_a_controller_that_comes_back_counts_who_is_there(stage: Stage, kill: bool) -> None:
    stage.node("node-a", 3)
    for number in range(3):
        stage.pod(f"t{number}", gpumem=1000, policy="mutex")
        stage.placed(f"t{number}")
    stage.pod("before", gpumem=1000, policy="mutex")
    stage.pending("before", Reason.EXCLUSIVE)
    booked = bookings(stage)

    end(stage, kill=kill)
    stage.delete("t1")  # while nobody looks
    # For GPU 0 alone: kube-scheduler may ask for either Pod first, and only one may want GPU 1.
    gpu_0 = {names.USE_UUID: "GPU-node-a-a"}
    stage.pod("during", gpumem=15000, policy="binpack", annotations=gpu_0)
    stage.start_controller()

    assert stage.placed("before") == 1
    assert stage.placement("during") is None
    stage.pending("during", Reason.MEMORY)
    kept = bookings(stage)
    assert {name: kept[name] for name in ("t0", "t2")} == {n: booked[n] for n in ("t0", "t2")}
    stage.delete("t0")
    assert stage.placed("during", within=5) == 0


@pytest.mark.parametrize("kill", ENDINGS)
def test_a_controller_that_goes_in_a_burst_loses_nothing_and_books_nothing_twice(
    stage: Stage, kill: bool
) -> None:
    stage.node("node-a", 4)
    for number in range(40):
        stage.pod(f"p{number}", gpumem=2000)
        if number == 15:
            end(stage, kill=kill)
    before = bookings(stage)

    stage.start_controller()

    # 15360 MiB hold seven of 2000: 28 on four cards.
    stage.cp.wait("the cards to be full", lambda: len(bookings(stage)) == 28, 60)
    assert stage.legal() == []
    after = bookings(stage)
    assert {name: after[name] for name in before} == before
    assert stage.fitting() == []


def test_room_that_grew_while_the_controller_was_away_is_told_of(stage: Stage) -> None:
    stage.node("node-a", 1)
    cards = {"spec": {"cordonedCards": ["GPU-node-a-a"]}}
    stage.patch(f"{GPUNODES}/node-a", cards)
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.CARD_CORDONED)
    time.sleep(3)  # kube-scheduler will not ask again by itself

    end(stage, kill=True)
    stage.patch(f"{GPUNODES}/node-a", {"spec": {"cordonedCards": []}})
    stage.start_controller()

    assert stage.placed("p", within=10) == 0


def test_the_tenants_of_a_gpunode_that_was_deleted_and_made_again_stay_counted(
    stage: Stage,
) -> None:
    report = build.gpunode("node-a", 2, prefix="GPU-")
    stage.bare_node("node-a", gpus=20)
    stage.report(report)
    stage.pod("t0", gpumem=1000, policy="mutex")
    stage.pod("t1", gpumem=1000, policy="mutex")
    stage.placed("t0")
    card = stage.placed("t1")

    stage.cp.kubectl("delete", "gpunode", "node-a")
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.pending("p", Reason.NODE_NOT_REPORTED)
    stage.report(report)

    stage.pending("p", Reason.EXCLUSIVE)
    stage.settled()
    stage.delete("t1")
    assert stage.placed("p", within=5) == card


def test_the_tenants_of_a_gpunode_whose_cards_changed_places_stay_counted(stage: Stage) -> None:
    stage.node("node-a", [build.card(0), build.card(1)])
    stage.pod("t", gpumem=1000, policy="mutex")
    stage.placed("t")  # on GPU-a

    stage.report(
        build.gpunode("node-a", [build.card(0, uuid="GPU-b"), build.card(1, uuid="GPU-a")])
    )
    stage.pod("p", gpumem=1000, policy="mutex")

    stage.placed("p")
    assert bookings(stage)["p"] == "GPU-b,NVIDIA,1000,0:;"


def test_a_card_that_is_reported_no_more_takes_no_pod(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.report(build.gpunode("node-a", 1))
    stage.cp.wait("the controller to know", lambda: len(stage.usage("node-a")) == 1, 20)
    stage.pod("t", gpumem=1000, policy="mutex")
    stage.pod("p", gpumem=1000, policy="mutex")

    stage.cp.wait("one to be placed", lambda: len(bookings(stage)) == 1, 20)
    (waits,) = {"t", "p"} - bookings(stage).keys()
    assert "1/1" in stage.event(waits, Reason.EXCLUSIVE)
