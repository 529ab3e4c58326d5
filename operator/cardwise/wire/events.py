"""An event as events.k8s.io/v1 wants it; ``kubectl describe`` shows it under the Pod."""

from typing import Any

from cardwise.model import PodRef
from cardwise.names import API_GROUP, EventReason
from cardwise.wire.phrases import fitted

_CONTROLLER = f"{API_GROUP}/controller"
_AGENT = f"{API_GROUP}/agent"
_WITHOUT_NAMESPACE = "default"
"""Where events on objects without a namespace belong."""
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
        **_event(warning=warning, reason=reason, note=note, when=when),
        "metadata": _metadata(pod.namespace, pod.name, serial),
        "reportingController": _CONTROLLER,
        "reportingInstance": instance[:128],
        "action": "Binding" if placed else "Scheduling",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
    }


def node_ref(node: str) -> dict[str, Any]:
    """A Node, as an event names it.

    Its ``uid`` is the node's name, as in kubelet's own events: kubectl looks for both.
    """
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}


def webhook_ref(configuration: dict[str, Any]) -> dict[str, Any]:
    """A MutatingWebhookConfiguration, as it is kept, as an event names it."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "name": configuration["metadata"]["name"],
        "uid": configuration["metadata"]["uid"],
    }


def cluster_event_body(
    regarding: dict[str, Any],
    *,
    warning: bool,
    reason: str,
    note: str,
    when: str,
    serial: int,
    controller: str = "",
) -> dict[str, Any]:
    """Make an event on an object without a namespace; the rest is as in ``event_body``.

    Args:
        regarding: whom it is about: a ``node_ref`` or a ``webhook_ref``.
        warning: its type: Warning, or Normal.
        reason: one word.
        note: what people read.
        when: RFC 3339 with microseconds, in UTC.
        serial: tells this event from others on the same object.
        controller: which controller says so; empty: the agent of the Node that it is about.
    """
    name = regarding["name"]
    return {
        **_event(warning=warning, reason=reason, note=note, when=when),
        "metadata": _metadata(_WITHOUT_NAMESPACE, name, serial),
        "reportingController": _CONTROLLER if controller else _AGENT,
        "reportingInstance": (controller or name)[:128],
        "action": "Scheduling" if controller else "Probing",
        "regarding": regarding,
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


def _event(*, warning: bool, reason: str, note: str, when: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": when,
        "reason": reason,
        "note": fitted(note),
        "type": "Warning" if warning else "Normal",
    }


def _metadata(namespace: str, about: str, serial: int) -> dict[str, str]:
    return {"name": f"{about[:_NAME_KEPT]}.{serial:016x}", "namespace": namespace}
