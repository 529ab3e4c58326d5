"""Field reports about cards and their driver: the real pynvml over the fake library, to a decision.

What an agent publishes goes as it is to ``cardwise simulate`` or to a controller.
"""

import asyncio
import copy
import logging
from pathlib import Path
from typing import Any

import pynvml
import pytest

import build
from cardwise import names
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from cardwise.agent.health import Change, Health
from cardwise.agent.nvml import NvidiaLibrary
from cardwise.agent.publish import Publisher
from cardwise.names import CardEvent, Reason
from cardwise.ports import Readings
from cardwise.settings import Agent
from controllers import World, background, passing
from fakes.gpunodes import FakeGPUNodes
from fakes.nvidia import ALL_ONES, NOT_SUPPORTED, UNKNOWN, FakeCard, FakeMachine, here, to
from plugin import card, entry, uid
from reports import fixtures

Json = dict[str, Any]

# The first test on a machine compiles the library.
pytestmark = pytest.mark.timeout(60)

BUSES = [f"00000000:0{number}:00.0" for number in range(8)]


class AgentOfNode:
    """An agent, its machine, and the GPUNode ``n1`` that it publishes, on the loop's time."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.store = FakeGPUNodes()
        self.changes: list[Change] = []
        self.nvml = NvidiaLibrary(machine.path.parent / "sys")
        self.publisher = Publisher(
            name="n1",
            read=self.read,
            store=self.store,
            settings=Agent(),
            clock=self,
            health=Health(),
            changed=self.changes.append,
        )

    async def read(self) -> Readings | None:
        return self.nvml.read()

    def now(self) -> str:
        return f"2026-11-30T12:00:00.{int(self.monotonic()):09}Z"

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def look(self) -> Json:
        """The GPUNode once the agent looked at the machine as it is now."""
        self.machine.write()
        await self.publisher.look()
        await self.publisher.tell()
        return self.gpunode

    @property
    def gpunode(self) -> Json:
        return {"kind": names.GPUNODE_KIND, **copy.deepcopy(self.store.documents["n1"])}

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        """Status, reason and message."""
        for each in self.gpunode["status"].get("conditions", ()):
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return None


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentOfNode:
    return AgentOfNode(here(monkeypatch, tmp_path))


def t4s(count: int) -> list[FakeCard]:
    return [FakeCard(uuid=f"GPU-g{index}", bus=BUSES[index]) for index in range(count)]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(to("00000000:C0:00.0", "switch"), id="R14 the address is that of no card"),
        pytest.param(to(ALL_ONES, "untold"), id="R14 the driver is too old to say what is there"),
    ],
)
async def test_r14_links_through_a_switch_are_links_and_all_pairs_are_equal(
    agent: AgentOfNode, end: str
) -> None:
    """HAMi saw 0 of 28 pairs: the far end of each link is a switch, never another card.

    Red: ``nvml._end`` does not ask for the type; it does not know an address of ones only.
    """
    agent.machine.become("h100x8")
    for it in agent.machine.cards:
        it.links = [end] * 18

    gpunode = await agent.look()

    links = gpunode["status"]["links"]
    assert [link["nvlinks"] for link in links] == [18] * 28
    assert len(fixtures.one(gpunode, build.pod(gpus=8, policy="topology-aware"))["containers"]) == 1


async def test_r14_links_between_two_cards_are_still_known_by_their_addresses(
    agent: AgentOfNode,
) -> None:
    """The other half: on a mesh the pairs differ, and unlinked ones must not become linked.

    Red: ``joins`` counts every end as one at a switch.
    """
    agent.machine.become("v100x8")

    links = (await agent.look())["status"]["links"]

    assert {link["nvlinks"] for link in links} == {0, 1, 2}


def test_r55_kubelet_picks_ids_of_another_card_and_the_container_gets_the_booked_one() -> None:
    """kubelet's topology manager steered the ids; record and reality differed silently.

    Red: ``verdict`` takes the UUIDs of ``entry.ids`` for the container's cards.
    """
    booked = build.pod("p", node="n1", phase="Pending", allocated=build.allocation("GPU-c"))
    picked = entry("p", "app", "GPU-a-7")

    found = judge(uid("p"), [booked], [picked], Node(cards=[card(0), card(1), card(2)]))

    assert not isinstance(found, Refusal)
    assert found["t-p-app"].env["NVIDIA_VISIBLE_DEVICES"] == "GPU-c"


async def test_r60_a_card_keeps_its_bookings_when_indexes_move(agent: AgentOfNode) -> None:
    """The card with the lowest bus number went, the others were renumbered.

    Red: ``nvml._Session.read`` takes a UUID that it knows of an index for granted.
    """
    agent.machine.cards = t4s(4)
    world = await World(await agent.look(), *fixtures.load(g1="1/15000/0")).load()
    agent.machine.cards = t4s(4)[1:]
    agent.nvml._close()  # a card goes from the list when the library is opened anew

    world.mirror.see_gpunode(await agent.look())
    cards = agent.gpunode["status"]["cards"]
    pod = world.cluster.put(build.pod("p", gpumem=1000, policy="spread"))
    assert world.chosen(pod, "n1") == "n1"
    assert await world.bind(pod) == ""

    assert [(it["index"], it["uuid"]) for it in cards] == [
        (0, "GPU-g1"),
        (1, "GPU-g2"),
        (2, "GPU-g3"),
    ]
    assert world.used() == {"GPU-g1": 15000, "GPU-g2": 1000}
    written = world.cluster.get("Pod", "p", "default")["metadata"]["annotations"]
    assert written[names.ALLOCATED] == build.allocation("GPU-g2")
    assert [str(change.event) for change in agent.changes] == [CardEvent.GONE]


async def test_r63_a_driver_that_fails_at_the_start_is_told_and_tried_until_it_answers(
    agent: AgentOfNode,
) -> None:
    """The plugin went on, with full capacity or none, without a sign.

    Red: ``Driver.readings`` lets ``NvmlUnavailable`` out; ``FAILING_SECONDS`` is 60.
    """
    agent.machine.cards, agent.machine.init = t4s(2), UNKNOWN
    agent.machine.write()
    stop = asyncio.Event()
    tries = 0

    async def read() -> Readings | None:
        nonlocal tries
        tries += 1
        return agent.nvml.read()

    agent.publisher.read = read
    async with background(agent.publisher.run(stop)):
        await passing(139)
        during = agent.condition(names.CONDITION_READY)
        offered = agent.gpunode["status"].get("cards")
        not_ready, failed = agent.publisher.not_ready(), tries
        agent.machine.init = 0
        agent.machine.write()
        await passing(30)
        after = agent.condition(names.CONDITION_READY)

    assert during is not None
    assert after is not None
    assert during[:2] == ("False", "DriverFailed")
    assert "Unknown Error" in during[2]
    assert offered == []
    assert not_ready.startswith("the driver fails")
    assert failed <= 9, "it is tried less and less often"
    assert after[:2] == ("True", "CardsReported")
    assert [it["healthy"] for it in agent.gpunode["status"]["cards"]] == [True, True]
    assert [change.event for change in agent.changes] == [
        CardEvent.DRIVER_FAILED,
        CardEvent.DRIVER_ANSWERS,
    ]


async def test_r64_a_card_whose_memory_is_not_told_says_what_to_write(agent: AgentOfNode) -> None:
    """Pods waited for cards with the machine's own memory, and nothing said why.

    Red: ``probe._memory_unknown`` answers nothing; ``Publisher._tell_unknown`` is not called;
    ``probe._card`` ignores ``overrides.memory_mib``.
    """
    agent.machine.cards = [FakeCard(uuid="GPU-g0", memory=None)]
    pod = build.pod("p", gpumem=1000)

    told = await agent.look()
    agent.store.set_spec("n1", {"memoryMiB": 131072})
    agent.publisher._see(agent.store.documents["n1"])
    condition = agent.condition(names.CONDITION_MEMORY_UNKNOWN)
    waits, mended = fixtures.got(told, pod), fixtures.got(await agent.look(), pod)

    assert condition is not None
    assert condition[0] == "True"
    assert condition[2].startswith("card 0: set the MiB of a card, e.g. kubectl patch GPUNode n1 ")
    assert '"memoryMiB": ' in condition[2]
    assert [(change.event, change.reason) for change in agent.changes] == [
        (CardEvent.MEMORY_UNKNOWN, condition[2])
    ]
    assert waits == {"p": Reason.CARD_NOT_HEALTHY}
    assert mended == {"p": ["g0"]}
    assert agent.gpunode["status"]["cards"][0]["memoryMiB"] == 131072
    assert agent.condition(names.CONDITION_MEMORY_UNKNOWN) is None


async def test_r65_a_card_in_mig_mode_is_never_offered_as_a_whole(agent: AgentOfNode) -> None:
    """A request took a slice that was far too big, or a card whose layout had gone.

    Red: ``candidates._wrong_type`` does not look for the mode mig; ``probe._card`` drops
    ``reading.mig``.
    """
    split, whole = t4s(2)
    split.mig = pynvml.NVML_DEVICE_MIG_ENABLE
    agent.machine.cards = [split, whole]
    gpunode = await agent.look()
    agent.machine.cards = [split]
    agent.nvml = NvidiaLibrary()
    alone = await agent.look()
    pod = build.pod("p", gpumem=1000, policy="spread")

    assert [it["mode"] for it in gpunode["status"]["cards"]] == ["mig", "hami-core"]
    assert fixtures.got(gpunode, pod) == {"p": ["g1"]}
    assert fixtures.got(alone, pod) == {"p": Reason.CARD_TYPE}


async def test_r66_a_machine_without_the_library_has_no_gpunode_and_its_agent_is_quiet(
    agent: AgentOfNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A DaemonSet on all nodes made objects for nodes without cards.

    Red: ``NvidiaLibrary.read`` raises for a library that is not found; ``_complain`` says each.
    """

    def missing(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    # As pynvml answers where the loader finds no such file, which this process has loaded.
    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    stop = asyncio.Event()
    with caplog.at_level(logging.INFO):
        async with background(agent.publisher.run(stop)):
            await passing(600)

    assert agent.store.documents == {}
    assert agent.store.calls == []
    assert (agent.publisher.not_ready(), agent.publisher.hopeless()) == ("", "")
    assert len([it for it in caplog.records if it.name.startswith("cardwise")]) == 1


async def test_r66_an_agent_that_outlives_its_node_leaves_no_gpunode_behind(
    agent: AgentOfNode,
) -> None:
    """Its GPUNode goes with the Node, and was made anew, nobody's, by the agent that still ran.

    The half that only an API server shows: ``e2e/test_crd.py``, ``e2e/test_field_reports.py``.
    Red: ``Publisher._apply`` takes what it could not make for published.
    """
    agent.machine.cards = t4s(1)
    agent.machine.write()
    stop = asyncio.Event()
    async with background(agent.publisher.run(stop)):
        await passing(10)
        agent.store.has_node = False
        agent.store.remove("n1")
        await passing(300)
        assert agent.store.documents == {}
        assert "there is no such Node" in agent.publisher.not_ready()
        agent.store.has_node = True
        await passing(60)

    assert agent.condition(names.CONDITION_READY) is not None, "a Node that comes back is served"


async def test_r58_a_question_that_a_card_does_not_know_closes_nothing(agent: AgentOfNode) -> None:
    """The other way to be wrong about health: a card that is well was taken away.

    Red: ``nvml._REFUSALS`` is empty.
    """
    agent.machine.cards = [FakeCard(uuid="GPU-g0", errors={"nvmlDeviceGetName": NOT_SUPPORTED})]

    gpunode = await agent.look()

    assert [it["healthy"] for it in gpunode["status"]["cards"]] == [True]
