"""Builders of what a ledger is told, and the checks that hold for every ledger at any time.

Cards are named ``a``, ``b``… in rows; ``booking("n1", "a")`` is 1000 MiB and 10 cores of the card
with that UUID.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from cardwise.engine.usage import booking_uses, quota_use
from cardwise.ledger import HOLD_SECONDS, Ledger, PodEntry, Sighting, Stage
from cardwise.ledger.nodes import NodeAccount
from cardwise.model import (
    Booking,
    Card,
    CardUse,
    GPUNode,
    NodeView,
    PodRef,
    QuotaBound,
    Request,
    Share,
)
from cardwise.names import Reason
from states import REGULAR, signature

P = PodRef("default", "p", "uid-p")
"""The Pod that a row is about."""
HERE, THERE = "n1", "n2"
"""Where rows put it, and somewhere else."""
Step = Callable[[Ledger], object]


def pod(name: str, namespace: str = "default") -> PodRef:
    return PodRef(namespace, name, f"uid-{name}")


def card(uuid: str = "a", index: int | None = None, memory: int = 15360, **more: object) -> Card:
    """A T4; ``a`` has index 0, ``b`` 1 and so on."""
    built = Card(uuid=uuid, index=ord(uuid[0]) - ord("a") if index is None else index,
                 model="NVIDIA-Tesla T4", memory_mib=memory)  # fmt: skip
    return replace(built, **more)  # type: ignore[arg-type]


def report(name: str = HERE, *cards: Card | str, beat: str = "1", **more: object) -> GPUNode:
    """A GPUNode of these cards, or of ``a`` and ``b``; ``beat`` is its heartbeat."""
    built = GPUNode(
        name=name,
        cards=tuple(card(it) if isinstance(it, str) else it for it in cards or ("a", "b")),
        reported_at=beat,
    )
    return replace(built, **more)  # type: ignore[arg-type]


def share(uuid: str = "a", memory: int = 1000, cores: int = 10) -> Share:
    return Share(uuid, memory, cores)


def booking(
    node: str = HERE, *cards: Share | str, exclusive: bool = False, memory: int = 1000
) -> Booking:
    """One container with these cards."""
    shares = tuple(share(it, memory) if isinstance(it, str) else it for it in cards)
    return Booking(node=node, containers=(shares,), kinds=(REGULAR,), exclusive=exclusive)


def request(who: PodRef = P) -> Request:
    return Request(pod=who, signature=signature(), containers=("c0",))


def bound(booked: Booking, who: PodRef = P, version: int = 5) -> Sighting:
    """An event of a bound Pod with these cards."""
    return Sighting(pod=who, version=version, node=booked.node, booking=booked)


def unbound(who: PodRef = P, version: int = 5) -> Sighting:
    return Sighting(pod=who, version=version)


def cardless(node: str = HERE, who: PodRef = P, version: int = 5) -> Sighting:
    """An event of a Pod that is bound and has no allocation."""
    return Sighting(pod=who, version=version, node=node)


def unreadable(node: str = HERE, who: PodRef = P, version: int = 5) -> Sighting:
    return Sighting(pod=who, version=version, node=node, unreadable="it is garbled")


def gone(who: PodRef = P, version: int = 5, node: str | None = HERE) -> Sighting:
    return Sighting(pod=who, version=version, node=node, gone=True)


def hold(ledger: Ledger, booked: Booking, who: PodRef = P, now: float = 1.0) -> None:
    ledger.hold(request(who), booked, now)


def bind(ledger: Ledger, booked: Booking, who: PodRef = P, now: float = 1.0) -> None:
    """Hold cards, and send the Binding."""
    hold(ledger, booked, who, now)
    ledger.begin_binding(who.uid, now)


def cordon(ledger: Ledger, *uuids: str, node: str = HERE) -> None:
    """HAMi's annotation on the Node."""
    ledger.apply_node(node, offers_cards=True, cordoned=frozenset(uuids))


def two_nodes() -> Ledger:
    """``a`` and ``b`` on n1, ``c`` on n2, nothing used; nobody was told that room grew."""
    ledger = Ledger()
    ledger.apply_gpunode(report(HERE, "a", "b"), 0.0)
    ledger.apply_gpunode(report(THERE, "c"), 0.0)
    ledger.grew = False
    ledger.touched.clear()
    return ledger


def used(ledger: Ledger, node: str = HERE) -> dict[str, CardUse]:
    """What is used of each card of a node, as decisions see it."""
    view = ledger.view(node)
    return {
        uuid: CardUse(card.used_slots, card.used_memory_mib, card.used_cores)
        for uuid, card in zip(view.uuids, view.state.cards, strict=True)
    }


def stage(ledger: Ledger, who: PodRef = P) -> Stage | None:
    entry = ledger.entry(who.uid)
    return None if entry is None else entry.stage


# Where the Pod of a row stands --------------------------------------------------------------------

A, B, ELSEWHERE = booking(HERE, "a"), booking(HERE, "b"), booking(THERE, "c")
LATER = HOLD_SECONDS + 10.0


def refuse(ledger: Ledger) -> None:
    ledger.wait(P, request(), Reason.MEMORY, 2.0)


# How a Pod came to where it stands: the columns of the table below.
STAGES: dict[str, list[Step]] = {
    "not known": [],
    "waiting": [refuse],
    "held": [lambda it: hold(it, A)],
    "binding": [lambda it: bind(it, A)],
    "binding, seen bound": [lambda it: bind(it, A), lambda it: it.see(bound(A), 2.0)],
    "binding, seen without cards": [
        lambda it: bind(it, A),
        lambda it: it.see(cardless(), 2.0),
    ],
    "binding, seen gone": [lambda it: bind(it, A), lambda it: it.see(gone(), 2.0)],
    "booked": [lambda it: it.see(bound(A), 1.0)],
    "garbled": [lambda it: it.see(unreadable(), 1.0)],
    "booked, then garbled": [
        lambda it: it.see(bound(A), 1.0),
        lambda it: it.see(unreadable(), 2.0),
    ],
    "gone": [lambda it: it.see(bound(A), 1.0), lambda it: it.see(gone(), 2.0)],
}


def told(ledger: Ledger) -> str:
    """Where the Pod of the table stands, in the words of the table."""
    entry = ledger.entry(P.uid)
    ended = "gone" if P.uid in ledger._ended else "not known"
    words = [ended if entry is None else entry.stage.value]
    for node in (HERE, THERE):
        words += [uuid for uuid, use in used(ledger, node).items() if use.slots]
    words += [f"{node} closed" for node in (HERE, THERE) if ledger.view(node).problem]
    if entry is not None:
        words += ["bound"] * entry.seen_bound + ["without cards"] * entry.seen_cardless
        words += ["gone"] * entry.seen_gone
    return ", ".join(words) + " +" * ledger.grew


def at(where: str) -> Ledger:
    """A ledger in which the Pod stands there, and nobody waits for a word that room grew."""
    ledger = two_nodes()
    for step in STAGES[where]:
        step(ledger)
    ledger.grew = False
    return ledger


# What holds for every ledger ----------------------------------------------------------------------


def check(ledger: Ledger) -> None:
    """Every account is the sum of the entries, every view is fresh, and nothing is kept in vain."""
    entries = list(ledger.entries())
    for entry in entries:
        _check_entry(ledger, entry)
    for name, account in ledger._nodes.items():
        assert not account.is_empty, f"{name} is kept though nothing is known of it"
        _check_account(account, [entry for entry in entries if entry.node == name])
    _check_quotas(ledger, entries)
    _check_views(ledger)


def _check_entry(ledger: Ledger, entry: PodEntry) -> None:
    account = ledger.account(entry.node) if entry.node is not None else None
    closes = account is not None and account.is_closed_by(entry.pod.uid)
    match entry.stage:
        case Stage.WAITING:
            assert (entry.booking, entry.node) == (None, None)
        case Stage.HELD:
            assert entry.booking is not None
            assert entry.request is not None
            assert not closes
        case Stage.BINDING:
            assert entry.booking is not None or closes or entry.seen_cardless
        case Stage.BOOKED:
            assert entry.booking is not None or closes
            assert entry.reason is None
    if entry.booking is not None:
        assert entry.booking.node == entry.node
    if entry.stage is not Stage.BINDING:
        assert (entry.seen_bound, entry.seen_cardless, entry.seen_gone) == (False,) * 3


def _check_account(account: NodeAccount, here: list[PodEntry]) -> None:
    booked = {entry.pod.uid: entry for entry in here if entry.booking is not None}
    assert {who.uid: taken for who, taken in account.bookings()} == {
        uid: entry.booking for uid, entry in booked.items()
    }
    assert set(account._uses) == set(booked)
    assert set(account._unreadable) <= {entry.pod.uid for entry in here}
    cores = {card.uuid: card.cores for card in account.cards()}
    slots, memory, percent = Counter[str](), Counter[str](), Counter[str]()
    for entry in booked.values():
        assert entry.booking is not None
        for uuid, use in booking_uses(entry.booking, cores).items():
            slots[uuid] += use.slots
            memory[uuid] += use.memory_mib
            percent[uuid] += use.cores
    assert account.uses() == {
        uuid: CardUse(slots[uuid], memory[uuid], percent[uuid]) for uuid in slots
    }


def _check_quotas(ledger: Ledger, entries: list[PodEntry]) -> None:
    memory, cores = Counter[str](), Counter[str]()
    for entry in entries:
        if entry.booking is not None:
            account = ledger.account(entry.booking.node)
            cards = {card.uuid: card for card in account.cards()} if account else {}
            use = quota_use(entry.booking, cards)
            memory[entry.pod.namespace] += use.memory_mib
            cores[entry.pod.namespace] += use.cores
    assert set(ledger._quota_use) == set(memory)
    for namespace in memory:
        want = CardUse(0, memory[namespace], cores[namespace])
        assert ledger.quota_use(namespace) == want
        limit = ledger.bound(namespace)
        room = ledger.room(namespace)
        if limit == QuotaBound():
            assert room is None
            continue
        assert room is not None
        assert room.memory_mib == _less(limit.memory_mib, want.memory_mib)
        assert room.cores == _less(limit.cores, want.cores)


def _less(limit: int | None, use: int) -> int | None:
    return None if limit is None else limit - use


def _check_views(ledger: Ledger) -> None:
    """What decisions see is what a ledger sees that was told only of what is there now."""
    again = rebuilt(ledger)
    for name in [*ledger._nodes, "nobody"]:
        view = ledger.view(name)
        assert view is ledger.view(name) or name == "nobody"
        assert plain(view) == plain(again.view(name))
        if view.problem in (None, Reason.NODE_UNREADABLE):
            assert view.state_id == ledger._states.number(view.state)
    assert set(ledger._nodes) == set(again._nodes)


def plain(view: NodeView) -> NodeView:
    """A view without the number that its ledger gave its state."""
    return replace(view, state_id=0)


def rebuilt(ledger: Ledger) -> Ledger:
    """A new ledger from the same GPUNodes, Nodes, quotas, and bookings."""
    again = Ledger()
    for name, account in ledger._nodes.items():
        again.apply_node(name, offers_cards=account.offers_cards, cordoned=account.cordoned)
        if account.report is not None:
            # Never seen again in so long a time: stale.
            again.apply_gpunode(account.report, -1000.0 if account.stale else 0.0)
    again.age_reports(0.0)
    for namespace, limit in ledger.bounded_namespaces().items():
        again.set_bound(namespace, limit)
    _tell_pods(ledger, again)
    return again


def _tell_pods(ledger: Ledger, again: Ledger) -> None:
    for entry in ledger.entries():
        if entry.booking is not None:
            again.see(bound(entry.booking, entry.pod, version=0), 0.0)
    for name, account in ledger._nodes.items():
        for who, why in account._unreadable.values():
            again.see(Sighting(pod=who, version=0, node=name, unreadable=why), 0.0)
