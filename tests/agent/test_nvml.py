from pathlib import Path

import pynvml
import pytest

from cardwise.agent.nvml import NvidiaLibrary
from cardwise.errors import NvmlUnavailable
from cardwise.model import Link
from cardwise.ports import CardReading, Readings
from fakes.nvml import LOST, NOT_SUPPORTED, SWITCH, UNKNOWN, FakeCard, FakeNvmlLibrary

NOWHERE = Path("/nonexistent")


def eight(links: list[str | None]) -> FakeNvmlLibrary:
    return FakeNvmlLibrary(
        [FakeCard(uuid=f"GPU-{n}", bus=f"00000000:{n:02X}:00.0", links=links) for n in range(8)]
    )


def read(library: FakeNvmlLibrary, sysfs: Path = NOWHERE) -> Readings:
    readings = NvidiaLibrary(library, sysfs).read()
    assert readings is not None
    return readings


def test_a_card_is_read_whole(tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    assert read(FakeNvmlLibrary([FakeCard()]), tmp_path) == Readings(
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


@pytest.mark.parametrize(
    "written", [pytest.param("-1\n", id="the kernel says -1"), pytest.param("x", id="no number")]
)
def test_a_numa_node_that_the_kernel_does_not_know_is_unknown(tmp_path: Path, written: str) -> None:
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(written)

    assert read(FakeNvmlLibrary([FakeCard()]), tmp_path).cards[0].numa is None


@pytest.mark.parametrize(
    ("card", "memory_mib", "mig", "trouble"),
    [
        pytest.param(FakeCard(memory=-NOT_SUPPORTED), None, False, "", id="shared memory"),
        pytest.param(FakeCard(memory=2**20 * 3 - 1), 2, False, "", id="MiB are rounded down"),
        pytest.param(FakeCard(mig=1), 15360, True, "", id="MIG is on"),
        pytest.param(FakeCard(mig=0), 15360, False, "", id="MIG is off"),
        pytest.param(
            FakeCard(memory=-LOST), None, False, "NVML says: GPU is lost", id="a lost card"
        ),
    ],
)
def test_what_a_card_can_not_tell(
    card: FakeCard, memory_mib: int | None, mig: bool, trouble: str
) -> None:
    reading = read(FakeNvmlLibrary([card])).cards[0]

    assert (reading.memory_mib, reading.mig, reading.trouble) == (memory_mib, mig, trouble)


def test_a_card_without_a_uuid_is_told_of_and_the_others_are_read() -> None:
    readings = read(FakeNvmlLibrary([FakeCard(uuid=LOST), FakeCard(uuid="GPU-b")]))

    assert [(card.uuid, card.index) for card in readings.cards] == [("GPU-b", 1)]
    assert readings.troubles == ("card 0 can't be read: GPU is lost",)


# Links --------------------------------------------------------------------------------------------


def test_cards_behind_nvswitch_are_joined_by_the_smaller_number_of_links() -> None:
    library = eight([SWITCH] * 18)
    library.cards[5].links = [SWITCH] * 16 + [None, None]

    links = {(link.first, link.second): link.nvlinks for link in read(library).links or ()}

    assert len(links) == 28
    assert {count for pair, count in links.items() if 5 in pair} == {16}
    assert {count for pair, count in links.items() if 5 not in pair} == {18}


def test_straight_links_are_found_by_the_address_of_the_other_card() -> None:
    one = FakeCard(uuid="GPU-a", bus="00000000:01:00.0", links=["00000000:02:00.0"] * 2 + [None])
    other = FakeCard(uuid="GPU-b", bus="00000000:02:00.0", links=["00000000:01:00.0"] * 2)
    alone = FakeCard(uuid="GPU-c", bus="00000000:03:00.0")
    library = FakeNvmlLibrary(
        [one, other, alone],
        ancestors={(0, 1): pynvml.NVML_TOPOLOGY_SINGLE, (1, 2): pynvml.NVML_TOPOLOGY_SYSTEM},
    )

    assert read(library).links == (
        Link(first=0, second=1, nvlinks=2, path="PIX"),
        Link(first=0, second=2, nvlinks=0, path=""),
        Link(first=1, second=2, nvlinks=0, path="SYS"),
    )


def test_a_link_that_only_one_end_knows_does_not_count() -> None:
    one = FakeCard(uuid="GPU-a", bus="00000000:01:00.0", links=["00000000:02:00.0"])
    other = FakeCard(uuid="GPU-b", bus="00000000:02:00.0", links=[None])

    links = read(FakeNvmlLibrary([one, other], ancestors={(0, 1): pynvml.NVML_TOPOLOGY_NODE})).links

    assert links == (Link(first=0, second=1, nvlinks=0, path="NODE"),)


def test_an_old_driver_that_knows_no_switches_still_tells_straight_links() -> None:
    one = FakeCard(uuid="GPU-a", bus="00000000:01:00.0", links=["00000000:02:00.0"])
    other = FakeCard(uuid="GPU-b", bus="00000000:02:00.0", links=["00000000:01:00.0"])
    library = FakeNvmlLibrary([one, other], knows_switches=False)

    assert read(library).links == (Link(first=0, second=1, nvlinks=1),)


def test_links_are_unknown_where_nothing_is_known_of_any_pair() -> None:
    assert read(FakeNvmlLibrary([FakeCard(), FakeCard(uuid="GPU-b")])).links is None


# Failures -----------------------------------------------------------------------------------------


def test_a_machine_without_the_library_has_nothing_to_read() -> None:
    library = FakeNvmlLibrary(init=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    assert NvidiaLibrary(library, NOWHERE).read() is None


def test_a_library_that_fails_is_closed_and_opened_again() -> None:
    library = FakeNvmlLibrary(init=UNKNOWN)
    nvml = NvidiaLibrary(library, NOWHERE)

    with pytest.raises(NvmlUnavailable, match="NVML says: Unknown Error"):
        nvml.read()
    library.init = None
    nvml.read()
    nvml.read()

    assert (library.opened, library.closed) == (1, 0)


def test_a_failure_while_reading_starts_afresh() -> None:
    class Failing(FakeNvmlLibrary):
        def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
            raise pynvml.NVMLError(UNKNOWN)

    library = Failing([FakeCard()])

    with pytest.raises(NvmlUnavailable):
        NvidiaLibrary(library, NOWHERE).read()

    assert (library.opened, library.closed) == (1, 1)
