"""A pinned Pod that is not bound: what its JSON says of it, and the sentences about it.

Pure; ``refused`` waits and acts.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from cardwise.model import PodRef
from cardwise.names import DEFAULT_SCHEDULER
from cardwise.wire import pins, pods
from cardwise.wire.fields import at, items, quoted, text
from cardwise.wire.phrases import fitted

Json = dict[str, Any]


class State(Enum):
    """What kube-scheduler has made of a pinned Pod."""

    REFUSED = "refused"
    UNSEEN = "unseen"
    """Nothing: it has not looked at it since the gate was opened."""
    OTHER = "other"
    """It has trouble of its own with it, or another gate is there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPod:
    """One version of it."""

    pod: PodRef
    version: str
    node: str
    scheduler: str
    state: State
    words: str
    """kube-scheduler's own, where it refuses."""
    nominated: bool
    """Others are being removed from the node for it."""
    owner: str
    """The UID of its controller; empty where it has none."""
    owner_kind: str
    owner_name: str

    @property
    def maker(self) -> str:
        """Its controller, for people: ``ReplicaSet web-5d9``."""
        return f"{self.owner_kind} {self.owner_name}"


def concerns_us(pod: Json) -> bool:
    """Whether it may be a pinned Pod that is not bound; cheap, and wrong on no such Pod."""
    return not at(pod, "spec", "nodeName") and pods.has_allocation(pod)


def pinned_pod(pod: Json) -> PinnedPod | None:
    """Read it; None for one that is bound, over, or not pinned."""
    if pods.is_finished(pod) or pods.is_terminating(pod) or pods.bound_node(pod):
        return None
    node = pins.pinned_node(pod)
    if node is None:
        return None
    state, words = _verdict(pod)
    owners = items(at(pod, "metadata", "ownerReferences"))
    owner = next((each for each in owners if at(each, "controller") is True), None)
    return PinnedPod(
        pod=pods.pod_ref(pod),
        version=pods.resource_version(pod),
        node=node,
        scheduler=text(at(pod, "spec", "schedulerName")) or DEFAULT_SCHEDULER,
        state=state,
        words=words,
        nominated=bool(text(at(pod, "status", "nominatedNodeName"))),
        owner=pods.owner_uid(pod),
        owner_kind=text(at(owner, "kind")),
        owner_name=text(at(owner, "name")),
    )


def _verdict(pod: Json) -> tuple[State, str]:
    """What kube-scheduler has made of it, and its words."""
    if pins.gates_of(pod):
        return State.OTHER, ""
    conditions = items(at(pod, "status", "conditions"))
    condition = next((each for each in conditions if at(each, "type") == "PodScheduled"), None)
    reason = text(at(condition, "reason"))
    # As the API server wrote it when the Pod was created with gates.
    if condition is None or reason == "SchedulingGated":
        return State.UNSEEN, ""
    if reason != "Unschedulable":
        return State.OTHER, ""
    words = " ".join(text(at(condition, "message")).split())
    return State.REFUSED, words if words.endswith(".") else f"{words}."


# Sentences ----------------------------------------------------------------------------------------


def refused_note(it: PinnedPod, follows: str) -> str:
    """What kube-scheduler says, and what follows: at most 1,024 bytes."""
    told = f"kube-scheduler refuses this Pod on node {it.node}, where its cards are: {it.words}"
    return fitted(told, f" {follows}")


def evicted_note(it: PinnedPod, seconds: int) -> str:
    """It was refused for so long, and is gone."""
    told = f"Evicted: kube-scheduler refused it for {seconds} s on node {it.node}: {it.words}"
    return fitted(told, f" {it.maker} makes a new Pod, which is decided anew.")


def absent_note(it: PinnedPod, seconds: int) -> str:
    """Nobody looks at it."""
    return (
        f"The Pod has its cards on node {it.node}, and no scheduler has looked at it for {seconds} "
        f"s. See that a scheduler named {quoted(it.scheduler, 120)} runs, or create the Pod with "
        "another schedulerName."
    )


def stays_note(it: PinnedPod) -> str:
    """What people can do about a Pod that is never evicted."""
    if not it.owner:
        return (
            "Nobody would make it anew, so it stays and keeps its cards: make room on the node, or "
            "delete the Pod and create it again."
        )
    return (
        "It stays and keeps its cards (gates.evictRefused is false): make room on the node, or "
        "delete the Pod, so that its successor is decided anew."
    )


def spared_note(it: PinnedPod, evictions: int, minutes: int) -> str:
    """So many others of its owner were evicted that this one is not, for now."""
    return (
        f"It stays for now and keeps its cards: {evictions} Pods of {it.maker} were evicted within "
        f"{minutes} minutes. Make room on the node, or change what the Pods ask for."
    )


def evicted_soon_note(it: PinnedPod, seconds: int) -> str:
    """What is going to happen to it."""
    # kube-controller-manager counts a deleted Pod among a Job's failures, unless it waits for it.
    counts = " The Job counts that as a failure unless its podReplacementPolicy is Failed."
    return (
        f"Once it was refused for {seconds} s it is evicted, so that {it.maker} makes a new Pod, "
        f"which is decided anew.{counts if it.owner_kind == 'Job' else ''}"
    )


NOMINATED_NOTE = "Pods of a lower priority are being removed from there for it."
