"""Pods of the door of gates: how they are made, and what of them can be read in the cluster."""

from typing import Any

import build
from cardwise.names import ALLOCATED, DEFAULT_SCHEDULER, GANG, GANG_SIZE, GATE, VGPU_NODE

Json = dict[str, Any]
OTHER_GATE = "kueue.x-k8s.io/admission"
GANGS = {"pair": 2, "three": 3}
"""How many Pods each has at least."""
TAINT = {"key": "maintenance", "value": "", "effect": "NoSchedule"}
_TOLERATED = {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EITHER = [
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]},
]
WISHES: dict[str, Json] = {
    "nothing more": {},
    "much CPU": {"cpu": "3"},
    "some CPU": {"cpu": "1500m"},
    "tolerates the taint": {"spec": _TOLERATED},
    "on n2": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}},
    "terms": {"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": _EITHER}}}}},
    "a host port": {"port": 8080},
}
"""What Pods ask of nodes beside cards."""


def gated(
    name: str,
    namespace: str,
    uid: str,
    ask: Json,
    *,
    wish: str,
    priority: int,
    created: float,
    gang: str | None = None,
    waits_for_other: bool = False,
) -> Json:
    """A Pod as admission leaves it.

    Args:
        ask: arguments of ``build.pod``.
        wish: one of ``WISHES``.
        created: seconds; the API server tells whole ones.
    """
    wished = WISHES[wish]
    said = {GANG: gang, GANG_SIZE: str(GANGS[gang])} if gang else {}
    minutes, seconds = divmod(int(created), 60)
    hours, minutes = divmod(minutes, 60)
    pod = build.pod(
        name,
        namespace=namespace,
        uid=uid,
        gates=[OTHER_GATE, GATE] if waits_for_other else [GATE],
        scheduler=DEFAULT_SCHEDULER,
        pod_priority=priority,
        created=f"2026-11-29T{hours:02}:{minutes:02}:{seconds:02}Z",
        annotations=said,
        spec=wished.get("spec"),
        **ask,
    )
    first = pod["spec"]["containers"][0]
    if "cpu" in wished:
        first.setdefault("resources", {}).setdefault("requests", {})["cpu"] = wished["cpu"]
    if "port" in wished:
        first["ports"] = [{"containerPort": 80, "hostPort": wished["port"]}]
    return pod


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def gang_key(pod: Json) -> tuple[str, str] | None:
    """Namespace and name of its gang."""
    name = pod["metadata"]["annotations"].get(GANG)
    return (pod["metadata"]["namespace"], name) if name else None


def pinned(pod: Json) -> str | None:
    """The node that it waits to be bound to."""
    annotations = pod["metadata"].get("annotations") or {}
    if pod["spec"].get("nodeName") or GATE in gates(pod) or ALLOCATED not in annotations:
        return None
    return str(annotations[VGPU_NODE])


def as_placed(pod: Json) -> Json:
    """The same Pod, bound where it can go to one node only."""
    node = pinned(pod)
    return pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}


def is_tight(pod: Json) -> bool:
    """Whether its affinity lets it go to the node of its allocation alone."""
    pin = {"key": "metadata.name", "operator": "In", "values": [pinned(pod)]}
    terms = pod["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    return bool(terms) and all(pin in term.get("matchFields", ()) for term in terms)


def waits_for_us(pod: Json) -> bool:
    """Whether nothing but its cards keeps it waiting."""
    return gates(pod) == [GATE] and not pod["metadata"].get("deletionTimestamp")


def relabelled(pod: Json) -> Json:
    """As somebody changes it who has nothing to do with us."""
    labels = pod["metadata"].get("labels") or {}
    labels = {**labels, "turn": str(int(labels.get("turn", "0")) + 1)}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}
