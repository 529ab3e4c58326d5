"""The two bounds that an account tells of before any node: the cluster's size, and the quota.

Separate from the account of the nodes, because both hold whatever node one looks at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cardwise.model import (
    CardState,
    CardUse,
    ContainerKind,
    QuotaBound,
    Signature,
)
from cardwise.names import Reason
from cardwise.wire.phrases import cards_text

_MEMORY = "MiB gpumem"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAccount:
    """A namespace's quota as an event tells it (docs/placement.md section 8)."""

    namespace: str
    bound: QuotaBound
    used: CardUse = field(default_factory=CardUse)
    """What its Pods' bookings and holds come to; the slots do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """The most that the cluster could give were it idle."""

    largest_card_mib: int
    most_cards: int
    """On one node."""


def never_fits(
    signature: Signature, cluster: ClusterSize | None, hopeless: Reason | None = None
) -> list[str]:
    """Say that no card, or no node, of the cluster is large enough, were it idle.

    Args:
        signature: what the Pod asks.
        cluster: its largest card and node; None where that is not known.
        hopeless: why the Pod would fit nowhere even without tenants; None where it would.
    """
    if cluster is None or not cluster.most_cards:
        return []
    memory = max((ask.memory_mib for ask in signature.asks if ask.count), default=0)
    count = max((ask.count for ask in signature.asks), default=0)
    sentences = []
    if memory > cluster.largest_card_mib:
        sentences.append(
            f"No card of the cluster has {memory} MiB: the largest has"
            f" {cluster.largest_card_mib} MiB."
        )
    if count > cluster.most_cards:
        sentences.append(
            f"No node of the cluster has {cards_text(count)}: the most is {cluster.most_cards}."
        )
    if hopeless is not None and not sentences:
        sentences.append(
            f"No node of the cluster could take this Pod even without tenants ({hopeless})."
        )
    return sentences


def over_quota(signature: Signature, cards: Sequence[CardState], quota: QuotaAccount) -> list[str]:
    """Say the bound, what is in use, and the least that this Pod would make it.

    A Pod that asks more than the bound by itself, whatever card it got, is told that it waits in
    vain.

    Args:
        signature: what the Pod asks.
        cards: those that were refused for the quota; a percentage counts the smallest of them.
        quota: the namespace's.
    """
    if not cards:
        return []
    memory = _added(signature, min(card.memory_mib for card in cards), memory=True)
    cores = _added(signature, min(card.cores for card in cards), memory=False)
    sentences, bounds = [], []
    held = quota.bound
    in_vain = False
    for unit, name, bound, used, more in (
        (_MEMORY, held.memory_quota, held.memory_mib, quota.used.memory_mib, memory),
        ("% gpucores", held.cores_quota, held.cores, quota.used.cores, cores),
    ):
        if bound is None:
            continue
        # Several may bound a namespace: whoever is asked for more needs to know which does.
        whose = f" (ResourceQuota {name})" if name else ""
        told = f"The quota of namespace {quota.namespace} is {bound} {unit}: {used} in use"
        bounds.append(f"{told}{whose}.")
        if used + more > bound:
            sentences.append(f"{told}, this Pod would make it {used + more}{whose}.")
            # Of a card without any size only what is asked in numbers is left.
            in_vain |= _added(signature, 0, memory=unit == _MEMORY) > bound
    if in_vain:
        sentences.append("Alone it is above that: no Pod that ends makes room for it.")
    # On the smallest cards the Pod might fit in; it was refused all the same, so all are told.
    return sentences or bounds


def _added(signature: Signature, card_size: int, *, memory: bool) -> int:
    """What a Pod adds to its namespace's use, on cards of that size (sections 7 and 8)."""
    steady = peak = 0
    for ask in signature.asks:
        if signature.exclusive:
            each = card_size
        elif memory:
            each = ask.memory_on(card_size)
        else:
            each = ask.cores
        amount = ask.count * each
        if signature.exclusive:
            # Its containers may share cards, so the least is what its largest container holds.
            steady = max(steady, amount)
        elif ask.kind is ContainerKind.INIT:
            peak = max(peak, steady + amount)
        else:
            steady += amount
    return max(steady, peak)
