"""What the agents' account may change of a Pod: the phase of its allocation."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from cardwise import names
from node.pods import FOREVER, container
from node.stage import Ward

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
    """What kubectl says when the agent patches the Pod."""
    return ward.cp.kubectl(
        "patch",
        "pod",
        "one",
        "-n=default",
        "--type=merge",
        f"--patch={json.dumps(patch)}",
        *(["--subresource=status"] if status else []),
        kubeconfig=ward.account,
        check=False,
    ).stderr


@pytest.fixture
def started(ward: Ward) -> Ward:
    ward.book("one", ward.text([(0, 1000, 0)]), [container("main", FOREVER, gpus=1)])
    ward.node.running("one")
    ward.cp.wait("the phase", lambda: ward.annotation("one", names.BIND_PHASE) == "success", 10)
    return ward


def test_an_agent_writes_the_phase(started: Ward) -> None:
    assert patched(started, PHASE) == ""
    assert started.annotation("one", names.BIND_PHASE) == "failed"


@pytest.mark.parametrize("patch", FORBIDDEN)
def test_an_agent_writes_nothing_else(started: Ward, patch: Mapping[str, Any]) -> None:
    assert "an agent changes nothing of a Pod but" in patched(started, patch)


def test_an_agent_does_not_patch_pods(started: Ward) -> None:
    assert "cannot patch resource" in patched(started, PHASE, status=False)
