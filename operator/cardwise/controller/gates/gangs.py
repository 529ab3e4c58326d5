"""Gangs: Pods that are decided together, all or none.

A gang is named by the label of the coscheduling plugin or by an annotation of ours; its size stands
on the Pods, or in the PodGroup of that name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cardwise.doors import gang_size
from cardwise.names import GANG, GANG_SIZE, POD_GROUP_LABEL
from cardwise.wire.fields import annotations_of, at, quoted, text
from cardwise.wire.pods import pod_ref

_PLAIN = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST = 253

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang of a Pod, as the Pod says."""

    key: Key
    size: int | None
    """How many Pods it has at least; None: its PodGroup says, if there is one."""
    unreadable: str = ""
    """What is written as its size, where that is none."""

    def __str__(self) -> str:
        name = self.key[1]
        # Anybody may write it, and it goes into the log.
        return name if _PLAIN.fullmatch(name) else quoted(name)

    @property
    def may_have_group(self) -> bool:
        """Whether a PodGroup can have its name."""
        return _GROUP.fullmatch(self.key[1]) is not None and len(self.key[1]) <= _LONGEST


def gang_of(pod: dict[str, Any]) -> Gang | None:
    """The gang that a Pod says it is one of; None for a Pod on its own."""
    annotations = annotations_of(pod)
    name = annotations.get(GANG, "").strip() or text(at(pod, "metadata", "labels", POD_GROUP_LABEL))
    if not name:
        return None
    written = annotations.get(GANG_SIZE, "")
    size = gang_size(written)
    unreadable = quoted(written) if written.strip() and size is None else ""
    return Gang((pod_ref(pod).namespace, name), size, unreadable)


class HasGang(Protocol):
    """Whoever may be one of a gang."""

    @property
    def gang(self) -> Gang | None:
        """Its gang."""
        ...


class Gangs:
    """What is known of every gang that has a Pod: its placed Pods, and its size."""

    def __init__(self) -> None:
        self._placed: dict[Key, set[str]] = {}
        self._of: dict[str, Key] = {}
        self.sizes: dict[Key, int] = {}
        """As PodGroups say, of the gangs that have one which does."""

    def placed(self, gang: Gang, uid: str) -> bool:
        """One of its Pods is placed; True where the gang has begun by that."""
        begins = gang.key not in self._placed
        self._placed.setdefault(gang.key, set()).add(uid)
        self._of[uid] = gang.key
        return begins

    def gone(self, uid: str) -> Key | None:
        """A Pod ended, or is not placed after all; the gang of which it was the last, if any."""
        key = self._of.pop(uid, None)
        if key is None:
            return None
        self._placed[key].discard(uid)
        if self._placed[key]:
            return None
        del self._placed[key]
        self.forget_size(key)
        return key

    def size(self, members: Iterable[HasGang], gang: Gang) -> int | None:
        """How many Pods a gang has at least: the largest number that is said of it anywhere.

        None: nobody says.
        """
        said = [member.gang.size for member in members if member.gang and member.gang.size]
        if gang.key in self.sizes:
            said.append(self.sizes[gang.key])
        return max(said, default=None)

    def forget_size(self, key: Key) -> None:
        """No Pod of a gang waits: unless one is placed, its PodGroup may be another next time."""
        if key not in self._placed:
            self.sizes.pop(key, None)

    def is_begun(self, key: Key) -> bool:
        """Whether a Pod of it is placed: it was complete once, so the rest joins one by one."""
        return key in self._placed
