"""Whether a Pod's containers may start, and with what.

Pure: the Pods, the cards and kubelet's accounts in, the CDI devices out. The Pod is judged as a
whole at the start of its first container. kubelet has given devices to all of them by then, each
with a token of its own, so every container's device can be told at once: none of it depends on
which one is about to start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.fence import Tenant, overbooked
from cardwise.agent.deviceplugin.handover import NO_LIBRARY, Edits, Library, edits_of, tokens_of
from cardwise.errors import BadAllocation
from cardwise.model import Booking, Card
from cardwise.names import BIND_TIME, EventReason
from cardwise.wire.containers import Container, containers_of
from cardwise.wire.fields import annotations_of, at, items, text
from cardwise.wire.pods import booking_of, pod_ref

_STATUSES: Final = ("initContainerStatuses", "containerStatuses")
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Pod must not start."""

    reason: EventReason
    message: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is known of the node at this moment."""

    cards: Sequence[Card]
    oversold: bool = False
    """Whether it offers more memory than its cards have."""
    library: Library = NO_LIBRARY
    begun: frozenset[str] = frozenset()
    """UIDs of Pods that were let start since the node's boot."""
    init_shrink: bool = False


def judge(
    uid: str, pods: Iterable[dict[str, Any]], entries: Sequence[Entry], node: Node
) -> dict[str, Edits] | Refusal:
    """Decide on one Pod.

    Args:
        uid: the Pod's.
        pods: every Pod of the node, as the API server has them.
        entries: what kubelet gave of ``nvidia.com/gpu`` to this Pod's containers.
        node: cards and HAMi-core.

    Returns:
        What each token stands for; none for a container that an earlier device plugin answered for.
    """
    pods = list(pods)
    own = next((pod for pod in pods if text(at(pod, "metadata", "uid")) == uid), None)
    if own is None:
        return _mismatch("the API server has no such Pod on this node")
    try:
        booking = booking_of(own)
    except BadAllocation as error:
        return _mismatch(f"its allocation can't be read: {error}")
    if booking is None:
        return _mismatch("it has no allocation: nobody gave it cards")
    given = _given(own, booking, entries, node)
    if isinstance(given, Refusal):
        return given
    why = overbooked(uid, _tenants(pods, node, own=own), node.cards)
    return given if why is None else Refusal(EventReason.CARD_OVERBOOKED, why)


def _given(
    pod: dict[str, Any], booking: Booking, entries: Sequence[Entry], node: Node
) -> dict[str, Edits] | Refusal:
    """What each token stands for, container by container."""
    containers = {container.name: container for container in containers_of(pod)}
    shares_of = dict(zip(containers, booking.containers, strict=False))
    modes = {card.uuid: card.mode for card in node.cards}
    devices: dict[str, Edits] = {}
    for entry in entries:
        shares = shares_of.get(entry.container, ())
        if len(shares) != len(entry.ids):
            return _mismatch(
                f"container {entry.container} asked for {len(entry.ids)} cards, and its"
                f" allocation has {len(shares)}"
            )
        strange = [share.uuid for share in shares if share.uuid not in modes]
        if strange:
            return _mismatch(f"this node has no card {', '.join(strange)}")
        for token in tokens_of(entry.cdi):
            devices[token] = edits_of(
                shares,
                modes=[modes[share.uuid] for share in shares],
                oversold=node.oversold,
                library=node.library,
                cache=f"{entry.pod_uid}_{entry.container}",
                own_env=_env(containers[entry.container]),
            )
    return devices


def _tenants(
    pods: Iterable[dict[str, Any]], node: Node, *, own: Mapping[str, Any]
) -> Iterable[Tenant]:
    for pod in pods:
        try:
            booking = booking_of(pod, init_shrink=node.init_shrink and pod is not own)
        except BadAllocation:
            continue  # it is refused in its turn, and the node takes no new Pod meanwhile
        if booking is not None:
            ref = pod_ref(pod)
            yield Tenant(
                pod=ref,
                booking=booking,
                started=ref.uid in node.begun or _has_started(pod),
                bound_at=_bound_at(pod),
            )


def _has_started(pod: dict[str, Any]) -> bool:
    """Whether kubelet has told of a container, of whatever state."""
    return any(
        at(status, "containerID") for key in _STATUSES for status in items(at(pod, "status", key))
    )


def _bound_at(pod: dict[str, Any]) -> int:
    """When it was bound; one that does not say comes last."""
    written = annotations_of(pod).get(BIND_TIME, "")
    return int(written) if written.isascii() and written.isdigit() else _NEVER


def _env(container: Container) -> dict[str, str]:
    return {
        text(at(each, "name")): text(at(each, "value")) for each in items(container.json.get("env"))
    }


def _mismatch(message: str) -> Refusal:
    return Refusal(EventReason.ALLOCATION_MISMATCH, message)
