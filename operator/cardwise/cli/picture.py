"""One picture of the cluster's cards, as tables for people and as JSON for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from cardwise.cli.rendering import columns, print_line, text_of
from cardwise.cli.room import OK, CardRoom, NamespaceRoom, NodeRoom, sum_of
from cardwise.model import CardUse
from cardwise.wire.phrases import cards_text

Json = dict[str, Any]
Table = tuple[Sequence[str], list[Sequence[str]]]
"""Headers and rows."""

FEW_NODES = 8
"""Of so many nodes the cards are shown at once."""
_UUID_SHOWN = 12
_TENANTS_SHOWN = 3
_BY_NAMESPACE = ("NAMESPACE", "PODS", "WAITING", "CARDS", "MIB", "CORES", "SLOTS")
_BY_NODE = (
    *("NODE", "MODEL", "CARDS", "CLOSED", "EMPTY", "USED MIB", "FREE MIB", "ON ONE CARD"),
    *("CORES", "SLOTS", "TENANTS", "STATE"),
)
_BY_CARD = (
    *("NODE", "GPU", "UUID", "MODEL", "USED MIB", "FREE MIB", "CORES", "SLOTS"),
    *("STATE", "TENANTS"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be shown."""

    cards: bool | None = None
    """One line a card, or one a node; None: as many nodes as there are."""
    nodes: tuple[str, ...] = ()
    """Only these; empty: all. One that is named twice is shown once."""
    namespaces: bool = False
    counted: bool = False
    """Count what is used from the Pods, rather than take it as the controller wrote it."""
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What was seen, at one moment."""

    now: float
    """Unix seconds."""
    nodes: list[NodeRoom]
    namespaces: list[NamespaceRoom] | None
    notes: tuple[str, ...] = ()


def screen_of(picture: Picture, wish: Wish, height: int, trouble: str = "") -> Text:
    """One picture on a terminal of so many lines; what does not fit is counted below."""
    at = datetime.fromtimestamp(picture.now, UTC).strftime("%H:%M:%S UTC")
    lines = [f"{at}  {headline(picture)}", *([f"not read anew: {trouble}"] if trouble else [])]
    lines += [f"note: {note}" for note in picture.notes]
    headers, rows = table(picture, wish)
    room = max(1, height - len(lines) - 2)
    lines += columns(headers, rows[:room])
    if len(rows) > room:
        lines.append(f"… {len(rows) - room} lines more; a taller terminal, or --node NAME")
    screen = text_of("\n".join(lines))
    screen.no_wrap, screen.overflow = True, "ellipsis"
    return screen


def print_picture(picture: Picture, wish: Wish, console: Console) -> None:
    """Print a picture once."""
    headers, rows = table(picture, wish)
    lines = [headline(picture), *(columns(headers, rows) if rows else [])]
    lines += [f"note: {note}" for note in picture.notes]
    print_line("\n".join(lines), console)


def headline(picture: Picture) -> str:
    """What all nodes that are shown come to."""
    total = sum_of(picture.nodes)
    tenants = "tenant" if total.tenants == 1 else "tenants"
    nodes = "node" if total.nodes == 1 else "nodes"
    return (
        f"{total.nodes} {nodes}, {cards_text(total.cards)}"
        f" ({total.closed} closed, {total.empty} empty); "
        f"{total.used.memory_mib}/{total.memory_mib} MiB, {total.used.cores}/{total.cores} % cores "
        f"and {total.used.slots}/{total.slots} slots used by {total.tenants} {tenants}; "
        f"{total.free_mib} MiB free, {total.largest_free_mib} MiB on one card"
    )


def table(picture: Picture, wish: Wish) -> Table:
    """Headers and rows of what is wished for."""
    if picture.namespaces is not None:
        return _BY_NAMESPACE, [_namespace(each) for each in picture.namespaces]
    by_card = wish.cards
    if by_card is None:
        by_card = bool(wish.nodes) or len(picture.nodes) <= FEW_NODES
    if not by_card:
        return _BY_NODE, [_node(node) for node in picture.nodes]
    return _BY_CARD, [row for node in picture.nodes for row in _cards(node, wide=wish.wide)]


def _node(node: NodeRoom) -> Sequence[str]:
    total = sum_of([node])
    return (
        node.name,
        node.models or "-",
        str(total.cards),
        str(total.closed),
        str(total.empty),
        f"{total.used.memory_mib}/{total.memory_mib}",
        str(total.free_mib),
        str(total.largest_free_mib),
        f"{total.used.cores}/{total.cores}",
        f"{total.used.slots}/{total.slots}",
        str(total.tenants),
        node.state,
    )


def _cards(node: NodeRoom, *, wide: bool) -> list[Sequence[str]]:
    if not node.cards:
        return [(node.name, *["-"] * 7, node.state, "")]
    return [
        (node.name, *_card(card, wide=wide), _state(node, card), _tenants(card, wide=wide))
        for card in node.cards
    ]


def _card(card: CardRoom, *, wide: bool) -> Sequence[str]:
    long = len(card.uuid) > _UUID_SHOWN + 1 and not wide
    uuid = card.uuid[:_UUID_SHOWN] + "…" if long else card.uuid
    return (
        "-" if card.index is None else str(card.index),
        uuid,
        card.model or "-",
        f"{card.used.memory_mib}/{card.memory_mib}",
        str(card.free_mib),
        f"{card.used.cores}/{card.cores}",
        f"{card.used.slots}/{card.slots}",
    )


def _state(node: NodeRoom, card: CardRoom) -> str:
    """The card's own state; where that is fine, the node's."""
    return node.state if card.state == OK else card.state


def _tenants(card: CardRoom, *, wide: bool) -> str:
    shown = card.tenants if wide else card.tenants[:_TENANTS_SHOWN]
    more = len(card.tenants) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")


def _namespace(space: NamespaceRoom) -> Sequence[str]:
    numbers = (
        *(space.placed, space.waiting, space.cards),
        *(space.used.memory_mib, space.used.cores, space.used.slots),
    )
    return (space.name, *(str(number) for number in numbers))


def document_of(picture: Picture) -> Json:
    """The JSON object that ``-o json`` prints."""
    document: Json = {
        "totals": _sum_json(picture.nodes),
        "nodes": [
            {
                "node": node.name,
                "state": node.state,
                "totals": _sum_json([node]),
                "cards": [_card_json(card) for card in node.cards],
            }
            for node in picture.nodes
        ],
        "notes": list(picture.notes),
    }
    if picture.namespaces is not None:
        document["namespaces"] = [
            {
                "namespace": space.name,
                "pods": space.placed,
                "waiting": space.waiting,
                "cards": space.cards,
                "used": _use_json(space.used),
            }
            for space in picture.namespaces
        ]
    return document


def _sum_json(nodes: Sequence[NodeRoom]) -> Json:
    total = sum_of(nodes)
    return {
        "nodes": total.nodes,
        "cards": total.cards,
        "closed": total.closed,
        "empty": total.empty,
        "size": {"memoryMiB": total.memory_mib, "cores": total.cores, "slots": total.slots},
        "used": _use_json(total.used),
        "freeMiB": total.free_mib,
        "largestFreeMiB": total.largest_free_mib,
        "tenants": total.tenants,
    }


def _card_json(card: CardRoom) -> Json:
    return {
        "uuid": card.uuid,
        "index": card.index,
        "model": card.model,
        "state": card.state,
        "open": card.is_open,
        "size": {"memoryMiB": card.memory_mib, "cores": card.cores, "slots": card.slots},
        "used": _use_json(card.used),
        "freeMiB": card.free_mib,
        "tenants": list(card.tenants),
    }


def _use_json(use: CardUse) -> Json:
    return {"memoryMiB": use.memory_mib, "cores": use.cores, "slots": use.slots}
