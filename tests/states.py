"""Builders of what the engine looks at, with defaults: a row shows only what matters to it.

``state(card(0, tenants=1), card(1, numa=1))`` is a node of two T4, the first with one tenant of
1000 MiB.
"""

from collections.abc import Iterable, Sequence

from cardwise.engine.candidates import Sight
from cardwise.engine.score import card_score, node_score
from cardwise.model import (
    NO_USE,
    Ask,
    CardState,
    CardUse,
    ContainerKind,
    Link,
    NodeState,
    NodeView,
    PodRef,
    Policy,
    Request,
    Signature,
    Weights,
)
from cardwise.names import NodePolicy, Reason, TopologyMode
from cardwise.policy import parse
from cardwise.settings import Scheduling

T4_MIB = 15360
REGULAR, SIDECAR, INIT = ContainerKind.REGULAR, ContainerKind.SIDECAR, ContainerKind.INIT

LinkRow = tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, str]


def card(
    index: int = 0,
    *,
    tenants: int = 0,
    used_mib: int | None = None,
    used_cores: int = 0,
    numa: int | None = 0,
    memory: int = T4_MIB,
    cores: int = 100,
    slots: int = 10,
    model: str = "NVIDIA-Tesla T4",
    mode: str = "hami-core",
    healthy: bool = True,
    cordoned: bool = False,
    exclusive: bool = False,
) -> CardState:
    """A T4; each of its tenants has 1000 MiB unless ``used_mib`` says what all of them have."""
    return CardState(
        index=index,
        model=model,
        memory_mib=memory,
        cores=cores,
        slots=slots,
        numa=numa,
        mode=mode,
        healthy=healthy,
        cordoned=cordoned,
        used_slots=tenants,
        used_memory_mib=1000 * tenants if used_mib is None else used_mib,
        used_cores=used_cores,
        exclusive=exclusive,
    )


def link(first: int, second: int, nvlinks: int = 0, path: str = "") -> Link:
    """How two cards are joined; the smaller index goes first, as in the model."""
    first, second = sorted((first, second))
    return Link(first=first, second=second, nvlinks=nvlinks, path=path)


def state(*cards: CardState, links: Iterable[LinkRow] | None = None) -> NodeState:
    """A node of these cards; without ``links`` its links are not known."""
    joined = None if links is None else tuple(link(*row) for row in links)
    return NodeState(cards=cards, links=joined)


def idle(count: int, *, links: Iterable[LinkRow] | None = None) -> NodeState:
    """A node of so many idle T4, all on NUMA node 0."""
    return state(*(card(index) for index in range(count)), links=links)


def ask(
    count: int = 1,
    memory: int = 1000,
    cores: int = 0,
    kind: ContainerKind = REGULAR,
    *,
    percent: int = 100,
) -> Ask:
    """What one container asks: one card with 1000 MiB; memory 0 asks ``percent`` of the card."""
    return Ask(kind=kind, count=count, memory_mib=memory, memory_percent=percent, cores=cores)


NOTHING = Ask(count=0)
"""A container that asks for no card."""


def policy(text: str | None = None) -> Policy:
    """A chain as a Pod writes it, under default settings."""
    return parse(text, Scheduling()).policy


def signature(
    *asks: Ask,
    policy: str | None = None,
    node_policy: NodePolicy = NodePolicy.BINPACK,
    weights: tuple[int, int, int] = (1, 1, 1),
    use_types: Sequence[str] = (),
    nouse_types: Sequence[str] = (),
    use_uuids: Iterable[str] = (),
    nouse_uuids: Iterable[str] = (),
    modes: Iterable[str] = (),
    numa_bind: bool = False,
    exclusive: bool = False,
    mode: TopologyMode = TopologyMode.REQUIRED,
) -> Signature:
    """A request for one card with 1000 MiB, or for ``asks``; ``weights`` are slot, core, memory."""
    slot, core, memory = weights
    return Signature(
        asks=asks or (ask(),),
        policy=parse(policy, Scheduling()).policy,
        node_policy=node_policy,
        weights=Weights(slot=slot, core=core, memory=memory),
        use_types=tuple(use_types),
        nouse_types=tuple(nouse_types),
        use_uuids=frozenset(use_uuids),
        nouse_uuids=frozenset(nouse_uuids),
        modes=frozenset(modes),
        numa_bind=numa_bind,
        exclusive=exclusive,
        topology_mode=mode,
    )


def request(question: Signature | None = None) -> Request:
    """The Pod ``default/p`` that asks this."""
    question = question or signature()
    names = tuple(f"c{number}" for number in range(len(question.asks)))
    return Request(pod=PodRef("default", "p", "u"), signature=question, containers=names)


def sight(
    shown: CardState, asked: Ask | None = None, question: Signature | None = None, **own: int
) -> Sight:
    """One card as a container sees it, scored; ``own`` is the Pod's earlier use of it."""
    question = question or signature()
    seen = Sight(shown, asked or question.asks[0], question, CardUse(**own) if own else NO_USE)
    seen.score = card_score(
        shown, question.weights, seen.used_slots, seen.used_memory_mib, seen.used_cores
    )
    return seen


_STATE_IDS: dict[NodeState, int] = {}


def view(
    name: str = "n1",
    shown: NodeState | None = None,
    *,
    problem: Reason | None = None,
    detail: str = "",
    uuids: Sequence[str] | None = None,
) -> NodeView:
    """A node in this state; its cards are ``GPU-n1-0``, ``GPU-n1-1``… unless ``uuids`` names them.

    Equal states get equal ids, as in a ledger.
    """
    shown = shown or idle(1)
    if uuids is None:
        uuids = [f"GPU-{name}-{card.index}" for card in shown.cards]
    return NodeView(
        name=name,
        problem=problem,
        problem_detail=detail,
        state=shown,
        state_id=_STATE_IDS.setdefault(shown, len(_STATE_IDS)),
        score=node_score(shown.cards),
        uuids=tuple(uuids),
        tenants=tuple(() for _ in shown.cards),
    )
