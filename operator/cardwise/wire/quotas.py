"""ResourceQuota → bounds on the GPU use of a namespace (docs/placement.md section 8).

The API server accepts ``limits.nvidia.com/…`` in a quota and never counts them; we do.
"""

from collections.abc import Iterable
from typing import Any

from cardwise.errors import BadQuantity
from cardwise.model import QuotaBound
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY
from cardwise.quantity import mebibytes, whole
from cardwise.wire.fields import at, items, mapping, quoted, text


def bound_of(quota: dict[str, Any]) -> QuotaBound:
    """Read the two bounds, MiB and percent of a card; 0 blocks, absent is no bound.

    A value that can't be read is no bound either, and ``warnings_of`` says so: as 0 it would stop
    a namespace without a word of why.
    """
    name = text(at(quota, "metadata", "name"))
    return QuotaBound(
        memory_mib=_bound(quota, QUOTA_MEMORY),
        cores=_bound(quota, QUOTA_CORES),
        memory_quota=name,
        cores_quota=name,
    )


def is_scoped(quota: dict[str, Any]) -> bool:
    """Whether it is meant for some Pods only; the bounds hold for all Pods nevertheless."""
    return bool(items(at(quota, "spec", "scopes")) or mapping(at(quota, "spec", "scopeSelector")))


def merge(bounds: Iterable[QuotaBound]) -> QuotaBound:
    """The bound of several quotas: the lowest of each, and whose that is."""
    known = list(bounds)
    memory = [(b.memory_mib, b.memory_quota) for b in known if b.memory_mib is not None]
    cores = [(b.cores, b.cores_quota) for b in known if b.cores is not None]
    least_memory, memory_quota = min(memory, default=(None, ""))
    least_cores, cores_quota = min(cores, default=(None, ""))
    return QuotaBound(
        memory_mib=least_memory,
        cores=least_cores,
        memory_quota=memory_quota,
        cores_quota=cores_quota,
    )


def warnings_of(quota: dict[str, Any]) -> tuple[str, ...]:
    """Sentences about what of a quota has no effect; none for a quota that does not name us."""
    named = [key for key in (QUOTA_MEMORY, QUOTA_CORES) if _hard(quota).get(key) is not None]
    told = [warning for key in named if (warning := _unreadable(quota, key))]
    if named and is_scoped(quota):
        told.append(
            f"ResourceQuota {_title(quota)}: its scopes have no effect on {' and '.join(named)}; "
            "the bound holds for all Pods of the namespace"
        )
    told += [
        f"ResourceQuota {_title(quota)}: {other} does not count what each card takes; write {key}"
        for key in (QUOTA_MEMORY, QUOTA_CORES)
        for other in _counted_otherwise(key)
        if _hard(quota).get(other) is not None and _hard(quota).get(key) is None
    ]
    return tuple(told)


def _counted_otherwise(key: str) -> tuple[str, str]:
    """Keys that the API server takes, too: it counts the first once a container, the other not."""
    resource = key.removeprefix("limits.")
    return f"requests.{resource}", resource


def _hard(quota: dict[str, Any]) -> dict[str, Any]:
    return mapping(at(quota, "spec", "hard"))


def _bound(quota: dict[str, Any], key: str) -> int | None:
    value = _hard(quota).get(key)
    try:
        return None if value is None else whole(value)
    except BadQuantity:
        return None


def _unreadable(quota: dict[str, Any], key: str) -> str | None:
    """Say why a bound can't be read and what to write; None where it can."""
    value = _hard(quota)[key]
    try:
        whole(value)
    except BadQuantity as error:
        meant = mebibytes(value) if key == QUOTA_MEMORY else None
        unit = "MiB" if key == QUOTA_MEMORY else "percent of a card"
        example = f", e.g. {meant}" if meant is not None else ""
        return (
            f"ResourceQuota {_title(quota)}: {key} is {quoted(value)}, which {error}, so it is no "
            f"bound; write a whole number ({unit}){example}"
        )
    return None


def _title(quota: dict[str, Any]) -> str:
    return f"{text(at(quota, 'metadata', 'namespace'))}/{text(at(quota, 'metadata', 'name'))}"
