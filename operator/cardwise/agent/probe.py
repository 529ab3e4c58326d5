"""Readings → what the node reports (``crds/gpunodes.yaml``).

Separate from the loop that publishes, because everything a person may wonder about ("why does it
offer 23040 MiB?") is decided here, and here is no clock and no cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from cardwise import names
from cardwise.model import WHOLE_CORES, Card, Condition, GPUNode, Link, NodeOverrides
from cardwise.ports import CardReading, Readings
from cardwise.quantity import LARGEST
from cardwise.settings import Agent

_VENDOR = "NVIDIA"
_MEMORY_UNKNOWN = "the driver can't tell its memory: set spec.memoryMiB of this GPUNode"
_LONGEST = 1024
"""Characters of a sentence in the status: the schema's bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an agent has to say: the node, still without a time, and what stands beside it."""

    node: GPUNode
    driver_version: str = ""
    conditions: tuple[Condition, ...] = ()
    oversold: bool = False
    """Whether it offers more memory than its cards have."""


def probe(name: str, readings: Readings, agent: Agent, overrides: NodeOverrides) -> Report:
    """What this machine offers: an administrator's override goes before the agent's setting.

    Memory and cores are rounded down. A card whose size nobody knows is reported, and closed.
    """
    cards = tuple(
        _card(reading, agent, overrides)
        for reading in sorted(readings.cards, key=lambda reading: reading.index)
    )
    links = None if readings.links is None else _links(readings.links, cards)
    return Report(
        node=GPUNode(name=name, cards=cards, links=links),
        driver_version=readings.driver_version,
        conditions=(
            _ready(cards, readings.troubles),
            _topology(links, readings.doubts),
            *_memory_unknown(name, cards),
        ),
        oversold=(overrides.memory_scaling or agent.memoryScaling) > 1,
    )


def failed(name: str, why: str) -> Report:
    """What to report while the driver's library is there and fails: no card is offered."""
    return Report(
        node=GPUNode(name=name),
        conditions=(
            Condition(
                type=names.CONDITION_READY, holds=False, reason="DriverFailed", message=_cut(why)
            ),
            Condition(
                type=names.CONDITION_TOPOLOGY,
                holds=False,
                reason="DriverFailed",
                message="nothing could be read from the driver",
            ),
        ),
    )


def dated(
    conditions: tuple[Condition, ...], before: tuple[Condition, ...], now: str
) -> tuple[Condition, ...]:
    """Each condition with the time when it last changed its mind."""
    since = {(condition.type, condition.holds): condition.since for condition in before}
    return tuple(
        replace(condition, since=since.get((condition.type, condition.holds)) or now)
        for condition in conditions
    )


def told(report: Report, before: Report | None) -> str:
    """One line about a new report: what it says, and what is new in it."""
    node = report.node
    healthy = sum(card.healthy for card in node.cards)
    line = f"GPUNode {node.name} published: {len(node.cards)} cards, {healthy} healthy"
    for condition in report.conditions:
        line += f"; {condition.type}={condition.holds} ({condition.reason}: {condition.message})"
    if before is None:
        return f"{line}; the first since the start"
    was = {card.uuid: card for card in before.node.cards}
    changed = [f"card {card.index}" for card in node.cards if was.pop(card.uuid, None) != card]
    gone = [f"card {card.index} gone" for card in was.values()]
    links = ["links"] if node.links != before.node.links else []
    return f"{line}; changed: {', '.join([*changed, *gone, *links]) or 'conditions'}"


def _card(reading: CardReading, agent: Agent, overrides: NodeOverrides) -> Card:
    mode = overrides.mode or reading.mode or names.MODE_DEFAULT
    if reading.mig:
        mode = names.MODE_MIG
    known = overrides.memory_mib if reading.memory_mib is None else reading.memory_mib
    trouble = reading.trouble or (_MEMORY_UNKNOWN if known is None else "")
    memory = known or 0
    cores = WHOLE_CORES
    # A card in MIG mode is what its slices are: to oversell it has no meaning.
    if mode != names.MODE_MIG:
        memory = _scaled(memory, overrides.memory_scaling, agent.memoryScaling)
        cores = _scaled(cores, overrides.core_scaling, agent.coreScaling)
        if overrides.core_scaling is None and reading.cores is not None:
            cores = reading.cores
    slots = agent.slotsPerCard if reading.slots is None else reading.slots
    return Card(
        uuid=reading.uuid,
        index=reading.index,
        model=_model(reading.name),
        memory_mib=memory,
        cores=cores,
        slots=slots if overrides.slots_per_card is None else overrides.slots_per_card,
        numa=reading.numa,
        mode=mode,
        healthy=not trouble,
        unhealthy_reason=_cut(trouble),
        pci_bus_id=reading.pci_bus_id,
    )


def _scaled(whole: int, override: float | None, setting: float) -> int:
    """``whole`` times the factor as it is written, rounded down.

    The text of a float is what a person wrote: 1.15 times 15360 is 17664, not a hair less.
    """
    factor = Fraction(str(setting if override is None else override))
    return min(int(whole * factor), LARGEST)


def _model(name: str) -> str:
    return name if not name or name.startswith(_VENDOR) else f"{_VENDOR}-{name}"


def _links(links: Iterable[Link], cards: Iterable[Card]) -> tuple[Link, ...]:
    """Those between reported cards, sorted: a link to a card that is not there joins nothing."""
    indexes = {card.index for card in cards}
    return tuple(
        sorted(
            (link for link in links if {link.first, link.second} <= indexes),
            key=lambda link: (link.first, link.second),
        )
    )


def _ready(cards: tuple[Card, ...], troubles: tuple[str, ...]) -> Condition:
    closed = [f"card {card.index}: {card.unhealthy_reason}" for card in cards if not card.healthy]
    if cards:
        said = f"{len(cards) - len(closed)} of {len(cards)} cards can be used"
        reason = "CardsUnhealthy" if closed or troubles else "CardsReported"
    else:
        said = "the driver lists no card"
        reason = "NoCards"
    return Condition(
        type=names.CONDITION_READY,
        holds=bool(cards),
        reason=reason,
        message=_cut("; ".join([said, *closed, *troubles])),
    )


def _memory_unknown(name: str, cards: tuple[Card, ...]) -> tuple[Condition, ...]:
    """A condition of its own while it holds: the cure is one command, and nobody would guess it."""
    silent = [f"card {card.index}" for card in cards if card.unhealthy_reason == _MEMORY_UNKNOWN]
    if not silent:
        return ()
    return (
        Condition(
            type=names.CONDITION_MEMORY_UNKNOWN,
            holds=True,
            reason="DriverDoesNotTell",
            message=_cut(
                f"{', '.join(silent)}: set the MiB of a card, e.g."
                f" kubectl patch {names.GPUNODE_KIND} {name} --type=merge"
                ' -p \'{"spec": {"memoryMiB": 131072}}\''
            ),
        ),
    )


def _topology(links: tuple[Link, ...] | None, doubts: tuple[str, ...]) -> Condition:
    if links is None:
        return Condition(
            type=names.CONDITION_TOPOLOGY,
            holds=False,
            reason="NoLinkData",
            message="the driver does not tell how the cards are joined",
        )
    joined = sum(link.nvlinks > 0 for link in links)
    return Condition(
        type=names.CONDITION_TOPOLOGY,
        holds=True,
        reason="LinksDoubtful" if doubts else "LinksReported",
        message=_cut("; ".join([f"{joined} of {len(links)} pairs are joined by NVLink", *doubts])),
    )


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST - 1]}…"
