"""What the oracle reads, as plain values: sections 1, 2 and 7 of docs/placement.md.

Nothing here knows how a card is chosen; ``oracle.py`` does. Nothing here comes from Cardwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Json = Mapping[str, Any]

COUNT = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENTAGE = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"
ALLOCATED = "hami.io/vgpu-devices-allocated"
CORDON = "hami.io/device-cordon"
LARGEST = 2**31 - 1
WHOLE = 100
FILTERS = ("mutex", "topology-aware")
SORT_KEYS = ("binpack", "spread", "numa")
MODES = ("hami-core", "mig", "mps")
WEIGHTS = ("slot", "core", "memory")
PATHS = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "BOARD": 60}
TRUE = ("1", "t", "T", "TRUE", "true", "True")
QUANTITY = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]?|[eE][+-]?[0-9]+)")
EXPONENTS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
FARTHEST = 1000
"""A decimal exponent beyond this is not worth computing: the value is too large, or not whole."""


class InvalidRequestError(ValueError):
    """The Pod is refused everywhere with InvalidGPURequest (section 1)."""


class UnreadableAllocationError(ValueError):
    """The allocation text of a bound Pod cannot be read (section 9)."""


@dataclass(frozen=True)
class Container:
    """What one container asks; memory and percentage 0 mean "not named" (section 1)."""

    position: int
    kind: str
    """"init", "sidecar" or "regular"."""
    count: int
    memory: int
    percentage: int
    cores: int


@dataclass(frozen=True)
class Booking:
    """One card of one container of one Pod."""

    position: int
    kind: str
    uuid: str
    memory: int
    cores: int


@dataclass(frozen=True)
class Request:
    """All that the placement of a Pod depends on."""

    containers: tuple[Container, ...]
    namespace: str
    chain: tuple[str, ...]
    node_policy: str
    weights: Mapping[str, int]
    use_types: tuple[str, ...]
    avoid_types: tuple[str, ...]
    use_uuids: tuple[str, ...]
    avoid_uuids: tuple[str, ...]
    modes: tuple[str, ...]
    numa_bind: bool
    exclusive: bool
    topology_mode: str
    default_memory: int


@dataclass(frozen=True)
class Tenant:
    """A bound Pod with an allocation that has not ended."""

    name: str
    namespace: str
    node: str
    exclusive: bool
    readable: bool
    bookings: tuple[Booking, ...]


@dataclass(frozen=True)
class Card:
    """A card as its GPUNode reports it, defaults filled in."""

    uuid: str
    index: int
    model: str
    memory: int
    cores: int
    slots: int
    numa: int | None
    mode: str
    healthy: bool


@dataclass(frozen=True)
class Node:
    """A candidate node; no cards at all when it has no GPUNode."""

    name: str
    reported: bool
    offers: bool
    """It says that it has nvidia.com/gpu to give."""
    cards: tuple[Card, ...]
    cordoned: frozenset[str]
    links: Mapping[frozenset[int], Json] | None
    """By pair of indexes; None where no links are reported."""


# Quantities (section 1)


def decimal(value: object) -> Fraction | None:
    """The value of an integer or of a decimal quantity; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    match = QUANTITY.fullmatch(str(value))
    if not match:
        return None
    sign, digits, suffix = match.groups()
    exponent = EXPONENTS[suffix] if suffix in EXPONENTS else int(suffix[1:])
    if abs(exponent) > FARTHEST:
        return None
    amount = Fraction(digits) * Fraction(10) ** exponent
    return -amount if sign == "-" else amount


def whole_number(value: object) -> int:
    """A quantity of a request: whole and in 0..2^31-1, or the Pod is invalid."""
    amount = decimal(value)
    if amount is None or amount.denominator != 1 or not 0 <= amount <= LARGEST:
        raise InvalidRequestError(f"{value!r} is not a whole number from 0 to {LARGEST}")
    return int(amount)


def asked(container: Json, resource: str) -> int | None:
    """From limits, else from requests; None where neither names it."""
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        values = resources.get(part) or {}
        if resource in values:
            return whole_number(values[resource])
    return None


# The Pod to be placed (section 1)


def kinds(pod: Json) -> list[tuple[str, Json]]:
    """Every container with its kind, in the order of the allocation text (section 7)."""
    spec = pod["spec"]
    first = [
        ("sidecar" if container.get("restartPolicy") == "Always" else "init", container)
        for container in spec.get("initContainers") or ()
    ]
    return first + [("regular", container) for container in spec.get("containers") or ()]


def container_request(position: int, kind: str, container: Json, settings: Json) -> Container:
    """What one container asks, defaults filled in."""
    count = asked(container, COUNT) or 0
    memory = asked(container, MEMORY) or 0
    percentage = asked(container, PERCENTAGE) or 0
    cores = asked(container, CORES)
    asked(container, PRIORITY)
    if percentage > 100:
        raise InvalidRequestError(f"{percentage} percent is more than a card has")
    if count == 0 and (memory or percentage or cores):
        raise InvalidRequestError("memory or cores of a card without any card")
    if cores is None:
        cores = settings.get("defaultCores", 0)
    return Container(position, kind, count, memory, percentage, min(cores, WHOLE))


def weights(text: str | None) -> dict[str, int]:
    """``slot=1,core=1,memory=3``: all three once, digits only, not all 0."""
    if text is None:
        return dict.fromkeys(WEIGHTS, 1)
    pairs = [[word.strip() for word in part.split("=")] for part in text.split(",")]
    if any(len(pair) != 2 or not re.fullmatch("[0-9]+", pair[1]) for pair in pairs):
        raise InvalidRequestError(f"weights {text!r} are not key=digits")
    if sorted(pair[0] for pair in pairs) != sorted(WEIGHTS):
        raise InvalidRequestError(f"weights {text!r} do not name slot, core and memory once each")
    found = {key: int(digits) for key, digits in pairs}
    if not any(found.values()):
        raise InvalidRequestError(f"weights {text!r} are all 0")
    return found


def members(text: str | None) -> tuple[str, ...]:
    """A comma list: trimmed, blank members dropped."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def one_of(text: str | None, allowed: Iterable[str], otherwise: str) -> str:
    """A value outside its set has no effect."""
    return text if text is not None and text in allowed else otherwise


def known_names(text: str | None, settings: Json) -> tuple[str, ...]:
    """Section 2.1: known names only, the first of duplicates; a disabled name is not known."""
    enabled = settings.get("topologyEnabled", True)
    known = [name for name in FILTERS + SORT_KEYS if enabled or name != "topology-aware"]
    return tuple(dict.fromkeys(name for name in members(text) if name in known))


def chain(text: str | None, settings: Json) -> tuple[str, ...]:
    """Section 2.1: the Pod's chain, else the cluster's, else spread."""
    cluster = settings.get("cardPolicy", "spread")
    return known_names(text, settings) or known_names(cluster, settings) or ("spread",)


def sort_keys(names: tuple[str, ...]) -> tuple[str, ...]:
    """Sections 2.3, 2.5 and 2.6; the index comes after all of these (2.4)."""
    written = tuple(name for name in names if name in SORT_KEYS) or ("spread",)
    return (*written, "numa") if len(names) == 1 and names != ("numa",) else written


def annotations_of(obj: Json) -> Json:
    """The annotations of any object, {} where there are none."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def namespace_of(obj: Json) -> str:
    """The namespace of any object."""
    return obj["metadata"].get("namespace") or "default"


def request_of(pod: Json, settings: Json) -> Request | None:
    """Section 1; None for a Pod that asks for no card."""
    containers = tuple(
        container_request(position, kind, container, settings)
        for position, (kind, container) in enumerate(kinds(pod))
    )
    if not any(container.count for container in containers):
        return None
    notes = annotations_of(pod)
    modes = members(notes.get("nvidia.com/vgpu-mode"))
    return Request(
        containers=containers,
        namespace=namespace_of(pod),
        chain=chain(notes.get("hami.io/gpu-scheduler-policy"), settings),
        node_policy=one_of(
            notes.get("hami.io/node-scheduler-policy"),
            ("binpack", "spread"),
            settings.get("nodePolicy", "binpack"),
        ),
        weights=weights(notes.get("hami.io/device-scoring-weights")),
        use_types=members(notes.get("nvidia.com/use-gputype")),
        avoid_types=members(notes.get("nvidia.com/nouse-gputype")),
        use_uuids=members(notes.get("nvidia.com/use-gpuuuid")),
        avoid_uuids=members(notes.get("nvidia.com/nouse-gpuuuid")),
        modes=tuple(mode for mode in modes if mode in MODES),
        numa_bind=notes.get("nvidia.com/numa-bind") in TRUE,
        exclusive=notes.get("cardwise.dev/exclusive") in TRUE,
        topology_mode=one_of(
            notes.get("cardwise.dev/topology"),
            ("required", "preferred"),
            settings.get("topologyMode", "required"),
        ),
        default_memory=settings.get("defaultMemoryMiB", 0),
    )


# Bound Pods (sections 7 and 9)


def allocation_piece(piece: str) -> tuple[str, int, int]:
    """``UUID,NVIDIA,MiB,cores``, further fields ignored."""
    fields = piece.split(",")
    if len(fields) < 4 or not re.fullmatch("[!-~]{1,128}", fields[0]):
        raise UnreadableAllocationError(piece)
    if not all(re.fullmatch("[0-9]+", number) for number in fields[2:4]):
        raise UnreadableAllocationError(piece)
    memory, cores = int(fields[2]), int(fields[3])
    if max(memory, cores) > LARGEST:
        raise UnreadableAllocationError(piece)
    return fields[0], memory, cores


def segments(text: str) -> list[list[tuple[str, int, int]]]:
    """The cards of each container; the ``;`` that ends the text opens no further segment."""
    parts = text.split(";")
    if not parts[-1].strip():
        parts.pop()
    return [
        [allocation_piece(piece) for piece in part.split(":") if piece.strip()] for part in parts
    ]


def asks_cards(container: Json) -> bool:
    """Whether a container of a bound Pod asks for cards; a count nobody can read asks none."""
    try:
        return bool(asked(container, COUNT))
    except InvalidRequestError:
        return False


def bookings_of(pod: Json) -> tuple[Booking, ...]:
    """Section 7, its last paragraph: a text that does not match the Pod counts whole, summed."""
    containers = kinds(pod)
    found = segments(annotations_of(pod)[ALLOCATED])
    matches = len(found) >= len(containers) and all(
        not cards or (position < len(containers) and asks_cards(containers[position][1]))
        for position, cards in enumerate(found)
    )
    return tuple(
        Booking(position, containers[position][0] if matches else "regular", *card)
        for position, cards in enumerate(found)
        for card in cards
    )


def is_tenant(pod: Json) -> bool:
    """Section 9: only a bound Pod's annotation is a booking, until the Pod has ended."""
    phase = (pod.get("status") or {}).get("phase")
    bound = bool((pod.get("spec") or {}).get("nodeName"))
    return bound and ALLOCATED in annotations_of(pod) and phase not in ("Succeeded", "Failed")


def tenant_of(pod: Json) -> Tenant:
    """A bound Pod; one whose text cannot be read books nothing and says so."""
    try:
        bookings, readable = bookings_of(pod), True
    except UnreadableAllocationError:
        bookings, readable = (), False
    namespace = namespace_of(pod)
    return Tenant(
        name=f"{namespace}/{pod['metadata']['name']}",
        namespace=namespace,
        node=pod["spec"]["nodeName"],
        exclusive=annotations_of(pod).get("cardwise.dev/exclusive-held") == "true",
        readable=readable,
        bookings=bookings,
    )


def same_pod(one: Json, other: Json) -> bool:
    """The same uid, or the same namespace and name."""
    a, b = one["metadata"], other["metadata"]
    by_uid = bool(a.get("uid")) and a.get("uid") == b.get("uid")
    return by_uid or (namespace_of(one), a.get("name")) == (namespace_of(other), b.get("name"))


# Nodes


def given(obj: Json, key: str, otherwise: Any) -> Any:
    """The value of a field, or its default where the field is absent."""
    value = obj.get(key)
    return otherwise if value is None else value


def card_of(card: Json) -> Card:
    """One card of a GPUNode's status."""
    return Card(
        uuid=card["uuid"],
        index=card["index"],
        model=given(card, "model", ""),
        memory=card["memoryMiB"],
        cores=given(card, "cores", 100),
        slots=given(card, "slots", 10),
        numa=card.get("numaNode"),
        mode=given(card, "mode", "hami-core"),
        healthy=given(card, "healthy", True),
    )


def node_of(name: str, gpunode: Json | None, node: Json | None) -> Node:
    """A candidate from its GPUNode and its Node, either of which may be missing."""
    status = (gpunode or {}).get("status") or {}
    spec = (gpunode or {}).get("spec") or {}
    links = status.get("links")
    allocatable = ((node or {}).get("status") or {}).get("allocatable") or {}
    return Node(
        name=name,
        reported=gpunode is not None,
        offers=(decimal(allocatable.get(COUNT)) or 0) > 0,
        cards=tuple(sorted(map(card_of, status.get("cards") or ()), key=lambda card: card.index)),
        cordoned=frozenset(spec.get("cordonedCards") or ())
        | frozenset(members(annotations_of(node or {}).get(CORDON))),
        links=None if links is None else {frozenset(link["between"]): link for link in links},
    )


def nodes_of(gpunodes: Iterable[Json], nodes: Iterable[Json]) -> list[Node]:
    """All candidates, by name."""
    reports = {report["metadata"]["name"]: report for report in gpunodes}
    machines = {node["metadata"]["name"]: node for node in nodes}
    names = sorted({*reports, *machines})
    return [node_of(name, reports.get(name), machines.get(name)) for name in names]


# Quota (section 8)


def quota_bounds(quotas: Iterable[Json], namespace: str) -> dict[str, Fraction]:
    """The lowest bound for "memory" and for "cores"; a key is absent where nothing bounds it."""
    found: dict[str, Fraction] = {}
    for quota in quotas:
        hard = (quota.get("spec") or {}).get("hard") or {}
        for what, key in (("memory", f"limits.{MEMORY}"), ("cores", f"limits.{CORES}")):
            bound = decimal(hard.get(key))
            if namespace_of(quota) == namespace and bound is not None:
                found[what] = min(bound, found.get(what, bound))
    return found
