"""What the agents' account may change of a Pod: the phase of its allocation."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from cardwise import names
from controlplane.api import Api, ApiError
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
