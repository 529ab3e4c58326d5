"""The queue against a list that is sorted anew each time."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import build
from cardwise.controller.gates.queue import Queue
from cardwise.controller.gates.waiting import Waiting, read
from cardwise.names import GATE
from cardwise.settings import Settings

KINDS = ("a", "b", "c")
BEGUN = ("rest-a", "rest-b")


def waiting(number: int, priority: int = 0, second: int = 0) -> Waiting:
    """A Pod that waits."""
    pod = build.pod(
        f"p{number}",
        uid=f"u{number}",
        gates=[GATE],
        pod_priority=priority,
        created=f"2026-11-29T12:00:{second:02}Z",
    )
    found = read(pod, Settings())
    assert isinstance(found, Waiting)
    return found


@dataclass
class _Sorted:
    """The same, slow and obviously right."""

    pods: dict[str, tuple[Waiting, Hashable]] = field(default_factory=dict)
    closed: set[Hashable] = field(default_factory=set)

    def drop(self, uid: str) -> None:
        _, kind = self.pods.pop(uid, (None, None))
        if kind not in {each for _, each in self.pods.values()}:
            self.closed.discard(kind)

    def first(self) -> str | None:
        ranked = [
            (each.order[0], kind not in BEGUN, each.order, uid)
            for uid, (each, kind) in self.pods.items()
            if kind not in self.closed
        ]
        return min(ranked)[3] if ranked else None


class _Both(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue, self.model = Queue(), _Sorted()

    @rule(
        number=st.integers(0, 7),
        priority=st.sampled_from([0, 10]),
        second=st.integers(0, 2),
        kind=st.sampled_from([*KINDS, *BEGUN]),
    )
    def put(self, number: int, priority: int, second: int, kind: str) -> None:
        pod = waiting(number, priority, second)
        self.model.drop(pod.pod.uid)
        self.model.pods[pod.pod.uid] = pod, kind
        self.queue.put(pod, kind, begun=kind in BEGUN)

    @rule(number=st.integers(0, 7))
    def drop(self, number: int) -> None:
        self.model.drop(f"u{number}")
        self.queue.drop(f"u{number}")

    @precondition(lambda self: self.model.first() is not None)
    @rule()
    def serve(self) -> None:
        group = self.queue.first()
        assert group is not None
        self.model.drop(group.first.pod.uid)
        self.queue.drop(group.first.pod.uid)

    @precondition(lambda self: self.model.first() is not None)
    @rule()
    def refuse(self) -> None:
        group = self.queue.first()
        assert group is not None
        group.closed = True
        self.model.closed.add(group.kind)

    @rule(kind=st.sampled_from([*KINDS, *BEGUN]))
    def open_kind(self, kind: str) -> None:
        self.queue.open_kind(kind)
        self.model.closed.discard(kind)

    @rule()
    def room_grows(self) -> None:
        self.queue.reopen()
        self.model.closed.clear()

    @invariant()
    def the_same_is_next(self) -> None:
        """Red: ``Group.rank`` is the order alone; ``put`` does not push a group that is there."""
        group = self.queue.first()
        assert (group.first.pod.uid if group is not None else None) == self.model.first()

    @invariant()
    def the_same_wait(self) -> None:
        assert set(self.queue.uids()) == set(self.model.pods)
        assert {group.kind: [each.pod.uid for each in group] for group in self.queue} == {
            kind: [
                uid
                for uid, (_, its) in sorted(
                    self.model.pods.items(), key=lambda it: (it[1][0].order, it[0])
                )
                if its == kind
            ]
            for kind in {kind for _, kind in self.model.pods.values()}
        }


TestTheQueueAgainstASortedList = _Both.TestCase


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_those_of_one_kind_go_by_priority_then_creation_then_name(
    asked: list[tuple[int, int]],
) -> None:
    queue = Queue()
    pods = [waiting(number, *each) for number, each in enumerate(asked)]
    for pod in reversed(pods):
        queue.put(pod, "one kind")
    served = []
    while (group := queue.first()) is not None:
        served.append(group.first)
        queue.drop(group.first.pod.uid)
    assert served == sorted(
        pods, key=lambda it: (-it.request.priority, it.order[1], it.request.pod.name)
    )


def test_a_kind_that_was_refused_is_not_next_until_room_grows() -> None:
    queue = Queue()
    first = queue.put(waiting(0), "large")
    other = queue.put(waiting(1), "small")
    first.closed = True
    assert queue.first() is other
    queue.put(waiting(2, priority=10), "large")
    assert queue.first() is other
    queue.reopen()
    assert queue.first() is first


def test_who_left_need_not_be_told_any_more() -> None:
    # Red: `Group.drop` leaves the Pod in `untold`: a group that is never empty grows for ever.
    queue = Queue()
    for number in range(3):
        group = queue.put(waiting(number), "a")
    queue.drop("u0")
    queue.drop("u1")

    assert list(group.untold) == ["u2"]
