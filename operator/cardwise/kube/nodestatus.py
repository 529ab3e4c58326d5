"""A Node, as its agent speaks of it: adapters of ``ports.NodeStatus`` and ``ports.NodeEvents``."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from cardwise.errors import ApiError
from cardwise.kube.client import Client, or_none
from cardwise.kube.paths import MERGE, create_event, node_path, segment
from cardwise.names import AGENT_DAEMONSET, MANAGER_AGENT
from cardwise.wire.nodestatus import patch_of

_NODES = "/api/v1/nodes"


class KubeNodeEvents:
    """``ports.NodeEvents`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        await create_event(self._client, event)


class KubeNodeStatus:
    """``ports.NodeStatus`` on a real API server."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        """Make the adapter; ``namespace`` is where the agents' DaemonSet is."""
        self._client = client
        self._daemonset = (
            f"/apis/apps/v1/namespaces/{segment(namespace)}/daemonsets/{AGENT_DAEMONSET}"
        )

    async def get(self, name: str) -> dict[str, Any] | None:
        """The Node as it is (a quorum read); None where there is none."""
        return await or_none(self._client.request("GET", node_path(name)))

    async def watch(self, name: str) -> AsyncIterator[dict[str, Any] | None]:
        """The Node as it is, then after each change, None when it went.

        One object of the collection, by a selector that the API server has an index for: a change
        of another node costs this watch nothing.
        """
        query = {"fieldSelector": f"metadata.name={name}"}
        async for event in self._client.watch(_NODES, query=query):
            yield None if event["type"] == "DELETED" else event["object"]

    async def advertise(self, name: str, changes: Mapping[str, int | None]) -> None:
        """Merge into the status, under the agents' name.

        Not by server-side apply: where an applier leaves out the last field that he had in an
        object, the neighbours that nobody owns go with it, such as the CPU that kubelet registered.
        """
        try:
            await self._client.request(
                "PATCH",
                f"{node_path(name)}/status",
                query={"fieldManager": MANAGER_AGENT},
                body=patch_of(changes),
                content_type=MERGE,
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def installed(self) -> bool:
        """Whether the agents' DaemonSet is there, and is not being deleted (a quorum read)."""
        found = await or_none(self._client.request("GET", self._daemonset))
        return found is not None and "deletionTimestamp" not in found["metadata"]
