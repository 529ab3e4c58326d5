"""An explanation as JSON for programs and as sentences and tables for people."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from cardwise.cli.explanation import Explanation, State
from cardwise.cli.helps import HELPS, NEVER_FITS
from cardwise.cli.placements import NODES_TOLD, Placement, shortened
from cardwise.cli.rendering import containers_json, nodes_json, print_line, print_rows
from cardwise.cli.said import Said
from cardwise.model import CardState, NodeView
from cardwise.names import BIND_PHASE, BIND_TIME, Reason
from cardwise.wire import pods
from cardwise.wire.account import allocated_message, ask_text, score_text
from cardwise.wire.allocation import encode
from cardwise.wire.fields import annotations_of
from cardwise.wire.phrases import terms_text

_NODES_OF_A_WORD = 5
_NODES_IN_FULL = 3
_FITS = "fits"

# For programs -------------------------------------------------------------------------------------


def document_of(found: Explanation, *, trace: bool = False) -> dict[str, Any]:
    """The JSON object that ``-o json`` prints: that of ``simulate``, and more."""
    today = found.today
    told = _told(found, today, trace=trace) if today is not None else None
    booking = found.booking
    decided = today.decision.booking if today is not None and today.decision else None
    names = found.request.containers if found.request else ()
    return {
        "pod": str(pods.pod_ref(found.pod)),
        "state": found.state.value,
        "door": found.door.value if found.door else None,
        "node": pods.placed_node(found.pod),
        "containers": containers_json(names, booking, _view(found, booking.node))
        if booking
        else [],
        "annotation": encode(booking.containers) if booking else None,
        "reason": found.reason,
        "message": found.message,
        "help": _helps(found),
        "warnings": list(today.warnings) if today is not None else [],
        "nodes": nodes_json(told) if told is not None else {},
        "today": None
        if today is None
        else {
            "node": today.node,
            "annotation": encode(decided.containers) if decided else None,
            "reason": today.reason,
        },
        "said": [
            {
                "reason": said.reason,
                "note": said.note,
                "secondsAgo": round(said.seconds),
                "count": said.count,
            }
            for said in found.said
        ],
        "sentences": list(found.sentences),
        "notes": list(found.notes),
    }


def _told(found: Explanation, today: Placement, *, trace: bool) -> Placement:
    """The nodes to tell of: few, unless all are asked for."""
    if trace or len(today.views) <= NODES_TOLD:
        return today
    node = pods.placed_node(found.pod)
    if node is None:
        return shortened(today)
    views = {name: view for name, view in today.views.items() if name in (node, today.node)}
    return replace(today, views=views)


def _view(found: Explanation, node: str) -> NodeView | None:
    return found.today.views.get(node) if found.today is not None else None


# For people ---------------------------------------------------------------------------------------


def print_explanation(found: Explanation, console: Console, *, trace: bool = False) -> None:
    """Print what became of the Pod, why, who said so, and how nodes and cards stand to it."""
    for line in _lines(found):
        print_line(line, console)
    if found.today is not None:
        _print_nodes(found, found.today, console)
        _print_cards(found, found.today, console, trace=trace)
    for note in found.notes:
        print_line(f"note: {note}", console)


def _lines(found: Explanation) -> Iterator[str]:
    yield _headline(found)
    if found.request is not None:
        if found.booking is not None:
            view = _view(found, found.booking.node)
            yield f"It has {allocated_message(found.request, found.booking, view)}"
        asked = ask_text(found.request.signature, found.request.containers)
        yield f"It asks for {asked} ({terms_text(found.request)})."
    yield from found.sentences
    if found.message:
        yield f"\n{found.reason}: {found.message}" if found.reason else f"\n{found.message}"
    if helps := _helps(found):
        yield f"What helps: {helps}."
    if found.today is not None:
        yield from (f"warning: {warning}" for warning in found.today.warnings)
    if found.said:
        yield "\nCardwise said:"
        yield from (f"  {_ago(said)}: {said.reason}: {said.note}" for said in found.said)


def _helps(found: Explanation) -> str | None:
    """What would have a Pod placed that waits; None where it does not, or nobody knows."""
    today = found.today
    if today is not None and today.never and found.reason == today.reason:
        return NEVER_FITS
    return HELPS.get(found.reason or "")


def _headline(found: Explanation) -> str:
    door = f" at the door {found.door}" if found.door else ""
    told = {
        State.NO_CARDS: "asks for no card: Cardwise has no part in where it goes",
        State.FINISHED: "has ended: it holds no card any more",
        State.LEFT_ALONE: "asks for cards, and Cardwise does not place it",
        State.WAITING: f"waits for its cards{door}",
        State.PLACED: f"{_there(found)} {pods.placed_node(found.pod)}{_since(found)}",
    }
    return f"Pod {pods.pod_ref(found.pod)} {told[found.state]}."


def _there(found: Explanation) -> str:
    return "is on" if pods.bound_node(found.pod) else "has its cards on"


def _since(found: Explanation) -> str:
    """When it got its cards, and how far it came with them."""
    written = annotations_of(found.pod)
    phase = written.get(BIND_PHASE, "")
    since = f" since {_moment(int(written[BIND_TIME]))}" if _is_time(written) else ""
    return since + (f" (handed over: {phase})" if phase else "")


def _is_time(written: Mapping[str, str]) -> bool:
    seconds = written.get(BIND_TIME, "")
    return seconds.isascii() and seconds.isdigit() and len(seconds) < 12


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _ago(said: Said) -> str:
    often = f", {said.count} times" if said.count > 1 else ""
    return f"{duration(said.seconds)} ago{often}"


def duration(seconds: float) -> str:
    """How long, as people say it: ``90 s``, ``12 min``, ``5 h``, ``3 d``."""
    for length, unit, upto in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172_800)):
        if seconds < upto:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"


def _print_nodes(found: Explanation, today: Placement, console: Console) -> None:
    """The nodes by their words, the leading one first."""
    by_word: dict[str, list[str]] = {}
    for name in sorted(today.views):
        by_word.setdefault(_word(today, name), []).append(name)
    rows = [
        (str(len(names)), word, _some(names))
        for word, names in sorted(
            by_word.items(), key=lambda item: (_row(today, item[0]), -len(item[1]), item[0])
        )
    ]
    if rows:
        console.print()
        print_rows(("NODES", "WORD", "NAMES"), rows, console)


def _word(today: Placement, name: str) -> str:
    return today.word(name) or _FITS


def _row(today: Placement, word: str) -> int:
    """In which order words are told: nodes without cards, however many, are no news."""
    if word == Reason.NODE_HAS_NO_CARDS:
        return 2
    return 0 if word in (today.reason, _FITS) else 1


def _some(names: list[str]) -> str:
    more = len(names) - _NODES_OF_A_WORD
    return ", ".join(names[:_NODES_OF_A_WORD]) + (f", … {more} more" if more > 0 else "")


def _print_cards(found: Explanation, today: Placement, console: Console, *, trace: bool) -> None:
    """Each card of some nodes: what the chain says of it today, and who is on it."""
    node = pods.placed_node(found.pod)
    if trace:
        names = sorted(today.views)
    elif node is not None or today.node is not None:
        placed = dict.fromkeys(name for name in (node, today.node) if name is not None)
        names = [name for name in placed if name in today.views]
    else:
        known = [name for name, view in today.views.items() if view.state.cards]
        known.sort(key=lambda name: (_row(today, _word(today, name)), name))
        names = known[:_NODES_IN_FULL]
    rows = [row for name in names for row in _card_rows(today, name)]
    if rows:
        console.print()
        headers = ("NODE", "NODE SCORE", "CARD", "SCORE", "VERDICT", "FREE", "TENANTS")
        print_rows(headers, rows, console)


def _card_rows(today: Placement, name: str) -> Iterator[tuple[str, ...]]:
    view, outcome = today.views[name], today.outcome(name)
    yield (name, score_text(view.score), "", "", _word(today, name), "", "")
    verdicts = {verdict.index: verdict for verdict in (outcome.cards if outcome else ())}
    for card, uuid, tenants in zip(view.state.cards, view.uuids, view.tenants, strict=True):
        verdict = verdicts.get(card.index)
        yield (
            "",
            "",
            f"GPU {card.index} ({uuid})",
            score_text(verdict.score) if verdict else "",
            (verdict.reason.value if verdict.reason else "kept") if verdict else "",
            free_text(card),
            ", ".join(tenants)
            + (" (exclusive)" if card.exclusive else "")
            + (" (over-booked)" if card.is_overbooked else ""),
        )


def free_text(card: CardState) -> str:
    """What is left of a card."""
    return (
        f"{max(0, card.memory_mib - card.used_memory_mib)} MiB, "
        f"{max(0, card.cores - card.used_cores)} % cores, "
        f"{max(0, card.slots - card.used_slots)} slots"
    )
