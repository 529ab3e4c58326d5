"""Field reports, section H: gangs, preemption, quotas, autoscalers.

Each test shows the kind of fault, by both doors where both are concerned. Its docstring ends with
the change of the product that makes it red.
"""

from functools import partial
from typing import Any

import pytest

import build
from cardwise.names import GANG, GANG_SIZE, GATE, Door, NodeReason, Reason
from cardwise.settings import Scheduling, Settings
from cardwise.wire.pods import placed_node
from cardwise.wire.quotas import warnings_of
from controllers import World, at_work, passing
from reports import fixtures

Json = dict[str, Any]
GATES = Settings(scheduling=Scheduling(door=Door.GATES))
door = partial(at_work, settings=GATES)
SECONDS = 2.0
"""The reports' limit for what should happen at once."""


def gated(name: str, **fields: Any) -> Json:
    """A Pod that waits behind our gate."""
    return build.pod(name, **{"gates": [GATE], "scheduler": "default-scheduler", **fields})


def node(name: str = "n1", cards: int = 1) -> Json:
    """A Node that offers cards."""
    return build.node_object(name, gpus=10 * cards)


def where(world: World, *names: str) -> list[str | None]:
    """The node that each Pod is on, or pinned to."""
    return [placed_node(world.cluster.get("Pod", name, "default")) for name in names]


def pair(name: str, gang: bool) -> Json:
    """One of two Pods that belong together and take a whole card each."""
    belongs = {GANG: "g", GANG_SIZE: "2"} if gang else {}
    return gated(name, gpumem=15000, annotations=belongs)


@pytest.mark.parametrize(
    ("cards", "gang", "want"),
    [
        pytest.param(2, True, ["n1", "n1"], id="R75 a gang that fits is placed whole"),
        pytest.param(1, True, [None, None], id="R75 a gang that does not fit holds nothing"),
        pytest.param(1, False, ["n1", None], id="R75 without the annotation each is by itself"),
    ],
)
async def test_r75_by_gates_a_gang_starts_whole_or_not_at_all(
    cards: int, gang: bool, want: list[str | None]
) -> None:
    """On the real control plane: tests/e2e/test_workloads.py.

    Red: `Holder.hold_gang` returns those that fit when one does not.
    """
    gpunode = (fixtures.t4x2() if cards == 2 else fixtures.t4x1())[0]
    async with door(node(cards=cards), gpunode, pair("a", gang), pair("b", gang)) as world:
        await passing(SECONDS)
        assert where(world, "a", "b") == want
        assert len(world.used()) == sum(it is not None for it in want)


async def test_r75_by_the_extender_pods_released_together_are_placed_together() -> None:
    """No lock between two Pods of one node; a gang as such is nothing that this door knows.

    Red: `Scheduler.filter` answers an error while another Pod is held.
    """
    released = fixtures.pods(2, gpumem=15000)
    world = await World(*fixtures.t4x2(), *released).load()
    assert [world.chosen(pod, "n1") for pod in released] == ["n1", "n1"]
    assert [await world.bind(pod) for pod in released] == ["", ""]
    assert len(world.used()) == 2


LOW = {"n1": ["uid-default-g0-0", "uid-default-g1-0"]}


async def test_r76_by_the_extender_a_high_pod_evicts_nobody_whose_card_does_not_help() -> None:
    """kube-scheduler is told of the nodes where the victims' cards would do, and of no other.

    With a real kube-scheduler: tests/e2e/test_scheduler_rules.py. Red: `Scheduler.preempt` keeps
    every node.
    """
    tenants = fixtures.load(g0="1/15000/0", g1="1/2000/0")
    high = build.pod("high", gpumem=14000, pod_priority=1000)
    world = await World(*fixtures.t4x2(), *tenants, high).load()

    assert world.filter(high, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.MEMORY}
    assert world.filter(high, "n1")["FailedNodes"] == {}, "none that kube-scheduler would dry-run"
    [(_, note)] = await world.events()
    assert note.endswith("Preemption of GPU tenants is not supported.")
    assert set(world.preempt(high, {"n1": ["uid-default-g1-0"]})) == {"n1"}
    assert set(world.preempt(high, {"n1": []})) == set()
    assert world.cluster.called("evict") == 0


async def test_r76_by_gates_a_high_pod_evicts_nobody_and_is_told_so() -> None:
    """Red: the message of the door of gates leaves out the note about preemption."""
    tenants = fixtures.load(g0="1/15000/0", g1="1/2000/0")
    high = gated("high", gpumem=14000, pod_priority=1000)
    async with door(node(cards=2), *fixtures.t4x2(), *tenants, high) as world:
        [(reason, note)] = await world.events()
        assert reason == Reason.MEMORY
        assert note.endswith("Preemption of GPU tenants is not supported.")
        assert world.cluster.called("evict") == 0


async def test_r77_by_gates_freed_room_goes_to_the_high_pod_first() -> None:
    """No nomination is needed: priority is the order, whoever came first; then the other's turn.

    Red: `Rank` leaves out the priority.
    """
    [victim] = fixtures.load(g0="1/15000/0")
    low = gated("a-low", gpumem=15000, created="2026-11-29T12:00:00Z")
    high = gated("high", gpumem=15000, pod_priority=1000, created="2026-11-29T12:00:09Z")
    async with door(node(), *fixtures.t4x1(), victim, low, high) as world:
        world.cluster.put({**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "t"}})
        await passing(30.0)
        assert where(world, "a-low", "high") == [None, None]
        world.cluster.remove("Pod", "g0-0", "default")
        await passing(SECONDS)
        assert where(world, "a-low", "high") == [None, "n1"]
        world.cluster.remove("Pod", "high", "default")
        await passing(SECONDS)
        assert where(world, "a-low") == ["n1"]


async def test_r77_by_the_extender_no_room_is_given_away_while_the_victim_ends() -> None:
    """Its cards count until it is gone; then kube-scheduler's queue decides, by priority.

    Between the two Pods nothing is kept here: kube-scheduler asks for the higher one first.
    Red: a terminating Pod is taken for one that ended.
    """
    [victim] = fixtures.load(g0="1/15000/0")
    low, high = (build.pod(name, gpumem=15000) for name in ("low", "high"))
    world = await World(*fixtures.t4x1(), victim, low, high).load()
    world.cluster.put({**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "t"}})
    world.deliver()
    assert world.filter(low, "n1")["NodeNames"] == []

    world.cluster.remove("Pod", "g0-0", "default")
    world.deliver()

    assert world.chosen(high, "n1") == "n1"
    assert world.filter(low, "n1")["NodeNames"] == []


# Quotas -------------------------------------------------------------------------------------------

P1 = {"gpus": 2, "gpumem": 2048, "gpucores": 20}
P2 = {"gpumem": 1}
BOUND = build.quota(gpumem=4096, gpucores=50)
TOLD = (
    "The quota of namespace default is 4096 MiB gpumem: 4096 in use, this Pod would make it 4097"
    " (ResourceQuota quota)."
)


async def test_r78_by_the_extender_a_quota_counts_each_card_and_gives_back() -> None:
    """Cards times MiB, told with the numbers and the quota's name; a deleted Pod gives back.

    On the real control plane: tests/e2e/test_refusals.py. Red: `quota_use` counts one card of each
    container.
    """
    p1, p2 = build.pod("p1", **P1), build.pod("p2", **P2)
    world = await World(*fixtures.t4x2(), BOUND, p1, p2).load()
    assert await world.bind(p1, world.chosen(p1, "n1")) == ""
    use = world.ledger.quota_use("default")
    assert (use.memory_mib, use.cores) == (4096, 40)

    assert world.filter(p2, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.QUOTA}
    assert any(TOLD in note for _, note in await world.events())
    world.cluster.remove("Pod", "p1", "default")
    world.deliver()
    assert world.chosen(p2, "n1") == "n1"


async def test_r78_by_gates_a_quota_counts_each_card_and_gives_back() -> None:
    """Red: as by the extender."""
    async with door(node(cards=2), *fixtures.t4x2(), BOUND, gated("p1", **P1)) as world:
        world.cluster.put(gated("p2", **P2))
        await passing(SECONDS)
        assert where(world, "p1", "p2") == ["n1", None]
        assert any(TOLD in note for _, note in await world.events())
        world.cluster.remove("Pod", "p1", "default")
        await passing(SECONDS)
        assert where(world, "p2") == ["n1"]


def quota(name: str, **bounds: Any) -> Json:
    """One of several quotas of the namespace."""
    return build.quota(name=name, **bounds)


@pytest.mark.parametrize(
    ("quotas", "request_", "want"),
    [
        pytest.param(
            [quota("wide", gpumem=9000), quota("tight", gpumem=1000)],
            {"gpumem": 1500},
            "is 1000 MiB gpumem: 0 in use, this Pod would make it 1500 (ResourceQuota tight).",
            id="R78 the lowest bound holds",
        ),
        pytest.param(
            [quota("memory", gpumem=9000), quota("cores", gpucores=20)],
            {"gpumem": 1500, "gpucores": 30},
            "is 20 % gpucores: 0 in use, this Pod would make it 30 (ResourceQuota cores).",
            id="R78 each bound by itself",
        ),
        pytest.param(
            [quota("b", gpumem=1000), quota("a", gpumem=1000)],
            {"gpumem": 1500},
            "make it 1500 (ResourceQuota a).",
            id="R78 of two equal ones the first by name is told",
        ),
        pytest.param(
            [quota("wide", gpumem=9000), quota("none")],
            {"gpumem": 1500},
            None,
            id="R78 within all of them it is placed",
        ),
    ],
)
def test_r78_of_several_quotas_all_hold_and_the_one_that_bounds_is_named(
    quotas: list[Json], request_: Json, want: str | None
) -> None:
    """Red: `merge` takes the last bound, or names another quota than the lowest."""
    found = fixtures.one(*fixtures.t4x2(), *quotas, build.pod(**request_))

    assert (found["node"], found["reason"]) == (
        ("n1", None) if want is None else (None, Reason.QUOTA)
    )
    assert (want or "") in found["message"]


async def test_r78_a_quota_that_goes_or_grows_bounds_no_more() -> None:
    """Red: `Mirror._take_quota` does not forget a quota that was deleted."""
    pod = build.pod(gpumem=1500)
    tight, wide = quota("tight", gpumem=1000), quota("wide", gpumem=9000)
    world = await World(*fixtures.t4x1(), tight, wide, pod).load()
    assert world.filter(pod, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.QUOTA}
    world.cluster.remove("ResourceQuota", "tight", "default")
    world.deliver()
    assert world.chosen(pod, "n1") == "n1"


@pytest.mark.parametrize(
    ("hard", "told"),
    [
        ({"requests.nvidia.com/gpumem": "4096"}, "requests.nvidia.com/gpumem does not count"),
        ({"nvidia.com/gpucores": "50"}, "write limits.nvidia.com/gpucores"),
        ({"requests.nvidia.com/gpumem": "1", "limits.nvidia.com/gpumem": "1"}, None),
        ({"requests.nvidia.com/gpu": "4"}, None),
    ],
    ids=["by requests", "by the bare name", "by limits as well", "cards themselves"],
)
def test_r78_a_key_that_does_not_count_each_card_is_said(hard: Json, told: str | None) -> None:
    """Kubernetes counts it once a container, or not at all. Red: `_counted_otherwise` is empty."""
    warnings = warnings_of(build.quota(hard=hard))

    assert len(warnings) == (told is not None)
    assert all((told or "") in warning for warning in warnings)


# Autoscalers --------------------------------------------------------------------------------------


async def test_r79_by_the_extender_a_new_node_is_waited_for_and_then_used() -> None:
    """A Node that offers cards and has no GPUNode yet refuses with its own word; no start fails.

    The condition that an autoscaler reads is kube-scheduler's: tests/e2e/test_scheduler_rules.py;
    who is woken: tests/e2e/test_waking.py. Red: `room_grew` says no where a node got its GPUNode.
    """
    [full], pod = fixtures.load(g0="1/15360/100"), build.pod("p", gpumem=1000)
    world = await World(node(), *fixtures.t4x1(), full, pod).load()
    assert world.filter(pod, "n1")["NodeNames"] == []
    world.cluster.put(node("n2"))
    world.deliver()
    refused = world.filter(pod, "n1", "n2")["FailedAndUnresolvableNodes"]
    assert refused["n2"] == Reason.NODE_NOT_REPORTED
    world.cluster.watch = world.show
    async with world.running():
        await passing(40.0)
        world.cluster.put(build.gpunode("n2", 1))
        await passing(SECONDS)
        assert world.cluster.called("annotate_node") == 1, "the waiting Pods are asked again"
        assert world.chosen(pod, "n1", "n2") == "n2"


async def test_r79_by_gates_a_new_node_is_used_as_soon_as_it_reports() -> None:
    """What the autoscaler does not see behind a gate: docs/doors.md.

    Red: `Dispatcher.grew` does not open the queue.
    """
    [full], pod = fixtures.load(g0="1/15360/100"), gated("p", gpumem=1000)
    async with door(node(), *fixtures.t4x1(), full, pod) as world:
        world.cluster.put(build.node_object("n2"))
        await passing(40.0)
        assert where(world, "p") == [None]
        world.cluster.put(build.gpunode("n2", 1))
        await passing(SECONDS)
        assert where(world, "p") == [None], NodeReason.RESOURCE
        world.cluster.put(node("n2"))
        await passing(SECONDS)
        assert where(world, "p") == ["n2"]
