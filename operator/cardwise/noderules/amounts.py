"""What a Pod asks of its node besides cards, in whole numbers, added up as kube-scheduler does.

CPU is in thousandths, everything else in units (bytes, pieces). Quantities are summed exactly, in
billionths as the API server keeps them, and the sum is rounded up once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context
from functools import lru_cache
from typing import Any, Final

from cardwise.quantity import worth
from cardwise.wire.fields import at, items, mapping

CPU: Final = "cpu"
MEMORY: Final = "memory"
STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_EXACT: Final = Context(prec=200)
_LONGEST: Final = 140
"""No quantity is longer as text; what is would only fill the cache."""
_MILLI: Final = 10**6
_UNIT: Final = 10**9
_UNQUALIFIED: Final = ("hugepages-", "attachable-volumes-")
_OF_THE_WHOLE_POD: Final = (CPU, MEMORY)

Billionths = dict[str, int]


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPU in thousandths, memory and ephemeral storage in bytes, and what else is counted."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0
    others: tuple[tuple[str, int], ...] = ()
    """Huge pages in bytes and extended resources in pieces, by name; none of them is 0."""


_interned = lru_cache(maxsize=10_000)(Amounts)


def asked_by(pod: Mapping[str, Any]) -> Amounts:
    """What a Pod asks of its node for its whole life.

    While a running Pod is being resized, the largest of what it was given and what it asks counts.
    """
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    total = _of_containers(spec, lambda container: _asked(container.get("resources")))
    whole = _of_the_whole(spec, total)
    statuses = {
        at(each, "name"): mapping(each)
        for key in ("containerStatuses", "initContainerStatuses")
        for each in items(status.get(key))
        if isinstance(at(each, "name"), str)
    }
    # A Pod that waits has no such status, and most that run were never resized.
    if any("allocatedResources" in each or "resources" in each for each in statuses.values()):
        total, whole = _while_resizing(spec, status, statuses, total, whole)
    for key, amount in whole.items():
        total[key] = amount
    _add(total, _billionths_in(spec.get("overhead")))
    return _rounded(total)


def allocatable_of(node: Mapping[str, Any]) -> dict[str, int]:
    """What a Node has to give, by resource, in the same units."""
    status = mapping(node.get("status"))
    told = mapping(status.get("allocatable")) or mapping(status.get("capacity"))
    return {key: _in_units(key, amount) for key, amount in _billionths_in(told).items()}


def billionths(value: object) -> int | None:
    """Read a quantity; None for what is none, and for what is negative."""
    if not isinstance(value, str):
        return _exactly(value)
    return _of_text(value) if len(value) <= _LONGEST else None


def _exactly(value: object) -> int | None:
    number = worth(value)
    return None if number is None or number < 0 else math.ceil(number.scaleb(9, _EXACT))


_of_text: Callable[[str], int | None] = lru_cache(maxsize=4096)(_exactly)


def _billionths_in(amounts: object) -> Billionths:
    """The amounts of a resource list that a node is asked for."""
    return {
        key: read
        for key, value in mapping(amounts).items()
        if _is_counted(key) and (read := billionths(value)) is not None
    }


@lru_cache(maxsize=4096)
def _is_counted(key: str) -> bool:
    return key in (CPU, MEMORY, STORAGE, PODS) or "/" in key or key.startswith(_UNQUALIFIED)


def _asked(resources: object) -> Billionths:
    """The requests of a container; a limit alone is a request, as the API server writes it."""
    limits, requests = at(resources, "limits"), at(resources, "requests")
    if not limits:
        return _billionths_in(requests)
    return {**_billionths_in(limits), **_billionths_in(requests)}


def _of_containers(
    spec: Mapping[str, Any], amounts: Callable[[Mapping[str, Any]], Billionths]
) -> Billionths:
    """What all containers come to.

    Regular containers and sidecars add up; an ordinary init container runs before the regular
    ones, beside the sidecars listed before it.
    """
    total: Billionths = {}
    for container in items(spec.get("containers")):
        _add(total, amounts(mapping(container)))
    sidecars: Billionths = {}
    peak: Billionths = {}
    for item in items(spec.get("initContainers")):
        container = mapping(item)
        asked = amounts(container)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            _raise(peak, sidecars)
        else:
            _add(asked, sidecars)
            _raise(peak, asked)
    _raise(total, peak)
    return total


def _of_the_whole(spec: Mapping[str, Any], total: Billionths) -> Billionths:
    """The requests of the Pod as a whole, which go before the sum of its containers.

    Where the whole has a limit only, the API server writes what the containers ask as its request,
    or the limit where they ask for nothing.
    """
    resources = spec.get("resources")
    if resources is None:
        return {}
    limits = {
        key: amount
        for key, amount in _billionths_in(at(resources, "limits")).items()
        if key not in total
    }
    whole = {**limits, **_billionths_in(at(resources, "requests"))}
    return {key: amount for key, amount in whole.items() if _can_be_of_the_whole(key)}


def _can_be_of_the_whole(key: str) -> bool:
    return key in _OF_THE_WHOLE_POD or key.startswith("hugepages-")


def _while_resizing(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    statuses: Mapping[object, Mapping[str, Any]],
    total: Billionths,
    whole: Billionths,
) -> tuple[Billionths, Billionths]:
    """What counts of the containers, and of the Pod as a whole, where kubelet has told its part."""
    infeasible = any(
        at(each, "type") == "PodResizePending"
        and at(each, "status") == "True"
        and at(each, "reason") == "Infeasible"
        for each in items(status.get("conditions"))
    )

    def asked(container: Mapping[str, Any]) -> Billionths:
        return {} if infeasible else _asked(container.get("resources"))

    def allocated(container: Mapping[str, Any]) -> Billionths:
        told = statuses.get(container.get("name"), {})
        given = told.get("allocatedResources")
        return asked(container) if given is None else _billionths_in(given)

    def actual(container: Mapping[str, Any]) -> Billionths:
        told = statuses.get(container.get("name"), {})
        given = at(told, "resources", "requests")
        return allocated(container) if given is None else _billionths_in(given)

    of_pod = (at(status, "resources", "requests"), status.get("allocatedResources"))
    if None not in of_pod:
        told = [_billionths_in(each) for each in of_pod]
    else:
        told = [_of_containers(spec, allocated), _of_containers(spec, actual)]
    counted: Billionths = {} if infeasible else total
    for each in told:
        _raise(counted, each)
    if whole and at(status, "resources") is not None:
        whole = {} if infeasible else whole
        for of_whole in of_pod:
            _raise(
                whole,
                {k: v for k, v in _billionths_in(of_whole).items() if _can_be_of_the_whole(k)},
            )
    return counted, whole


def _add(amounts: Billionths, more: Billionths) -> None:
    for key, amount in more.items():
        amounts[key] = amounts.get(key, 0) + amount


def _raise(amounts: Billionths, floor: Billionths) -> None:
    for key, amount in floor.items():
        amounts[key] = max(amounts.get(key, 0), amount)


def _rounded(total: Billionths) -> Amounts:
    others = tuple(
        (key, _in_units(key, amount))
        for key, amount in sorted(total.items())
        if amount and key not in (CPU, MEMORY, STORAGE, PODS)
    )
    cpu, memory, storage = (_in_units(key, total.get(key, 0)) for key in (CPU, MEMORY, STORAGE))
    return _interned(cpu, memory, storage, others)


def _in_units(key: str, amount: int) -> int:
    return -(-amount // (_MILLI if key == CPU else _UNIT))
