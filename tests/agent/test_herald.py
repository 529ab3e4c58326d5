import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cardwise.agent.health import Change
from cardwise.agent.herald import AGAIN_SECONDS, Herald
from cardwise.errors import ApiError
from cardwise.names import CardEvent
from cardwise.ports import CardReading
from fakes.nodeevents import FakeNodeEvents

BEGIN = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def change(
    event: CardEvent = CardEvent.UNHEALTHY, index: int = 0, reason: str = "Xid 79"
) -> Change:
    return Change(event=event, card=CardReading(uuid=f"GPU-{index}", index=index), reason=reason)


class Desk:
    """A herald, its time and what it wrote."""

    def __init__(self) -> None:
        self.store = FakeNodeEvents()
        self.herald = Herald(
            node="node-a",
            store=self.store,
            now=lambda: BEGIN + timedelta(seconds=asyncio.get_running_loop().time() - self.began),
            jitter=lambda: 0.5,
        )
        self.began = asyncio.get_running_loop().time()

    async def tell(self, *changes: Change, then: float = 0.1) -> list[dict[str, Any]]:
        """Tell of changes, and let ``then`` seconds go by."""
        task = asyncio.create_task(self.herald.run())
        for each in changes:
            self.herald.tell(each)
        await asyncio.sleep(then)
        task.cancel()
        return self.store.events


async def test_an_event_is_one_that_kubectl_shows_under_the_node() -> None:
    (event,) = await Desk().tell(change())

    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"node-a.{int(BEGIN.timestamp()) * 1_000_000:016x}",
            "namespace": "default",
        },
        "eventTime": "2026-11-29T12:00:00.000000Z",
        "reportingController": "cardwise.dev/agent",
        "reportingInstance": "node-a",
        "action": "Probing",
        "reason": "CardUnhealthy",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"},
        "note": "GPU 0 (GPU-0) takes no new Pod: Xid 79",
        "type": "Warning",
    }


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (CardEvent.UNHEALTHY, "Warning"),
        (CardEvent.HEALTHY, "Normal"),
        (CardEvent.GONE, "Warning"),
        (CardEvent.DRIVER_FAILED, "Warning"),
        (CardEvent.DRIVER_ANSWERS, "Normal"),
    ],
)
async def test_bad_news_is_a_warning(event: CardEvent, kind: str) -> None:
    assert [each["type"] for each in await Desk().tell(change(event))] == [kind]


async def test_two_of_one_moment_are_two_events() -> None:
    events = await Desk().tell(*(change(index=index) for index in range(8)))

    assert len({event["metadata"]["name"] for event in events}) == 8


async def test_a_card_that_comes_and_goes_is_told_of_once_a_minute() -> None:
    desk = Desk()
    for _ in range(12):
        await desk.tell(change(), change(CardEvent.HEALTHY), then=10)
    of_another = await desk.tell(change(index=1))

    assert AGAIN_SECONDS == 60
    assert [event["reason"] for event in desk.store.events[:4]] == [
        "CardUnhealthy",
        "CardHealthy",
    ] * 2
    assert of_another[-1]["note"].startswith("GPU 1 ")
    assert len(of_another) == 5


@pytest.mark.parametrize("status", [None, 429, 500, 503])
async def test_what_the_api_server_does_not_take_now_it_takes_later(status: int | None) -> None:
    desk = Desk()
    desk.store.failures = [ApiError(status, "no") for _ in range(3)]

    events = await desk.tell(change(), change(CardEvent.GONE), then=10)

    # 1 + 2 + 4 s.
    assert [event["reason"] for event in events] == ["CardUnhealthy", "CardGone"]
    assert events[0]["eventTime"] == "2026-11-29T12:00:00.000000Z"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_what_it_refuses_is_given_up_and_said(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    desk.store.failures = [ApiError(status, "it may not")]

    events = await desk.tell(change(), change(CardEvent.GONE))

    assert [event["reason"] for event in events] == ["CardGone"]
    assert [each.message for each in caplog.records] == [
        "event CardUnhealthy was not written: it may not"
    ]


async def test_events_that_wait_for_long_make_room_for_newer_ones() -> None:
    desk = Desk()
    for index in range(150):
        desk.herald.tell(change(index=index))

    events = await desk.tell()

    assert len(events) == 100
    assert events[-1]["note"].startswith("GPU 149 ")
