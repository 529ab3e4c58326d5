"""The real pynvml over a library of our own: see ``fakes/nvidia.py``."""

from pathlib import Path

import pynvml
import pytest

from cardwise.agent.nvml import NvidiaLibrary
from cardwise.agent.simulated import SimulatedNvml
from cardwise.errors import NvmlUnavailable
from cardwise.model import Link
from cardwise.ports import CardReading, Readings, Xid
from fakes.nvidia import (
    ALL_ONES,
    DOWN,
    EVERYTHING,
    LOST,
    NOT_SUPPORTED,
    SWITCH,
    UNKNOWN,
    FakeCard,
    FakeMachine,
    here,
    to,
)

# The first test on a machine compiles the library.
pytestmark = pytest.mark.timeout(60)

REOPENED = 12
"""Reads with a card in trouble, until the library is opened anew."""
BUSES = [f"00000000:0{number}:00.0" for number in range(8)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return here(monkeypatch, tmp_path)


def read(machine: FakeMachine, nvml: NvidiaLibrary | None = None) -> Readings:
    machine.write()
    readings = (nvml or NvidiaLibrary(machine.path.parent / "sys")).read()
    assert readings is not None
    return readings


def two(first: list[str], second: list[str]) -> list[FakeCard]:
    """Two cards and where their NVLinks lead."""
    return [
        FakeCard(uuid=f"GPU-{number}", bus=BUSES[number], links=links)
        for number, links in enumerate((first, second))
    ]


def kernel_says(machine: FakeMachine, numa: str) -> None:
    device = machine.path.parent / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(numa)


# Cards --------------------------------------------------------------------------------------------


def test_a_card_is_read_whole(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(numa=0b10)]

    assert read(machine) == Readings(
        driver_version="580.65.06",
        cards=(
            CardReading(
                uuid="GPU-a",
                index=0,
                name="Tesla T4",
                memory_mib=15360,
                numa=1,
                pci_bus_id="0000:3B:00.0",
            ),
        ),
        links=(),
    )


@pytest.mark.parametrize("profile", ["t4x4", "v100x8", "a100x8", "h100x8", "l40sx8"])
def test_a_whole_machine_is_read_as_its_profile_tells_of_it(
    machine: FakeMachine, profile: str
) -> None:
    machine.become(profile)

    assert read(machine).links == SimulatedNvml(profile, node="any").load().links


@pytest.mark.parametrize(
    ("mask", "kernel", "numa"),
    [
        pytest.param(0b10, "0", 1, id="NVML goes before the kernel"),
        pytest.param(0b11, "0", 0, id="NVML names two nodes, which is none"),
        pytest.param(0, "1", 1, id="NVML names none"),
        pytest.param(None, "1\n", 1, id="NVML does not know"),
        pytest.param(None, "-1\n", None, id="the kernel says -1"),
        pytest.param(None, "N/A", None, id="the kernel says no number"),
        pytest.param(None, "", None, id="the kernel says nothing"),
    ],
)
def test_the_numa_node(
    machine: FakeMachine, mask: int | None, kernel: str, numa: int | None
) -> None:
    machine.cards = [FakeCard(numa=mask)]
    kernel_says(machine, kernel)

    assert read(machine).cards[0].numa == numa


def test_a_question_about_numa_that_fails_says_nothing_of_the_card(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(errors={"nvmlDeviceGetMemoryAffinity": UNKNOWN})]
    kernel_says(machine, "3")

    card = read(machine).cards[0]

    assert (card.numa, card.trouble) == (3, "")


@pytest.mark.parametrize(
    ("card", "want"),
    [
        pytest.param(FakeCard(memory=None), {"memory_mib": None}, id="shared memory"),
        pytest.param(FakeCard(memory=0), {"memory_mib": None}, id="shared memory, told as 0"),
        pytest.param(FakeCard(memory=2**20 * 3 - 1), {"memory_mib": 2}, id="MiB are rounded down"),
        pytest.param(FakeCard(mig=1), {"mig": True}, id="MIG is on"),
        pytest.param(FakeCard(mig=0), {"mig": False}, id="MIG is off"),
        pytest.param(FakeCard(name=None), {"name": "", "memory_mib": 15360}, id="no name"),
        pytest.param(FakeCard(bus=None), {"pci_bus_id": "", "name": "Tesla T4"}, id="no address"),
        pytest.param(
            FakeCard(errors={"nvmlDeviceGetName": pynvml.NVML_ERROR_NO_PERMISSION}),
            {"name": "", "memory_mib": 15360},
            id="not permitted",
        ),
        pytest.param(FakeCard(events=None), {"name": "Tesla T4"}, id="no events"),
        pytest.param(
            FakeCard(errors={"nvmlDeviceRegisterEvents": NOT_SUPPORTED}),
            {"name": "Tesla T4"},
            id="events that can't be had",
        ),
    ],
)
def test_what_a_card_refuses_to_tell_is_unknown_and_nothing_worse(
    machine: FakeMachine, card: FakeCard, want: dict[str, object]
) -> None:
    machine.cards = [card]

    reading = read(machine).cards[0]

    assert {key: getattr(reading, key) for key in want} == want
    assert reading.trouble == ""


@pytest.mark.parametrize(
    "question",
    [
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceRegisterEvents",
    ],
)
def test_a_question_that_fails_is_a_trouble_of_the_card(
    machine: FakeMachine, question: str
) -> None:
    machine.cards = [FakeCard(errors={question: UNKNOWN}), FakeCard(uuid="GPU-b")]

    readings = read(machine)

    assert [card.trouble for card in readings.cards] == ["NVML says: Unknown Error", ""]


def test_what_is_told_before_a_failure_is_kept(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(errors={"nvmlDeviceGetMemoryInfo": UNKNOWN})]

    card = read(machine).cards[0]

    assert (card.name, card.pci_bus_id, card.memory_mib) == ("Tesla T4", "0000:3B:00.0", None)


def test_a_card_that_is_lost_stays_what_it_was_but_in_trouble(machine: FakeMachine) -> None:
    machine.become("v100x8")
    nvml = NvidiaLibrary()
    before = read(machine, nvml)
    machine.cards[2].errors = {EVERYTHING: LOST}

    after = read(machine, nvml)

    assert after.cards[2].trouble == "NVML says: GPU is lost"
    assert [card.uuid for card in after.cards] == [card.uuid for card in before.cards]
    assert after.cards[2].memory_mib == 32768
    assert after.links == before.links
    assert (after.doubts, after.troubles) == ((), ())


def test_a_card_that_goes_from_the_bus_is_lost_until_the_library_is_opened_anew(
    machine: FakeMachine,
) -> None:
    machine.become("t4x4")
    nvml = NvidiaLibrary()
    uuids = [card.uuid for card in read(machine, nvml).cards]
    del machine.cards[0]

    lost = [read(machine, nvml) for _ in range(REOPENED)]
    after = read(machine, nvml)

    for readings in lost:
        assert [card.uuid for card in readings.cards if card.trouble] == uuids[:1]
    assert [(card.uuid, card.index, card.trouble) for card in after.cards] == [
        (uuid, index, "") for index, uuid in enumerate(uuids[1:])
    ]


def test_a_lost_card_is_known_even_to_a_library_that_is_opened_anew(machine: FakeMachine) -> None:
    machine.become("t4x4")
    nvml = NvidiaLibrary()
    uuids = [card.uuid for card in read(machine, nvml).cards]
    machine.cards[3].errors = {EVERYTHING: LOST}

    readings = [read(machine, nvml) for _ in range(REOPENED + 1)][-1]

    assert [card.uuid for card in readings.cards] == uuids
    assert readings.cards[3].trouble == "NVML says: GPU is lost"


def test_a_lost_card_that_answers_again_is_well(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(errors={EVERYTHING: LOST})]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.cards[0].errors = {}

    card = read(machine, nvml).cards[0]

    assert (card.uuid, card.trouble) == ("GPU-a", "")


def test_a_card_that_never_said_who_it_is_is_told_of_and_the_others_are_read(
    machine: FakeMachine,
) -> None:
    machine.cards = [FakeCard(errors={"nvmlDeviceGetUUID": LOST}), FakeCard(uuid="GPU-b")]

    readings = read(machine)

    assert [(card.uuid, card.index) for card in readings.cards] == [("GPU-b", 1)]
    assert readings.troubles == ("card 0 can't be read: GPU is lost",)


def test_a_card_that_moved_is_not_taken_for_the_silent_one_in_its_old_place(
    machine: FakeMachine,
) -> None:
    machine.cards = [FakeCard()]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.errors = {"nvmlDeviceGetCount_v2": UNKNOWN}
    with pytest.raises(NvmlUnavailable):
        read(machine, nvml)
    machine.errors = {}
    machine.cards = [FakeCard(uuid="GPU-z", errors={EVERYTHING: LOST}), FakeCard()]

    readings = read(machine, nvml)

    assert [(card.uuid, card.index, card.trouble) for card in readings.cards] == [("GPU-a", 1, "")]
    assert readings.troubles == ("card 0 can't be read: GPU is lost",)


def test_another_card_in_the_same_place_is_another_card(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(), FakeCard(uuid="GPU-b", name="L4")]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.init = UNKNOWN  # the driver starts again
    machine.errors = {"nvmlDeviceGetCount_v2": UNKNOWN}
    with pytest.raises(NvmlUnavailable):
        read(machine, nvml)
    machine.init, machine.errors = 0, {}
    machine.cards = [FakeCard(uuid="GPU-c", errors={"nvmlDeviceGetName": UNKNOWN})]

    card = read(machine, nvml).cards[0]

    assert (card.uuid, card.name, card.trouble) == ("GPU-c", "", "NVML says: Unknown Error")


# Links --------------------------------------------------------------------------------------------


def test_cards_behind_nvswitch_are_joined_by_the_smaller_number_of_links(
    machine: FakeMachine,
) -> None:
    machine.become("h100x8")
    machine.cards[5].links = [SWITCH] * 16 + [DOWN, DOWN]

    readings = read(machine)

    links = {(link.first, link.second): link.nvlinks for link in readings.links or ()}
    assert len(links) == 28
    assert {count for pair, count in links.items() if 5 in pair} == {16}
    assert {count for pair, count in links.items() if 5 not in pair} == {18}
    assert readings.doubts == ()


def test_straight_links_are_found_by_the_address_of_the_other_card(machine: FakeMachine) -> None:
    machine.cards = [
        *two([to(BUSES[1]), to(BUSES[1]), DOWN], [to(BUSES[0]), to(BUSES[0])]),
        FakeCard(uuid="GPU-c", bus=BUSES[2]),
    ]
    machine.ancestors = {
        (0, 1): pynvml.NVML_TOPOLOGY_SINGLE,
        (1, 2): pynvml.NVML_TOPOLOGY_SYSTEM,
    }

    assert read(machine).links == (
        Link(first=0, second=1, nvlinks=2, path="PIX"),
        Link(first=0, second=2, nvlinks=0, path=""),
        Link(first=1, second=2, nvlinks=0, path="SYS"),
    )


@pytest.mark.parametrize(
    ("first", "second", "nvlinks", "doubts"),
    [
        pytest.param(
            [to(BUSES[1])] * 4,
            [to(BUSES[0])] * 2,
            2,
            ("card 0 tells of 4 NVLinks to card 1, which tells of 2: the smaller number holds",),
            id="the smaller number holds, and is told of",
        ),
        pytest.param(
            [to(BUSES[1])],
            [DOWN],
            0,
            ("card 0 tells of 1 NVLinks to card 1, which tells of 0: the smaller number holds",),
            id="a link that only one end knows does not count",
        ),
        pytest.param([SWITCH] * 18, [SWITCH] * 4, 4, (), id="a switch, and fewer links to it"),
        pytest.param(
            [to(BUSES[6], "switch")] * 3,
            [to(BUSES[7], "switch")] * 2,
            2,
            (),
            id="switches with addresses of their own",
        ),
        pytest.param([SWITCH] * 18, [to(BUSES[7])], 0, (), id="only one is behind a switch"),
        pytest.param(
            [to(ALL_ONES, "untold")] * 3,
            [to(ALL_ONES, "untold")] * 2,
            2,
            (),
            id="a switch that only its address gives away",
        ),
        pytest.param(
            [to(ALL_ONES)] * 3, [to(ALL_ONES)] * 3, 3, (), id="a switch that is told as a card"
        ),
        pytest.param(
            [to(BUSES[1], "untold")],
            [to(BUSES[0], "untold")],
            1,
            (),
            id="an old driver that knows no kinds still tells straight links",
        ),
        pytest.param(
            [to(BUSES[1].lower())], [to(BUSES[0].lower())], 1, (), id="addresses in small letters"
        ),
    ],
)
def test_links_of_a_pair(
    machine: FakeMachine,
    first: list[str],
    second: list[str],
    nvlinks: int,
    doubts: tuple[str, ...],
) -> None:
    machine.cards = two(first, second)
    machine.ancestors = {(0, 1): pynvml.NVML_TOPOLOGY_NODE}

    readings = read(machine)

    assert readings.links == (Link(first=0, second=1, nvlinks=nvlinks, path="NODE"),)
    assert readings.doubts == doubts


def test_links_of_cards_without_an_address_lead_nowhere(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(uuid=uuid, bus=None, links=[to("")]) for uuid in ("GPU-a", "GPU-b")]

    readings = read(machine)

    assert (readings.links, readings.doubts) == (None, ())


def test_links_are_unknown_where_nothing_is_known_of_any_pair(machine: FakeMachine) -> None:
    machine.cards = two([], [])

    assert read(machine).links is None


# Events -------------------------------------------------------------------------------------------


def test_an_xid_is_told_once_and_with_its_card(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(), FakeCard(uuid="GPU-b", xids=[13])]
    nvml = NvidiaLibrary()
    past = read(machine, nvml)
    machine.cards[1].xids += [48, 63]
    machine.cards[0].xids += [31]

    told, then = read(machine, nvml), read(machine, nvml)

    assert past.xids == ()
    assert told.xids == (
        Xid(uuid="GPU-a", number=31),
        Xid(uuid="GPU-b", number=48),
        Xid(uuid="GPU-b", number=63),
    )
    assert then.xids == ()


def test_the_last_word_of_a_card_that_is_lost_is_heard(machine: FakeMachine) -> None:
    machine.cards = [FakeCard()]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.cards[0].xids = [79]
    machine.cards[0].errors = {EVERYTHING: LOST}

    readings = read(machine, nvml)

    assert readings.xids == (Xid(uuid="GPU-a", number=79),)
    assert readings.cards[0].trouble == "NVML says: GPU is lost"


def test_events_are_asked_for_again_where_that_failed(machine: FakeMachine) -> None:
    machine.cards = [FakeCard(errors={"nvmlDeviceRegisterEvents": UNKNOWN})]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.cards[0].errors = {}
    read(machine, nvml)
    machine.cards[0].xids = [48]

    assert read(machine, nvml).xids == (Xid(uuid="GPU-a", number=48),)


def test_events_are_asked_for_once(machine: FakeMachine) -> None:
    machine.cards = [FakeCard()]
    nvml = NvidiaLibrary()
    read(machine, nvml)
    machine.cards[0].errors = {"nvmlDeviceRegisterEvents": UNKNOWN}

    assert read(machine, nvml).cards[0].trouble == ""


def test_events_that_end_because_a_card_is_lost_leave_the_others_alone(
    machine: FakeMachine,
) -> None:
    machine.cards = [FakeCard()]
    machine.errors = {"nvmlEventSetWait_v2": LOST}

    assert read(machine).cards[0].trouble == ""


def test_a_driver_that_knows_no_events_is_read_without(machine: FakeMachine) -> None:
    machine.cards = [FakeCard()]
    machine.errors = {"nvmlEventSetCreate": NOT_SUPPORTED}

    readings = read(machine)

    assert (readings.cards[0].trouble, readings.xids) == ("", ())


# Failures of the library --------------------------------------------------------------------------


def test_a_machine_without_the_library_has_nothing_to_read(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.init = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    machine.write()

    assert NvidiaLibrary().read() is None


def test_a_library_that_fails_at_its_start_is_tried_again(machine: FakeMachine) -> None:
    machine.cards = [FakeCard()]
    machine.init = UNKNOWN
    nvml = NvidiaLibrary()

    for _ in range(2):
        with pytest.raises(NvmlUnavailable, match="NVML says: Unknown Error"):
            read(machine, nvml)
    machine.init = 0

    assert [card.uuid for card in read(machine, nvml).cards] == ["GPU-a"]


@pytest.mark.parametrize(
    "question", ["nvmlDeviceGetCount_v2", "nvmlEventSetCreate", "nvmlEventSetWait_v2"]
)
def test_a_failure_that_is_no_cards_is_the_librarys(machine: FakeMachine, question: str) -> None:
    machine.cards = [FakeCard()]
    machine.errors = {question: UNKNOWN}
    nvml = NvidiaLibrary()

    with pytest.raises(NvmlUnavailable):
        read(machine, nvml)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()  # it was closed
    machine.errors = {}

    assert len(read(machine, nvml).cards) == 1


@pytest.mark.parametrize("question", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName"])
def test_a_driver_that_was_unloaded_is_no_cards_failure(
    machine: FakeMachine, question: str
) -> None:
    machine.cards = [FakeCard(errors={question: pynvml.NVML_ERROR_DRIVER_NOT_LOADED})]

    with pytest.raises(NvmlUnavailable, match="Driver Not Loaded"):
        read(machine)


def test_the_library_stays_open_while_all_is_well(machine: FakeMachine) -> None:
    machine.cards = [FakeCard()]
    nvml = NvidiaLibrary()
    for _ in range(2 * REOPENED):
        read(machine, nvml)
    machine.init = UNKNOWN  # an opening would fail

    assert len(read(machine, nvml).cards) == 1
