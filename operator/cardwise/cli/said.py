"""What Cardwise said of a Pod, by the events that are still kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cardwise.cli.world import unix_seconds
from cardwise.names import API_GROUP
from cardwise.wire.fields import at, text

Json = dict[str, Any]
_TOLD = 3
"""Different events that are told, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One event that Cardwise posted on the Pod."""

    reason: str
    note: str
    seconds: float
    """How long ago it was said last."""
    count: int = 1


def said_of(events: Sequence[Json], now: float) -> tuple[Said, ...]:
    """What Cardwise said last, each reason once."""
    newest: dict[str, tuple[float, Said]] = {}
    for event in events:
        reason, reporter = text(at(event, "reason")), text(at(event, "reportingComponent"))
        if not reporter.startswith(f"{API_GROUP}/"):
            continue
        moment = _moment(event)
        count = at(event, "series", "count")
        said = Said(
            reason=reason,
            note=text(at(event, "message")),
            seconds=max(0.0, now - moment),
            count=count if isinstance(count, int) else 1,
        )
        if reason not in newest or newest[reason][0] < moment:
            newest[reason] = moment, said
    ordered = sorted(newest.values(), key=lambda each: (-each[0], each[1].reason))
    return tuple(said for _, said in ordered[:_TOLD])


def _moment(event: Json) -> float:
    """When it was said last."""
    for path in (("series", "lastObservedTime"), ("eventTime",), ("lastTimestamp",)):
        moment = unix_seconds(text(at(event, *path)))
        if moment is not None:
            return moment
    return 0.0
