"""The node itself: what all other tests here stand on."""

from node.machine import Node
from node.pods import container, pod


def test_a_pod_runs_on_the_node_and_prints(node: Node) -> None:
    created = node.create(pod("says-hello", [container("main", "echo hello from $NAME; true")]))

    ended = node.ended("says-hello")

    assert ended["status"]["phase"] == "Succeeded"
    assert ended["metadata"]["uid"] == created["metadata"]["uid"]
    assert node.printed(ended, "main") == ["hello from"]


def test_a_node_without_plugin_offers_no_cards(node: Node) -> None:
    assert node.allocatable("nvidia.com/gpu") == 0
