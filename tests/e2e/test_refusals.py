"""Pods that wait for something else than a card: other words, a quota, a mended annotation."""

import pytest

import build
from bookings import refused
from cardwise import names
from cardwise.names import EventReason, Reason
from stage import Json, Stage

pytestmark = pytest.mark.both_doors
UNREADABLE = "GPU-node-a-a,NVIDIA,many,0:;"


def test_a_request_that_cannot_be_read_waits_and_is_told_what_to_write(stage: Stage) -> None:
    stage.node("node-a", 1)

    # The webhook would deny it.
    gates = (names.GATE,) if stage.gates else ()
    stage.pod("p", gpumem="16Gi", admitted=False, gates=gates)

    stage.pending("p", Reason.INVALID_REQUEST, nodes=1)
    note = stage.event("p", Reason.INVALID_REQUEST)
    assert "nvidia.com/gpumem" in note
    assert "16Gi" in note
    assert "16384" in note


def test_an_unknown_policy_name_is_said_with_the_nearest_known_one(stage: Stage) -> None:
    stage.node("node-a", 1)

    stage.pod("p", gpumem=1000, policy="mutexx,binpack")

    stage.placed("p")
    note = stage.event("p", EventReason.UNKNOWN_POLICY)
    assert "'mutexx'" in note
    assert "Did you mean mutex?" in note
    assert "In force: binpack." in note


def set_quota(stage: Stage, **bounds: int) -> None:
    body = build.quota(stage.namespace, **bounds)
    body["metadata"] = {"name": "quota"}
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
    if any(q["metadata"]["name"] == "quota" for q in stage.cp.request("GET", path)["items"]):
        stage.patch(f"{path}/quota", {"spec": body["spec"]})
    else:
        stage.cp.request("POST", path, body)


def quota_in_force(stage: Stage, **bounds: int) -> None:
    """Set a quota, and wait until the controller knows it: then it refuses a Pod that passes it."""
    set_quota(stage, **bounds)

    def known() -> bool:
        stage.pod("probe", gpumem=15000, gpucores=99)
        stage.cp.wait("an answer", lambda: stage.placement("probe") or refused(stage), 20)
        is_refused = stage.placement("probe") is None
        stage.delete("probe")
        return is_refused

    stage.cp.wait("the controller to know the quota", known, 30)


@pytest.fixture
def bounded(stage: Stage) -> Stage:
    """Two cards, and a namespace that may have 8192 MiB and 50 % of their cores."""
    stage.node("node-a", 2)
    quota_in_force(stage, gpumem=8192, gpucores=50)
    stage.pod("tenant", gpumem=6000, gpucores=20)
    stage.placed("tenant")
    return stage


NUMBERS = [
    pytest.param(
        {"gpumem": 3000},
        "8192 MiB gpumem: 6000 in use, this Pod would make it 9000",
        id="memory",
    ),
    pytest.param(
        {"gpumem": 1000, "gpucores": 40},
        "50 % gpucores: 20 in use, this Pod would make it 60",
        id="cores",
    ),
    pytest.param(
        {"gpumem": 2000, "gpus": 2},
        "8192 MiB gpumem: 6000 in use, this Pod would make it 10000",
        id="memory of two cards",
    ),
]


@pytest.mark.parametrize(("request_", "numbers"), NUMBERS)
def test_a_quota_refuses_with_the_numbers_for(bounded: Stage, request_: Json, numbers: str) -> None:
    bounded.pod("p", **request_)

    bounded.pending("p", Reason.QUOTA, nodes=1)
    note = bounded.event("p", Reason.QUOTA)
    assert f"The quota of namespace {bounded.namespace} is {numbers}" in note


def test_a_pod_within_the_quota_is_placed(bounded: Stage) -> None:
    bounded.pod("p", gpumem=2192, gpucores=30)

    assert bounded.placed("p") == 1


def test_a_raised_quota_places_the_waiting_pod(bounded: Stage) -> None:
    bounded.pod("p", gpumem=3000)
    bounded.pending("p", Reason.QUOTA)

    set_quota(bounded, gpumem=9000, gpucores=50)

    assert bounded.placed("p", within=5) == 1


def test_a_tenants_end_gives_its_part_of_the_quota_back(bounded: Stage) -> None:
    bounded.pod("p", gpumem=3000)
    bounded.pending("p", Reason.QUOTA)

    bounded.delete("tenant")

    assert bounded.placed("p", within=5) == 0


def test_an_unreadable_allocation_closes_its_node_until_it_is_mended(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.tenant("odd", UNREADABLE)
    stage.event("odd", EventReason.UNREADABLE_ALLOCATION)
    stage.pod("p", gpumem=1000, policy="mutex")

    stage.pending("p", Reason.NODE_UNREADABLE, nodes=1)
    note = stage.event("p", Reason.NODE_UNREADABLE)
    assert f"{stage.namespace}/odd" in note
    stage.cp.wait("the GPUNode to say so", lambda: closed(stage, "node-a"), 10)

    mended = {"metadata": {"annotations": {names.ALLOCATED: "GPU-node-a-a,NVIDIA,1000,0:;"}}}
    stage.patch(stage.path("odd"), mended)

    assert stage.placed("p", within=5) == 1
    stage.cp.wait("the GPUNode to say no more", lambda: not closed(stage, "node-a"), 10)


def closed(stage: Stage, name: str) -> bool:
    """Whether the controller says on a GPUNode that an unreadable allocation closes its node."""
    found = next(each for each in stage.gpunodes() if each["metadata"]["name"] == name)
    told = found["status"].get("conditions", ())
    return any(each["type"] == names.CONDITION_UNREADABLE for each in told)


def test_a_node_whose_unreadable_pod_is_deleted_is_open_again(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.tenant("odd", UNREADABLE)
    stage.event("odd", EventReason.UNREADABLE_ALLOCATION)
    stage.pod("p", gpumem=1000)
    stage.pending("p", Reason.NODE_UNREADABLE)

    stage.delete("odd")

    assert stage.placed("p", within=5) == 0


def test_an_allocation_that_a_user_wrote_on_a_waiting_pod_books_nothing(stage: Stage) -> None:
    stage.node("node-a", 1)
    liar = build.pod("liar", gpumem=15000, allocated="GPU-node-a-a,NVIDIA,15360,100:;")
    liar["spec"]["nodeSelector"] = {"no": "such-node"}
    stage.create(liar, admitted=False)

    stage.pod("p", gpumem=15000, policy="mutex")

    assert stage.placed("p") == 0
