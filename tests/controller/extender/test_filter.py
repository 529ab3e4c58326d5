"""Every promise of /filter."""

from typing import Any

import pytest

import build
from cardwise.controller.extender.service import IN_PROGRESS
from cardwise.ledger import HOLD_SECONDS, Stage
from cardwise.names import EventReason, Reason
from cardwise.wire import extender
from controllers import World, background, passing

MUTEX = {"policy": "mutex,binpack", "gpumem": 1000}


async def two_nodes(*more: dict[str, Any]) -> World:
    """n1 and n2 with two cards each; n1 has a tenant, so that binpack prefers it."""
    tenant = build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a"))
    return await World(build.gpunode("n1", 2), build.gpunode("n2", 2), tenant, *more).load()


async def test_the_one_chosen_node_is_answered_and_held() -> None:
    world = await two_nodes()
    pod = build.pod(gpumem=1000)

    answer = world.filter(pod, "n1", "n2")

    assert answer == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert world.stage(pod) is Stage.HELD
    assert world.used("n1") == {"GPU-n1-a": 1000, "GPU-n1-b": 1000}
    assert world.used("n2") == {}
    assert world.cluster.called("bind") == 0


@pytest.mark.parametrize(
    ("pod", "names", "want"),
    [
        pytest.param(
            build.pod(gpus=3),
            ["n1", "n2"],
            dict.fromkeys(["n1", "n2"], Reason.NODE_TOO_FEW_CARDS),
            id="more cards than any node has",
        ),
        pytest.param(
            build.pod(gpumem=1000),
            ["nobody", "n9"],
            dict.fromkeys(["nobody", "n9"], Reason.NODE_HAS_NO_CARDS),
            id="names that the cluster does not know are refused, not an error",
        ),
        pytest.param(
            build.pod(gpumem=20000),
            ["n1", "bare", "silent"],
            {
                "n1": Reason.MEMORY,
                "bare": Reason.NODE_HAS_NO_CARDS,
                "silent": Reason.NODE_NOT_REPORTED,
            },
            id="each node has its own word",
        ),
        pytest.param(
            build.pod(gpumem="16Gi"),
            ["n1", "n2"],
            dict.fromkeys(["n1", "n2"], Reason.INVALID_REQUEST),
            id="a request that can't be read is refused everywhere",
        ),
        pytest.param(build.pod(), [], {}, id="no node asked about"),
    ],
)
async def test_all_refusals_are_unresolvable(
    pod: dict[str, Any], names: list[str], want: dict[str, str]
) -> None:
    world = await two_nodes(build.node_object("bare"), build.node_object("silent", gpus=4))

    answer = world.filter(pod, *names)

    assert answer["FailedAndUnresolvableNodes"] == want
    assert (answer["FailedNodes"], answer["NodeNames"], answer["Error"]) == ({}, [], "")
    assert world.stage(pod) is Stage.WAITING
    assert world.used("n1") == {"GPU-n1-a": 1000}


async def test_a_pod_without_a_gpu_request_passes_all_nodes_and_holds_nothing() -> None:
    world = await two_nodes()
    pod = build.pod(gpus=None)

    answer = world.filter(pod, "n1", "nobody")

    assert answer["NodeNames"] == ["n1", "nobody"]
    assert answer["FailedAndUnresolvableNodes"] == {}
    assert world.entry(pod) is None


async def test_nodes_are_answered_as_nodes() -> None:
    world = await two_nodes()
    nodes = [build.node_object("n2"), build.node_object("n1"), build.node_object("n3")]
    body = {"Pod": build.pod(gpumem=1000), "Nodes": {"items": nodes}}

    answer = world.controller.scheduler.filter(extender.filter_call(body))

    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == [nodes[1]]
    assert answer["FailedAndUnresolvableNodes"] == {"n3": Reason.NODE_HAS_NO_CARDS}


@pytest.mark.parametrize(("others", "told"), [(99, 99), (100, 0)])
async def test_where_one_of_many_nodes_fits_no_word_of_the_others_is_told(
    others: int, told: int
) -> None:
    # Red: a fitting answer tells of all, or of none.
    world = await two_nodes()
    names = [f"cpu-{number}" for number in range(others)]

    answer = world.filter(build.pod(gpumem=1000), "n1", *names)

    assert answer["NodeNames"] == ["n1"]
    assert len(answer["FailedAndUnresolvableNodes"]) == told


async def test_before_the_ledger_is_loaded_the_answer_is_an_error() -> None:
    world = World(build.gpunode())

    answer = world.filter(build.pod(), "n1")

    assert answer["Error"] == "ledger not loaded yet; ask again"
    assert not answer["NodeNames"]
    assert list(world.ledger.entries()) == []


async def test_while_it_stops_the_answer_is_an_error() -> None:
    world = await two_nodes()
    world.controller.duty.stopping = True

    assert world.filter(build.pod(), "n1")["Error"] == "the controller is stopping; ask again"


async def test_while_a_bind_is_in_flight_the_answer_is_an_error() -> None:
    world = await two_nodes()
    pod = world.cluster.put(build.pod(gpumem=1000))
    world.cluster.slow("bind", 1.0)
    world.chosen(pod, "n1")

    async with background(world.bind(pod, "n1")):
        await passing(0.5)
        assert world.filter(pod, "n1", "n2")["Error"] == IN_PROGRESS
        await passing(1.0)
    assert world.filter(pod, "n1", "n2")["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("names", "kept", "error"),
    [
        pytest.param(["n2", "n1"], ["n1"], "", id="its own node among others"),
        pytest.param(["n2"], [], "the Pod is bound to n1 already", id="its own node not asked"),
    ],
)
async def test_a_booked_pod_is_answered_its_node(
    names: list[str], kept: list[str], error: str
) -> None:
    pod = build.pod(gpumem=1000, node="n1", allocated=build.allocation("GPU-n1-b"))
    world = await two_nodes(pod)
    stale = build.pod(gpumem=1000)  # as kube-scheduler had it before the Binding

    answer = world.filter(stale, *names)

    assert (answer["NodeNames"] or [], answer["Error"]) == (kept, error)
    assert world.used("n1") == {"GPU-n1-a": 1000, "GPU-n1-b": 1000}


async def test_a_new_filter_ends_the_hold_of_the_last() -> None:
    world = await two_nodes()
    pod = build.pod(gpumem=1000)
    world.chosen(pod, "n1")

    assert world.chosen(pod, "n2") == "n2"
    assert world.used("n1") == {"GPU-n1-a": 1000}
    assert world.used("n2") == {"GPU-n2-a": 1000}

    assert world.filter(build.pod(gpus=9), "n1")["NodeNames"] == []
    assert world.used("n2") == {}


async def test_two_pods_are_never_decided_on_the_same_room() -> None:
    world = await two_nodes()
    first, second, third = (build.pod(name, **MUTEX) for name in ("a", "b", "c"))

    assert world.chosen(first, "n1", "n2") == "n1"
    assert world.chosen(second, "n1", "n2") == "n2"
    assert world.chosen(third, "n1", "n2") == "n2"
    answer = world.filter(build.pod("d", **MUTEX), "n1", "n2")
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(["n1", "n2"], Reason.EXCLUSIVE)


async def test_a_hold_that_nobody_comes_back_for_ends() -> None:
    world = await two_nodes()
    pod = build.pod(gpumem=1000)
    world.chosen(pod, "n2")

    async with world.running():
        await passing(HOLD_SECONDS - 10)
        # The agents report all the while.
        world.mirror.see_gpunode(build.gpunode("n1", 2, reported_at="2"))
        world.mirror.see_gpunode(build.gpunode("n2", 2, reported_at="2"))
        assert world.used("n2") == {"GPU-n2-a": 1000}
        await passing(15)
        assert world.used("n2") == {}
    assert world.stage(pod) is Stage.WAITING


# Events -------------------------------------------------------------------------------------------


async def test_a_refusal_posts_the_leading_reason_with_its_account() -> None:
    world = await two_nodes()

    world.filter(build.pod(gpumem=16000), "n1", "n2")

    [(reason, note)] = await world.events()
    assert reason == Reason.MEMORY
    assert "0/2 candidate nodes can take 1 card with 16000 MiB" in note
    assert world.cluster.events()[0]["type"] == "Warning"


async def test_a_refusal_of_the_nominated_node_alone_posts_no_event() -> None:
    world = await two_nodes()
    pod = build.pod(gpumem=16000)
    pod["status"]["nominatedNodeName"] = "n1"

    world.filter(pod, "n1")
    assert await world.events() == []

    world.filter(pod, "n1", "n2")
    assert await world.reasons() == [Reason.MEMORY]


async def test_an_invalid_request_is_told_what_to_write() -> None:
    world = await two_nodes()

    world.filter(build.pod(gpumem="16Gi"), "n1")
    world.filter(build.pod(gpumem="16Gi"), "n1")

    [(reason, note)] = await world.events()
    assert reason == Reason.INVALID_REQUEST
    assert "nvidia.com/gpumem" in note
    assert "16Gi" in note


async def test_an_invalid_request_gives_up_the_hold_it_had() -> None:
    world = await two_nodes()
    world.chosen(build.pod(gpumem=1000), "n2")

    world.filter(build.pod(gpumem="16Gi"), "n2")

    assert world.used("n2") == {}


@pytest.mark.parametrize(
    ("chain", "hint"),
    [
        pytest.param("mutx,binpack", "Did you mean mutex?", id="with the nearest name"),
        pytest.param("qqqqqqqqqqq,binpack", "", id="with none where nothing is near"),
    ],
)
async def test_unknown_policy_names_are_told(chain: str, hint: str) -> None:
    world = await two_nodes()
    pod = build.pod(gpumem=1000, policy=chain)

    world.chosen(pod, "n1")
    world.chosen(pod, "n1")

    [(reason, note)] = await world.events()
    assert reason == EventReason.UNKNOWN_POLICY
    assert chain.partition(",")[0] in note
    assert "In force: binpack." in note
    assert hint in note
    assert ("Did you mean" in note) == bool(hint)


async def test_a_quota_refusal_tells_the_quota() -> None:
    world = await two_nodes(build.quota(gpumem=1500))

    answer = world.filter(build.pod(gpumem=1000), "n1", "n2")

    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(["n1", "n2"], Reason.QUOTA)
    [(reason, note)] = await world.events()
    assert reason == Reason.QUOTA
    assert "1500" in note


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build.pod(gpumem=16000), id="a refusal"),
        pytest.param(build.pod(gpumem="16Gi"), id="an invalid request"),
        pytest.param(build.pod(gpumem=1000, policy="mutx"), id="an unknown policy name"),
    ],
)
async def test_what_was_told_within_the_minute_is_only_counted(pod: dict[str, Any]) -> None:
    world = await two_nodes()
    async with background(world.controller.recorder.run()):
        for _ in range(4):
            world.filter(pod, "n1", "n2")
            await passing(25.0)

    [event] = world.cluster.events()
    assert world.cluster.called("create_event") == 1
    assert world.cluster.called("count_event") == 1
    assert event["series"]["count"] == 4


async def test_a_pod_without_a_uid_is_known_by_its_name() -> None:
    world = await two_nodes()
    first, second = build.pod("a", uid="", **MUTEX), build.pod("b", uid="", **MUTEX)

    assert world.chosen(first, "n1", "n2") == "n1"
    assert world.chosen(second, "n1", "n2") == "n2"
    assert world.chosen(first, "n1", "n2") == "n1"
    assert world.used("n1") == {"GPU-n1-a": 1000, "GPU-n1-b": 1000}


# The log ------------------------------------------------------------------------------------------


def score_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = "\n".join(caplog.messages).splitlines()
    return [line for line in lines if "computer score is" in line]


async def test_the_chosen_nodes_cards_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = await two_nodes()
    caplog.set_level("INFO")

    world.chosen(build.pod(gpumem=1000), "n1", "n2")

    assert score_lines(caplog) == [
        "pod=default/p node=n1 gpu=0 uuid=GPU-n1-a computer score is 1.651042 kept",
        "pod=default/p node=n1 gpu=1 uuid=GPU-n1-b computer score is 0.000000 kept",
    ]


async def test_a_refusal_is_logged_once_until_its_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await two_nodes()
    caplog.set_level("INFO")
    full = build.pod(gpumem=16000)

    world.filter(full, "n1", "n2")
    assert len(score_lines(caplog)) == 4
    world.filter(full, "n1", "n2")
    assert len(score_lines(caplog)) == 4
    world.filter(build.pod(gpus=9), "n1", "n2")
    assert "fits on none of 2 nodes: NodeInsufficientDevice" in caplog.text


@pytest.mark.parametrize(
    ("level", "want"),
    [
        pytest.param("WARNING", 0, id="nothing above info"),
        pytest.param("INFO", 20, id="twenty nodes"),
        pytest.param("DEBUG", 25, id="every node at debug level"),
    ],
)
async def test_no_more_nodes_are_logged_than_promised(
    caplog: pytest.LogCaptureFixture, level: str, want: int
) -> None:
    names = [f"n{number:02}" for number in range(25)]
    world = await World(*(build.gpunode(name, 1) for name in names)).load()
    caplog.set_level(level)

    world.filter(build.pod(gpumem=16000), *names)

    assert len(score_lines(caplog)) == want
