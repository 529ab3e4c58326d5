"""What the publisher's loops know from one round to the next."""

import logging
from dataclasses import dataclass, field

from cardwise.agent.probe import Report
from cardwise.model import Condition, NodeOverrides
from cardwise.ports import Readings

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """Of the driver, and of the GPUNode as the cluster has it."""

    looked: bool = False
    """Whether the driver ever answered, or failed."""
    readings: Readings | str | None = None
    """What it said last: a text says why it fails, None that there is none."""
    overrides: NodeOverrides = field(default_factory=NodeOverrides)
    conditions: tuple[Condition, ...] = ()
    """As last published, for the time of their last change."""
    published: Report | None = None
    """None: nothing yet, or the GPUNode went since."""
    due: float = 0.0
    """When the next heartbeat is due."""
    read: bool = False
    """Whether the GPUNode was read since the start."""
    alone: bool = False
    """Whether the cards are offered before that."""
    version: int = 0
    """Of the GPUNode as it was last seen."""


class Complaints:
    """What was last logged as wrong, about each thing once: it is not logged again and again."""

    def __init__(self) -> None:
        """Nothing is wrong."""
        self._last: dict[str, str] = {}

    def complain(self, about: str, sentence: str) -> None:
        """Log a sentence where it is news about this thing."""
        if sentence != self._last.get(about):
            _log.warning("%s", sentence)
            self._last[about] = sentence

    def settle(self, about: str) -> None:
        """It is well again."""
        self._last.pop(about, None)

    def last(self, about: str) -> str:
        """What is wrong with it; empty where it is well."""
        return self._last.get(about, "")
