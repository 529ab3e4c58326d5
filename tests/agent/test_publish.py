import asyncio
import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cardwise.agent.driver import HOPELESS_SECONDS, SILENT_SECONDS
from cardwise.agent.health import Change
from cardwise.agent.probe import Report
from cardwise.agent.publish import (
    ALONE_SECONDS,
    LONGEST_PAUSE,
    LOOK_SECONDS,
    Publisher,
)
from cardwise.errors import ApiError, NvmlUnavailable
from cardwise.ports import CardReading, Readings
from cardwise.settings import Agent
from cardwise.wire.gpunodes import gpunode_of
from fakes.gpunodes import FakeGPUNodes

ONE_CARD = Readings(
    driver_version="580.65.06",
    cards=(CardReading(uuid="GPU-a", index=0, name="Tesla T4", memory_mib=15360),),
    links=(),
)
ILL = Readings(
    driver_version="580.65.06",
    cards=(
        CardReading(uuid="GPU-a", index=0, name="Tesla T4", memory_mib=15360, trouble="Xid 79"),
    ),
    links=(),
)


@dataclass
class Machine:
    """A node's driver, cluster and clock, and the agent between them."""

    store: FakeGPUNodes = field(default_factory=FakeGPUNodes)
    says: Readings | NvmlUnavailable | None = ONE_CARD
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.changes: list[Change] = []
        self.offered: list[tuple[int, bool, bool]] = []
        """Slots of the first card, its health, and whether an administrator's word is in it."""
        self.publisher = Publisher(
            name="n1",
            read=self.read,
            store=self.store,
            settings=Agent(reportSeconds=60),
            clock=self,
            published=self.told.append,
            changed=self.changes.append,
            probed=self.probed,
            jitter=lambda: 0.5,
        )

    async def read(self) -> Readings | None:
        if isinstance(self.says, NvmlUnavailable):
            raise self.says
        return self.says

    def probed(self, report: Report, settled: bool) -> None:
        for card in report.node.cards[:1]:
            self.offered.append((card.slots, card.healthy, settled))

    def now(self) -> str:
        return f"at {self.seconds:g}"

    def monotonic(self) -> float:
        return self.seconds

    async def round(self, after: float = 0.0) -> None:
        self.seconds += after
        await self.publisher.look()
        await self.publisher.tell()

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.store.documents["n1"]["status"]
        return status

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {
            each["type"]: (each["status"], each["lastTransitionTime"])
            for each in self.status["conditions"]
        }


async def test_the_first_report_makes_the_gpunode() -> None:
    machine = Machine()

    await machine.round()

    assert machine.store.calls == ["get", "apply", "create", "apply"]
    node = gpunode_of(machine.store.documents["n1"])
    assert [card.uuid for card in node.cards] == ["GPU-a"]
    assert node.reported_at == "at 0"
    assert machine.status["driverVersion"] == "580.65.06"


async def test_what_the_cluster_then_has_is_told() -> None:
    usage = [{"uuid": "GPU-a", "slots": 1}]
    machine = Machine(store=FakeGPUNodes({"metadata": {"name": "n1"}, "status": {"usage": usage}}))

    await machine.round()
    await machine.round(after=60)

    assert [gpunode_of(each).reported_at for each in machine.told] == ["at 0", "at 60"]
    assert machine.told[0]["status"]["usage"] == usage


async def test_a_report_without_news_waits_for_the_heartbeat() -> None:
    machine = Machine()
    await machine.round()

    await machine.round(after=56)  # the heartbeat is due after 57 s: 5 % early, by the jitter
    quiet = len(machine.store.applied)
    await machine.round(after=1)

    assert quiet == 1
    assert [status["reportedAt"] for status in machine.store.applied] == ["at 0", "at 57"]


async def test_news_goes_out_at_once_and_sets_the_time_of_the_change() -> None:
    machine = Machine()
    await machine.round()
    machine.says = Readings(driver_version="580.65.06")

    await machine.round(after=10)

    assert machine.status["cards"] == []
    assert machine.conditions() == {
        "Ready": ("False", "at 10"),
        "TopologyKnown": ("False", "at 10"),
    }
    assert "links" not in machine.status


async def test_a_condition_that_stays_keeps_its_time_over_heartbeats_and_restarts() -> None:
    machine = Machine()
    await machine.round()
    await machine.round(after=60)

    restarted = Machine(store=machine.store, seconds=500)
    await restarted.round()

    assert restarted.status["reportedAt"] == "at 500"
    assert restarted.conditions()["Ready"] == ("True", "at 0")


async def test_the_controllers_part_of_the_status_stays() -> None:
    usage = [{"uuid": "GPU-a", "slots": 1}]
    store = FakeGPUNodes({"metadata": {"name": "n1"}, "status": {"usage": usage}})
    machine = Machine(store=store)

    await machine.round()

    assert machine.status["usage"] == usage


async def test_a_gpunode_that_was_deleted_comes_back_with_the_next_heartbeat() -> None:
    machine = Machine()
    await machine.round()
    machine.store.remove("n1")

    await machine.round(after=60)

    assert machine.status["reportedAt"] == "at 60"


# What an administrator sets -----------------------------------------------------------------------


async def test_overrides_hold_from_the_first_report_on() -> None:
    spec = {"slotsPerCard": 3}
    machine = Machine(store=FakeGPUNodes({"metadata": {"name": "n1"}, "spec": spec}))

    await machine.round()

    assert [status["cards"][0]["slots"] for status in machine.store.applied] == [3]


async def test_overrides_that_change_are_seen_with_a_heartbeat_and_published_at_once() -> None:
    machine = Machine()
    await machine.round()
    machine.store.documents["n1"]["spec"] = {"memoryScaling": 2.0}

    await machine.round(after=60)

    assert [status["cards"][0]["memoryMiB"] for status in machine.store.applied] == [
        15360,
        15360,
        30720,
    ]


async def test_overrides_without_sense_leave_things_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(store=FakeGPUNodes({"metadata": {"name": "n1"}, "spec": {"slotsPerCard": 3}}))
    await machine.round()
    machine.store.documents["n1"]["spec"] = {"slotsPerCard": "many"}

    await machine.round(after=60)
    await machine.round(after=60)

    assert machine.status["cards"][0]["slots"] == 3
    assert [each.message for each in caplog.records if each.levelno == logging.WARNING] == [
        'the overrides stay as they were: GPUNode n1: spec.slotsPerCard is "many": write a whole'
        " number from 1 to 2147483647"
    ]


# Failures -----------------------------------------------------------------------------------------


async def test_a_driver_that_fails_closes_the_node_until_it_answers() -> None:
    machine = Machine()
    await machine.round()
    machine.says = NvmlUnavailable("NVML says: Unknown Error")
    await machine.round(after=10)
    failing = gpunode_of(machine.store.documents["n1"])
    ready = machine.conditions()["Ready"]

    machine.says = ONE_CARD
    await machine.round(after=10)
    answers = machine.status["cards"]
    await machine.round(after=10)

    assert failing.cards == ()
    assert ready == ("False", "at 10")
    assert machine.conditions()["Ready"] == ("True", "at 20")
    assert [(card["uuid"], card["healthy"]) for card in answers] == [("GPU-a", False)]
    assert answers[0]["unhealthyReason"] == "the driver failed: NVML says: Unknown Error"
    assert [card["healthy"] for card in machine.status["cards"]] == [True]
    assert [str(change) for change in machine.changes] == [
        "the driver fails, and the node's cards are not offered: NVML says: Unknown Error",
        "the driver answers again",
    ]


async def test_a_library_that_comes_later_is_found() -> None:
    machine = LoopMachine(says=None)
    asyncio.get_running_loop().call_later(100, setattr, machine, "says", ONE_CARD)

    await run(machine, seconds=100 + LOOK_SECONDS)

    assert [card["healthy"] for card in machine.status["cards"]] == [True]


async def test_a_machine_without_the_library_makes_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(says=None)

    for _ in range(5):
        await machine.round(after=60)

    assert machine.store.calls == []
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="no answer"),
        pytest.param(403, id="forbidden"),
        pytest.param(409, id="a conflict"),
        pytest.param(422, id="invalid"),
        pytest.param(429, id="too many"),
        pytest.param(500, id="its own failure"),
    ],
)
async def test_a_report_that_the_cluster_refused_is_sent_again(status: int | None) -> None:
    machine = Machine()
    await machine.round()
    machine.says = ILL
    machine.store.failures = [ApiError(status, "no")]

    with pytest.raises(ApiError):
        await machine.round(after=10)
    await machine.round(after=1)

    assert machine.status["cards"][0]["healthy"] is False
    assert machine.status["reportedAt"] == "at 11"


async def test_a_gpunode_that_vanishes_at_once_is_a_failure_of_the_cluster() -> None:
    class Forgetful(FakeGPUNodes):
        async def create(self, name: str) -> None:
            self._called("create")

    with pytest.raises(ApiError, match="gone as soon as it is made"):
        await Machine(store=Forgetful()).round()


@dataclass
class Cards:
    """Rows of cards: index, UUID."""

    rows: list[tuple[int, str]]

    def readings(self) -> Readings:
        return Readings(
            cards=tuple(
                CardReading(uuid=uuid, index=index, name="Tesla T4", memory_mib=15360)
                for index, uuid in self.rows
            ),
            links=(),
        )


@pytest.mark.parametrize(
    ("after", "gone"),
    [
        pytest.param([(0, "GPU-b"), (1, "GPU-c")], ["GPU-a"], id="the others move up"),
        pytest.param([(2, "GPU-a"), (0, "GPU-b"), (1, "GPU-c")], [], id="all change places"),
        pytest.param(
            [(0, "GPU-x"), (1, "GPU-b"), (2, "GPU-c")], ["GPU-a"], id="a card was replaced"
        ),
        pytest.param([], ["GPU-a", "GPU-b", "GPU-c"], id="all are gone"),
    ],
)
async def test_cards_that_move_go_or_come_are_who_they_are_by_their_uuid(
    after: list[tuple[int, str]], gone: list[str]
) -> None:
    machine = Machine(says=Cards([(0, "GPU-a"), (1, "GPU-b"), (2, "GPU-c")]).readings())
    await machine.round()
    machine.says = Cards(after).readings()

    await machine.round(after=5)

    assert [(card["index"], card["uuid"]) for card in machine.status["cards"]] == sorted(after)
    assert all(card["healthy"] for card in machine.status["cards"])
    assert [change.card.uuid for change in machine.changes if change.card] == gone


async def test_the_order_in_which_a_driver_lists_cards_is_no_news() -> None:
    machine = Machine(says=Cards([(0, "GPU-a"), (1, "GPU-b")]).readings())
    await machine.round()
    machine.says = Cards([(1, "GPU-b"), (0, "GPU-a")]).readings()

    await machine.round(after=5)

    assert len(machine.store.applied) == 1


# Kubelet's questions ------------------------------------------------------------------------------


async def test_ready_is_who_offers_cards_or_has_none_to_offer() -> None:
    machine = Machine()
    said = [machine.publisher.not_ready()]
    await machine.publisher.look()
    said.append(machine.publisher.not_ready())
    await machine.publisher.tell()
    said.append(machine.publisher.not_ready())
    machine.says = NvmlUnavailable("NVML says: Unknown Error")
    await machine.round(after=5)
    said.append(machine.publisher.not_ready())
    machine.says = None
    await machine.round(after=5)
    said.append(machine.publisher.not_ready())

    assert said == [
        "the driver was not asked yet",
        "nothing is published yet",
        "",
        "the driver fails: NVML says: Unknown Error",
        "",
    ]


async def test_a_driver_that_fails_for_long_asks_for_a_new_process() -> None:
    machine = Machine(says=NvmlUnavailable("NVML says: mismatch"))
    await machine.round()
    await machine.round(after=HOPELESS_SECONDS - 1)
    before = machine.publisher.hopeless()
    await machine.round(after=1)
    hopeless = machine.publisher.hopeless()
    machine.says = ONE_CARD
    await machine.round(after=1)

    assert before == ""
    assert hopeless == "the driver fails for more than 600 s: NVML says: mismatch"
    assert machine.publisher.hopeless() == ""


# A start without the API server -------------------------------------------------------------------

SET: dict[str, Any] = {"metadata": {"name": "n1"}, "spec": {"slotsPerCard": 3}}


async def test_nothing_is_offered_before_an_api_server_that_answers_said_what_is_set() -> None:
    """Slots that went and came again would fail Pods. Red: ``_offer`` in ``look`` at all times."""
    machine = Machine(store=FakeGPUNodes(copy.deepcopy(SET)))

    await machine.round()

    assert set(machine.offered) == {(3, True, True)}


async def test_cards_are_offered_though_no_api_server_answers_and_not_taken_for_settled() -> None:
    """Red: without ``_offer`` in ``_read``, kubelet lets no container start again meanwhile."""
    machine = Machine(store=FakeGPUNodes(copy.deepcopy(SET)))
    machine.store.failures = [ApiError(None, "no answer")] * 2

    with pytest.raises(ApiError):
        await machine.round()
    alone = list(machine.offered)
    machine.says = ILL
    await machine.publisher.look()
    ill = machine.offered[-1]
    with pytest.raises(ApiError):
        await machine.publisher.tell()
    await machine.publisher.tell()

    assert alone == [(10, True, False)]
    assert ill == (10, False, False), "kubelet hears of an illness without any API server"
    assert machine.offered[-1] == (3, False, True)


async def test_an_api_server_that_is_silent_is_not_waited_for() -> None:
    class Silent(FakeGPUNodes):
        async def get(self, name: str) -> dict[str, Any] | None:
            await asyncio.sleep(60)
            return await super().get(name)

    machine = LoopMachine(store=Silent(copy.deepcopy(SET)))

    await run(machine, seconds=ALONE_SECONDS + 0.1)
    alone = list(machine.offered)
    await run(machine, seconds=61)

    assert alone == [(10, True, False)]
    assert machine.offered[-1] == (3, True, True)


# The log ------------------------------------------------------------------------------------------


async def test_one_line_a_change_and_none_a_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    machine = Machine()
    await machine.round()
    await machine.round(after=60)
    machine.says = ILL
    await machine.round(after=10)
    machine.says = Readings(driver_version="580.65.06", links=())
    await machine.round(after=10)

    lines = [each.message for each in caplog.records]
    assert len(lines) == 3
    assert lines[0].startswith("GPUNode n1 published: 1 cards, 1 healthy; Ready=True")
    assert lines[0].endswith("the first since the start")
    assert lines[1].endswith("changed: card 0")
    assert lines[2].endswith("changed: card 0 gone")


# The loop -----------------------------------------------------------------------------------------


class LoopMachine(Machine):
    """A machine whose clock is the event loop's, which jumps over sleeps."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


async def run(machine: Machine, seconds: float, then: Callable[[], None] | None = None) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(machine.publisher.run(stop))
    await asyncio.sleep(seconds)
    if then:
        then()
    stop.set()
    await task


async def test_the_loop_sends_heartbeats_until_it_is_stopped() -> None:
    machine = LoopMachine()

    await run(machine, seconds=185)

    # Due 57 s after the last one, sent with the next look: every 60 s.
    assert len(machine.store.applied) == 4


async def test_the_loop_sees_an_illness_within_a_look() -> None:
    machine = LoopMachine()
    loop = asyncio.get_running_loop()
    loop.call_later(24, setattr, machine, "says", ILL)

    await run(machine, seconds=24 + LOOK_SECONDS)

    assert LOOK_SECONDS <= 5
    assert machine.status["cards"][0]["healthy"] is False


async def test_the_loop_sees_overrides_at_once() -> None:
    machine = LoopMachine()
    loop = asyncio.get_running_loop()
    loop.call_later(22, machine.store.set_spec, "n1", {"slotsPerCard": 3})

    await run(machine, seconds=22.1)

    assert machine.status["cards"][0]["slots"] == 3
    assert machine.store.calls.count("get") == 1  # nothing is polled


async def test_the_loop_makes_a_deleted_gpunode_anew_at_once() -> None:
    machine = LoopMachine()
    machine.store.documents["n1"] = {"metadata": {"name": "n1"}, "spec": {"slotsPerCard": 3}}
    loop = asyncio.get_running_loop()
    loop.call_later(22, machine.store.remove, "n1")

    await run(machine, seconds=22.1)

    # The overrides went with it.
    assert machine.status["cards"][0]["slots"] == 10


async def test_what_a_watch_tells_late_does_not_bring_old_overrides_back() -> None:
    machine = LoopMachine()
    loop = asyncio.get_running_loop()
    await machine.round()
    old = machine.store.documents["n1"].copy()
    old["metadata"] = old["metadata"].copy()
    loop.call_later(21, machine.store.set_spec, "n1", {"slotsPerCard": 3})
    loop.call_later(22, machine.store.show_again, old)

    await run(machine, seconds=24)

    assert [status["cards"][0]["slots"] for status in machine.store.applied] == [10, 3]


@pytest.mark.parametrize(
    "error", [pytest.param(None, id="by itself"), pytest.param(ApiError(410, "too old"), id="410")]
)
async def test_a_watch_that_ends_is_begun_again(error: ApiError | None) -> None:
    machine = LoopMachine()
    loop = asyncio.get_running_loop()
    loop.call_later(21, machine.store.end_watches, error)
    loop.call_later(26, machine.store.set_spec, "n1", {"slotsPerCard": 3})

    await run(machine, seconds=26.1)

    assert machine.status["cards"][0]["slots"] == 3


async def test_nothing_is_watched_where_there_is_nothing_to_publish() -> None:
    machine = LoopMachine(says=None)

    await run(machine, seconds=600)

    assert machine.store.calls == []


async def test_the_loop_backs_off_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = LoopMachine()
    machine.store.failures = [ApiError(None, "no answer") for _ in range(1000)]

    await run(machine, seconds=303)

    # 1 + 2 + 4 + 8 + 16 s, then every 30 s.
    assert len(machine.store.calls) == 6 + int((303 - 31) / LONGEST_PAUSE)
    assert machine.publisher.failures == len(machine.store.calls)
    assert machine.publisher.not_ready() == "GPUNode n1 is not published: no answer"
    warnings = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == ["GPUNode n1 is not published: no answer"]


async def test_looks_go_on_while_the_cluster_does_not_answer() -> None:
    machine = LoopMachine()
    machine.store.failures = [ApiError(None, "no answer") for _ in range(1000)]
    asyncio.get_running_loop().call_later(100, setattr, machine, "says", ILL)

    await run(machine, seconds=106)

    assert [str(change) for change in machine.changes] == ["GPU 0 (GPU-a) takes no new Pod: Xid 79"]


async def test_the_loop_stops_while_it_backs_off() -> None:
    machine = LoopMachine()
    machine.store.failures = [ApiError(None, "no answer") for _ in range(1000)]
    loop = asyncio.get_running_loop()
    began = loop.time()

    await run(machine, seconds=40)

    assert loop.time() - began == pytest.approx(40, abs=0.1)


class SilentMachine(LoopMachine):
    """A driver that takes its time."""

    takes = 0.0
    asked = 0

    async def read(self) -> Readings | None:
        self.asked += 1
        await asyncio.sleep(self.takes)
        return await super().read()


async def test_a_driver_that_does_not_answer_closes_the_node_and_is_not_asked_twice() -> None:
    machine = SilentMachine()
    loop = asyncio.get_running_loop()
    loop.call_later(12, setattr, machine, "takes", 1000.0)

    await run(machine, seconds=15 + 2 * (SILENT_SECONDS + LOOK_SECONDS))
    asked = machine.asked
    ready = next(each for each in machine.status["conditions"] if each["type"] == "Ready")

    assert machine.status["cards"] == []
    assert ready["message"] == "it has not answered for 30 s"
    assert asked == 4  # after 0, 5, 10 and 15 s


async def test_a_slow_driver_is_no_failure() -> None:
    machine = SilentMachine()
    machine.takes = SILENT_SECONDS - 1

    await run(machine, seconds=200)

    assert machine.changes == []
    assert [card["healthy"] for card in machine.status["cards"]] == [True]
