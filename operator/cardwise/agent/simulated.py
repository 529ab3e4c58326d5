"""Cards from a profile instead of a driver: a GPUNode in YAML, from a file or shipped with us.

For machines without a GPU: demonstrations, tests, and a look at what an agent would publish. A file
is read anew for every probe, so that a card can be made to fail by editing it.
"""

import re
import uuid
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from cardwise.errors import BadDocument, BadGPUNode, NvmlUnavailable
from cardwise.model import Card
from cardwise.names import GPUNODE_KIND
from cardwise.ports import CardReading, Readings
from cardwise.wire.gpunodes import gpunode_of

PROFILES = ("t4x4", "v100x8", "a100x8", "h100x8", "l40sx8")
"""The shipped profiles."""

_NAMESPACE = uuid.UUID("9a6d2f6e-3a52-5f0b-8c8e-6d1f2c8f7a10")
"""Ours, for UUIDs that are made from names."""


class SimulatedNvml:
    """Readings from a profile.

    Args:
        profile: a shipped name, or the path of a file.
        node: the node's name. The cards of a shipped profile get UUIDs made from it, because a
            card's UUID must be its own in the whole cluster; those of a file stay as written.
    """

    def __init__(self, profile: str, *, node: str) -> None:
        self._profile = profile
        self._node = node

    def read(self) -> Readings:
        """Read the profile as it is now.

        Raises:
            NvmlUnavailable: it can't be read any more.
        """
        try:
            return self.load()
        except BadDocument as error:
            raise NvmlUnavailable(str(error)) from error

    def load(self) -> Readings:
        """Read the profile, as a start does.

        Raises:
            BadDocument: it is missing, not YAML, or no GPUNode; one sentence that names the file.
        """
        document = _document(self._profile)
        try:
            node = gpunode_of(document)
        except BadGPUNode as error:
            raise BadDocument(f"profile {self._profile}: {error}") from error
        status = document["status"] if document.get("status") else {}
        written = {card["uuid"]: card for card in status.get("cards") or ()}
        return Readings(
            driver_version=str(status.get("driverVersion") or ""),
            cards=tuple(self._reading(card, written[card.uuid]) for card in node.cards),
            links=node.links,
        )

    def _reading(self, card: Card, written: dict[str, Any]) -> CardReading:
        """One card; what the profile leaves out is left to the agent's settings."""
        return CardReading(
            uuid=self._uuid(card.uuid),
            index=card.index,
            name=card.model,
            memory_mib=card.memory_mib,
            numa=card.numa,
            pci_bus_id=card.pci_bus_id,
            trouble=""
            if card.healthy
            else card.unhealthy_reason or "the profile says that it is unhealthy",
            slots=None if written.get("slots") is None else card.slots,
            cores=None if written.get("cores") is None else card.cores,
            mode=None if written.get("mode") is None else card.mode,
        )

    def _uuid(self, written: str) -> str:
        if self._profile not in PROFILES:
            return written
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'{self._node}/{written}')}"


def shipped(name: str) -> str:
    """The YAML of a shipped profile."""
    return (resources.files("cardwise.agent") / "profiles" / f"{name}.yaml").read_text("utf-8")


def _document(profile: str) -> dict[str, Any]:
    try:
        text = shipped(profile) if profile in PROFILES else Path(profile).read_text("utf-8")
    except FileNotFoundError as error:
        raise BadDocument(
            f"profile {profile}: there is no such file, and the shipped profiles are"
            f" {', '.join(PROFILES)}"
        ) from error
    except (OSError, UnicodeError, ValueError) as error:
        raise BadDocument(f"profile {profile}: it can't be read: {_line(error)}") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadDocument(f"profile {profile}: it is not YAML: {_line(error)}") from error
    if not isinstance(document, dict) or document.get("kind") != GPUNODE_KIND:
        raise BadDocument(
            f"profile {profile}: it is not a GPUNode: write one with kind: {GPUNODE_KIND}"
        )
    return document


def _line(error: Exception) -> str:
    """An error's text on one line."""
    return re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
