"""Nodes that HAMi's device plugin serves have a GPUNode, until an agent of ours reports."""

from typing import Any

import pytest

import build
import hami
from cardwise import names
from cardwise.names import Reason
from cardwise.settings import Migration, Settings
from controllers import World, passing
from fakes.cluster import refused

Json = dict[str, Any]
ON = Settings(migration=Migration(hamiNodes=True))


async def world(*documents: Json, settings: Settings = ON) -> World:
    """A world that has looked at HAMi's nodes once."""
    made = await World(*documents, settings=settings).load()
    await look(made)
    return made


async def look(made: World) -> None:
    """What is due is written, and comes back by the watch."""
    await made.controller.hami_nodes.write_some()
    made.deliver()


async def agent_reports(made: World, cards: int = 4) -> None:
    """An agent of ours takes the node over."""
    status = build.gpunode("n1", cards, prefix="GPU-")["status"]
    await made.cluster.apply_gpunode_status("n1", status, names.MANAGER_AGENT)
    document = made.cluster.get("GPUNode", "n1")
    document["metadata"]["managedFields"] = [{"manager": names.MANAGER_AGENT}]
    made.cluster.put(document)
    made.deliver()


def names_of(made: World) -> list[str]:
    return [name for _, name in made.cluster.objects["GPUNode"]]


async def test_a_node_of_hamis_is_usable_and_its_pods_count_from_the_first_second() -> None:
    tenant = hami.placed("theirs", ["GPU-a"])
    made = await world(hami.node("n1", 2), tenant)

    ours = build.pod("ours", gpumem=1000, policy="mutex")
    made.cluster.put(ours)

    assert made.chosen(ours, "n1") == "n1"
    assert set(made.used()) == {"GPU-a", "GPU-b"}
    assert made.ledger.account("n1").report.by_hami


@pytest.mark.parametrize(
    ("phase", "terminating", "counts"),
    [
        pytest.param("Pending", False, True, id="bound, and not started"),
        pytest.param("Running", True, True, id="terminating"),
        pytest.param("Succeeded", False, False, id="ended well"),
        pytest.param("Failed", False, False, id="failed"),
    ],
)
async def test_a_pod_of_hamis_holds_its_cards_as_long_as_it_may_run(
    phase: str, terminating: bool, counts: bool
) -> None:
    pod = hami.placed("theirs", ["GPU-a"], phase=phase, terminating=terminating)
    made = await world(hami.node("n1", 2), pod)

    assert made.used() == ({"GPU-a": 1000} if counts else {})


async def test_a_mig_instance_of_hamis_counts_as_its_text_says() -> None:
    pod = hami.placed(
        "theirs", ["GPU-a"], mib=9984, annotations={"hami.io/vgpu-mig-allocations": "[]"}
    )
    made = await world(hami.node("n1", [hami.device(0, mode="mig"), hami.device(1)]), pod)

    assert made.used() == {"GPU-a": 9984}


async def test_the_heartbeat_is_refreshed_so_that_the_node_is_never_stale() -> None:
    made = await world(hami.node("n1"))
    first = made.cluster.get("GPUNode", "n1")["status"]["reportedAt"]

    async with made.running():
        for _ in range(20):
            await passing(30)
            made.deliver()

    assert made.cluster.get("GPUNode", "n1")["status"]["reportedAt"] != first
    assert made.ledger.view("n1").problem is None


async def test_a_node_that_offers_no_card_any_more_keeps_an_empty_gpunode() -> None:
    made = await world(hami.node("n1"))

    made.cluster.put(hami.node("n1", gpus=0))
    made.deliver()
    await look(made)

    status = made.cluster.get("GPUNode", "n1")["status"]
    assert "cards" not in status or not status["cards"]
    assert status["conditions"][0]["reason"] == "NotAdvertised"


@pytest.mark.parametrize("how", ["the annotation goes", "the Node goes"])
async def test_where_nothing_is_registered_any_more_the_gpunode_goes(how: str) -> None:
    made = await world(hami.node("n1"))

    if how == "the Node goes":
        made.cluster.remove("Node", "n1")
    else:
        made.cluster.put(build.node_object("n1", gpus=40))
    made.deliver()
    await look(made)

    assert names_of(made) == []


async def test_where_an_administrator_wrote_into_it_only_ours_is_given_up() -> None:
    made = await world(hami.node("n1"))
    made.cluster.put({**made.cluster.get("GPUNode", "n1"), "spec": {"cordonedCards": ["GPU-a"]}})
    made.cluster.put(build.node_object("n1"))
    made.deliver()
    await look(made)

    left = made.cluster.get("GPUNode", "n1")
    assert left["spec"] == {"cordonedCards": ["GPU-a"]}
    assert "labels" not in left["metadata"]
    assert not left.get("status", {}).get("cards")


async def test_with_the_setting_off_none_is_built_and_what_was_built_goes() -> None:
    made = await world(hami.node("n1"))
    again = await World(cluster=made.cluster, settings=Settings()).load()
    await look(again)

    assert names_of(again) == []


async def test_with_the_setting_off_an_agents_gpunode_stays() -> None:
    made = await world(build.gpunode("n1"), build.node_object("n1"), settings=Settings())

    assert names_of(made) == ["n1"]


async def test_an_agent_takes_over_and_ours_is_given_up_but_for_the_owner() -> None:
    made = await world(hami.node("n1"))

    await agent_reports(made, cards=3)
    await look(made)

    document = made.cluster.get("GPUNode", "n1")
    assert "labels" not in document["metadata"]
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
    assert [card["uuid"] for card in document["status"]["cards"]] == ["GPU-a", "GPU-b", "GPU-c"]
    assert not made.ledger.account("n1").report.by_hami


async def test_an_agents_values_are_never_overwritten_though_its_report_was_not_seen_yet() -> None:
    made = await world(hami.node("n1"))
    status = build.gpunode("n1", 2, prefix="GPU-", memory=8192)["status"]
    await made.cluster.apply_gpunode_status("n1", status, names.MANAGER_AGENT)

    await passing(61)  # the heartbeat is due, and the watch has shown nothing
    await made.controller.hami_nodes.write_some()

    cards = made.cluster.get("GPUNode", "n1")["status"]["cards"]
    assert cards[0]["memoryMiB"] == 8192


async def test_after_an_agent_the_annotation_that_hami_left_builds_nothing() -> None:
    made = await world(hami.node("n1"))
    await agent_reports(made)
    await look(made)
    written = made.cluster.called("apply_gpunode")

    await passing(300)
    await look(made)

    assert made.cluster.called("apply_gpunode") == written


async def test_what_can_not_be_read_is_said_once_and_closes_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = hami.node("n1")
    broken["metadata"]["annotations"][names.NODE_REGISTER] = "GPU-a,10:"
    made = await world(broken, hami.node("n2", [hami.device(7)]))
    for _ in range(3):
        await passing(61)
        await look(made)

    said = [r.getMessage() for r in caplog.records if "node n1 of HAMi's" in r.getMessage()]
    assert len(said) == 1
    assert names.NODE_REGISTER in said[0]
    assert made.ledger.view("n2").problem is None
    refusals = made.filter(build.pod("p"), "n1")["FailedAndUnresolvableNodes"]
    assert refusals["n1"] == Reason.NODE_TOO_FEW_CARDS


async def test_without_the_rights_it_is_said_once_and_placement_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = World(hami.node("n1"), hami.node("n2"), build.gpunode("n3"), settings=ON)
    made.cluster.fail("apply_gpunode", *[refused(403)] * 6)
    await made.load()
    for _ in range(3):
        await look(made)
        await passing(61)

    assert sum("can't be written or withdrawn" in r.getMessage() for r in caplog.records) == 1
    assert made.chosen(build.pod("p"), "n3") == "n3"
