"""Builders of decisions that refuse, for the tests of what people read of them."""

from typing import Any

from cardwise.model import (
    Ask,
    CardState,
    CardVerdict,
    ContainerKind,
    Decision,
    NodeState,
    NodeView,
    Outcome,
    PodRef,
    Policy,
    Request,
    Signature,
)
from cardwise.names import PolicyName, Reason
from cardwise.wire.account import pending_message

MUTEX_BINPACK = Policy(
    mutex=True, keys=(PolicyName.BINPACK,), names=(PolicyName.MUTEX, PolicyName.BINPACK)
)
SPREAD = Policy(keys=(PolicyName.SPREAD, PolicyName.NUMA), names=(PolicyName.SPREAD,))


def ask(
    count: int = 1,
    mib: int = 0,
    percent: int = 100,
    cores: int = 0,
    kind: ContainerKind = ContainerKind.REGULAR,
) -> Ask:
    """What one container asks: a whole card unless told otherwise."""
    return Ask(kind=kind, count=count, memory_mib=mib, memory_percent=percent, cores=cores)


def request(
    *asks: Ask,
    names: tuple[str, ...] | None = None,
    policy: Policy = SPREAD,
    namespace: str = "default",
    **signature: Any,
) -> Request:
    """A Pod ``p`` with containers ``c0``, ``c1``…; one card with 1000 MiB by default."""
    asks = asks or (ask(mib=1000),)
    return Request(
        pod=PodRef(namespace, "p", "u"),
        signature=Signature(asks=asks, policy=policy, **signature),
        containers=names or tuple(f"c{number}" for number in range(len(asks))),
    )


def card(
    index: int, *, used: int = 0, slots_used: int = 0, mib: int = 15360, **fields: Any
) -> CardState:
    """A T4."""
    return CardState(
        index=index,
        model="NVIDIA-Tesla T4",
        memory_mib=mib,
        used_memory_mib=used,
        used_slots=slots_used,
        **fields,
    )


def view(
    name: str,
    *cards: CardState,
    tenants: tuple[tuple[str, ...], ...] = (),
    troubles: tuple[str, ...] = (),
    problem: Reason | None = None,
    detail: str = "",
) -> NodeView:
    """A node; its cards are ``GPU-a`` for index 0, and so on."""
    return NodeView(
        name=name,
        problem=problem,
        problem_detail=detail,
        state=NodeState(cards=cards),
        uuids=tuple(f"GPU-{'abcdefghi'[one.index]}" for one in cards),
        tenants=tenants or ((),) * len(cards),
        troubles=troubles,
    )


def refused(
    reason: Reason | None, *verdicts: Reason | None, container: int = 0, detail: str = ""
) -> Outcome:
    """A node's outcome; ``verdicts`` are the cards' words, by index (None: it could take it)."""
    cards = tuple(CardVerdict(index, 0, word) for index, word in enumerate(verdicts))
    return Outcome(reason=reason, container=container, cards=cards, detail=detail)


def message(
    outcomes: dict[str, Outcome],
    *views: NodeView,
    of: Request | None = None,
    reason: Reason | None = None,
    **options: Any,
) -> str:
    """The message for these nodes; the leading reason is the first one's unless told."""
    decision = Decision(
        request=of or request(),
        node=None,
        booking=None,
        outcomes=outcomes,
        reason=reason or next((outcome.reason for outcome in outcomes.values()), None),
        refusals={name: it.reason for name, it in outcomes.items() if it.reason is not None},
    )
    return pending_message(decision, {one.name: one for one in views}, **options)


TAKEN = Reason.EXCLUSIVE
FULL = Reason.MEMORY
