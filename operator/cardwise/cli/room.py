"""What ``cardwise top`` shows: cards, nodes and namespaces, and what is left of them. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cardwise.cli.world import World
from cardwise.errors import BadGPUNode
from cardwise.ledger.nodes import NodeAccount
from cardwise.model import NO_USE, Card, CardState, CardUse, NodeView
from cardwise.names import CONDITION_UNREADABLE, MODE_MIG, NodeReason, Reason
from cardwise.wire import gpunodes, pods
from cardwise.wire.fields import at, items, text

Json = dict[str, Any]
OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRoom:
    """One card."""

    node: str
    uuid: str
    index: int | None
    """None: it has tenants, and its node does not report it any more."""
    model: str = ""
    memory_mib: int = 0
    cores: int = 0
    slots: int = 0
    used: CardUse = NO_USE
    free_mib: int = 0
    """The most memory that a new Pod could have here; 0 where the card takes none."""
    tenants: tuple[str, ...] = ()
    state: str = OK
    """For people: ``ok``, or why the card itself takes no new Pod."""
    is_open: bool = False
    """Whether it takes new Pods while there is room: neither it nor its node is closed."""

    @property
    def is_empty(self) -> bool:
        """Whether a Pod could have it alone."""
        return self.is_open and not self.tenants and not self.used.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """One node, and its cards by index."""

    name: str
    cards: tuple[CardRoom, ...] = ()
    state: str = OK
    """For people: ``ok``, or the word for why it takes no new Pod."""

    @property
    def models(self) -> str:
        """Its cards' models."""
        return ", ".join(dict.fromkeys(card.model for card in self.cards if card.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What some cards come to."""

    nodes: int
    cards: int
    closed: int
    """Cards that take no new Pod, whatever room they have."""
    empty: int
    memory_mib: int
    used: CardUse
    cores: int
    slots: int
    free_mib: int
    largest_free_mib: int
    tenants: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRoom:
    """What the Pods of one namespace have."""

    name: str
    placed: int
    """Pods with cards."""
    waiting: int
    """Pods that ask for cards and have no node."""
    cards: int
    """Different ones."""
    used: CardUse


def nodes_of(
    world: World,
    documents: Sequence[Json],
    *,
    counted: bool,
    only: Collection[str] = (),
    cordoned: Collection[str] = (),
) -> list[NodeRoom]:
    """Every node with cards, by name.

    Args:
        world: the cluster.
        documents: its GPUNodes.
        counted: True: what is used is counted from the world's Pods; else it is what the
            controller wrote into each GPUNode's status.
        only: names; empty: all.
        cordoned: names of nodes that take no new Pod, whatever their cards say.
    """
    written = {} if counted else {_name(document): document for document in documents}
    found = []
    for name in sorted(only or world.ledger.node_names()):
        account = world.ledger.account(name)
        view = world.ledger.view(name)
        if account is None or view.problem is Reason.NODE_HAS_NO_CARDS:
            continue
        by_kubectl = NodeReason.UNSCHEDULABLE if name in cordoned else None
        word = view.problem or _closed_by(written.get(name)) or by_kubectl
        found.append(_node(view, account, written.get(name), word))
    return found


def sum_of(nodes: Iterable[NodeRoom]) -> Sum:
    """What some nodes come to; cards that are not reported any more have no size."""
    known = list(nodes)
    cards = [card for node in known for card in node.cards]
    reported = [card for card in cards if card.index is not None]
    return Sum(
        nodes=len(known),
        cards=len(reported),
        closed=sum(not card.is_open for card in reported),
        empty=sum(card.is_empty for card in reported),
        memory_mib=sum(card.memory_mib for card in reported),
        used=_total(card.used for card in reported),
        cores=sum(card.cores for card in reported),
        slots=sum(card.slots for card in reported),
        free_mib=sum(card.free_mib for card in reported),
        largest_free_mib=max((card.free_mib for card in reported), default=0),
        tenants=len({tenant for card in cards for tenant in card.tenants}),
    )


def namespaces_of(
    world: World, documents: Iterable[Json], *, only: Collection[str] = ()
) -> list[NamespaceRoom]:
    """What each namespace has, by name, of all nodes or of some.

    Args:
        world: the cluster, its Pods among it.
        documents: its Pods.
        only: names of nodes; empty: all, and then also who waits.
    """
    placed: dict[str, int] = {}
    cards: dict[str, set[str]] = {}
    used: dict[str, CardUse] = {}
    waiting: dict[str, int] = {}
    for name in only or world.ledger.node_names():
        account = world.ledger.account(name)
        for pod, uses in account.pod_uses() if account is not None else ():
            space = pod.namespace
            placed[space] = placed.get(space, 0) + 1
            cards.setdefault(space, set()).update(uses)
            used[space] = _total([used.get(space, NO_USE), *uses.values()])
    for document in () if only else documents:
        if _waits(document):
            space = pods.pod_ref(document).namespace
            waiting[space] = waiting.get(space, 0) + 1
    return [
        NamespaceRoom(
            name=space,
            placed=placed.get(space, 0),
            waiting=waiting.get(space, 0),
            cards=len(cards.get(space, ())),
            used=used.get(space, NO_USE),
        )
        for space in sorted({*placed, *waiting})
    ]


def _waits(pod: Json) -> bool:
    """Whether it asks for cards and has no node."""
    return pods.asks_cards(pod) and pods.placed_node(pod) is None and not pods.is_finished(pod)


def _node(
    view: NodeView, account: NodeAccount, written: Json | None, word: Reason | NodeReason | None
) -> NodeRoom:
    uses: Mapping[str, CardUse] = account.uses()
    tenants: Mapping[str, Sequence[str]] = account.tenants()
    if written is not None:
        uses, tenants = _uses(written), _tenants(written)
    closed = word is not None
    states = dict(zip(view.uuids, view.state.cards, strict=True))
    reported = account.cards()
    gone = sorted({*uses, *tenants}.difference(card.uuid for card in reported))
    return NodeRoom(
        name=account.name,
        state=word.value if word is not None else OK,
        cards=(
            *(
                _card(
                    account.name,
                    card,
                    states[card.uuid],
                    uses.get(card.uuid, NO_USE),
                    tuple(tenants.get(card.uuid, ())),
                    closed=closed,
                )
                for card in reported
            ),
            *(
                CardRoom(
                    node=account.name,
                    uuid=uuid,
                    index=None,
                    used=uses.get(uuid, NO_USE),
                    tenants=tuple(tenants.get(uuid, ())),
                    state="not reported",
                )
                for uuid in gone
            ),
        ),
    )


def _card(
    node: str, card: Card, state: CardState, use: CardUse, tenants: tuple[str, ...], *, closed: bool
) -> CardRoom:
    told = _state(card, state, use)
    is_open = told == OK and not closed
    # Whatever a Pod asks: one that names no cores is refused, too, where all are given out.
    has_room = is_open and card.slots > use.slots and card.cores > use.cores
    return CardRoom(
        node=node,
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        memory_mib=card.memory_mib,
        cores=card.cores,
        slots=card.slots,
        used=use,
        free_mib=max(0, card.memory_mib - use.memory_mib) if has_room else 0,
        tenants=tenants,
        state=told,
        is_open=is_open,
    )


def _state(card: Card, state: CardState, use: CardUse) -> str:
    """Why a card takes no new Pod; the node's own word is told of the node."""
    if not card.healthy:
        return f"unhealthy: {card.unhealthy_reason}" if card.unhealthy_reason else "unhealthy"
    if state.cordoned:
        return "cordoned"
    if state.exclusive:
        return "exclusive"
    if card.mode == MODE_MIG:
        return "in MIG mode"
    over = use.slots > card.slots or use.memory_mib > card.memory_mib or use.cores > card.cores
    return "over-booked" if over else OK


def _closed_by(written: Json | None) -> Reason | None:
    """The word by which the controller closes a node, where the Pods were not read; None: none."""
    told = gpunodes.conditions_of(written) if written is not None else ()
    closed = any(each.holds and each.type == CONDITION_UNREADABLE for each in told)
    return Reason.NODE_UNREADABLE if closed else None


def _uses(document: Json) -> dict[str, CardUse]:
    try:
        return gpunodes.uses_of(document)
    except BadGPUNode:
        return {}


def _tenants(document: Json) -> dict[str, list[str]]:
    return {
        text(at(each, "uuid")): [text(tenant) for tenant in items(at(each, "tenants"))]
        for each in items(at(document, "status", "usage"))
        if items(at(each, "tenants"))
    }


def _total(uses: Iterable[CardUse]) -> CardUse:
    known = list(uses)
    return CardUse(
        sum(use.slots for use in known),
        sum(use.memory_mib for use in known),
        sum(use.cores for use in known),
    )


def _name(document: Json) -> str:
    return text(at(document, "metadata", "name"))
