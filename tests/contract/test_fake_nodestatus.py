"""The fake Nodes keep what an API server promises an agent."""

from collections.abc import Mapping

import pytest

from contract.nodestatus import NodeStatusContract
from fakes.nodestatus import FakeNodeStatus


class FakeNodeGround:
    """Fake Nodes, and what others do to them."""

    def __init__(self) -> None:
        self.status = FakeNodeStatus()

    def make(self, name: str) -> None:
        amounts = {side: {"cpu": "8"} for side in ("capacity", "allocatable")}
        self.status.put({"metadata": {"name": name}, "status": amounts})

    def write(self, name: str, resources: Mapping[str, str | None]) -> None:
        self.status.write(name, resources)

    def remove(self, name: str) -> None:
        self.status.remove(name)

    def remove_daemonset(self) -> None:
        self.status.daemonset = False


class TestFakeNodeStatus(NodeStatusContract):
    @pytest.fixture
    def ground(self) -> FakeNodeGround:
        return FakeNodeGround()
