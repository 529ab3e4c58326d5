"""What the agent asks of the cluster: the adapter of ``ports.GPUNodeStore``."""

from typing import Any
from urllib.parse import quote

from cardwise.errors import ApiError
from cardwise.kube.client import Client
from cardwise.names import API_GROUP, API_VERSION, GPUNODE_KIND, GPUNODE_PLURAL

_APPLY = "application/apply-patch+yaml"
_GPUNODES = f"/apis/{API_GROUP}/{API_VERSION}/{GPUNODE_PLURAL}"
_KIND = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": GPUNODE_KIND}


class KubeGPUNodes:
    """``ports.GPUNodeStore`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, name: str) -> dict[str, Any] | None:
        """The GPUNode as it is; None where there is none."""
        return await self._or_none("GET", f"{_GPUNODES}/{quote(name, safe='')}")

    async def create(self, name: str) -> None:
        """Make an empty GPUNode that is the Node's own, so that it goes when the Node goes."""
        metadata: dict[str, Any] = {"name": name}
        node = await self._node(name)
        if node is not None:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
            ]
        try:
            await self._client.request("POST", _GPUNODES, body={**_KIND, "metadata": metadata})
        except ApiError as error:
            # Another agent of this node was first; both mean the same object.
            if error.status != 409:
                raise

    async def apply_status(
        self, name: str, status: dict[str, Any], manager: str
    ) -> dict[str, Any] | None:
        """Server-side apply: what the manager leaves out goes, other managers' parts stay."""
        return await self._or_none(
            "PATCH",
            f"{_GPUNODES}/{quote(name, safe='')}/status",
            query={"fieldManager": manager, "force": "true"},
            body={**_KIND, "metadata": {"name": name}, "status": status},
            content_type=_APPLY,
        )

    async def _node(self, name: str) -> dict[str, Any] | None:
        """The Node; None where there is none, or where we may not look."""
        try:
            return await self._or_none("GET", f"/api/v1/nodes/{quote(name, safe='')}")
        except ApiError as error:
            if error.status == 403:
                return None
            raise

    async def _or_none(self, method: str, path: str, **options: Any) -> dict[str, Any] | None:
        try:
            return await self._client.request(method, path, **options)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
