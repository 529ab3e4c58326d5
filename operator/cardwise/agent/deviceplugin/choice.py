"""Which container kubelet asks about, as far as one can guess, and which ids it should take.

Ids are a preference, which steers kubelet's own accounts alone: cards are handed over by the
booking, whatever the ids are. It is still good if kubelet's accounts name the right card: its
``podresources`` API, which monitors read, tells ids.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.messages import Device, Preference
from cardwise.errors import BadAllocation
from cardwise.model import Card, Share
from cardwise.wire.containers import Container, containers_of
from cardwise.wire.fields import at, text
from cardwise.wire.pods import booking_of


@dataclass(frozen=True, slots=True)
class Guess:
    """A container, and the cards that its Pod's allocation gives it."""

    pod_uid: str
    container: Container
    shares: tuple[Share, ...]


def devices_of(cards: Iterable[Card]) -> list[Device]:
    """A device for each slot of each card, ``UUID-i``."""
    return [
        Device(f"{card.uuid}-{slot}", card.healthy) for card in cards for slot in range(card.slots)
    ]


def card_of(device: str) -> str:
    """The UUID of the card that a device id is a slot of."""
    return device.rpartition("-")[0]


def choose(preference: Preference, wanted: Sequence[str] = ()) -> list[str]:
    """Ids for one container: a slot of each wanted card, else each of another card.

    Args:
        preference: what kubelet can choose from.
        wanted: UUIDs of cards, the dearest first; empty: nobody knows.
    """
    chosen = list(preference.must_include)
    free = sorted(set(preference.available) - set(chosen), key=_natural)
    slots = {uuid: list(ids) for uuid, ids in groupby(free, key=card_of)}
    for uuid in (*wanted, *(each for each in slots if each not in wanted)):
        if len(chosen) >= preference.size:
            break
        if slots.get(uuid):
            chosen.append(slots[uuid].pop(0))
    rest = (each for ids in slots.values() for each in ids)
    return [*chosen, *rest][: preference.size]


def next_cards(
    pods: Iterable[dict[str, Any]], entries: Iterable[Entry], size: int
) -> tuple[str, ...]:
    """The cards of the container that kubelet probably asks about now; none: nobody knows."""
    found = next_container(pods, entries, size)
    return tuple(share.uuid for share in found.shares) if found else ()


def next_container(
    pods: Iterable[dict[str, Any]], entries: Iterable[Entry], size: int
) -> Guess | None:
    """The container that kubelet probably asks about now.

    kubelet admits one Pod after another, and goes through a Pod's containers in order. It hears of
    Pods in the order of their bindings; those that it finds when it starts it takes by creation.

    Args:
        pods: the node's, as they are now.
        entries: what kubelet has given so far.
        size: how many cards it asks for.
    """
    served = {(entry.pod_uid, entry.container) for entry in entries}
    begun = {uid for uid, _ in served}
    for pod in sorted(pods, key=lambda pod: _turn(pod, begun)):
        try:
            booking = booking_of(pod)
        except BadAllocation:
            continue
        uid = text(at(pod, "metadata", "uid"))
        segments = zip(containers_of(pod), booking.containers if booking else (), strict=False)
        for container, shares in segments:
            if shares and (uid, container.name) not in served:
                if len(shares) == size:
                    return Guess(uid, container, shares)
                break
    return None


def _turn(pod: dict[str, Any], begun: Collection[str]) -> tuple[bool, bool, bool, int, str, str]:
    """When kubelet comes to a Pod.

    The last write to a Pod that no kubelet has told of is its binding, as a rule.
    """
    uid, version = (text(at(pod, "metadata", key)) for key in ("uid", "resourceVersion"))
    unknown = at(pod, "status", "startTime") is None
    return (
        uid not in begun,
        at(pod, "metadata", "deletionTimestamp") is not None,
        unknown,
        int(version) if unknown and version.isascii() and version.isdigit() else 0,
        text(at(pod, "metadata", "creationTimestamp")),
        uid,
    )


def _natural(device: str) -> tuple[str, int]:
    """By card, then by slot: 2 before 10."""
    uuid, _, slot = device.rpartition("-")
    return (uuid, int(slot) if slot.isascii() and slot.isdigit() else 0)
