"""What the oracle knows of one card: its use, its checks, the quota and its score.

Sections 1, 3, 4, 7 and 8 of docs/placement.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from oracle_reading import WHOLE, Booking, Card, Container, Node, Request, Tenant


@dataclass(frozen=True)
class Case:
    """One container asking one node: all that the checks of section 3 look at."""

    request: Request
    container: Container
    node: Node
    tenants: tuple[Tenant, ...]
    """The other Pods on this node."""
    own: tuple[Booking, ...]
    """What this Pod's earlier containers took, whatever their kind."""
    bounds: Mapping[str, Fraction]
    namespace_use: Mapping[str, int]


@dataclass(frozen=True)
class Use:
    """What is taken of one card."""

    slots: int
    memory: int
    cores: int


# Use of a card (section 7)


def counted_cores(booking: Booking, card: Card) -> int:
    """Section 1: a booking of 100 counts as all the cores the card has."""
    return card.cores if booking.cores >= WHOLE else booking.cores


def together(bookings: Sequence[Booking]) -> list[list[Booking]]:
    """Section 7: the groups of containers that run at the same time."""
    sidecars = [booking for booking in bookings if booking.kind == "sidecar"]
    regular = [booking for booking in bookings if booking.kind == "regular"]
    groups = [sidecars + regular]
    for position in sorted({b.position for b in bookings if b.kind == "init"}):
        alone = [booking for booking in bookings if booking.position == position]
        groups.append(alone + [sidecar for sidecar in sidecars if sidecar.position < position])
    return groups


def peak(bookings: Sequence[Booking], amount: Callable[[Booking], int]) -> int:
    """Section 7: the most that any group takes."""
    return max(sum(map(amount, group)) for group in together(bookings))


def pod_use(bookings: Iterable[Booking], card: Card) -> Use:
    """Section 7: a Pod's use of one card, to the Pod's end."""
    here = [booking for booking in bookings if booking.uuid == card.uuid]
    lasting = {booking.position for booking in here if booking.kind != "init"}
    return Use(
        slots=max(1 if here else 0, len(lasting)),
        memory=peak(here, lambda booking: booking.memory),
        cores=peak(here, lambda booking: counted_cores(booking, card)),
    )


def total(uses: Iterable[Use]) -> Use:
    """The sum of several uses."""
    listed = list(uses)
    return Use(
        sum(use.slots for use in listed),
        sum(use.memory for use in listed),
        sum(use.cores for use in listed),
    )


def tenants_use(tenants: Iterable[Tenant], card: Card) -> Use:
    """What bound Pods take of a card."""
    return total(pod_use(tenant.bookings, card) for tenant in tenants)


def seen(container: Container, own: Iterable[Booking]) -> list[Booking]:
    """Section 7: the earlier containers of its own Pod that a container runs beside."""
    beside = ("sidecar", "regular") if container.kind == "regular" else ("sidecar",)
    return [booking for booking in own if booking.kind in beside]


def used(case: Case, card: Card) -> Use:
    """What is taken of a card in the eyes of this container."""
    own = pod_use(seen(case.container, case.own), card)
    return total([tenants_use(case.tenants, card), own])


# Quota (section 8)


def quota_use(
    bookings: Iterable[Booking], exclusive: bool, cards: Mapping[str, Card]
) -> dict[str, int]:
    """Section 8: what one Pod counts; an exclusive one counts each of its cards whole, once."""
    use = {"memory": 0, "cores": 0}
    listed = list(bookings)
    for uuid in sorted({booking.uuid for booking in listed}):
        here = [booking for booking in listed if booking.uuid == uuid]
        if exclusive and uuid in cards:
            use["memory"] += cards[uuid].memory
            use["cores"] += cards[uuid].cores
        else:
            use["memory"] += peak(here, lambda booking: booking.memory)
            use["cores"] += peak(here, lambda booking: min(booking.cores, WHOLE))
    return use


def namespace_use(
    namespace: str, tenants: Iterable[Tenant], nodes: Iterable[Node]
) -> dict[str, int]:
    """Section 8: the sum over the namespace's bound Pods, on whatever node."""
    cards = {node.name: {card.uuid: card for card in node.cards} for node in nodes}
    uses = [
        quota_use(tenant.bookings, tenant.exclusive, cards.get(tenant.node, {}))
        for tenant in tenants
        if tenant.namespace == namespace
    ]
    return {what: sum(use[what] for use in uses) for what in ("memory", "cores")}


# What is asked of a card (section 1)


def asked_memory(case: Case, card: Card) -> int:
    """Section 1: MiB, else the percentage, else the default, else the whole card."""
    container = case.container
    if container.memory:
        return container.memory
    if container.percentage:
        return floor(Fraction(card.memory * container.percentage, 100))
    return case.request.default_memory or card.memory


def asked_booking(case: Case, card: Card) -> Booking:
    """What this container would book on this card."""
    container, memory = case.container, asked_memory(case, card)
    return Booking(container.position, container.kind, card.uuid, memory, container.cores)


# The checks (section 3), each true where the card is refused


def unhealthy(_case: Case, card: Card) -> bool:
    """Check 1."""
    return not card.healthy


def cordoned(case: Case, card: Card) -> bool:
    """Check 2."""
    return card.uuid in case.node.cordoned


def wrong_type(case: Case, card: Card) -> bool:
    """Check 3."""
    request, model = case.request, card.model.lower()
    wanted = not request.use_types or any(word.lower() in model for word in request.use_types)
    unwanted = any(word.lower() in model for word in request.avoid_types)
    wrong_mode = bool(request.modes) and card.mode not in request.modes
    return not wanted or unwanted or wrong_mode or card.mode == "mig"


def wrong_uuid(case: Case, card: Card) -> bool:
    """Check 4: nouse wins over use."""
    request = case.request
    wanted = not request.use_uuids or card.uuid in request.use_uuids
    return not wanted or card.uuid in request.avoid_uuids


def no_slot(case: Case, card: Card) -> bool:
    """Check 5."""
    return used(case, card).slots >= card.slots


def mutex(case: Case, card: Card) -> bool:
    """Check 6."""
    return "mutex" in case.request.chain and used(case, card).slots > 0


def over_quota(case: Case, card: Card) -> bool:
    """Check 6b: section 8."""
    exclusive = case.request.exclusive
    cards = {card.uuid: card for card in case.node.cards}
    before = quota_use(case.own, exclusive, cards)
    after = quota_use([*case.own, asked_booking(case, card)], exclusive, cards)
    return any(
        case.namespace_use[what]
        + before[what]
        + case.container.count * (after[what] - before[what])
        > bound
        for what, bound in case.bounds.items()
    )


def no_memory(case: Case, card: Card) -> bool:
    """Check 7."""
    return max(0, card.memory - used(case, card).memory) < asked_memory(case, card)


def free_cores(case: Case, card: Card) -> int:
    """Never below 0, however over-booked the card is."""
    return max(0, card.cores - used(case, card).cores)


def no_cores(case: Case, card: Card) -> bool:
    """Check 8."""
    return free_cores(case, card) < counted_cores(asked_booking(case, card), card)


def not_alone(case: Case, card: Card) -> bool:
    """Check 9: whole cores beside a tenant, or an exclusive Pod, this or another, not alone."""
    whole = case.container.cores >= WHOLE and used(case, card).slots > 0
    others = [tenant for tenant in case.tenants if pod_use(tenant.bookings, card).slots > 0]
    held = any(tenant.exclusive for tenant in others)
    return whole or held or (case.request.exclusive and bool(others))


def no_compute(case: Case, card: Card) -> bool:
    """Check 10."""
    return case.container.cores == 0 and free_cores(case, card) == 0


CHECKS: tuple[tuple[str, Callable[[Case, Card], bool]], ...] = (
    ("CardNotHealth", unhealthy),
    ("CardCordoned", cordoned),
    ("CardTypeMismatch", wrong_type),
    ("CardUuidMismatch", wrong_uuid),
    ("CardTimeSlicingExhausted", no_slot),
    ("ExclusiveDeviceAllocateConflict", mutex),
    ("ResourceQuotaNotFit", over_quota),
    ("CardInsufficientMemory", no_memory),
    ("CardInsufficientCore", no_cores),
    ("ExclusiveDeviceAllocateConflict", not_alone),
    ("CardComputeUnitsExhausted", no_compute),
)


def refusal(case: Case, card: Card) -> str | None:
    """Section 3: a card counts under the first check that fails."""
    return next((word for word, refused in CHECKS if refused(case, card)), None)


# Scores (section 4)


def share(part: int, whole: int) -> Fraction:
    """A denominator of 0 contributes 0."""
    return Fraction(part, whole) if whole else Fraction(0)


def millionths(value: Fraction) -> int:
    """Section 4: rounded half up, once, from the exact value."""
    return floor(value * 1_000_000 + Fraction(1, 2))


def card_score(case: Case, card: Card) -> int:
    """Section 4: of what is used before this container, in millionths."""
    use, weights = used(case, card), case.request.weights
    return millionths(
        10
        * (
            weights["slot"] * share(use.slots, card.slots)
            + weights["core"] * share(use.cores, card.cores)
            + weights["memory"] * share(use.memory, card.memory)
        )
    )


def node_score(node: Node, tenants: Sequence[Tenant]) -> int:
    """Section 4: over all reported cards, before this Pod; weights never touch it."""
    use = total(tenants_use(tenants, card) for card in node.cards)
    return millionths(
        10
        * (
            share(use.slots, sum(card.slots for card in node.cards))
            + share(use.cores, sum(card.cores for card in node.cards))
            + share(use.memory, sum(card.memory for card in node.cards))
        )
    )


def score_text(score: int) -> str:
    """3302083 is written 3.302083."""
    return f"{score // 1_000_000}.{score % 1_000_000:06d}"
