"""HAMi's lock of a node: the Pod to which HAMi's device plugin is handing cards there.

The plugin is asked for cards without being told for which Pod. It takes the one that the lock
names, and removes the lock when that Pod has all of its cards (docs/decisions/0013). The lock is
one annotation: ``<RFC 3339 time>,<namespace>,<name>``, in releases before only the time.

Not among the codecs of ``wire``: what a lock says depends on the calendar.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from cardwise.controller.clock import rfc3339
from cardwise.model import PodRef
from cardwise.names import NODE_LOCK
from cardwise.wire.fields import annotations_of, at, text

Json = dict[str, Any]

LOCK_SECONDS: Final = 300
"""A lock that is older may be taken over: HAMi's default, ``--node-lock-timeout``."""


class Lock(NamedTuple):
    """A lock as it is written."""

    value: str
    since: datetime | None
    """None: it can't be read, and so nobody knows when it ends."""
    namespace: str = ""
    name: str = ""
    """Of the Pod that holds it; empty: an old release wrote it, and nobody holds it."""

    def is_of(self, pod: PodRef) -> bool:
        """Whether it is this Pod's; HAMi goes by the name alone, too."""
        return (self.namespace, self.name) == (pod.namespace, pod.name)

    def is_over(self, unix_seconds: float) -> bool:
        """Whether it may be taken over, whoever holds it."""
        now = datetime.fromtimestamp(unix_seconds, UTC)
        return self.since is not None and now - self.since > timedelta(seconds=LOCK_SECONDS)


def lock_of(node: Json) -> Lock | None:
    """The lock of a Node; None where it has none."""
    value = annotations_of(node).get(NODE_LOCK)
    if value is None:
        return None
    since, _, holder = value.partition(",")
    namespace, _, name = holder.partition(",")
    return Lock(value, _time(since), namespace, name)


def value_of(pod: PodRef, unix_seconds: int) -> str:
    """The value of a lock for a Pod."""
    return f"{rfc3339(unix_seconds)},{pod.namespace},{pod.name}"


def lock_patch(node: Json, value: str | None) -> Json:
    """The merge patch that sets a Node's lock, or removes it, if the Node is as it was read."""
    return {
        "metadata": {
            "resourceVersion": text(at(node, "metadata", "resourceVersion")),
            "annotations": {NODE_LOCK: value},
        }
    }


def _time(written: str) -> datetime | None:
    try:
        since = datetime.fromisoformat(written)
    except ValueError:
        return None
    return since if since.tzinfo is not None else None
