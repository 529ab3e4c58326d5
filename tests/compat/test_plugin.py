"""Nodes whose cards HAMi's device plugin hands out: it finds our Pods, each its own cards."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

import build
from cardwise.controller.lease.duty import Duty
from cardwise.controller.lease.tenure import Tenure
from cardwise.controller.placing import lockvalue
from cardwise.controller.placing.binder import Binder
from cardwise.ledger import Stage
from cardwise.model import PodRef
from cardwise.names import WAKE, EventReason, Reason
from cardwise.settings import parse
from compat.plugin import LOCK, PHASE, TO_ALLOCATE, AllocateError, DevicePlugin
from controllers import UNIX, World, background, passing
from fakes.cluster import copied, refused

Json = dict[str, Any]
GATES = parse("scheduling: {door: gates}")
GATED = {"gates": ["cardwise.dev/cards"], "scheduler": "default-scheduler"}


def by_hami(name: str = "n1", cards: int = 2, **fields: Any) -> Json:
    """A GPUNode that was built from what HAMi's device plugin writes."""
    built = build.gpunode(name, cards, prefix="GPU-", **fields)
    built["metadata"]["labels"] = {"cardwise.dev/source": "hami"}
    return built


def locked(value: str | None = None) -> Json:
    """The Node n1."""
    annotations = {} if value is None else {LOCK: value}
    return build.node_object("n1", gpus=20, annotations=annotations)


def since(seconds: float) -> str:
    """A time so many seconds ago."""
    return lockvalue.value_of(PodRef("", ""), int(UNIX - seconds)).partition(",")[0]


def lock(world: World) -> str | None:
    """The lock of n1."""
    return node_annotations(world).get(LOCK)


def node_annotations(world: World) -> dict[str, str]:
    """The annotations of n1."""
    found: dict[str, str] = world.cluster.objects["Node"]["", "n1"]["metadata"]["annotations"]
    return found


def plugin(world: World) -> DevicePlugin:
    """HAMi's, over the objects of the cluster; they are copies until ``written``."""
    node = world.cluster.objects["Node"]["", "n1"]
    pods = world.cluster.objects["Pod"]
    placed = [pods[key] for key in sorted(pods) if pods[key]["spec"].get("nodeName") == "n1"]
    return DevicePlugin(copied(node), [copied(pod) for pod in placed])


def written(world: World, by: DevicePlugin) -> None:
    """What the plugin changed is stored, and reaches the controller."""
    for document in (*by.pods, by.node):
        world.cluster.put(document)
    world.deliver()


def hand_over(world: World, *counts: int) -> list[list[str]]:
    """kubelet asks for each container of the next Pod."""
    by = plugin(world)
    got = [by.allocate(count) for count in counts]
    written(world, by)
    return got


# It finds them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "counts", "want"),
    [
        pytest.param({"gpumem": 1000}, [1], [["GPU-a"]], id="one container with one card"),
        pytest.param({"gpus": 2, "gpumem": 1}, [2], [["GPU-a", "GPU-b"]], id="with two"),
        pytest.param(
            {
                "containers": [
                    build.container("web"),
                    build.container("one", gpu=1, gpumem=9000),
                    build.container("other", gpu=2, gpumem=1),
                ]
            },
            [1, 2],
            [["GPU-a"], ["GPU-b", "GPU-a"]],
            id="several containers, the first without",
        ),
        pytest.param(
            {
                "init": [build.container("prepare", gpu=1, gpumem=9000)],
                "containers": [build.container("run", gpu=2, gpumem=1)],
            },
            [1, 2],
            [["GPU-a"], ["GPU-a", "GPU-b"]],
            id="an init container with a card",
        ),
    ],
)
async def test_hamis_plugin_hands_a_pod_of_ours_its_own_cards(
    pod: Json, counts: list[int], want: list[list[str]]
) -> None:
    """D1: container by container, in the order of the annotation."""
    waiting = build.pod("p", **pod)
    world = await World(by_hami(), locked(), waiting).load()
    world.chosen(waiting, "n1")

    assert await world.bind(waiting) == ""

    assert lock(world) == f"{since(0)},default,p"
    assert hand_over(world, *counts) == want
    assert lock(world) is None
    annotations = world.cluster.objects["Pod"]["default", "p"]["metadata"]["annotations"]
    assert annotations[PHASE] == "success"
    assert annotations[TO_ALLOCATE].strip(";") == ""
    assert world.stage(waiting) is Stage.BOOKED


@pytest.mark.parametrize(
    ("count", "why"),
    [
        pytest.param(2, "device number not matched", id="D3: two devices for one card"),
    ],
)
async def test_hamis_plugin_fails_a_pod_whose_devices_are_not_as_many(count: int, why: str) -> None:
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(), pod).load()
    world.chosen(pod, "n1")
    await world.bind(pod)
    by = plugin(world)

    with pytest.raises(AllocateError, match=why):
        by.allocate(count)

    written(world, by)
    assert lock(world) is None
    assert world.chosen(build.pod("q", gpumem=1000), "n1") == "n1"


async def test_without_the_lock_it_would_take_another_pods_cards_for_ours() -> None:
    """What the lock is for: a Pod with its cards that has not started yet is listed first."""
    node = locked()
    first = build.pod("a", node="n1", phase="Pending", annotations=handed("GPU-a", "success"))
    ours = build.pod("b", node="n1", phase="Pending", annotations=handed("GPU-b", "allocating"))
    with pytest.raises(AllocateError, match="no pending device allocation"):
        DevicePlugin(copied(node), [copied(first), copied(ours)]).allocate(1)

    node["metadata"]["annotations"][LOCK] = f"{since(0)},default,b"

    assert DevicePlugin(node, [first, ours]).allocate(1) == ["GPU-b"]


def handed(uuid: str, phase: str) -> dict[str, str]:
    """HAMi's annotations on a Pod of n1."""
    return {
        "hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,1000,0:;",
        TO_ALLOCATE: f"{uuid},NVIDIA,1000,0:;" if phase == "allocating" else ";;",
        "hami.io/vgpu-node": "n1",
        "hami.io/bind-time": "1",
        PHASE: phase,
    }


# One Pod at a time --------------------------------------------------------------------------------


async def test_the_next_pod_waits_until_the_one_before_has_its_cards() -> None:
    one, other = build.pod("p", gpumem=1000), build.pod("q", gpumem=1000)
    world = await World(by_hami(), locked(), one, other).load()
    world.chosen(one, "n1")
    assert await world.bind(one) == ""
    world.deliver()

    answered = world.filter(other, "n1")["FailedAndUnresolvableNodes"]
    assert answered == {"n1": Reason.NODE_HANDING_OVER}
    large = world.filter(build.pod("large", gpumem=99999), "n1")["FailedAndUnresolvableNodes"]
    assert large == {"n1": Reason.MEMORY}, "when it is over that Pod does not fit either"
    async with background(world.controller.waker.run()):
        await passing(2.0)
        assert WAKE not in node_annotations(world)
        hand_over(world, 1)
        await passing(2.0)

    assert WAKE in node_annotations(world), "nobody is woken"
    assert world.chosen(other, "n1") == "n1"
    assert await world.bind(other) == ""
    assert hand_over(world, 1) == [["GPU-b"]]


async def test_of_two_pods_that_are_held_one_is_bound_and_the_other_asked_again() -> None:
    one, other = build.pod("p", gpumem=1000), build.pod("q", gpumem=1000)
    world = await World(by_hami(), locked(), one, other).load()
    world.chosen(one, "n1")
    world.chosen(other, "n1")

    answers = await asyncio.gather(world.bind(one), world.bind(other))

    assert sorted(map(bool, answers)) == [False, True]
    assert world.cluster.called("bind") == 1


@pytest.mark.parametrize(
    ("annotations", "phase", "busy"),
    [
        pytest.param(handed("GPU-a", "allocating"), "Pending", True, id="HAMi placed it just now"),
        pytest.param(handed("GPU-a", "success"), "Pending", False, id="it has its cards"),
        pytest.param(handed("GPU-a", "failed"), "Pending", False, id="it was refused them"),
        pytest.param(handed("GPU-a", "allocating"), "Running", False, id="it runs"),
        pytest.param(handed("GPU-a", "allocating"), "Failed", False, id="it ended"),
    ],
)
async def test_pods_that_hami_placed_have_their_turn_too(
    annotations: dict[str, str], phase: str, busy: bool
) -> None:
    theirs = build.pod("theirs", node="n1", phase=phase, annotations=annotations)
    world = await World(by_hami(), locked(), theirs).load()

    answered = world.filter(build.pod(gpumem=1000), "n1")["FailedAndUnresolvableNodes"]

    assert answered == ({"n1": Reason.NODE_HANDING_OVER} if busy else {})


@pytest.mark.parametrize("seed", range(5))
async def test_in_whatever_order_pods_come_each_is_handed_what_its_annotation_says(
    seed: int,
) -> None:
    dice = Random(seed)
    pods = [build.pod(f"p{number}", gpus=dice.randint(1, 2), gpumem=1000) for number in range(6)]
    world = await World(by_hami(), locked(), *pods).load()
    served: set[str] = set()
    while len(served) < len(pods):
        waiting = [pod for pod in pods if pod["metadata"]["name"] not in served]
        dice.shuffle(waiting)
        held = [pod for pod in waiting if world.filter(pod, "n1")["NodeNames"]]
        answers = await asyncio.gather(*(world.bind(pod) for pod in held))
        world.deliver()
        assert answers.count("") == 1
        now = held[answers.index("")]
        booked = world.entry(now)
        assert booked is not None
        assert booked.booking is not None
        (shares,) = booked.booking.containers

        assert hand_over(world, len(shares)) == [[share.uuid for share in shares]]

        served.add(now["metadata"]["name"])


async def test_other_nodes_take_as_many_pods_at_a_time_as_ever() -> None:
    one, other = build.pod("p", gpumem=1000), build.pod("q", gpumem=1000)
    world = await World(build.gpunode("n1", 2), locked(), one, other).load()
    for pod in (one, other):
        world.chosen(pod, "n1")

    assert [await world.bind(one), await world.bind(other)] == ["", ""]
    assert lock(world) is None
    assert world.cluster.called("node") == 0


async def test_our_agents_report_wins_over_the_label() -> None:
    taken_over = by_hami()
    taken_over["metadata"]["managedFields"] = [{"manager": "cardwise-agent"}]
    pod = build.pod("p", gpumem=1000)
    world = await World(taken_over, locked(), pod).load()
    world.chosen(pod, "n1")

    assert await world.bind(pod) == ""
    assert lock(world) is None


async def test_by_the_door_of_gates_two_pods_take_their_turns() -> None:
    """Each is pinned once the one before has its cards, and the lock is its own."""
    pods = [build.pod(name, gpumem=9000, **GATED) for name in ("p", "q")]
    world = await World(by_hami(), locked(), *pods, settings=GATES).load()
    async with background(*door_of_gates(world), watching(world)):
        await passing(1.0)
        (first,) = pinned(world)
        assert lock(world) == f"{since(0)},default,{first}"
        await passing(60.0)
        assert pinned(world) == [first], "the second did not wait"

        bound(world, first)
        hand_over(world, 1)
        await passing(2.0)

        assert pinned(world) == ["p", "q"]
        assert str(lock(world)).endswith(",default,q")


def door_of_gates(world: World) -> list[Coroutine[Any, Any, None]]:
    """What decides and pins, and nothing else of the controller."""
    assert world.controller.gates_door is not None
    return world.controller.gates_door.tasks()


def pinned(world: World) -> list[str]:
    """The Pods that are at their node's gate no more."""
    pods = world.cluster.objects["Pod"].values()
    return sorted(p["metadata"]["name"] for p in pods if not p["spec"].get("schedulingGates"))


def bound(world: World, name: str) -> None:
    """The cluster's kube-scheduler bound a pinned Pod."""
    pod = copied(world.cluster.objects["Pod"]["default", name])
    pod["spec"]["nodeName"] = "n1"
    world.cluster.put(pod)
    world.deliver()


async def watching(world: World) -> None:
    """Every change of the cluster reaches the controller."""
    while True:
        world.deliver()
        await asyncio.sleep(0.1)


# The lock -----------------------------------------------------------------------------------------

HOLDER = build.pod("holder", node="n1", annotations=handed("GPU-b", "success"))


@pytest.mark.parametrize(
    ("value", "more", "error"),
    [
        pytest.param(None, [], "", id="L1: absent, it is taken"),
        pytest.param(
            f"{since(10)},default,holder", [HOLDER], "default/holder", id="L1: another Pod's"
        ),
        pytest.param(f"{since(10)},default,p", [], "", id="L1: it is this Pod's already"),
        pytest.param(f"{since(10)},default,nobody", [], "", id="L1: its Pod is gone"),
        pytest.param(f"{since(301)},default,holder", [HOLDER], "", id="L1: it is over"),
        pytest.param(since(10), [], "one Pod at a time", id="L1: an old release's"),
        pytest.param(since(301), [], "", id="L1: an old release's that is over"),
        pytest.param("lock", [], '"lock", which names no time', id="L1: it can't be read"),
        pytest.param(
            f"{since(10).replace('Z', '+00:00')},default,holder",
            [HOLDER],
            "default/holder",
            id="L1: with an offset",
        ),
    ],
)
async def test_the_lock_is_respected_and_taken_as_hami_does(
    value: str | None, more: list[Json], error: str
) -> None:
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(value), pod, *more).load()
    world.chosen(pod, "n1")

    answered = await world.bind(pod)

    assert error in answered
    assert bool(answered) is bool(error)
    assert world.cluster.called("bind") == (0 if error else 1)
    held = lock(world)
    assert held == value if error else str(held).endswith(",default,p")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(None, None, id="L2, L3: ours is given back"),
        pytest.param(f"{since(10)},default,holder", "same", id="L2: another's stays"),
        pytest.param(since(10), "same", id="L2: an old release's stays, HAMi's plugin removes it"),
    ],
)
async def test_the_lock_is_given_back_when_the_pod_was_not_bound(
    value: str | None, want: str | None
) -> None:
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(value), pod, HOLDER).load()
    world.chosen(pod, "n1")
    world.cluster.fail("bind", refused(403))

    answered = await world.bind(pod)
    await passing(1.0)

    assert answered
    assert lock(world) == (value if want else None)
    assert world.stage(pod) is Stage.WAITING


async def test_who_takes_the_lock_between_our_look_and_our_write_has_it() -> None:
    """L2: the lock is changed only as it was read."""
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(), pod, HOLDER).load()
    world.chosen(pod, "n1")
    world.cluster.slow("patch_node", 1.0)
    theirs = f"{since(0)},default,holder"

    binding = asyncio.create_task(world.bind(pod))
    await passing(0.5)
    world.cluster.put(locked(theirs))

    assert "the object has been modified" in await binding
    assert lock(world) == theirs
    assert world.cluster.called("bind") == 0


class Active(Tenure):
    """A replica that acts, whatever the Lease says."""

    def refusal(self) -> str:
        """None."""
        return ""


@pytest.mark.parametrize("what", ["SIGTERM came", "another replica acted meanwhile"])
async def test_nothing_is_bound_that_this_replica_may_not_bind_once_it_has_the_lock(
    what: str,
) -> None:
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(), pod).load()
    world.chosen(pod, "n1")
    entry = world.entry(pod)
    assert entry is not None
    assert entry.booking is not None
    assert entry.request is not None
    tenure = Active("me", world.controller.clock)
    duty = Duty(tenure)
    duty.loaded = True
    binder = Binder(world.ledger, world.mirror, world.cluster, duty, world.controller.clock)
    world.cluster.slow("patch_node", 1.0)

    binding = asyncio.create_task(binder.bind(entry.request, entry.booking))
    await passing(0.5)
    if what == "SIGTERM came":
        duty.stopping = True
    else:
        tenure.term += 1

    assert await binding
    await passing(2.0)
    assert world.cluster.called("bind") == 0
    assert lock(world) is None
    assert world.used() == {}


async def test_a_pod_or_node_that_is_gone_gives_back_its_cards() -> None:
    """L4."""
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(), pod).load()
    world.chosen(pod, "n1")
    world.cluster.remove("Node", "n1")

    assert await world.bind(pod) == "node n1 is gone"

    assert world.used() == {}


async def test_a_bind_that_meets_another_lock_is_told_in_one_event() -> None:
    """L3: who is no gang fails at once, and kube-scheduler asks again."""
    pod = build.pod("p", gpumem=1000)
    world = await World(by_hami(), locked(f"{since(1)},default,holder"), pod, HOLDER).load()
    world.chosen(pod, "n1")

    began = asyncio.get_running_loop().time()
    await world.bind(pod)

    assert asyncio.get_running_loop().time() == began
    ((reason, note),) = await world.events()
    assert reason == EventReason.BINDING_FAILED
    assert "default/holder" in note


async def test_a_pin_waits_for_the_lock_as_hami_waits_for_a_gang() -> None:
    """L3: for 28 s, and then it is tried again later."""
    value = f"{since(1)},default,holder"
    pod = build.pod("p", gpumem=1000, **GATED)
    world = await World(by_hami(), locked(value), pod, HOLDER, settings=GATES).load()
    async with background(*door_of_gates(world), watching(world)):
        await passing(20.0)
        assert pinned(world) == ["holder"]
        node = copied(world.cluster.objects["Node"]["", "n1"])
        del node["metadata"]["annotations"][LOCK]
        world.cluster.put(node)

        await passing(1.0)

    assert pinned(world) == ["holder", "p"]
