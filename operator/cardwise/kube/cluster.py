"""What the controller asks of the cluster: the adapter of ``ports.Cluster``."""

from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError
from cardwise.kube.client import Client
from cardwise.kube.gpunodes import GPUNODES, apply_status

_MERGE = "application/merge-patch+json"
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class KubeCluster:
    """``ports.Cluster`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def unfinished_pods(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Pod that is not Succeeded or Failed, in chunks of one consistent list."""
        return self._client.pages("/api/v1/pods", query={"fieldSelector": _UNFINISHED})

    def gpunodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every GPUNode, in chunks."""
        return self._client.pages(GPUNODES)

    def nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Node, in chunks."""
        return self._client.pages("/api/v1/nodes")

    def quotas(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every ResourceQuota, in chunks."""
        return self._client.pages("/api/v1/resourcequotas")

    async def device_classes(self) -> list[dict[str, Any]]:
        """Every DeviceClass; none where the cluster has no such kind, or it may not be read."""
        try:
            answer = await self._client.request("GET", "/apis/resource.k8s.io/v1/deviceclasses")
        except ApiError as error:
            if error.status in (403, 404):
                return []
            raise
        return answer.get("items") or []

    async def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Pod as it is now (a quorum read), or None."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        try:
            return await self._client.request("GET", path, within=2.0)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def bind(self, binding: dict[str, Any], *, within: float) -> None:
        """Send a Binding: node, annotations and identity in one write."""
        metadata = binding["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        await self._client.request("POST", path, body=binding, within=within)

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        namespace = event["metadata"]["namespace"]
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        await self._client.request("POST", path, body=event)

    async def count_event(self, namespace: str, name: str, series: dict[str, Any]) -> None:
        """Say that an event happened again."""
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}"
        body = {"series": series}
        await self._client.request("PATCH", path, body=body, content_type=_MERGE)

    async def annotate_node(self, name: str, key: str, value: str) -> None:
        """Set one annotation of a Node."""
        body = {"metadata": {"annotations": {key: value}}}
        await self._client.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=_MERGE)

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one annotation of a Pod (our own)."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        body = {"metadata": {"annotations": {key: value}}}
        await self._client.request("PATCH", path, body=body, content_type=_MERGE)

    async def apply_gpunode_status(self, name: str, status: dict[str, Any], manager: str) -> None:
        """Server-side apply of a part of a GPUNode's status."""
        await apply_status(self._client, name, status, manager)
