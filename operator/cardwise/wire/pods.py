"""Pod → what it is and which cards it has; a booking → the write that gives it to its Pod.

The annotation on the bound Pod is the truth about who has which card: the ledger is rebuilt from
what is read here, so what can't be read raises and is never taken for "no cards".
"""

from collections.abc import Mapping
from typing import Any

from cardwise.errors import BadAllocation
from cardwise.model import Booking, ContainerKind, PodRef, Share
from cardwise.names import (
    ALLOCATED,
    BIND_PHASE,
    BIND_PHASE_ALLOCATING,
    BIND_TIME,
    EXCLUSIVE_HELD,
    GATE,
    TO_ALLOCATE,
    VGPU_NODE,
    VGPU_TIME,
)
from cardwise.wire import allocation, pins
from cardwise.wire.containers import Container, containers_of, count_of, names_ours
from cardwise.wire.fields import (
    annotation,
    annotations_of,
    at,
    items,
    mapping,
    quoted,
    size_of,
    text,
)
from cardwise.wire.requests import pod_ref, request_of

__all__ = [
    "Order",
    "allocation_annotations",
    "annotation_bytes",
    "asks_cards",
    "binding_body",
    "booking_of",
    "bound_node",
    "has_allocation",
    "is_finished",
    "is_handing",
    "is_terminating",
    "owner_uid",
    "placed_node",
    "plain_binding",
    "pod_ref",
    "queue_order",
    "request_of",
    "resource_version",
    "version_number",
    "waits_at_gate",
]

Order = tuple[int, str, str, str]

_MOST_DIGITS = 20
"""Of a resourceVersion, which is a 64-bit number."""


def asks_cards(pod: dict[str, Any]) -> bool:
    """Whether a container names any resource of ours; cheap, and nothing is parsed."""
    return any(names_ours(container.json) for container in containers_of(pod))


def has_allocation(pod: dict[str, Any]) -> bool:
    """Whether it carries an allocation, that of no card included; cheap, and nothing is parsed."""
    return annotation(pod, ALLOCATED) is not None


def is_finished(pod: dict[str, Any]) -> bool:
    """Whether it ended: its containers run no more, so it holds no card."""
    return at(pod, "status", "phase") in ("Succeeded", "Failed")


def is_terminating(pod: dict[str, Any]) -> bool:
    """Whether its deletion has begun; it holds its cards until it is gone."""
    return bool(at(pod, "metadata", "deletionTimestamp"))


def is_handing(pod: dict[str, Any]) -> bool:
    """Whether it is placed and has not been handed its cards yet, as its annotation says.

    One that runs has them, whatever its annotation says.
    """
    waits = at(pod, "status", "phase") in (None, "", "Pending")
    return waits and annotation(pod, BIND_PHASE) == BIND_PHASE_ALLOCATING


def bound_node(pod: dict[str, Any]) -> str | None:
    """The node it is bound to."""
    return text(at(pod, "spec", "nodeName")) or None


def placed_node(pod: dict[str, Any]) -> str | None:
    """The node that it is bound to, or can only be bound to any more: its cards count there."""
    return bound_node(pod) or pins.pinned_node(pod)


def owner_uid(pod: dict[str, Any]) -> str:
    """The UID of the controller that made it, and would make it anew; empty where there is none."""
    owners = items(at(pod, "metadata", "ownerReferences"))
    return next((text(at(o, "uid")) for o in owners if at(o, "controller") is True), "")


def waits_at_gate(pod: dict[str, Any]) -> bool:
    """Whether it waits for its cards alone: ours is the last gate left.

    While others hold gates, they may still change the Pod.
    """
    return pins.gates_of(pod) == [GATE] and not is_terminating(pod)


def queue_order(pod: dict[str, Any], priority: int) -> Order:
    """Its place in the queue at the gate: by priority, then creation, then name."""
    ref = pod_ref(pod)
    return (-priority, text(at(pod, "metadata", "creationTimestamp")), ref.name, ref.namespace)


def resource_version(pod: dict[str, Any]) -> str:
    """Which version of the Pod this is; empty where none is told."""
    return text(at(pod, "metadata", "resourceVersion"))


def version_number(document: dict[str, Any]) -> int:
    """The resourceVersion of any object, to be compared; 0 where none can be read.

    Among objects of one type the larger number is the newer version (KEP-5504).
    """
    version = text(at(document, "metadata", "resourceVersion"))
    return int(version) if version.isdecimal() and len(version) <= _MOST_DIGITS else 0


def booking_of(pod: dict[str, Any], *, init_shrink: bool = False) -> Booking | None:
    """Read the cards of a placed, unfinished Pod: one that is bound, or pinned to its node.

    On any other Pod the annotation is somebody's text and no booking (section 9).

    Args:
        pod: a Pod as the API server returns it.
        init_shrink: HAMi's way: what ordinary init containers took is free once all of them ended
            well (section 7; the setting ``scheduling.initShrink``).

    Returns:
        None for a Pod that is not placed or finished, or that has no allocation.

    Raises:
        BadAllocation: one sentence; the Pod's node must take no new Pod until it is mended.
    """
    node = placed_node(pod)
    written = mapping(at(pod, "metadata", "annotations"))
    if node is None or is_finished(pod) or ALLOCATED not in written:
        return None
    value = written[ALLOCATED]
    if not (value is None or isinstance(value, str)):
        raise BadAllocation(f"{quoted(value)} is no text")
    segments = allocation.decode(value or "")
    containers = containers_of(pod)
    kinds = _kinds(segments, containers)
    segments = segments[: len(kinds)]
    if init_shrink and _init_containers_ended_well(pod, containers):
        segments = tuple(
            () if kind is ContainerKind.INIT else segment
            for kind, segment in zip(kinds, segments, strict=True)
        )
    return Booking(
        node=node,
        containers=segments,
        kinds=kinds,
        exclusive=annotation(pod, EXCLUSIVE_HELD) == "true",
    )


def _kinds(
    segments: tuple[tuple[Share, ...], ...], containers: list[Container]
) -> tuple[ContainerKind, ...]:
    """What kind of container each segment belongs to (section 7, "Reading").

    Where the text can't be the Pod's, segment by segment, nobody knows which of them run at the
    same time, so all count as regular ones: summed, to the Pod's end.
    """
    beyond = segments[len(containers) :]
    mismatched = (
        len(segments) < len(containers)
        or any(beyond)
        or any(
            shares and not count_of(container.json)
            for shares, container in zip(segments, containers, strict=False)
        )
    )
    if mismatched:
        return (ContainerKind.REGULAR,) * len(segments)
    return tuple(container.kind for container in containers)


def _init_containers_ended_well(pod: dict[str, Any], containers: list[Container]) -> bool:
    """Whether every ordinary init container terminated with exit code 0."""
    exits = {
        text(at(status, "name")): at(status, "state", "terminated", "exitCode")
        for status in items(at(pod, "status", "initContainerStatuses"))
    }
    ordinary = [c.name for c in containers if c.kind is ContainerKind.INIT]
    return all(exits.get(name) == 0 for name in ordinary)


def allocation_annotations(
    booking: Booking, unix_seconds: int, *, exclusive: bool
) -> dict[str, str]:
    """What is written on a Pod with its cards.

    Args:
        booking: the node, and the cards of each container in annotation order.
        unix_seconds: the time of the write.
        exclusive: whether the Pod locks its cards for its whole life (section 3, check 9).
    """
    words = allocation.encode(booking.containers)
    annotations = {
        ALLOCATED: words,
        TO_ALLOCATE: words,
        VGPU_NODE: booking.node,
        VGPU_TIME: str(unix_seconds),
        BIND_TIME: str(unix_seconds),
        BIND_PHASE: BIND_PHASE_ALLOCATING,
    }
    if exclusive:
        annotations[EXCLUSIVE_HELD] = "true"
    return annotations


def binding_body(
    pod: PodRef, booking: Booking, unix_seconds: int, exclusive: bool
) -> dict[str, Any]:
    """Make the Binding that gives a Pod its node and its cards in one write.

    Args:
        pod: its UID is checked by the API server: a namesake is not bound in its place.
        booking: the node, and the cards of each container in annotation order.
        unix_seconds: the time of binding.
        exclusive: whether the Pod locks its cards for its whole life (section 3, check 9).
    """
    binding = plain_binding(pod, booking.node)
    binding["metadata"]["annotations"] = allocation_annotations(
        booking, unix_seconds, exclusive=exclusive
    )
    return binding


def plain_binding(pod: PodRef, node: str) -> dict[str, Any]:
    """Make the Binding of a Pod that gets no card; its UID is checked as in `binding_body`."""
    metadata = {"name": pod.name, "namespace": pod.namespace}
    if pod.uid:
        metadata["uid"] = pod.uid
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        # Without the kind the API server takes the target for something it does not know.
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def annotation_bytes(pod: dict[str, Any], extra: Mapping[str, str]) -> int:
    """The size of a Pod's annotations once ``extra`` is merged into them, as the server counts it.

    Above 256 KiB the API server refuses every later update of the Pod, its status included.
    """
    return size_of({**annotations_of(pod), **extra})
