"""What is kube-scheduler's stays kube-scheduler's: node rules, CPU, preemption."""

from collections.abc import Iterator
from typing import Any

import pytest

import build
from cardwise.names import Reason
from stage import Json, Stage

TAINT = {"key": "test.example/reserved", "effect": "NoSchedule"}
CLASSES = {"low": -10, "high": 1000}


@pytest.fixture(scope="module", autouse=True)
def priority_classes(theatre: Stage) -> Iterator[None]:
    """Classes by which Pods may preempt one another."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in CLASSES.items():
        theatre.cp.request("POST", path, {"metadata": {"name": name}, "value": value})
    yield
    for name in CLASSES:
        theatre.cp.request("DELETE", f"{path}/{name}")


def of_class(name: str, **spec: Any) -> Json:
    return {"priorityClassName": name, **spec}


def condition(pod: Json) -> Json:
    (found,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    return found


def wanting_zone(zone: str) -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


ELSEWHERE = [
    pytest.param({"taints": [TAINT]}, {}, {}, id="a taint that the Pod does not tolerate"),
    pytest.param({"labels": {"zone": "a"}}, {}, wanting_zone("b"), id="node affinity"),
    pytest.param({"labels": {"zone": "a"}}, {}, {"nodeSelector": {"zone": "b"}}, id="selector"),
    pytest.param({"cpu": "2"}, {"cpu": "3"}, {}, id="too little CPU"),
]


@pytest.mark.parametrize(("closed", "fields", "spec"), ELSEWHERE)
def test_a_pod_goes_to_the_other_node_for(
    stage: Stage, closed: Json, fields: Json, spec: Json
) -> None:
    stage.node("node-a", 1, **closed)
    stage.node("node-b", 1, labels={"zone": "b"})
    # By cards alone it would go to node-a: binpack takes the fuller node.
    stage.tenant("tenant", "GPU-node-a-a,NVIDIA,1000,0:;")
    stage.settled()

    stage.pod("p", gpumem=1000, spec=spec, **fields)

    assert stage.placed_at("p").node == "node-b"


def test_without_an_obstacle_it_goes_to_the_fuller_node(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.node("node-b", 1)
    stage.tenant("tenant", "GPU-node-a-a,NVIDIA,1000,0:;")
    stage.settled()

    stage.pod("p", gpumem=1000)

    assert stage.placed_at("p").node == "node-a"


def test_a_pod_without_cards_never_waits_for_us(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.controller.kill()

    stage.pod("cpu-only", gpus=None, cpu="1")

    assert stage.placed_at("cpu-only").cards == ()


def test_a_high_priority_pod_for_full_cards_evicts_nobody(stage: Stage) -> None:
    for name in ("node-a", "node-b"):
        stage.node(name, 1, cpu="4")
        stage.pod(f"cpu-{name}", gpus=None, cpu="1", spec=of_class("low", nodeName=name))
        stage.pod(f"gpu-{name}", gpumem=15000, cpu="1", spec=of_class("low"))
        stage.placed_at(f"gpu-{name}")
    before = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}

    stage.pod("high", gpumem=15000, cpu="1", spec=of_class("high"))

    said = stage.pending("high", f"2 {Reason.MEMORY}")
    assert "Preemption is not helpful for scheduling" in said
    note = stage.event("high", Reason.MEMORY)
    assert note.endswith("Preemption of GPU tenants is not supported.")
    stage.stays("high", 3)
    after = stage.pods()
    assert "nominatedNodeName" not in after.pop("high")["status"]
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == before
    assert not any("deletionTimestamp" in pod["metadata"] for pod in after.values())


def test_for_cpu_a_tenant_is_preempted_only_where_its_card_is_of_use(stage: Stage) -> None:
    # node-a: its tenant has the CPU and the card. node-b: CPU could be had from a Pod of even
    # lower worth, but the card is another's, who stays.
    stage.node("node-a", 1, cpu="4")
    stage.node("node-b", 1, cpu="4")
    stage.pod("keeps-card", gpumem=15000, spec=of_class("high", nodeSelector=on("node-b")))
    stage.placed("keeps-card")
    stage.pod("cheap", gpus=None, cpu="3", spec=of_class("low", nodeSelector=on("node-b")))
    stage.pod("tenant", gpumem=15000, cpu="3", spec={"nodeSelector": on("node-a")})
    stage.placed("tenant")
    stage.placed_at("cheap")

    stage.pod("high", gpumem=15000, cpu="3", spec=of_class("high"))

    assert stage.placed_at("high", within=30).node == "node-a"
    assert stage.pods().keys() == {"keeps-card", "cheap", "high"}


def test_for_cpu_nobody_is_preempted_where_no_card_would_come_of_it(stage: Stage) -> None:
    stage.node("node-a", 1, cpu="4")
    stage.pod("keeps-card", gpumem=15000, spec=of_class("high"))
    stage.placed("keeps-card")
    stage.pod("cheap", gpus=None, cpu="3", spec=of_class("low"))
    stage.placed_at("cheap")

    stage.pod("high", gpumem=15000, cpu="3", spec=of_class("high"))

    stage.pending("high", "Insufficient cpu")
    stage.stays("high", 3)
    assert "nominatedNodeName" not in stage.get("high")["status"]
    assert "deletionTimestamp" not in stage.get("cheap")["metadata"]


def test_twenty_nodes_without_cards_do_not_hide_the_reason(stage: Stage) -> None:
    for number in range(20):
        stage.bare_node(f"cpu-{number:02}")
    stage.node("node-a", 1)
    stage.pod("tenant", gpumem=15000)
    stage.placed("tenant")

    stage.pod("p", gpumem=8000)

    said = stage.pending("p", f"1 {Reason.MEMORY}")
    assert said.startswith("0/21 nodes are available: ")
    assert f"20 {Reason.NODE_HAS_NO_CARDS}" in said
    note = stage.event("p", Reason.MEMORY)
    assert note.startswith("0/1 candidate nodes can take 1 card with 8000 MiB (policy spread). ")
    assert "node-a: 1/1 CardInsufficientMemory (largest free 360 MiB, total free 360 MiB; " in note
    assert Reason.NODE_HAS_NO_CARDS not in note


def test_a_pod_that_outgrows_every_card_is_told_so_first(stage: Stage) -> None:
    stage.node("node-a", 2)

    stage.pod("p", gpumem=40000)

    note = stage.event("p", Reason.MEMORY)
    assert note.startswith("No card of the cluster has 40000 MiB: the largest has 15360 MiB. 0/1 ")


def test_two_containers_that_need_a_card_each_get_them_in_one_binding(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.create(
        build.pod(
            "p",
            containers=[
                build.container("one", gpu=1, gpumem=10000),
                build.container("none"),
                build.container("two", gpu=1, gpumem=10000),
            ],
        )
    )

    assert stage.placed_at("p").cards == (0, 1)
    text = stage.get("p")["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    assert text == "GPU-node-a-a,NVIDIA,10000,0:;;GPU-node-a-b,NVIDIA,10000,0:;"


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}
