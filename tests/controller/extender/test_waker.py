"""Waiting Pods are asked for again when room grew: once a second at most, and not in vain."""

import asyncio
from typing import Any

import pytest

import build
from cardwise.names import WAKE
from controllers import UNIX, World, background, passing
from fakes.cluster import refused, unanswered

Json = dict[str, Any]
FULL = build.allocation("GPU-n1-a", mib=15000)
BIG = build.pod("big", gpumem=15000)


async def crowded(*more: Json) -> World:
    """n1 with one card that a tenant fills; Nodes n1 and n2."""
    return await World(
        build.gpunode("n1", 1),
        build.node_object("n1"),
        build.node_object("n2"),
        build.pod("t", node="n1", allocated=FULL),
        *more,
    ).load()


def refuse(world: World) -> None:
    assert world.filter(BIG, "n1")["NodeNames"] == []


def leave(world: World) -> None:
    world.cluster.remove("Pod", "t", "default")
    world.deliver()


def come_back(world: World, name: str) -> None:
    world.mirror.see_pod(build.pod(name, node="n1", allocated=FULL))


def wakes(world: World) -> int:
    return world.cluster.called("annotate_node")


async def test_a_refused_pod_is_woken_when_its_card_gets_free() -> None:
    world = await crowded()
    refuse(world)

    async with background(world.controller.waker.run()):
        await passing(60.0)
        assert wakes(world) == 0
        leave(world)
        await passing(0.01)

    assert [call for call in world.cluster.calls if call[0] == "annotate_node"] == [
        ("annotate_node", "n1", WAKE)
    ]
    value = world.cluster.get("Node", "n1")["metadata"]["annotations"][WAKE]
    assert float(value) == pytest.approx(UNIX + 60, abs=0.1)


async def test_a_new_controller_wakes_once_for_who_waited_before() -> None:
    world = await crowded()

    async with background(world.controller.waker.run()):
        world.controller.waker.begin()
        await passing(10.0)

    assert wakes(world) == 1


async def test_nobody_is_woken_where_nobody_waits() -> None:
    world = await crowded()

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(5.0)

    assert wakes(world) == 0


async def test_growth_before_the_refusal_is_no_news() -> None:
    world = await crowded()
    leave(world)
    come_back(world, "s")

    async with background(world.controller.waker.run()):
        refuse(world)
        await passing(5.0)

    assert wakes(world) == 0


async def test_one_wake_answers_one_refusal_until_somebody_is_refused_again() -> None:
    world = await crowded()
    refuse(world)

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(5.0)
        for n in range(3):
            come_back(world, f"s{n}")
            world.mirror.see_pod(build.pod(f"s{n}", node="n1", allocated=FULL), deleted=True)
        await passing(5.0)
        assert wakes(world) == 1
        come_back(world, "u")
        refuse(world)
        world.mirror.see_pod(build.pod("u", node="n1", allocated=FULL), deleted=True)
        await passing(5.0)

    assert wakes(world) == 2


async def test_at_most_once_a_second() -> None:
    world = await crowded()

    async with background(world.controller.waker.run()):
        for n in range(50):
            come_back(world, f"s{n}")
            refuse(world)
            world.mirror.see_pod(build.pod(f"s{n}", node="n1", allocated=FULL), deleted=True)
            if n == 0:
                leave(world)
            await passing(0.1)
        await passing(5.0)

    assert 5 <= wakes(world) <= 6


async def test_a_pod_refused_while_the_write_is_under_way_counts_for_the_next() -> None:
    world = await crowded()
    refuse(world)
    world.cluster.slow("annotate_node", 0.5)

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(0.1)
        come_back(world, "s")
        refuse(world)
        world.mirror.see_pod(build.pod("s", node="n1", allocated=FULL), deleted=True)
        await passing(5.0)

    assert wakes(world) == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refused(500), id="refused"),
        pytest.param(unanswered(), id="no answer"),
        pytest.param(refused(403), id="forbidden"),
    ],
)
async def test_a_failed_wake_is_tried_again(fault: Any) -> None:
    world = await crowded()
    refuse(world)
    world.cluster.fail("annotate_node", fault, fault)

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(10.0)

    assert wakes(world) == 3


async def test_a_node_that_is_gone_is_skipped_for_the_next() -> None:
    world = await crowded()
    refuse(world)
    world.cluster.remove("Node", "n1")
    world.cluster.changes.clear()  # which the watch has not shown yet

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(5.0)

    assert [call[1] for call in world.cluster.calls if call[0] == "annotate_node"] == ["n1", "n2"]


async def test_without_a_node_nobody_need_be_woken() -> None:
    tenant = build.pod("t", node="n1", allocated=FULL)
    world = await World(build.gpunode("n1", 1), tenant).load()
    refuse(world)

    async with background(world.controller.waker.run()):
        leave(world)
        await passing(5.0)

    assert wakes(world) == 0


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(build.gpunode("n1", 1, reported_at="later"), 0, id="a heartbeat"),
        pytest.param(build.node_object("n1", annotations={"a": "b"}), 0, id="a Node's change"),
        pytest.param(build.gpunode("n1", 1, cordoned=["GPU-n1-a"]), 0, id="a card closed"),
        pytest.param(build.gpunode("n2", 1), 1, id="a new GPUNode"),
        pytest.param(build.gpunode("n1", 2), 1, id="a new card"),
        pytest.param(build.gpunode("n1", 1, memory=30000), 1, id="a card that grew"),
        pytest.param(build.quota(gpumem=90000), 1, id="a quota raised"),
        pytest.param(build.quota(gpumem=10), 0, id="a quota lowered"),
    ],
)
async def test_what_wakes(document: Json, want: int) -> None:
    world = await crowded(build.quota(gpumem=50000))
    refuse(world)

    async with background(world.controller.waker.run()):
        world.cluster.put(document)
        world.deliver()
        await passing(5.0)

    assert wakes(world) == want


async def test_a_hold_given_up_wakes_who_waits_for_its_card() -> None:
    world = await World(build.gpunode("n1", 1), build.node_object("n1")).load()
    holder = build.pod("holder", gpumem=15000)
    world.chosen(holder, "n1")
    refuse(world)

    async with background(world.controller.waker.run()):
        await passing(1.0)
        assert wakes(world) == 0
        world.chosen(build.pod("holder", gpumem=15000), "n1")  # the same cards again
        await passing(5.0)
        assert wakes(world) == 0
        world.filter(build.pod("holder", gpus=2), "n1")  # now it fits no more
        await passing(5.0)

    assert wakes(world) == 1


async def test_a_refused_binding_wakes_who_waits_for_its_card() -> None:
    world = await World(build.gpunode("n1", 1), build.node_object("n1")).load()
    holder = build.pod("holder", gpumem=15000)
    world.chosen(holder, "n1")
    refuse(world)

    async with background(world.controller.waker.run()):
        assert await world.bind(holder) == "the Pod is gone"
        await passing(5.0)

    assert wakes(world) == 1


async def test_the_ledger_has_changed_by_the_time_of_the_write() -> None:
    world = await crowded()
    refuse(world)
    seen: list[Json] = []
    real = world.cluster.annotate_node

    async def annotate_node(name: str, key: str, value: str) -> None:
        seen.append(world.used())
        await real(name, key, value)

    world.cluster.annotate_node = annotate_node  # type: ignore[method-assign]
    async with background(world.controller.waker.run()):
        leave(world)
        await passing(1.0)

    assert seen == [{}]


async def test_it_waits_without_using_the_processor() -> None:
    world = await crowded()
    async with background(world.controller.waker.run()) as [task]:
        await passing(3600.0)
        assert not task.done()
    assert asyncio.get_running_loop().time() == pytest.approx(3600.0)
