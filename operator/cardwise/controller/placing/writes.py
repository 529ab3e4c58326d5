"""The two writes that give a Pod its cards: a Binding, and the patch that pins.

Both write node, cards and identity at once, and both may be sent again word for word while nobody
knows what became of them.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from cardwise.controller.lease.tenure import WRITE_SECONDS
from cardwise.model import Booking, PodRef, Request
from cardwise.names import GATE
from cardwise.ports import Cluster
from cardwise.wire import pins, pods
from cardwise.wire.fields import size_of

Json = dict[str, Any]

GONE = "the Pod is gone"
DELETED = "the Pod is being deleted"
CHANGED = "the Pod was changed meanwhile"
OPENED = "the Pod's gate is gone"
LATE = (GONE, DELETED, CHANGED, OPENED)
"""Why a write had no effect: the Pod is not any more as it was decided on."""


class Write(Protocol):
    """A write, ready to be sent."""

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        ...

    @property
    def annotation_bytes(self) -> int:
        """The size of the annotations that it adds."""
        ...

    async def send(self, cluster: Cluster) -> None:
        """Send it.

        Raises:
            ApiError: refused, or nobody knows what became of it.
        """
        ...

    def over(self, found: Json) -> str:
        """Why it can't have an effect any more on the Pod as it is found; empty while it can."""
        ...


@dataclass(frozen=True, slots=True)
class BindingWrite:
    """A Binding, which binds the Pod itself."""

    body: Json
    name: str = "the Binding"

    @classmethod
    def of(cls, request: Request, booking: Booking, unix_seconds: int) -> "BindingWrite":
        """Make it."""
        exclusive = request.signature.exclusive
        return cls(pods.binding_body(request.pod, booking, unix_seconds, exclusive=exclusive))

    @property
    def annotation_bytes(self) -> int:
        """The size of the annotations that it adds."""
        return size_of(self.body["metadata"]["annotations"])

    async def send(self, cluster: Cluster) -> None:
        """Send it."""
        await cluster.bind(self.body, within=WRITE_SECONDS)

    def over(self, found: Json) -> str:
        """The API server binds no Pod that is being deleted, not later either."""
        return DELETED if pods.is_terminating(found) else ""


@dataclass(frozen=True, slots=True)
class PinWrite:
    """The patch that leaves the Pod one node; the cluster's own kube-scheduler binds it."""

    pod: PodRef
    body: Json
    name: str = "the pin"

    @classmethod
    def of(
        cls,
        request: Request,
        booking: Booking,
        unix_seconds: int,
        version: str,
        terms: list[Json] | None,
    ) -> "PinWrite":
        """Make it for the Pod as it was decided on."""
        annotations = pods.allocation_annotations(
            booking, unix_seconds, exclusive=request.signature.exclusive
        )
        body = pins.pin_patch(
            request.pod, node=booking.node, version=version, terms=terms, annotations=annotations
        )
        return cls(request.pod, body)

    @property
    def annotation_bytes(self) -> int:
        """The size of the annotations that it adds."""
        return size_of(self.body["metadata"]["annotations"])

    async def send(self, cluster: Cluster) -> None:
        """Send it."""
        await cluster.patch_pod(self.pod.namespace, self.pod.name, self.body, within=WRITE_SECONDS)

    def over(self, found: Json) -> str:
        """It is for one version of the Pod: after any change it is refused, however late."""
        if pods.resource_version(found) != self.body["metadata"]["resourceVersion"]:
            return CHANGED
        return "" if GATE in pins.gates_of(found) else OPENED
