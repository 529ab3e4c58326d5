"""A Pod behind our gate: what is kept of it while it waits.

Ten thousand may wait, so the Pod's JSON is not kept: only what a decision and the pin need.
"""

from dataclasses import dataclass
from typing import Any

from cardwise.gangs import Gang, gang_of
from cardwise.model import InvalidRequest, PodRef, Request
from cardwise.noderules import Needs, unchecked
from cardwise.settings import Settings
from cardwise.wire import pins, pods

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One Pod that waits for its cards."""

    request: Request
    needs: Needs
    version: str
    """The resourceVersion that it was read at: the pin is for no other."""
    terms: list[Json] | None
    """Its required node affinity."""
    order: pods.Order
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
        order=pods.queue_order(pod, request.priority),
        gang=gang_of(pod),
        owner=pods.owner_uid(pod),
        unchecked=unchecked(pod),
    )
