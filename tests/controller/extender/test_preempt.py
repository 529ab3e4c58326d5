"""/preempt keeps the nodes where the Pod would fit once the victims' bookings are gone."""

from typing import Any

import pytest

import build
from cardwise.names import SCHEDULER_NAME
from cardwise.wire import extender
from controllers import World

Json = dict[str, Any]


def tenant(name: str, node: str, card: str, mib: int = 12000, **more: Any) -> Json:
    return build.pod(name, node=node, allocated=build.allocation(card, mib=mib), **more)


async def full() -> World:
    """n1 with tenants a and b on its one card, n2 with one tenant on each of its two cards."""
    return await World(
        build.gpunode("n1", 1),
        build.gpunode("n2", 2),
        tenant("a", "n1", "GPU-n1-a", 6000),
        tenant("b", "n1", "GPU-n1-a", 6000),
        tenant("c", "n2", "GPU-n2-a"),
        tenant("d", "n2", "GPU-n2-b"),
        build.quota("small", gpumem=12000),
        tenant("e", "n2", "GPU-n2-a", 1000, namespace="small"),
    ).load()


def uids(*names: str, namespace: str = "default") -> list[str]:
    return [f"uid-{namespace}-{name}" for name in names]


@pytest.mark.parametrize(
    ("pod", "victims", "want"),
    [
        pytest.param(
            build.pod(gpumem=8000),
            {"n1": uids("a"), "n2": uids("c")},
            ["n1", "n2"],
            id="both nodes where one victim is enough",
        ),
        pytest.param(
            build.pod(gpumem=12000),
            {"n1": uids("a"), "n2": uids("c")},
            ["n2"],
            id="not where the victims leave too little",
        ),
        pytest.param(
            build.pod(gpus=2, gpumem=12000),
            {"n1": uids("a", "b"), "n2": uids("c", "d")},
            ["n2"],
            id="not where there are too few cards whoever leaves",
        ),
        pytest.param(
            build.pod(gpumem=12000),
            {"n1": uids("cpu-only"), "n2": []},
            [],
            id="not where the victims hold no card",
        ),
        pytest.param(
            build.pod(gpumem=1000),
            {"n1": [], "nobody": uids("a")},
            ["n1"],
            id="a node that nobody knows has no cards",
        ),
        pytest.param(
            build.pod(gpumem=12000, namespace="small"),
            {"n2": uids("c") + uids("e", namespace="small")},
            ["n2"],
            id="the victims' quota is free, too",
        ),
        pytest.param(
            build.pod(gpumem=12000, namespace="small"),
            {"n2": uids("c")},
            [],
            id="not where the quota is used by Pods that stay",
        ),
        pytest.param(
            build.pod(gpus=None),
            {"n1": uids("a"), "nobody": []},
            ["n1", "nobody"],
            id="a Pod without a GPU request is none of our business",
        ),
        pytest.param(
            build.pod(gpumem="16Gi"),
            {"n1": uids("a", "b")},
            [],
            id="an invalid request fits nowhere",
        ),
    ],
)
async def test_the_nodes_that_are_kept(
    pod: Json, victims: dict[str, list[str]], want: list[str]
) -> None:
    world = await full()

    kept = world.preempt(pod, victims)

    assert list(kept) == want
    for node in want:
        assert [each["UID"] for each in kept[node]["Pods"]] == victims[node]


async def test_nothing_is_held_counted_or_written() -> None:
    world = await full()
    before, calls = world.used("n2"), list(world.cluster.calls)
    pod = build.pod(gpumem=12000)

    world.preempt(pod, {"n2": uids("c")})

    assert world.used("n2") == before
    assert world.entry(pod) is None
    assert world.cluster.calls == calls


async def test_what_the_pod_holds_itself_does_not_stand_in_its_way() -> None:
    world = await full()
    pod = build.pod(gpumem=3000)
    world.chosen(pod, "n1")

    assert list(world.preempt(pod, {"n1": []})) == ["n1"]


async def test_victims_are_answered_unchanged_when_they_come_as_whole_pods() -> None:
    world = await full()
    body = {
        "Pod": build.pod(gpumem=8000),
        "NodeNameToVictims": {
            "n1": {"Pods": [build.pod("a", scheduler=SCHEDULER_NAME)], "NumPDBViolations": 1}
        },
    }

    answer = world.controller.scheduler.preempt(extender.preempt_call(body))

    assert answer == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-default-a"}], "NumPDBViolations": 1}}
    }


async def test_no_node_is_kept_before_the_ledger_is_loaded() -> None:
    world = World(build.gpunode())

    assert world.preempt(build.pod(), {"n1": []}) == {}
