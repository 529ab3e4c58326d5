"""NVML without a driver: the calls of the module ``pynvml`` on cards that a test describes."""

# ruff: noqa: N802 - the names are NVML's.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

SWITCH = "switch"


def error(code: int) -> pynvml.NVMLError:
    """The error that NVML answers with this code."""
    return pynvml.NVMLError(code)


NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN


@dataclass
class FakeCard:
    """One card: a value, or an error code that the question for it gets."""

    uuid: str | int = "GPU-a"
    name: str | int = "Tesla T4"
    memory: int = 15360 * 2**20
    """Bytes; a negative number is an error code."""
    bus: str = "00000000:3B:00.0"
    mig: int | None = None
    """None: the card knows no MIG."""
    links: Sequence[str | None] = ()
    """Where each NVLink leads: a bus id, SWITCH, or None where it is down."""


@dataclass
class FakeNvmlLibrary:
    """``pynvml`` as ``agent.nvml`` calls it."""

    cards: list[FakeCard] = field(default_factory=list)
    init: int | None = None
    """The error code of nvmlInit."""
    ancestors: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """PCIe levels by card index, smaller first; a pair that is not named is not supported."""
    knows_switches: bool = True
    opened: int = 0
    closed: int = 0

    def nvmlInit(self) -> None:
        if self.init is not None:
            raise error(self.init)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        return self.cards[index]

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:
        return _text(card.uuid)

    def nvmlDeviceGetName(self, card: FakeCard) -> str:
        return _text(card.name)

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:
        if card.memory < 0:
            raise error(-card.memory)
        return SimpleNamespace(total=card.memory)

    def nvmlDeviceGetPciInfo(self, card: FakeCard) -> Any:
        return SimpleNamespace(busId=card.bus)

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> list[int]:
        if card.mig is None:
            raise error(NOT_SUPPORTED)
        return [card.mig, card.mig]

    def nvmlDeviceGetTopologyCommonAncestor(self, one: FakeCard, other: FakeCard) -> int:
        pair = tuple(sorted((self.cards.index(one), self.cards.index(other))))
        if pair not in self.ancestors:
            raise error(NOT_SUPPORTED)
        return self.ancestors[pair]

    def nvmlDeviceGetNvLinkState(self, card: FakeCard, link: int) -> int:
        if link >= len(card.links):
            raise error(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(card.links[link] is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card: FakeCard, link: int) -> Any:
        end = card.links[link]
        return SimpleNamespace(busId=b"00000000:FF:00.0" if end == SWITCH else end)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card: FakeCard, link: int) -> int:
        if not self.knows_switches:
            raise error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return 2 if card.links[link] == SWITCH else 0


def _text(value: str | int) -> str:
    if isinstance(value, int):
        raise error(value)
    return value
