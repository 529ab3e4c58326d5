"""What of the reports about nodes only a real API server can show; all else: tests/reports."""

import re
import urllib.request

import pytest

from backstage import GPUNODES
from cardwise import names
from stage import Stage

pytestmark = pytest.mark.both_doors
NO_DEVICES = "Pod was rejected: Allocate failed due to no healthy devices present; nvidia.com/gpu"


def metrics(stage: Stage) -> str:
    """What the controller tells Prometheus."""
    url = f"{stage.reports_url}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
        return str(answer.read().decode())


def rejected(stage: Stage) -> list[str]:
    """Reason and count of each rejection on node-a, as the controller counts them."""
    pattern = r'cardwise_pods_rejected_total{node="node-a",reason="(\w+)"} (\S+)'
    return re.findall(pattern, metrics(stage))


def test_r20_a_pod_that_passed_by_the_webhook_is_told_why_the_clusters_scheduler_has_no_node(
    stage: Stage,
) -> None:
    """The words of that scheduler name no webhook: "Insufficient nvidia.com/gpumem".

    Red: `_is_refused` looks for the condition ``Scheduled``.
    """
    scheduler = None if stage.gates else stage.cp.start_default_scheduler()
    stage.bare_node("node-a", gpus=40)
    exempt = {"metadata": {"labels": {names.WEBHOOK_LABEL: names.WEBHOOK_IGNORE}}}
    stage.patch(f"/api/v1/namespaces/{stage.namespace}", exempt)

    stage.pod("passed-by", gpumem=1000)

    stage.pending("passed-by", "Insufficient nvidia.com/gpumem")
    assert "Create the Pod anew" in stage.event("passed-by", names.EventReason.WEBHOOK_BYPASSED)
    assert "\ncardwise_bypassed_pods 1.0\n" in metrics(stage)
    if scheduler is not None:
        scheduler.terminate()


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
