"""The queue: who waits for cards, and who is asked next.

Pods of one kind get one answer, so a refusal closes the kind, not the Pod: ten thousand Pods of few
kinds cost as much as the kinds. A closed kind is asked again when room grows, and by nothing else:
there is no clock here, so no wake-up can be lost.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from itertools import count

from cardwise.controller.gates.waiting import Waiting
from cardwise.names import WaitReason
from cardwise.wire.pods import Order

Rank = tuple[int, bool, Order]
"""A group's place in the queue; the smaller is before."""


class Group:
    """The waiting Pods of one kind, or of one gang that has not begun."""

    __slots__ = ("_members", "_order", "begun", "closed", "kind", "message", "reason", "untold")

    def __init__(self, kind: Hashable, *, begun: bool = False) -> None:
        self.kind = kind
        self.closed = False
        """It was refused, and room did not grow since."""
        self.begun = begun
        """Of a gang that has begun: its rest goes before all others of the same priority."""
        self.reason: WaitReason | None = None
        """Why it was refused last."""
        self.message = ""
        self.untold: dict[str, None] = {}
        """UIDs of its Pods that came since it was told why it waits, in the order of coming."""
        self._members: dict[str, Waiting] = {}
        self._order: list[tuple[Order, str]] = []

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Waiting]:
        """Its Pods, in the queue's order."""
        return (self._members[uid] for _, uid in self._order)

    @property
    def first(self) -> Waiting:
        """The Pod that is next of it."""
        return self._members[self._order[0][1]]

    @property
    def rank(self) -> Rank:
        """Where it stands among others: as its first Pod does, by priority before all else."""
        order = self._order[0][0]
        return order[0], not self.begun, order

    def put(self, waiting: Waiting) -> None:
        """Take a Pod in."""
        uid = waiting.pod.uid
        self._members[uid] = waiting
        self.untold[uid] = None
        insort(self._order, (waiting.order, uid))

    def drop(self, waiting: Waiting) -> None:
        """Let a Pod go."""
        uid = waiting.pod.uid
        del self._members[uid]
        self.untold.pop(uid, None)
        del self._order[bisect_left(self._order, (waiting.order, uid))]


class Queue:
    """All waiting Pods."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, Group] = {}
        self._pods: dict[str, tuple[Waiting, Hashable]] = {}
        self._heap: list[tuple[Rank, int, Group]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Group]:
        """Every group that has a Pod."""
        return iter(self._groups.values())

    def get(self, uid: str) -> Waiting | None:
        """A Pod as it waits."""
        known = self._pods.get(uid)
        return known[0] if known is not None else None

    def uids(self) -> list[str]:
        """Every Pod that waits."""
        return list(self._pods)

    def put(self, waiting: Waiting, kind: Hashable, *, begun: bool = False) -> Group:
        """Take a Pod in, in place of what was known of it; its group.

        Args:
            waiting: the Pod.
            kind: equal for Pods that get the same answer: what refuses one refuses all.
            begun: of a gang that has begun; the kind is then another than before.
        """
        uid = waiting.pod.uid
        self.drop(uid)
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = Group(kind, begun=begun)
        group.put(waiting)
        self._pods[uid] = waiting, kind
        self._push(group)
        return group

    def drop(self, uid: str) -> Waiting | None:
        """Let a Pod go; what was known of it."""
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        waiting, kind = known
        group = self._groups[kind]
        group.drop(waiting)
        if not len(group):
            del self._groups[kind]
        else:
            self._push(group)
        return waiting

    def open(self, group: Group) -> None:
        """A group is asked again, as if room had grown for it alone."""
        group.closed = False
        self._push(group)

    def has(self, kind: Hashable) -> bool:
        """Whether a Pod of this kind waits."""
        return kind in self._groups

    def open_kind(self, kind: Hashable) -> None:
        """As `open`, where a Pod of this kind waits."""
        if (group := self._groups.get(kind)) is not None:
            self.open(group)

    def reopen(self) -> None:
        """Room grew: everything that was refused is asked again, the first first."""
        for group in self._groups.values():
            group.closed = False
        self._heap = [(group.rank, next(self._serial), group) for group in self._groups.values()]
        heapq.heapify(self._heap)

    def first(self) -> Group | None:
        """The open group whose first Pod is before all others; None where nobody is to be asked."""
        while self._heap:
            rank, _, group = self._heap[0]
            known = self._groups.get(group.kind)
            if known is group and not group.closed and group.rank == rank:
                return group
            heapq.heappop(self._heap)
        return None

    def _push(self, group: Group) -> None:
        if not group.closed:
            heapq.heappush(self._heap, (group.rank, next(self._serial), group))
