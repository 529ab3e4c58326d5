"""A cluster that HAMi serves, played by hand: its nodes' annotations, and Pods that it placed.

HAMi itself needs its image and a device plugin. What the API server shows of it is all that anybody
else can see: the annotations of nodes and Pods, and what kubelet offers.
"""

import time
from typing import Any

import build
import hami
from cardwise import names
from controlplane.launcher import ControlPlane

Json = dict[str, Any]
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_SYSTEM = "kube-system"
_OF_THE_RELEASE = {"app.kubernetes.io/instance": "hami"}


def _workload(kind: str, name: str, **spec: Any) -> Json:
    labels = {"app.kubernetes.io/component": name}
    pod = {
        "serviceAccountName": name,
        "containers": [{"name": "hami", "image": "projecthami/hami:v2.10.0"}],
    }
    template = {
        "metadata": {"labels": {**labels, names.WEBHOOK_LABEL: names.WEBHOOK_IGNORE}},
        "spec": {**pod, **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": _SYSTEM, "labels": _OF_THE_RELEASE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


_CHART: list[Json] = [
    *(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": _SYSTEM, "labels": _OF_THE_RELEASE},
        }
        for name in ("hami-scheduler", "hami-device-plugin")
    ),
    _workload("Deployment", "hami-scheduler"),
    _workload("DaemonSet", "hami-device-plugin", nodeSelector={"gpu": "on"}),
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hami-webhook"},
        "webhooks": [
            {
                "name": "vgpu.hami.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {
                        "name": "hami-scheduler",
                        "namespace": _SYSTEM,
                        "path": "/webhook",
                        "port": 443,
                    }
                },
                "failurePolicy": "Ignore",
                "objectSelector": {
                    "matchExpressions": [
                        {
                            "key": names.WEBHOOK_LABEL,
                            "operator": "NotIn",
                            "values": [names.WEBHOOK_IGNORE],
                        }
                    ]
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    },
]


class HamiCluster:
    """HAMi's device plugins and scheduler, as a control plane sees them."""

    def __init__(self, cp: ControlPlane, namespace: str = "default") -> None:
        """Serve no node yet."""
        self._cp = cp
        self.namespace = namespace

    @staticmethod
    def uuid(node: str, index: int) -> str:
        """The UUID of a node's card."""
        return f"GPU-{node}-{build.letter(index)}"

    def node(self, name: str, cards: int = 4) -> None:
        """Add a node with T4s that the device plugin has registered."""
        listed = [hami.device(n, id=self.uuid(name, n)) for n in range(cards)]
        self._cp.add_node(name, gpus=10 * cards, annotations=hami.annotations(listed))

    def profile(self, name: str, cards: int = 4) -> Json:
        """The same cards, as an agent of ours finds them."""
        return build.gpunode(name, cards, prefix=f"GPU-{name}-")

    def offers(self, node: str, gpus: int) -> None:
        """What kubelet offers: 0 where no device plugin is registered."""
        amount = {names.RESOURCE_COUNT: str(gpus)}
        status = {"status": {"capacity": amount, "allocatable": amount}}
        path = f"/api/v1/nodes/{node}/status"
        self._cp.request("PATCH", path, status, content_type=_STRATEGIC)

    def installed(self) -> None:
        """Install what of HAMi's chart, as release "hami", the page of migration names.

        Nothing serves its webhook: as HAMi has it by default, Pods pass it then.
        """
        self._cp.apply(_CHART)

    def place(
        self, name: str, node: str, *cards: int, mib: int = 1000, policy: str | None = None
    ) -> None:
        """Create a Pod and place it as HAMi's scheduler does: annotations, then the Binding."""
        pod = build.pod(
            name,
            namespace=self.namespace,
            gpus=len(cards),
            gpumem=mib,
            policy=policy,
            scheduler="hami-scheduler",
            # Where our webhook is there already, it leaves alone whom HAMi is to place.
            labels={names.WEBHOOK_LABEL: names.WEBHOOK_IGNORE},
            spec={"terminationGracePeriodSeconds": 0},
        )
        for field in ("uid", "resourceVersion"):
            del pod["metadata"][field]
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self._cp.request("POST", pods, pod)
        when = str(int(time.time()))
        words = build.allocation(*(self.uuid(node, n) for n in cards), mib=mib)
        written = {
            names.ALLOCATED: words,
            names.TO_ALLOCATE: ";;",
            names.VGPU_NODE: node,
            names.VGPU_TIME: when,
            names.BIND_TIME: when,
            names.BIND_PHASE: names.BIND_PHASE_SUCCESS,
        }
        patch = {"metadata": {"annotations": written}}
        self._cp.request("PATCH", f"{pods}/{name}", patch, content_type=_MERGE)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"metadata": {"name": name}, "target": target}
        self._cp.request("POST", f"{pods}/{name}/binding", binding)

    def hand_over(self, name: str, node: str, namespace: str = "") -> None:
        """The device plugin has given a Pod's container its cards, and unlocks the node."""
        done = {names.BIND_PHASE: names.BIND_PHASE_SUCCESS}
        path = f"/api/v1/namespaces/{namespace or self.namespace}/pods/{name}"
        patch = {"metadata": {"annotations": done}}
        self._cp.request("PATCH", path, patch, content_type=_MERGE)
        unlocked: Json = {"metadata": {"annotations": {"hami.io/mutex.lock": None}}}
        self._cp.request("PATCH", f"/api/v1/nodes/{node}", unlocked, content_type=_MERGE)
