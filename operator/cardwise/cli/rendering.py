"""A simulation as JSON for programs and as tables for people.

Separate from the simulation, whose answer does not depend on who reads it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from cardwise.cli.placements import Placement, Simulation
from cardwise.model import Booking, NodeView
from cardwise.wire.account import score_text
from cardwise.wire.allocation import encode

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""All but the line's end, which divides a cell."""
_PIPE_WIDTH = 1000
"""A pipe has no width: wide enough that no line is broken there."""


# For programs -------------------------------------------------------------------------------------


def document_of(simulation: Simulation) -> dict[str, Any]:
    """The JSON object that ``-o json`` prints."""
    return {"pods": [_pod(placement) for placement in simulation.placements]}


def _pod(placement: Placement) -> dict[str, Any]:
    booking = placement.decision.booking if placement.decision else None
    return {
        "pod": str(placement.pod),
        "node": placement.node,
        "containers": containers_json(
            placement.decision.request.containers if placement.decision else (),
            booking,
            placement.views.get(booking.node),
        )
        if booking
        else [],
        "annotation": encode(booking.containers) if booking else None,
        "reason": placement.reason,
        "message": placement.message,
        "warnings": list(placement.warnings),
        "nodes": nodes_json(placement),
    }


def nodes_json(placement: Placement) -> dict[str, Any]:
    """What became of the nodes that a placement tells of, by name."""
    return {name: _node(placement, name) for name in sorted(placement.views)}


def containers_json(
    names: Sequence[str], booking: Booking, view: NodeView | None
) -> list[dict[str, Any]]:
    """The cards of each container; one whose name is not known is null."""
    indexes = _indexes(view)
    return [
        {
            "name": names[number] if number < len(names) else None,
            "cards": [
                {
                    "uuid": share.uuid,
                    "index": indexes.get(share.uuid),
                    "memoryMiB": share.memory_mib,
                    "cores": share.cores,
                }
                for share in shares
            ],
        }
        for number, shares in enumerate(booking.containers)
    ]


def _node(placement: Placement, name: str) -> dict[str, Any]:
    view, outcome = placement.views[name], placement.outcome(name)
    uuids = {index: uuid for uuid, index in _indexes(view).items()}
    return {
        "fits": outcome is not None and outcome.fits,
        "score": score_text(view.score),
        "reason": placement.word(name),
        "cards": [
            {
                "uuid": uuids.get(verdict.index),
                "index": verdict.index,
                "score": score_text(verdict.score),
                "reason": verdict.reason,
            }
            for verdict in (outcome.cards if outcome else ())
        ],
    }


def _indexes(view: NodeView | None) -> dict[str, int]:
    if view is None:
        return {}
    return {uuid: card.index for uuid, card in zip(view.uuids, view.state.cards, strict=True)}


# For people ---------------------------------------------------------------------------------------


def print_tables(simulation: Simulation, console: Console, *, trace: bool) -> None:
    """Print where each Pod goes; why the others wait; with ``trace`` every card's score."""
    if not simulation.placements:
        console.print(Text("No Pod asks for a card."))
        return
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = _table("POD", "NODE", "CARDS", "MEMORY", "REASON")
    for placement in simulation.placements:
        table.add_row(*_texts(_row(placement)))
    _print(console, table)
    for placement in simulation.placements:
        for sentence in _sentences(placement):
            _print(console, text_of(f"\n{placement.pod}: {sentence}"))
    for placement in simulation.placements if trace else ():
        _print_trace(placement, console)


def print_rows(headers: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """Print a table of texts."""
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = _table(*headers)
    for row in rows:
        table.add_row(*_texts(row))
    _print(console, table)


def print_line(line: str, console: Console) -> None:
    """Print a sentence, unbroken: a terminal folds it, a pipe has it in one line."""
    _print(console, text_of(line))


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of texts as lines that are never folded: of thousands of rows, too, at once."""
    lines = [headers, *([text_of(cell).plain.replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _sentences(placement: Placement) -> list[str]:
    told = [placement.message] if placement.message else []
    return told + [f"warning: {warning}" for warning in placement.warnings]


def _row(placement: Placement) -> Sequence[str]:
    booking = placement.decision.booking if placement.decision else None
    if booking is None:
        return (str(placement.pod), "-", "-", "-", placement.reason or "")
    indexes = _indexes(placement.views.get(booking.node))
    names = placement.decision.request.containers if placement.decision else ()
    several = sum(1 for shares in booking.containers if shares) > 1
    cards, memory = [], []
    for name, shares in zip(names, booking.containers, strict=True):
        for share in shares:
            which = f"GPU {indexes.get(share.uuid)} ({share.uuid})"
            cards.append(f"{name}: {which}" if several else which)
            cores = f", {share.cores} % cores" if share.cores else ""
            memory.append(f"{share.memory_mib} MiB{cores}")
    return (str(placement.pod), booking.node, "\n".join(cards), "\n".join(memory), "")


def _print_trace(placement: Placement, console: Console) -> None:
    """One table a Pod: each node's score and word, each card's score and verdict."""
    if placement.decision is None:
        return
    chosen = f" goes to {placement.node}" if placement.node else " fits on no node"
    table = _table("NODE", "NODE SCORE", "CARD", "SCORE", "VERDICT")
    for name in sorted(placement.views):
        for row in _trace_rows(_node(placement, name), name):
            table.add_row(*_texts(row))
    _print(console, text_of(f"\n{placement.pod}{chosen}"))
    _print(console, table)


def _trace_rows(node: Mapping[str, Any], name: str) -> Iterable[Sequence[str]]:
    word = "fits" if node["fits"] else str(node["reason"])
    yield (name, node["score"], "", "", word)
    for card in node["cards"]:
        verdict = card["reason"] or "kept"
        yield ("", "", f"GPU {card['index']} ({card['uuid']})", card["score"], verdict)


def _table(*headers: str) -> Table:
    """A table whose cells are folded where a terminal is narrow: half a UUID helps nobody."""
    columns = [Column(header, overflow="fold") for header in headers]
    return Table(*columns, box=None, pad_edge=False)


def _texts(row: Iterable[str]) -> list[Text]:
    """Cells as they are: a name may hold what rich would take for a style."""
    return [text_of(cell) for cell in row]


def text_of(told: str) -> Text:
    """A text of which a terminal obeys nothing: a file may hold any control character."""
    return Text(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", told))


def _print(console: Console, what: Table | Text) -> None:
    console.print(what, soft_wrap=isinstance(what, Text))
