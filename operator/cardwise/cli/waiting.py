"""At which door a Pod of a cluster waits, and what bears on that beside nodes and cards.

Separate from the explanation, which decides the Pod anew: here nothing is decided.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cardwise import doors
from cardwise.gangs import gang_of
from cardwise.names import GATE, SCHEDULER_NAME, TAKEN_OVER_SCHEDULERS, Door
from cardwise.settings import Settings
from cardwise.wire import pins, pods
from cardwise.wire.fields import at, text

Json = dict[str, Any]
_BYPASSED = (
    "It did not pass Cardwise's admission, so it gets no cards: the webhook was away when it was "
    "created, or its namespace is exempt. Create it anew."
)


def door_at(pod: Json) -> Door | None:
    """The door at which an unplaced Pod waits; None: at none of ours."""
    if GATE in pins.gates_of(pod):
        return Door.GATES
    ours = text(at(pod, "spec", "schedulerName")) == SCHEDULER_NAME
    return Door.EXTENDER if ours else None


def left_alone(pod: Json, settings: Settings, door: Door | None) -> str:
    """Why nobody of Cardwise's places an unplaced Pod; empty where somebody does."""
    if door is Door.GATES:
        return ""
    if door is Door.EXTENDER:
        return "" if Door.EXTENDER in doors.installed_doors(settings) else _BYPASSED
    if text(at(pod, "spec", "schedulerName")) in TAKEN_OVER_SCHEDULERS:
        return _BYPASSED
    return doors.another_scheduler(pod, settings)


def bearing(pod: Json, everyone: Sequence[Json], settings: Settings) -> Iterator[str]:
    """Sentences on what bears on a Pod's waiting beside nodes and cards.

    Args:
        pod: it has no node.
        everyone: the cluster's unfinished Pods, it among them.
        settings: the controller's.
    """
    if pods.is_terminating(pod):
        yield "It is being deleted."
    gates = pins.gates_of(pod)
    if foreign := sorted(set(gates) - {GATE}):
        yield f"Others hold it by their scheduling gates, and go first: {', '.join(foreign)}."
    if GATE not in gates:
        return
    if pods.waits_at_gate(pod):
        before, waiting = _queue(pod, everyone)
        yield (
            f"It is number {before + 1} of {waiting} Pods at the gate, "
            "by priority, then age; whoever fits goes first"
            + (", but in strict order nobody overtakes." if settings.gates.strictOrder else ".")
        )
    if (gang := gang_of(pod)) is not None:
        yield f"It is one of gang {gang}, which is placed together; this is about the one Pod."


def _queue(pod: Json, everyone: Sequence[Json]) -> tuple[int, int]:
    """How many Pods at the gate are before this one, and how many there are with it."""
    mine = _order(pod)
    orders = [_order(each) for each in everyone if pods.waits_at_gate(each)]
    return sum(order < mine for order in orders), len(orders)


def _order(pod: Json) -> pods.Order:
    priority = at(pod, "spec", "priority")
    return pods.queue_order(pod, priority if isinstance(priority, int) else 0)
