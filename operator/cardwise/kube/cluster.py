"""What the controller asks of the cluster: the adapter of ``ports.Cluster``."""

from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError
from cardwise.kube.client import PAGE, Client, or_none
from cardwise.kube.gpunodes import GPUNODES, apply_metadata, apply_status, gpunode_path
from cardwise.kube.paths import MERGE, UNFINISHED, create_event, node_path, pod_path, segment

_STRATEGIC = "application/strategic-merge-patch+json"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1"


class KubeCluster:
    """``ports.Cluster`` on a real API server."""

    def __init__(self, client: Client, *, chunk: int = PAGE) -> None:
        """Make the adapter; ``chunk`` objects come on a page of a list."""
        self._client = client
        self._chunk = chunk

    def unfinished_pods(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Pod that is not Succeeded or Failed, in chunks of one consistent list."""
        return self._pages("/api/v1/pods", {"fieldSelector": UNFINISHED})

    def gpunodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every GPUNode, in chunks."""
        return self._pages(GPUNODES)

    def nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Node, in chunks."""
        return self._pages("/api/v1/nodes")

    def quotas(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every ResourceQuota, in chunks."""
        return self._pages("/api/v1/resourcequotas")

    def claims(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every PersistentVolumeClaim, in chunks."""
        return self._pages("/api/v1/persistentvolumeclaims")

    def volumes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every PersistentVolume, in chunks."""
        return self._pages("/api/v1/persistentvolumes")

    def storage_classes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every StorageClass, in chunks."""
        return self._pages("/apis/storage.k8s.io/v1/storageclasses")

    async def pod_group(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One PodGroup of the coscheduling plugin; None also where there is no such kind."""
        path = f"{_POD_GROUPS}/namespaces/{segment(namespace)}/podgroups/{segment(name)}"
        return await self._find(path)

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
        return await self._find(pod_path(namespace, name))

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Lease as it is now (a quorum read), or None."""
        return await self._find(f"{_leases_path(namespace)}/{segment(name)}")

    async def write_lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Replace the version of a Lease that was read; without a version, create it."""
        metadata = lease["metadata"]
        method, path = "POST", _leases_path(metadata["namespace"])
        if metadata.get("resourceVersion"):
            method, path = "PUT", f"{path}/{segment(metadata['name'])}"
        return await self._client.request(method, path, body=lease, within=2.0)

    async def node(self, name: str) -> dict[str, Any] | None:
        """One Node as it is now (a quorum read), or None."""
        return await self._find(node_path(name))

    async def patch_node(self, name: str, patch: dict[str, Any], *, within: float) -> None:
        """Merge a patch into a Node."""
        path = node_path(name)
        await self._client.request("PATCH", path, body=patch, content_type=MERGE, within=within)

    async def bind(self, binding: dict[str, Any], *, within: float) -> None:
        """Send a Binding: node, annotations and identity in one write."""
        metadata = binding["metadata"]
        path = pod_path(metadata["namespace"], metadata["name"])
        await self._client.request("POST", f"{path}/binding", body=binding, within=within)

    async def patch_pod(
        self, namespace: str, name: str, patch: dict[str, Any], *, within: float
    ) -> None:
        """Merge a patch into a Pod."""
        path = pod_path(namespace, name)
        await self._client.request("PATCH", path, body=patch, content_type=MERGE, within=within)

    async def evict(self, namespace: str, name: str, *, uid: str, version: str) -> None:
        """Have one Pod deleted by the Eviction API, if it is this version of this Pod."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": version}},
        }
        path = f"{pod_path(namespace, name)}/eviction"
        await self._client.request("POST", path, body=eviction)

    async def dry_run_pod_template(self, template: dict[str, Any]) -> dict[str, Any]:
        """What would be stored of a new PodTemplate, all webhooks asked; nothing is."""
        path = f"/api/v1/namespaces/{segment(template['metadata']['namespace'])}/podtemplates"
        return await self._client.request("POST", path, query={"dryRun": "All"}, body=template)

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        await create_event(self._client, event)

    async def count_event(self, namespace: str, name: str, again: dict[str, Any]) -> None:
        """Say that an event happened again, by core/v1: there its text may change."""
        path = f"/api/v1/namespaces/{segment(namespace)}/events/{segment(name)}"
        await self._client.request("PATCH", path, body=again, content_type=MERGE)

    async def annotate_node(self, name: str, key: str, value: str) -> None:
        """Set one annotation of a Node."""
        body = {"metadata": {"annotations": {key: value}}}
        await self._client.request("PATCH", node_path(name), body=body, content_type=MERGE)

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one annotation of a Pod (our own)."""
        path = pod_path(namespace, name)
        body = {"metadata": {"annotations": {key: value}}}
        await self._client.request("PATCH", path, body=body, content_type=MERGE)

    async def apply_gpunode(self, name: str, metadata: dict[str, Any], manager: str) -> None:
        """Server-side apply of a part of a GPUNode's metadata; it is made where there is none."""
        await apply_metadata(self._client, name, metadata, manager)

    async def apply_gpunode_status(
        self, name: str, status: dict[str, Any], manager: str, *, force: bool = True
    ) -> None:
        """Server-side apply of a part of a GPUNode's status."""
        await apply_status(self._client, name, status, manager, force=force)

    async def delete_gpunode(self, name: str, version: str) -> None:
        """Delete a GPUNode, if it is this version of it."""
        options = {"preconditions": {"resourceVersion": version}}
        await self._client.request("DELETE", gpunode_path(name), body=options)

    async def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Secret as it is now (a quorum read), or None."""
        return await self._find(f"{_secrets_path(namespace)}/{segment(name)}")

    async def write_secret(self, secret: dict[str, Any]) -> None:
        """Replace the version of a Secret that was read; without a version, create it."""
        metadata = secret["metadata"]
        path = _secrets_path(metadata["namespace"])
        if metadata.get("resourceVersion"):
            path = f"{path}/{segment(metadata['name'])}"
            await self._client.request("PUT", path, body=secret)
        else:
            await self._client.request("POST", path, body=secret)

    async def webhook_configuration(self, name: str) -> dict[str, Any] | None:
        """One MutatingWebhookConfiguration as it is now (a quorum read), or None."""
        return await self._find(f"{_WEBHOOKS}/{segment(name)}")

    async def patch_webhook_configuration(self, name: str, change: dict[str, Any]) -> None:
        """Strategic merge into a MutatingWebhookConfiguration."""
        path = f"{_WEBHOOKS}/{segment(name)}"
        await self._client.request("PATCH", path, body=change, content_type=_STRATEGIC)

    async def _find(self, path: str) -> dict[str, Any] | None:
        """One object as it is now; None where there is none."""
        return await or_none(self._client.request("GET", path, within=2.0))

    def _pages(
        self, path: str, query: dict[str, str] | None = None
    ) -> AsyncIterator[list[dict[str, Any]]]:
        return self._client.pages(path, query=query, limit=self._chunk)


def _leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases"


def _secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/secrets"
