"""Annotations, variables and metrics: HAMi's formats, read and written here."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import build
from cardwise import names
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.choice import card_of, devices_of
from cardwise.agent.deviceplugin.handover import Library, edits_of
from cardwise.agent.deviceplugin.messages import ContainerAnswer
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from cardwise.controller.placing import lockvalue
from cardwise.errors import BadAllocation
from cardwise.ledger import STALE_SECONDS
from cardwise.model import Card, ContainerKind, PodRef, Share
from cardwise.names import Reason
from cardwise.settings import Settings
from cardwise.wire.allocation import decode, encode
from cardwise.wire.pods import binding_body, booking_of, is_handing
from controllers import World
from simulated import answer, node, tenant, where

ROOT = Path(__file__).parents[2]
A, B = Share("GPU-aa", 3000, 30), Share("GPU-bb", 3000, 30)
TEXT_A, TEXT_B = "GPU-aa,NVIDIA,3000,30:", "GPU-bb,NVIDIA,3000,30:"

# The allocation text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        pytest.param([[A]], f"{TEXT_A};", id="D5: one card"),
        pytest.param([[B, A]], f"{TEXT_B}{TEXT_A};", id="D5: the order of the choice is kept"),
        pytest.param([[A], []], f"{TEXT_A};;", id="D5: the second container without"),
        pytest.param([[], [A]], f";{TEXT_A};", id="D5: an init container without"),
    ],
)
def test_the_text_is_hamis_both_ways(containers: list[list[Share]], text: str) -> None:
    assert encode(containers) == text
    assert decode(text) == tuple(map(tuple, containers))


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        pytest.param(
            f"{TEXT_A};;;;", {"GPU-aa"}, id="D5: segments that the plugin's way back added"
        ),
        pytest.param(f"{TEXT_A}", {"GPU-aa"}, id="D5: a text without its end"),
        pytest.param("GPU-aa,NVIDIA,3000,30,x,y:;", {"GPU-aa"}, id="D5: fields of a later release"),
        pytest.param("GPU-aa,nvidia,3000,30:;", {"GPU-aa"}, id="D5: another word of the device"),
        pytest.param(
            "GPU-aa,NVIDIA,3000,30:;GPU-aa,NVIDIA,3000,30:;",
            {"GPU-aa"},
            id="D5: more segments than containers",
        ),
        pytest.param(";;", set(), id="D5: no container has cards"),
        pytest.param("", set(), id="D5: an empty text"),
    ],
)
def test_what_hami_wrote_on_a_bound_pod_is_a_booking(text: str, uses: set[str]) -> None:
    booking = booking_of(build.pod("p", node="n1", allocated=text))

    assert booking is not None
    assert {share.uuid for shares in booking.containers for share in shares} == uses


def test_cards_that_hami_wrote_into_the_wrong_segment_are_held_to_the_pods_end() -> None:
    """D5: [init without cards][app with cards] is written as if the init container had them."""
    pod = build.pod(
        "p",
        node="n1",
        init=[build.container("i")],
        containers=[build.container("a", gpu=1)],
        allocated=f"{TEXT_A};",
        init_exits={"i": 0},
    )

    booking = booking_of(pod, init_shrink=True)

    assert booking is not None
    assert booking.containers == ((A,),)
    assert booking.kinds == (ContainerKind.REGULAR,)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("uuid,type,100:;", id="D5: three fields"),
        pytest.param("uuid,type,many,0:;", id="D5: a number that is none"),
    ],
)
def test_a_text_that_cannot_be_read_closes_its_node_where_hami_forgets_the_pod(text: str) -> None:
    with pytest.raises(BadAllocation):
        decode(text)

    got = answer(node(cards=1), tenant("t", text), build.pod("p", gpumem=1))["default/p"]

    assert got["reason"] == Reason.NODE_UNREADABLE


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        pytest.param({"node": "n1"}, True, id="a bound Pod"),
        pytest.param({"node": "n1", "terminating": True}, True, id="a terminating one"),
        pytest.param({"node": "n1", "scheduler": "hami-scheduler"}, True, id="HAMi's own Pod"),
        pytest.param({"node": "n1", "phase": "Succeeded"}, False, id="one that succeeded"),
        pytest.param({"node": "n1", "phase": "Failed"}, False, id="one that failed"),
        pytest.param({}, False, id="one that HAMi chose cards for and never bound"),
    ],
)
def test_which_of_hamis_pods_hold_their_cards(fields: dict[str, Any], holds: bool) -> None:
    annotations = {names.ALLOCATED: f"{TEXT_A};", names.VGPU_NODE: "n1"}

    booking = booking_of(build.pod("p", annotations=annotations, **fields))

    assert (booking is not None) is holds


def test_what_is_written_on_a_pod_is_what_hamis_tools_read() -> None:
    """Section 1.2; the label ``hami.io/vgpu-node`` is not written: a Binding writes no label."""
    booking = booking_of(build.pod("p", node="n1", allocated=f"{TEXT_A};"))
    assert booking is not None

    body = binding_body(PodRef("default", "p", "u"), booking, 1_780_000_000, exclusive=False)

    assert body["metadata"]["annotations"] == {
        "hami.io/vgpu-devices-allocated": f"{TEXT_A};",
        "hami.io/vgpu-devices-to-allocate": f"{TEXT_A};",
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1780000000",
        "hami.io/bind-time": "1780000000",
        "hami.io/bind-phase": "allocating",
    }
    assert "labels" not in body["metadata"]


@pytest.mark.parametrize(
    ("phase", "annotation", "waits"),
    [
        pytest.param("Pending", "allocating", True, id="placed"),
        pytest.param("Pending", "success", False, id="handed its cards"),
        pytest.param("Pending", "failed", False, id="refused"),
        pytest.param("Running", "allocating", False, id="running"),
        pytest.param("Pending", None, False, id="nothing said"),
    ],
)
def test_the_life_of_the_bind_phase(phase: str, annotation: str | None, waits: bool) -> None:
    annotations = {} if annotation is None else {names.BIND_PHASE: annotation}

    assert is_handing(build.pod("p", node="n1", phase=phase, annotations=annotations)) is waits


# Nodes --------------------------------------------------------------------------------------------


def test_a_lock_is_written_as_hami_writes_it() -> None:
    written = lockvalue.value_of(PodRef("default", "pod-a"), 1_787_277_600)

    assert written == "2026-08-21T02:00:00Z,default,pod-a"
    theirs = build.node_object(
        "n1", annotations={names.NODE_LOCK: "2026-08-21T10:00:00+08:00,default,pod-a"}
    )
    lock = lockvalue.lock_of(theirs)
    assert lock is not None
    assert lock.is_of(PodRef("default", "pod-a"))
    assert not lock.is_over(1_787_277_600 + 300)
    assert lock.is_over(1_787_277_600 + 301)


async def test_a_node_is_alive_while_its_report_changes() -> None:
    """H1: no handshake; a GPUNode whose heartbeat stands still for 180 s takes no new Pod."""
    world = await World(build.gpunode("n1", 1), build.node_object("n1", gpus=10)).load()
    now = world.ledger.account("n1").report_seen  # type: ignore[union-attr]

    assert world.ledger.age_reports(now + STALE_SECONDS) == []
    assert world.ledger.age_reports(now + STALE_SECONDS + 1) == ["n1"]

    refused = world.filter(build.pod(gpumem=1), "n1")["FailedAndUnresolvableNodes"]
    assert refused == {"n1": Reason.NODE_NOT_REPORTED}


# What a container is given ------------------------------------------------------------------------

CORE = Library(file="libvgpu.so.v2.10.0")


def edits(*shares: Share, own_env: dict[str, str] | None = None) -> Any:
    return edits_of(
        shares,
        modes=["hami-core"],
        oversold=False,
        library=CORE,
        cache="u_app",
        own_env=own_env or {},
    )


def test_each_container_is_told_its_own_limits() -> None:
    """D1: two requests of one Pod, 3000 MiB with 50 % and 4000 MiB with 60 %."""
    first, second = decode("GPU-aaa,NVIDIA,3000,50:;GPU-bbb,NVIDIA,4000,60:;")

    one, other = edits(*first).env, edits(*second).env

    assert (one["CUDA_DEVICE_MEMORY_LIMIT_0"], one["CUDA_DEVICE_SM_LIMIT"]) == ("3000m", "50")
    assert (other["CUDA_DEVICE_MEMORY_LIMIT_0"], other["CUDA_DEVICE_SM_LIMIT"]) == ("4000m", "60")
    assert one["NVIDIA_VISIBLE_DEVICES"] == "GPU-aaa"
    assert "CUDA_OVERSUBSCRIBE" not in one


@pytest.mark.parametrize(
    ("own_env", "preloaded"),
    [
        pytest.param({}, True, id="D2: HAMi-core is loaded into every program"),
        pytest.param({"CUDA_DISABLE_CONTROL": "true"}, False, id="D2: unless its author says no"),
    ],
)
def test_a_user_may_keep_hami_core_out(own_env: dict[str, str], preloaded: bool) -> None:
    mounts = {mount.container for mount in edits(A, own_env=own_env).mounts}

    assert ("/etc/ld.so.preload" in mounts) is preloaded
    assert "/usr/local/vgpu/libvgpu.so" in mounts


@pytest.mark.parametrize(
    ("device", "card"),
    [
        pytest.param("GPU-a-0", "GPU-a", id="D4: the first slot"),
        pytest.param("GPU-a-10", "GPU-a", id="D4: the eleventh"),
    ],
)
def test_device_ids_are_a_uuid_and_a_slot(device: str, card: str) -> None:
    shown = Card(uuid="GPU-a", index=0, memory_mib=1, slots=11)

    assert device in [each.id for each in devices_of([shown])]
    assert card_of(device) == card


@pytest.mark.parametrize(
    ("text", "count", "why"),
    [
        pytest.param(TEXT_A + ";", 2, "asked for 2 cards", id="D3: two devices for one card"),
        pytest.param(None, 1, "no allocation", id="D3: no annotation"),
        pytest.param(TEXT_A + ";", 1, "allocation has 0", id="D3: fewer segments than containers"),
    ],
)
def test_a_container_that_has_not_the_cards_it_asked_for_does_not_start(
    text: str | None, count: int, why: str
) -> None:
    containers = [build.container(name, gpu=1, gpumem=1) for name in ("app", "other")]
    pod = build.pod("p", node="n1", allocated=text, containers=containers, uid="u")
    asking = "app" if count == 2 or text is None else "other"
    entry = Entry(
        pod_uid="u",
        container=asking,
        resource=names.RESOURCE_COUNT,
        ids=frozenset(f"GPU-aa-{slot}" for slot in range(count)),
        answer=ContainerAnswer(envs={}),
    )
    shown = Node(cards=[Card(uuid="GPU-aa", index=0, memory_mib=15360)])

    refusal = judge("u", [pod], [entry], shown)

    assert isinstance(refusal, Refusal)
    assert why in refusal.message


# Metrics ------------------------------------------------------------------------------------------

CARD = {"zone", "node", "device_uuid", "device_index", "device_type"}
METRICS = {
    "hami_gpu_memory_limit_bytes": CARD,
    "hami_gpu_core_limit_ratio": CARD,
    "hami_gpu_memory_allocated_bytes": CARD | {"device_cores"},
    "hami_gpu_shared_count": CARD,
    "hami_gpu_core_allocated_ratio": CARD,
    "hami_node_gpu_overview": CARD | {"device_cores", "device_memory_limit"},
    "hami_node_gpu_memory_allocated_ratio": CARD,
    "hami_resource_quota_used": {"zone", "namespace", "quota_name", "limit"},
    "hami_resource_quota_limit": {"zone", "namespace", "quota_name"},
    "hami_vgpu_memory_allocated_bytes": {
        "zone",
        "namespace",
        "node",
        "pod",
        "container_index",
        "device_uuid",
    },
    "hami_vgpu_core_allocated_ratio": {
        "zone",
        "namespace",
        "node",
        "pod",
        "container_index",
        "device_uuid",
    },
}
"""Those of HAMi's scheduler, but for its build and for instances of MIG."""


async def test_metrics_have_hamis_names_and_labels_and_units() -> None:
    has = tenant("t", "GPU-a,NVIDIA,1000,30:;")
    world = await World(node(cards=1), has, build.quota(gpumem=2000)).load()

    text = world.controller.metrics.render().decode()

    samples = {
        sample.name: sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("hami_")
    }
    assert {name: set(sample.labels) for name, sample in samples.items()} == METRICS
    assert {sample.labels["zone"] for sample in samples.values()} == {"vGPU"}
    assert {name: sample.value for name, sample in samples.items()} == {
        "hami_gpu_memory_limit_bytes": 15360 * 2**20,
        "hami_gpu_core_limit_ratio": 100,
        "hami_gpu_memory_allocated_bytes": 1000 * 2**20,
        "hami_gpu_shared_count": 1,
        "hami_gpu_core_allocated_ratio": 30,
        "hami_node_gpu_overview": 1000 * 2**20,
        "hami_node_gpu_memory_allocated_ratio": pytest.approx(1000 / 15360),
        "hami_resource_quota_used": 1000,
        "hami_resource_quota_limit": 2000,
        "hami_vgpu_memory_allocated_bytes": 1000 * 2**20,
        "hami_vgpu_core_allocated_ratio": 30,
    }


# Manifests ----------------------------------------------------------------------------------------

ANNOTATIONS = {
    "hami.io/gpu-scheduler-policy": "mutex,binpack",
    "hami.io/node-scheduler-policy": "spread",
    "hami.io/device-scoring-weights": "slot=1,core=1,memory=3",
    "nvidia.com/use-gputype": "T4",
    "nvidia.com/nouse-gputype": "A100",
    "nvidia.com/use-gpuuuid": "GPU-a,GPU-b",
    "nvidia.com/nouse-gpuuuid": "GPU-b",
    "nvidia.com/numa-bind": "true",
    "nvidia.com/vgpu-mode": "hami-core",
}


def test_a_manifest_for_hami_runs_unchanged() -> None:
    """Every annotation and resource of HAMi's on one Pod, without a word against it but one."""
    pod = build.pod(
        "p",
        scheduler="hami-scheduler",
        annotations=ANNOTATIONS,
        containers=[build.container(gpu=1, gpumem=1000, gpucores=30, priority=1)],
    )

    got = answer(node(cards=2), pod)["default/p"]

    assert where(got) == [[0]]
    assert [warning.split()[0] for warning in got["warnings"]] == ["nvidia.com/numa-bind"]


PAGE = (ROOT / "docs" / "hami-compatibility.md").read_text()


@pytest.mark.parametrize("word", [*ANNOTATIONS, *names.RESOURCES, *METRICS])
def test_the_page_tells_of_each_name_of_hamis(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_every_setting_that_the_page_names_is_one() -> None:
    named = re.findall(r"`((?:scheduling|defaults|admission|agent)\.[\w.]+)`", PAGE)

    for key in named:
        at: Any = Settings()
        for part in key.split("."):
            at = getattr(at, part)
    assert len(named) > 10
