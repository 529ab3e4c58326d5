"""What an API server does with what an agent asks of its Node (``ports.NodeStatus``).

Written once, as ``suite.py``: for the fake, and for the adapter on a real kube-apiserver.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from cardwise.ports import NodeStatus
from cardwise.wire.nodestatus import advertised

Json = dict[str, Any]
MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"


class NodeGround(Protocol):
    """A cluster with nodes, and what others do to them."""

    status: NodeStatus

    def make(self, name: str) -> None:
        """A Node with ``cpu: 8`` on both sides; one of that name that is there already goes."""
        ...

    def write(self, name: str, resources: Mapping[str, str | None]) -> None:
        """Kubelet writes resources on both sides; None removes one."""
        ...

    def remove(self, name: str) -> None:
        """The Node goes."""
        ...

    def remove_daemonset(self) -> None:
        """The agents' DaemonSet goes."""
        ...


class NodeStatusContract:
    """The promises; a subclass brings the fixture ``ground``."""

    async def test_what_is_advertised_stands_on_both_sides_beside_what_others_wrote(
        self, ground: NodeGround
    ) -> None:
        ground.make("n1")

        await ground.status.advertise("n1", {MEMORY: 1000, CORES: 10**15})

        assert await sides(ground) == [{"cpu": "8", MEMORY: "1k", CORES: "1P"}] * 2
        assert await ours(ground) == {MEMORY, CORES}

    async def test_what_is_removed_takes_nothing_else_with_it(self, ground: NodeGround) -> None:
        ground.make("n1")
        await ground.status.advertise("n1", {MEMORY: 15, CORES: 100})

        await ground.status.advertise("n1", {MEMORY: 16, CORES: None})
        fewer = await sides(ground)
        await ground.status.advertise("n1", {MEMORY: None})

        assert fewer == [{"cpu": "8", MEMORY: "16"}] * 2
        assert await sides(ground) == [{"cpu": "8"}] * 2
        assert await ours(ground) == set()

    async def test_what_another_changes_is_his_until_it_is_advertised_again(
        self, ground: NodeGround
    ) -> None:
        ground.make("n1")
        await ground.status.advertise("n1", {MEMORY: 15, CORES: 100})

        ground.write("n1", {MEMORY: "0"})
        after = await ours(ground)
        await ground.status.advertise("n1", {MEMORY: 15, CORES: 100})

        assert after == {CORES}
        assert await ours(ground) == {MEMORY, CORES}

    async def test_what_another_wrote_stays_his_though_the_same_is_advertised(
        self, ground: NodeGround
    ) -> None:
        ground.make("n1")
        ground.write("n1", {MEMORY: "7"})

        await ground.status.advertise("n1", {MEMORY: 7, CORES: 100})

        assert await ours(ground) == {CORES}

    async def test_a_node_that_is_not_there_is_none_and_advertises_nothing(
        self, ground: NodeGround
    ) -> None:
        await ground.status.advertise("nowhere", {MEMORY: 15})

        assert await ground.status.get("nowhere") is None

    async def test_a_watch_begins_with_the_node_and_tells_each_change_and_its_end(
        self, ground: NodeGround
    ) -> None:
        ground.make("n1")
        ground.make("n2")
        watch = ground.status.watch("n1")

        first = await following(watch)
        ground.write("n2", {MEMORY: "1"})
        ground.write("n1", {MEMORY: "2"})
        second = await following(watch)
        ground.remove("n1")
        third = await following(watch)
        ground.make("n1")
        fourth = await following(watch)

        assert first is not None
        assert first["metadata"]["name"] == "n1"
        assert second is not None
        assert second["status"]["capacity"] == {"cpu": "8", MEMORY: "2"}
        assert third is None
        assert fourth is not None
        assert fourth["status"]["capacity"] == {"cpu": "8"}

    async def test_it_is_installed_until_its_daemonset_goes(self, ground: NodeGround) -> None:
        before = await ground.status.installed()

        ground.remove_daemonset()

        assert (before, await ground.status.installed()) == (True, False)


async def following(watch: AsyncIterator[Json | None]) -> Json | None:
    return await asyncio.wait_for(anext(watch), 5)


async def sides(ground: NodeGround) -> list[Json]:
    node = await ground.status.get("n1")
    assert node is not None
    return [node["status"]["capacity"], node["status"]["allocatable"]]


async def ours(ground: NodeGround) -> set[str]:
    node = await ground.status.get("n1")
    assert node is not None
    return set(advertised(node))
