"""The oracle: a slow, obviously right reading of the rules of placement (docs/placement.md).

It tries every set of cards, computes in exact fractions and imports nothing of Cardwise, so that
the engine can be held against it. Each function names the section of that page that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from oracle_cards import (
    Case,
    asked_booking,
    card_score,
    namespace_use,
    node_score,
    refusal,
    score_text,
    tenants_use,
    together,
)
from oracle_choice import choose
from oracle_reading import (
    WHOLE,
    Booking,
    Card,
    InvalidRequestError,
    Json,
    Node,
    Request,
    Tenant,
    is_tenant,
    kinds,
    node_of,
    nodes_of,
    quota_bounds,
    request_of,
    same_pod,
    tenant_of,
)

TABLE = (
    "CardNotHealth",
    "CardCordoned",
    "CardTypeMismatch",
    "CardUuidMismatch",
    "CardTimeSlicingExhausted",
    "ResourceQuotaNotFit",
    "CardInsufficientMemory",
    "CardInsufficientCore",
    "ExclusiveDeviceAllocateConflict",
    "CardComputeUnitsExhausted",
    "CardTopologyNotSatisfied",
    "NumaNotFit",
    "NodeInsufficientDevice",
    "NodeNotReported",
    "NodeHasNoCards",
    "NodeHasUnreadableAllocation",
    "NodeRejectsPods",
)
"""Section 3's table, each word at its (last) row."""
EARLY = TABLE[:4]
"""The words of checks 1-4."""
FAINT = (*EARLY, "NodeHasNoCards", "NodeNotReported", "NodeInsufficientDevice")
"""Over the nodes, these count only if there are no others (section 3); of them, that a node has no
cards is the last."""
INVALID = "InvalidGPURequest"

__all__ = ["place", "score_text", "violations"]


# Reasons (section 3)


def most_frequent(words: Iterable[str]) -> str:
    """The most frequent word; at a tie the later in the table."""
    counts = Counter(words)
    return max(counts, key=lambda word: (counts[word], TABLE.index(word)))


def node_reason(refusals: Sequence[str | None]) -> str:
    """The node's leading reason from the word of each card (None: the card passed).

    Where all that passed checks 1-4 passed the others too, but are too few, all words count.
    """
    words = [word for word in refusals if word is not None]
    later = [word for word in words if word not in EARLY]
    return most_frequent(later or words)


def pod_reason(words: Sequence[str]) -> str | None:
    """The Pod's leading reason over the nodes; none where there is no node."""
    with_cards = [word for word in words if word != "NodeHasNoCards"]
    strong = [word for word in with_cards if word not in FAINT]
    return most_frequent(strong or with_cards or words) if words else None


def node_word(request: Request, node: Node, tenants: Iterable[Tenant]) -> str | None:
    """The node-level words, in their order; None where the cards decide."""
    if not node.reported:
        return "NodeNotReported" if node.offers else "NodeHasNoCards"
    if any(not tenant.readable for tenant in tenants):
        return "NodeHasUnreadableAllocation"
    if any(container.count > len(node.cards) for container in request.containers):
        return "NodeInsufficientDevice"
    return None


# One node


@dataclass(frozen=True)
class Answer:
    """What one node says."""

    score: int
    reason: str | None
    cards: list[Json]
    bookings: tuple[Booking, ...]


def card_report(case: Case, reasons: Mapping[str, str | None]) -> list[Json]:
    """One line a card, by index."""
    return [
        {
            "uuid": card.uuid,
            "index": card.index,
            "score": card_score(case, card),
            "reason": reasons[card.uuid],
        }
        for card in case.node.cards
    ]


def ask_node(
    request: Request,
    node: Node,
    tenants: tuple[Tenant, ...],
    bounds: Mapping[str, Fraction],
    others: Mapping[str, int],
) -> Answer:
    """Section 7: container after container, each seeing what the earlier ones took."""
    score, word = node_score(node, tenants), node_word(request, node, tenants)
    if word:
        return Answer(score, word, [], ())
    first: list[Json] = []
    own: tuple[Booking, ...] = ()
    for container in request.containers:
        if container.count == 0:
            continue
        case = Case(request, container, node, tenants, own, bounds, others)
        reasons = {card.uuid: refusal(case, card) for card in node.cards}
        passed = [card for card in node.cards if reasons[card.uuid] is None]
        chosen, word = choose(case, passed)
        if chosen is None:
            reasons = {uuid: reason or word for uuid, reason in reasons.items()}
            leading = node_reason(list(reasons.values()))
            return Answer(score, leading, card_report(case, reasons), ())
        first = first or card_report(case, reasons)
        own += tuple(asked_booking(case, card) for card in chosen)
    return Answer(score, None, first, own)


# The Pod


def by_container(pod: Json, bookings: Sequence[Booking]) -> list[list[Booking]]:
    """The cards of every container, in the order of the allocation text."""
    positions = range(len(kinds(pod)))
    return [[b for b in bookings if b.position == position] for position in positions]


def allocation_text(containers: Iterable[Iterable[Booking]]) -> str:
    """``UUID,NVIDIA,MiB,cores:`` per card, ``;`` after each container."""
    return "".join(
        "".join(f"{b.uuid},NVIDIA,{b.memory},{b.cores}:" for b in container) + ";"
        for container in containers
    )


def best_node(request: Request, fitting: Mapping[str, int]) -> str:
    """Section 4: binpack the highest score, spread the lowest; tie: the smaller name."""
    sign = 1 if request.node_policy == "spread" else -1
    return min(fitting, key=lambda name: (sign * fitting[name], name))


def nothing(asks: bool, reason: str | None, nodes: Json) -> dict[str, Any]:
    """The result of a Pod that is not placed."""
    return {
        "asks": asks,
        "node": None,
        "reason": reason,
        "annotation": None,
        "containers": [],
        "nodes": nodes,
    }


def node_report(answer: Answer) -> Json:
    """One node in the result."""
    return {
        "fits": answer.reason is None,
        "score": answer.score,
        "reason": answer.reason,
        "cards": answer.cards,
    }


def place(
    pod: Json,
    gpunodes: Iterable[Json],
    pods: Iterable[Json] = (),
    quotas: Iterable[Json] = (),
    nodes: Iterable[Json] = (),
    settings: Json | None = None,
) -> dict[str, Any]:
    """Where the Pod goes and with which cards; or why not. What every node and card says."""
    candidates = nodes_of(gpunodes, nodes)
    tenants = [tenant_of(other) for other in pods if is_tenant(other) and not same_pod(pod, other)]
    here = {n.name: tuple(t for t in tenants if t.node == n.name) for n in candidates}
    try:
        request = request_of(pod, settings or {})
    except InvalidRequestError:
        scores = {node.name: node_score(node, here[node.name]) for node in candidates}
        refused = {name: node_report(Answer(s, INVALID, [], ())) for name, s in scores.items()}
        return nothing(True, INVALID, refused)
    if request is None:
        return nothing(False, None, {})
    bounds = quota_bounds(quotas, request.namespace)
    others = namespace_use(request.namespace, tenants, candidates)
    answers = {n.name: ask_node(request, n, here[n.name], bounds, others) for n in candidates}
    reports = {name: node_report(answer) for name, answer in answers.items()}
    fitting = {name: answer.score for name, answer in answers.items() if answer.reason is None}
    if not fitting:
        return nothing(True, pod_reason([a.reason for a in answers.values() if a.reason]), reports)
    name = best_node(request, fitting)
    indexes = {card["uuid"]: card["index"] for card in answers[name].cards}
    containers = by_container(pod, answers[name].bookings)
    listed = [
        [
            {"uuid": b.uuid, "index": indexes[b.uuid], "memoryMiB": b.memory, "cores": b.cores}
            for b in container
        ]
        for container in containers
    ]
    return {
        "asks": True,
        "node": name,
        "reason": None,
        "annotation": allocation_text(containers),
        "containers": listed,
        "nodes": reports,
    }


# What none may do (section 9)


def repeated_cards(tenant: Tenant) -> list[str]:
    """Section 1: each card of a container is a different physical card."""
    counts = Counter((booking.position, booking.uuid) for booking in tenant.bookings)
    return [
        f"{tenant.node}: {tenant.name} has {uuid} {times} times in container {position}"
        for (position, uuid), times in sorted(counts.items())
        if times > 1
    ]


def unknown_cards(tenant: Tenant, cards: Sequence[Card]) -> list[str]:
    """A card that the node does not report."""
    missing = {b.uuid for b in tenant.bookings} - {card.uuid for card in cards}
    return [f"{tenant.node}: {tenant.name} has {uuid}, unknown there" for uuid in sorted(missing)]


def over_booked(node: str, tenants: Iterable[Tenant], card: Card) -> list[str]:
    """Section 9: no MiB, core or slot of a card twice."""
    use = tenants_use(tenants, card)
    amounts = (
        ("slots", use.slots, card.slots),
        ("memory", use.memory, card.memory),
        ("cores", use.cores, card.cores),
    )
    return [
        f"{node}: {card.uuid} gives {taken} of {has} {what}"
        for what, taken, has in amounts
        if taken > has
    ]


def badly_shared(node: str, tenants: Sequence[Tenant], card: Card) -> list[str]:
    """Check 9 and 10, whatever the order of arrival: exclusive Pods and whole cores stand alone."""
    found = []
    here = [t for t in tenants if any(b.uuid == card.uuid for b in t.bookings)]
    for tenant in here:
        mine = [booking for booking in tenant.bookings if booking.uuid == card.uuid]
        whole = any(booking.cores >= WHOLE for booking in mine)
        if tenant.exclusive and len(here) > 1:
            found.append(f"{node}: {tenant.name} is exclusive on {card.uuid}, and not alone there")
        if whole and len(here) > 1:
            found.append(f"{node}: {tenant.name} has all cores of {card.uuid}, and is not alone")
        if any(
            len({b.position for b in group}) > 1 and any(b.cores >= WHOLE for b in group)
            for group in together(mine)
        ):
            found.append(f"{node}: a container of {tenant.name} shares all cores of {card.uuid}")
    return found


def violations(gpunodes: Iterable[Json], pods: Iterable[Json]) -> list[str]:
    """Everything illegal about a set of bound Pods, in a fixed order; mutex is no part of it."""
    reports = {report["metadata"]["name"]: report for report in gpunodes}
    tenants = sorted(map(tenant_of, filter(is_tenant, pods)), key=lambda t: (t.node, t.name))
    found: list[str] = []
    for name in sorted({*reports, *(tenant.node for tenant in tenants)}):
        cards = node_of(name, reports.get(name), None).cards
        here = [tenant for tenant in tenants if tenant.node == name]
        for tenant in here:
            if not tenant.readable:
                found.append(f"{name}: the allocation of {tenant.name} cannot be read")
            found += unknown_cards(tenant, cards) + repeated_cards(tenant)
        for card in cards:
            found += over_booked(name, here, card) + badly_shared(name, here, card)
    return found
