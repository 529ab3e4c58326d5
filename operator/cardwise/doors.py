"""By which door a new Pod with cards comes to us (docs/doors.md), and how its spec says so.

Pure, and separate from admission, which judges what a Pod asks: all else that admission does is the
same at both doors.
"""

from collections.abc import Iterator
from typing import Any

from cardwise.names import (
    DEFAULT_SCHEDULER,
    DOOR,
    GANG,
    GANG_SIZE,
    GATE,
    POD_GROUP_LABEL,
    SCHEDULER_NAME,
    TAKEN_OVER_SCHEDULERS,
    Door,
    EventReason,
)
from cardwise.noderules import unchecked
from cardwise.settings import Settings
from cardwise.wire.fields import annotations_of, at, items, quoted, text

MOST_PODS = 10_000
"""Of one gang: a larger number is a mistake."""
_OURS = (SCHEDULER_NAME, *TAKEN_OVER_SCHEDULERS)


def door_of(pod: dict[str, Any], settings: Settings) -> Door | None:
    """The door by which a Pod comes to us; None: it chose another scheduler, and we leave it alone.

    Where both doors are installed, in this order: what the door of gates can't check goes by the
    other; the annotation; a gang, which is placed together by gates alone; our own scheduler's
    name; claims, whose volumes only the cluster knows; the setting. A Pod of another scheduler
    comes by gates where its annotation says so.
    """
    installed, asked = installed_doors(settings), _asked(pod)
    scheduler = _scheduler_of(pod)
    if scheduler not in _OURS:
        return Door.GATES if asked is Door.GATES and Door.GATES in installed else None
    if len(installed) == 1:
        return installed[0]
    if unchecked(pod):
        return Door.EXTENDER
    if asked is not None:
        return asked
    if _gang(pod):
        return Door.GATES
    if scheduler == SCHEDULER_NAME or _has_claims(pod):
        return Door.EXTENDER
    return settings.scheduling.door


def installed_doors(settings: Settings) -> tuple[Door, ...]:
    """The doors by which Pods may come."""
    return tuple(Door) if settings.scheduling.bothDoors else (settings.scheduling.door,)


def lead_to(door: Door | None, spec: dict[str, Any]) -> None:
    """Write a door into a Pod's spec, in place; None: it has none any more.

    The gate is there where the door is of gates, and nowhere else: where another webhook's change
    led to another door, or took away the cards, it would hold the Pod for good.
    """
    gates = items(spec.get("schedulingGates"))
    others = [gate for gate in gates if at(gate, "name") != GATE]
    ours = len(others) < len(gates)
    if door is Door.GATES and not ours:
        spec["schedulingGates"] = [*gates, {"name": GATE}]
    elif door is not Door.GATES and ours:
        spec["schedulingGates"] = others
    if door is Door.EXTENDER:
        spec["schedulerName"] = SCHEDULER_NAME
    elif door is Door.GATES and spec.get("schedulerName") in _OURS and spec["schedulerName"]:
        # Of these names none stands for a scheduler that could bind it but the cluster's own.
        spec["schedulerName"] = DEFAULT_SCHEDULER


def door_warnings(pod: dict[str, Any], settings: Settings) -> Iterator[str]:
    """What of a Pod's choice of a door has no effect, and what will keep it waiting at its door."""
    installed, door, asked = installed_doors(settings), door_of(pod, settings), _asked(pod)
    written = annotations_of(pod).get(DOOR, "").strip()
    if written and asked is None:
        yield f"{DOOR}: {quoted(written)} has no effect; write {' or '.join(Door)}"
    elif asked is not None and asked not in installed:
        yield (
            f"{DOOR}: {quoted(written)} has no effect, because only the door {installed[0]} is "
            "installed in this cluster"
        )
    if door is Door.EXTENDER and (gang := _gang(pod)):
        yield f"{gang} has no effect at the door extender: the Pods are placed one by one"
    yield from _size_warnings(pod, door)
    field = unchecked(pod)
    if not field:
        return
    if door is Door.GATES:
        yield (
            f"{field} is not checked by the door gates, so the Pod will wait with the event "
            f"{EventReason.NEEDS_EXTENDER_DOOR}; leave it out"
        )
    elif asked is Door.GATES and asked in installed:
        yield f"{DOOR}: {quoted(written)} has no effect, because {field} needs the door extender"


def gang_size(written: str) -> int | None:
    """How many Pods a gang has, as written on one of them; None where that is no such number."""
    digits = written.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6):
        return None
    size = int(digits)
    return size if 1 <= size <= MOST_PODS else None


def another_scheduler(pod: dict[str, Any], settings: Settings) -> str:
    """The sentence for a Pod that we leave alone, because it chose another scheduler."""
    gates = Door.GATES in installed_doors(settings)
    instead = f", or annotate {DOOR}: {Door.GATES}," if gates else ""
    return (
        f"spec.schedulerName is {quoted(_scheduler_of(pod))}, so Cardwise neither changes nor "
        f"places this Pod; leave the name out{instead} to have it placed"
    )


def needs_extender(field: str) -> str:
    """The sentence for a Pod at the gate with a field that the node rules do not check."""
    return (
        f"{field} is judged by kube-scheduler alone, so this Pod can't be decided before it is "
        "queued. Do without it (have a claim bound before, say), or have the door extender "
        "installed, too, and make the Pod anew."
    )


def _size_warnings(pod: dict[str, Any], door: Door | None) -> Iterator[str]:
    """A gang whose size can't be read waits for ever; a size without a gang is for nobody."""
    written = annotations_of(pod).get(GANG_SIZE, "")
    if door is not Door.GATES or not written.strip():
        return
    if not _gang(pod):
        yield f"{GANG_SIZE}: {quoted(written)} has no effect without {GANG}"
    elif gang_size(written) is None:
        yield (
            f"{GANG_SIZE}: {quoted(written)} is no number of Pods, so the gang waits; write a "
            f"whole number from 1 to {MOST_PODS}"
        )


def _asked(pod: dict[str, Any]) -> Door | None:
    """The door that a Pod's annotation names."""
    written = annotations_of(pod).get(DOOR, "").strip()
    return Door(written) if written in list(Door) else None


def _scheduler_of(pod: dict[str, Any]) -> str:
    return text(at(pod, "spec", "schedulerName"))


def _gang(pod: dict[str, Any]) -> str:
    """By which key the Pod says that it is one of a gang; empty: it says nothing."""
    if annotations_of(pod).get(GANG, "").strip():
        return GANG
    return POD_GROUP_LABEL if text(at(pod, "metadata", "labels", POD_GROUP_LABEL)) else ""


def _has_claims(pod: dict[str, Any]) -> bool:
    """Whether it has volumes of claims: which nodes reach them is known to the cluster alone."""
    return any(
        at(volume, kind) is not None
        for volume in items(at(pod, "spec", "volumes"))
        for kind in ("persistentVolumeClaim", "ephemeral")
    )
