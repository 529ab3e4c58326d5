"""Pod → Request: what its containers ask, and how its annotations want it placed.

The law is docs/placement.md sections 1, 2 and 7. What can't be read is an ``InvalidRequest`` with a
sentence for the Pod's owner, never silently no request: such a Pod would start without a card.
"""

from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeVar

from cardwise import policy
from cardwise.errors import BadQuantity, BadWeights
from cardwise.model import (
    WHOLE_CORES,
    Ask,
    ContainerKind,
    InvalidRequest,
    PodRef,
    Request,
    Signature,
    Weights,
)
from cardwise.names import (
    EXCLUSIVE,
    MODES,
    NODE_POLICY,
    NOUSE_TYPE,
    NOUSE_UUID,
    NUMA_BIND,
    POLICY,
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
    TOPOLOGY,
    USE_TYPE,
    USE_UUID,
    VGPU_MODE,
    WEIGHTS,
    NodePolicy,
    TopologyMode,
)
from cardwise.settings import Defaults, Settings
from cardwise.wire.containers import amount, containers_of, named
from cardwise.wire.fields import annotations_of, at, mapping, quoted, size_of, text

USER_ANNOTATIONS: Final = (
    POLICY,
    NODE_POLICY,
    WEIGHTS,
    USE_TYPE,
    NOUSE_TYPE,
    USE_UUID,
    NOUSE_UUID,
    NUMA_BIND,
    VGPU_MODE,
    EXCLUSIVE,
    TOPOLOGY,
)
"""What a user may write on a Pod."""

_GO_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_UNKNOWN_KEPT: Final = 20
"""Unknown names of a chain, or modes, that are told of: a text of 250 KiB has tens of thousands,
and each is compared with every known name."""
_SHORT: Final = 16_384
"""Bytes of the annotations of a Pod whose signature is kept: they may come to 256 KiB."""
_FEW: Final = 16
"""Likewise, its containers."""
_WEIGHT_KEYS: Final = ("slot", "core", "memory")
_WEIGHT_DIGITS: Final = 18
"""As many digits as 64 signed bits hold for certain."""

_Choice = TypeVar("_Choice", NodePolicy, TopologyMode)


def pod_ref(pod: dict[str, Any]) -> PodRef:
    """Name a Pod; one that the API server has not named yet goes by its ``generateName``."""
    metadata = mapping(pod.get("metadata"))
    return PodRef(
        namespace=text(metadata.get("namespace")) or "default",
        name=text(metadata.get("name")) or text(metadata.get("generateName")),
        uid=text(metadata.get("uid")),
    )


def request_of(pod: dict[str, Any], settings: Settings) -> Request | InvalidRequest | None:
    """Read what a Pod asks.

    Returns:
        The request; None where no container asks for a card (its annotations then mean nothing);
        ``InvalidRequest`` where a value can't be read or is named without any card.
    """
    ref = pod_ref(pod)
    containers = containers_of(pod)
    asks: list[Ask] = []
    for container in containers:
        try:
            asks.append(_ask(container.json, container.kind, settings.defaults))
        except BadQuantity as error:
            return InvalidRequest(pod=ref, message=f"container {container.name}: {error}")
    if not any(ask.count for ask in asks):
        return None
    for key, value in mapping(at(pod, "metadata", "annotations")).items():
        if key in USER_ANNOTATIONS and not (value is None or isinstance(value, str)):
            fault = f"annotation {key} is {quoted(value)}, which is no text; put it in quotes"
            return InvalidRequest(pod=ref, message=fault)
    annotations = annotations_of(pod)
    try:
        weights = _weights(annotations.get(WEIGHTS))
    except BadWeights as error:
        return InvalidRequest(pod=ref, message=f"annotation {error}")

    reading = _Reading(annotations)
    reading.warnings.extend(
        f"container {container.name}: {RESOURCE_MEMORY_PERCENT} has no effect beside "
        f"{RESOURCE_MEMORY}"
        for container in containers
        if amount(container.json, RESOURCE_MEMORY_PERCENT)
        and amount(container.json, RESOURCE_MEMORY)
    )
    parsed = policy.parse(annotations.get(POLICY), settings.scheduling)
    reading.warnings.extend(
        f"{POLICY}: {name} is switched off in this cluster and has no effect"
        for name in parsed.disabled
    )
    signature = Signature(
        asks=tuple(asks),
        policy=parsed.policy,
        node_policy=reading.choice(NODE_POLICY, settings.scheduling.nodePolicy),
        weights=weights,
        use_types=tuple(sorted({member.lower() for member in reading.members(USE_TYPE)})),
        nouse_types=tuple(sorted({member.lower() for member in reading.members(NOUSE_TYPE)})),
        use_uuids=frozenset(reading.members(USE_UUID)),
        nouse_uuids=frozenset(reading.members(NOUSE_UUID)),
        modes=frozenset(reading.members(VGPU_MODE, MODES)),
        numa_bind=reading.boolean(NUMA_BIND),
        exclusive=reading.boolean(EXCLUSIVE),
        topology_mode=reading.choice(TOPOLOGY, settings.scheduling.topologyAware.mode),
    )
    annotation_bytes = size_of(annotations)
    if annotation_bytes <= _SHORT and len(asks) <= _FEW:
        signature = _one(signature)
    priority = at(pod, "spec", "priority")
    return Request(
        pod=ref,
        signature=signature,
        containers=tuple(container.name for container in containers),
        policy_text=annotations.get(POLICY),
        unknown_policies=parsed.unknown[:_UNKNOWN_KEPT],
        warnings=tuple(reading.warnings),
        annotation_bytes=annotation_bytes,
        priority=priority if isinstance(priority, int) else 0,
    )


@lru_cache(maxsize=256)
def _one(signature: Signature) -> Signature:
    """The same object for equal signatures: a look-up then compares none field by field."""
    return signature


def _ask(container: dict[str, Any], kind: ContainerKind, defaults: Defaults) -> Ask:
    """Read what one container asks (section 1).

    Raises:
        BadQuantity: one sentence, without the container's name.
    """
    count = amount(container, RESOURCE_COUNT)
    memory = amount(container, RESOURCE_MEMORY)
    percent = amount(container, RESOURCE_MEMORY_PERCENT)
    cores = amount(container, RESOURCE_CORES)
    # Not for placement; read, so that a value without meaning is refused and not passed on.
    amount(container, RESOURCE_PRIORITY)
    if count == 0:
        for key, number in (
            (RESOURCE_MEMORY, memory),
            (RESOURCE_MEMORY_PERCENT, percent),
            (RESOURCE_CORES, cores),
        ):
            if number:
                value = quoted(named(container, key))
                raise BadQuantity(
                    f"{key} is {value}, but the container asks for no card; add {RESOURCE_COUNT}: 1"
                )
        return Ask(kind=kind)
    if named(container, RESOURCE_CORES) is None:
        cores = defaults.cores
    if memory == 0 and percent == 0:
        memory = defaults.memoryMiB
    return Ask(
        kind=kind,
        count=count,
        memory_mib=memory,
        # One spelling for "the memory is named", so that equal requests are the same question.
        memory_percent=100 if memory else percent or 100,
        cores=min(cores, WHOLE_CORES),
    )


class _Reading:
    """Reads annotations and gathers a warning for each value without effect."""

    def __init__(self, annotations: dict[str, str]) -> None:
        self._annotations = annotations
        self.warnings: list[str] = []

    def choice(self, key: str, default: _Choice) -> _Choice:
        """One word of a set; blank, or outside the set: the default."""
        value = self._annotations.get(key, "")
        if not value:
            return default
        known = {word.value: word for word in type(default)}
        if value.strip() and value not in known:
            self._warn(key, value, f"write {' or '.join(known)}")
        return known.get(value, default)

    def boolean(self, key: str) -> bool:
        """A boolean as Go spells it; blank, or anything else: False."""
        value = self._annotations.get(key, "")
        if not value:
            return False
        if value.strip() and value not in _GO_BOOLEANS:
            self._warn(key, value, 'write "true" or "false"')
        return _GO_BOOLEANS.get(value, False)

    def members(self, key: str, known: tuple[str, ...] | None = None) -> list[str]:
        """The members of a comma list without blank ones; those not known have no effect."""
        written = self._annotations.get(key, "")
        if not written:
            return []
        members = [member for part in written.split(",") if (member := part.strip())]
        if known is None:
            return members
        unknown = dict.fromkeys(member for member in members if member not in known)
        for member in islice(unknown, _UNKNOWN_KEPT):
            self._warn(key, member, f"write one or more of {', '.join(known)}")
        return [member for member in members if member in known]

    def _warn(self, key: str, value: str, instead: str) -> None:
        self.warnings.append(f"{key}: {quoted(value)} has no effect; {instead}")


def _weights(value: str | None) -> Weights:
    """Read ``slot=1,core=1,memory=3``: all three once, digits only, not all 0 (section 1).

    Raises:
        BadWeights: one sentence that begins with the annotation's key.
    """
    if value is None:
        return Weights()
    try:
        return Weights(**_weight_numbers(value))
    except BadWeights as error:
        raise BadWeights(
            f"{WEIGHTS} is {quoted(value)}, which {error}; write slot, core and memory once each, "
            "e.g. slot=1,core=1,memory=3"
        ) from error


def _weight_numbers(value: str) -> dict[str, int]:
    if not value.strip():
        raise BadWeights("is empty")
    numbers: dict[str, int] = {}
    for part in value.split(","):
        key, _, digits = (token.strip() for token in part.partition("="))
        if key not in _WEIGHT_KEYS:
            raise BadWeights(f"has the part {quoted(part)}")
        if key in numbers:
            raise BadWeights(f"names {key} twice")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _WEIGHT_DIGITS):
            raise BadWeights(
                f"has a {key} weight that is no number of 1 to {_WEIGHT_DIGITS} digits"
            )
        numbers[key] = int(digits)
    missing = [key for key in _WEIGHT_KEYS if key not in numbers]
    if missing:
        raise BadWeights(f"leaves out {' and '.join(missing)}")
    if not any(numbers.values()):
        raise BadWeights("has only zeros")
    return numbers
