"""NVML without a driver: the library of ``libnvidia-ml/nvml.c``, and the machines it tells of.

The real ``pynvml`` asks it, in this process or in another that finds it on its library path.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pynvml
import pytest

from cardwise.agent.simulated import SimulatedNvml

SOURCE = Path(__file__).with_name("libnvidia-ml") / "nvml.c"
NAME = "libnvidia-ml.so.1"
VARIABLE = "CARDWISE_FAKE_NVML"

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
EVERYTHING = "*"
"""As a question in ``errors``: each one about this card."""

DOWN = "down"
ALL_ONES = "FFFFFFFF:FF:FF.0"
SWITCH = f"switch {ALL_ONES}"

_LEVELS = {"BOARD": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}


def to(bus: str, kind: str = "gpu") -> str:
    """An NVLink that leads to this address; ``untold``: the driver does not say what is there."""
    return f"{kind} {bus}"


@dataclass
class FakeCard:
    """One card; what is None is not supported."""

    uuid: str = "GPU-a"
    name: str | None = "Tesla T4"
    memory: int | None = 15360 * 2**20
    """Bytes."""
    bus: str | None = "00000000:3B:00.0"
    numa: int | None = None
    """The nodes near it, as a mask."""
    mig: int | None = None
    links: Iterable[str] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    """By NVML's name of the question."""
    events: int | None = pynvml.nvmlEventTypeXidCriticalError
    xids: list[int] = field(default_factory=list)
    """What happened so far; those that are there when the library is opened are past."""

    def lines(self) -> list[str]:
        told = {
            "card": self.uuid,
            "name": self.name,
            "memory": self.memory,
            "bus": self.bus,
            "numa": None if self.numa is None else f"{self.numa:x}",
            "mig": self.mig,
            "events": None if self.events is None else f"{self.events:x}",
        }
        return [
            *(f"{key} {value}" for key, value in told.items() if value is not None),
            *(f"link {number} {end}" for number, end in enumerate(self.links)),
            *(f"error {question} {code}" for question, code in self.errors.items()),
            *(f"xid {serial} {xid}" for serial, xid in enumerate(self.xids, start=1)),
        ]


@dataclass
class FakeMachine:
    """What the library tells, from the next look on."""

    path: Path
    cards: list[FakeCard] = field(default_factory=list)
    init: int = 0
    """The code of nvmlInit."""
    errors: dict[str, int] = field(default_factory=dict)
    """Of questions about the machine."""
    ancestors: dict[tuple[int, int], int] = field(default_factory=dict)
    """PCIe levels by card index, smaller first."""

    def write(self) -> None:
        lines = [
            "driver 580.65.06",
            f"init {self.init}",
            *(f"error {question} {code}" for question, code in self.errors.items()),
            *(f"ancestor {one} {other} {level}" for (one, other), level in self.ancestors.items()),
            *(line for card in self.cards for line in card.lines()),
        ]
        # At once, because another process may be reading.
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.path)

    def become(self, profile: str) -> None:
        """The machine that a shipped profile describes, its cards joined as the real ones are."""
        read = SimulatedNvml(profile, node="fake").load()
        self.cards = [
            FakeCard(
                uuid=card.uuid,
                name=card.name.removeprefix("NVIDIA-"),
                memory=(card.memory_mib or 0) * 2**20,
                bus=f"0000{card.pci_bus_id}",
                numa=None if card.numa is None else 1 << card.numa,
            )
            for card in read.cards
        ]
        counts = {(link.first, link.second): link.nvlinks for link in read.links or ()}
        self.ancestors = {
            (link.first, link.second): _LEVELS[link.path] for link in read.links or () if link.path
        }
        behind_a_switch = min(counts.values()) > 0
        for one, card in enumerate(self.cards):
            if behind_a_switch:
                card.links = [SWITCH] * counts[0, 1]
                continue
            card.links = [
                to(str(self.cards[other].bus))
                for other in range(len(self.cards))
                if other != one
                for _ in range(counts[min(one, other), max(one, other)])
            ]
        assert len(counts) == len(list(combinations(self.cards, 2)))

    def environment(self, directory: Path) -> dict[str, str]:
        """For a process that is to find this machine's library."""
        placed(directory)
        return {**os.environ, "LD_LIBRARY_PATH": str(directory), VARIABLE: str(self.path)}


def here(monkeypatch: pytest.MonkeyPatch, directory: Path) -> FakeMachine:
    """A machine whose library ``pynvml`` finds in this process, until the test ends."""
    # A copy of its own, because the loader gives the same file the same memory.
    library = placed(directory)
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    machine = FakeMachine(directory / "machine")
    monkeypatch.setenv(VARIABLE, str(machine.path))
    return machine


def placed(directory: Path) -> Path:
    """The library under the driver's name; a process that has it open keeps its own."""
    new = directory / f"{NAME}.new"
    shutil.copy(built(), new)
    return new.rename(directory / NAME)


def built() -> Path:
    """The compiled library, made once and kept beside the control plane's programs."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang): the driver's library can't be faked")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cardwise/nvml"
    library = cache / f"{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        new = cache / f"{digest}.{os.getpid()}"
        options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *options, "-o", new, SOURCE], check=True, timeout=60)
        new.rename(library)
    return library
