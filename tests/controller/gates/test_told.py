"""Who of those that wait is told what, and when: the groups of a queue, and the events of each."""

from collections.abc import Callable
from typing import Any

import pytest

import build
from cardwise.controller.gates.holder import Refusal
from cardwise.controller.gates.queue import Group, Queue
from cardwise.controller.gates.told import Told
from cardwise.controller.gates.waiting import Waiting, read
from cardwise.ledger import Ledger
from cardwise.model import PodRef
from cardwise.names import GATE, EventReason, Reason
from cardwise.settings import Settings
from controllers import background, loop_clock, passing


class Heard:
    """What the teller was given, Pod by Pod."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def waits(self, pod: PodRef, _reason: object, message: Callable[[], str]) -> None:
        self.notes.append((pod.name, message()))

    def taken(self) -> list[tuple[str, str]]:
        """What came since this was asked last."""
        notes, self.notes = self.notes, []
        return notes


class Ground:
    """A queue, and whoever tells it."""

    def __init__(self, *, name_tenants: bool = True) -> None:
        self.queue, self.ledger, self.heard = Queue(), Ledger(), Heard()
        self.told = Told(
            self.ledger,
            self.queue,
            self.heard,  # type: ignore[arg-type]
            loop_clock(),
            name_tenants=name_tenants,
        )

    def put(self, *names: str, kind: str = "a", **about: Any) -> PodRef:
        """More Pods of a kind wait, the later the greater their names; the first of these."""
        for name in names:
            waiting = read(build.pod(name, uid=name, gates=[GATE], **about), Settings())
            assert isinstance(waiting, Waiting)
            self.queue.put(waiting, kind)
        return next(w.pod for w in self.group(names[0]) if w.pod.name == names[0])

    def group(self, name: str) -> Group:
        """The group of a Pod."""
        return next(g for g in self.queue if any(w.pod.name == name for w in g))

    def refuse(self, name: str, message: str, reason: Reason = Reason.MEMORY) -> None:
        """The group of a Pod has to wait."""
        group = self.group(name)
        group.closed = True
        self.told.refused(group, Refusal(reason, lambda: message))


async def test_a_new_reason_is_told_to_all_of_a_group() -> None:
    ground = Ground()
    ground.put("p1", "p2")

    ground.refuse("p1", "no room")

    assert ground.heard.taken() == [("p1", "no room"), ("p2", "no room")]
    assert [entry.reason for entry in ground.ledger.entries()] == [Reason.MEMORY] * 2


async def test_the_same_reason_is_told_to_the_first_again_and_to_whoever_came_since() -> None:
    """Red: `refused` does not look at ``untold``; `tell` leaves a Pod there."""
    ground = Ground()
    ground.put("p1", "p2")
    ground.refuse("p1", "no room")
    ground.heard.taken()
    ground.put("p3")

    ground.refuse("p1", "less room")
    first = ground.heard.taken()
    ground.refuse("p1", "less room")

    assert first == [("p1", "less room"), ("p3", "less room")]
    assert ground.heard.taken() == [("p1", "less room")]


async def test_another_reason_is_news() -> None:
    ground = Ground()
    ground.put("p1", "p2")
    ground.refuse("p1", "no room")
    ground.heard.taken()

    ground.refuse("p1", "no cores", Reason.CORES)

    assert ground.heard.taken() == [("p1", "no cores"), ("p2", "no cores")]


@pytest.mark.parametrize(
    ("namespace", "name_tenants", "who"),
    [
        pytest.param("default", False, "Pod default/p2", id="of its own namespace"),
        pytest.param("other", True, "Pod other/p2", id="of another, where that may be told"),
        pytest.param("other", False, "a Pod of another namespace", id="of another"),
    ],
)
async def test_whoever_is_behind_is_told_for_whom_it_waits(
    namespace: str, name_tenants: bool, who: str
) -> None:
    """Red: `kept_back` does not look at the rank, or whether a group is closed."""
    ground = Ground(name_tenants=name_tenants)
    ground.put("p1", kind="before")
    first = ground.put("p2", kind="first", namespace=namespace)
    ground.put("p3", "p4", kind="behind")
    ground.put("p5", kind="closed")
    ground.refuse("p5", "no room")
    ground.heard.taken()
    rank = ground.group("p2").rank

    ground.told.kept_back(rank, first)
    ground.told.kept_back(rank, first)

    note = f"Kept back by {who}, which is before it in the queue and fits nowhere."
    assert ground.heard.taken() == [("p3", note), ("p4", note)], "once"
    assert ground.group("p3").reason is EventReason.KEPT_BACK


async def test_who_comes_behind_is_told_once_too() -> None:
    ground = Ground()
    first = ground.put("p2", kind="first")
    ground.put("p3", kind="behind")
    ground.told.kept_back(ground.group("p2").rank, first)
    ground.heard.taken()
    ground.put("p4", kind="behind")

    ground.told.kept_back(ground.group("p2").rank, first)

    assert [name for name, _ in ground.heard.taken()] == ["p4"]


async def test_who_waits_for_long_is_told_again_before_its_event_is_gone() -> None:
    """Red: `_AGAIN_SECONDS` is an hour; `tell_again` asks nobody."""
    ground = Ground()
    ground.put("p1")
    ground.refuse("p1", "no room")
    ground.heard.taken()

    async with background(ground.told.tell_again()):
        await passing(1100)
        early = ground.heard.taken()
        await passing(200)

    assert (early, ground.heard.taken()) == ([], [("p1", "no room")])


async def test_of_who_left_nothing_is_kept() -> None:
    """Red: `forget` does nothing."""
    ground = Ground()
    ground.put("p1")
    ground.refuse("p1", "no room")

    ground.told.forget("p1")

    assert ground.told._at == {}
