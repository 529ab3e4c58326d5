"""kube-scheduler's extender calls: JSON ⇄ values.

The names are Go's field names, because the types have no JSON tags; Go reads such names whatever
their case, so reading here does too. The Pod passes through as the JSON that it is: other modules
of this package read it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from cardwise.errors import BadBody
from cardwise.wire.fields import quoted
from cardwise.wire.nodenames import NodeNames, set_apart

BODY_BYTES = 16 * 1024 * 1024
"""The largest body that is read."""
_NAME_LENGTH = 253
"""Of a node, at most: what is longer is not repeated in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCall:
    """A call of /filter: which of these nodes may the Pod go to?"""

    pod: Mapping[str, Any]
    """The Pod as kube-scheduler has it."""
    about: NodeNames
    """The nodes asked about."""
    nodes: tuple[Mapping[str, Any], ...] | None = None
    """The same nodes in full, where the caller keeps no cache of names (``nodeCacheCapable``
    false): it then wants whole nodes back. Parallel to ``names``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes asked about, in the caller's order, each once."""
        return self.about.in_order

    @property
    def asked(self) -> frozenset[str]:
        """The same names."""
        return self.about.distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """The Pods that kube-scheduler would evict on one node."""

    uids: tuple[str, ...]
    pdb_violations: int = 0
    """How many of them a PodDisruptionBudget protects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptCall:
    """A call of /preempt: on which of these nodes would evicting help the Pod?"""

    pod: Mapping[str, Any]
    victims: Mapping[str, Victims]
    """By node name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindCall:
    """A call of /bind: bind this Pod to this node."""

    name: str
    namespace: str
    uid: str
    node: str


def decoded(body: bytes) -> object:
    """Read a body's JSON.

    Raises:
        BadBody: it is too large, or no JSON.
    """
    if len(body) > BODY_BYTES:
        raise BadBody(f"The body has {len(body)} bytes, more than the {BODY_BYTES} that are read.")
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadBody(f"The body is not JSON: {error}.") from error
    return value


def filter_call_in(body: bytes, known: frozenset[str] = frozenset()) -> FilterCall:
    """Read ExtenderArgs, the names no further than they are needed.

    It says what `filter_call` of the decoded body would.

    Args:
        body: JSON.
        known: the names that were asked about last, see `NodeNames`.

    Raises:
        BadBody: one sentence, which names the field where there is one.
    """
    apart = set_apart(body, known)
    if apart is not None and len(body) <= BODY_BYTES:
        rest, names = apart
        with suppress(BadBody):  # what is wrong is said of the whole body
            value = _object("The body", decoded(rest))
            if sum(key.lower() == "nodenames" for key in value) == 1:
                return FilterCall(pod=_pod(_fields(value)), about=names)
    return filter_call(decoded(body), known)


def filter_call(value: object, known: frozenset[str] = frozenset()) -> FilterCall:
    """Read ExtenderArgs.

    Args:
        value: the body's JSON.
        known: the names that were asked about last, see `NodeNames`.

    Raises:
        BadBody: one sentence that names the field.
    """
    body = _fields(value)
    pod = _pod(body)
    names = body.get("nodenames")
    if names is not None:
        return FilterCall(pod=pod, about=NodeNames(_texts("NodeNames", names), known))
    if body.get("nodes") is None:
        raise BadBody("The body has neither NodeNames nor Nodes.")
    nodes: dict[str, Mapping[str, Any]] = {}
    for node in _listed("Nodes.items", _object("Nodes", body["nodes"]).get("items")):
        nodes.setdefault(_name_of("Nodes.items", node), node)
    return FilterCall(pod=pod, about=NodeNames(tuple(nodes)), nodes=tuple(nodes.values()))


def filter_result(
    call: FilterCall, kept: Iterable[str], refused: Mapping[str, str], error: str = ""
) -> dict[str, Any]:
    """Write an ExtenderFilterResult, in the form in which the nodes were asked about.

    All refusals go to ``FailedAndUnresolvableNodes``: for one in ``FailedNodes`` kube-scheduler
    would look for Pods to evict, find that none need go, and call that an error.

    Args:
        call: what was asked. A node that was not is left out: kube-scheduler fails on one.
        kept: the nodes that the Pod may go to.
        refused: the others, each with its word.
        error: why there is no answer; empty when there is one.
    """
    chosen = set(kept)
    names: list[str] | None = _in_order(chosen, call.about)
    nodes = None
    if call.nodes is not None:
        pairs = zip(call.names, call.nodes, strict=True)
        nodes = {"metadata": {}, "items": [node for name, node in pairs if name in chosen]}
        names = None
    return {
        "Nodes": nodes,
        "NodeNames": names,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": _of_those_asked(refused, call),
        "Error": error,
    }


def _in_order(chosen: set[str], about: NodeNames) -> list[str]:
    """The chosen nodes that were asked about."""
    if len(chosen) < 2:  # the usual case: one of thousands
        return [name for name in chosen if name in about]
    return [name for name in about if name in chosen]


def _of_those_asked(refused: Mapping[str, str], call: FilterCall) -> dict[str, str]:
    """The refusals of the nodes that were asked about."""
    if not refused or refused.keys() <= call.asked:
        return dict(refused)
    return {name: refused[name] for name in call.names if name in refused}


def filter_error(error: str) -> dict[str, Any]:
    """Write an ExtenderFilterResult that says only why there is no answer."""
    return filter_result(FilterCall(pod={}, about=NodeNames()), (), {}, error)


def preempt_call(value: object) -> PreemptCall:
    """Read ExtenderPreemptionArgs; victims come as UIDs or as whole Pods.

    Raises:
        BadBody: one sentence that names the field.
    """
    body = _fields(value)
    pod = _pod(body)
    meta, full = body.get("nodenametometavictims"), body.get("nodenametovictims")
    if meta is None and full is None:
        raise BadBody("The body has neither NodeNameToMetaVictims nor NodeNameToVictims.")
    # Both may be there, one of them empty: Go sends a nil map as null, an empty one as {}.
    field, by_node, uid_of = (
        ("NodeNameToMetaVictims", meta, _meta_uid)
        if meta
        else ("NodeNameToVictims", full or {}, _pod_uid)
    )
    victims = {}
    for node, entry in _object(field, by_node).items():
        where = f"{field}[{quoted(node, _NAME_LENGTH)}]"
        fields = {} if entry is None else _fields(entry, where)
        pods = _listed(f"{where}.Pods", fields.get("pods"))
        count = fields.get("numpdbviolations") or 0
        if isinstance(count, bool) or not isinstance(count, int):
            raise BadBody(f"{where}.NumPDBViolations is not a whole number.")
        victims[node] = Victims(
            uids=tuple(uid_of(f"{where}.Pods", pod_entry) for pod_entry in pods),
            pdb_violations=count,
        )
    return PreemptCall(pod=pod, victims=victims)


def preempt_result(call: PreemptCall, kept: Iterable[str]) -> dict[str, Any]:
    """Write an ExtenderPreemptionResult: the nodes kept, their victims unchanged."""
    chosen = set(kept)
    return {
        "NodeNameToMetaVictims": {
            node: {
                "Pods": [{"UID": uid} for uid in victims.uids],
                "NumPDBViolations": victims.pdb_violations,
            }
            for node, victims in call.victims.items()
            if node in chosen
        }
    }


def bind_call(value: object) -> BindCall:
    """Read ExtenderBindingArgs.

    Raises:
        BadBody: one sentence that names the field.
    """
    body = _fields(value)
    return BindCall(
        name=_text(body, "PodName"),
        namespace=_text(body, "PodNamespace"),
        uid=_text(body, "PodUID"),
        node=_text(body, "Node"),
    )


def bind_result(error: str = "") -> dict[str, Any]:
    """Write an ExtenderBindingResult; an empty error is success."""
    return {"Error": error}


def _fields(value: object, where: str = "The body") -> dict[str, Any]:
    """The fields of a Go struct by their names in lower case; of equal ones the last counts."""
    return {key.lower(): field for key, field in _object(where, value).items()}


def _object(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadBody(f"{where} is not an object.")
    if not all(isinstance(key, str) for key in value):
        raise BadBody(f"{where} has a key that is not a text.")
    return value


def _pod(body: Mapping[str, Any]) -> Mapping[str, Any]:
    if body.get("pod") is None:
        raise BadBody("The body has no Pod.")
    return _object("Pod", body["pod"])


def _listed(where: str, value: object) -> list[Any]:
    """A list; Go writes one that was never made as null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadBody(f"{where} is not a list.")
    return value


def _texts(where: str, value: object) -> list[str]:
    texts = _listed(where, value)
    try:
        "".join(texts)  # of thousands, the fastest way to look at each
    except TypeError as error:
        raise BadBody(f"{where} has an entry that is not a text.") from error
    return texts


def _text(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field.lower())
    if not isinstance(value, str) or not value:
        raise BadBody(f"{field} is not given." if not value else f"{field} is not a text.")
    return value


def _metadata(where: str, entry: object) -> dict[str, Any]:
    return _object(f"{where}[].metadata", _object(f"{where}[]", entry).get("metadata"))


def _name_of(where: str, node: object) -> str:
    name = _metadata(where, node).get("name")
    if not isinstance(name, str) or not name:
        raise BadBody(f"{where}[].metadata.name is not a name.")
    return name


def _pod_uid(where: str, pod: object) -> str:
    uid = _metadata(where, pod).get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadBody(f"{where}[].metadata.uid is not a UID.")
    return uid


def _meta_uid(where: str, entry: object) -> str:
    return _text(_fields(entry, f"{where}[]"), "UID")
