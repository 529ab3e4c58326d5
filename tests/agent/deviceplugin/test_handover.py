"""What a container is given with its cards."""

import orjson
import pytest

from cardwise.agent.deviceplugin import handover
from cardwise.agent.deviceplugin.handover import Edits, Library, Mount
from cardwise.model import Share
from plugin import share

CORE = Library(directory="/usr/local/vgpu", file="libvgpu.so.v2.10")


def edits(*shares: Share, **fields: object) -> Edits:
    given = {
        "modes": ["hami-core"],
        "oversold": False,
        "library": handover.NO_LIBRARY,
        "cache": "uid_app",
        "own_env": {},
        **fields,
    }
    return handover.edits_of(shares or (share(0),), **given)  # type: ignore[arg-type]


def test_variables_are_hamis() -> None:
    assert edits(share(1, 3000, 30), share(0, 2000, 40)).env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-a",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "2000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/uid_app.cache",
    }


def test_a_card_that_is_named_twice_is_shown_once() -> None:
    assert edits(share(0), share(0)).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"


def test_an_oversold_node_says_so() -> None:
    assert edits(oversold=True).env["CUDA_OVERSUBSCRIBE"] == "true"
    assert "CUDA_OVERSUBSCRIBE" not in edits().env


def test_a_card_in_mig_mode_has_no_limits_of_ours() -> None:
    made = edits(share(0), modes=["mig"], library=CORE, oversold=True)

    assert made == Edits(env={"NVIDIA_VISIBLE_DEVICES": "GPU-a"})


def test_nothing_is_mounted_where_the_node_has_no_hami_core() -> None:
    assert edits().mounts == ()


def test_hami_core_is_mounted_where_the_node_has_it() -> None:
    assert edits(library=CORE).mounts == (
        Mount("/usr/local/vgpu/containers/uid_app", "/usr/local/vgpu"),
        Mount("/usr/local/vgpu/libvgpu.so.v2.10", "/usr/local/vgpu/libvgpu.so", read_only=True),
        Mount("/tmp/vgpulock", "/tmp/vgpulock"),
        Mount("/usr/local/vgpu/ld.so.preload", "/etc/ld.so.preload", read_only=True),
    )


@pytest.mark.parametrize(
    ("value", "preloaded"),
    [("true", False), ("True", False), ("1", False), ("false", True), ("", True), ("no", True)],
)
def test_a_user_may_keep_it_from_being_loaded(value: str, preloaded: bool) -> None:
    made = edits(library=CORE, own_env={"CUDA_DISABLE_CONTROL": value})

    assert ("/etc/ld.so.preload" in {mount.container for mount in made.mounts}) == preloaded
    assert "/usr/local/vgpu/libvgpu.so" in {mount.container for mount in made.mounts}


def test_a_licence_comes_with_its_checker() -> None:
    licensed = Library(directory=CORE.directory, file=CORE.file, licensed=True)

    assert edits(library=licensed).mounts[-2:] == (
        Mount("/usr/local/vgpu/license", "/tmp/license", read_only=True),
        Mount("/usr/local/vgpu/vgpuvalidator", "/usr/bin/vgpuvalidator", read_only=True),
    )


def test_a_spec_has_a_device_for_each_token() -> None:
    text = handover.spec_text(
        {"t2": Edits(env={"A": "1"}), "t1": Edits(env={"B": "x=y"}, mounts=(Mount("/h", "/c"),))}
    )

    assert orjson.loads(text) == {
        "cdiVersion": "0.5.0",
        "kind": "cardwise.dev/card",
        "devices": [
            {
                "name": "t1",
                "containerEdits": {
                    "env": ["B=x=y"],
                    "mounts": [
                        {
                            "hostPath": "/h",
                            "containerPath": "/c",
                            "options": ["rw", "nosuid", "nodev", "bind"],
                        }
                    ],
                },
            },
            {"name": "t2", "containerEdits": {"env": ["A=1"]}},
        ],
    }
    assert handover.spec_tokens(text) == {"t1", "t2"}


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b'{"devices":1}', b'{"devices":[{}]}', b"[]"])
def test_what_is_no_spec_has_no_tokens(text: bytes) -> None:
    assert handover.spec_tokens(text) == frozenset()


def test_only_names_of_our_kind_are_tokens() -> None:
    names = ["cardwise.dev/card=t1", "nvidia.com/gpu=0", handover.cdi_name("t2")]

    assert handover.tokens_of(names) == ("t1", "t2")
