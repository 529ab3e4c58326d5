"""What is wrong with a node's cards, though no Pod is refused for it: told beside the answer.

In the words of the controller, which tells the same by events and conditions.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cardwise.ledger import Ledger
from cardwise.ledger.nodes import NodeAccount
from cardwise.model import NodeView
from cardwise.names import CONTROLLER_CONDITIONS, EventReason, NodeEvent
from cardwise.wire.cordons import trouble_of
from cardwise.wire.fields import at, items, text
from cardwise.wire.gpunodes import conditions_of
from cardwise.wire.phrases import beyond_size

Json = dict[str, Any]
_TENANTS_TOLD = 4
_TOLD = 4
"""Sentences of one kind, or nodes in one sentence: a note must not bury the answer."""


def of_cards(ledger: Ledger, name: str, misspelt: str) -> list[str]:
    """Sentences on a node's cordons that close no card, and on its over-booked cards.

    Args:
        ledger: of one that it does not know nothing is said.
        name: the node's.
        misspelt: an annotation of its Node that is nearly the one that closes cards; "": none.
    """
    account = ledger.account(name)
    if account is None:
        return []
    return [*_stray_cordons(account, misspelt), *_overbooked(ledger.view(name))]


def by_condition(gpunodes: Iterable[Json], names: Collection[str]) -> list[str]:
    """A sentence on each thing that the controller says is wrong with one of some nodes."""
    told = [
        f"node {name}: {condition.type}: {condition.message}"
        for document in gpunodes
        if (name := text(at(document, "metadata", "name"))) in names
        for condition in conditions_of(document)
        if condition.holds and condition.type in CONTROLLER_CONDITIONS
    ]
    return some(told, "status.conditions of the GPUNodes has the rest")


def unwritten(gpunodes: Iterable[Json], names: Collection[str]) -> list[str]:
    """A sentence on nodes of which the controller has not written what is used of their cards."""
    silent = sorted(
        name
        for document in gpunodes
        if (name := text(at(document, "metadata", "name"))) in names
        if items(at(document, "status", "cards")) and not items(at(document, "status", "usage"))
    )
    if not silent:
        return []
    more = f" and {len(silent) - _TOLD} more" if len(silent) > _TOLD else ""
    return [
        f"the controller has not written what is used on {', '.join(silent[:_TOLD])}{more}:"
        " --pods counts it"
    ]


def some(sentences: Sequence[str], rest: str) -> list[str]:
    """The first few of many sentences, and where the others stand."""
    more = len(sentences) - _TOLD
    return [*sentences[:_TOLD], *([f"{more} more like these: {rest}"] if more > 0 else [])]


def _stray_cordons(account: NodeAccount, misspelt: str) -> list[str]:
    """A sentence on what of a node's cordons closes no card, if anything."""
    uuids = [card.uuid for card in account.cards()]
    if account.report is None or not uuids:
        return []  # of a node that reports no card nothing can be said
    told = trouble_of(
        uuids,
        by_spec=account.report.cordoned,
        by_annotation=account.cordoned,
        misspelt=misspelt,
    )
    return [f"{NodeEvent.CORDON_STRAY}: {told}"] if told else []


def _overbooked(view: NodeView) -> list[str]:
    """A sentence on each over-booked card of a node, with who holds it."""
    cards = zip(view.uuids, view.state.cards, view.tenants, strict=True)
    return [
        f"{EventReason.CARD_OVERBOOKED}: {beyond_size(uuid, card)}; {_held_by(tenants)}"
        for uuid, card, tenants in cards
        if card.is_overbooked
    ]


def _held_by(tenants: tuple[str, ...]) -> str:
    more = len(tenants) - _TENANTS_TOLD
    named = ", ".join(tenants[:_TENANTS_TOLD])
    return f"it is held by {named}" + (f" and {more} more" if more > 0 else "")
