"""Section B of the field reports: what a Pod asks, and how it is read."""

from typing import Any

import pytest

import build
from cardwise.admission import admit
from cardwise.names import Reason
from cardwise.settings import Settings, parse
from controllers import World
from reports import fixtures
from reports.fixtures import got, load, one


@pytest.mark.parametrize(
    ("gpumem", "parts"),
    [
        pytest.param("16Gi", ["nvidia.com/gpumem", "MiB", '"16Gi"', "16384"], id="R17 a suffix"),
        pytest.param("2147483648", ["nvidia.com/gpumem"], id="R17 more than 31 bits"),
        pytest.param("1500m", ["nvidia.com/gpumem", '"1500m"'], id="R17 a fraction"),
    ],
)
def test_r17_an_amount_with_a_unit_is_denied_in_words(gpumem: str, parts: list[str]) -> None:
    """It never becomes a request for nothing, neither at admission nor where that was passed by.

    Red: in quantity.py let ``whole`` count a binary suffix as MiB.
    """
    pod = build.pod(gpumem=gpumem)
    full = [*fixtures.t4x1(), *load(g0="1/15360/0")]

    denial = admit(pod, Settings()).denial or ""

    assert [part for part in parts if part not in denial] == []
    assert one(*full, pod, admission=False)["reason"] == Reason.INVALID_REQUEST.value


def test_r17_what_the_api_server_makes_of_a_plain_number_is_read() -> None:
    """It stores 1000 as ``1k``.

    Red: in quantity.py leave ``k`` out of ``_POWER_OF_TEN``.
    """
    full = [*fixtures.t4x1(), *load(g0="1/15360/0")]

    answer = one(*full, build.pod(gpumem="1k"))

    assert answer["reason"] == Reason.MEMORY.value
    assert "1 card with 1000 MiB" in answer["message"]


def test_r18_who_leaves_out_the_memory_is_told_that_it_takes_the_whole_card() -> None:
    """The default is HAMi's, and kubectl says what it means.

    Red: in admission.py leave out ``_memory_warnings``.
    """
    answer = one(*fixtures.t4x1(), build.pod("p1"))

    assert answer["annotation"] == "GPU-g0,NVIDIA,15360,100:;"
    [warning] = answer["warnings"]
    assert "takes the whole card" in warning
    assert "nvidia.com/gpumem: 4096" in warning


async def test_r18_who_waits_is_told_who_holds_the_card() -> None:
    """The event names the holder and what is left.

    Red: in wire/cards_told.py leave ``_holders`` out of ``_memory``.
    """
    world = await World(*fixtures.t4x1(), *load(g0="1/15360/100")).load()

    world.filter(build.pod("p2", gpumem=1000), "n1")

    [(reason, note)] = await world.events()
    assert reason == Reason.MEMORY
    assert "GPU 0: default/g0-0" in note
    assert "largest free 0 MiB" in note


REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def refused(pod: fixtures.Json) -> fixtures.Json:
    """As the cluster's own kube-scheduler leaves it: ``Insufficient nvidia.com/gpumem``."""
    pod["status"]["conditions"] = [REFUSED]
    return pod


def bypassing(
    name: str = "p", scheduler: str = "default-scheduler", **fields: Any
) -> fixtures.Json:
    return refused(build.pod(name, scheduler=scheduler, **{"gpumem": 1000, **fields}))


async def test_r20_a_pod_that_passed_by_the_webhook_is_told_and_counted() -> None:
    """Both end with the Pod, though its deletion was never seen.

    Red: in controller/app.py don't make ``bypassed`` a follower of the mirror.
    """
    world = await World(*fixtures.t4x1()).load()
    for name in ("deleted", "vanished"):
        world.cluster.put(bypassing(name))
    world.deliver()
    assert b"\ncardwise_bypassed_pods 2.0\n" in world.controller.metrics.render()

    [*events] = await world.events()
    assert {reason for reason, _ in events} == {"WebhookBypassed"}
    assert "Create the Pod anew" in events[0][1]

    world.cluster.remove("Pod", "deleted", "default")
    world.deliver()
    assert len(world.controller.bypassed) == 1
    world.cluster.remove("Pod", "vanished", "default")
    await world.mirror.reconcile(world.cluster)
    assert b"\ncardwise_bypassed_pods 0.0\n" in world.controller.metrics.render()


GATES = parse("scheduling: {door: gates}")
BOTH = parse("scheduling: {bothDoors: true}")
GATED = {"gates": ["cardwise.dev/cards"]}


@pytest.mark.parametrize(
    ("pod", "settings"),
    [
        pytest.param(bypassing(), Settings(), id="R20 the default scheduler refused it"),
        pytest.param(bypassing(), GATES, id="R20 it has no gate of ours"),
        pytest.param(bypassing(gates=["kueue.x-k8s.io/q"]), GATES, id="R20 only another's gate"),
        pytest.param(
            bypassing(scheduler="cardwise-scheduler"), GATES, id="R20 no scheduler has that name"
        ),
        pytest.param(bypassing(gpumem="16Gi"), Settings(), id="R20 admission would have denied it"),
        pytest.param(
            bypassing(gpus=None), BOTH, id="R20 admission would have added the number of cards"
        ),
    ],
)
async def test_r20_who_has_passed_by(pod: fixtures.Json, settings: Settings) -> None:
    """What only admission could have made of it is missing.

    Red: in controller/followers/bypassed.py take every gate for ours.
    """
    world = await World(*fixtures.t4x1(), pod, settings=settings).load()

    assert len(world.controller.bypassed) == 1


@pytest.mark.parametrize(
    ("pod", "settings"),
    [
        pytest.param(bypassing(gpus=None, gpumem=None), Settings(), id="R20 it asks for no card"),
        pytest.param(bypassing(gpus=0, gpumem=None), Settings(), id="R20 it asks for 0 cards"),
        pytest.param(
            bypassing(labels={"hami.io/webhook": "ignore"}), Settings(), id="R20 it is exempt"
        ),
        pytest.param(bypassing(scheduler="volcano"), Settings(), id="R20 it is another's"),
        pytest.param(bypassing(scheduler="hami-scheduler"), Settings(), id="R20 it is HAMi's"),
        pytest.param(bypassing(scheduler="cardwise-scheduler"), BOTH, id="R20 it comes to us"),
        pytest.param(bypassing(**GATED), GATES, id="R20 it waits behind our gate"),
        pytest.param(bypassing(node="n1"), Settings(), id="R20 it is bound"),
        pytest.param(bypassing(terminating=True), Settings(), id="R20 it is being deleted"),
        pytest.param(
            build.pod(gpumem=1000, scheduler="default-scheduler"),
            Settings(),
            id="R20 nobody has looked at it yet",
        ),
    ],
)
async def test_r20_who_has_not_passed_by(pod: fixtures.Json, settings: Settings) -> None:
    """No other Pod is told that it should be created anew.

    Red: in controller/followers/bypassed.py let ``_is_refused`` not look at the conditions.
    """
    world = await World(*fixtures.t4x1(), pod, settings=settings).load()

    assert len(world.controller.bypassed) == 0


def two_sizes() -> fixtures.Json:
    small = build.card(0, uuid="GPU-small")
    return build.gpunode("n1", [small, build.card(1, uuid="GPU-big", memoryMiB=40960)])


@pytest.mark.parametrize(
    ("card", "mib"),
    [
        pytest.param("GPU-small", 3072, id="R21 of a small card"),
        pytest.param("GPU-big", 8192, id="R21 of a big one"),
    ],
)
def test_r21_a_percentage_is_of_the_card_that_is_chosen(card: str, mib: int) -> None:
    """It is booked in MiB.

    Red: in model.py let ``Ask.memory_on`` leave the percentage out.
    """
    pod = build.pod(percent=20, annotations={"nvidia.com/use-gpuuuid": card})

    assert one(two_sizes(), pod)["annotation"] == f"{card},NVIDIA,{mib},0:;"


def test_r21_a_percentage_of_0_is_none_so_the_whole_card_is_taken_and_told() -> None:
    """As docs/placement.md section 1 has it; nothing is booked as 0 MiB.

    Red: in wire/requests.py read a percentage of 0 as one.
    """
    answer = one(*fixtures.t4x1(), build.pod(percent=0))

    assert answer["annotation"] == "GPU-g0,NVIDIA,15360,100:;"
    assert "takes the whole card" in answer["warnings"][0]


def test_r23_all_cores_of_a_card_are_given_once() -> None:
    """Neither a third such Pod nor one without cores of its own gets on a card without any left.

    Red: in engine/candidates.py take ``_no_cores``, or ``_no_compute``, out of ``CHECKS``.
    """
    whole = {"policy": "binpack", "gpumem": 7000, "gpucores": 100}

    assert got(
        *fixtures.t4x2(),
        *fixtures.pods(2, **whole),
        build.pod("third", gpumem=100, gpucores=100),
        build.pod("idler", gpumem=100),
    ) == {
        "p0": ["g0"],
        "p1": ["g1"],
        "third": Reason.CORES.value,
        "idler": Reason.COMPUTE.value,
    }


async def test_a_pod_of_0_cards_does_not_wait_for_ever() -> None:
    """``nvidia.com/gpu: 0`` asks for nothing; kube-scheduler still leaves its Binding to us.

    Red: in controller/extender/service.py answer "the Pod asks for no card" instead of binding it.
    """
    world = await World(*fixtures.t4x1()).load()
    pod = world.cluster.put(build.pod(gpus=0))

    assert await world.bind(pod) == ""

    assert world.cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"
