"""Field reports, section G: what cost and memory may depend on.

Counted, not timed: a count says the same on every machine. Each docstring ends with the change of
the product that makes the test red.
"""

import gc
from typing import Any

import build
from cardwise.ledger import PodEntry
from cardwise.model import Booking, Request
from controllers import World
from reports import fixtures

Json = dict[str, Any]


async def decisions(others: int) -> tuple[int, int, int]:
    """What a decision over 50 nodes cost: nodes evaluated, and Pods that are known or remembered.

    Others were there, and as many come and go.
    """
    nodes = [build.gpunode(f"n{number}", 8) for number in range(50)]
    tenants = [
        build.pod(f"t{number}", node=f"n{number}", allocated=build.allocation(f"GPU-n{number}-a"))
        for number in range(20)
    ]
    bystanders = [build.pod(f"o{number}", gpus=None, node="n1") for number in range(others)]
    world = await World(*nodes, *tenants, *bystanders).load()
    names = [f"n{number}" for number in range(50)]
    for number in range(others):
        passing_by = build.pod(f"e{number}", gpus=None, node="n1")
        world.mirror.see_pod(passing_by)
        world.mirror.see_pod(passing_by, deleted=True)
    for number in range(3):
        pod = build.pod(f"p{number}", gpumem=1000, policy="mutex,binpack,numa")
        world.chosen(pod, *names)
    known, remembered = len(list(world.ledger.entries())), len(world.ledger._ended)
    return world.controller.decider.states, known, remembered


async def test_r70_the_cost_of_a_decision_does_not_grow_with_other_pods() -> None:
    """Nodes in one state are one question, and Pods without cards are in no account.

    Times: tests/bench/filter_bench.py, in `make bench-filter`. Red: `States.number` gives equal
    states two numbers; `Reading.read` makes one of each Pod.
    """
    states, entries, remembered = await decisions(others=0)

    assert await decisions(others=2000) == (states, entries, remembered)
    assert states <= 3 * 4, "idle nodes, nodes with one tenant, and the node of each new one"
    assert (entries, remembered) == (20 + 3, 0)


def alive(*kinds: type) -> int:
    """How many objects of these types there are."""
    gc.collect()
    return sum(isinstance(it, kinds) for it in gc.get_objects())


def environment() -> Json:
    """A finished Pod with much of what nobody needs."""
    made = build.pod(
        node="n1",
        allocated=build.allocation("GPU-g0"),
        containers=[build.container(gpu=1, env=[{"name": "E", "value": "x" * 1000}])],
    )
    return {**made, "status": {"phase": "Succeeded"}}


async def lives(world: World, first: int, count: int) -> None:
    """Pods that are placed, run, and end; the API server forgets them, too."""
    for number in range(first, first + count):
        pod = build.pod(f"p{number}", gpumem=1000, resource_version=str(1000 + number))
        world.cluster.put(pod)
        world.deliver()
        assert await world.bind(pod, world.chosen(pod, "n1")) == ""
        world.deliver()
        world.cluster.remove("Pod", f"p{number}", "default")
        world.deliver()
    world.cluster.calls.clear()


async def test_r71_nothing_grows_with_pods_that_are_finished() -> None:
    """Finished Pods are not listed, and of one that ended nothing stays but its UID, bounded.

    The full length: `make soak`. Red: `Ledger._end` leaves the entry.
    """
    finished = [
        {
            **environment(),
            "metadata": {**environment()["metadata"], "name": f"f{n}", "uid": f"f{n}"},
        }
        for n in range(200)
    ]
    world = await World(*fixtures.t4x4(), *finished).load()
    assert list(world.ledger.entries()) == []
    await lives(world, 0, 50)
    before = alive(PodEntry, Booking, Request)

    await lives(world, 50, 200)

    assert (world.used(), list(world.ledger.entries())) == ({}, [])
    assert alive(PodEntry, Booking, Request) <= before
