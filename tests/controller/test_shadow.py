"""A shadow says where placed Pods would have gone, and writes nothing."""

import socket
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import build
import hami
from cardwise import names
from cardwise.cli.main import cardwise
from cardwise.names import NodeReason, Reason
from cardwise.settings import Migration, Scheduling, Settings
from controllers import World, passing

Json = dict[str, Any]
SHADOW = Settings(scheduling=Scheduling(shadow=True), migration=Migration(hamiNodes=True))
READS = {"unfinished_pods", "gpunodes", "nodes", "quotas", "device_classes"}


async def seen(made: World, *pods: Json) -> Json:
    """The report once these Pods, placed by somebody, were seen one after the other."""
    async with made.running():
        await passing(2)
        for pod in pods:
            made.cluster.put(pod)
            made.deliver()
            await passing(1)
        assert made.controller.shadow is not None
        return made.controller.shadow.report()


async def shadow(*documents: Json) -> World:
    return await World(*documents, settings=SHADOW).load()


def totals(report: Json) -> Json:
    return {result: number for result, number in report["totals"].items() if number}


@pytest.mark.parametrize(
    ("pod", "result", "where"),
    [
        pytest.param(
            hami.placed("p", ["GPU-b"], policy="binpack"), "same", None, id="the same card"
        ),
        pytest.param(
            hami.placed("p", ["GPU-d"], policy="mutex"), "other_card", "GPU-a", id="another card"
        ),
        pytest.param(
            hami.placed("p", ["GPU-d"], policy="mutex", annotations={names.NODE_POLICY: "spread"}),
            "other_node",
            "GPU-a",
            id="another node",
        ),
        pytest.param(
            hami.placed("p", ["GPU-b", "GPU-c"], policy="topology-aware"),
            "refused",
            None,
            id="refused",
        ),
        pytest.param(
            hami.placed("p", ["GPU-b"], percent="half"), "refused", None, id="a broken request"
        ),
    ],
)
async def test_each_placed_pod_is_compared_with_what_would_have_been(
    pod: Json, result: str, where: str | None
) -> None:
    made = await shadow(hami.node("n1"), hami.node("n2"), hami.placed("tenant", ["GPU-b"], when=1))
    first = await seen(made)

    report = await seen(made, pod)

    assert report["totals"][result] == first["totals"][result] + 1
    told = [line for line in report["differences"] if line["pod"] == "default/p"]
    assert [line["result"] for line in told] == ([] if result == "same" else [result])
    if where is not None:
        assert told[0]["cardwise"]["cards"] == ((where,),)


async def test_nothing_is_compared_before_the_nodes_cards_may_be_read() -> None:
    """The watches are waited for first; without nodes each Pod would count as refused."""
    made = await shadow(hami.node("n1", 1), hami.placed("p", ["GPU-a"], mib=15360))
    made.controller.duty.loaded = False
    async with made.running():
        assert made.controller.shadow is not None
        await passing(5)
        before = totals(made.controller.shadow.report())
        made.controller.duty.loaded = True
        await passing(5)
        after = totals(made.controller.shadow.report())

    assert (before, after) == ({}, {"same": 1})


async def test_a_pod_is_decided_as_if_it_were_not_there() -> None:
    """On its one card it is alone: with itself there, mutex would refuse it."""
    made = await shadow(hami.node("n1", 1))

    report = await seen(made, hami.placed("p", ["GPU-a"], policy="mutex", mib=15360))

    assert totals(report) == {"same": 1}


async def test_pods_of_before_are_compared_one_by_one_in_the_order_of_their_times() -> None:
    """As they came: b to card a, then a, which found a taken, to card b."""
    made = await shadow(
        hami.node("n1", 2),
        hami.placed("a", ["GPU-b"], policy="mutex", when=20),
        hami.placed("b", ["GPU-a"], policy="mutex", when=10),
    )

    assert totals(await seen(made)) == {"same": 2}


async def test_the_rules_of_nodes_are_kept_without_what_the_pod_itself_takes() -> None:
    tainted = hami.node("n1", 1)
    tainted["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    small = hami.node("n2", 1)
    small["status"]["allocatable"]["pods"] = "1"
    made = await shadow(tainted, small)

    report = await seen(
        made,
        hami.placed("p", ["GPU-a"], node="n2"),
        hami.placed("q", ["GPU-a"], node="n1"),
    )

    assert totals(report) == {"same": 1, "refused": 1}
    assert report["differences"][0]["reason"] in (NodeReason.TAINT, NodeReason.PODS)


async def test_a_pod_is_compared_once_whatever_happens_to_it_later() -> None:
    pod = hami.placed("p", ["GPU-a"])
    made = await shadow(hami.node("n1"))

    report = await seen(made, pod, pod, {**pod, "status": {"phase": "Running", "more": "x"}})

    assert sum(report["totals"].values()) == 1


async def test_only_pods_with_an_allocation_are_compared() -> None:
    made = await shadow(hami.node("n1"))

    report = await seen(made, build.pod("cpu", node="n1", gpus=None), build.pod("waits"))

    assert totals(report) == {}


async def test_nothing_is_written_whatever_is_seen() -> None:
    made = await shadow(hami.node("n1"), hami.placed("p", ["GPU-d"]))
    broken = hami.placed("broken", ["GPU-a"], annotations={names.ALLOCATED: "GPU-a,NVIDIA,x,0:;"})

    async with made.running():
        made.cluster.put(broken)
        made.deliver()
        await passing(700)

    assert {call[0] for call in made.cluster.calls} <= READS
    assert made.ledger.view("n1").problem is Reason.NODE_UNREADABLE


async def test_the_nodes_stay_known_though_no_list_shows_them() -> None:
    made = await shadow(hami.node("n1"))

    async with made.running():
        await passing(650)  # two lists

    assert len(made.ledger.view("n1").uuids) == 4
    assert made.ledger.view("n1").problem is None


async def test_the_report_is_bounded_and_the_totals_go_on() -> None:
    made = await shadow(hami.node("n1", 1), hami.node("n2", 1))
    pods = [hami.placed(f"p{n}", ["GPU-a"], node="n2", mib=1, when=n) for n in range(300)]
    for pod in pods:
        made.cluster.put(pod)

    made.deliver()
    report = await seen(made)

    assert sum(report["totals"].values()) == 200, "of those from before, the newest"
    assert len(report["differences"]) <= 1000


async def test_the_table_says_where_each_pod_is_and_where_it_would_be() -> None:
    made = await shadow(hami.node("n1"))
    report = await seen(made, hami.placed("p", ["GPU-d"], policy="mutex"))

    ran = CliRunner().invoke(cardwise, ["shadow-report", "-"], input=orjson.dumps(report))

    assert ran.exit_code == 0, ran.output
    assert "0 same, 1 other card, 0 other node, 0 refused" in ran.output
    (line,) = (line for line in ran.output.splitlines() if "default/p" in line)
    assert line.split() == ["default/p", "n1", "GPU-d", "n1", "GPU-a", "mutex", "other", "card"]


@pytest.mark.parametrize("body", ["", "[]", "{}", "no"], ids=["empty", "a list", "another", "text"])
def test_what_is_no_report_is_one_sentence_and_status_two(body: str) -> None:
    ran = CliRunner().invoke(cardwise, ["shadow-report", "-"], input=body)

    assert ran.exit_code == 2
    assert "Traceback" not in ran.output


def test_a_shadow_that_nobody_forwards_to_is_told_with_the_command_that_opens_the_way() -> None:
    with socket.socket() as nobody:  # it has a port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/shadow"
        ran = CliRunner().invoke(cardwise, ["shadow-report", url])

    assert ran.exit_code == 2
    assert "Connection refused" in ran.output
    assert "port-forward deployment/cardwise-shadow 9395" in ran.output


async def test_the_counter_has_the_result() -> None:
    made = await shadow(hami.node("n1"))
    await seen(made, hami.placed("p", ["GPU-d"], policy="mutex"))

    text = made.controller.metrics.render().decode()
    assert 'cardwise_shadow_total{result="other_card"} 1.0' in text
