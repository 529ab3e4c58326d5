"""The node itself, and what kubelet tells of its cards: what all other tests here stand on."""

from node.pods import container, pod
from node.stage import SLOTS, Ward


def test_a_pod_runs_on_the_node_and_prints(ward: Ward) -> None:
    created = ward.node.create(pod("says-hello", [container("main", "echo hello")]))

    ended = ward.node.ended("says-hello")

    assert ended["status"]["phase"] == "Succeeded"
    assert ended["metadata"]["uid"] == created["metadata"]["uid"]
    assert ward.node.printed(ended, "main") == ["hello"]


def test_kubelet_tells_of_every_slot(ward: Ward) -> None:
    assert ward.node.allocatable("nvidia.com/gpu") == SLOTS
