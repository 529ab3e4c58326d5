"""What kube-scheduler itself would refuse a node for, where a Node document tells of it.

In a cluster these rules are kube-scheduler's own and such a node never reaches Cardwise; a
simulated one has no kube-scheduler. The words stand in ``nodes[].reason`` of ``cardwise simulate``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from cardwise.cli.amounts import NOTHING, Amounts, amount, asked_by
from cardwise.wire.fields import at, items, mapping, text

_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_RULES_KEPT = 1000
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


class NodeReason(StrEnum):
    """Why a node is no candidate, in the order in which kube-scheduler looks."""

    UNSCHEDULABLE = "NodeUnschedulable"
    """It is cordoned (``spec.unschedulable``), and the Pod does not tolerate that."""
    TAINT = "TaintNotTolerated"
    """A taint ``NoSchedule`` or ``NoExecute`` that no toleration of the Pod matches."""
    AFFINITY = "NodeAffinityMismatch"
    """The Pod's nodeSelector or required node affinity does not match the node."""
    PODS = "TooManyPods"
    """As many Pods as it takes (``status.allocatable.pods``)."""
    CPU = "InsufficientCpu"
    """Allocatable less the requests of its Pods is less than the Pod requests."""
    MEMORY = "InsufficientMemory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint that keeps Pods away."""

    key: str
    value: str
    effect: str


class Needs:
    """What a Pod needs of a node besides cards, read once for all nodes."""

    __slots__ = ("asked", "rules", "selector", "terms", "tolerations")

    def __init__(self, pod: Mapping[str, Any]) -> None:
        """Read a Pod."""
        spec = mapping(pod.get("spec"))
        self.asked = asked_by(pod)
        self.tolerations = [mapping(toleration) for toleration in items(spec.get("tolerations"))]
        self.selector = mapping(spec.get("nodeSelector"))
        required = at(
            spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
        )
        # Terms are alternatives: with none at all, no node will do.
        self.terms = None
        if required is not None:
            self.terms = [mapping(term) for term in items(at(required, "nodeSelectorTerms"))]
        rules = (self.tolerations, self.selector, self.terms)
        self.rules = json.dumps(rules, sort_keys=True, default=str)
        """Equal for Pods that the same nodes are out of the question for, whatever their room."""


class NodeRoom:
    """One Node document, and what its Pods have taken of it."""

    def __init__(self, node: Mapping[str, Any]) -> None:
        """Read a Node; what it does not say is no bound."""
        spec, metadata = mapping(node.get("spec")), mapping(node.get("metadata"))
        self._name = text(metadata.get("name"))
        self._labels = {
            key: value
            for key, value in mapping(metadata.get("labels")).items()
            if isinstance(value, str)
        }
        self._unschedulable = spec.get("unschedulable") is True
        self._taints = [
            Taint(
                key=text(at(taint, "key")),
                value=text(at(taint, "value")),
                effect=text(at(taint, "effect")),
            )
            for taint in items(spec.get("taints"))
            if at(taint, "effect") in _HARD_EFFECTS
        ]
        status = mapping(node.get("status"))
        room = mapping(status.get("allocatable")) or mapping(status.get("capacity"))
        self._cpu = amount(room.get("cpu"))
        self._memory = amount(room.get("memory"))
        self._pods = amount(room.get("pods"))
        self._taken = NOTHING
        self._count = 0

    def take(self, needs: Needs) -> None:
        """Count a Pod that is bound here."""
        self._taken = self._taken + needs.asked
        self._count += 1

    def refusal(self, needs: Needs) -> NodeReason | None:
        """Why a Pod can't go to this node, whatever its cards; None when it can."""
        return self.lasting_refusal(needs) or self.shortage(needs.asked)

    def lasting_refusal(self, needs: Needs) -> NodeReason | None:
        """Why it can't however idle the node is; it depends on ``needs.rules`` alone."""
        if self._unschedulable and not _tolerated(_CORDON, needs.tolerations):
            return NodeReason.UNSCHEDULABLE
        if not all(_tolerated(taint, needs.tolerations) for taint in self._taints):
            return NodeReason.TAINT
        if not self._is_wanted(needs):
            return NodeReason.AFFINITY
        return None

    def shortage(self, asked: Amounts) -> NodeReason | None:
        """What the node has too little of now."""
        if self._pods is not None and self._count + 1 > self._pods:
            return NodeReason.PODS
        # What asks for nothing fits even where too much is taken already.
        if asked.cpu and self._cpu is not None and self._taken.cpu + asked.cpu > self._cpu:
            return NodeReason.CPU
        memory = self._memory
        if asked.memory and memory is not None and self._taken.memory + asked.memory > memory:
            return NodeReason.MEMORY
        return None

    def _is_wanted(self, needs: Needs) -> bool:
        if any(self._labels.get(key) != value for key, value in needs.selector.items()):
            return False
        return needs.terms is None or any(self._matches(term) for term in needs.terms)

    def _matches(self, term: Mapping[str, Any]) -> bool:
        """Whether all expressions of one term hold; an empty term matches nothing."""
        expressions = [
            (self._labels, mapping(each)) for each in items(term.get("matchExpressions"))
        ]
        fields = {"metadata.name": self._name}
        expressions += [(fields, mapping(each)) for each in items(term.get("matchFields"))]
        return bool(expressions) and all(_holds(each, values) for values, each in expressions)


_CORDON = Taint(key=_UNSCHEDULABLE_TAINT, value="", effect="NoSchedule")


class Rooms:
    """All Node documents. A node without one has no rule and no bound."""

    def __init__(self, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Read all Node documents, by name."""
        self._rooms = {name: NodeRoom(node) for name, node in nodes.items()}
        # Replicas ask the same of a thousand nodes, and only the room changes in between.
        self._lasting: dict[str, dict[str, NodeReason]] = {}

    def take(self, name: str, needs: Needs) -> None:
        """Count a Pod that is bound to a node."""
        if (room := self._rooms.get(name)) is not None:
            room.take(needs)

    def refusals(self, needs: Needs) -> dict[str, NodeReason]:
        """The nodes that a Pod can't go to, whatever their cards, and why."""
        lasting = self._lasting.get(needs.rules)
        if lasting is None:
            if len(self._lasting) >= _RULES_KEPT:
                self._lasting.clear()
            lasting = self._lasting[needs.rules] = {
                name: word
                for name, room in self._rooms.items()
                if (word := room.lasting_refusal(needs)) is not None
            }
        return {
            name: word
            for name, room in self._rooms.items()
            if (word := lasting.get(name) or room.shortage(needs.asked)) is not None
        }


def _tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """An empty effect means all effects; an empty key with ``Exists`` means all taints."""
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint.key)
    if key != taint.key:
        return False
    value = toleration.get("value") or ""
    if operator in ("Lt", "Gt"):
        return _compares(operator, value, taint.value)
    return bool(operator == "Equal" and value == taint.value)


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    """Whether one expression of a node selector holds; one that can't be read does not."""
    key, operator = text(expression.get("key")), expression.get("operator")
    wanted = [value for value in items(expression.get("values")) if isinstance(value, str)]
    have = values.get(key)
    match operator:
        case "In":
            return have in wanted
        case "NotIn":
            return have not in wanted
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
        case "Gt" | "Lt" if have is not None and len(wanted) == 1:
            return _compares(operator, wanted[0], have)
    return False


def _compares(operator: str, bound: object, value: str) -> bool:
    """``value > bound`` for Gt, ``value < bound`` for Lt; both must be whole numbers."""
    numbers = list(_integers((bound, value)))
    if len(numbers) != 2:
        return False
    limit, have = numbers
    return have > limit if operator == "Gt" else have < limit


def _integers(values: Iterable[object]) -> Iterator[Decimal]:
    for value in values:
        digits = value.removeprefix("-") if isinstance(value, str) else ""
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            yield Decimal(str(value))
