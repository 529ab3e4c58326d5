"""The containers of a Pod's JSON, and what each names of our resources.

The law is docs/placement.md section 1. Below the readers of requests, of bookings and of admission,
which must agree on the order of the containers and on what a value means.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cardwise.errors import BadQuantity
from cardwise.model import ContainerKind
from cardwise.names import (
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
    RESOURCES,
)
from cardwise.quantity import mebibytes, whole
from cardwise.wire.fields import at, items, mapping, quoted, text

_EXAMPLE_MIB: Final = 4096
_INSTEAD: Final = {
    RESOURCE_COUNT: f"write the number of cards, e.g. {RESOURCE_COUNT}: 1",
    RESOURCE_MEMORY: f"write the number of MiB per card, e.g. {RESOURCE_MEMORY}: {{mib}}",
    RESOURCE_MEMORY_PERCENT: (
        f"write the percentage of a card's memory, 1 to 100, e.g. {RESOURCE_MEMORY_PERCENT}: 50"
    ),
    RESOURCE_CORES: f"write the percentage of a card, 0 to 100, e.g. {RESOURCE_CORES}: 30",
    RESOURCE_PRIORITY: f"write 0 (high) or 1 (low), e.g. {RESOURCE_PRIORITY}: 1",
}


class Container(NamedTuple):
    """One container of a Pod, where it stands and what it is."""

    name: str
    """For people: one without a name that can be shown is called by its place in the Pod."""
    kind: ContainerKind
    json: dict[str, Any]
    """The Pod's own object, not a copy: admission writes into it."""


def containers_of(pod: object) -> list[Container]:
    """The containers in annotation order: init containers first, then regular ones."""
    return [*_listed(pod, "initContainers"), *_listed(pod, "containers")]


def _listed(pod: object, key: str) -> Iterator[Container]:
    for position, item in enumerate(items(at(pod, "spec", key))):
        container = mapping(item)
        kind = ContainerKind.REGULAR
        if key == "initContainers":
            # A restart policy of its own makes an init container a native sidecar (section 7).
            always = container.get("restartPolicy") == "Always"
            kind = ContainerKind.SIDECAR if always else ContainerKind.INIT
        name = text(container.get("name"))
        if not (name and name.isprintable()):  # no API server keeps such a one
            name = f"{key}[{position}]"
        yield Container(name, kind, container)


def named(container: dict[str, Any], key: str) -> object:
    """The value of a resource, from the limits, else the requests; None: not named."""
    resources = mapping(container.get("resources"))
    limit: object = mapping(resources.get("limits")).get(key)
    return mapping(resources.get("requests")).get(key) if limit is None else limit


def names_ours(container: dict[str, Any]) -> bool:
    """Whether a container names any of our resources, whatever the value."""
    return any(named(container, key) is not None for key in RESOURCES)


def amount(container: dict[str, Any], key: str) -> int:
    """What a container names of a resource; 0 where it names nothing.

    Raises:
        BadQuantity: one sentence naming key, value and what to write instead, without the
            container.
    """
    value = named(container, key)
    if value is None:
        return 0
    try:
        number = whole(value)
    except BadQuantity as error:
        raise BadQuantity(_sentence(key, value, str(error))) from error
    if key == RESOURCE_MEMORY_PERCENT and number > 100:
        raise BadQuantity(_sentence(key, value, "is above 100"))
    return number


def count_of(container: dict[str, Any]) -> int:
    """How many cards a container asks; 0 where the number can't be read."""
    try:
        return amount(container, RESOURCE_COUNT)
    except BadQuantity:
        return 0


def _sentence(key: str, value: object, fault: str) -> str:
    instead = _INSTEAD[key].format(mib=mebibytes(value) or _EXAMPLE_MIB)
    return f"{key} is {quoted(value)}, which {fault}; {instead}"
