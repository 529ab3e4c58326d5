"""Cordons that close no card: a condition on the GPUNode, and an event on the Node, once."""

from typing import Any

import pytest

import build
from cardwise.names import NODE_CORDON
from controllers import World, passing

Json = dict[str, Any]
WORD = "CordonNamesNoCard"


def notes(world: World) -> list[str]:
    """What was told of Nodes."""
    return [event["note"] for event in world.cluster.events() if event["reason"] == WORD]


def condition(world: World) -> list[str]:
    """What stands on the GPUNode, by its last write."""
    status = world.cluster.get("GPUNode", "n1")["status"]
    return [each["message"] for each in status.get("conditions", []) if each["type"] == WORD]


# Red: `Cordons` looks at the spec alone, or is no follower, or does not run (`Controller.tasks`).
@pytest.mark.parametrize(
    ("gpunode", "node", "said"),
    [
        pytest.param(
            build.gpunode("n1", 2, cordoned=["GPU-n1-z"]),
            build.node_object("n1", gpus=20),
            'spec.cordonedCards of its GPUNode names "GPU-n1-z", which the node does not report',
            id="a UUID in the spec that the node does not have",
        ),
        pytest.param(
            build.gpunode("n1", 2),
            build.node_object("n1", gpus=20, cordon="GPU-n1-a, gpu-n1-b"),
            f'annotation {NODE_CORDON} of the Node names "gpu-n1-b", which the node does not',
            id="one in the annotation",
        ),
        pytest.param(
            build.gpunode("n1", 2),
            build.node_object("n1", gpus=20, annotations={"hami.io/card-cordon": "GPU-n1-a"}),
            f"annotation hami.io/card-cordon of the Node closes no card: write {NODE_CORDON}",
            id="an annotation of another name",
        ),
    ],
)
async def test_a_cordon_that_closes_no_card_is_told_once_until_it_is_mended(
    gpunode: Json, node: Json, said: str
) -> None:
    world = await World(gpunode, node).load()

    async with world.running():
        await passing(60.0)
        [note] = notes(world)
        assert said in note
        assert condition(world) == [note]

        world.mirror.see_gpunode(build.gpunode("n1", 2, resource_version="90"))
        world.mirror.see_node(build.node_object("n1", gpus=20))
        await passing(60.0)

    assert len(notes(world)) == 1
    assert condition(world) == []


@pytest.mark.parametrize(
    ("gpunode", "node"),
    [
        pytest.param(
            build.gpunode("n1", 2, cordoned=["GPU-n1-a"]),
            build.node_object("n1", gpus=20, cordon="GPU-n1-b"),
            id="each names a card",
        ),
        pytest.param(
            build.gpunode("n1", 0, cordoned=["GPU-n1-a"]),
            build.node_object("n1", gpus=20),
            id="the agent reports no card yet",
        ),
    ],
)
async def test_a_cordon_that_closes_a_card_is_not_told(gpunode: Json, node: Json) -> None:
    world = await World(gpunode, node).load()

    assert world.controller.cordons.look() == []


async def test_a_gpunode_and_a_node_that_are_gone_are_not_told_of_any_more() -> None:
    named = build.node_object("n1", gpus=20, annotations={"hami.io/cordon": "GPU-n1-a"})
    world = await World(build.gpunode("n1", 2), named).load()
    assert len(world.controller.cordons.look()) == 1

    world.mirror.see_node(named, deleted=True)

    assert world.controller.cordons.look() == []
    assert world.controller.cordons.conditions("n1") == ()
