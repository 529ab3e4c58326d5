"""What Cardwise leaves behind and what it asks for, by the API server's own audit log."""

import json
from collections.abc import Iterator

import pytest

from cardwise import names
from cardwise.names import Reason
from stage import Json, Stage

ACCOUNTS = "system:serviceaccount:cardwise-system:"
WRITES = {
    ("create", "pods/binding"),
    ("create", "events"),
    ("patch", "events"),
    ("patch", "nodes"),
    ("patch", "gpunodes/status"),
    ("create", "secrets"),
    ("patch", "mutatingwebhookconfigurations"),
}
"""All that the controller ever writes."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A cluster that writes an audit log, and has seen most of what happens."""
    with Stage.raised(audit=True) as raised:
        live(raised)
        yield raised


def live(stage: Stage) -> None:
    """Pods with and without cards, a wait, a quota, a restart, and a wake."""
    stage.node("node-a", "t4x4")
    stage.pod("cpu-only", gpus=None, cpu="1")
    stage.placed_at("cpu-only")
    for card in range(4):
        stage.pod(f"p{card}", gpumem=1000)
        stage.placed(f"p{card}")
    stage.pod("waits", gpumem=1000, policy="mutex")
    stage.pending("waits", Reason.EXCLUSIVE)
    stage.event("waits", Reason.EXCLUSIVE)
    stage.controller.terminate()
    stage.start_controller()
    stage.delete("p2")
    stage.placed("waits")
    stage.event("waits", names.EventReason.CARDS_ALLOCATED)
    stage.settled()


def audited(stage: Stage) -> list[Json]:
    """Every request of our own processes; kube-scheduler's are not ours."""
    lines = (stage.cp.directory / "audit.log").read_text().splitlines()
    requests = [json.loads(line) for line in lines if ACCOUNTS in line]
    return [
        request
        for request in requests
        if request["user"]["username"].startswith(ACCOUNTS)
        and not request.get("userAgent", "").startswith("kube-scheduler/")
    ]


def kind(request: Json) -> str:
    what = request.get("objectRef", {})
    return "/".join(filter(None, (what.get("resource"), what.get("subresource"))))


def test_our_processes_ask_for_nothing_that_they_may_not_have(stage: Stage) -> None:
    requests = audited(stage)

    refused = {
        (request["user"]["username"], request["verb"], request["requestURI"])
        for request in requests
        if request["responseStatus"]["code"] in (401, 403)
    }
    assert refused == set()
    users = {request["user"]["username"].removeprefix(ACCOUNTS) for request in requests}
    assert users == {"cardwise-controller", "cardwise-agent"}


def test_kube_scheduler_is_refused_nothing_under_our_account(stage: Stage) -> None:
    lines = (stage.cp.directory / "audit.log").read_text().splitlines()
    requests = [json.loads(line) for line in lines if '"kube-scheduler/' in line]

    assert requests
    refused = {
        (request["verb"], request["requestURI"])
        for request in requests
        if request["responseStatus"]["code"] in (401, 403)
    }
    assert refused == set()


def test_the_controller_writes_bindings_events_wakes_and_usage_and_nothing_else(
    stage: Stage,
) -> None:
    asked = [
        request
        for request in audited(stage)
        if request["user"]["username"] == f"{ACCOUNTS}cardwise-controller"
        and request["verb"] not in ("get", "list", "watch")
    ]
    tried = [request for request in asked if "dryRun=All" in request["requestURI"]]
    written = {(request["verb"], kind(request)) for request in asked if request not in tried}

    assert {kind(request) for request in tried} == {"podtemplates"}, "the test of the webhook"
    assert written - WRITES == set()
    assert written >= {("create", "pods/binding"), ("create", "events"), ("patch", "nodes")}


def test_one_binding_a_pod_is_all_that_placing_it_writes_to_it(stage: Stage) -> None:
    bindings = [
        request["objectRef"]["name"]
        for request in audited(stage)
        if kind(request) == "pods/binding"
    ]

    assert sorted(bindings) == ["p0", "p1", "p2", "p3", "waits"]


def test_nothing_is_written_to_a_pod_that_asks_for_no_card(stage: Stage) -> None:
    metadata = stage.get("cpu-only")["metadata"]

    assert metadata.get("annotations", {}) == {}
    assert metadata.get("labels", {}) == {}
    assert "finalizers" not in metadata


def test_a_pod_with_cards_carries_the_promised_annotations_alone(stage: Stage) -> None:
    metadata = stage.get("waits")["metadata"]

    ours = {*names.ALLOCATION_ANNOTATIONS} - {names.EXCLUSIVE_HELD}
    assert metadata["annotations"].keys() == {names.POLICY, *ours}
    assert "finalizers" not in metadata
    assert metadata.get("labels", {}) == {}


def test_no_node_or_gpunode_gets_a_finalizer(stage: Stage) -> None:
    node = stage.cp.request("GET", "/api/v1/nodes/node-a")["metadata"]
    (gpunode,) = stage.gpunodes()

    assert "finalizers" not in node
    assert "finalizers" not in gpunode["metadata"]
    assert {key for key in node["annotations"] if "cardwise" in key} == {names.WAKE}
    assert not any("kopf" in key for key in node["annotations"])
