"""Why a Pod waits is told as it is once there is time to write it, or not at all."""

from typing import Any

import pytest

import build
from cardwise.names import Reason
from controllers import World

Json = dict[str, Any]
BIG = build.pod("big", gpumem=15000)


async def refused() -> World:
    """n1 with one card, half of it taken: a Pod that asks for all of it was refused."""
    world = await World(
        build.gpunode("n1", 1),
        build.node_object("n1"),
        build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", mib=8000)),
    ).load()
    assert world.filter(BIG, "n1")["NodeNames"] == []
    return world


# Red where the note is made when the Pod is refused.
async def test_a_refusal_is_told_with_who_holds_the_card_by_then() -> None:
    world = await refused()
    world.cluster.put(
        build.pod("late", node="n1", allocated=build.allocation("GPU-n1-a", mib=7000))
    )
    world.deliver()

    [(reason, note)] = await world.events()

    assert reason == Reason.MEMORY
    assert "15000 MiB" in note
    assert "default/late" in note


# Red where each of many different sets of nodes is kept until its Pod's event is written.
async def test_where_too_many_sets_of_nodes_are_asked_about_it_is_told_as_it_was() -> None:
    world = await refused()
    for number in range(20):
        world.filter(build.pod(f"p{number:02}", gpumem=15000), "n1", f"other-{number}")
    world.cluster.put(
        build.pod("late", node="n1", allocated=build.allocation("GPU-n1-a", mib=7000))
    )
    world.deliver()

    notes = [note for _, note in await world.events()]

    assert len(notes) == 21
    assert sum("default/late" in note for note in notes) == 8


@pytest.mark.parametrize(
    ("change", "want"),
    [
        # Red where nothing is posted in place of a reason that is none any more: nobody would be
        # told, as kube-scheduler asks again only when room grew.
        pytest.param(
            build.gpunode("n1", 1, cordoned=["GPU-n1-a"]),
            [Reason.CARD_CORDONED],
            id="it waits for something else by now",
        ),
        pytest.param(build.gpunode("n1", 2), [], id="it fits by now"),
        pytest.param(build.gpunode("n1", 1, memory=15000), [Reason.MEMORY], id="it still waits"),
    ],
)
async def test_a_refusal_is_told_for_the_reason_there_is_by_then(
    change: Json, want: list[str]
) -> None:
    world = await refused()
    world.cluster.put(change)
    world.deliver()

    assert await world.reasons() == want


async def test_a_pod_that_holds_its_card_by_then_is_not_told_why_it_waited() -> None:
    world = await refused()
    world.cluster.remove("Pod", "t", "default")
    world.deliver()
    world.chosen(BIG, "n1")

    assert await world.reasons() == []
