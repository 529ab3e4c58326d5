"""Whether a Pod's containers may start, and with what.

Pure: the Pods, the cards and kubelet's accounts in, the CDI devices out. The Pod is judged as a
whole at the start of its first container. kubelet has given devices to all of them by then, each
with a token of its own, so every container's device can be told at once: none of it depends on
which one is about to start.

Without CDI kubelet was told the cards before anybody knew whose they are. What it was told must
then be what the Pod's allocation says, to the letter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.fence import Tenant, overbooked
from cardwise.agent.deviceplugin.handover import NO_CARD, NO_LIBRARY, Edits, Library, edits_of
from cardwise.errors import BadAllocation
from cardwise.model import Booking, Card, Share
from cardwise.names import BIND_TIME, EventReason
from cardwise.wire.containers import Container, containers_of
from cardwise.wire.fields import annotations_of, at, items, text
from cardwise.wire.pods import booking_of, pod_ref

_STATUSES: Final = ("initContainerStatuses", "containerStatuses")
_NEVER: Final = 1 << 62
_REMEDY: Final = "delete the Pod, so that its owner makes it anew"


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
    cdi: bool = True
    """Whether the container runtime reads CDI specs."""


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
        What each token stands for; nothing of a container that another device plugin answered for.
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
    devices: dict[str, Edits] = {}
    for entry in entries:
        shares = shares_of.get(entry.container, ())
        if len(shares) != len(entry.ids):
            return _mismatch(
                f"container {entry.container} asked for {len(entry.ids)} cards, and its"
                f" allocation has {len(shares)}"
            )
        if lacking := absent_cards(shares, node):
            return _mismatch(f"this node has no card {', '.join(lacking)}")
        for token in entry.tokens:
            container = containers[entry.container]
            cache = entry.cache if entry.by_cdi else token
            devices[token] = edits_for(container, shares, node, cache=cache)
            wrong = _not_told(entry, devices[token], _env(container), node)
            if wrong:
                return _mismatch(f"container {entry.container}: {wrong}")
    return devices


def absent_cards(shares: Iterable[Share], node: Node) -> list[str]:
    """The UUIDs of cards that the node does not have."""
    known = {card.uuid for card in node.cards}
    return [share.uuid for share in shares if share.uuid not in known]


def edits_for(container: Container, shares: Sequence[Share], node: Node, *, cache: str) -> Edits:
    """What a container is given with these cards of the node."""
    modes = {card.uuid: card.mode for card in node.cards}
    return edits_of(
        shares,
        modes=[modes[share.uuid] for share in shares],
        oversold=node.oversold,
        library=node.library,
        cache=cache,
        own_env=_env(container),
    )


def _not_told(entry: Entry, wanted: Edits, own_env: Mapping[str, str], node: Node) -> str:
    """Why the runtime would not do as the allocation says; empty: it would."""
    if entry.by_cdi:
        # It has what CDI will tell, and its runtime may know no CDI any more.
        return "" if node.cdi else f"its cards are told by CDI, which the runtime lacks; {_REMEDY}"
    told = entry.answer
    if told.envs == NO_CARD:
        return f"nobody could tell its cards when kubelet asked; {_REMEDY}"
    for name in sorted({*wanted.env, *told.envs}):
        if told.envs.get(name) != wanted.env.get(name):
            return (
                f"kubelet was told {name}={told.envs.get(name, '')}, and the Pod's allocation says"
                f" {wanted.env.get(name, '')}: without CDI this is a guess, and it was wrong;"
                f" {_REMEDY}"
            )
        if own_env.get(name, wanted.env[name]) != wanted.env[name]:
            return f"its own variable {name} would hide ours without CDI: take it out of the Pod"
    if told.mounts != wanted.mounts:
        return f"HAMi-core's mounts are others than when kubelet asked; {_REMEDY}"
    return ""


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
