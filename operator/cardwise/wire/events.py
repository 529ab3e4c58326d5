"""An event as events.k8s.io/v1 wants it; ``kubectl describe`` shows it under the Pod."""

from typing import Any

from cardwise.model import PodRef
from cardwise.names import API_GROUP, EventReason
from cardwise.wire.phrases import fitted

_CONTROLLER = f"{API_GROUP}/controller"
_NAME_KEPT = 230
"""Of the Pod's name: an event's name has room for 253 characters."""


def event_body(
    pod: PodRef, *, warning: bool, reason: str, note: str, when: str, serial: int, instance: str
) -> dict[str, Any]:
    """Make an event on a Pod.

    Args:
        pod: whom it is about.
        warning: its type: Warning, or Normal.
        reason: one word.
        note: what people read; cut to 1,024 bytes, because the API server refuses a longer one.
        when: RFC 3339 with microseconds, in UTC.
        serial: tells this event from others on the same Pod.
        instance: which controller says so.
    """
    placed = reason in (EventReason.CARDS_ALLOCATED, EventReason.BINDING_FAILED)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name[:_NAME_KEPT]}.{serial:016x}",
            "namespace": pod.namespace,
        },
        "eventTime": when,
        "reportingController": _CONTROLLER,
        "reportingInstance": instance[:128],
        "action": "Binding" if placed else "Scheduling",
        "reason": reason,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "note": fitted(note),
        "type": "Warning" if warning else "Normal",
    }


def again_body(count: int, when: str, note: str) -> dict[str, Any]:
    """Say that an event happened again, and what it says now: core/v1's fields, as a patch.

    By events.k8s.io an event's note can't be changed; by core/v1 it can, and it should: who holds a
    card, and what is free, is another story a minute later.

    Args:
        count: how often it happened so far; at least twice.
        when: the last time, RFC 3339 with microseconds, in UTC.
        note: what people read, at most 1,024 bytes of it.
    """
    series = {"count": max(2, count), "lastObservedTime": when}
    return {"message": fitted(note), "series": series}
