"""``cardwise explain`` and ``top`` on a real cluster: the controller's word, and its cards."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import build
from cardwise.names import EventReason, Reason
from controlplane.launcher import free_port
from installation import PROGRAMS
from stage import Json, Stage, uuids

pytestmark = pytest.mark.both_doors


@pytest.fixture
def cards(stage: Stage) -> Stage:
    """Two nodes of two cards that were reported just now, and a tenant on one card of node-a."""
    for name in ("node-a", "node-b"):
        stage.bare_node(name, gpus=40)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        stage.report(build.gpunode(name, 2, reported_at=now))
    stage.cp.wait("the controller to know both", lambda: stage.usage("node-b"), 30)
    stage.cp.wait("the controller to know both", lambda: stage.usage("node-a"), 30)
    stage.pod("tenant", gpumem=1000, spec={"nodeSelector": {"kubernetes.io/hostname": "node-a"}})
    stage.placed("tenant")
    return stage


def typed(
    stage: Stage, *words: str, kubeconfig: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """What the program answers an administrator, or another."""
    path = {"KUBECONFIG": str(kubeconfig or stage.cp.admin_kubeconfig)}
    return subprocess.run(
        [str(PROGRAMS / "cardwise"), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **path},
    )


def told(stage: Stage, *words: str, **fields: Any) -> Json:
    """The program's JSON."""
    answer = typed(stage, *words, "-o=json", **fields)
    assert answer.returncode == 0, answer.stderr
    found: Json = json.loads(answer.stdout)
    return found


def explained(stage: Stage, name: str, **fields: Any) -> Json:
    """The account of one Pod."""
    return told(stage, "explain", name, f"-n={stage.namespace}", **fields)


def test_a_waiting_pod_gets_the_controllers_word(cards: Stage) -> None:
    cards.pod("p", gpus=2, gpumem=15000, policy="mutex,binpack")
    cards.placed_at("p")
    cards.pod("q", gpus=2, gpumem=1000, policy="mutex")
    note = cards.event("q", Reason.EXCLUSIVE)

    account = explained(cards, "q")

    assert account["reason"] == Reason.EXCLUSIVE
    assert account["notes"] == []
    assert account["door"] == cards.door
    [said] = account["said"]
    assert (said["reason"], said["note"]) == (Reason.EXCLUSIVE, note)
    assert account["message"] == note.replace("candidate nodes", "nodes")
    assert ("number 1 of 1 Pods at the gate" in " ".join(account["sentences"])) == cards.gates


def test_a_placed_pod_has_the_cards_that_would_be_chosen(cards: Stage) -> None:
    listed = cards.cp.kubectl("get", "gpunodes,nodes,pods", "-A", "-o=json")
    new = build.pod("p", namespace=cards.namespace, gpus=2, gpumem=2000, policy="mutex,spread")
    del new["metadata"]["resourceVersion"]

    simulated = told(cards, "simulate", "-", stdin=f"{listed}\n{json.dumps(new)}")
    cards.create(new)
    cards.placed_at("p")
    account = explained(cards, "p")

    [expected] = simulated["pods"]
    assert account["node"] == expected["node"] == "node-b"
    assert account["annotation"] == expected["annotation"]
    assert account["today"]["annotation"] == account["annotation"]
    assert [card["uuid"] for card in account["containers"][0]["cards"]] == uuids(cards.get("p"))


def test_top_shows_what_the_controller_booked(cards: Stage) -> None:
    cards.settled()

    written, counted = told(cards, "top"), told(cards, "top", "--pods", "-A")

    assert written["nodes"] == counted["nodes"]
    assert written["totals"]["used"] == {"memoryMiB": 1000, "cores": 0, "slots": 1}
    assert (written["totals"]["empty"], written["totals"]["closed"]) == (3, 0)
    [space] = counted["namespaces"]
    assert (space["namespace"], space["pods"], space["cards"]) == (cards.namespace, 1, 1)


def test_kubectl_finds_both_commands(cards: Stage) -> None:
    cards.event("tenant", EventReason.CARDS_ALLOCATED)
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(cards.cp.admin_kubeconfig)}

    def kubectl(*words: str) -> str:
        command = [str(PROGRAMS / "kubectl"), "cardwise", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True, env=environment
        )
        return done.stdout

    account = kubectl("explain", "pod/tenant", f"--namespace={cards.namespace}")
    overview = kubectl("top")

    assert f"Pod {cards.namespace}/tenant is on node-a since " in account
    assert "would get the same cards" in account
    assert "Cardwise said:" in account
    assert overview.startswith("2 nodes, 4 cards (0 closed, ")


@pytest.fixture
def viewer(cards: Stage) -> Path:
    """A kubeconfig of somebody who has the rights of ``cardwise-viewer`` and no others."""
    space = cards.namespace
    cards.cp.kubectl("create", "serviceaccount", "viewer", f"-n={space}")
    who = f"--serviceaccount={space}:viewer"
    role = "cardwise-viewer"
    cards.cp.kubectl("create", "clusterrolebinding", space, f"--clusterrole={role}", who)
    cards.cp.kubectl("create", "rolebinding", space, f"--role={role}", who, "-n=cardwise-system")
    return cards.cp.service_account_kubeconfig("viewer", space)


def test_the_viewers_rights_are_enough(cards: Stage, viewer: Path) -> None:
    cards.event("tenant", EventReason.CARDS_ALLOCATED)
    account = explained(cards, "tenant", kubeconfig=viewer)
    overview = told(cards, "top", kubeconfig=viewer)

    assert account["state"] == "placed"
    assert account["said"]
    assert account["notes"] == overview["notes"] == []
    assert told(cards, "top", "-A", kubeconfig=viewer)["nodes"]


def test_what_can_not_be_answered_is_told_in_one_sentence(cards: Stage, tmp_path: Path) -> None:
    cards.cp.kubectl("create", "serviceaccount", "nobody", f"-n={cards.namespace}")
    nobody = cards.cp.service_account_kubeconfig("nobody", cards.namespace)
    away = tmp_path / "away"
    cluster = f"https://127.0.0.1:{free_port()}"
    away.write_text(nobody.read_text().replace(cards.cp.server, cluster))
    words = ("explain", "tenant", f"-n={cards.namespace}")

    for answer, sentence in (
        (typed(cards, "explain", "p", f"-n={cards.namespace}"), f"no Pod {cards.namespace}/p"),
        (typed(cards, *words, kubeconfig=nobody), 'cannot get resource "pods" in API group ""'),
        (typed(cards, "top", kubeconfig=nobody), 'cannot list resource "gpunodes" in API group'),
        (typed(cards, *words, kubeconfig=away), "no answer from the API server: "),
        (typed(cards, *words, "--context=none"), "no cluster to talk to: "),
    ):
        assert answer.returncode == 2
        assert answer.stdout == ""
        assert sentence in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1
