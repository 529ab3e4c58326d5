"""GPUNodes in the cluster: the adapter of ``ports.GPUNodeStore``, which the agent asks.

Agent and controller each apply their own part of the status, so ``apply_status`` serves both.
"""

from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError
from cardwise.kube.client import Client, or_none
from cardwise.kube.paths import node_path, segment
from cardwise.names import API_GROUP, API_VERSION, GPUNODE_KIND, GPUNODE_PLURAL

_APPLY = "application/apply-patch+yaml"
_KIND = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": GPUNODE_KIND}

GPUNODES = f"/apis/{API_GROUP}/{API_VERSION}/{GPUNODE_PLURAL}"
"""The path of the collection."""


def gpunode_path(name: str) -> str:
    """Of a GPUNode."""
    return f"{GPUNODES}/{segment(name)}"


async def apply_metadata(client: Client, name: str, metadata: dict[str, Any], manager: str) -> None:
    """Server-side apply of a manager's part of the metadata; makes the GPUNode if need be.

    Raises:
        ApiError: as ``Client.request``.
    """
    await client.request(
        "PATCH",
        gpunode_path(name),
        query={"fieldManager": manager, "force": "true"},
        body={**_KIND, "metadata": {**metadata, "name": name}},
        content_type=_APPLY,
    )


async def apply_status(
    client: Client, name: str, status: dict[str, Any], manager: str, *, force: bool = True
) -> dict[str, Any]:
    """Server-side apply of a manager's part of the status; answers the whole GPUNode.

    Raises:
        ApiError: as ``Client.request``; status 404 where there is no such GPUNode, 409 where it is
            not by ``force`` and another manager has a field with another value.
    """
    return await client.request(
        "PATCH",
        f"{gpunode_path(name)}/status",
        query={"fieldManager": manager, "force": str(force).lower()},
        body={**_KIND, "metadata": {"name": name}, "status": status},
        content_type=_APPLY,
    )


class KubeGPUNodes:
    """``ports.GPUNodeStore`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, name: str) -> dict[str, Any] | None:
        """The GPUNode as it is; None where there is none."""
        return await or_none(self._client.request("GET", gpunode_path(name)))

    async def create(self, name: str) -> None:
        """Make an empty GPUNode that is the Node's own, so that it goes when the Node goes.

        An agent may outlive its Node, and one that nobody owns would stay for ever.
        """
        metadata: dict[str, Any] = {"name": name}
        try:
            node = await self._client.request("GET", node_path(name))
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 403:
                raise
        else:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            ]
        try:
            await self._client.request("POST", GPUNODES, body={**_KIND, "metadata": metadata})
        except ApiError as error:
            # Another agent of this node was first; both mean the same object.
            if error.status != 409:
                raise

    async def apply_status(
        self, name: str, status: dict[str, Any], manager: str
    ) -> dict[str, Any] | None:
        """Server-side apply: what the manager leaves out goes, other managers' parts stay."""
        return await or_none(apply_status(self._client, name, status, manager))

    async def watch(self, name: str) -> AsyncIterator[dict[str, Any] | None]:
        """The GPUNode as it is, then after each change, None when it went."""
        query = {"fieldSelector": f"metadata.name={name}"}
        async for event in self._client.watch(GPUNODES, query=query):
            yield None if event["type"] == "DELETED" else event["object"]
