"""The Pods of one node: the adapter of ``ports.NodePods``, which the agent asks."""

from typing import Any

from cardwise.errors import ApiError
from cardwise.kube.client import Client
from cardwise.kube.paths import MERGE, UNFINISHED, create_event, pod_path
from cardwise.model import PodRef
from cardwise.names import BIND_PHASE


class KubeNodePods:
    """``ports.NodePods`` on a real API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pods(self, node: str, *, within: float) -> list[dict[str, Any]]:
        """The node's unfinished Pods in one consistent list (a quorum read).

        In one piece: a node has some hundreds of Pods at most.
        """
        answer = await self._client.request(
            "GET",
            "/api/v1/pods",
            query={"fieldSelector": f"spec.nodeName={node},{UNFINISHED}"},
            within=within,
        )
        return answer.get("items") or []

    async def set_phase(self, pod: PodRef, phase: str) -> None:
        """Through the status, because who may patch a Pod may change its images."""
        try:
            await self._client.request(
                "PATCH",
                f"{pod_path(pod.namespace, pod.name)}/status",
                # The UID: a namesake in the Pod's place makes it a conflict.
                body={"metadata": {"uid": pod.uid, "annotations": {BIND_PHASE: phase}}},
                content_type=MERGE,
            )
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        await create_event(self._client, event)
