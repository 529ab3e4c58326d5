"""Workloads expanded into the Pods that they make.

Separate from the reading of files: what a Deployment stands for is Kubernetes' rule, however it was
written.
"""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from cardwise.admission import template_warnings
from cardwise.cli.documents import NODES, Document
from cardwise.errors import BadDocument

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The taints that every Pod of a DaemonSet tolerates."""
_Known: TypeAlias = "dict[tuple[str, ...], Document]"
_MOST_REPLICAS = 100_000


def expanded(documents: Iterable[Document]) -> list[Document]:
    """Put the Pods that a workload makes in its place, and see that every name is there once.

    Raises:
        BadDocument: an object is there twice, or a workload can't be read.
    """
    given: _Known = {}
    for document in documents:
        _add(given, document)
    nodes = sorted({it.name for it in given.values() if it.kind in NODES and it.is_known})
    result: _Known = {}
    for document in given.values():
        pods = _pods_of(document, nodes) if document.is_workload else []
        for each in pods or [document]:  # one that stands for no Pod is told of
            _add(result, each)
    return list(result.values())


def _add(known: _Known, document: Document) -> None:
    """Add an object under a name of its own."""
    if document.has_prefix_only:
        document = _first_free(known, document)
    elif document.made_by and document.key in known:
        # A Deployment and a Job may share a name; their Pods can't.
        stem, _, number = document.name.rpartition("-")
        document = _named(document, f"{stem}-{document.made_by.lower()}-{number}")
    first = known.setdefault(document.key, document)
    if first is not document and document.is_known:
        raise BadDocument(
            f"{document.where}: {document.title} is there twice, first at {first.where}."
        )


def _first_free(known: _Known, document: Document) -> Document:
    """Complete a ``generateName`` by the first number that is free."""
    for number in itertools.count():
        named = _named(document, f"{document.name}{number}")
        if named.key not in known:
            return named
    raise AssertionError("there is always one more number")


def _pods_of(workload: Document, nodes: Iterable[str]) -> list[Document]:
    """The Pods that a workload makes, NAME-0, NAME-1 and so on; of a DaemonSet, NAME-NODE."""
    spec, path = _object(workload, "spec", workload.body.get("spec")), "spec"
    is_open = spec.get("suspend") is not True
    if workload.kind == "CronJob":  # one run of it
        path = "spec.jobTemplate.spec"
        template = _object(workload, "spec.jobTemplate", spec.get("jobTemplate"))
        spec = _object(workload, path, template.get("spec"))
    template = _object(workload, f"{path}.template", spec.get("template"))
    metadata = _object(workload, f"{path}.template.metadata", template.get("metadata"))
    pod = Document(
        kind="Pod",
        name=workload.name,
        namespace=workload.namespace,
        body={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": _object(workload, f"{path}.template.spec", template.get("spec")),
        },
        where=workload.where,
        made_by=workload.kind,
        warnings=template_warnings(dict(workload.body)),
    )
    if workload.kind == "DaemonSet":
        return [_on_node(pod, node) for node in nodes]
    count = _count(workload, spec, path) if is_open else 0
    return [_named(pod, f"{workload.name}-{number}") for number in range(count)]


def _on_node(pod: Document, node: str) -> Document:
    """The Pod of a DaemonSet for one node, which stays on that although it is cordoned."""
    spec = pod.body["spec"]
    tolerated = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    own = spec.get("tolerations")
    tolerations = [*(own if isinstance(own, list) else []), *tolerated]
    body = {**pod.body, "spec": {**spec, "tolerations": tolerations}}
    return replace(_named(replace(pod, body=body), f"{pod.name}-{node}"), only_node=node)


def _named(pod: Document, name: str) -> Document:
    metadata = {**pod.body["metadata"], "name": name, "namespace": pod.namespace}
    body = {**pod.body, "metadata": metadata}
    return replace(pod, name=name, body=body, has_prefix_only=False)


def _count(workload: Document, spec: dict[str, Any], path: str) -> int:
    """How many Pods run at once: replicas, or a Job's parallelism up to its completions."""

    def number(field: str, default: int) -> int:
        return _number(workload, f"{path}.{field}", spec.get(field), default)

    if workload.kind not in ("Job", "CronJob"):
        return number("replicas", 1)
    if spec.get("suspend") is True:
        return 0
    parallelism = number("parallelism", 1)
    return min(parallelism, number("completions", parallelism))


def _number(workload: Document, field: str, value: object, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_REPLICAS:
        raise BadDocument(
            f"{workload.where}: {field} of {workload.title} is not a whole number"
            f" from 0 to {_MOST_REPLICAS}."
        )
    return value


def _object(workload: Document, field: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadDocument(f"{workload.where}: {field} of {workload.title} is not an object.")
    return value
