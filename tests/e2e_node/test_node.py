"""The node itself, and what kubelet tells of its cards: what all other tests here stand on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.pods import FOREVER, SEE, container, pod
from node.stage import SLOTS, Ward


def test_a_pod_runs_on_the_node_and_prints(ward: Ward) -> None:
    created = ward.node.create(pod("says-hello", [container("main", "echo hello")]))

    ended = ward.node.ended("says-hello")

    assert ended["status"]["phase"] == "Succeeded"
    assert ended["metadata"]["uid"] == created["metadata"]["uid"]
    assert ward.node.printed(ended, "main") == ["hello"]


def test_kubelet_tells_of_every_slot(ward: Ward) -> None:
    assert ward.node.allocatable("nvidia.com/gpu") == SLOTS


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
