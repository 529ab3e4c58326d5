"""CPU and memory of Pods and Nodes: quantities with any suffix, added up as kube-scheduler does.

Separate from what is asked of cards, where ``Gi`` and ``500m`` are refused; here they are the rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cardwise.quantity import worth
from cardwise.wire.fields import at, items, mapping


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPU in cores, memory in bytes."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def largest(self, other: "Amounts") -> "Amounts":
        """The larger of each."""
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))


NOTHING = Amounts()


def amount(value: object) -> Decimal | None:
    """Read a quantity; None for what is none, and for what is negative."""
    number = worth(value)
    return None if number is None or number < 0 else number


def asked_by(pod: Mapping[str, Any]) -> Amounts:
    """What a Pod asks of its node for its whole life, as kube-scheduler counts it.

    Regular containers and sidecars add up; an ordinary init container runs before the regular
    ones, beside the sidecars listed before it. Resources of the Pod as a whole go before the sum.
    """
    spec = mapping(pod.get("spec"))
    sidecars = peak = NOTHING
    for container in items(spec.get("initContainers")):
        asked = _of(mapping(container))
        if at(container, "restartPolicy") == "Always":
            sidecars = sidecars + asked
            peak = peak.largest(sidecars)
        else:
            peak = peak.largest(sidecars + asked)
    regular = _sum(_of(mapping(container)) for container in items(spec.get("containers")))
    total = peak.largest(sidecars + regular)
    whole = _of(spec)
    total = Amounts(whole.cpu or total.cpu, whole.memory or total.memory)
    overhead = mapping(spec.get("overhead"))
    return total + Amounts(
        amount(overhead.get("cpu")) or Decimal(0), amount(overhead.get("memory")) or Decimal(0)
    )


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    return sum(amounts, NOTHING)


def _of(thing: Mapping[str, Any]) -> Amounts:
    """The requests of a container, or of a Pod as a whole; a limit alone is a request, too."""
    return Amounts(_one(thing, "cpu"), _one(thing, "memory"))


def _one(thing: Mapping[str, Any], key: str) -> Decimal:
    for side in ("requests", "limits"):
        value = amount(at(thing, "resources", side, key))
        if value is not None:
            return value
    return Decimal(0)
