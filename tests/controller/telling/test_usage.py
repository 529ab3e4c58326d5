"""What is used of each GPUNode is written for people: slowly, and only what changed."""

from typing import Any

import pytest

import build
from controllers import World, background, passing, turns_while
from fakes.cluster import FakeCluster, refused, unanswered

Json = dict[str, Any]


async def fresh(*documents: Json, cluster: FakeCluster | None = None) -> World:
    """A world whose usage was never written by this process."""
    world = World(*documents, cluster=cluster)
    await world.controller.watchman.load()
    world.controller.duty.loaded = True
    return world


def written(world: World) -> list[str]:
    """The nodes that were written, in order."""
    return [call[1] for call in world.cluster.calls if call[0] == "apply_gpunode_status"]


async def test_usage_and_summary_are_written_beside_the_agents_part() -> None:
    tenant = build.pod("a", node="n1", allocated=build.allocation("GPU-n1-a", cores=30))
    world = await fresh(build.gpunode("n1", 2), tenant)

    await world.controller.usage.write_some()

    status = world.cluster.get("GPUNode", "n1")["status"]
    assert [card["uuid"] for card in status["cards"]] == ["GPU-n1-a", "GPU-n1-b"]
    assert status["usage"][0] == {
        "uuid": "GPU-n1-a",
        "slots": 1,
        "memoryMiB": 1000,
        "cores": 30,
        "tenants": ["default/a"],
    }
    assert status["summary"] == {
        "cards": 2,
        "healthy": 2,
        "model": "NVIDIA-Tesla T4",
        "slots": "1/20",
        "memory": "1000/30720",
    }
    assert world.cluster.calls[-1] == ("apply_gpunode_status", "n1", "cardwise-controller")


async def test_only_what_changed_is_written() -> None:
    world = await fresh(build.gpunode("n1"), build.gpunode("n2"))
    await world.controller.usage.write_some()
    assert written(world) == ["n1", "n2"]

    await world.controller.usage.write_some()
    world.mirror.see_gpunode(build.gpunode("n1", reported_at="later"))
    await world.controller.usage.write_some()
    assert written(world) == ["n1", "n2"]

    pod = build.pod(gpumem=1000)
    world.chosen(pod, "n2")
    world.mirror.see_pod(pod, deleted=True)
    await world.controller.usage.write_some()
    assert written(world) == ["n1", "n2"], "taken and given back in between"

    world.chosen(build.pod("q", gpumem=1000), "n2")
    await world.controller.usage.write_some()
    assert written(world) == ["n1", "n2", "n2"]


def tenant(name: str, node: str) -> Json:
    return build.pod(name, node=node, allocated=build.allocation(f"GPU-{node}-a"))


async def test_after_a_start_only_nodes_that_tell_something_else_are_written() -> None:
    # Red: `_digest` leaves out the usage, the summary, or the conditions; or `see_gpunode` keeps
    # what was there before the last change.
    world = await fresh(
        *(build.gpunode(f"n{n}", 2) for n in range(1, 10)), tenant("a", "n1"), tenant("b", "n2")
    )
    for _ in range(3):
        await world.controller.usage.write_some()
    stored = world.cluster
    stored.remove("Pod", "b", "default")
    for node, change in (
        ("n3", {"usage": [{"uuid": "GPU-n3-a", "slots": 1}]}),
        ("n4", {"summary": {"cards": 1}}),
        ("n5", {"conditions": [{"type": "ResourceOwnerConflict", "status": "True"}]}),
        ("n6", {"conditions": [{"type": "Ready", "status": "True"}]}),
    ):
        document = stored.get("GPUNode", node)
        stored.put({**document, "status": {**document["status"], **change}})
    stored.calls.clear()

    world = await fresh(cluster=stored)
    document = stored.get("GPUNode", "n7")
    changed = {**document, "status": {**document["status"], "usage": []}}
    world.mirror.see_gpunode(changed)
    for _ in range(3):
        await world.controller.usage.write_some()

    assert sorted(written(world)) == ["n2", "n3", "n4", "n5", "n7"]


async def test_a_node_that_an_unreadable_allocation_closes_says_so_until_it_is_mended() -> None:
    # Red: `Ledger._close` or `_reopen` without `touched`; `_conditions` without `unreadable`; or
    # `Unreadable` takes the time of now at each write.
    world = await fresh(build.gpunode("n1"), build.gpunode("n2"))
    usage, word = world.controller.usage, "NodeHasUnreadableAllocation"

    async def told() -> list[Json]:
        await usage.write_some()
        status = world.cluster.get("GPUNode", "n1")["status"]
        return [each for each in status.get("conditions", []) if each["type"] == word]

    assert await told() == []
    said = []
    for name in ("a", "b"):
        world.mirror.see_pod(build.pod(name, node="n1", allocated="nonsense"), deleted=False)
        said += await told()
        await passing(5.0)
    first, both = said
    assert first["status"] == both["status"] == "True"
    assert first["message"].startswith("Pod default/a: hami.io/vgpu-devices-allocated ")
    assert "(and 1 more likewise)" in both["message"]
    assert first["lastTransitionTime"] == both["lastTransitionTime"]

    for name in ("a", "b"):
        world.mirror.see_pod(build.pod(name, node="n1"), deleted=True)
    assert await told() == []


async def test_questions_are_answered_while_many_nodes_are_looked_at() -> None:
    # Red: `write_some` without a pause.
    world = await fresh(*(build.gpunode(f"n{number}") for number in range(100)))
    usage = world.controller.usage
    while any("usage" not in world.cluster.get("GPUNode", f"n{n}")["status"] for n in range(100)):
        await usage.write_some()
    usage.begin()
    for number in range(100):
        world.mirror.see_gpunode(world.cluster.get("GPUNode", f"n{number}"))
    before = len(written(world))

    assert await turns_while(usage.write_some()) >= 100
    assert len(written(world)) == before


async def test_five_nodes_a_second_the_longest_waiting_first_and_two_while_pods_come() -> None:
    # Red: as many in either round; or the node that changed last comes first.
    names = [f"n{number:02}" for number in range(16)]
    world = await fresh(*(build.gpunode(name, 1) for name in names))

    async with background(world.controller.usage.run()):
        await passing(1.5)
        assert written(world) == names[:2], "all of them are news"
        await passing(1.0)
        assert written(world) == names[:7]
        world.chosen(build.pod(gpumem=1000), "n00")
        await passing(1.0)
        assert written(world) == names[:9]
        await passing(10.0)

    assert written(world) == [*names, "n00"]


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(refused(500), ["n1", "n1"], id="refused: again"),
        pytest.param(unanswered(), ["n1", "n1"], id="no answer: again"),
        pytest.param(refused(404), ["n1"], id="no such GPUNode: not again"),
    ],
)
async def test_a_write_that_fails(fault: Any, want: list[str]) -> None:
    world = await fresh(build.gpunode("n1"))
    world.cluster.fail("apply_gpunode_status", fault)

    async with background(world.controller.usage.run()):
        await passing(10.0)

    assert written(world) == want


async def test_nodes_that_fail_do_not_keep_others_waiting() -> None:
    world = await fresh(*(build.gpunode(f"n{number}", 1) for number in range(7)))
    world.cluster.fail("apply_gpunode_status", *[refused(500)] * 5)

    async with background(world.controller.usage.run()):
        await passing(3.5)

    assert written(world)[5:7] == ["n5", "n6"]


@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(30.0, id="later"),
        pytest.param(1.0, id="soon"),
        pytest.param(0.0, id="at once"),
    ],
)
async def test_a_gpunode_made_anew_gets_its_usage_anew(pause: float) -> None:
    world = await fresh(build.gpunode("n1"))
    async with background(world.controller.usage.run()):
        await passing(5.5)
        world.cluster.remove("GPUNode", "n1")
        world.deliver()
        await passing(pause)
        world.cluster.put(build.gpunode("n1"))
        world.deliver()
        await passing(5.0)

    assert world.cluster.get("GPUNode", "n1")["status"]["summary"]["cards"] == 4


async def test_tenants_on_a_node_without_a_gpunode_are_not_written_anywhere() -> None:
    tenant = build.pod("a", node="n9", allocated=build.allocation("GPU-x"))
    world = await fresh(tenant)

    await world.controller.usage.write_some()

    assert written(world) == []
