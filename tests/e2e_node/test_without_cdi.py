"""A runtime without CDI: what kubelet is told is a guess, and a wrong one never starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node import starts
from node.ground import why_not
from node.pods import FOREVER, SEE, container
from node.stage import Ward


@pytest.fixture(scope="module")
def raised() -> Iterator[Ward]:
    """A node of its own, with containerd 1.6."""
    reason = why_not(cdi=False)
    if reason:
        pytest.skip(f"NO REAL NODE WITHOUT CDI ON THIS MACHINE: {reason}")
    with Ward.raised(cdi=False) as ward:
        yield ward


def test_a_container_sees_its_card_and_limits(ward: Ward) -> None:
    ward.book("one", ward.text([(2, 1000, 30), (0, 2000, 10)]), [container("main", SEE, gpus=2)])

    seen = ward.saw("one", "main")
    assert seen["NVIDIA_VISIBLE_DEVICES"] == f"{ward.card(2)},{ward.card(0)}"
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_1"] == "2000m"
    assert seen["CUDA_DEVICE_SM_LIMIT"] == "30"


def test_each_container_of_a_pod_has_its_own_cards(ward: Ward) -> None:
    """An init container that shares its ids with a later one, a sidecar, one without cards."""
    init = [
        container("first", SEE, gpus=1),
        container("beside", SEE + FOREVER, gpus=1, sidecar=True),
    ]
    regular = [
        container("main", SEE + FOREVER, gpus=1),
        container("plain", SEE + FOREVER),
        container("other", SEE + FOREVER, gpus=2),
    ]
    cards = {
        "first": [(0, 1000, 0)],
        "beside": [(1, 1100, 0)],
        "main": [(3, 1200, 0)],
        "plain": [],
        "other": [(2, 1300, 0), (0, 1301, 0)],
    }

    starts.each_container_has_its_own_cards(ward, cards, regular, init)

    ids = list(ward.ids("family").values())
    assert len(set(ids)) < len(ids), "the test is of containers that share ids"


def test_twenty_at_once_get_each_its_own_card(ward: Ward) -> None:
    """Created in one order, bound in another."""
    starts.twenty_at_once_get_each_its_own_card(ward)


def test_a_wrong_guess_does_not_start(ward: Ward) -> None:
    """What is written last counts as bound last; kubelet had heard of it first."""
    with ward.kubelet_stands_still():
        for name, index in (("first", 1), ("second", 2)):
            main = container("main", SEE + FOREVER, gpus=1)
            ward.book(name, ward.text([(index, 1000, 0)]), [main])
        ward.label("first")

    assert ward.saw("second", "main")["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    told = ward.event("first", "AllocationMismatch")
    assert f"kubelet was told NVIDIA_VISIBLE_DEVICES={ward.card(2)}" in told
    assert f"the Pod's allocation says {ward.card(1)}" in told
    assert ward.node.get("first")["status"]["phase"] == "Pending"
    assert not ward.node.printed(ward.node.get("first"), "main")


def test_a_variable_of_the_authors_that_would_hide_ours_does_not_start(ward: Ward) -> None:
    cheat = {"NVIDIA_VISIBLE_DEVICES": "all"}

    ward.book("cheat", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1, env=cheat)])

    assert "its own variable NVIDIA_VISIBLE_DEVICES would hide ours" in ward.event(
        "cheat", "AllocationMismatch"
    )
    assert not ward.node.printed(ward.node.get("cheat"), "main")


def test_the_agent_and_kubelet_restart(ward: Ward) -> None:
    """Between Allocate and the start, and between two starts; then with no API server."""
    once = "while ! test -e /tmp/go; do sleep 0.1; done; exit 1"
    ward.book(
        "slow",
        ward.text([], [(2, 1000, 0)]),
        [container("main", SEE + once, gpus=1)],
        init=[container("wait", "while ! test -e /tmp/go; do sleep 0.1; done")],
        restart="Always",
    )
    ward.cp.wait("slots to be given", lambda: "main" in ward.ids("slow"), 30)
    ward.cp.wait("the init container", lambda: ward.init_runs("slow"), 30)

    ward.restart_agent()
    ward.restart_kubelet()
    ward.touch("slow", "wait", "/tmp/go")

    assert ward.saw("slow", "main", within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    found = ward.node.running("slow")
    with ward.no_api_server(found, "main", "/tmp/go") as printed:
        assert f"NVIDIA_VISIBLE_DEVICES={ward.card(2)}" in printed(1)


def test_hami_core_is_mounted(ward: Ward) -> None:
    """Its directory is told by a token, and is the one that HAMi's tools know."""
    look = 'cat /usr/local/vgpu/libvgpu.so; : > "$CUDA_DEVICE_MEMORY_SHARED_CACHE" && echo wrote; '
    place, lock = ward.node.hami_core, Path("/tmp/vgpulock")
    lock_was_there = lock.exists()
    (place / "libvgpu.so").write_text("the library\n")
    (place / "ld.so.preload").write_text("/usr/local/vgpu/libvgpu.so\n")
    try:
        made = ward.book(
            "core", ward.text([(0, 1000, 0)]), [container("main", look + SEE + FOREVER, gpus=1)]
        )
        ward.saw("core", "main")
        lines = ward.node.printed(ward.node.get("core"), "main")
        assert [line for line in lines if line in ("the library", "wrote")] == [
            "the library",
            "wrote",
        ]
        caches = place / "containers"
        assert len(list((caches / f"{made['metadata']['uid']}_main").glob("*.cache"))) == 1
        ward.node.delete("core")
        ward.restart_agent()  # it looks once a minute, and when it starts
        ward.cp.wait("the caches to go", lambda: not list(caches.iterdir()), 30)
    finally:
        for each in ("libvgpu.so", "ld.so.preload"):
            (place / each).unlink()
        if lock.exists() and not lock_was_there:
            lock.rmdir()
