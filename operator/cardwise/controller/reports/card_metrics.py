"""The gauges of cards and of the Pods on them, as Prometheus reads them.

Seven series a card: those of a large cluster are some hundred thousand lines, which the library
takes seven times as long to write (docs/decisions/0016). So they are written here, and in parts:
between two of them kube-scheduler's questions may be answered.
"""

from collections.abc import Iterator

from cardwise.engine.usage import booking_uses
from cardwise.ledger import Ledger, PodEntry
from cardwise.model import NO_USE, Card, CardUse, NodeView

ZONE = "vGPU"
MIB = 1024 * 1024

_AT_ONCE = 100
"""Nodes, or Pods, that are looked at in one part."""
_LINES = 1000
"""Lines in one part."""


class _Gauge:
    """One family: a name, and a line a series."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """Add a series; the labels are as they stand between braces, their values escaped."""
        self._lines.append(f"{self._name}{{{labels}}} {float(value)}\n")

    def parts(self) -> Iterator[str]:
        """What Prometheus reads."""
        yield f"# HELP {self._name} {self._text}\n# TYPE {self._name} gauge\n"
        for first in range(0, len(self._lines), _LINES):
            yield "".join(self._lines[first : first + _LINES])


class CardMetrics:
    """Reads the ledger when it is asked."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def parts(self) -> Iterator[str]:
        """All of it; what is empty is a pause only.

        The ledger may change between two parts: each series is as of some moment of the reading.
        """
        yield from self._room()
        yield from self._cards()
        yield from self._tenants()

    def _room(self) -> Iterator[str]:
        """How far the free memory is scattered, and which cards have too many tenants."""
        free = _Gauge(
            "cardwise_free_memory_mebibytes", "Memory on cards of a node that take new Pods."
        )
        largest = _Gauge("cardwise_free_memory_largest_mebibytes", "The most of it on one card.")
        over = _Gauge("cardwise_card_overbooked", "Cards with more given out than they have.")
        for number, name in enumerate(self._ledger.gpunode_names()):
            view = self._ledger.view(name)
            rooms = [card.room_mib for card in view.state.cards] if view.problem is None else []
            node = f'node="{_escaped(name)}"'
            free.add(node, sum(rooms))
            largest.add(node, max(rooms, default=0))
            for labels in _overbooked(view):
                over.add(labels, 1)
            if number % _AT_ONCE == 0:
                yield ""
        for gauge in (free, largest, over):
            yield from gauge.parts()

    def _cards(self) -> Iterator[str]:
        memory_limit = _Gauge("hami_gpu_memory_limit_bytes", "Memory of a card.")
        core_limit = _Gauge("hami_gpu_core_limit_ratio", "Cores of a card.")
        memory = _Gauge("hami_gpu_memory_allocated_bytes", "Memory given out.")
        slots = _Gauge("hami_gpu_shared_count", "Slots given out.")
        cores = _Gauge("hami_gpu_core_allocated_ratio", "Cores given out.")
        part = _Gauge("hami_node_gpu_memory_allocated_ratio", "Part of the memory given out.")
        overview = _Gauge("hami_node_gpu_overview", "Memory given out, beside what a card has.")
        for number, node in enumerate(self._ledger.gpunode_names()):
            account = self._ledger.account(node)
            if account is None:
                continue
            uses = account.uses()
            for card in account.cards():
                use = uses.get(card.uuid, NO_USE)
                index, rest = _labels(node, card)
                labels, of_cores = f"{index},{rest}", f'device_cores="{card.cores}"'
                given = use.memory_mib * MIB
                memory_limit.add(labels, card.memory_mib * MIB)
                core_limit.add(labels, card.cores)
                memory.add(f"{of_cores},{labels}", given)
                slots.add(labels, use.slots)
                cores.add(labels, use.cores)
                if card.memory_mib:
                    part.add(labels, use.memory_mib / card.memory_mib)
                limit = f'device_memory_limit="{card.memory_mib}"'
                overview.add(f"{of_cores},{index},{limit},{rest}", given)
            if number % _AT_ONCE == 0:
                yield ""
        for gauge in (memory_limit, core_limit, memory, slots, cores, part, overview):
            yield from gauge.parts()

    def _tenants(self) -> Iterator[str]:
        memory = _Gauge("hami_vgpu_memory_allocated_bytes", "Memory of a Pod on a card.")
        cores = _Gauge("hami_vgpu_core_allocated_ratio", "Cores of a Pod on a card.")
        for number, entry in enumerate(list(self._ledger.entries())):
            for labels, use in self._uses(entry):
                memory.add(labels, use.memory_mib * MIB)
                cores.add(labels, use.cores)
            if number % _AT_ONCE == 0:
                yield ""
        for gauge in (memory, cores):
            yield from gauge.parts()

    def _uses(self, entry: PodEntry) -> Iterator[tuple[str, CardUse]]:
        """What a Pod has of each card; its containers are told as one, as HAMi does."""
        booking = entry.booking
        account = self._ledger.account(booking.node) if booking else None
        if booking is None or account is None:
            return
        node, pod = _escaped(booking.node), _escaped(entry.pod.name)
        rest = f'namespace="{_escaped(entry.pod.namespace)}",node="{node}",pod="{pod}"'
        for uuid, use in booking_uses(booking, account.card_cores()).items():
            card = f'container_index="0",device_uuid="{_escaped(uuid)}"'
            yield f'{card},{rest},zone="{ZONE}"', use


def _overbooked(view: NodeView) -> Iterator[str]:
    """The labels of the cards with more given out than they have."""
    for uuid, card in zip(view.uuids, view.state.cards, strict=True):
        if card.is_overbooked:
            where = f'device_uuid="{_escaped(uuid)}",node="{_escaped(view.name)}",zone="{ZONE}"'
            model = _escaped(card.model)
            yield f'device_index="{card.index}",device_type="{model}",{where}'


def _labels(node: str, card: Card) -> tuple[str, str]:
    """A card's index, and its other labels."""
    model, uuid = _escaped(card.model), _escaped(card.uuid)
    where = f'device_uuid="{uuid}",node="{_escaped(node)}",zone="{ZONE}"'
    return f'device_index="{card.index}"', f'device_type="{model}",{where}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
