"""The pin: one patch that opens a Pod's gate, names its cards, and leaves it one node.

Beside the Binding, this is the other write that places a Pod. Who binds it then can choose no other
node, so its cards count from the patch on: the booking is read from the Pod by what the patch left
(docs/decisions/0011-two-doors-one-ledger.md).
"""

from collections.abc import Mapping
from typing import Any

from cardwise.model import PodRef
from cardwise.names import ALLOCATED, GATE, VGPU_NODE
from cardwise.wire.fields import annotation, at, items, mapping, text

_NAME = "metadata.name"
_AFFINITY = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")

Json = dict[str, Any]


def gates_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of the gates that keep a Pod from being scheduled."""
    return [text(at(gate, "name")) for gate in items(at(pod, "spec", "schedulingGates"))]


def pinned_node(pod: Mapping[str, Any]) -> str | None:
    """The only node that an unbound Pod with an allocation can still go to; None for any other.

    Its affinity can't be changed any more once its gates are gone, and while a gate of ours is
    there the allocation is none of ours: the API server and the admission policy
    ``cardwise-allocations`` hold these two.
    """
    node = annotation(pod, VGPU_NODE)
    if not node or annotation(pod, ALLOCATED) is None or GATE in gates_of(pod):
        return None
    terms = items(at(pod, *_AFFINITY, "nodeSelectorTerms"))
    # An empty term matches no node at all, so it leaves none.
    some = [term for term in terms if _matches_any(term)]
    return node if some and all(_leaves_only(node, term) for term in some) else None


def pin_patch(
    pod: PodRef,
    *,
    node: str,
    version: str,
    terms: list[Json] | None,
    annotations: Mapping[str, str],
) -> Json:
    """Make the merge patch.

    Args:
        pod: its UID is checked by the API server: a namesake is not pinned in its place.
        node: where it may go.
        version: the resourceVersion of the Pod that was decided on: what was changed since is
            decided anew, and a patch that comes late has no effect.
        terms: its required node affinity, which can be tightened only; None: it has none.
        annotations: the allocation.
    """
    pin = {"key": _NAME, "operator": "In", "values": [node]}
    # Terms are alternatives: each must name the node. One that is empty matches no node, and the
    # API server takes no addition to it.
    tight = [
        {**term, "matchFields": [*items(term.get("matchFields")), pin]}
        if _matches_any(term)
        else term
        for term in terms or ()
    ] or [{"matchFields": [pin]}]
    metadata: Json = {"resourceVersion": version, "annotations": dict(annotations)}
    if pod.uid:
        metadata["uid"] = pod.uid
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": tight}}
    return {
        "metadata": metadata,
        "spec": {"schedulingGates": None, "affinity": {"nodeAffinity": affinity}},
    }


def unpinned(pod: Mapping[str, Any], node: str) -> Json:
    """A Pod without the pin that names this node: as its owner wrote its node affinity."""
    pin = {"key": _NAME, "operator": "In", "values": [node]}
    terms: list[Json] = []
    for term in required_terms(pod) or ():
        fields = items(term.get("matchFields"))
        # The pin is the last: a DaemonSet's Pod names its node by just such a field of its own.
        fields = fields[:-1] if fields[-1:] == [pin] else fields
        rest = {key: value for key, value in term.items() if key != "matchFields"}
        left = {**rest, "matchFields": fields} if fields else rest
        terms += [left] if _matches_any(left) else []
    spec, affinity = mapping(pod.get("spec")), mapping(at(pod, "spec", "affinity"))
    nodes = {k: v for k, v in mapping(affinity.get("nodeAffinity")).items() if k != _AFFINITY[-1]}
    # What was nothing but the pin leaves any node.
    if terms:
        nodes[_AFFINITY[-1]] = {"nodeSelectorTerms": terms}
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": nodes}}}


def open_patch(pod: PodRef, version: str) -> Json:
    """Make the patch that opens the gate of a Pod which asks for no card."""
    return {
        "metadata": {"resourceVersion": version, "uid": pod.uid},
        "spec": {"schedulingGates": None},
    }


def required_terms(pod: Mapping[str, Any]) -> list[Json] | None:
    """A Pod's required node affinity; None where it has none at all."""
    required = at(pod, *_AFFINITY)
    return (
        None if required is None else [mapping(t) for t in items(at(required, "nodeSelectorTerms"))]
    )


def _matches_any(term: object) -> bool:
    """Whether a term says anything: an empty one matches no node."""
    return bool(items(at(term, "matchExpressions")) or items(at(term, "matchFields")))


def _leaves_only(node: str, term: object) -> bool:
    """Whether a term matches no other node than this one."""
    return any(
        at(each, "key") == _NAME
        and at(each, "operator") == "In"
        and items(at(each, "values")) == [node]
        for each in items(at(term, "matchFields"))
    )
