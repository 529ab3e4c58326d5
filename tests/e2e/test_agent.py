"""The agent against a real API server: its GPUNode appears, changes, and comes back."""

import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardwise.wire.gpunodes import gpunode_of
from controlplane.launcher import ControlPlane, Process, free_port
from fakes.nvidia import EVERYTHING, LOST, UNKNOWN, FakeMachine

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
    cp.add_node("n1")
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


# A machine with the driver's library --------------------------------------------------------------


class Machine:
    """A node with eight H100 behind the fake library, and the agent that looks at them."""

    def __init__(self, cp: ControlPlane, node: str, directory: Path) -> None:
        self.cp = cp
        self.node = node
        self.fake = FakeMachine(directory / "machine")
        self.fake.become("h100x8")
        self.fake.write()
        self.port = free_port()
        cp.add_node(node)
        cp.start_process(
            f"agent-{node}",
            [
                str(AGENT),
                f"--node-name={node}",
                f"--kubeconfig={cp.admin_kubeconfig}",
                f"--metrics-listen=127.0.0.1:{self.port}",
            ],
            env=self.fake.environment(directory),
        )
        self.within(30, lambda: len(self.verdicts()) == 8)

    def status(self) -> dict[str, Any]:
        found = self.cp.kubectl("get", "gn", self.node, "--ignore-not-found", "-o=json")
        status: dict[str, Any] = json.loads(found).get("status", {}) if found else {}
        return status

    def verdicts(self) -> list[str]:
        """Why each card is closed; empty where it is not."""
        return [card.get("unhealthyReason", "") for card in self.status().get("cards", ())]

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def within(self, seconds: float, so: Callable[[], bool]) -> None:
        began = time.monotonic()
        self.cp.wait("the GPUNode to say so", so, timeout=seconds)
        assert time.monotonic() - began <= seconds

    def events(self) -> list[str]:
        """Reasons under the Node, as a person sees them."""
        shown = self.cp.kubectl("describe", "node", self.node).partition("Events:")[2]
        return re.findall(r"\b(Card\w+|Driver\w+)\b  ", shown)


def test_a_card_that_falls_ill_is_closed_within_ten_seconds_and_told_of(
    cp: ControlPlane, tmp_path: Path
) -> None:
    machine = Machine(cp, "n2", tmp_path)
    fine = [""] * 8
    xid = "Xid 79: fallen off the bus"

    machine.fake.cards[3].xids.append(79)
    machine.fake.cards[3].errors = {EVERYTHING: LOST}
    machine.fake.cards[5].xids.append(13)  # a program's own fault
    machine.fake.write()
    machine.within(10, lambda: machine.verdicts() == ["", "", "", xid, *[""] * 4])
    links = machine.status()["links"]
    metrics = machine.ask("/metrics")[1]

    machine.fake.cards[3].errors = {}
    machine.fake.write()
    machine.within(20, lambda: machine.verdicts() == fine)
    cp.wait("the events", lambda: len(machine.events()) == 2, 10)

    assert machine.events() == ["CardUnhealthy", "CardHealthy"]
    assert {link["nvlinks"] for link in links} == {18}
    of_it = f'device_uuid="{machine.fake.cards[3].uuid}",node="n2"'
    assert {
        f'cardwise_card_changes_total{{{of_it},reason="CardUnhealthy"}} 1.0',
        f'cardwise_card_xids_total{{{of_it},xid="79"}} 1.0',
    } <= set(metrics.splitlines())
    assert machine.ask("/readyz") == (200, "ok\n")


def test_overrides_hold_within_five_seconds(cp: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(cp, "n3", tmp_path)

    cp.kubectl("patch", "gn", "n3", "--type=merge", "-p", '{"spec": {"slotsPerCard": 3}}')

    machine.within(5, lambda: {card["slots"] for card in machine.status()["cards"]} == {3})


def test_a_driver_that_fails_closes_the_node_and_opens_it_again(
    cp: ControlPlane, tmp_path: Path
) -> None:
    machine = Machine(cp, "n4", tmp_path)

    machine.fake.errors = {"nvmlDeviceGetCount_v2": UNKNOWN}
    machine.fake.write()
    machine.within(10, lambda: machine.verdicts() == [])
    failing = [machine.ask("/readyz"), machine.ask("/livez")]
    ready = next(each for each in machine.status()["conditions"] if each["type"] == "Ready")

    machine.fake.errors = {}
    machine.fake.write()
    machine.within(20, lambda: machine.verdicts() == [""] * 8)
    cp.wait("the events", lambda: len(machine.events()) == 2, 10)

    assert (ready["status"], ready["message"]) == ("False", "NVML says: Unknown Error")
    assert failing == [(503, "the driver fails: NVML says: Unknown Error\n"), (200, "ok\n")]
    assert machine.events() == ["DriverFailed", "DriverAnswers"]
