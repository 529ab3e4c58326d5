"""A Pod that waits goes on by itself when room grows, whatever made it grow."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import build
from cardwise import names
from cardwise.names import Reason
from fault_proxy import FaultProxy, Plan
from stage import Stage

DELAY = 0.2
DEPARTURES = 50


@pytest.fixture
def delayed(stage: Stage) -> Iterator[Stage]:
    """A stage whose controller hears of every Pod 200 ms late."""
    with FaultProxy(stage.cp, Plan(late={"/api/v1/pods": DELAY})) as proxy:
        stage.controller.terminate()
        stage.start_controller(kubeconfig=proxy.through(stage.account))
        yield stage
        stage.controller.terminate()


def test_the_delay_is_real(delayed: Stage) -> None:
    delayed.node("node-a", 1)
    delayed.pod("first", gpumem=1000, policy="mutex")
    delayed.placed("first")
    delayed.pod("next", gpumem=1000, policy="mutex")
    delayed.pending("next", Reason.EXCLUSIVE)
    delayed.cp.request("DELETE", delayed.path("first"))
    delayed.gone("first")
    since = time.monotonic()

    delayed.placed("next", within=2)

    assert time.monotonic() - since > DELAY / 2  # as seen from here, which is a little later


def test_a_waiting_pod_is_placed_within_two_seconds_though_we_hear_of_pods_late(
    delayed: Stage,
) -> None:
    delayed.node("node-a", 1)
    delayed.pod("p0", gpumem=1000, policy="mutex")
    delayed.placed("p0")
    took = []
    for number in range(1, DEPARTURES + 1):
        delayed.pod(f"p{number}", gpumem=1000, policy="mutex")
        delayed.pending(f"p{number}", Reason.EXCLUSIVE)
        delayed.cp.request("DELETE", delayed.path(f"p{number - 1}"))
        since = time.monotonic()
        delayed.placed(f"p{number}", within=10)
        took.append(time.monotonic() - since)

    assert [seconds for seconds in took if seconds > 2] == []
    assert len(took) == DEPARTURES


def test_a_card_that_is_cordoned_and_uncordoned_with_kubectl(stage: Stage) -> None:
    stage.node("node-a", 1)
    cordon(stage, "GPU-node-a-a")
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.CARD_CORDONED)

    cordon(stage)

    assert stage.placed("p", within=5) == 0


def test_a_card_that_is_cordoned_by_hamis_annotation_and_uncordoned(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.cp.kubectl("annotate", "node", "node-a", f"{names.NODE_CORDON}=GPU-node-a-a,GPU-node-a-b")
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.CARD_CORDONED)

    stage.cp.kubectl(
        "annotate", "node", "node-a", "--overwrite", f"{names.NODE_CORDON}=GPU-node-a-a"
    )

    assert stage.placed("p", within=5) == 1


def test_the_tenants_of_a_cordoned_card_stay(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.pod("tenant", gpumem=1000)
    stage.placed("tenant")
    cordon(stage, "GPU-node-a-a")
    stage.pod("p", gpumem=1000)

    stage.pending("p", Reason.CARD_CORDONED)

    assert stage.placement("tenant") is not None


def test_a_card_that_falls_sick_takes_no_pod_until_it_is_well(stage: Stage, tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    write_profile(profile, healthy=False)
    stage.node("node-a", profile)
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.CARD_NOT_HEALTHY)

    write_profile(profile, healthy=True)

    assert stage.placed("p", within=5) == 0


def test_a_node_that_is_added_takes_the_waiting_pod(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.pod("tenant", gpumem=15000)
    stage.placed("tenant")
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.MEMORY)

    stage.bare_node("node-b", gpus=10)
    stage.report(build.gpunode("node-b", 1))

    assert stage.placed_at("p", within=5).node == "node-b"


def test_a_node_with_cards_and_without_a_report_takes_no_pod_until_its_agent_reports(
    stage: Stage,
) -> None:
    stage.bare_node("node-a", gpus=10)
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.NODE_NOT_REPORTED)

    stage.report(build.gpunode("node-a", 1))

    assert stage.placed("p", within=5) == 0


def test_a_tenant_that_ended_gives_its_card_back_though_its_pod_is_still_there(
    stage: Stage,
) -> None:
    stage.node("node-a", 1)
    stage.pod("job", gpumem=1000, policy="mutex")
    stage.placed("job")
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.pending("p", Reason.EXCLUSIVE)

    stage.patch(f"{stage.path('job')}/status", {"status": {"phase": "Succeeded"}})

    assert stage.placed("p", within=5) == 0
    assert stage.get("job")["status"]["phase"] == "Succeeded"


def test_a_terminating_tenant_keeps_its_card_until_it_is_gone(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.pod("tenant", gpumem=1000, policy="mutex")
    stage.placed("tenant")
    stage.patch(stage.path("tenant"), {"metadata": {"finalizers": ["test.example/hold"]}})
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.pending("p", Reason.EXCLUSIVE)

    stage.cp.request("DELETE", stage.path("tenant"))
    stage.stays("p", 2)

    assert "deletionTimestamp" in stage.get("tenant")["metadata"]
    stage.patch(stage.path("tenant"), {"metadata": {"finalizers": None}})
    assert stage.placed("p", within=5) == 0


def cordon(stage: Stage, *uuids: str) -> None:
    change = {"spec": {"cordonedCards": list(uuids)}}
    stage.cp.kubectl("patch", "gpunode", "node-a", "--type=merge", "-p", json.dumps(change))


def write_profile(path: Path, *, healthy: bool) -> None:
    """A profile of one card; replaced at once, as the agent may be reading it."""
    card = build.card(0, healthy=healthy, unhealthyReason="" if healthy else "Xid 79: fell off")
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(build.gpunode("any", [card])))
    new.replace(path)
