"""What admission adds to the containers of a Pod, and takes back when it is called again.

Apart from admission, which judges: this only writes JSON. Every addition is recorded in the
annotation ``cardwise.dev/defaulted`` (``CONTAINER:WHAT=VALUE``, a comma list). When another webhook
changed the Pod after us, an addition may no longer be right: what still stands as it was added is
taken back first, and everything is worked out anew (docs/admission.md).
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cardwise.errors import BadQuantity
from cardwise.model import WHOLE_CORES
from cardwise.names import (
    DEFAULTED,
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
)
from cardwise.quantity import whole
from cardwise.settings import Defaults, Settings
from cardwise.wire.containers import Container, amount, containers_of, count_of, named
from cardwise.wire.fields import annotations_of, at, text

ENV_PRIORITY: Final = "CUDA_TASK_PRIORITY"
ENV_CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
ENV_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"

_ADDED_RESOURCES: Final = (RESOURCE_COUNT, RESOURCE_CORES)
_ADDED_ENV: Final = (ENV_PRIORITY, ENV_CORE_POLICY, ENV_VISIBLE)
_CONTAINER_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Added(NamedTuple):
    """One addition: a limit, or a variable of the environment."""

    container: str
    what: str
    value: str

    def __str__(self) -> str:
        return f"{self.container}:{self.what}={self.value}"


def with_defaults(pod: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """A copy of a Pod with the limits and variables that its containers leave out."""
    changed = copy.deepcopy(pod)
    containers = containers_of(changed)
    uses = Counter(container.name for container in containers)
    earlier = frozenset(_recorded(annotations_of(changed).get(DEFAULTED, "")))
    added: list[Added] = []
    for container in containers:
        added.extend(_default_resources(container, earlier, settings.defaults))
    # Variables are for Pods with cards, which is known only now that all counts are there.
    has_cards = any(count_of(container.json) for container in containers)
    for container in containers:
        wanted = _wanted_env(container.json, settings) if has_cards else {}
        added.extend(_default_env(container, earlier, wanted))
    _record(
        changed,
        # What a name does not point out could not be found again.
        [
            entry
            for entry in added
            if uses[entry.container] == 1 and _CONTAINER_NAME.fullmatch(entry.container)
        ],
    )
    return changed


def child(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key, put there where none is."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    found: dict[str, Any] = parent[key]
    return found


def _recorded(listed: str) -> Iterator[Added]:
    """Read what was added earlier; an entry that we can't have made is skipped."""
    for entry in listed.split(","):
        container, _, rest = entry.partition(":")
        what, _, value = rest.partition("=")
        if what in (*_ADDED_RESOURCES, *_ADDED_ENV):
            yield Added(container, what, value)


def _record(pod: dict[str, Any], added: list[Added]) -> None:
    if added:
        entries = ",".join(str(entry) for entry in added)
        child(child(pod, "metadata"), "annotations")[DEFAULTED] = entries
    elif DEFAULTED in annotations_of(pod):
        del pod["metadata"]["annotations"][DEFAULTED]


# Limits -------------------------------------------------------------------------------------------


def _default_resources(
    container: Container, earlier: frozenset[Added], defaults: Defaults
) -> Iterator[Added]:
    """Add the count of cards and the whole card's cores where they are left out."""
    resources = container.json.get("resources")
    if not isinstance(resources, dict):
        return
    requested = [key for key in _ADDED_RESOURCES if _take_back(container, key, earlier)]
    for key, value in _missing(container.json, defaults):
        child(resources, "limits")[key] = value
        if key in requested:
            resources["requests"][key] = value
        yield Added(container.name, key, value)


def _missing(container: dict[str, Any], defaults: Defaults) -> Iterator[tuple[str, str]]:
    """What a container leaves out; the second rule sees what the first one added."""
    part_of_a_card = (RESOURCE_MEMORY, RESOURCE_MEMORY_PERCENT, RESOURCE_CORES)
    if (
        named(container, RESOURCE_COUNT) is None
        and defaults.gpuCount
        and any(_amount(container, key) for key in part_of_a_card)
    ):
        yield RESOURCE_COUNT, str(defaults.gpuCount)
    if (
        count_of(container)
        and named(container, RESOURCE_CORES) is None
        and takes_whole_memory(container, defaults)
    ):
        yield RESOURCE_CORES, str(WHOLE_CORES)


def takes_whole_memory(container: dict[str, Any], defaults: Defaults) -> bool:
    """Whether a container that asks for cards asks all of their memory."""
    percent = _amount(container, RESOURCE_MEMORY_PERCENT)
    if percent == 0:
        return _amount(container, RESOURCE_MEMORY) == 0 and defaults.memoryMiB == 0
    return percent == 100 and _amount(container, RESOURCE_MEMORY) == 0


def _take_back(container: Container, key: str, earlier: frozenset[Added]) -> bool:
    """Remove a limit that still is as it was added.

    Returns:
        Whether a request stood beside it: the API server makes requests out of limits, so ours
        goes and comes back with its limit.
    """
    limit = at(container.json, "resources", "limits", key)
    added = [e.value for e in earlier if e.container == container.name and e.what == key]
    if limit is None or not any(_same(limit, value) for value in added):
        return False
    resources = container.json["resources"]
    del resources["limits"][key]
    if not _same(at(resources, "requests", key), limit):
        return False
    del resources["requests"][key]
    return True


def _same(one: object, other: object) -> bool:
    """Whether two quantities are worth the same; what can't be read equals nothing."""
    try:
        return whole(one) == whole(other)
    except BadQuantity:
        return False


def _amount(container: dict[str, Any], key: str) -> int:
    """What is named of a resource; 0 for what the request's reader will refuse."""
    try:
        return amount(container, key)
    except BadQuantity:
        return 0


# Environment --------------------------------------------------------------------------------------


def _wanted_env(container: dict[str, Any], settings: Settings) -> dict[str, str]:
    """The variables that a container of a Pod with cards should have."""
    wanted: dict[str, str] = {}
    if named(container, RESOURCE_PRIORITY) is not None:
        wanted[ENV_PRIORITY] = str(_amount(container, RESOURCE_PRIORITY))
    policy = settings.admission.coreUtilizationPolicy
    if count_of(container) and policy not in ("", "default"):
        wanted[ENV_CORE_POLICY] = policy
    if not count_of(container) and settings.admission.hideCardsFromOthers:
        wanted[ENV_VISIBLE] = "none"
    return wanted


def _default_env(
    container: Container, earlier: frozenset[Added], wanted: dict[str, str]
) -> Iterator[Added]:
    """Set variables, never over one that somebody else wrote."""
    written = container.json.get("env")
    if not isinstance(written, list | None):
        return
    env: list[Any] = []
    taken: set[str] = set()
    for item in written or []:
        name = text(at(item, "name"))
        if not _is_ours(container, item, earlier):
            env.append(item)
            taken.add(name)
        elif name in wanted and name not in taken:
            env.append({"name": name, "value": wanted[name]})
            taken.add(name)
            yield Added(container.name, name, wanted[name])
    for name, value in wanted.items():
        if name not in taken:
            env.append({"name": name, "value": value})
            yield Added(container.name, name, value)
    if env != (written or []):
        container.json["env"] = env


def _is_ours(container: Container, item: object, earlier: frozenset[Added]) -> bool:
    name, value = text(at(item, "name")), at(item, "value")
    return (
        isinstance(value, str)
        and Added(container.name, name, value) in earlier
        and item == {"name": name, "value": value}
    )
