"""``ports.ClusterReader`` over a fake cluster: what a person's command reads of it."""

from collections.abc import AsyncIterator
from typing import Any

from cardwise.model import PodRef
from fakes.cluster import FakeCluster

Json = dict[str, Any]


class FakeReader:
    """Reads a fake cluster; ``fail`` of the cluster makes a verb fail, and so here, too."""

    def __init__(
        self,
        cluster: FakeCluster,
        *,
        now: float = 0.0,
        settings: str | None = "{}",
        events: tuple[Json, ...] = (),
    ) -> None:
        self.cluster = cluster
        self._now = now
        self._settings = settings
        self._events = events

    async def pod(self, namespace: str, name: str) -> Json | None:
        """One Pod as it is, or None."""
        return await self.cluster.pod(namespace, name)

    def pods(self) -> AsyncIterator[list[Json]]:
        """Every Pod that is not finished."""
        return self.cluster.unfinished_pods()

    def gpunodes(self) -> AsyncIterator[list[Json]]:
        """Every GPUNode."""
        return self.cluster.gpunodes()

    def nodes(self) -> AsyncIterator[list[Json]]:
        """Every Node."""
        return self.cluster.nodes()

    async def node_metadata(self) -> AsyncIterator[list[Json]]:
        """The metadata of every Node."""
        async for page in self.cluster.nodes():
            yield [{"metadata": node["metadata"]} for node in page]

    async def cordoned_nodes(self) -> AsyncIterator[list[Json]]:
        """The metadata of every Node that takes no new Pod."""
        async for page in self.cluster.nodes():
            cordoned = [node for node in page if node.get("spec", {}).get("unschedulable") is True]
            yield [{"metadata": node["metadata"]} for node in cordoned]

    async def quotas(self, namespace: str) -> AsyncIterator[list[Json]]:
        """The ResourceQuotas of a namespace."""
        async for page in self.cluster.quotas():
            yield [quota for quota in page if quota["metadata"]["namespace"] == namespace]

    async def events(self, pod: PodRef) -> list[Json]:
        """What was said of a Pod."""
        await self.cluster._do("events", (str(pod),), lambda: None)
        return [e for e in self._events if e["involvedObject"]["uid"] == pod.uid]

    async def settings(self) -> str | None:
        """The controller's settings."""
        await self.cluster._do("settings", (), lambda: None)
        return self._settings

    def now(self) -> float:
        """Unix seconds."""
        return self._now
