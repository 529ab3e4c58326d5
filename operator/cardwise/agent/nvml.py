"""NVML → readings: the one module that knows NVML's calls, constants and errors."""

# ruff: noqa: N802, D102 - the names below are NVML's, and so is their meaning.

import logging
from pathlib import Path
from typing import Any, Protocol

import pynvml  # type: ignore[import-untyped]

from cardwise.errors import NvmlUnavailable
from cardwise.model import Link
from cardwise.ports import CardReading, Readings

LOG = logging.getLogger(__name__)

_BYTES_PER_MIB = 1024 * 1024
_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "BOARD",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


class NvmlLibrary(Protocol):
    """The calls of the module ``pynvml`` that we make; each may raise ``pynvml.NVMLError``."""

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any, /) -> str: ...
    def nvmlDeviceGetName(self, handle: Any, /) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetPciInfo(self, handle: Any, /) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any, /) -> list[int]: ...
    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any, /) -> int: ...
    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int, /) -> int: ...
    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int, /) -> Any: ...
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int, /) -> int: ...


class NvidiaLibrary:
    """``ports.Nvml`` on the driver's library. One thread at a time.

    The library stays open between two reads: to open it again can wake a sleeping card for seconds.
    """

    def __init__(self, library: NvmlLibrary = pynvml, sysfs: Path = Path("/sys")) -> None:
        self._library = library
        self._sysfs = sysfs
        self._open = False

    def read(self) -> Readings | None:
        """Read the whole machine; None where it has no NVIDIA library at all.

        Raises:
            NvmlUnavailable: the library is there and fails.
        """
        try:
            if not self._open:
                self._library.nvmlInit()
                self._open = True
            return self._readings()
        except pynvml.NVMLError as error:
            self._close()
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                return None
            raise NvmlUnavailable(f"NVML says: {error}") from error

    def _close(self) -> None:
        """So that the next read starts from a fresh library."""
        if self._open:
            self._open = False
            try:
                self._library.nvmlShutdown()
            except pynvml.NVMLError as error:
                LOG.debug("NVML did not close: %s", error)

    def _readings(self) -> Readings:
        cards: list[CardReading] = []
        handles: dict[int, Any] = {}
        troubles: list[str] = []
        for index in range(self._library.nvmlDeviceGetCount()):
            try:
                handle = self._library.nvmlDeviceGetHandleByIndex(index)
                uuid = self._library.nvmlDeviceGetUUID(handle)
            except pynvml.NVMLError as error:
                # Without its UUID nobody can say which card this is.
                troubles.append(f"card {index} can't be read: {error}")
                continue
            handles[index] = handle
            cards.append(self._card(handle, index, uuid))
        return Readings(
            driver_version=self._library.nvmlSystemGetDriverVersion(),
            cards=tuple(cards),
            links=self._links(handles, {card.index: card.pci_bus_id for card in cards}),
            troubles=tuple(troubles),
        )

    def _card(self, handle: Any, index: int, uuid: str) -> CardReading:
        trouble = ""
        name = bus = ""
        try:
            name = self._library.nvmlDeviceGetName(handle)
            bus = _bus_id(self._library.nvmlDeviceGetPciInfo(handle))
            memory = self._memory_mib(handle)
            mig = self._mig(handle)
        except pynvml.NVMLError as error:
            trouble, memory, mig = f"NVML says: {error}", None, False
        return CardReading(
            uuid=uuid,
            index=index,
            name=name,
            memory_mib=memory,
            numa=self._numa(bus),
            pci_bus_id=bus,
            mig=mig,
            trouble=trouble,
        )

    def _memory_mib(self, handle: Any) -> int | None:
        try:
            return int(self._library.nvmlDeviceGetMemoryInfo(handle).total) // _BYTES_PER_MIB
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return None
            raise

    def _mig(self, handle: Any) -> bool:
        try:
            current = self._library.nvmlDeviceGetMigMode(handle)[0]
        except pynvml.NVMLError as error:
            if error.value in _UNSUPPORTED:
                return False
            raise
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)

    def _numa(self, bus: str) -> int | None:
        """The kernel's word; it writes -1 where it does not know."""
        try:
            path = self._sysfs / "bus/pci/devices" / bus.lower() / "numa_node"
            numa = int(path.read_text("ascii"))
        except (OSError, ValueError):
            return None
        return numa if numa >= 0 else None

    def _links(self, handles: dict[int, Any], buses: dict[int, str]) -> tuple[Link, ...] | None:
        """Every pair of cards; None where there are pairs, and nothing is known of any."""
        ends = {index: self._ends(handle) for index, handle in handles.items()}
        pairs = [(a, b) for a in sorted(handles) for b in sorted(handles) if a < b]
        links = tuple(
            Link(
                first=a,
                second=b,
                nvlinks=_nvlinks(ends[a], buses[a], ends[b], buses[b]),
                path=self._path(handles[a], handles[b]),
            )
            for a, b in pairs
        )
        known = not links or any(link.path or link.nvlinks for link in links)
        return links if known else None

    def _path(self, one: Any, other: Any) -> str:
        try:
            level = self._library.nvmlDeviceGetTopologyCommonAncestor(one, other)
        except pynvml.NVMLError:
            return ""
        return _PATHS.get(level, "")

    def _ends(self, handle: Any) -> list[str]:
        """Where each active NVLink of a card leads: the PCI address there, or ``_SWITCH``."""
        ends = []
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                if self._library.nvmlDeviceGetNvLinkState(handle, link) != _ACTIVE:
                    continue
                ends.append(self._end(handle, link))
            except pynvml.NVMLError:
                # The card has fewer links than the library knows, or this one tells nothing.
                continue
        return ends

    def _end(self, handle: Any, link: int) -> str:
        try:
            kind = self._library.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except pynvml.NVMLError:
            # Drivers before 470 don't know the question, and knew no switch of this kind.
            kind = pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return _SWITCH
        return _bus_id(self._library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))


_SWITCH = "switch"
_ACTIVE = pynvml.NVML_FEATURE_ENABLED
_UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
)


def _nvlinks(one: list[str], one_bus: str, other: list[str], other_bus: str) -> int:
    """NVLinks between two cards; both must know of them, so the smaller count holds.

    Straight links first; else through NVSwitch the smaller number of links to it (policy.md,
    section 5).
    """
    straight = min(one.count(other_bus), other.count(one_bus))
    return straight or min(one.count(_SWITCH), other.count(_SWITCH))


def _bus_id(pci: Any) -> str:
    """A PCI address as the kernel writes it: NVML's has a domain of eight digits."""
    bus = pci.busId
    text = bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)
    return text[4:] if len(text) == len("00000000:00:00.0") and text.startswith("0000") else text
