"""The node itself, and what kubelet tells of its cards: what all other tests here stand on.

By the door of gates, where kubelet and the agent both write the Node's status.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cardwise import names
from cardwise.names import Door
from controlplane.api import Api, ApiError
from node.ground import why_not
from node.pods import FOREVER, SEE, container, pod
from node.stage import SLOTS, Ward

MEMORY: Final = 4 * 15360
CORES: Final = 4 * 100


@pytest.fixture(scope="module")
def raised() -> Iterator[Ward]:
    """The node as it is where the door of gates is installed."""
    reason = why_not()
    if reason:
        pytest.skip(f"NO REAL NODE ON THIS MACHINE: {reason}")
    with Ward.raised(Door.GATES) as ward:
        yield ward


def test_a_pod_runs_on_the_node_and_prints(ward: Ward) -> None:
    created = ward.node.create(pod("says-hello", [container("main", "echo hello")]))

    ended = ward.node.ended("says-hello")

    assert ended["status"]["phase"] == "Succeeded"
    assert ended["metadata"]["uid"] == created["metadata"]["uid"]
    assert ward.node.printed(ended, "main") == ["hello"]


def test_kubelet_tells_of_every_slot(ward: Ward) -> None:
    assert ward.node.allocatable("nvidia.com/gpu") == SLOTS


# --- kubelet and the agent do not fight -----------------------------------------------------------


def amounts(ward: Ward) -> tuple[int, int, int]:
    """What the node has for Pods: slots, MiB, cores."""
    return (
        ward.node.allocatable(names.RESOURCE_COUNT),
        ward.node.allocatable(names.RESOURCE_MEMORY),
        ward.node.allocatable(names.RESOURCE_CORES),
    )


def advertises(ward: Ward, slots: int) -> None:
    """Wait until the node advertises all, with so many slots."""
    ward.cp.wait("the amounts", lambda: amounts(ward) == (slots, MEMORY, CORES), 30)


def seen(ward: Ward, seconds: float) -> set[tuple[int, int, int]]:
    """Everything that the node advertised meanwhile."""
    found, deadline = set(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        found.add(amounts(ward))
        time.sleep(0.05)
    return found


def test_kubelet_and_the_agent_agree(ward: Ward) -> None:
    """Over three of kubelet's own writes."""
    advertises(ward, SLOTS)
    assert seen(ward, 7) == {(SLOTS, MEMORY, CORES)}


def test_the_slots_of_a_sick_card_are_gone_and_stay_gone(ward: Ward) -> None:
    """Until it is well; its tenant runs on."""
    ward.book("tenant", ward.text([(1, 1000, 0)]), [container("main", FOREVER, gpus=1)])
    ward.node.running("tenant")
    advertises(ward, SLOTS)

    ward.sick(1)

    advertises(ward, SLOTS * 3 // 4)
    assert seen(ward, 7) == {(SLOTS * 3 // 4, MEMORY, CORES)}
    assert ward.node.get("tenant")["status"]["phase"] == "Running"
    ward.sick()
    advertises(ward, SLOTS)


@pytest.mark.parametrize("lost", [False, True], ids=["with-its-accounts", "without"])
def test_a_restart_of_kubelet_leaves_our_amounts(ward: Ward, lost: bool) -> None:
    advertises(ward, SLOTS)

    ward.restart_kubelet(lost=lost)

    advertises(ward, SLOTS)
    assert seen(ward, 5) == {(SLOTS, MEMORY, CORES)}


# --- HAMi-core ------------------------------------------------------------------------------------

LOOK = (
    "cat /usr/local/vgpu/libvgpu.so; cat /etc/ld.so.preload || echo not preloaded; "
    ': > "$CUDA_DEVICE_MEMORY_SHARED_CACHE" && : > /tmp/vgpulock/$NAME && echo wrote; '
    "(: > /usr/local/vgpu/libvgpu.so) 2>/dev/null || echo kept; "
)


@pytest.fixture
def hami_core(ward: Ward) -> Iterator[Path]:
    """HAMi-core's directory on the node, with what HAMi puts there; /tmp is the machine's."""
    place, lock = ward.node.hami_core, Path("/tmp/vgpulock")
    lock_was_there = lock.exists()
    (place / "libvgpu.so.v2.10").write_text("the library\n")
    (place / "ld.so.preload").write_text("/usr/local/vgpu/libvgpu.so\n")
    yield place
    for each in ("libvgpu.so.v2.10", "ld.so.preload"):
        (place / each).unlink()
    for each in ("loaded", "unloaded"):
        (lock / each).unlink(missing_ok=True)
    if lock.exists() and not lock_was_there:
        lock.rmdir()


def test_hami_core_is_mounted_where_the_node_has_it(ward: Ward, hami_core: Path) -> None:
    """Each container has the library and a directory of its own, whatever its user; who says so
    has the library without being made to load it.
    """
    nobody = {"securityContext": {"runAsUser": 65534}}
    loaded = container("loaded", LOOK + SEE + FOREVER, gpus=1, env={"NAME": "loaded"}) | nobody
    freed = {"NAME": "unloaded", "CUDA_DISABLE_CONTROL": "true"}
    unloaded = container("unloaded", LOOK + SEE + FOREVER, gpus=1, env=freed) | nobody

    made = ward.book("core", ward.text([(0, 1000, 0)], [(1, 1000, 0)]), [loaded, unloaded])

    uid = made["metadata"]["uid"]
    for name, preload in (("loaded", "/usr/local/vgpu/libvgpu.so"), ("unloaded", "not preloaded")):
        seen = ward.saw("core", name)
        assert seen["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == f"/usr/local/vgpu/{uid}_{name}.cache"
        lines = ward.node.printed(ward.node.get("core"), name)
        assert [line for line in lines if line in ("the library", preload, "wrote", "kept")] == [
            "the library",
            preload,
            "wrote",
            "kept",
        ], lines
        assert (hami_core / "containers" / f"{uid}_{name}" / f"{uid}_{name}.cache").is_file()
    ward.node.delete("core")
    ward.restart_agent()  # it looks once a minute, and when it starts
    ward.cp.wait("the caches to go", lambda: not list((hami_core / "containers").iterdir()), 30)


# --- what the agents' account may change of a Pod: the phase of its allocation --------------------

PHASE: Final = {"metadata": {"annotations": {names.BIND_PHASE: "failed"}}}

FORBIDDEN: Final[list[Any]] = [
    pytest.param({"status": {"phase": "Succeeded"}}, id="status"),
    pytest.param({"metadata": {"labels": {"app": "x"}}}, id="label"),
    pytest.param(
        {"metadata": {"annotations": {names.ALLOCATED: "GPU-a,NVIDIA,1,0:;"}}}, id="allocation"
    ),
    pytest.param({"metadata": {"annotations": {"note": "x"}}}, id="another-annotation"),
    pytest.param({"metadata": {"annotations": {names.BIND_TIME: None}}}, id="annotation-removed"),
    pytest.param({**PHASE, "status": {"message": "x"}}, id="phase-and-status"),
]


def patched(ward: Ward, patch: Mapping[str, Any], *, status: bool = True) -> str:
    """What the API server says when the agent patches the Pod; empty: it did."""
    (user,) = yaml.safe_load(ward.account.read_text())["users"]
    agent = Api(ward.cp.server, ward.cp.ca, user["user"]["token"])
    path = "/api/v1/namespaces/default/pods/one" + ("/status" if status else "")
    try:
        agent.request("PATCH", path, patch, content_type="application/merge-patch+json")
    except ApiError as error:
        return str(error)
    finally:
        agent.close()
    return ""


@pytest.fixture(scope="module")
def started(raised: Ward) -> Ward:
    """The node with one Pod, for all tests below."""
    raised.clear()
    raised.book("one", raised.text([(0, 1000, 0)]), [container("main", FOREVER, gpus=1)])
    raised.node.running("one")
    raised.cp.wait("the phase", lambda: raised.annotation("one", names.BIND_PHASE) == "success", 10)
    return raised


def test_an_agent_writes_the_phase(started: Ward) -> None:
    assert patched(started, PHASE) == ""
    assert started.annotation("one", names.BIND_PHASE) == "failed"


@pytest.mark.parametrize("patch", FORBIDDEN)
def test_an_agent_writes_nothing_else(started: Ward, patch: Mapping[str, Any]) -> None:
    assert "an agent changes nothing of a Pod but" in patched(started, patch)


def test_an_agent_does_not_patch_pods(started: Ward) -> None:
    assert "cannot patch resource" in patched(started, PHASE, status=False)
