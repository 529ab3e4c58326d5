"""Why a Pod of a cluster is where it is, or waits: values, for whoever prints them.

Pure. The Pod is decided anew on the cluster as it is now, by the same engine; what was decided at
the time, only the controller's events tell, for as long as they are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cardwise import doors
from cardwise.admission import unknown_policies
from cardwise.cli.answering import answered
from cardwise.cli.gangs import lacking_in, unbegun
from cardwise.cli.helps import HELPS
from cardwise.cli.placements import Placement
from cardwise.cli.said import Said, said_of
from cardwise.cli.waiting import bearing, door_at, left_alone
from cardwise.cli.world import Objects, World
from cardwise.engine.decide import Memo
from cardwise.errors import BadAllocation
from cardwise.gangs import Gang
from cardwise.model import Booking, InvalidRequest, NodeView, Request
from cardwise.names import (
    ALLOCATED,
    DEFAULT_SCHEDULER,
    RESOURCES,
    SCHEDULER_NAME,
    Door,
    EventReason,
    NodeReason,
    Reason,
)
from cardwise.noderules import Needs, unchecked
from cardwise.settings import Settings
from cardwise.wire import pins, pods
from cardwise.wire.account import allocated_message
from cardwise.wire.fields import at, text

Json = dict[str, Any]


class State(StrEnum):
    """What a Pod is to Cardwise."""

    WAITING = "waiting"
    PLACED = "placed"
    """It has its node, and its cards there, bound or not yet."""
    FINISHED = "finished"
    NO_CARDS = "asks for no card"
    LEFT_ALONE = "left alone"
    """It asks for cards, and another scheduler, or nobody, is to place it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The account of one Pod."""

    pod: Json
    state: State
    door: Door | None = None
    """By which it came; None where nobody can tell any more."""
    request: Request | None = None
    today: Placement | None = None
    """What would be decided now, as if the Pod had no cards yet."""
    booking: Booking | None = None
    """The cards that it has."""
    reason: str | None = None
    """Why it waits; None where it has cards, asks for none, or would fit now."""
    message: str = ""
    sentences: tuple[str, ...] = ()
    """What else there is to know of it."""
    said: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read or looked at: the answer holds but for that."""


def explained(
    pod: Json,
    objects: Objects,
    settings: Settings,
    *,
    events: Sequence[Json] = (),
    notes: Sequence[str] = (),
) -> Explanation:
    """Explain one Pod.

    Args:
        pod: as the API server returns it.
        objects: the cluster's; an older reading of the Pod among them does not count.
        settings: the controller's.
        events: what was said of the Pod (core/v1).
        notes: what is to be told beside.
    """
    uid = pods.pod_ref(pod).uid
    others = [each for each in objects.pods if pods.pod_ref(each).uid != uid]
    objects = replace(objects, pods=(*others, pod))
    found = Explanation(
        pod=pod, state=State.WAITING, said=said_of(events, objects.now), notes=tuple(notes)
    )
    request = pods.request_of(pod, settings)
    if request is None:
        return replace(found, state=State.NO_CARDS)
    if pods.is_finished(pod):
        return replace(found, state=State.FINISHED)
    if pods.placed_node(pod) is not None:
        return _placed(replace(found, state=State.PLACED), request, objects, settings)
    sentences = tuple(bearing(pod, objects.pods, settings))
    found = replace(found, door=door_at(pod), sentences=sentences)
    if alone := left_alone(pod, settings, found.door):
        return replace(found, state=State.LEFT_ALONE, message=alone)
    return _waiting(found, request, objects, settings)


# A Pod that waits ---------------------------------------------------------------------------------


def _waiting(
    found: Explanation, request: Request | InvalidRequest, objects: Objects, settings: Settings
) -> Explanation:
    if isinstance(request, InvalidRequest):
        return replace(found, reason=Reason.INVALID_REQUEST.value, message=request.message)
    found, placement = _decided(found, request, objects, settings)
    gang = unbegun(found.pod, objects.pods) if found.door is Door.GATES else None
    if gang is not None and (lacking := lacking_in(gang, objects.pods)):
        return replace(found, reason=EventReason.GANG_INCOMPLETE.value, message=lacking)
    field = unchecked(found.pod)
    if field and found.door is Door.GATES:
        return replace(
            found,
            reason=EventReason.NEEDS_EXTENDER_DOOR.value,
            message=doors.needs_extender(field),
        )
    if placement.node is None:
        return replace(found, reason=placement.reason, message=placement.message)
    cards = _cards_today(placement)
    if unseen := _unseen(found, gang):
        # That it fits would be too much to say; the controller looks at all of it.
        latest = found.said[0].reason if found.said else None
        return replace(
            found,
            reason=latest if latest in HELPS else None,
            message=f"Nodes and cards leave it room, {cards}; but {unseen}: not looked at.",
        )
    return replace(found, message=f"As the cluster is now it fits: {cards}")


def _unseen(found: Explanation, gang: Gang | None) -> str:
    """What else has to be right before it is placed; empty: nothing that anybody knows of."""
    if gang is not None:
        return f"gang {gang} is placed together, all Pods or none"
    if found.door is Door.GATES and Needs(found.pod).claims:
        return "its volumes have to be there, and usable on that node"
    return ""


# A Pod that has its node --------------------------------------------------------------------------


def _placed(
    found: Explanation, request: Request | InvalidRequest, objects: Objects, settings: Settings
) -> Explanation:
    pod, node = found.pod, pods.placed_node(found.pod)
    bound = pods.bound_node(pod) is not None
    scheduler = text(at(pod, "spec", "schedulerName")) or DEFAULT_SCHEDULER
    sentences = [] if bound else [f"It is pinned to {node}, and {scheduler} has yet to bind it."]
    if pods.is_terminating(pod):
        sentences.append("It is being deleted, and holds its cards until it is gone.")
    try:
        booking = pods.booking_of(pod, init_shrink=settings.scheduling.initShrink)
    except BadAllocation as error:
        booking = None
        why = f"{ALLOCATED} {error}"
        sentences.append(f"Its node takes no new Pod until its allocation can be read: {why}.")
    else:
        if booking is None:
            sentences.append(
                f"It is on {node} without an allocation: Cardwise gave it no card, and counts none."
            )
    found = replace(found, booking=booking, sentences=tuple(sentences))
    if isinstance(request, InvalidRequest):
        return replace(found, message=request.message)
    found, placement = _decided(found, request, objects, settings)
    view = placement.views.get(booking.node) if booking is not None else None
    if booking is not None and view is not None and (absent := _absent(booking, view)):
        missing = f"{booking.node} reports no card {', '.join(absent)} now."
        found = replace(found, sentences=(*found.sentences, missing))
    return replace(found, message=_today(placement, booking))


def _absent(booking: Booking, view: NodeView) -> list[str]:
    """The cards of a booking that its node does not report."""
    given = {share.uuid for shares in booking.containers for share in shares}
    return sorted(given.difference(view.uuids))


def _today(placement: Placement, booking: Booking | None) -> str:
    """What would be decided now."""
    asked = "Decided anew, on the cluster as it is now without this Pod,"
    if placement.node is None:
        return f"{asked} it would wait: {placement.reason}. {placement.message}"
    decided = placement.decision.booking if placement.decision else None
    if decided is not None and booking is not None and _same(decided, booking):
        return f"{asked} it would get the same cards."
    return f"{asked} it would get {_cards_today(placement)}"


def _same(one: Booking, other: Booking) -> bool:
    return (one.node, one.containers) == (other.node, other.containers)


# Both ---------------------------------------------------------------------------------------------


def _decided(
    found: Explanation, request: Request, objects: Objects, settings: Settings
) -> tuple[Explanation, Placement]:
    """Decide on the cluster as it is, as if the Pod had no cards."""
    pod, uid = found.pod, request.pod.uid
    by_extender = text(at(pod, "spec", "schedulerName")) == SCHEDULER_NAME
    # What of ours a Pod requests is for a kube-scheduler to count at the door of gates alone.
    world = World(objects, settings, ignored=RESOURCES if by_extender else ())
    node = pods.placed_node(pod)
    needs = Needs(pod if by_extender or node is None else pins.unpinned(pod, node))
    views = world.views(without=uid)
    world.book.release(uid)
    refusals = world.book.refusals(needs, list(views))
    # A node whose agent is silent advertises nothing for that: the cards' own word says more.
    telling = {
        name: word
        for name, word in refusals.items()
        if word is not NodeReason.RESOURCE or views[name].problem is None
    }
    placement = answered(
        request,
        views,
        telling,
        ledger=world.ledger,
        memo=Memo(),
        size=world.size,
        name_tenants=True,  # who asks may read all Pods
        warnings=(*unknown_policies(request), *request.warnings),
        without={uid},
        preemption_note=request.priority > 0,
    )
    # Of a placed Pod only the node that it has, and the one that it would get, matter.
    at_issue = [node, placement.node] if node is not None else sorted(world.ledger.node_names())
    wrong = world.complaints(dict.fromkeys(name for name in at_issue if name is not None))
    notes = [*found.notes, *world.notes, *wrong]
    if (field := unchecked(pod)) and found.door is not Door.GATES:
        notes.append(f"{field} is kube-scheduler's to judge, and was not looked at")
    if needs.claims:
        notes.append("the Pod's volumes were not looked at: they may leave it fewer nodes")
    return replace(found, request=request, today=placement, notes=tuple(notes)), placement


def _cards_today(placement: Placement) -> str:
    decision = placement.decision
    if decision is None or decision.booking is None:
        return ""
    view = placement.views.get(decision.booking.node)
    return allocated_message(decision.request, decision.booking, view)
