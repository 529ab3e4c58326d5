"""Whether the node's container runtime reads CDI specs."""

from typing import Any

import pytest

from cardwise.agent.deviceplugin.runtime import Runtime, reads_cdi
from cardwise.errors import ApiError

VERSIONS = [
    pytest.param("containerd://1.6.20", False, id="containerd-1.6-has-none"),
    pytest.param("containerd://1.6.20~ds1", False, id="debians"),
    pytest.param("containerd://1.7.27", False, id="containerd-1.7-has-it-turned-off"),
    pytest.param("containerd://2.0.0", True, id="containerd-2"),
    pytest.param("containerd://2.4.2-k3s1", True, id="somebodys-build"),
    pytest.param("containerd://v2.1.0-rc.1", True, id="with-a-v"),
    pytest.param("containerd://10.0.0", True, id="two-digits"),
    pytest.param("containerd://unknown", False, id="no-version"),
    pytest.param("containerd://", False, id="empty-version"),
    pytest.param("cri-o://1.30.4", True, id="cri-o"),
    pytest.param("docker://28.0.1", False, id="docker"),
    pytest.param("another://2.0.0", False, id="nobody-knows-it"),
    pytest.param("", False, id="nothing"),
]


@pytest.mark.parametrize(("version", "expected"), VERSIONS)
def test_what_a_version_does_by_itself(version: str, expected: bool) -> None:
    assert reads_cdi(version) == expected


class Cluster:
    """Holds the Node."""

    def __init__(self, version: str | None) -> None:
        self.version = version
        self.asked = 0
        self.silent = False

    async def node(self) -> dict[str, Any] | None:
        self.asked += 1
        if self.silent:
            raise ApiError(None, "no answer")
        if self.version is None:
            return None
        return {"status": {"nodeInfo": {"containerRuntimeVersion": self.version}}}


async def test_nobody_knows_before_the_node_was_read() -> None:
    cluster = Cluster("containerd://2.1.0")
    runtime = Runtime(node=cluster.node)
    assert runtime.cdi is None

    await runtime.look()

    assert runtime.cdi is True


async def test_another_version_is_seen_at_the_next_look() -> None:
    cluster = Cluster("containerd://1.6.20")
    runtime = Runtime(node=cluster.node)
    await runtime.look()
    assert runtime.cdi is False

    cluster.version = "containerd://2.1.0"
    await runtime.look()

    assert runtime.cdi is True


@pytest.mark.parametrize("version", [None, ""])
async def test_a_node_that_does_not_say_changes_nothing(version: str | None) -> None:
    cluster = Cluster(version)
    runtime = Runtime(node=cluster.node)
    await runtime.look()
    assert runtime.cdi is None

    cluster.version = "containerd://2.1.0"
    await runtime.look()
    cluster.version = version
    await runtime.look()

    assert runtime.cdi is True


async def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    cluster = Cluster("containerd://2.1.0")
    cluster.silent = True

    with pytest.raises(ApiError):
        await Runtime(node=cluster.node).look()


@pytest.mark.parametrize("said", [True, False])
async def test_the_settings_go_before_the_version_and_nobody_is_asked(said: bool) -> None:
    cluster = Cluster("containerd://1.6.20" if said else "containerd://2.1.0")
    runtime = Runtime(node=cluster.node, said=said)

    await runtime.look()

    assert runtime.cdi is said
    assert cluster.asked == 0
