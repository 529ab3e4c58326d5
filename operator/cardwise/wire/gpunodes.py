"""GPUNode JSON → values (crds/gpunodes.yaml); ``gpunodes_written`` is the way back.

The keys of a GPUNode are spelt in these two and nowhere else. Reading trusts nothing: a document
may come from a file, or from a cluster whose schema is older than this program.
"""

import re
from typing import Any, Final

from cardwise import names
from cardwise.errors import BadGPUNode, BadQuantity
from cardwise.model import (
    Card,
    CardUse,
    Condition,
    GPUNode,
    Link,
    NodeOverrides,
)
from cardwise.quantity import whole
from cardwise.wire import checked
from cardwise.wire.allocation import UUID, UUID_FORM
from cardwise.wire.fields import at, items, quoted, text

Json = dict[str, Any]

MOST_CARDS: Final = 64
MOST_LINKS: Final = MOST_CARDS * (MOST_CARDS - 1) // 2
"""All pairs of that many cards."""
MOST_NVLINKS: Final = 64
"""Between two cards; more would let one pair outweigh any other set."""

_NAME = re.compile(r"\S{1,253}")


def gpunode_of(document: Json) -> GPUNode:
    """Read a GPUNode; what it leaves out has the schema's defaults.

    Raises:
        BadGPUNode: one sentence that names the node, the field and what to write instead.
    """
    name = _name_of(document)
    try:
        spec = checked.mapping(document.get("spec"), "spec")
        status = checked.mapping(document.get("status"), "status")
        return GPUNode(
            name=name,
            cards=_cards_of(status.get("cards")),
            links=None if status.get("links") is None else _links_of(status["links"]),
            cordoned=_cordoned_of(spec.get("cordonedCards")),
            reported_at=_time_of(status.get("reportedAt"), "status.reportedAt"),
            by_hami=is_from_hami(document) and not is_by_agent(document),
        )
    except BadGPUNode as error:
        raise BadGPUNode(f"GPUNode {name}: {error}") from error


def is_from_hami(document: Json) -> bool:
    """Whether it says that it was built from HAMi's annotations."""
    return at(document, "metadata", "labels", names.SOURCE) == names.SOURCE_HAMI


def is_by_agent(document: Json) -> bool:
    """Whether an agent of ours wrote into it; its report wins over what was built from HAMi's."""
    return any(
        at(each, "manager") == names.MANAGER_AGENT
        for each in items(at(document, "metadata", "managedFields"))
    )


def overrides_of(document: Json) -> NodeOverrides:
    """Read what the administrator set for this node's agent.

    Raises:
        BadGPUNode: one sentence that names the node, the field and what to write instead.
    """
    name = _name_of(document)
    try:
        spec = checked.mapping(document.get("spec"), "spec")
        return NodeOverrides(
            slots_per_card=checked.number(
                spec.get("slotsPerCard"), "spec.slotsPerCard", default=None, least=1
            ),
            memory_scaling=checked.factor(spec.get("memoryScaling"), "spec.memoryScaling"),
            core_scaling=checked.factor(spec.get("coreScaling"), "spec.coreScaling"),
            memory_mib=checked.number(
                spec.get("memoryMiB"), "spec.memoryMiB", default=None, least=1
            ),
            mode=checked.choice(spec.get("mode"), "spec.mode", names.MODES),
        )
    except BadGPUNode as error:
        raise BadGPUNode(f"GPUNode {name}: {error}") from error


def conditions_of(document: Json) -> tuple[Condition, ...]:
    """Read the conditions, leaving out what is none: they are for people, nothing hangs on them."""
    return tuple(
        Condition(
            type=each["type"],
            holds=each.get("status") == "True",
            reason=text(each.get("reason")),
            message=text(each.get("message")),
            since=text(each.get("lastTransitionTime")),
        )
        for each in items(at(document, "status", "conditions"))
        if isinstance(at(each, "type"), str)
    )


def uses_of(document: Json) -> dict[str, CardUse]:
    """What the controller wrote of each card's use, by UUID; of cards that are gone, too.

    Raises:
        BadGPUNode: one sentence that names the node and the field.
    """
    uses: dict[str, CardUse] = {}
    try:
        status = checked.mapping(document.get("status"), "status")
        for number, value in enumerate(checked.sequence(status.get("usage"), "status.usage")):
            where = f"status.usage[{number}]"
            each = checked.mapping(value, where)
            uuid = checked.match(each.get("uuid"), f"{where}.uuid", pattern=UUID, what=UUID_FORM)
            uses[uuid] = CardUse(
                slots=checked.number(each.get("slots"), f"{where}.slots", default=0),
                memory_mib=checked.number(each.get("memoryMiB"), f"{where}.memoryMiB", default=0),
                cores=checked.number(each.get("cores"), f"{where}.cores", default=0),
            )
    except BadGPUNode as error:
        raise BadGPUNode(f"GPUNode {_name_of(document)}: {error}") from error
    return uses


def cordoned_by_annotation(node_document: Json) -> frozenset[str]:
    """UUIDs that HAMi's annotation on a Node closes: a comma list, blanks around them dropped."""
    members = text(at(node_document, "metadata", "annotations", names.NODE_CORDON)).split(",")
    return frozenset(uuid.strip() for uuid in members if uuid.strip())


def slots_offered(node_document: Json) -> int:
    """How much ``nvidia.com/gpu`` a Node has for Pods; 0 where none, or it can't be read."""
    try:
        return whole(at(node_document, "status", "allocatable", names.RESOURCE_COUNT))
    except BadQuantity:
        return 0


def offers_cards(node_document: Json) -> bool:
    """Whether a Node offers ``nvidia.com/gpu``, so that without a GPUNode its agent is missing."""
    return slots_offered(node_document) > 0


def _name_of(document: Json) -> str:
    name = at(document, "metadata", "name")
    if not isinstance(name, str) or not name:
        raise BadGPUNode("a GPUNode has no metadata.name: write the name of its Node")
    if not _NAME.fullmatch(name):
        raise BadGPUNode(f"metadata.name is {quoted(name)}: write the name of its Node")
    return name


def _time_of(value: object, where: str) -> str:
    # YAML makes an unquoted time a value of its own; it is only ever compared with itself.
    if value is None or isinstance(value, str | bool | int | float | dict | list):
        return checked.text(value, where)
    return str(value)


def _cordoned_of(value: object) -> frozenset[str]:
    where = "spec.cordonedCards"
    return frozenset(
        checked.text(uuid, f"{where}[{position}]")
        for position, uuid in enumerate(checked.sequence(value, where))
        if uuid is not None
    )


def _cards_of(value: object) -> tuple[Card, ...]:
    listed = checked.sequence(value, "status.cards")
    if len(listed) > MOST_CARDS:
        raise BadGPUNode(f"status.cards lists {len(listed)} cards: write at most {MOST_CARDS}")
    cards: dict[int, Card] = {}
    uuids: set[str] = set()
    for position, each in enumerate(listed):
        where = f"status.cards[{position}]"
        card = _card_of(checked.mapping(each, where), where)
        if card.uuid in uuids:
            raise BadGPUNode(f"{where}.uuid is {card.uuid} again: every card has its own UUID")
        if card.index in cards:
            raise BadGPUNode(f"{where}.index is {card.index} again: every card has its own index")
        uuids.add(card.uuid)
        cards[card.index] = card
    return tuple(cards[index] for index in sorted(cards))


def uuid_of(value: object, where: str) -> str:
    """A card's UUID, of the form that an allocation text can carry.

    Raises:
        BadGPUNode: it is absent or has another form.
    """
    return checked.match(value, where, pattern=UUID, what=UUID_FORM)


def _card_of(card: Json, where: str) -> Card:
    return Card(
        uuid=uuid_of(card.get("uuid"), f"{where}.uuid"),
        index=checked.needed(card.get("index"), f"{where}.index"),
        model=checked.text(card.get("model"), f"{where}.model"),
        memory_mib=checked.needed(card.get("memoryMiB"), f"{where}.memoryMiB"),
        cores=checked.number(card.get("cores"), f"{where}.cores", default=100),
        slots=checked.number(card.get("slots"), f"{where}.slots", default=10),
        numa=checked.number(card.get("numaNode"), f"{where}.numaNode", default=None),
        mode=checked.choice(card.get("mode"), f"{where}.mode", names.MODES) or names.MODE_DEFAULT,
        healthy=checked.flag(card.get("healthy"), f"{where}.healthy", default=True),
        unhealthy_reason=checked.text(card.get("unhealthyReason"), f"{where}.unhealthyReason"),
        pci_bus_id=checked.text(card.get("pciBusId"), f"{where}.pciBusId"),
    )


def _links_of(value: object) -> tuple[Link, ...]:
    listed = checked.sequence(value, "status.links")
    if len(listed) > MOST_LINKS:
        raise BadGPUNode(f"status.links lists {len(listed)} pairs: write at most {MOST_LINKS}")
    links: dict[tuple[int, int], Link] = {}
    for position, each in enumerate(listed):
        where = f"status.links[{position}]"
        link = _link_of(checked.mapping(each, where), where)
        pair = (link.first, link.second)
        if pair in links:
            raise BadGPUNode(
                f"{where}.between names the cards {link.first} and {link.second} again:"
                " every pair stands once, in either order"
            )
        links[pair] = link
    return tuple(links[pair] for pair in sorted(links))


def _link_of(link: Json, where: str) -> Link:
    ends = checked.sequence(link.get("between"), f"{where}.between")
    if len(ends) != 2:
        raise BadGPUNode(f"{where}.between has {len(ends)} members: write the indexes of two cards")
    first, second = sorted(
        checked.needed(end, f"{where}.between[{position}]") for position, end in enumerate(ends)
    )
    if first == second:
        raise BadGPUNode(f"{where}.between names the card {first} twice: a link joins two cards")
    return Link(
        first=first,
        second=second,
        nvlinks=checked.number(
            link.get("nvlinks"), f"{where}.nvlinks", default=0, most=MOST_NVLINKS
        ),
        path=checked.choice(link.get("path"), f"{where}.path", names.LINK_PATHS) or "",
    )
