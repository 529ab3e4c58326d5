"""Builders of Kubernetes JSON, with defaults: a test's row shows only what matters to it.

Every object looks as the API server returns it: quantities are text in the server's own decimal
form (``1000`` becomes ``"1k"``), extended resources stand in limits and requests alike, and a Pod
has a UID, a resourceVersion and a phase. Text is taken as written, so that a row can hold what the
server would never return.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cardwise import names

Json = dict[str, Any]
Quantity = int | str | None

REPORTED_AT = "2026-11-29T12:00:00Z"


def quantity(value: int | str) -> str:
    """A number in the API server's decimal form: ``1000`` is ``"1k"``, 1500 is ``"1500"``."""
    if isinstance(value, str):
        return value
    suffixes = ["", "k", "M", "G", "T", "P", "E"]
    power = 0
    while value and value % 1000 == 0 and power < len(suffixes) - 1:
        value //= 1000
        power += 1
    return f"{value}{suffixes[power]}"


# Pods ---------------------------------------------------------------------------------------------


def container(
    name: str = "app",
    *,
    gpu: Quantity = None,
    gpumem: Quantity = None,
    percent: Quantity = None,
    gpucores: Quantity = None,
    priority: Quantity = None,
    sidecar: bool = False,
    privileged: bool = False,
    env: Iterable[Json] | None = None,
    limits: Mapping[str, Any] | None = None,
    requests: Mapping[str, Any] | None = None,
) -> Json:
    """A container; None leaves a resource out, 0 writes ``"0"``.

    The resources stand in limits and requests, as the server leaves them; ``limits`` and
    ``requests`` add to the one side alone. ``sidecar`` is for the list of init containers.
    """
    asked = {
        key: quantity(value)
        for key, value in (
            (names.RESOURCE_COUNT, gpu),
            (names.RESOURCE_MEMORY, gpumem),
            (names.RESOURCE_MEMORY_PERCENT, percent),
            (names.RESOURCE_CORES, gpucores),
            (names.RESOURCE_PRIORITY, priority),
        )
        if value is not None
    }
    built: Json = {"name": name, "image": "busybox"}
    sides = {"limits": {**asked, **(limits or {})}, "requests": {**asked, **(requests or {})}}
    built["resources"] = {side: values for side, values in sides.items() if values}
    if sidecar:
        built["restartPolicy"] = "Always"
    if privileged:
        built["securityContext"] = {"privileged": True}
    if env is not None:
        built["env"] = list(env)
    return built


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    gpus: Quantity = 1,
    gpumem: Quantity = None,
    percent: Quantity = None,
    gpucores: Quantity = None,
    priority: Quantity = None,
    policy: str | None = None,
    node_policy: str | None = None,
    weights: str | None = None,
    exclusive: str | None = None,
    topology: str | None = None,
    numa_bind: str | None = None,
    node: str | None = None,
    allocated: str | None = None,
    exclusive_held: bool = False,
    phase: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    containers: Sequence[Json] | None = None,
    init: Sequence[Json] | None = None,
    init_exits: Mapping[str, int | None] | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    uid: str | None = None,
    resource_version: str = "1",
    terminating: bool = False,
    gates: Sequence[str] = (),
    pod_priority: int | None = None,
    created: str | None = None,
    owner: str | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Json:
    """A Pod with one container ``app``, or with the ``containers`` given.

    Args:
        gates: the names of the scheduling gates that it waits behind.
        owner: the UID of the ReplicaSet that controls it.
        spec: more fields of the spec.
        node: bound there; the phase is then Running unless ``phase`` says otherwise.
        allocated: the allocation text; ``exclusive_held`` the mark of an exclusive Pod's booking.
        init_exits: the status of init containers: name to exit code, None while it runs.
        uid: ``uid-NAMESPACE-NAME`` when it is left out.
    """
    written = {
        names.POLICY: policy,
        names.NODE_POLICY: node_policy,
        names.WEIGHTS: weights,
        names.EXCLUSIVE: exclusive,
        names.TOPOLOGY: topology,
        names.NUMA_BIND: numa_bind,
        names.ALLOCATED: allocated,
        names.EXCLUSIVE_HELD: "true" if exclusive_held else None,
    }
    if containers is None:
        containers = [
            container(
                gpu=gpus, gpumem=gpumem, percent=percent, gpucores=gpucores, priority=priority
            )
        ]
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}" if uid is None else uid,
        "resourceVersion": resource_version,
        "annotations": {key: value for key, value in written.items() if value is not None},
        "labels": dict(labels or {}),
    }
    metadata["annotations"].update(annotations or {})
    if terminating:
        metadata["deletionTimestamp"] = REPORTED_AT
    if created is not None:
        metadata["creationTimestamp"] = created
    if owner is not None:
        metadata["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": "owner", "uid": owner, "controller": True}
        ]
    more = {**_queued(gates, pod_priority), **(spec or {})}
    spec = {"schedulerName": scheduler, "containers": list(containers), **more}
    if init is not None:
        spec["initContainers"] = list(init)
    if node is not None:
        spec["nodeName"] = node
    status: Json = {"phase": phase or ("Running" if node else "Pending")}
    if init_exits is not None:
        status["initContainerStatuses"] = [
            {
                "name": which,
                "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}},
            }
            for which, code in init_exits.items()
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _queued(gates: Sequence[str], priority: int | None) -> Json:
    """What of a spec decides when the Pod is scheduled."""
    spec: Json = {}
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if priority is not None:
        spec["priority"] = priority
    return spec


def allocation(*cards: str, mib: int = 1000, cores: int = 0) -> str:
    """The allocation text of one container that has these cards."""
    return "".join(f"{uuid},NVIDIA,{mib},{cores}:" for uuid in cards) + ";"


# Nodes --------------------------------------------------------------------------------------------


def card(index: int, **overrides: Any) -> Json:
    """A card of a GPUNode's status: a T4 with ten slots, ``GPU-a`` for index 0, and so on.

    An override of None leaves the field out.
    """
    built = {
        "uuid": f"GPU-{letter(index)}",
        "index": index,
        "model": "NVIDIA-Tesla T4",
        "memoryMiB": 15360,
        "cores": 100,
        "slots": 10,
        "numaNode": 0,
        "mode": "hami-core",
        "healthy": True,
        "pciBusId": f"0000:00:{index + 4:02x}.0",
        **overrides,
    }
    return {key: value for key, value in built.items() if value is not None}


def letter(index: int) -> str:
    """``a`` for 0 to ``z`` for 25, then ``a1`` and so on."""
    return chr(ord("a") + index % 26) + (str(index // 26) if index >= 26 else "")


def link(first: int, second: int, nvlinks: int = 0, path: str = "SYS") -> Json:
    """How two cards are joined."""
    return {"between": [first, second], "nvlinks": nvlinks, "path": path}


def all_links(cards: int, nvlinks: int = 0, path: str = "SYS") -> list[Json]:
    """The same link between every two of so many cards."""
    return [
        link(first, second, nvlinks, path)
        for first in range(cards)
        for second in range(first + 1, cards)
    ]


def gpunode(
    name: str = "n1",
    cards: int | Sequence[Json] = 4,
    *,
    links: Sequence[Json | tuple[Any, ...]] | None = None,
    cordoned: Sequence[str] = (),
    memory: int = 15360,
    cores: int = 100,
    slots: int = 10,
    model: str = "NVIDIA-Tesla T4",
    numa: Sequence[int | None] = (0, 0, 1, 1),
    prefix: str | None = None,
    reported_at: str | None = REPORTED_AT,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    resource_version: str = "1",
) -> Json:
    """A GPUNode with so many equal cards, or with the cards given.

    Args:
        cards: a number makes cards ``GPU-n1-a``, ``GPU-n1-b``… (the UUIDs of two nodes differ);
            ``prefix="GPU-"`` makes them ``GPU-a``, ``GPU-b``…
        links: objects, or tuples ``(first, second, nvlinks, path)``; None leaves the list out.
        numa: NUMA nodes by index, begun anew where it is too short; None is unknown.
        spec: more fields of the spec; status likewise.
    """
    if isinstance(cards, int):
        start = f"GPU-{name}-" if prefix is None else prefix
        cards = [
            card(
                index,
                uuid=start + letter(index),
                memoryMiB=memory,
                cores=cores,
                slots=slots,
                model=model,
                numaNode=numa[index % len(numa)],
            )
            for index in range(cards)
        ]
    reported: Json = {"cards": list(cards)}
    if reported_at is not None:
        reported["reportedAt"] = reported_at
    if links is not None:
        reported["links"] = [link(*item) if isinstance(item, tuple) else item for item in links]
    closed: Json = {"cordonedCards": list(cordoned)} if cordoned else {}
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.GPUNODE_KIND,
        "metadata": {
            "name": name,
            "uid": f"uid-gpunode-{name}",
            "resourceVersion": resource_version,
        },
        "spec": {**closed, **(spec or {})},
        "status": {**reported, **(status or {})},
    }


def node_object(
    name: str = "n1",
    *,
    gpus: Quantity = None,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    unschedulable: bool = False,
    taints: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, Any] | None = None,
    cordon: str | None = None,
    resource_version: str = "1",
) -> Json:
    """A Node; ``gpus`` is what it offers of ``nvidia.com/gpu``, ``cordon`` HAMi's annotation."""
    room: Json = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus is not None:
        room |= dict.fromkeys(names.RESOURCES, "1P")  # as its agent advertises for the gates
        room[names.RESOURCE_COUNT] = quantity(gpus)
    spec: Json = {}
    if unschedulable:
        spec["unschedulable"] = True
    if taints:
        spec["taints"] = list(taints)
    written = dict(annotations or {})
    if cordon is not None:
        written[names.NODE_CORDON] = cordon
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-node-{name}",
            "resourceVersion": resource_version,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": written,
        },
        "spec": spec,
        "status": {
            "allocatable": room,
            "capacity": dict(room),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


# Namespaces ---------------------------------------------------------------------------------------


def quota(
    namespace: str = "default",
    gpumem: Quantity = None,
    gpucores: Quantity = None,
    *,
    name: str = "quota",
    scopes: Sequence[str] = (),
    hard: Mapping[str, Any] | None = None,
    resource_version: str = "1",
) -> Json:
    """A ResourceQuota; None leaves a bound out, 0 writes ``"0"``."""
    bounds = {names.QUOTA_MEMORY: gpumem, names.QUOTA_CORES: gpucores}
    spec: Json = {
        "hard": {
            **{key: quantity(value) for key, value in bounds.items() if value is not None},
            **(hard or {}),
        }
    }
    if scopes:
        spec["scopes"] = list(scopes)
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-quota-{namespace}-{name}",
            "resourceVersion": resource_version,
        },
        "spec": spec,
    }
