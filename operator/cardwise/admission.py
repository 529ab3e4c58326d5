"""A new Pod → the Pod as it should be stored, warnings for its owner, or a denial.

Pure, and shared by the webhook and ``cardwise simulate``, so that a file says beforehand what the
cluster will say (docs/admission.md). What it adds to containers is in ``wire.defaulting``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cardwise import doors, policy
from cardwise.model import WHOLE_CORES, InvalidRequest, Request
from cardwise.names import (
    ALLOCATION_ANNOTATIONS,
    ANNOTATION_BYTES_AT_ADMISSION,
    DOOR,
    GANG,
    GANG_SIZE,
    NUMA_BIND,
    POLICY,
    RESOURCE_CORES,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCES,
    TOPOLOGY,
    WEBHOOK_IGNORE,
    WEBHOOK_LABEL,
    PolicyName,
    TopologyMode,
)
from cardwise.settings import Settings
from cardwise.wire.containers import amount, containers_of, count_of, named
from cardwise.wire.defaulting import child, takes_whole_memory, with_defaults
from cardwise.wire.fields import annotations_of, at, mapping, quoted, text
from cardwise.wire.jsonpatch import json_patch
from cardwise.wire.pods import annotation_bytes, asks_cards, bound_node, request_of
from cardwise.wire.requests import USER_ANNOTATIONS

__all__ = ["Admission", "admit", "admit_workload", "json_patch", "template_warnings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What becomes of a new Pod."""

    pod: dict[str, Any]
    """The Pod to store: a changed copy, or the very object that came where nothing is changed."""
    warnings: tuple[str, ...] = ()
    """Sentences that kubectl shows."""
    denial: str | None = None
    """Why it is refused and what to write instead; None: it is admitted."""
    matched: bool = True
    """False: none of our business (it asks for no card, or opted out)."""


def admit(pod: dict[str, Any], settings: Settings) -> Admission:
    """Judge a new Pod. The Pod given is never changed; the same one gives the same answer."""
    if at(pod, "metadata", "labels", WEBHOOK_LABEL) == WEBHOOK_IGNORE or not asks_cards(pod):
        return Admission(pod=pod, matched=False)
    changed = with_defaults(pod, settings)
    request = request_of(changed, settings)
    door = doors.door_of(pod, settings)
    if request is None:
        # It names a resource of ours and asks for no card, e.g. "nvidia.com/gpu: 0". Where another
        # webhook took away what had made us add the cards, they are taken back, and the gate too.
        doors.lead_to(None, mapping(changed.get("spec")))
        taken_back = door is not None and changed != pod
        return Admission(pod=changed if taken_back else pod, matched=taken_back)
    if door is None:
        return Admission(pod=pod, warnings=(doors.another_scheduler(pod, settings),))
    stripped = _strip_allocations(changed)
    if isinstance(request, InvalidRequest):
        return Admission(pod=pod, denial=request.message)
    denial = _denial(changed)
    if denial is not None:
        return Admission(pod=pod, denial=denial)
    spec = child(changed, "spec")
    doors.lead_to(door, spec)
    if settings.admission.runtimeClassName and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = settings.admission.runtimeClassName
    warnings = (
        *stripped,
        *_not_annotations(annotations_of(pod)),
        *doors.door_warnings(pod, settings),
        *_policy_warnings(changed, request),
        *_memory_warnings(changed, settings),
    )
    return Admission(pod=pod if changed == pod else changed, warnings=warnings)


def admit_workload(workload: dict[str, Any], settings: Settings) -> Admission:
    """Judge a Deployment, Job… by the Pods that it will make; it is never changed or refused.

    What its Pods are warned of nobody would see, and why they are denied only in an event of their
    ReplicaSet or Job; so whoever writes the workload is told.
    """
    if at(workload, "metadata", "labels", WEBHOOK_LABEL) == WEBHOOK_IGNORE:
        return Admission(pod=workload, matched=False)
    template, _ = _template(workload)
    asks = asks_cards(mapping(template))
    warnings = [*_not_annotations(annotations_of(workload)), *template_warnings(workload)]
    if asks:
        admission = admit(mapping(template), settings)
        if admission.denial is not None:
            warnings.append(f"its Pods will be denied: {admission.denial}")
        warnings += (f"its Pods: {warning}" for warning in admission.warnings)
    return Admission(pod=workload, warnings=tuple(warnings), matched=asks or bool(warnings))


def template_warnings(workload: dict[str, Any]) -> tuple[str, ...]:
    """Sentences about our annotations on a Deployment, Job… that its Pod template lacks.

    Its Pods never see them: placement goes by the Pod alone.
    """
    template, where = _template(workload)
    if not asks_cards(mapping(template)):
        return ()
    title = f"{text(at(workload, 'kind'))} {text(at(workload, 'metadata', 'name'))}"
    on_workload, on_template = annotations_of(workload), annotations_of(template)
    return tuple(
        f"{title}: annotation {key} has no effect on its Pods; write it in "
        f"{where}.metadata.annotations"
        for key in (*USER_ANNOTATIONS, DOOR, GANG, GANG_SIZE)
        if key in on_workload and key not in on_template
    )


def _template(workload: dict[str, Any]) -> tuple[object, str]:
    """The template of a workload's Pods, and where it stands."""
    template = at(workload, "spec", "template")
    if template is not None:
        return template, "spec.template"
    where = "spec.jobTemplate.spec.template"
    return at(workload, "spec", "jobTemplate", "spec", "template"), where


def _not_annotations(written: Mapping[str, str]) -> Iterator[str]:
    """Sentences about amounts that are written as annotations, where nobody reads them."""
    for key in RESOURCES:
        if key in written:
            yield (
                f"annotation {key} has no effect; write it in resources.limits of the container "
                "that needs the cards"
            )


def unknown_policies(request: Request) -> Iterator[str]:
    """Sentences about the names of a chain that nobody knows, with the nearest one (section 2)."""
    for name in request.unknown_policies:
        near = policy.nearest(name)
        known = f"did you mean {near}?" if near else f"known are {', '.join(PolicyName)}"
        yield f"{POLICY}: {quoted(name)} is unknown and has no effect; {known}"


# Denials ------------------------------------------------------------------------------------------


def _denial(pod: dict[str, Any]) -> str | None:
    """Why a Pod with a readable request is refused; None: it is not."""
    node = bound_node(pod)
    if node is not None:
        return (
            f"spec.nodeName is {quoted(node)}, which passes by the scheduler and so by the cards' "
            "accounts; write a nodeSelector for kubernetes.io/hostname instead"
        )
    for container in containers_of(pod):
        if at(container.json, "securityContext", "privileged") is True:
            return (
                f"container {container.name}: it is privileged, so it sees every card of its node; "
                "remove securityContext.privileged, or run it in a Pod without cards"
            )
    size = annotation_bytes(pod, {})
    if size > ANNOTATION_BYTES_AT_ADMISSION:
        return (
            f"the annotations take {size} bytes, and a Pod with cards may have "
            f"{ANNOTATION_BYTES_AT_ADMISSION}, so that its allocation fits in; write less"
        )
    return None


# Warnings -----------------------------------------------------------------------------------------


def _strip_allocations(pod: dict[str, Any]) -> list[str]:
    """Remove, in place, what only a binding may write; say what was removed."""
    written = mapping(at(pod, "metadata", "annotations"))
    stripped = [key for key in ALLOCATION_ANNOTATIONS if key in written]
    for key in stripped:
        del written[key]
    return [f"annotation {key} is written when the Pod is bound; removed" for key in stripped]


def _policy_warnings(pod: dict[str, Any], request: Request) -> Iterator[str]:
    """What of the annotations has no effect, or less than one might think."""
    yield from unknown_policies(request)
    yield from request.warnings
    asked = request.signature
    one_card = max(ask.count for ask in asked.asks) == 1
    names_topology = PolicyName.TOPOLOGY_AWARE in (request.policy_text or "")
    if asked.policy.topology_aware and one_card and names_topology:
        yield (
            f"{POLICY}: topology-aware is about containers with two or more cards; with one card "
            "each it only keeps well-joined groups of cards whole"
        )
    if asked.numa_bind and one_card:
        yield (
            f"{NUMA_BIND} is about containers with two or more cards; with one card each it only "
            "leaves out cards whose NUMA node is unknown"
        )
    written = annotations_of(pod).get(TOPOLOGY, "").strip()
    if written in list(TopologyMode) and not asked.policy.topology_aware:
        yield f"{TOPOLOGY}: {quoted(written)} has no effect without topology-aware in {POLICY}"


def _memory_warnings(pod: dict[str, Any], settings: Settings) -> Iterator[str]:
    """Say who takes all memory by leaving it out: it surprises whoever meant to share a card."""
    for container in containers_of(pod):
        asked = container.json
        if (
            count_of(asked)
            and not amount(asked, RESOURCE_MEMORY_PERCENT)
            and takes_whole_memory(asked, settings.defaults)
        ):
            whole = amount(asked, RESOURCE_CORES) >= WHOLE_CORES
            yield (
                f"container {container.name}: {_no_memory(asked)}, so it takes the "
                f"{'whole card' if whole else 'whole memory of its card'}; to share a card, write "
                f"the MiB it needs, e.g. {RESOURCE_MEMORY}: 4096"
            )


def _no_memory(container: dict[str, Any]) -> str:
    """How a container says nothing of memory: by a 0, or not at all."""
    for key in (RESOURCE_MEMORY_PERCENT, RESOURCE_MEMORY):
        if named(container, key) is not None:
            return f"{key} is 0, which asks for no part of a card"
    return f"{RESOURCE_MEMORY} is left out"
