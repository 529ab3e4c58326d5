"""NVML → readings: the one module that knows NVML's calls, constants and errors.

It is long because of that: whatever asks the library stands here, so that nothing else can.
"""

import ctypes
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from cardwise.agent.joins import SWITCH, Joins
from cardwise.errors import NvmlUnavailable
from cardwise.ports import CardReading, Readings, Xid

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_BYTES_PER_MIB = 1024 * 1024
_NUMA_WORDS = 16
"""Of 64 bits: room for 1,024 NUMA nodes, as many as a kernel has."""
_MOST_EVENTS = 1_000
"""Taken at one look, so that a card that never stops complaining does not keep us there."""
_REOPEN_AFTER = 12
"""Reads with a card in trouble before the library is opened anew: a card that was reset or replaced
answers only then. Not at once, because to open it can wake sleeping cards for seconds."""
_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "BOARD",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_REFUSALS = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""The question is one that this card or driver does not answer, and nothing is wrong with it."""
_OF_THE_LIBRARY = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""No card is to blame, whichever was asked about."""
_XID = pynvml.nvmlEventTypeXidCriticalError


class NvidiaLibrary:
    """``ports.Nvml`` on the driver's library. One read at a time.

    The library stays open between two reads: to open it again can wake a sleeping card for seconds.
    """

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs
        self._cards: dict[int, CardReading] = {}
        """As last read without trouble, by index."""
        self._joins = Joins()
        self._session: _Session | None = None
        self._ailing = 0
        """Reads with a card in trouble, one after the other."""

    def read(self) -> Readings | None:
        """Read the whole machine; None where it has no NVIDIA library at all.

        Raises:
            NvmlUnavailable: the library is there and fails.
        """
        try:
            if self._session is None:
                pynvml.nvmlInit()
                self._session = _Session(self._sysfs, self._cards, self._joins)
            readings = self._session.read()
        except pynvml.NVMLError as error:
            self._close()
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                return None
            raise NvmlUnavailable(f"NVML says: {error}") from error
        ailing = readings.troubles or any(card.trouble for card in readings.cards)
        self._ailing = self._ailing + 1 if ailing else 0
        if self._ailing >= _REOPEN_AFTER:
            self._close()
        return readings

    def _close(self) -> None:
        """So that the next read starts from a fresh library."""
        self._ailing = 0
        if self._session is not None:
            self._session.close()
            self._session = None


class _Session:
    """The library from one opening to its closing; it shows the same cards all the while."""

    def __init__(self, sysfs: Path, cards: dict[int, CardReading], joins: Joins) -> None:
        self._sysfs = sysfs
        self._cards = cards
        self._joins = joins
        self._events: Any = None
        """A set of events; None until it is made, or where the driver knows none."""
        self._begun = False
        self._listening: set[int] = set()
        """The cards, by index, whose events come into it."""
        self._addresses: dict[int, str] = {}
        """UUIDs by where the library keeps a card, for events of a card that answers no more."""

    def read(self) -> Readings:
        if not self._begun:
            # Refused: the driver is too old to tell of events, and questions must do.
            self._events = _asked(pynvml.nvmlEventSetCreate)
            self._begun = True
        cards: dict[int, CardReading] = {}
        handles: dict[int, Any] = {}
        silent: dict[int, str] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = pynvml.nvmlDeviceGetUUID(handle)
            except pynvml.NVMLError as error:
                if error.value in _OF_THE_LIBRARY:
                    raise
                silent[index] = str(error)
                continue
            handles[index] = handle
            self._addresses[_address(handle)] = uuid
            cards[index] = self._card(handle, index, uuid)
        troubles = self._remember(cards, silent)
        listed = tuple(cards[index] for index in sorted(cards))
        links, doubts = self._joins.links(
            listed,
            {card.index: _ends(handles[card.index]) for card in listed if not card.trouble},
            lambda one, other: _path(handles[one], handles[other]),
        )
        return Readings(
            driver_version=_asked(pynvml.nvmlSystemGetDriverVersion) or "",
            cards=listed,
            links=links,
            troubles=troubles,
            doubts=doubts,
            xids=self._xids(),
        )

    def close(self) -> None:
        try:
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
        except pynvml.NVMLError as error:
            _log.debug("NVML did not free its events: %s", error)
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            _log.debug("NVML did not close: %s", error)

    def _remember(self, cards: dict[int, CardReading], silent: dict[int, str]) -> tuple[str, ...]:
        """Add what was known of cards that don't even tell who they are; sentences of the rest."""
        troubles = []
        uuids = {card.uuid for card in cards.values()}
        for index, why in silent.items():
            known = self._cards.get(index)
            if known is not None and known.uuid not in uuids:
                cards[index] = replace(known, trouble=f"NVML says: {why}")
            else:
                troubles.append(f"card {index} can't be read: {why}")
        return tuple(troubles)

    def _card(self, handle: Any, index: int, uuid: str) -> CardReading:
        """One card: what it refuses to tell stays unknown, what fails makes it one in trouble."""
        told: dict[str, Any] = {"uuid": uuid, "index": index}
        try:
            told["name"] = _asked(pynvml.nvmlDeviceGetName, handle) or ""
            told["pci_bus_id"] = _asked(_bus_id_of, handle) or ""
            told["numa"] = self._numa(handle, told["pci_bus_id"])
            told["memory_mib"] = _asked(_memory_mib, handle)
            told["mig"] = bool((_asked(pynvml.nvmlDeviceGetMigMode, handle) or [0])[0])
            self._listen(handle, index)
        except pynvml.NVMLError as error:
            if error.value in _OF_THE_LIBRARY:
                raise
            known = self._cards.get(index)
            if known is None or known.uuid != uuid:
                known = CardReading(**told)
            return replace(known, trouble=f"NVML says: {error}")
        self._cards[index] = CardReading(**told)
        return self._cards[index]

    def _numa(self, handle: Any, bus: str) -> int | None:
        """The NUMA node nearest to a card, by NVML, else by the kernel, who writes -1 for unknown.

        Not ``nvmlDeviceGetNumaNodeId``, which is the node of a card's own memory where it is one.
        """
        try:
            scope = pynvml.NVML_AFFINITY_SCOPE_NODE
            words = pynvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_WORDS, scope)
            near: int = sum(word << 64 * place for place, word in enumerate(words))
            if near.bit_count() == 1:
                return near.bit_length() - 1
        except pynvml.NVMLError:
            pass  # it reads what the container may not see; the card itself is not asked
        try:
            path = self._sysfs / "bus/pci/devices" / bus.lower() / "numa_node"
            numa = int(path.read_text("ascii"))
        except (OSError, ValueError):
            return None
        return numa if numa >= 0 else None

    # --- events -----------------------------------------------------------------------------------

    def _listen(self, handle: Any, index: int) -> None:
        """Have a card's errors told, where it can tell them."""
        if self._events is None or index in self._listening:
            return
        if (_asked(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & _XID:
            _asked(pynvml.nvmlDeviceRegisterEvents, handle, _XID, self._events)
        self._listening.add(index)

    def _xids(self) -> tuple[Xid, ...]:
        """The errors that were told since the last look."""
        found: list[Xid] = []
        while self._events is not None and len(found) < _MOST_EVENTS:
            try:
                event = pynvml.nvmlEventSetWait(self._events, 0)
            except pynvml.NVMLError as error:
                # Of a lost card its own answers tell.
                if error.value in (pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_GPU_IS_LOST):
                    break
                raise
            if event.eventType & _XID:
                uuid = self._addresses.get(_address(event.device), "")
                found.append(Xid(uuid=uuid, number=int(event.eventData)))
        return tuple(found)


def _asked(question: Callable[..., _T], *about: Any) -> _T | None:
    """The answer; None where there is none to this question.

    Raises:
        NVMLError: the question has an answer, and something is wrong.
    """
    try:
        return question(*about)
    except UnicodeError:
        return None
    except pynvml.NVMLError as error:
        if error.value in _REFUSALS:
            return None
        raise


def _bus_id_of(handle: Any) -> str:
    return _bus_id(pynvml.nvmlDeviceGetPciInfo(handle))


def _memory_mib(handle: Any) -> int | None:
    """The whole memory; cards that share the machine's refuse to tell, or tell 0."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // _BYTES_PER_MIB or None


def _path(one: Any, other: Any) -> str:
    try:
        return _PATHS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other), "")
    except pynvml.NVMLError:
        return ""


def _ends(handle: Any) -> list[str]:
    """Where each active NVLink of a card leads: the PCI address there, or ``SWITCH``."""
    ends = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                ends.append(_end(handle, link))
        except pynvml.NVMLError:
            # The card has fewer links than the library knows, or this one tells nothing.
            continue
    return ends


def _end(handle: Any, link: int) -> str:
    try:
        kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    except pynvml.NVMLError:
        kind = pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    bus = _bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)).upper()
    # A switch that shows no address of its own; older drivers tell of it in no other way.
    return SWITCH if set(bus.partition(".")[0]) == {"F", ":"} else bus


def _bus_id(pci: Any) -> str:
    """A PCI address as the kernel writes it: NVML's has a domain of eight digits."""
    bus = pci.busId
    text = bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)
    return text[4:] if len(text) == len("00000000:00:00.0") and text.startswith("0000") else text


def _address(handle: Any) -> int:
    """Where the library keeps a card: the same for all handles of one card."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
