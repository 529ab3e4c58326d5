"""/bind: no hold is trusted blindly, and cards stay taken while nobody knows the outcome."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import build
from cardwise import names
from cardwise.controller.extender.service import IN_PROGRESS
from cardwise.controller.lease.tenure import WRITE_SECONDS
from cardwise.ledger import Stage
from cardwise.names import EventReason
from controllers import World, background, passing
from fakes.cluster import Fault, refused, unanswered

Json = dict[str, Any]
GONE = "the Pod is gone"


async def one_node(*more: Json, **pod: Any) -> tuple[World, Json]:
    """n1 with the cards a and b, and a Pending Pod in the cluster that /filter has not seen."""
    world = await World(build.gpunode("n1", 2), *more).load()
    waiting = world.cluster.put(build.pod(**{"gpumem": 1000, **pod}))
    world.cluster.changes.clear()
    return world, waiting


async def held(*more: Json, **pod: Any) -> tuple[World, Json]:
    """As ``one_node``, with the Pod held on n1."""
    world, waiting = await one_node(*more, **pod)
    world.chosen(waiting, "n1")
    return world, waiting


def annotations(world: World, pod: Json) -> Json:
    found: Json = world.cluster.get("Pod", pod["metadata"]["name"], "default")
    written: Json = found["metadata"]["annotations"]
    return written


def node_of(world: World, pod: Json) -> str | None:
    found = world.cluster.get("Pod", pod["metadata"]["name"], "default")
    node: str | None = found["spec"].get("nodeName")
    return node


# The good way -------------------------------------------------------------------------------------


async def test_a_held_pod_is_bound_with_its_cards_in_one_write() -> None:
    world, pod = await held(policy="binpack")

    assert await world.bind(pod) == ""

    assert world.cluster.calls[-1] == ("bind", "default", "p")
    assert world.cluster.called("bind") == 1
    assert world.cluster.called("pod") == 0
    assert node_of(world, pod) == "n1"
    written = annotations(world, pod)
    assert written[names.ALLOCATED] == written[names.TO_ALLOCATE] == "GPU-n1-a,NVIDIA,1000,0:;"
    assert written[names.POLICY] == "binpack"
    assert written[names.VGPU_NODE] == "n1"
    assert written[names.BIND_PHASE] == "allocating"
    assert written[names.BIND_TIME].isdecimal()
    assert names.EXCLUSIVE_HELD not in written
    assert world.stage(pod) is Stage.BOOKED
    assert await world.events() == [
        (EventReason.CARDS_ALLOCATED, "n1: GPU 0 (GPU-n1-a) 1000 MiB; policy binpack")
    ]
    assert world.cluster.events()[0]["type"] == "Normal"


async def test_an_exclusive_pod_is_marked_in_the_same_write() -> None:
    world, pod = await held(exclusive="true")

    assert await world.bind(pod) == ""

    assert annotations(world, pod)[names.EXCLUSIVE_HELD] == "true"


async def test_a_bound_pod_is_bound_there_again_with_success_and_no_write() -> None:
    world, pod = await held()
    await world.bind(pod)

    assert await world.bind(pod) == ""
    assert await world.bind(pod, "n2") == "the Pod is bound to n1 already, not to n2"

    assert world.cluster.called("bind") == 1


async def test_the_watch_may_show_the_pod_bound_before_the_answer_comes() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(lands=0.1, after=1.0))

    async with background(world.bind(pod)):
        await passing(0.5)
        world.deliver()
        assert world.stage(pod) is Stage.BINDING
        await passing(2.0)
    assert world.stage(pod) is Stage.BOOKED
    assert world.used() == {"GPU-n1-a": 1000}


# A hold is checked again --------------------------------------------------------------------------

SICK = build.card(0, uuid="GPU-n1-a", healthy=False)
SMALL = build.card(0, uuid="GPU-n1-a", memoryMiB=500)
B = build.card(1, uuid="GPU-n1-b")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(build.gpunode("n1", [SICK, B]), id="its card turned sick"),
        pytest.param(build.gpunode("n1", [SMALL, B]), id="its card shrank"),
        pytest.param(build.gpunode("n1", [B]), id="its card vanished"),
        pytest.param(
            build.gpunode("n1", 2, cordoned=["GPU-n1-a"]), id="an administrator closed its card"
        ),
        pytest.param(
            build.node_object("n1", cordon="GPU-n1-a"), id="HAMi's annotation closed its card"
        ),
        pytest.param(
            build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", mib=15000)),
            id="a Pod bound by somebody else turned up on its card",
        ),
        pytest.param(
            build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", cores=100)),
            id="a Pod bound by somebody else has all cores of its card",
        ),
    ],
)
async def test_a_hold_that_does_not_fit_any_more_is_decided_anew(change: Json) -> None:
    world, pod = await held()
    world.cluster.put(change)
    world.deliver()

    assert await world.bind(pod) == ""

    assert annotations(world, pod)[names.ALLOCATED] == "GPU-n1-b,NVIDIA,1000,0:;"
    assert world.used()["GPU-n1-b"] == 1000


async def test_whole_cores_are_not_given_beside_a_tenant_that_turned_up() -> None:
    world, pod = await held(gpumem=1000, gpucores=100)
    world.cluster.put(build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", cores=0)))
    world.deliver()

    assert await world.bind(pod) == ""

    assert annotations(world, pod)[names.ALLOCATED] == "GPU-n1-b,NVIDIA,1000,100:;"


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        pytest.param(
            lambda it: it.mirror.see_gpunode(build.gpunode("n1", [SICK])),
            "CardNotHealth",
            id="no healthy card is left",
        ),
        pytest.param(
            lambda it: it.mirror.see_gpunode(build.gpunode("n1"), deleted=True),
            "NodeHasNoCards",
            id="the GPUNode is gone",
        ),
        pytest.param(
            lambda it: it.mirror.see_pod(build.pod("t", node="n1", allocated="rubbish:;")),
            "NodeHasUnreadableAllocation",
            id="an unreadable allocation closed the node",
        ),
    ],
)
async def test_no_fit_any_more_is_an_error_and_the_pod_waits(
    act: Callable[[World], None], reason: str
) -> None:
    world, pod = await held()
    act(world)

    assert await world.bind(pod) == "the Pod's cards on n1 can't be had any more; ask again"

    entry = world.entry(pod)
    assert entry is not None
    assert (entry.stage, entry.reason, entry.booking) == (Stage.WAITING, reason, None)
    assert world.cluster.called("bind") == 0


async def test_another_node_than_held_is_decided_anew_for_that_node() -> None:
    world, pod = await held(build.gpunode("n2", 1))

    assert await world.bind(pod, "n2") == ""

    assert node_of(world, pod) == "n2"
    assert world.used("n1") == {}
    assert world.used("n2") == {"GPU-n2-a": 1000}


async def test_a_pod_that_was_refused_may_fit_by_the_time_it_is_bound() -> None:
    world, pod = await one_node(gpumem=15000)
    tenant = build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", "GPU-n1-b"))
    world.mirror.see_pod(tenant)
    assert world.filter(pod, "n1")["NodeNames"] == []
    world.mirror.see_pod(tenant, deleted=True)

    assert await world.bind(pod) == ""

    assert world.used() == {"GPU-n1-a": 15000}


async def test_why_a_pod_waited_is_not_told_any_more_once_it_is_bound() -> None:
    tenant = build.pod(
        "t", node="n1", allocated=build.allocation("GPU-n1-a", "GPU-n1-b", mib=15000)
    )
    world, pod = await one_node(tenant)
    world.filter(pod, "n1")
    world.cluster.remove("Pod", "t", "default")
    world.deliver()
    world.chosen(pod, "n1")
    await world.bind(pod)

    assert await world.reasons() == [EventReason.CARDS_ALLOCATED]


# No hold: a restart lost it -----------------------------------------------------------------------


async def test_without_a_hold_the_pod_is_read_and_decided() -> None:
    world, pod = await held()
    again = await world.restarted()

    assert await again.bind(pod) == ""

    assert again.cluster.called("pod") == 1
    assert annotations(again, pod)[names.ALLOCATED] == "GPU-n1-a,NVIDIA,1000,0:;"


@pytest.mark.parametrize(
    ("pod", "uid", "want"),
    [
        pytest.param(None, "uid-default-p", GONE, id="it is not there"),
        pytest.param(build.pod(), "uid-of-its-namesake", GONE, id="a namesake is there"),
        pytest.param(build.pod(gpus=None), None, "the Pod asks for no card", id="it asks for none"),
        pytest.param(
            build.pod(gpumem=1000, node="n2"),
            None,
            "the Pod is bound to n2 already",
            id="somebody else bound it elsewhere",
        ),
        pytest.param(
            build.pod(gpumem=1000, node="n2", allocated=build.allocation("GPU-n2-a")),
            None,
            "the Pod is bound to n2 already",
            id="it is bound with cards elsewhere",
        ),
        pytest.param(
            build.pod(gpumem=1000, node="n1"),
            None,
            "the Pod is bound to n1 already",
            id="somebody else bound it there, without cards",
        ),
        pytest.param(
            build.pod(gpumem=1000, node="n1", allocated=build.allocation("GPU-n1-b")),
            None,
            "",
            id="it was bound there by us: success",
        ),
    ],
)
async def test_what_is_found_without_a_hold(pod: Json | None, uid: str | None, want: str) -> None:
    world = await World(build.gpunode("n1", 2)).load()
    if pod is not None:
        world.cluster.put(pod)

    assert await world.bind(pod or build.pod(), uid=uid) == want

    assert world.cluster.called("bind") == 0


@pytest.mark.parametrize("door", ["", "n1"], ids=["waiting", "bound there already"])
async def test_a_pod_that_asks_for_0_cards_is_bound_without_any(door: str) -> None:
    world = await World(build.gpunode("n1", 2)).load()
    pod = world.cluster.put(build.pod(gpus=0, node=door or None))

    assert world.chosen(pod, "n1") == "n1"
    assert await world.bind(pod) == ""

    assert world.cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"
    assert names.ALLOCATED not in annotations(world, pod)
    assert world.used("n1") == {}


async def test_a_pod_that_asks_for_0_cards_is_told_why_it_is_not_bound() -> None:
    world = await World(build.gpunode("n1", 2)).load()
    pod = world.cluster.put(build.pod(gpus=0))
    world.cluster.fail("bind", refused(403, "not allowed"))

    assert "its Binding failed: " in await world.bind(pod)


async def test_an_invalid_request_is_not_bound() -> None:
    world, pod = await one_node(gpumem="16Gi")
    world.filter(pod, "n1")

    error = await world.bind(pod)

    assert "nvidia.com/gpumem" in error
    assert world.cluster.called("bind") == 0


async def test_a_pod_that_can_not_be_read_is_not_bound() -> None:
    world, pod = await one_node()
    world.cluster.fail("pod", unanswered(after=2.0))

    assert (await world.bind(pod)).startswith("the Pod can't be read: ")
    assert world.cluster.called("bind") == 0


async def test_a_pod_that_the_watch_shows_booked_while_it_is_read_is_not_bound_twice() -> None:
    world, pod = await one_node()
    world.cluster.slow("pod", 1.0)
    bound = build.pod(gpumem=1000, node="n2", allocated=build.allocation("GPU-n2-a"))

    async with background(asyncio.sleep(0)):
        task = asyncio.ensure_future(world.bind(pod))
        await passing(0.5)
        world.mirror.see_pod(bound)
        assert await task == "the Pod is bound to n2 already, not to n1"


# Refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 422, 429])
async def test_a_refused_binding_frees_the_cards_at_once(status: int) -> None:
    world, pod = await held()
    world.cluster.fail("bind", refused(status, "no"))

    assert await world.bind(pod) == "the API server refused the Binding: no"

    assert world.stage(pod) is Stage.WAITING
    assert world.used() == {}
    assert world.cluster.called("bind") == 1
    assert await world.reasons() == [EventReason.BINDING_FAILED]


async def test_a_pod_that_is_gone_is_answered_404() -> None:
    world, pod = await held()
    world.cluster.remove("Pod", "p", "default")

    assert await world.bind(pod) == "the Pod is gone"
    assert world.used() == {}


def terminate(world: World) -> None:
    world.cluster.put(build.pod(gpumem=1000, terminating=True))


def replace_by_namesake(world: World) -> None:
    world.cluster.put(build.pod(gpumem=1000, uid="uid-of-its-namesake"))


def bind_elsewhere(world: World) -> None:
    world.cluster.put(build.pod(gpumem=1000, node="n2", allocated=build.allocation("GPU-n2-a")))


def bind_without_cards(world: World) -> None:
    world.cluster.put(build.pod(gpumem=1000, node="n1"))


def bind_unreadably(world: World) -> None:
    world.cluster.put(build.pod(gpumem=1000, node="n1", allocated="rubbish:;"))


@pytest.mark.parametrize(
    ("happens", "want", "used"),
    [
        pytest.param(terminate, "the Pod is being deleted", {}, id="it is being deleted"),
        pytest.param(replace_by_namesake, GONE, {}, id="another Pod has its name"),
        pytest.param(
            bind_elsewhere,
            "the Pod is placed on n2 already, not by this decision",
            {},
            id="it is bound elsewhere",
        ),
        pytest.param(
            bind_without_cards,
            "the Pod is placed on n1 already, not by this decision",
            {},
            id="it is bound there without cards",
        ),
        pytest.param(
            bind_unreadably,
            "the Pod is placed on n1 already, not by this decision",
            {"GPU-n1-a": 1000},
            id="it is bound there with an allocation that can't be read: the cards stay counted",
        ),
    ],
)
async def test_a_conflict_is_looked_into(
    happens: Callable[[World], None], want: str, used: Json
) -> None:
    world, pod = await held(build.gpunode("n2", 1))
    happens(world)

    assert await world.bind(pod) == want

    assert world.used() == used
    assert world.cluster.called("bind") == 1


async def test_a_pod_that_somebody_else_bound_without_cards_does_not_wait() -> None:
    world, pod = await held()
    bind_without_cards(world)

    await world.bind(pod)

    assert world.entry(pod) is None
    assert await world.mirror.reconcile(world.cluster) == 0


async def test_a_conflict_with_our_own_lost_write_is_success() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(lands=0.0), None)
    world.cluster.fail("pod", unanswered())

    assert await world.bind(pod) == ""

    assert world.stage(pod) is Stage.BOOKED
    assert world.used() == {"GPU-n1-a": 1000}
    assert await world.reasons() == [EventReason.CARDS_ALLOCATED]


# Nobody knows -------------------------------------------------------------------------------------

LOST = [
    pytest.param(refused(500), id="500, nothing written"),
    pytest.param(refused(503), id="503, nothing written"),
    pytest.param(Fault(500, "broken", lands=0.0), id="500 after the write"),
    pytest.param(Fault(504, "late", after=1.0, lands=0.5), id="504 after the write"),
    pytest.param(unanswered(after=2.0), id="a timeout, nothing written"),
    pytest.param(unanswered(after=2.0, lands=1.0), id="a timeout after the write"),
    pytest.param(unanswered(after=2.0, lands=2.2), id="a timeout before the write"),
    pytest.param(unanswered(after=2.0, lands=2.6), id="a write that lands after it was sent again"),
    pytest.param(unanswered(), id="a connection cut off"),
]


@pytest.mark.parametrize("fault", LOST)
async def test_an_unknown_outcome_is_found_out(fault: Fault) -> None:
    world, pod = await held()
    world.cluster.fail("bind", fault)

    assert await world.bind(pod) == ""

    assert node_of(world, pod) == "n1"
    assert world.stage(pod) is Stage.BOOKED
    assert world.used() == {"GPU-n1-a": 1000}
    assert await world.reasons() == [EventReason.CARDS_ALLOCATED]


async def test_a_slow_api_server_gets_two_seconds() -> None:
    world, pod = await held()
    world.cluster.slow("bind", WRITE_SECONDS + 0.3)
    loop = asyncio.get_running_loop()

    assert await world.bind(pod) == ""

    # Sent again when the first was given up; that the first landed is seen half a second later.
    assert loop.time() == pytest.approx(2 * WRITE_SECONDS + 0.5)
    assert world.cluster.called("bind") == 2
    assert world.used() == {"GPU-n1-a": 1000}


async def test_the_cards_stay_taken_until_the_outcome_is_known() -> None:
    world, pod = await held(policy="mutex")
    world.cluster.fail("bind", *[unanswered()] * 40)

    error = await world.bind(pod)

    assert error.startswith("the outcome of the Binding is not known yet")
    assert world.stage(pod) is Stage.BINDING
    assert world.used() == {"GPU-n1-a": 1000}
    assert world.filter(pod, "n1")["Error"] == IN_PROGRESS
    assert await world.bind(pod) == IN_PROGRESS
    assert world.chosen(build.pod("q", policy="mutex"), "n1") == "n1"
    assert world.filter(build.pod("r", policy="mutex"), "n1")["NodeNames"] == []
    await passing(60.0)
    assert world.stage(pod) is Stage.BOOKED
    assert await world.bind(pod) == ""


@pytest.mark.parametrize(
    ("faults", "happens", "stage"),
    [
        pytest.param([], terminate, Stage.WAITING, id="it is being deleted meanwhile"),
        pytest.param(
            [],
            lambda it: it.cluster.remove("Pod", "p", "default"),
            Stage.WAITING,
            id="it is gone meanwhile",
        ),
        pytest.param([refused(403)], None, Stage.BOOKED, id="it is forbidden for a while"),
        pytest.param([refused(422)], None, Stage.BOOKED, id="it is found invalid for a while"),
        pytest.param([refused(404)], None, Stage.WAITING, id="it went as it was sent again"),
        pytest.param([refused(429), refused(500)], None, Stage.BOOKED, id="it takes a few tries"),
        pytest.param([refused(409)], None, Stage.BOOKED, id="a conflict that is over"),
    ],
)
async def test_how_the_search_ends(
    faults: list[Fault], happens: Callable[[World], None] | None, stage: Stage
) -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(after=1.0), *faults)

    async with background(world.bind(pod)):
        await passing(0.5)
        if happens is not None:
            happens(world)
        await passing(5.0)
    assert world.stage(pod) is stage
    assert bool(world.used()) == (stage is Stage.BOOKED)


async def test_a_refusal_is_no_proof_while_the_lost_binding_may_land() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(after=2.0, lands=5.0), *[refused(403)] * 10)

    assert await world.bind(pod) == ""

    assert world.stage(pod) is Stage.BOOKED
    assert world.used() == {"GPU-n1-a": 1000}


async def test_a_refusal_is_no_proof_while_a_repeat_without_an_answer_may_land() -> None:
    """The first was refused, so nothing of it lands; what was sent again may."""
    world, pod = await held()
    again = unanswered(after=2.0, lands=5.0)
    world.cluster.fail("bind", refused(409), again, *[refused(403)] * 10)

    assert await world.bind(pod) == ""

    assert world.stage(pod) is Stage.BOOKED
    assert world.used() == {"GPU-n1-a": 1000}


@pytest.mark.parametrize("status", [403, 409, 422])
async def test_a_refusal_is_believed_when_nothing_can_land_any_more(status: int) -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(after=2.0), *[refused(status)] * 1000)

    await world.bind(pod)
    await passing(50.0)
    assert world.stage(pod) is Stage.BINDING
    await passing(20.0)
    assert world.stage(pod) is Stage.WAITING
    assert world.used() == {}


async def test_a_conflict_that_nobody_can_explain_frees_the_cards() -> None:
    world, pod = await held()
    world.cluster.put({**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "x"}]}})

    assert "schedulingGates" in await world.bind(pod)

    assert world.used() == {}


async def test_a_pod_that_can_not_be_looked_at_keeps_its_cards() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(lands=0.0))
    world.cluster.fail("pod", refused(403), refused(404), refused(500))

    async with background(world.bind(pod)):
        for _ in range(3):
            await passing(0.4)
            assert world.used() == {"GPU-n1-a": 1000}
        await passing(1.0)
    assert world.stage(pod) is Stage.BOOKED


async def test_a_pod_that_ended_while_its_binding_was_out_is_gone_with_the_answer() -> None:
    world, pod = await held()
    world.cluster.slow("bind", 1.0)

    async with background(world.bind(pod)):
        await passing(0.5)
        world.mirror.see_pod(pod, deleted=True)
        assert world.used() == {"GPU-n1-a": 1000}
        await passing(1.0)
    assert world.stage(pod) is None
    assert world.used() == {}


# Several calls at once ----------------------------------------------------------------------------


async def test_two_binds_of_one_held_pod_send_one_binding() -> None:
    world, pod = await held()
    world.cluster.slow("bind", 1.0)

    answers = await asyncio.gather(world.bind(pod), world.bind(pod))

    assert answers == ["", IN_PROGRESS]
    assert world.cluster.called("bind") == 1


async def test_two_binds_of_one_unknown_pod_send_one_binding() -> None:
    world, pod = await one_node()
    world.cluster.slow("pod", 0.5)
    world.cluster.slow("bind", 1.0)

    answers = await asyncio.gather(world.bind(pod), world.bind(pod))

    assert answers == ["", IN_PROGRESS]
    assert world.cluster.called("bind") == 1


async def test_many_pods_bind_to_one_node_at_the_same_time() -> None:
    world, _ = await one_node()
    world.cluster.slow("bind", 1.0)
    pods = [world.cluster.put(build.pod(f"p{n}", gpumem=1000, policy="spread")) for n in range(8)]
    for pod in pods:
        world.chosen(pod, "n1")

    assert await asyncio.gather(*(world.bind(pod) for pod in pods)) == [""] * 8

    assert asyncio.get_running_loop().time() == pytest.approx(1.0, abs=0.01)
    assert world.used() == {"GPU-n1-a": 4000, "GPU-n1-b": 4000}


async def test_a_call_that_is_cancelled_leaves_its_binding_to_be_found_out() -> None:
    world, pod = await held()
    world.cluster.slow("bind", 1.0)
    task = asyncio.ensure_future(world.bind(pod))
    await passing(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert world.stage(pod) is Stage.BINDING
    await passing(3.0)
    assert world.stage(pod) is Stage.BOOKED


# Limits -------------------------------------------------------------------------------------------


async def test_too_many_bytes_of_annotations_are_not_bound() -> None:
    world, pod = await held(annotations={"note": "x" * (names.ANNOTATION_BYTES_AT_BIND - 100)})

    error = await world.bind(pod)

    assert "annotations would come to" in error
    assert str(names.ANNOTATION_BYTES_AT_BIND) in error
    assert world.cluster.called("bind") == 0
    assert world.used() == {}
    assert await world.reasons() == [EventReason.BINDING_FAILED]


async def test_the_largest_annotations_that_are_allowed_are_bound() -> None:
    world, pod = await held(annotations={"note": "x" * (names.ANNOTATION_BYTES_AT_BIND - 500)})

    assert await world.bind(pod) == ""


# SIGTERM ------------------------------------------------------------------------------------------


async def test_no_binding_is_sent_after_sigterm() -> None:
    world, pod = await held()
    world.controller.duty.stopping = True

    assert await world.bind(pod) == "the controller is stopping; ask again"
    assert world.cluster.called("bind") == 0


async def test_no_binding_is_sent_by_a_call_that_sigterm_finds_reading_the_pod() -> None:
    world, pod = await one_node()
    world.cluster.slow("pod", 1.0)
    task = asyncio.ensure_future(world.bind(pod))
    await passing(0.5)
    world.controller.duty.stopping = True

    assert await task == "the controller is stopping; ask again"
    assert world.cluster.called("bind") == 0
    assert world.used() == {}


async def test_a_lost_binding_is_not_sent_again_after_sigterm() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(after=1.0))
    task = asyncio.ensure_future(world.bind(pod))
    await passing(0.5)
    world.controller.duty.stopping = True

    assert (await task).startswith("the outcome of the Binding is not known yet")

    assert world.cluster.called("bind") == 1
    assert world.used() == {"GPU-n1-a": 1000}
    await world.controller.binder.stop()
    await passing(5.0)
    assert world.stage(pod) is Stage.BINDING


async def test_a_lost_binding_that_landed_is_found_after_sigterm() -> None:
    world, pod = await held()
    world.cluster.fail("bind", unanswered(after=1.0, lands=3.0))
    task = asyncio.ensure_future(world.bind(pod))
    await passing(0.5)
    world.controller.duty.stopping = True

    assert await task == ""
    assert world.stage(pod) is Stage.BOOKED


async def test_before_the_ledger_is_loaded_nothing_is_bound() -> None:
    world = World(build.gpunode(), build.pod())

    assert await world.bind(build.pod()) == "ledger not loaded yet; ask again"
    assert world.cluster.calls == []
