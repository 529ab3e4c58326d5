"""Values → GPUNode JSON (crds/gpunodes.yaml): the agent's part of the status, and the controller's.

Equal values give equal texts, so that whoever publishes can tell news from none by comparing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cardwise import names
from cardwise.model import NO_USE, Card, CardUse, Condition, GPUNode, Link

Json = dict[str, Any]


def report_of(node: GPUNode, *, driver_version: str, conditions: Sequence[Condition] = ()) -> Json:
    """The agent's part of the status: sorted, without empty fields, the same for equal values."""
    status: Json = {
        "reportedAt": node.reported_at,
        "driverVersion": driver_version,
        "cards": [_card_json(card) for card in sorted(node.cards, key=lambda card: card.index)],
        "links": None
        if node.links is None
        else [
            _link_json(link)
            for link in sorted(node.links, key=lambda link: (link.first, link.second))
        ],
        "conditions": [
            _condition_json(condition)
            for condition in sorted(conditions, key=lambda condition: condition.type)
        ],
    }
    return {key: value for key, value in status.items() if value is not None and value != ""}


def document_of(
    node: GPUNode, *, driver_version: str = "", conditions: Sequence[Condition] = ()
) -> Json:
    """A whole GPUNode with the agent's part of the status: what ``gpunode_of`` reads back."""
    document: Json = {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.GPUNODE_KIND,
        "metadata": {"name": node.name},
    }
    if node.cordoned:
        document["spec"] = {"cordonedCards": sorted(node.cordoned)}
    document["status"] = report_of(node, driver_version=driver_version, conditions=conditions)
    return document


def usage_of(
    node: GPUNode,
    uses: Mapping[str, CardUse],
    tenants: Mapping[str, Sequence[str]],
    conditions: Sequence[Condition] = (),
) -> Json:
    """The controller's part of the status: who uses what, and the printed columns.

    Args:
        node: what its agent reports.
        uses: by UUID, what is used of a card; a card that is not named is idle.
        tenants: by UUID, ``namespace/name`` of the Pods on a card.
        conditions: what the controller says of the node; its agent's are not touched.

    A used card that the node no longer reports is listed too, after the others: its tenants are
    still there (docs/placement.md section 9). The summary counts reported cards only.
    """
    reported = [card.uuid for card in sorted(node.cards, key=lambda card: card.index)]
    gone = sorted({*uses, *tenants}.difference(reported))
    used = [uses.get(uuid, NO_USE) for uuid in reported]
    models = dict.fromkeys(card.model for card in node.cards if card.model)
    status: Json = {
        "usage": [
            {
                "uuid": uuid,
                "slots": uses.get(uuid, NO_USE).slots,
                "memoryMiB": uses.get(uuid, NO_USE).memory_mib,
                "cores": uses.get(uuid, NO_USE).cores,
                "tenants": sorted(tenants.get(uuid, ())),
            }
            for uuid in [*reported, *gone]
        ],
        "summary": {
            "cards": len(node.cards),
            "healthy": sum(card.healthy for card in node.cards),
            "model": ", ".join(models),
            "slots": f"{sum(use.slots for use in used)}/{sum(card.slots for card in node.cards)}",
            "memory": f"{sum(use.memory_mib for use in used)}"
            f"/{sum(card.memory_mib for card in node.cards)}",
        },
    }
    if conditions:
        status["conditions"] = [_condition_json(condition) for condition in conditions]
    return status


def _card_json(card: Card) -> Json:
    written: Json = {
        "uuid": card.uuid,
        "index": card.index,
        "model": card.model,
        "memoryMiB": card.memory_mib,
        "cores": card.cores,
        "slots": card.slots,
        "numaNode": card.numa,
        "mode": card.mode,
        "healthy": card.healthy,
        "unhealthyReason": card.unhealthy_reason,
        "pciBusId": card.pci_bus_id,
    }
    return {key: value for key, value in written.items() if value is not None and value != ""}


def _link_json(link: Link) -> Json:
    written: Json = {"between": [link.first, link.second], "nvlinks": link.nvlinks}
    if link.path:
        written["path"] = link.path
    return written


def _condition_json(condition: Condition) -> Json:
    written: Json = {
        "type": condition.type,
        "status": "True" if condition.holds else "False",
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.since:
        written["lastTransitionTime"] = condition.since
    return written
