"""Many Pods at once: whatever the order in which kube-scheduler asks, the result is legal."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from bookings import refused
from cardwise import names
from stage import Stage

pytestmark = pytest.mark.both_doors

SIZES = (500, 1000, 2000, 4000, 8000, 15000)
CHAINS = (None, None, "binpack", "spread", "mutex", "mutex,binpack", "binpack,numa")
CARD_MIB = 15360


def mixed(random: Random) -> dict[str, Any]:
    """One Pod's request; on average a fifth of a card."""
    if random.random() < 0.1:
        return {"gpus": 1, "gpucores": 100, "percent": random.choice((50, 100))}
    return {
        "gpus": random.choice((1, 1, 1, 2)),
        "gpumem": random.choice(SIZES),
        "gpucores": random.choice((None, None, 10, 30, 50)),
        "policy": random.choice(CHAINS),
        "exclusive": random.choice((None,) * 9 + ("true",)),
    }


def create_at_once(stage: Stage, pods: dict[str, dict[str, Any]]) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda item: stage.pod(item[0], **item[1]), pods.items()))


def told(stage: Stage) -> tuple[dict[str, str], list[str]]:
    """The bound Pods with their allocation, and those that were answered that they must wait."""
    bound = {
        name: pod["metadata"]["annotations"][names.ALLOCATED]
        for name, pod in stage.pods().items()
        if "nodeName" in pod["spec"]
    }
    return bound, refused(stage)


def test_a_hundred_pods_for_four_cards_leave_none_waiting_that_would_fit(stage: Stage) -> None:
    random = Random(20_261_129)
    requests = {f"p{number:03}": mixed(random) for number in range(100)}
    asked = sum(each.get("gpumem", CARD_MIB) * each["gpus"] for each in requests.values())
    assert asked > 2 * 4 * CARD_MIB
    stage.node("node-a", 4, cpu="200")

    create_at_once(stage, requests)

    def all_answered() -> bool:
        return sum(map(len, told(stage))) == 100

    stage.cp.wait("every Pod to be bound or refused", all_answered, 60)
    stage.cp.wait("no Pod to wait that would fit", lambda: not stage.fitting(), 30)
    assert stage.legal() == []
    before, waiting = told(stage)
    assert len(before) >= 4
    assert waiting

    leaving = sorted(before)[::3]
    for name in leaving:
        stage.cp.request("DELETE", stage.path(name))

    stage.cp.wait("them to go", lambda: not {*leaving} & {*stage.pods()}, 30)
    stage.cp.wait("no Pod to wait that would fit now", lambda: not stage.fitting(), 30)
    assert stage.legal() == []
    after, _ = told(stage)
    assert len(after) > len(before) - len(leaving)
    stayed = before.keys() - {*leaving}
    assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}


def test_pods_over_several_nodes_fill_every_card(stage: Stage) -> None:
    for name in ("node-a", "node-b", "node-c"):
        stage.node(name, 2)

    create_at_once(stage, {f"p{n}": {"gpumem": 7680} for n in range(13)})

    stage.cp.wait("twelve to be bound", lambda: len(told(stage)[0]) == 12, 30)
    stage.cp.wait("one to be refused", lambda: len(told(stage)[1]) == 1, 30)
    assert stage.legal() == []


@pytest.mark.parametrize("turn", range(5))
def test_of_two_mutex_pods_for_one_free_card_exactly_one_is_placed(stage: Stage, turn: int) -> None:
    stage.node("node-a", 1)

    create_at_once(stage, {f"p{n}": {"gpumem": 1000, "policy": "mutex"} for n in range(2)})

    stage.cp.wait("both to be answered", lambda: [*map(len, told(stage))] == [1, 1], 20)
    (waiting,) = told(stage)[1]
    stage.pending(waiting, names.Reason.EXCLUSIVE)
    stage.stays(waiting, 1)
