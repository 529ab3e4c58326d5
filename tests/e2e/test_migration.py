"""The whole move from HAMi as docs/migrating-from-hami.md has it, and the way back."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from cardwise import names
from controlplane.launcher import ROOT, ApiError, ControlPlane, free_port
from hamicluster import HamiCluster
from installation import GPUNODES, PROGRAMS
from stage import Json, Stage

pytestmark = pytest.mark.timeout(300)
NODES = ("h1", "h2")
OFF: Json = {"migration": {"hamiNodes": False}}


class Move(Stage):
    """Cardwise beside HAMi."""

    overlay = "migration"

    def sources(self) -> dict[str, str]:
        """By GPUNode with cards: whom it comes from."""
        return {
            each["metadata"]["name"]: each["metadata"].get("labels", {}).get(names.SOURCE, "agent")
            for each in self.gpunodes()
            if each.get("status", {}).get("cards")
        }

    def tenants(self, node: str) -> dict[str, list[str]]:
        """By card that has some: its Pods."""
        return {use["uuid"]: use["tenants"] for use in self.usage(node) if use.get("tenants")}

    def become(self, what: str, source: dict[str, str]) -> None:
        self.cp.wait(what, lambda: self.sources() == source, 40)


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    with ControlPlane.start() as started:
        yield started


def report(port: int) -> Json:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/shadow", timeout=5) as answer:
        told: Json = json.loads(answer.read())
    return told


def look_first(cp: ControlPlane, theirs: HamiCluster) -> None:
    """The shadow compares whom HAMi placed, before and now, by rights of reading alone."""
    cp.apply(ROOT / "manifests/overlays/shadow")
    account = cp.service_account_kubeconfig("cardwise-shadow", "cardwise-shadow")
    settings = cp.directory / "shadow.yaml"
    settings.write_text((ROOT / "manifests/overlays/shadow/cardwise.yaml").read_text())
    port = free_port()
    shadow = cp.start_process(
        "shadow",
        [
            str(PROGRAMS / "cardwise-controller"),
            f"--config={settings}",
            f"--kubeconfig={account}",
            f"--metrics-listen=127.0.0.1:{port}",
            "--no-leader-election",
        ],
    )

    def compared(count: int) -> Any:
        assert shadow.poll() is None, f"it ended:\n{shadow.tail()}"
        try:
            return sum(report(port)["totals"].values()) == count
        except OSError:
            return False

    cp.wait("the shadow to compare whom HAMi placed before", lambda: compared(3), 30)
    theirs.place("now", "h2", 3, policy="mutex")
    cp.wait("the shadow to compare whom HAMi places now", lambda: compared(4), 10)
    (now,) = (line for line in report(port)["differences"] if line["pod"] == "default/now")
    assert (now["before"], now["placed"]["node"]) == (False, "h2")
    assert now["cardwise"]["cards"] != now["placed"]["cards"]
    assert "forbidden" not in shadow.tail(500).lower(), shadow.tail(500)
    with pytest.raises(ApiError):  # nobody has brought the kind, and the shadow neither
        cp.request("GET", GPUNODES)
    shadow.terminate()
    cp.kubectl("delete", "-k", str(ROOT / "manifests/overlays/shadow"))


def test_the_whole_move_and_the_way_back_and_no_pod_loses_its_card(cp: ControlPlane) -> None:
    theirs = HamiCluster(cp)
    for node in NODES:
        theirs.node(node)
    theirs.place("a", "h1", 0, policy="mutex")
    theirs.place("b", "h1", 3)
    theirs.place("c", "h2", 0, 1)
    before = {"GPU-h1-a": ["default/a"], "GPU-h1-d": ["default/b"]}

    look_first(cp, theirs)

    # Beside HAMi: its nodes are usable at once, and whom it placed counts.
    stage = Move(cp)
    stage.become("GPUNodes for HAMi's nodes", {"h1": "hami", "h2": "hami"})
    stage.cp.wait("HAMi's Pods to count", lambda: stage.tenants("h1") == before, 20)

    # New Pods are ours: of eight cards, five are taken.
    for number in range(3):
        stage.pod(f"ours-{number}", gpumem=1000, policy="mutex")
        at = stage.placed_at(f"ours-{number}")
        theirs.hand_over(f"ours-{number}", at.node, stage.namespace)
    stage.pod("too-many", gpumem=1000, policy="mutex")
    stage.pending("too-many", names.Reason.EXCLUSIVE)
    assert stage.legal() == []

    def taken() -> dict[str, list[str]]:
        return {**stage.tenants("h1"), **stage.tenants("h2")}

    stage.cp.wait("each card to have a tenant", lambda: len(taken()) == 8, 20)
    assert all(len(tenants) == 1 for tenants in taken().values()), taken()

    # h1 goes from HAMi's device plugin to our agent.
    on_h1 = stage.tenants("h1")
    theirs.offers("h1", 0)
    stage.become("h1 to offer nothing", {"h2": "hami"})
    theirs.offers("h1", 40)
    stage.agent("h1", theirs.profile("h1"))
    stage.become("our agent to report on h1", {"h1": "agent", "h2": "hami"})
    stage.cp.wait("the tenants to be as before", lambda: stage.tenants("h1") == on_h1, 20)
    stage.stays("too-many", 2)

    # Who leaves makes room for who waits, whoever placed it.
    cp.request("DELETE", "/api/v1/namespaces/default/pods/b")
    assert (stage.placed_at("too-many").node, stage.placed("too-many")) == ("h1", 3)
    assert stage.legal() == []

    # Back: HAMi's device plugin takes h1 again, and what our agent left is deleted.
    stage.agent_leaves("h1")
    cp.request("DELETE", f"{GPUNODES}/h1")
    stage.become("h1 to be HAMi's again", {"h1": "hami", "h2": "hami"})
    kept = {**on_h1, "GPU-h1-d": [f"{stage.namespace}/too-many"]}
    stage.cp.wait("the tenants to be as before", lambda: stage.tenants("h1") == kept, 20)
    assert stage.legal() == []

    # Back to before Cardwise: with the setting off, what was built for HAMi's nodes goes.
    stage.controller.terminate()
    stage.start_controller(settings=OFF)
    stage.cp.wait("no GPUNode to be left", lambda: not stage.gpunodes(), 30)
    for name in ("a", "now"):
        pod = cp.request("GET", f"/api/v1/namespaces/default/pods/{name}")
        assert pod["metadata"]["annotations"][names.ALLOCATED].startswith("GPU-h")
        assert pod["status"]["phase"] == "Running"
