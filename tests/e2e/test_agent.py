"""The agent against a real API server: its GPUNode appears, changes, and comes back."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardwise.wire.gpunodes import gpunode_of
from controlplane.launcher import ControlPlane, Process

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/gpunodes.yaml"
AGENT = Path(sys.executable).with_name("cardwise-agent")

PROFILE: dict[str, Any] = {
    "kind": "GPUNode",
    "metadata": {"name": "any"},
    "status": {
        "cards": [
            {"uuid": "GPU-a", "index": 0, "memoryMiB": 15360},
            {"uuid": "GPU-b", "index": 1, "memoryMiB": 15360},
        ]
    },
}


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    with ControlPlane.start(kwok=False, controller_manager=False) as plane:
        plane.apply(CRD)
        plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"-f={CRD}")
        yield plane


def start(cp: ControlPlane, node: str, profile: Path) -> Process:
    profile.write_text(yaml.safe_dump(PROFILE))
    config = profile.with_name("config.yaml")
    config.write_text("agent: {reportSeconds: 1}")
    return cp.start_process(
        f"agent-{node}",
        [
            str(AGENT),
            f"--nvml=simulated:{profile}",
            f"--node-name={node}",
            f"--config={config}",
            f"--kubeconfig={cp.admin_kubeconfig}",
        ],
    )


def cards(cp: ControlPlane, node: str) -> list[tuple[str, int, bool]]:
    """UUID, MiB and health of each card in the cluster; none where there is no GPUNode."""
    found = cp.kubectl("get", "gn", node, "--ignore-not-found", "-o=json")
    if not found:
        return []
    return [
        (card.uuid, card.memory_mib, card.healthy) for card in gpunode_of(json.loads(found)).cards
    ]


def test_an_agent_publishes_follows_and_mends_its_gpunode(cp: ControlPlane, tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    start(cp, "n1", profile)
    fresh = [("GPU-a", 15360, True), ("GPU-b", 15360, True)]

    cp.wait("the first report", lambda: cards(cp, "n1") == fresh, timeout=30)

    cp.kubectl("patch", "gn", "n1", "--type=merge", "-p", '{"spec": {"memoryScaling": 2}}')
    scaled = [("GPU-a", 30720, True), ("GPU-b", 30720, True)]
    cp.wait("the override to hold", lambda: cards(cp, "n1") == scaled, timeout=30)

    profile.write_text(
        yaml.safe_dump(PROFILE).replace("uuid: GPU-b", "uuid: GPU-b\n    healthy: false")
    )
    ill = [("GPU-a", 30720, True), ("GPU-b", 30720, False)]
    cp.wait("a card to fail", lambda: cards(cp, "n1") == ill, timeout=30)

    cp.kubectl("delete", "gn", "n1")
    back = [("GPU-a", 15360, True), ("GPU-b", 15360, False)]
    cp.wait("the GPUNode to come back", lambda: cards(cp, "n1") == back, timeout=30)
