"""Section C of the field reports: Pods of several containers."""

import pytest

import build
from cardwise.names import Reason
from controllers import World
from reports import fixtures
from reports.fixtures import answer, one


def test_r24_every_container_has_its_place_in_the_allocation() -> None:
    """In the order of the spec, an empty place spelt one way.

    Red: in wire/allocation.py write no segment for a container without cards.
    """
    containers = [
        build.container("a"),
        build.container("b", gpu=1, gpumem=1000),
        build.container("c"),
        build.container("d"),
    ]

    got = one(*fixtures.t4x1(), build.pod(containers=containers))

    assert got["annotation"] == ";GPU-g0,NVIDIA,1000,0:;;;"


@pytest.mark.parametrize(
    "init",
    [
        pytest.param([], id="R26 without init containers"),
        pytest.param([build.container("i")], id="R26 with one that asks for nothing"),
        pytest.param(
            [build.container("i", gpu=1, gpumem=1000)], id="R26 with one that asks for little"
        ),
    ],
)
def test_r26_an_init_container_is_no_way_around_the_quota(init: list[fixtures.Json]) -> None:
    """What runs at the same time is summed, whatever ran before.

    Red: in engine/usage.py count every container as if it ran alone.
    """
    [node] = fixtures.t4x1()
    both = [build.container(name, gpu=1, gpumem=16000) for name in ("a", "b")]

    got = one(
        fixtures.changed(node, memoryMiB=40000),
        build.quota(gpumem=24000),
        build.pod(init=init, containers=both),
    )

    assert got["reason"] == Reason.QUOTA.value
    assert "24000 MiB gpumem: 0 in use, this Pod would make it 32000" in got["message"]


def test_r28_what_runs_one_after_the_other_is_not_added() -> None:
    """The container takes over the init container's card, and the peak counts.

    Red: in engine/usage.py add ordinary init containers to the regular ones.
    """
    pod = build.pod(
        init=[build.container("i", gpu=1, gpumem=10000)],
        containers=[build.container("a", gpu=1, gpumem=10000)],
    )

    got = answer(*fixtures.t4x1(), pod, build.pod("rest", gpumem=5360), build.pod("over", gpumem=1))

    assert got["p"]["annotation"] == "GPU-g0,NVIDIA,10000,0:;GPU-g0,NVIDIA,10000,0:;"
    assert fixtures.cards_of(got["rest"]) == ["g0"]
    assert fixtures.cards_of(got["over"]) == Reason.MEMORY.value


async def test_r28_the_peak_counts_after_the_init_container_has_ended() -> None:
    """It may run again.

    Red: in wire/pods.py drop what init containers took once they ended, whatever the setting.
    """
    pod = build.pod(
        init=[build.container("i", gpu=1, gpumem=10000)],
        containers=[build.container("a", gpu=1, gpumem=4000)],
        init_exits={"i": 0},
        node="n1",
        allocated="GPU-g0,NVIDIA,10000,0:;GPU-g0,NVIDIA,4000,0:;",
    )

    world = await World(*fixtures.t4x1(), pod).load()

    assert world.used() == {"GPU-g0": 10000}


async def test_r30_a_container_to_debug_with_changes_nothing_of_the_booking() -> None:
    """It can't have cards of its own, and moves nobody else's.

    That the API server lets it in: tests/e2e/test_admission.py, "a container added to a Pod that
    runs changes nothing".

    Red: in wire/containers.py list ``ephemeralContainers``, too.
    """
    tenant = build.pod(
        "t",
        init=[build.container("i", gpu=1, gpumem=10000)],
        containers=[build.container("a", gpu=1, gpumem=4000)],
        node="n1",
        allocated="GPU-g0,NVIDIA,10000,0:;GPU-g0,NVIDIA,4000,0:;",
    )
    world = await World(*fixtures.t4x1(), tenant).load()
    tenant["spec"]["ephemeralContainers"] = [build.container("debug", gpu=1)]
    world.cluster.put(tenant)

    world.deliver()

    assert world.used() == {"GPU-g0": 10000}, "else all of its text would be summed"
    assert world.ledger.view("n1").tenants == (("default/t",),)
