"""Who is on cards past us hears of it, once, and again when it is another story."""

from typing import Any

import pytest

import build
from cardwise.names import EventReason
from controllers import World, passing

Json = dict[str, Any]


def bound(name: str, uuid: str, mib: int = 1000, **more: Any) -> Json:
    text = build.allocation(uuid, mib=mib)
    return build.pod(name, **{"gpumem": mib, "node": "n1", "allocated": text, **more})


async def told(world: World, reason: EventReason) -> list[str]:
    """Notes of the events of a reason, as they stand now; a minute and more passes."""
    async with world.running():
        await passing(65.0)
    return [event["note"] for event in world.cluster.events() if event["reason"] == reason]


# Red: `Strangers._compare` returns at once; `listed` does not look at what is booked.
@pytest.mark.parametrize("how", ["by an event", "by a list"])
async def test_a_pod_whose_card_its_node_does_not_have_is_told_once(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    stray, fine = bound("stray", "GPU-z"), bound("fine", "GPU-n1-a")
    if how == "by a list":
        world = await World(build.gpunode("n1", 2), stray, fine).load()
    else:
        world = await World(build.gpunode("n1", 2)).load()
        for pod in (stray, fine, stray, stray):
            world.cluster.put(pod)
            world.deliver()

    [note] = await told(world, EventReason.ALLOCATION_MISMATCH)

    assert world.cluster.events()[0]["regarding"]["name"] == "stray"
    assert note.startswith(
        "The Pod's allocation names GPU-z, and node n1 reports no such card; it has GPU-n1-a,"
        " GPU-n1-b. "
    )
    assert "delete the Pod" in note
    assert caplog.text.count("reports no such card") == 1


@pytest.mark.parametrize(
    ("gpunode", "pod"),
    [
        pytest.param(build.gpunode("n2"), bound("p", "GPU-z"), id="a node of nobody's"),
        pytest.param(build.gpunode("n1", 0), bound("p", "GPU-z"), id="no card is reported"),
        pytest.param(build.gpunode("n1"), bound("p", "GPU-z", node=None), id="it is not bound"),
        pytest.param(build.gpunode("n1"), bound("p", "GPU-z", phase="Failed"), id="it has ended"),
    ],
)
async def test_no_pod_is_told_of_a_card_that_nobody_can_miss(gpunode: Json, pod: Json) -> None:
    world = await World(gpunode).load()
    world.cluster.put(pod)
    world.deliver()

    assert await told(world, EventReason.ALLOCATION_MISMATCH) == []


async def test_a_card_that_comes_back_and_goes_again_is_told_again() -> None:
    world = await World(build.gpunode("n1", 1), bound("p", "GPU-n1-b")).load()
    strangers = world.controller.strangers
    assert strangers._astray == {"uid-default-p"}

    world.cluster.put(build.gpunode("n1", 2))
    world.deliver()
    await world.mirror.reconcile(world.cluster)
    assert strangers._astray == set()

    world.cluster.put(build.gpunode("n1", 1))
    world.deliver()
    await world.mirror.reconcile(world.cluster)
    assert strangers._astray == {"uid-default-p"}

    world.cluster.remove("Pod", "p", "default")
    world.deliver()
    assert strangers._astray == set()


# Red: `Strangers._look` tells of a card once for all, or each time.
async def test_a_card_given_twice_is_told_again_when_the_numbers_change_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, third = (bound(name, "GPU-n1-a", 9000) for name in ("a", "b", "c"))
    world = await World(build.gpunode("n1", 1), first, second).load()
    [before] = await told(world, EventReason.CARD_OVERBOOKED)
    assert "2/10 slots, 18000/15360 MiB" in before

    world.cluster.put(third)
    world.deliver()
    world.cluster.put(bound("d", "GPU-n1-a", 9000))  # within the minute
    world.deliver()
    now = await told(world, EventReason.CARD_OVERBOOKED)
    assert ["3/10 slots, 27000/15360 MiB" in note for note in now] == [False, True]

    world.deliver()
    await world.mirror.reconcile(world.cluster)
    now = await told(world, EventReason.CARD_OVERBOOKED)
    assert ["4/10 slots, 36000/15360 MiB" in note for note in now] == [False, False, True]
    await world.mirror.reconcile(world.cluster)
    assert await told(world, EventReason.CARD_OVERBOOKED) == now
    assert caplog.text.count("is given out beyond its size") == 3


# Red: `listed` keeps what it was told of.
async def test_of_a_node_that_is_gone_no_card_is_kept() -> None:
    world = await World(build.gpunode("n1"), bound("p", "GPU-n1-a", 99_999)).load()
    assert list(world.controller.strangers._overbooked) == [("n1", "GPU-n1-a")]
    world.cluster.remove("GPUNode", "n1")
    world.cluster.remove("Pod", "p", "default")

    await world.mirror.reconcile(world.cluster)

    assert world.controller.strangers._overbooked == {}
