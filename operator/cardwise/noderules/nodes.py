"""One node: what its Node object says, and what the Pods that are there take of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cardwise.names import RESOURCES, NodeReason
from cardwise.noderules.amounts import CPU, MEMORY, PODS, STORAGE, allocatable_of
from cardwise.noderules.needs import ANY_ADDRESS, Load, Port, Repulsion, Rules, Taint, Toleration
from cardwise.noderules.selectors import pairs
from cardwise.noderules.volumes import Reach
from cardwise.wire.fields import at, items, mapping, text

_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A Node as far as it matters here; equal where nothing that matters changed."""

    name: str
    unschedulable: bool
    taints: tuple[Taint, ...]
    labels: dict[str, str]
    room: dict[str, int]
    """Allocatable, by resource."""

    def refusal(self, rules: Rules, reach: Reach) -> NodeReason | None:
        """Why a Pod can't go there however idle the node is."""
        if self.unschedulable and not _tolerated(_CORDON, rules.tolerations):
            return NodeReason.UNSCHEDULABLE
        if not all(_tolerated(taint, rules.tolerations) for taint in self.taints):
            return NodeReason.TAINT
        if not all(each.holds(self.labels) for each in rules.selector):
            return NodeReason.AFFINITY
        terms = rules.terms
        if terms is not None and not any(term.matches(self.labels, self.name) for term in terms):
            return NodeReason.AFFINITY
        if not all(volume.allows(self.labels) for volume in reach):
            return NodeReason.VOLUMES
        return None


def facts_of(node: Mapping[str, Any]) -> NodeFacts:
    """Read a Node."""
    spec, metadata = mapping(node.get("spec")), mapping(node.get("metadata"))
    return NodeFacts(
        name=text(metadata.get("name")),
        unschedulable=spec.get("unschedulable") is True,
        taints=tuple(
            Taint(*(text(at(taint, key)) for key in Taint._fields))
            for taint in items(spec.get("taints"))
            if at(taint, "effect") in _HARD_EFFECTS
        ),
        labels=dict(pairs(metadata.get("labels"))),
        room=allocatable_of(node),
    )


class Occupancy:
    """What the Pods of one node take, whether its Node object was seen yet or not."""

    __slots__ = ("_cpu", "_memory", "_others", "_ports", "_storage", "pods", "repulsions")

    def __init__(self) -> None:
        """Nobody is there."""
        self._cpu = self._memory = self._storage = self.pods = 0
        self._others: dict[str, int] = {}
        self._ports: dict[tuple[str, int], dict[str, int]] = {}
        self.repulsions: dict[Repulsion, int] = {}
        """How many Pods here repel others so."""

    def add(self, load: Load) -> None:
        """Count a Pod."""
        self._count(load, 1)

    def drop(self, load: Load) -> None:
        """Count a Pod no more."""
        self._count(load, -1)

    def _count(self, load: Load, sign: int) -> None:
        asked = load.asked
        self.pods += sign
        self._cpu += sign * asked.cpu
        self._memory += sign * asked.memory
        self._storage += sign * asked.storage
        for name, amount in asked.others:
            _change(self._others, name, sign * amount)
        for port in load.ports:
            addresses = self._ports.setdefault((port.protocol, port.number), {})
            _change(addresses, port.address, sign)
            if not addresses:
                del self._ports[port.protocol, port.number]
        for repulsion in load.repulsions:
            _change(self.repulsions, repulsion, sign)

    def shortage(
        self, load: Load, room: Mapping[str, int], untold: int, ignored: Collection[str] = ()
    ) -> NodeReason | None:
        """What the node has too little of.

        Args:
            load: what the Pod would take.
            room: what the node has to give.
            untold: stands for what ``room`` does not tell.
            ignored: resources that are not counted.
        """
        if not all(self._is_free(port) for port in load.ports):
            return NodeReason.PORTS
        if self.pods + 1 > room.get(PODS, untold):
            return NodeReason.PODS
        asked = load.asked
        # What asks for nothing fits even where too much is taken already.
        if asked.cpu and self._cpu + asked.cpu > room.get(CPU, untold):
            return NodeReason.CPU
        if asked.memory and self._memory + asked.memory > room.get(MEMORY, untold):
            return NodeReason.MEMORY
        if asked.storage and self._storage + asked.storage > room.get(STORAGE, untold):
            return NodeReason.STORAGE
        for name, amount in asked.others:
            # Who has what of the cards is told card by card, and never by less than this sum.
            taken = 0 if name in RESOURCES else self._others.get(name, 0)
            if name not in ignored and taken + amount > room.get(name, untold):
                return NodeReason.RESOURCE
        return None

    def _is_free(self, port: Port) -> bool:
        """Whether nobody has the port at an address that overlaps."""
        addresses = self._ports.get((port.protocol, port.number))
        if not addresses:
            return True
        if port.address == ANY_ADDRESS:
            return False
        return ANY_ADDRESS not in addresses and port.address not in addresses


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)


def _change(counts: dict[_K, int], key: _K, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
