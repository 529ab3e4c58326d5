"""A Pod behind our gate: what is kept of it while it waits.

Ten thousand may wait, so the Pod's JSON is not kept: only what a decision and the pin need.
"""

from dataclasses import dataclass
from typing import Any

from cardwise.controller.gates.gangs import Gang, gang_of
from cardwise.model import InvalidRequest, PodRef, Request
from cardwise.names import GATE
from cardwise.noderules import Needs, unchecked
from cardwise.settings import Settings
from cardwise.wire import pins, pods
from cardwise.wire.fields import at, text

Json = dict[str, Any]

Order = tuple[int, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One Pod that waits for its cards."""

    request: Request
    needs: Needs
    version: str
    """The resourceVersion that it was read at: the pin is for no other."""
    terms: list[Json] | None
    """Its required node affinity."""
    order: Order
    """Its place in the queue: by priority, then creation, then name."""
    gang: Gang | None = None
    owner: str = ""
    """The UID of its controller; empty where it has none."""
    unchecked: str = ""
    """The field that needs the extender door; empty where there is none."""

    @property
    def pod(self) -> PodRef:
        """Which Pod."""
        return self.request.pod


def is_ours(pod: Json) -> bool:
    """Whether a Pod waits for its cards alone: ours is the last gate left.

    While others hold gates, they may still change the Pod.
    """
    return pins.gates_of(pod) == [GATE] and not pods.is_terminating(pod)


def read(pod: Json, settings: Settings) -> Waiting | InvalidRequest | None:
    """Read a Pod that waits behind our gate; None where it asks for no card."""
    request = pods.request_of(pod, settings)
    if request is None or isinstance(request, InvalidRequest):
        return request
    return Waiting(
        request=request,
        needs=Needs(pod),
        version=pods.resource_version(pod),
        terms=pins.required_terms(pod),
        order=_order(pod, request),
        gang=gang_of(pod),
        owner=pods.owner_uid(pod),
        unchecked=unchecked(pod),
    )


def _order(pod: Json, request: Request) -> Order:
    created = text(at(pod, "metadata", "creationTimestamp"))
    return (-request.priority, created, request.pod.name, request.pod.namespace)
