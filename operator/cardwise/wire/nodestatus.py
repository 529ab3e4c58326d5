"""What a Node advertises of its cards: GPUNode JSON → resources → the Node's status.

kube-scheduler refuses a Pod that asks for an extended resource which the Node does not have, and
adds up what the Pods there ask. By the door of gates it is asked about our resources too, after we
have chosen the cards: its sums must never be stricter than our accounts, which are kept by card.
"""

from collections.abc import Mapping
from typing import Any, Final

from cardwise import names
from cardwise.model import NO_USE, WHOLE_CORES
from cardwise.quantity import worth
from cardwise.wire.fields import at, items, mapping
from cardwise.wire.gpunodes import gpunode_of, uses_of

Json = dict[str, Any]

UNBOUNDED: Final = 10**15
"""For a resource whose sum over Pods means nothing: more than any number of Pods can ask."""

_SIDES: Final = ("capacity", "allocatable")
"""Both: kubelet copies one into the other, but not every Node has a kubelet."""


def resources_of(gpunode: Json, *, bounded: bool = True) -> dict[str, int]:
    """What a node advertises for the cards that its GPUNode reports; nothing where it has none.

    Of a card counts what it offers, or what is used of it where that is more: of one that was made
    smaller, or is gone, the tenants are still there, and kube-scheduler goes on adding them up.
    Whole cores (100) may be asked of a card whatever ``coreScaling`` made of it, so it has these.
    A Pod that fits on its card by our accounts is thereby within the sums of the node.

    Args:
        gpunode: as the cluster has it, with the controller's ``usage``.
        bounded: False where our accounts let go of what kube-scheduler counts for a Pod's whole
            life (``scheduling.initShrink``): there its sums may not bind.

    Raises:
        BadGPUNode: it can't be read.
    """
    cards = {card.uuid: card for card in gpunode_of(gpunode).cards}
    uses = uses_of(gpunode)
    slots = memory = cores = 0
    for uuid in cards.keys() | uses.keys():
        use, card = uses.get(uuid, NO_USE), cards.get(uuid)
        slots += max(use.slots, card.slots if card else 0)
        memory += max(use.memory_mib, card.memory_mib if card else 0)
        cores += max(use.cores, card.cores if card else 0, WHOLE_CORES if card else 0)
    if not slots:
        return {}
    return {
        names.RESOURCE_COUNT: slots,
        names.RESOURCE_MEMORY: memory if bounded else UNBOUNDED,
        names.RESOURCE_CORES: cores if bounded else UNBOUNDED,
        names.RESOURCE_MEMORY_PERCENT: UNBOUNDED,
        names.RESOURCE_PRIORITY: UNBOUNDED,
    }


def changes_of(node: Json, resources: Mapping[str, int]) -> dict[str, int | None]:
    """What to write so that a Node advertises these of us; None removes, nothing is right as it is.

    ``nvidia.com/gpu`` that another has written is left alone: a device plugin's is kubelet's. The
    API server writes quantities in its own way (``1k``), so they are compared by worth.
    """
    ours = advertised(node)
    if names.RESOURCE_COUNT in _amounts(node, "capacity") and names.RESOURCE_COUNT not in ours:
        resources = {k: v for k, v in resources.items() if k != names.RESOURCE_COUNT}
    stale = dict.fromkeys(sorted(ours - resources.keys()))
    wrong = {
        name: amount
        for name, amount in resources.items()
        if any(worth(_amounts(node, side).get(name)) != amount for side in _SIDES)
    }
    return {**stale, **wrong}


def advertised(node: Json) -> frozenset[str]:
    """The resources of a Node that an agent wrote and nobody changed since, on either side.

    By the Node's own account of who wrote which field last (``metadata.managedFields``). Where
    kubelet agrees with our count it writes nothing, and the count is an agent's still; once a card
    is unhealthy it lowers the allocatable side alone, and from then on the count is kubelet's.
    """
    capacity, allocatable = (_written(node, side) for side in _SIDES)
    return capacity & allocatable


def patch_of(changes: Mapping[str, int | None]) -> Json:
    """Changes as a merge patch of a Node's status."""
    amounts = {name: None if amount is None else str(amount) for name, amount in changes.items()}
    return {"status": dict.fromkeys(_SIDES, amounts)}


def _written(node: Json, side: str) -> frozenset[str]:
    """The resources that an agent wrote last, on one side."""
    fields = [
        mapping(at(entry, "fieldsV1", "f:status", f"f:{side}"))
        for entry in items(at(node, "metadata", "managedFields"))
        if at(entry, "manager") == names.MANAGER_AGENT
    ]
    return frozenset(key.removeprefix("f:") for each in fields for key in each)


def _amounts(node: Json, side: str) -> Json:
    return mapping(at(node, "status", side))
