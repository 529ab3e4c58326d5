"""Events: counted up instead of repeated, about one write a second, never on an answer's path."""

import asyncio
from typing import Any

import pytest

from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling import recorder as module
from cardwise.controller.telling.recorder import Recorder
from cardwise.model import PodRef
from cardwise.names import EventReason, Reason
from controllers import background, loop_clock, passing
from fakes.cluster import FakeCluster, refused, unanswered

POD = PodRef("default", "p", "uid-p")
FULL, TAKEN = Reason.MEMORY, Reason.EXCLUSIVE
ALLOCATED = EventReason.CARDS_ALLOCATED


class Desk:
    """A recorder that runs, and its cluster."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.recorder = Recorder(self.cluster, loop_clock(), Duty(), "cardwise-scheduler-0")

    def post(self, reason: str, note: str = "a note", pod: PodRef = POD) -> bool:
        """As the teller does: only where it is wanted."""
        wanted = self.recorder.wants(pod, reason)
        if wanted:
            self.recorder.post(pod, reason, note, warning=reason != ALLOCATED)
        return wanted

    def told(self) -> list[tuple[str, int]]:
        """Reason and count of every event."""
        return [
            (event["reason"], event.get("series", {}).get("count", 1))
            for event in self.cluster.events()
        ]

    def writes(self) -> int:
        return self.cluster.called("create_event") + self.cluster.called("count_event")


def others(count: int) -> list[PodRef]:
    return [PodRef("default", f"p{n:03}", f"uid-{n}") for n in range(count)]


async def test_an_event_says_who_what_and_when() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(FULL, "no room")
        await passing(0.1)

    [event] = desk.cluster.events()
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("p.")
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
    }
    assert (event["type"], event["reason"], event["note"]) == ("Warning", FULL, "no room")
    assert event["reportingController"] == "cardwise.dev/controller"
    assert event["reportingInstance"] == "cardwise-scheduler-0"
    assert event["eventTime"].startswith("2026-05-28T")
    assert event["eventTime"].endswith("Z")


@pytest.mark.parametrize(
    ("reason", "action"),
    [(ALLOCATED, "Binding"), (EventReason.BINDING_FAILED, "Binding"), (FULL, "Scheduling")],
)
async def test_an_event_names_what_was_done(reason: str, action: str) -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(reason)
        await passing(0.1)

    assert [event["action"] for event in desk.cluster.events()] == [action]


async def test_the_longest_names_make_an_event_that_is_taken() -> None:
    desk = Desk()
    desk.recorder._instance = "i" * 253
    async with background(desk.recorder.run()):
        desk.post(FULL, pod=PodRef("n" * 63, "p" * 253, "uid"))
        await passing(0.1)

    [event] = desk.cluster.events()
    assert len(event["metadata"]["name"]) <= 253
    assert event["regarding"]["name"] == "p" * 253


async def test_the_same_reason_only_counts_up_once_a_minute() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        wanted = []
        for _ in range(121):
            wanted.append(desk.post(FULL))
            await passing(1.0)

    assert [n for n, it in enumerate(wanted) if it] == [0, 60, 120]
    assert desk.told() == [(FULL, 121)]
    assert desk.cluster.called("create_event") == 1
    assert desk.cluster.called("count_event") == 2


async def test_an_event_that_counts_up_tells_the_present_state() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(FULL, note="held by a")
        await passing(61.0)
        desk.post(FULL, note="held by b")
        await passing(1.0)

    [event] = desk.cluster.events()
    assert (event["note"], event["series"]["count"]) == ("held by b", 2)


async def test_a_new_reason_is_written_at_once() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(FULL)
        await passing(1.0)
        desk.post(TAKEN)
        await passing(0.01)
        assert desk.told() == [(FULL, 1), (TAKEN, 1)]
        assert not desk.post(FULL), "the old reason again, within its minute"


async def test_about_one_write_a_second_newest_first() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        for pod in others(100):
            desk.post(FULL, pod=pod)
        await passing(0.01)
        burst = desk.writes()
        await passing(20.0)
        desk.post(TAKEN, pod=POD)
        await passing(2.0)

    assert burst == 5
    assert 26 <= desk.writes() <= 28
    names = [event["regarding"]["name"] for event in desk.cluster.events()]
    assert names[:5] == ["p099", "p098", "p097", "p096", "p095"]
    assert "p" in names[-3:]


async def test_cards_allocated_waits_behind_nothing() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        for pod in others(100):
            desk.post(FULL, pod=pod)
        await passing(0.01)
        for pod in others(30):
            desk.recorder.post(pod, ALLOCATED, "n1: GPU 0", warning=False)
        await passing(0.01)

    assert [reason for reason, _ in desk.told()].count(ALLOCATED) == 30


async def test_a_slow_api_server_holds_up_nobody_who_posts() -> None:
    desk = Desk()
    desk.cluster.slow("create_event", 30.0)
    loop = asyncio.get_running_loop()
    async with background(desk.recorder.run()):
        for pod in others(2000):
            desk.post(FULL, pod=pod)
        assert loop.time() == 0.0
        await passing(0.01)
        for pod in others(3000):
            desk.recorder.post(pod, ALLOCATED, "n1: GPU 0", warning=False)

    assert len(desk.recorder._waiting) <= 1000
    assert len(desk.recorder._urgent) <= 1000


async def test_what_fell_out_of_the_queue_is_wanted_again() -> None:
    desk = Desk()
    pods = others(1001)
    for pod in pods:
        desk.post(FULL, pod=pod)

    assert (pods[0].uid, FULL) not in desk.recorder._known
    assert desk.recorder.wants(pods[0], FULL)
    assert len(desk.recorder._waiting) == 1000


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 10)
    desk = Desk()
    async with background(desk.recorder.run()):
        for pod in others(30):
            desk.post(FULL, pod=pod)
            await passing(2.0)

    assert len(desk.recorder._known) == 10
    assert desk.recorder.wants(others(1)[0], FULL), "the oldest is forgotten"


async def test_an_event_that_is_gone_after_its_hour_is_begun_anew_with_the_last_note() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(FULL, "as it was")
        await passing(3600.0)
        [event] = desk.cluster.events()
        desk.cluster.remove("Event", event["metadata"]["name"], "default")
        desk.post(FULL, "as it is")
        await passing(1.0)
        [again] = desk.cluster.events()
        await passing(60.0)
        desk.post(FULL)
        await passing(1.0)

    assert again["note"] == "as it is"
    assert again["metadata"]["name"] != event["metadata"]["name"]
    assert desk.told() == [(FULL, 2)]


async def test_a_note_that_waits_is_told_as_it_is_by_then() -> None:
    desk = Desk()
    desk.recorder.post(POD, FULL, "early")
    desk.recorder.post(POD, FULL, "late")
    async with background(desk.recorder.run()):
        await passing(1.0)

    assert [event["note"] for event in desk.cluster.events()] == ["late"]


# Red where the note of each refusal is made at once: with thousands waiting, 99 of 100 in vain.
async def test_of_thousands_that_are_refused_again_and_again_only_the_notes_told_are_made() -> None:
    desk = Desk()
    made = 0

    def note() -> str:
        nonlocal made
        made += 1
        return "no room"

    async with background(desk.recorder.run()):
        for _ in range(10):
            for pod in others(3000):
                if desk.recorder.wants(pod, FULL):
                    desk.recorder.post(pod, FULL, note)
            await passing(1.0)

    assert made == desk.writes()
    assert 14 <= made <= 16
    assert {event["note"] for event in desk.cluster.events()} == {"no room"}


async def test_a_note_that_says_nothing_any_more_is_not_written_and_costs_nobody_a_turn() -> None:
    desk = Desk()
    desk.post(TAKEN)
    for pod in others(100):
        desk.recorder.post(pod, FULL, lambda: "")
    async with background(desk.recorder.run()):
        await passing(0.01)

    assert desk.told() == [(TAKEN, 1)]
    assert all(desk.recorder.wants(pod, FULL) for pod in others(100))


# Red where it is forgotten with the note: what comes later would be another event.
async def test_an_event_whose_note_says_nothing_any_more_counts_up_the_next_time() -> None:
    desk = Desk()
    async with background(desk.recorder.run()):
        desk.post(FULL)
        await passing(61.0)
        desk.recorder.post(POD, FULL, lambda: "")
        await passing(1.0)
        assert desk.post(FULL)
        await passing(1.0)

    assert desk.told() == [(FULL, 3)]
    assert desk.cluster.called("create_event") == 1


async def test_what_is_bound_needs_no_word_of_why_it_waited() -> None:
    desk = Desk()
    desk.post(FULL)
    desk.post(EventReason.UNKNOWN_POLICY)
    desk.recorder.forget(POD.uid, tuple(Reason))
    async with background(desk.recorder.run()):
        await passing(1.0)

    assert desk.told() == [(EventReason.UNKNOWN_POLICY, 1)]


@pytest.mark.parametrize(
    ("note", "want"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="all of it where it fits"),
        pytest.param("x" * 1025, "x" * 1021 + "…", id="cut where it does not"),
        pytest.param("ü" * 600, "ü" * 510 + "…", id="bytes count, and no letter is cut in two"),
        pytest.param("a\ud800b", "a?b", id="half a surrogate pair can't be written"),
    ],
)
async def test_a_note_is_as_long_as_the_api_server_takes(note: str, want: str) -> None:
    desk = Desk()
    desk.post(FULL, note)
    async with background(desk.recorder.run()):
        await passing(1.0)

    assert [event["note"] for event in desk.cluster.events()] == [want]


@pytest.mark.parametrize(
    ("faults", "lines"),
    [
        pytest.param([refused(403)] * 3, 1, id="that it is forbidden is told once"),
        pytest.param([refused(404)] * 3, 0, id="a namespace that is gone is nobody's trouble"),
        pytest.param([refused(500), unanswered()], 2, id="of others each is told"),
    ],
)
async def test_a_write_that_fails(
    faults: list[Any], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    desk = Desk()
    desk.cluster.fail("create_event", *faults)
    async with background(desk.recorder.run()):
        for pod in others(len(faults)):
            desk.post(FULL, pod=pod)
        await passing(5.0)
        desk.post(TAKEN)
        await passing(5.0)

    assert len(caplog.messages) == lines
    assert desk.told() == [(TAKEN, 1)]


async def test_a_count_that_fails_is_told_and_tried_again_a_minute_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    desk = Desk()
    desk.cluster.fail("count_event", refused(500))
    async with background(desk.recorder.run()):
        for _ in range(3):
            desk.post(FULL)
            await passing(61.0)

    assert len(caplog.messages) == 1
    assert desk.told() == [(FULL, 3)]
