"""The GPUNode definition on a real API server: what it takes and refuses, what kubectl shows."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import build
from cardwise.agent.probe import probe
from cardwise.agent.simulated import PROFILES, SimulatedNvml, shipped
from cardwise.kube import connect
from cardwise.kube.gpunodes import KubeGPUNodes
from cardwise.model import NodeOverrides
from cardwise.names import MANAGER_AGENT, MANAGER_CONTROLLER
from cardwise.settings import Agent
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.gpunodes_written import document_of, report_of, usage_of
from controlplane.launcher import ControlPlane, KubectlOutput

CRD = Path(__file__).parents[2] / "crds/gpunodes.yaml"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    with ControlPlane.start(kwok=False, controller_manager=False) as plane:
        plane.apply(CRD)
        plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"-f={CRD}")
        plane.apply([plain("n1")])
        yield plane


def plain(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "cardwise.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": spec,
    }


def report(
    cp: ControlPlane, status: Json, name: str = "n1", manager: str = MANAGER_AGENT
) -> KubectlOutput:
    """Server-side apply of a status, as ``kubectl`` does it; the answer, also of a refusal."""
    document = {**plain(name), "status": status}
    del document["spec"]
    return cp.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        f"--field-manager={manager}",
        "--subresource=status",
        "-f=-",
        stdin=json.dumps(document),
        check=False,
    )


def stored(cp: ControlPlane, name: str = "n1") -> Json:
    document: Json = json.loads(cp.kubectl("get", "gn", name, "-o=json"))
    return document


def status(**fields: Any) -> Json:
    return {**build.gpunode(links=[(0, 1, 4, "PHB")])["status"], **fields}


# What it takes ------------------------------------------------------------------------------------


def test_a_full_gpunode_is_taken_and_reads_back_as_it_was_written(cp: ControlPlane) -> None:
    spec = {
        "cordonedCards": ["GPU-c"],
        "slotsPerCard": 10,
        "memoryScaling": 1.5,
        "coreScaling": 1.0,
        "memoryMiB": 24576,
        "mode": "hami-core",
    }
    cp.apply([plain("full", **spec)])
    written = status(driverVersion="580.65.06")

    assert report(cp, written, "full").strip() == "gpunode.cardwise.dev/full serverside-applied"

    assert stored(cp, "full")["spec"] == spec
    assert stored(cp, "full")["status"] == written


def test_a_card_of_three_fields_gets_the_defaults_that_the_codec_has(cp: ControlPlane) -> None:
    bare = {
        "cards": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 15360}],
        "links": [{"between": [0, 1]}],
    }

    report(cp, bare)

    document = stored(cp)
    assert document["status"]["cards"] == [
        {
            "uuid": "GPU-a",
            "index": 0,
            "memoryMiB": 15360,
            "cores": 100,
            "slots": 10,
            "mode": "hami-core",
            "healthy": True,
        }
    ]
    assert document["status"]["links"] == [{"between": [0, 1], "nvlinks": 0}]
    assert gpunode_of(document) == gpunode_of({**plain("n1"), "status": bare})


@pytest.mark.parametrize("profile", PROFILES)
def test_a_shipped_profile_is_taken_as_written_and_as_the_agent_reports_it(
    cp: ControlPlane, profile: str
) -> None:
    written = yaml.safe_load(shipped(profile))["status"]
    readings = SimulatedNvml(profile, node="n1").load()
    said = probe("n1", readings, Agent(), NodeOverrides())

    assert report(cp, written).strip() == "gpunode.cardwise.dev/n1 serverside-applied"
    reported = report_of(said.node, driver_version=said.driver_version, conditions=said.conditions)
    assert report(cp, reported).strip() == "gpunode.cardwise.dev/n1 serverside-applied"
    assert stored(cp)["status"] == reported


def test_sixty_four_cards_with_all_pairs_are_within_the_servers_limits(cp: ControlPlane) -> None:
    cards = [build.card(index, uuid=f"GPU-{index:0>124}") for index in range(64)]
    full = {"cards": cards, "links": build.all_links(64, 18, "NODE")}

    assert report(cp, full).strip() == "gpunode.cardwise.dev/n1 serverside-applied"


# What it refuses ----------------------------------------------------------------------------------


def card(**fields: Any) -> Json:
    return status(cards=[{"uuid": "GPU-a", "index": 0, "memoryMiB": 1, **fields}])


def link(**fields: Any) -> Json:
    return status(links=[{"between": [0, 1], **fields}])


def without(field: str) -> Json:
    spoilt = copy.deepcopy(status())
    del spoilt["cards"][0][field]
    return spoilt


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(
            status(cards=[build.card(0), {**build.card(1), "index": 0}]),
            "status.cards: Invalid value: two cards have the same index, and every card has its",
            id="the same index twice",
        ),
        pytest.param(
            status(links=[*build.all_links(36)[:-1], build.link(35, 0)]),
            "status.links: Invalid value: two links join the same two cards, and each pair stands",
            id="the same pair in both orders, among all pairs of 36 cards",
        ),
        pytest.param(
            status(links=[build.link(2, 1), build.link(0, 1), build.link(2, 1)]),
            "status.links: Invalid value: two links join the same two cards, and each pair stands",
            id="the same pair in the same order",
        ),
        pytest.param(
            status(links=[build.link(1, 1)]),
            "status.links: Invalid value: a link names one card twice, and a link joins two",
            id="a card with itself",
        ),
        pytest.param(without("index"), "status.cards[0].index: Required value", id="no index"),
        pytest.param(
            without("memoryMiB"), "status.cards[0].memoryMiB: Required value", id="no memory"
        ),
        pytest.param(card(uuid="GPU-a:b"), "status.cards[0].uuid: Invalid value", id="colon"),
        pytest.param(card(uuid="x" * 129), "status.cards[0].uuid: Too long", id="long uuid"),
        pytest.param(card(index=-1), "status.cards[0].index: Invalid value", id="negative index"),
        pytest.param(card(memoryMiB=-1), "status.cards[0].memoryMiB: Invalid value", id="size"),
        pytest.param(card(memoryMiB="1k"), "memoryMiB: expected numeric", id="size as text"),
        pytest.param(card(cores=-1), "status.cards[0].cores: Invalid value", id="cores"),
        pytest.param(card(slots=-1), "status.cards[0].slots: Invalid value", id="slots"),
        pytest.param(card(numaNode=-1), "status.cards[0].numaNode: Invalid value", id="NUMA"),
        pytest.param(card(mode="vgpu"), "status.cards[0].mode: Unsupported value", id="mode"),
        pytest.param(card(healthy="no"), "healthy: expected boolean", id="healthy"),
        pytest.param(
            status(cards=[build.card(index) for index in range(65)]),
            "status.cards: Too many: 65: must have at most 64 items",
            id="65 cards",
        ),
        pytest.param(link(between=[0]), "status.links[0].between: Invalid value", id="one end"),
        pytest.param(link(between=[0, 1, 2]), "status.links[0].between: Too many", id="three ends"),
        pytest.param(link(nvlinks=65), "status.links[0].nvlinks: Invalid value", id="65 NVLinks"),
        pytest.param(link(path="pix"), "status.links[0].path: Unsupported value", id="path"),
        pytest.param(status(reportedAt="now"), "status.reportedAt: Invalid value", id="time"),
        pytest.param(
            status(conditions=[{"type": "Ready", "status": "yes"}]),
            "status.conditions[0].status: Unsupported value",
            id="status of a condition",
        ),
    ],
)
def test_a_bad_report_is_refused_with_its_message(
    cp: ControlPlane, bad: Json, message: str
) -> None:
    assert message in report(cp, bad).stderr


def test_the_same_uuid_twice_is_refused(cp: ControlPlane) -> None:
    """By a plain write: server-side apply already stumbles over a key that is there twice."""
    document = stored(cp)
    document["status"] = status(cards=[build.card(0), build.card(1, uuid="GPU-a")])

    refused = cp.kubectl(
        "replace", "--subresource=status", "-f=-", stdin=json.dumps(document), check=False
    )

    assert "two cards have the same uuid, and every card has its own" in refused.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"slotsPerCard": 0}, "spec.slotsPerCard: Invalid value", id="no slot"),
        pytest.param({"memoryScaling": 0}, "spec.memoryScaling: Invalid value", id="factor 0"),
        pytest.param({"coreScaling": 101}, "spec.coreScaling: Invalid value", id="factor 101"),
        pytest.param({"memoryMiB": 0}, "spec.memoryMiB: Invalid value", id="no memory"),
        pytest.param({"mode": "MIG"}, "spec.mode: Unsupported value", id="mode"),
        pytest.param({"cordonedCards": ["a", "a"]}, "cordonedCards", id="a card cordoned twice"),
        pytest.param({"slots": 3}, 'unknown field "spec.slots"', id="an unknown field"),
    ],
)
def test_a_bad_spec_is_refused_with_its_message(cp: ControlPlane, spec: Json, message: str) -> None:
    refused = cp.kubectl("create", "-f=-", stdin=json.dumps(plain("bad", **spec)), check=False)

    assert message in refused.stderr
    assert "bad" not in cp.kubectl("get", "gn", "-o=name")


# Who writes what, and what is shown ---------------------------------------------------------------


def test_kubectl_shows_the_columns_from_the_controllers_summary(cp: ControlPlane) -> None:
    document = build.gpunode("shown", cards=2)
    cp.apply([plain("shown")])
    report(cp, document["status"], "shown")
    report(cp, usage_of(gpunode_of(document), {}, {}), "shown", MANAGER_CONTROLLER)

    header, row = (line.split() for line in cp.kubectl("get", "gn", "shown").splitlines())

    assert header == ["NAME", "CARDS", "MODEL", "HEALTHY", "SLOTS", "MEMORY", "AGE"]
    assert row[:-1] == ["shown", "2", "NVIDIA-Tesla", "T4", "2", "0/20", "0/30720"]


async def test_agent_and_controller_write_beside_each_other(cp: ControlPlane) -> None:
    node = gpunode_of(build.gpunode("both", cards=2, links=[(0, 1, 4, "PHB")]))
    client = await connect(str(cp.admin_kubeconfig))
    store = KubeGPUNodes(client)
    try:
        assert await store.get("both") is None
        assert await store.apply_status("both", {}, MANAGER_AGENT) is None
        await store.create("both")
        assert await store.get("both") is None, "it would outlive its Node, which is not there"
        add_node(cp, "both")
        await store.create("both")
        await store.create("both")
        await store.apply_status("both", report_of(node, driver_version="1"), MANAGER_AGENT)
        await store.apply_status("both", usage_of(node, {}, {}), MANAGER_CONTROLLER)
        fewer = gpunode_of(build.gpunode("both", cards=1))
        after = await store.apply_status(
            "both", report_of(fewer, driver_version="2"), MANAGER_AGENT
        )
    finally:
        await client.close()

    assert after is not None
    assert gpunode_of(after) == fewer
    assert after["status"]["driverVersion"] == "2"
    assert [each["uuid"] for each in after["status"]["usage"]] == ["GPU-both-a", "GPU-both-b"]
    assert after["status"]["summary"]["cards"] == 2


def add_node(cp: ControlPlane, name: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    cp.request("POST", "/api/v1/nodes", node)


async def test_a_gpunode_belongs_to_its_node(cp: ControlPlane) -> None:
    add_node(cp, "owned")
    client = await connect(str(cp.admin_kubeconfig))
    try:
        await KubeGPUNodes(client).create("owned")
    finally:
        await client.close()

    owner = stored(cp, "owned")["metadata"]["ownerReferences"][0]
    node = json.loads(cp.kubectl("get", "node", "owned", "-o=json"))
    assert owner["uid"] == node["metadata"]["uid"]


def test_what_the_agent_prints_can_be_applied(cp: ControlPlane) -> None:
    readings = SimulatedNvml("h100x8", node="printed").load()
    said = probe("printed", readings, Agent(), NodeOverrides())

    cp.apply([document_of(said.node, conditions=said.conditions)])

    assert stored(cp, "printed")["kind"] == "GPUNode"
