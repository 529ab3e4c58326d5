"""Notice Pods with cards that never passed our admission, and say so: nobody else would.

They came while the webhook was away, or were exempted from it. The cluster's own kube-scheduler
refuses them for a resource that no node has, in words that name neither Cardwise nor a webhook.
"""

from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.telling.teller import Teller
from cardwise.doors import door_of, installed_doors
from cardwise.names import (
    DEFAULT_SCHEDULER,
    GATE,
    SCHEDULER_NAME,
    WEBHOOK_IGNORE,
    WEBHOOK_LABEL,
    Door,
)
from cardwise.settings import Settings
from cardwise.wire import pins, pods
from cardwise.wire.fields import at, items, text

Json = dict[str, Any]


class Bypassed:
    """Keeps an account of the Pods that wait without having passed our admission.

    One of the mirror's followers: it sees every Pod, so what most Pods are is asked first.
    """

    def __init__(self, teller: Teller, settings: Settings, clock: Clock) -> None:
        self._teller = teller
        self._settings = settings
        self._clock = clock
        self._waiting: dict[str, float] = {}
        """UIDs, and when each was first seen (monotonic seconds)."""

    def __len__(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone."""
        ref = pods.pod_ref(pod)
        if deleted or not has_bypassed(pod, self._settings):
            self._waiting.pop(ref.uid, None)
            return
        self._waiting.setdefault(ref.uid, self._clock.monotonic())
        self._teller.bypassed(ref)

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """Nodes are no matter here."""

    def listed(self, uids: set[str], began: float) -> None:
        """Forget those that a complete list does not have, and that were known before it began."""
        for uid in [uid for uid, seen in self._waiting.items() if seen < began]:
            if uid not in uids:
                del self._waiting[uid]


def has_bypassed(pod: Json, settings: Settings) -> bool:
    """Whether a Pod waits for cards without having passed our admission, which gives it a door.

    The label that exempts a Pod is its owner's word; that of its namespace can't be seen here.
    """
    if pods.bound_node(pod) is not None or pods.is_finished(pod) or pods.is_terminating(pod):
        return False
    if not pods.asks_cards(pod) or GATE in pins.gates_of(pod) or pods.placed_node(pod) is not None:
        return False
    if at(pod, "metadata", "labels", WEBHOOK_LABEL) == WEBHOOK_IGNORE:
        return False
    scheduler = text(at(pod, "spec", "schedulerName"))
    if scheduler == SCHEDULER_NAME:
        lost = Door.EXTENDER not in installed_doors(settings)  # no scheduler has this name
    else:
        # Another scheduler is a choice, and so may be HAMi's while it runs beside us.
        lost = scheduler == DEFAULT_SCHEDULER and _is_refused(pod)
    return lost and door_of(pod, settings) is not None and _asks_some(pod, settings)


def _is_refused(pod: Json) -> bool:
    """Whether a kube-scheduler looked at it and found no node."""
    return any(
        at(condition, "type") == "PodScheduled" and at(condition, "status") == "False"
        for condition in items(at(pod, "status", "conditions"))
    )


def _asks_some(pod: Json, settings: Settings) -> bool:
    """Whether it asks for a card, or in a way that admission would have denied."""
    return pods.request_of(pod, settings) is not None
