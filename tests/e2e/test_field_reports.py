"""What of the reports about nodes only a real API server can show; all else: tests/reports."""

import re
import urllib.request

import pytest

from backstage import GPUNODES
from stage import Stage

pytestmark = pytest.mark.both_doors
NO_DEVICES = "Pod was rejected: Allocate failed due to no healthy devices present; nvidia.com/gpu"


def rejected(stage: Stage) -> list[str]:
    """Reason and count of each rejection on node-a, as the controller counts them."""
    url = f"{stage.reports_url}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
        text = answer.read().decode()
    return re.findall(r'cardwise_pods_rejected_total{node="node-a",reason="(\w+)"} (\S+)', text)


def test_r57_a_pod_that_kubelet_rejects_gives_its_card_back_and_is_counted(stage: Stage) -> None:
    """The watch asks for unfinished Pods: it tells of this one as deleted, without why.

    Red: ``RejectedPods._end`` never asks.
    """
    stage.node("node-a", 1)
    stage.pod("p1", gpumem=15000)
    stage.placed("p1")
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": NO_DEVICES}
    before = dict(rejected(stage)).get("UnexpectedAdmissionError", "0")

    stage.patch(f"{stage.path('p1')}/status", {"status": failed})
    stage.pod("p2", gpumem=15000)

    assert stage.placed("p2", within=5) == 0
    want = ("UnexpectedAdmissionError", str(float(before) + 1))
    stage.cp.wait("the rejection to be counted", lambda: want in rejected(stage), 10)


def test_r66_the_gpunode_goes_with_its_node_though_its_agent_still_runs(stage: Stage) -> None:
    """A GPUNode of a Node that is no more must not stay.

    Red: ``KubeGPUNodes.create`` makes one without its owner where the Node is not there.
    """
    stage.node("node-a", "t4x4")

    stage.cp.request("DELETE", "/api/v1/nodes/node-a")

    stage.cp.wait(
        "the GPUNode to go", lambda: not stage.cp.request("GET", GPUNODES)["items"], timeout=60
    )
    agent = stage.agents()[0]
    stage.cp.wait("its agent to see it", lambda: "no such Node" in agent.tail(60), timeout=30)
    assert stage.cp.request("GET", GPUNODES)["items"] == []
