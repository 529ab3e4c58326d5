import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import build
from cardwise.agent.advertise import BETWEEN_SECONDS, LEAVE_SECONDS, LONGEST_PAUSE, Advertiser
from cardwise.errors import ApiError
from cardwise.names import (
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
)
from fakes.nodestatus import FakeNodeStatus

Json = dict[str, Any]

ONE = {
    RESOURCE_COUNT: "10",
    RESOURCE_MEMORY: "15360",
    RESOURCE_CORES: "100",
    RESOURCE_MEMORY_PERCENT: "1P",
    RESOURCE_PRIORITY: "1P",
}
TWO = {**ONE, RESOURCE_COUNT: "20", RESOURCE_MEMORY: "30720", RESOURCE_CORES: "200"}


def bare_node() -> Json:
    return {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8"}}}


@dataclass
class Machine:
    """A node of a cluster, and its agent's advertiser."""

    store: FakeNodeStatus = field(default_factory=lambda: FakeNodeStatus(bare_node()))

    def __post_init__(self) -> None:
        self.advertiser = Advertiser(name="n1", store=self.store, jitter=lambda: 0.5)
        self.stop = asyncio.Event()

    def publish(self, cards: int = 1) -> None:
        self.advertiser.learn(build.gpunode(cards=cards))

    async def run(self, *steps: tuple[float, Callable[[], object]], seconds: float = 60) -> None:
        """Let it work so long; each step is done after its seconds."""
        loop = asyncio.get_running_loop()
        for after, step in steps:
            loop.call_later(after, step)
        loop.call_later(seconds, self.stop.set)
        await self.advertiser.run(self.stop)

    @property
    def resources(self) -> Json:
        """Ours on the Node, the same on both sides."""
        status = self.store.nodes["n1"]["status"]
        sides = [
            {name: amount for name, amount in status[side].items() if name != "cpu"}
            for side in ("capacity", "allocatable")
        ]
        assert sides[0] == sides[1]
        return sides[0]

    def seen(self, into: list[Json]) -> Callable[[], None]:
        """A step that notes what is advertised then."""
        return lambda: into.append(self.resources)


# The loop -----------------------------------------------------------------------------------------


async def test_what_is_published_is_advertised_with_one_write() -> None:
    machine = Machine()
    machine.publish(1)

    await machine.run(seconds=3600)

    assert machine.resources == ONE
    assert len(machine.store.writes) == 1


async def test_before_something_is_published_there_is_no_call() -> None:
    machine = Machine()

    await machine.run(seconds=3600)

    assert machine.store.calls == []


async def test_a_change_of_the_cards_is_written_at_once_and_as_far_as_it_goes() -> None:
    machine = Machine()
    seen: list[Json] = []
    machine.publish(1)

    await machine.run((10, lambda: machine.publish(2)), (10.1, machine.seen(seen)))

    assert seen == [TWO]
    assert machine.store.writes[1:] == [
        {RESOURCE_COUNT: 20, RESOURCE_MEMORY: 30720, RESOURCE_CORES: 200}
    ]


async def test_the_same_published_again_is_not_written_again() -> None:
    machine = Machine()
    machine.publish(1)

    await machine.run(*((float(after), machine.publish) for after in range(5, 50, 5)))

    assert len(machine.store.writes) == 1


async def test_a_change_by_another_is_mended_at_once() -> None:
    machine = Machine()
    seen: list[Json] = []
    machine.publish(1)
    zero = dict.fromkeys((RESOURCE_MEMORY, RESOURCE_CORES), "0")

    await machine.run((10, lambda: machine.store.write("n1", zero)), (10.1, machine.seen(seen)))

    assert seen == [ONE]


async def test_who_changes_it_again_and_again_is_not_raced() -> None:
    machine = Machine()
    machine.publish(1)
    zero = {RESOURCE_MEMORY: "0"}

    await machine.run(*((10 + n / 10, lambda: machine.store.write("n1", zero)) for n in range(100)))

    assert len(machine.store.writes) <= 1 + 10 / BETWEEN_SECONDS + 1
    assert machine.resources == ONE


async def test_kubelets_count_for_a_sick_card_is_left_alone() -> None:
    """It lowers the allocatable side alone, of a count that we had written before it registered."""
    machine = Machine()
    machine.publish(1)
    fewer = {RESOURCE_COUNT: "5"}

    await machine.run((10, lambda: machine.store.write("n1", fewer, sides=("allocatable",))))

    assert machine.store.nodes["n1"]["status"]["allocatable"][RESOURCE_COUNT] == "5"
    assert len(machine.store.writes) == 1


async def test_a_node_that_is_made_anew_advertises_again() -> None:
    machine = Machine()
    machine.publish(1)

    await machine.run(
        (10, lambda: machine.store.remove("n1")), (20, lambda: machine.store.put(bare_node()))
    )

    assert machine.resources == ONE


async def test_a_node_that_comes_after_its_agent_is_waited_for() -> None:
    machine = Machine(store=FakeNodeStatus())
    machine.publish(1)

    await machine.run((20, lambda: machine.store.put(bare_node())))

    assert machine.resources == ONE


async def test_a_gpunode_that_can_not_be_read_leaves_things_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    machine.publish(1)
    broken = build.gpunode(status={"usage": "x"})

    await machine.run((10, lambda: machine.advertiser.learn(broken)))

    assert machine.resources == ONE
    assert warnings(caplog) == [
        'what is advertised stays as it was: GPUNode n1: status.usage is "x": write a list'
    ]


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, ApiError(410, "too old"), ApiError(None, "cut off")])
async def test_a_watch_that_ends_is_begun_anew_and_sees_what_was_missed(
    error: ApiError | None,
) -> None:
    machine = Machine()
    seen: list[Json] = []
    machine.publish(1)

    def miss() -> None:
        machine.store.end_watches(error)

    def change() -> None:
        machine.store.write("n1", {RESOURCE_MEMORY: "0"})

    await machine.run((10, miss), (10.5, change), (15, machine.seen(seen)))

    assert seen == [ONE]
    assert machine.store.calls.count("watch") == 2


async def test_a_cluster_that_fails_is_asked_less_and_less_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    machine.store.failures = [ApiError(None, "no answer") for _ in range(1000)]
    machine.publish(1)

    await machine.run(seconds=303)

    # 1 + 2 + 4 + 8 + 16 s, then every 30 s.
    assert len(machine.store.calls) == 6 + int((303 - 31) / LONGEST_PAUSE)
    assert warnings(caplog) == ["node n1 is not watched: no answer"]


async def test_a_write_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.publish(1)

    def refuse() -> None:
        machine.store.failures = [ApiError(500, "no"), ApiError(500, "no"), ApiError(500, "no")]
        machine.publish(2)

    await machine.run((10, refuse))

    assert machine.resources == TWO
    assert machine.store.calls.count("advertise") == 5
    assert warnings(caplog) == ["node n1 does not advertise its cards: no"]


async def test_a_change_while_a_write_is_not_answered_is_not_missed() -> None:
    class Slow(FakeNodeStatus):
        async def advertise(self, name: str, changes: Any) -> None:
            await super().advertise(name, changes)
            await asyncio.sleep(3)

    machine = Machine(store=Slow(bare_node()))
    machine.publish(1)

    await machine.run((1, lambda: machine.store.write("n1", {RESOURCE_MEMORY: "0"})))

    assert machine.resources == ONE


# Taking it back -----------------------------------------------------------------------------------


async def advertising(**changed: str) -> FakeNodeStatus:
    """A Node on which an earlier agent advertised one card."""
    machine = Machine()
    machine.publish(1)
    await machine.run()
    machine.store.write("n1", changed)
    machine.store.calls.clear()
    return machine.store


async def test_a_rollout_leaves_what_is_advertised() -> None:
    machine = Machine(store=await advertising())

    await machine.advertiser.leave()

    assert machine.resources == ONE
    assert machine.store.calls == ["installed"]


async def test_an_uninstallation_takes_back_what_is_ours() -> None:
    machine = Machine(store=await advertising(**{RESOURCE_COUNT: "7"}))
    machine.store.daemonset = False

    await machine.advertiser.leave()

    assert machine.resources == {RESOURCE_COUNT: "7"}


async def test_an_uninstallation_with_nothing_to_take_back_writes_nothing() -> None:
    machine = Machine()
    machine.store.daemonset = False

    await machine.advertiser.leave()

    assert machine.store.writes == []


async def test_the_end_is_not_waited_for_longer_than_kubelet_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    machine.store.unanswered = True
    loop = asyncio.get_running_loop()
    began = loop.time()

    await machine.advertiser.leave()

    assert loop.time() - began == pytest.approx(LEAVE_SECONDS)
    assert warnings(caplog) == [
        "node n1 goes on advertising its cards if Cardwise is being uninstalled: no answer in time"
    ]


async def test_an_account_that_went_first_ends_with_one_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(store=await advertising())
    machine.store.failures = [ApiError(401, "Unauthorized")]

    await machine.advertiser.leave()

    assert machine.resources == ONE
    assert warnings(caplog) == [
        "node n1 goes on advertising its cards if Cardwise is being uninstalled: Unauthorized"
    ]


async def test_what_an_earlier_agent_advertised_is_taken_back_where_nothing_is_to_be() -> None:
    machine = Machine(store=await advertising())
    machine.store.failures = [ApiError(None, "no answer"), ApiError(500, "no")]

    await machine.advertiser.retire(machine.stop)

    assert machine.resources == {}
    assert machine.store.calls == ["get", "get", "get", "advertise"]


@pytest.mark.parametrize("nodes", [[], [bare_node()]], ids=["no Node", "nothing on it"])
async def test_where_nothing_was_advertised_one_look_is_all(nodes: list[Json]) -> None:
    machine = Machine(store=FakeNodeStatus(*nodes))

    await machine.advertiser.retire(machine.stop)

    assert machine.store.calls == ["get"]


async def test_it_stops_while_it_waits_for_a_cluster_that_fails() -> None:
    machine = Machine()
    machine.store.failures = [ApiError(None, "no answer") for _ in range(1000)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(40, machine.stop.set)

    await machine.advertiser.retire(machine.stop)

    assert loop.time() - began == pytest.approx(40, abs=0.1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.WARNING]
