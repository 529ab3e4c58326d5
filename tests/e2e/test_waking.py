"""A Pod that waits goes on by itself when room grows, whatever made it grow."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from math import ceil
from pathlib import Path
from statistics import median

import pytest
import yaml

import build
from bookings import refused
from cardwise import names
from cardwise.names import Reason
from fault_proxy import FaultProxy, Plan
from stage import Json, Stage

pytestmark = pytest.mark.both_doors
DELAY = 0.2
DEPARTURES = 50
DEPARTURES_BY_GATES = 8
"""Each has to wait for its event, of which there is one a second."""


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
    departures = DEPARTURES_BY_GATES if delayed.gates else DEPARTURES
    for number in range(1, departures + 1):
        delayed.pod(f"p{number}", gpumem=1000, policy="mutex")
        delayed.pending(f"p{number}", Reason.EXCLUSIVE)
        delayed.cp.request("DELETE", delayed.path(f"p{number - 1}"))
        since = time.monotonic()
        delayed.placed(f"p{number}", within=10)
        took.append(time.monotonic() - since)

    assert [seconds for seconds in took if seconds > 2] == []
    assert len(took) == departures


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


# How long a freed card stays free -----------------------------------------------------------------

CROWD = 1_000
TURNS = 50


@pytest.mark.gates_alone
@pytest.mark.timeout(300)
def test_a_freed_card_is_given_soon_though_a_thousand_wait_beside(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.pod("first", gpumem=15000)
    stage.placed("first")
    sizes = (9000, 10_000, 12_000, 14_000)
    with ThreadPoolExecutor(6) as threads:
        crowd = range(CROWD + TURNS)
        list(threads.map(lambda n: stage.pod(f"p{n:04}", gpumem=sizes[n % 4]), crowd))
    pins, given, bound = Pins(stage), [], []
    stage.cp.wait("all to wait", lambda: len(refused(stage)) == CROWD + TURNS, 60)
    tenant = "first"
    for _ in range(TURNS):
        path = stage.path(tenant)
        stage.cp.request("DELETE", path, {"gracePeriodSeconds": 0})
        left, (tenant, taken), tied = pins.next()
        given.append(taken - left)
        bound.append(tied - left)

    print(f"\na freed card is given, {CROWD} waiting beside: {figures(given)}")  # noqa: T201
    print(f"  and its Pod is bound: {figures(bound)}")  # noqa: T201
    assert stage.legal() == []


def figures(seconds: list[float]) -> str:
    """Median and 99th percentile, for whoever runs this with -s."""
    ordered = sorted(1000 * each for each in seconds)
    p99 = ordered[ceil(0.99 * len(ordered)) - 1]
    return f"{len(ordered)} times, median {median(ordered):.0f} ms, p99 {p99:.0f} ms"


class Pins:
    """The pins of this test as they are written into the audit log, by the API server's clock."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._log = stage.cp.directory / "audit.log"
        self._read = self._log.stat().st_size
        self._rest = b""

    def next(self) -> tuple[float, tuple[str, float], float]:
        """When a Pod was deleted, who was pinned then and when, and when it was bound."""
        seen: dict[str, tuple[str, float]] = {}

        def all_seen() -> bool:
            for request in self._requests():
                seen.setdefault(_kind(request), (_name(request), _ended(request)))
            return seen.keys() >= {"delete", "patch", "create/binding"}

        self._stage.cp.wait("the next Pod to be bound", all_seen, 30)
        return seen["delete"][1], seen["patch"], seen["create/binding"][1]

    def _requests(self) -> Iterator[Json]:
        with self._log.open("rb") as log:
            log.seek(self._read)
            *lines, self._rest = (self._rest + log.read()).split(b"\n")
            self._read = log.tell()
        for line in lines:
            if self._stage.namespace.encode() in line and b'"pods"' in line:
                request = json.loads(line)
                target = request["objectRef"]
                here = target.get("namespace") == self._stage.namespace
                if here and request["responseStatus"]["code"] < 300:
                    yield request


def _kind(request: Json) -> str:
    below = request["objectRef"].get("subresource", "")
    return f"{request['verb']}/{below}" if below else str(request["verb"])


def _name(request: Json) -> str:
    return str(request["objectRef"].get("name", ""))


def _ended(request: Json) -> float:
    return datetime.fromisoformat(request["stageTimestamp"]).timestamp()


def cordon(stage: Stage, *uuids: str) -> None:
    change = {"spec": {"cordonedCards": list(uuids)}}
    stage.cp.kubectl("patch", "gpunode", "node-a", "--type=merge", "-p", json.dumps(change))


def write_profile(path: Path, *, healthy: bool) -> None:
    """A profile of one card; replaced at once, as the agent may be reading it."""
    card = build.card(0, healthy=healthy, unhealthyReason="" if healthy else "Xid 79: fell off")
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(build.gpunode("any", [card])))
    new.replace(path)
