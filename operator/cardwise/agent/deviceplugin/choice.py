"""Which device ids kubelet should take: a preference, which steers kubelet's own accounts alone.

Cards are handed over by the booking, whatever the ids are. It is still good if kubelet's accounts
name the right card: its ``podresources`` API, which monitors read, tells ids.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.messages import Device, Preference
from cardwise.errors import BadAllocation
from cardwise.model import Card
from cardwise.wire.containers import containers_of
from cardwise.wire.fields import at, text
from cardwise.wire.pods import booking_of


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
    """The cards of the container that kubelet probably asks about now.

    kubelet goes through Pods by creation and through a Pod's containers in order; the first one
    that it has given nothing to, and that asks for so many cards, is the one. A guess, for a
    preference.
    """
    served = {(entry.pod_uid, entry.container) for entry in entries}
    for pod in sorted(pods, key=_creation):
        try:
            booking = booking_of(pod)
        except BadAllocation:
            continue
        uid = text(at(pod, "metadata", "uid"))
        for container, shares in zip(
            containers_of(pod), booking.containers if booking else (), strict=False
        ):
            if len(shares) == size and (uid, container.name) not in served:
                return tuple(share.uuid for share in shares)
    return ()


def _creation(pod: dict[str, Any]) -> tuple[str, str]:
    return (
        text(at(pod, "metadata", "creationTimestamp")),
        text(at(pod, "metadata", "uid")),
    )


def _natural(device: str) -> tuple[str, int]:
    """By card, then by slot: 2 before 10."""
    uuid, _, slot = device.rpartition("-")
    return (uuid, int(slot) if slot.isascii() and slot.isdigit() else 0)
