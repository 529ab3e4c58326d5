"""Nodes that exist in the API server only."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

FAKE: Final = "kwok.x-k8s.io/node=fake"
"""The annotation by which KWOK knows the nodes it keeps."""


def fake_node(
    name: str,
    *,
    cpu: str = "64",
    memory: str = "256Gi",
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a Node for KWOK to keep, Ready already.

    Ready from the first moment, because the controller manager taints what is not, and a Pod that
    is scheduled in that moment would see the taint.
    """
    resources: dict[str, str] = {"cpu": cpu, "memory": memory, "pods": "250"}
    if gpus > 0:
        resources["nvidia.com/gpu"] = str(gpus)
    key, _, value = FAKE.partition("=")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **(labels or {}),
            },
            "annotations": {key: value, **(annotations or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints or ()]},
        "status": {
            "phase": "Running",  # KWOK sends heartbeats for nodes of this phase
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "a fake node",
                }
            ],
        },
    }
