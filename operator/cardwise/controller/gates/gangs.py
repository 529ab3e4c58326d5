"""What the door of gates knows of gangs: which have begun, and how many Pods each must have."""

from collections.abc import Iterable
from typing import Protocol

from cardwise.gangs import Gang, Key, size_said


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
        said = size_said(member.gang for member in members)
        of_group = self.sizes.get(gang.key)
        return max((size for size in (said, of_group) if size is not None), default=None)

    def forget_size(self, key: Key) -> None:
        """No Pod of a gang waits: unless one is placed, its PodGroup may be another next time."""
        if key not in self._placed:
            self.sizes.pop(key, None)

    def is_begun(self, key: Key) -> bool:
        """Whether a Pod of it is placed: it was complete once, so the rest joins one by one."""
        return key in self._placed
