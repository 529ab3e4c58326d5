"""What the publisher's loops know from one round to the next."""

from dataclasses import dataclass, field

from cardwise.agent.probe import Report
from cardwise.model import Condition, NodeOverrides
from cardwise.ports import Readings


@dataclass(slots=True)
class Known:
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
