"""What the command line reads of a cluster: the adapter of ``ports.ClusterReader``."""

import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any

from cardwise.kube.client import Client, or_none
from cardwise.kube.cluster import KubeCluster
from cardwise.kube.paths import pod_path, segment
from cardwise.model import PodRef
from cardwise.names import SYSTEM_NAMESPACE
from cardwise.wire.fields import at, items, mapping, text

_PAGE = 500
"""Nobody waits for an answer of ours meanwhile, as kube-scheduler does for the controller's."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CONTROLLER = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/cardwise-scheduler"
_SETTINGS, _SETTINGS_FILE = "cardwise-settings", "cardwise.yaml"


class KubeReader:
    """``ports.ClusterReader`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = KubeCluster(client, chunk=_PAGE)

    async def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Pod as it is now, or None."""
        return await or_none(self._client.request("GET", pod_path(namespace, name)))

    def pods(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Pod that is not Succeeded or Failed, in chunks."""
        return self._cluster.unfinished_pods()

    def gpunodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every GPUNode, in chunks."""
        return self._cluster.gpunodes()

    def nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Node, in chunks."""
        return self._cluster.nodes()

    def node_metadata(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The metadata of every Node, in chunks."""
        return self._client.pages("/api/v1/nodes", limit=_PAGE, accept=_METADATA)

    def cordoned_nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The metadata of every Node that takes no new Pod, in chunks."""
        query = {"fieldSelector": "spec.unschedulable=true"}
        return self._client.pages("/api/v1/nodes", limit=_PAGE, accept=_METADATA, query=query)

    def quotas(self, namespace: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Every ResourceQuota of a namespace, in chunks."""
        path = f"/api/v1/namespaces/{segment(namespace)}/resourcequotas"
        return self._client.pages(path, limit=_PAGE)

    async def events(self, pod: PodRef) -> list[dict[str, Any]]:
        """What was said of a Pod (core/v1), in no order."""
        path = f"/api/v1/namespaces/{segment(pod.namespace)}/events"
        query = {"fieldSelector": f"involvedObject.uid={pod.uid}"}
        return [event async for page in self._client.pages(path, query=query) for event in page]

    async def settings(self) -> str | None:
        """The text of the settings file that the installed controller reads, or None.

        Its ConfigMap's name ends in a hash, and older ones may be left: the Deployment says which.
        """
        deployment = await or_none(self._client.request("GET", _CONTROLLER))
        volumes = items(at(deployment, "spec", "template", "spec", "volumes"))
        names = [text(at(volume, "configMap", "name")) for volume in volumes]
        name = next((name for name in names if name.startswith(_SETTINGS)), "")
        if not name:
            return None
        path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{segment(name)}"
        found = await or_none(self._client.request("GET", path))
        return text(mapping(at(found, "data")).get(_SETTINGS_FILE)) or None

    def now(self) -> float:
        """Unix seconds by the API server's clock at its last answer; else by this machine's."""
        try:
            return parsedate_to_datetime(self._client.date).timestamp()
        except ValueError:
            return time.time()
