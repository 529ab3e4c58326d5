"""What the demonstration shows: the policies at work on four T4 that an agent publishes."""

import re
import time

import pytest

from cardwise import names
from stage import Stage

pytestmark = pytest.mark.both_doors

EXCLUSIVE = names.Reason.EXCLUSIVE


@pytest.fixture
def t4(stage: Stage) -> Stage:
    """One node with four T4, published by its agent."""
    stage.node("node-a", "t4x4")
    return stage


def test_without_a_policy_pods_walk_over_the_cards(t4: Stage) -> None:
    for card in range(4):
        t4.pod(f"p{card}", gpumem=1000)
        assert t4.placed(f"p{card}") == card


def test_binpack_stacks_on_one_card(t4: Stage) -> None:
    for number in range(3):
        t4.pod(f"p{number}", gpumem=1000, policy="binpack")
        assert t4.placed(f"p{number}") == 0


def test_mutex_waits_and_says_who_is_in_its_way(t4: Stage) -> None:
    occupy_all(t4)
    t4.pod("waits", gpumem=1000, policy="mutex")

    if not t4.gates:
        t4.pending("waits", f"0/1 nodes are available: 1 {EXCLUSIVE}")
    t4.event("waits", EXCLUSIVE)
    told = t4.describe("waits")
    assert f"4/4 {EXCLUSIVE} (GPU 0: {t4.namespace}/p0; GPU 1: {t4.namespace}/p1;" in told
    if not t4.gates:
        assert re.search(rf"Warning +FailedScheduling .*1 {EXCLUSIVE}", told)


def test_a_waiting_pod_is_placed_within_two_seconds_of_a_tenants_deletion(t4: Stage) -> None:
    occupy_all(t4)
    t4.pod("waits", gpumem=1000, policy="mutex")
    t4.pending("waits", EXCLUSIVE)
    before = t4.get("waits")["metadata"]
    time.sleep(3)  # kube-scheduler has lost interest by now: it must be woken

    t4.cp.request("DELETE", t4.path("p2"))

    assert t4.placed("waits", within=2) == 2
    after = t4.get("waits")["metadata"]
    assert after["uid"] == before["uid"]
    assert after["annotations"][names.POLICY] == before["annotations"][names.POLICY]


def test_the_worked_example_takes_gpu_2_and_logs_the_published_scores(t4: Stage) -> None:
    for tenant in ("a", "b", "c"):  # binpack on card 0 twice; mutex takes the next card
        t4.pod(tenant, gpumem=1000, policy="mutex,binpack" if tenant == "c" else "binpack")
        t4.placed(tenant)

    t4.pod("new", gpumem=1000, policy="mutex,binpack")

    assert t4.placed("new") == 2
    line = re.compile(
        rf"pod={t4.namespace}/new node=node-a gpu=(\d) uuid=GPU-\S+"
        r" computer score is (\S+) (\S+)"
    )
    assert line.findall(t4.controller.log.read_text()) == [
        ("0", "3.302083", EXCLUSIVE),
        ("1", "1.651042", EXCLUSIVE),
        ("2", "0.000000", "kept"),
        ("3", "0.000000", "kept"),
    ]


def test_kubectl_shows_the_allocation_of_a_bound_pod(t4: Stage) -> None:
    t4.pod("p", gpumem=1000)
    t4.placed("p")

    text = t4.cp.kubectl(
        "get",
        "pod",
        "p",
        f"-n={t4.namespace}",
        r"-o=jsonpath={.metadata.annotations.hami\.io/vgpu-devices-allocated}",
    )

    card = next(c for c in t4.gpunodes()[0]["status"]["cards"] if c["index"] == 0)
    assert text == f"{card['uuid']},NVIDIA,1000,0:;"


def test_a_bound_pod_carries_every_annotation_that_was_promised(t4: Stage) -> None:
    t4.pod("p", gpumem=1000, exclusive="true")
    t4.placed("p")

    written = t4.get("p")["metadata"]["annotations"]
    assert written[names.ALLOCATED] == written[names.TO_ALLOCATE]
    assert written[names.VGPU_NODE] == "node-a"
    assert written[names.BIND_PHASE] == "allocating"
    assert written[names.EXCLUSIVE_HELD] == "true"
    now = time.time()
    assert now - 60 < int(written[names.BIND_TIME]) <= now + 1
    assert now - 60 < int(written[names.VGPU_TIME]) <= now + 1


def test_kubectl_get_gpunodes_shows_what_is_used(t4: Stage) -> None:
    t4.pod("p0", gpumem=1000)
    t4.pod("p1", gpumem=2000)
    t4.placed("p0")
    t4.placed("p1")

    def shown() -> bool:
        heads, values = (re.split(r"  +", line) for line in lines())
        assert heads == ["NAME", "CARDS", "MODEL", "HEALTHY", "SLOTS", "MEMORY", "AGE"]
        return values[:6] == ["node-a", "4", "NVIDIA-Tesla T4", "4", "2/40", "3000/61440"]

    def lines() -> list[str]:
        return t4.cp.kubectl("get", "gpunodes").strip().splitlines()

    t4.cp.wait("the columns to tell of two tenants", shown, 20)


def test_a_bound_pod_is_told_its_card(t4: Stage) -> None:
    t4.pod("p", gpumem=1000, policy="mutex,binpack")
    t4.placed("p")

    note = t4.event("p", names.EventReason.CARDS_ALLOCATED)

    assert re.fullmatch(r"node-a: GPU 0 \(GPU-\S+\) 1000 MiB; policy mutex,binpack", note)


def occupy_all(stage: Stage) -> None:
    """One tenant a card: p0 on card 0, and so on."""
    for card in range(4):
        stage.pod(f"p{card}", gpumem=1000)
        assert stage.placed(f"p{card}") == card
