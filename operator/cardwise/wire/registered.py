"""HAMi's annotations on a Node → the GPUNode that stands for them.

Separate from `gpunodes`, because it is another promise: what HAMi's device plugin writes, read as
HAMi reads it. What it leaves out is zero or false; what has the wrong type makes the whole node
unusable, as with HAMi.
"""

import json
import re
from typing import Any, Final

from cardwise import names
from cardwise.errors import BadGPUNode
from cardwise.model import Card, Condition, GPUNode, Link
from cardwise.wire import checked
from cardwise.wire.fields import annotations_of, at, quoted, text
from cardwise.wire.gpunodes import MOST_CARDS, MOST_NVLINKS, offers_cards, uuid_of
from cardwise.wire.gpunodes_written import document_of

Json = dict[str, Any]

_PATHS: Final = {10: "SYS", 20: "NODE", 30: "PHB", 40: "PXB", 50: "PIX", 60: "BOARD"}
"""What HAMi adds to a pair's score for the nearest thing that both cards hang on."""
_NVLINK: Final = 100
"""What it adds for each NVLink."""
_MODEL_CHARACTERS: Final = 256
_MESSAGE_CHARACTERS: Final = 1000
_WITH_COMMAS: Final = re.compile(r"[^\s,:\[{\"]+(?:,[^,:]*){5,8}(?::|$)")
"""``UUID,slots,MiB,cores,model,NUMA node,health:`` for each card."""
IN_MIG_MODE: Final = "in MIG mode: only HAMi's own scheduler can divide it"


def is_registered(node: Json) -> bool:
    """Whether HAMi's device plugin ever said which cards a Node has."""
    return names.NODE_REGISTER in annotations_of(node)


def registered_of(node: Json) -> GPUNode:
    """Read the cards, and how they are joined, of a Node that is registered.

    Raises:
        BadGPUNode: one sentence that names the annotation and the place in it.
    """
    written = annotations_of(node)
    cards = _cards_of(_parsed(written.get(names.NODE_REGISTER, ""), names.NODE_REGISTER))
    links = None
    if written.get(names.NODE_SCORE):
        indexes = {card.uuid: card.index for card in cards}
        links = _links_of(_parsed(written[names.NODE_SCORE], names.NODE_SCORE), indexes)
    return GPUNode(name=text(at(node, "metadata", "name")), cards=cards, links=links, by_hami=True)


def gpunode_document(node: Json, reported_at: str) -> Json:
    """The GPUNode that stands for a registered Node; without cards where none can be given.

    A handshake says nothing more than the Node does: with HAMi, too, an old one counts only where
    the Node offers no card.

    Args:
        node: as the API server has it.
        reported_at: the heartbeat, as RFC 3339 text.
    """
    name, uid = text(at(node, "metadata", "name")), text(at(node, "metadata", "uid"))
    report, ready, why, message = GPUNode(name=name), False, "", ""
    try:
        report = registered_of(node)
    except BadGPUNode as error:
        why, message = "RegistrationUnreadable", str(error)[:_MESSAGE_CHARACTERS]
    else:
        if offers_cards(node):
            ready, why = True, "Registered"
        else:
            report = GPUNode(name=name)
            why = "NotAdvertised"
            message = (
                f"the node offers no {names.RESOURCE_COUNT}: HAMi's device plugin is not there"
            )
    report = GPUNode(name=name, cards=report.cards, links=report.links, reported_at=reported_at)
    document = document_of(
        report,
        conditions=[
            Condition(type=names.CONDITION_READY, holds=ready, reason=why, message=message)
        ],
    )
    document["metadata"] = {"name": name, "labels": {names.SOURCE: names.SOURCE_HAMI}}
    if uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        document["metadata"]["ownerReferences"] = [owner]
    return document


def trouble_of(document: Json) -> str:
    """Why a GPUNode that `gpunode_document` made has no cards; empty where it has."""
    (ready,) = document["status"]["conditions"]
    return "" if ready["status"] == "True" else ready["message"]


def _parsed(annotation: str, key: str) -> object:
    try:
        return json.loads(annotation, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise BadGPUNode(f"{key} is {quoted(annotation)}, {_what_else(annotation)}") from None


def _what_else(annotation: str) -> str:
    """What a text that is not JSON is, and what to do about it."""
    if _WITH_COMMAS.match(annotation):
        return (
            "the form with commas of older releases of HAMi, which is not read: bring HAMi's device"
            " plugin on this node to 2.10, which writes JSON, or have Cardwise's agent report there"
        )
    return "which is not JSON"


def _refused(word: str) -> object:
    """Go knows neither NaN nor Infinity."""
    raise ValueError(word)


def _cards_of(value: object) -> tuple[Card, ...]:
    listed = checked.sequence(value, names.NODE_REGISTER)
    if not listed:
        raise BadGPUNode(f"{names.NODE_REGISTER} lists no card")
    if len(listed) > MOST_CARDS:
        raise BadGPUNode(f"{names.NODE_REGISTER} lists {len(listed)} cards, above {MOST_CARDS}")
    cards: dict[int, Card] = {}
    uuids: set[str] = set()
    for position, each in enumerate(listed):
        where = f"{names.NODE_REGISTER}[{position}]"
        card = _card_of(checked.mapping(each, where), where)
        if card.index in cards or card.uuid in uuids:
            raise BadGPUNode(f"{where} is a card with an id or index that another has")
        uuids.add(card.uuid)
        cards[card.index] = card
    return tuple(cards[index] for index in sorted(cards))


def _card_of(written: Json, where: str) -> Card:
    def amount(key: str) -> int:
        return checked.number(written.get(key), f"{where}.{key}", default=0)

    mode = checked.text(written.get("mode"), f"{where}.mode")
    healthy = checked.flag(written.get("health"), f"{where}.health", default=False)
    trouble = "" if healthy else "HAMi's device plugin reports it unhealthy"
    if mode == names.MODE_MIG:
        healthy, trouble = False, IN_MIG_MODE
    return Card(
        uuid=uuid_of(written.get("id"), f"{where}.id"),
        index=amount("index"),
        model=checked.text(written.get("type"), f"{where}.type")[:_MODEL_CHARACTERS],
        memory_mib=amount("devmem"),
        cores=amount("devcore"),
        slots=amount("count"),
        numa=amount("numa"),
        # HAMi's plugin takes any other word for its default.
        mode=mode if mode in names.MODES else names.MODE_DEFAULT,
        healthy=healthy,
        unhealthy_reason=trouble,
    )


def _links_of(value: object, indexes: dict[str, int]) -> tuple[Link, ...]:
    """The pairs of known cards; of two directions that differ, the lower score."""
    scores: dict[tuple[int, int], int] = {}
    for position, each in enumerate(checked.sequence(value, names.NODE_SCORE)):
        where = f"{names.NODE_SCORE}[{position}]"
        row = checked.mapping(each, where)
        one = indexes.get(checked.text(row.get("uuid"), f"{where}.uuid"))
        for other_uuid, score in checked.mapping(row.get("score"), f"{where}.score").items():
            most = (MOST_NVLINKS + 1) * _NVLINK - 1
            number = checked.number(score, f"{where}.score", default=0, most=most)
            other = indexes.get(other_uuid)
            if one is None or other is None or one == other:
                continue
            pair = (min(one, other), max(one, other))
            scores[pair] = min(number, scores.get(pair, number))
    return tuple(
        Link(
            first=first,
            second=second,
            nvlinks=score // _NVLINK,
            path=_PATHS.get(score % _NVLINK, ""),
        )
        for (first, second), score in sorted(scores.items())
    )
