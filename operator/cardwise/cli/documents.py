"""Kubernetes objects from files: lists unpacked, workloads expanded into the Pods that they make.

Separate from ``simulate``, because what a file holds is one question and where its Pods go another.
Every object remembers its file and line, so that an error can name them.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from cardwise.admission import template_warnings
from cardwise.cli.yamltext import texts_of
from cardwise.errors import BadDocument
from cardwise.names import API_GROUP, GPUNODE_KIND

STDIN = "-"
_GROUPS: Mapping[str, str] = {
    "Pod": "",
    "Node": "",
    "ResourceQuota": "",
    GPUNODE_KIND: API_GROUP,
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""The kinds that are read, and whose they are: another group's ``Job`` is another kind."""
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The taints that every Pod of a DaemonSet tolerates."""
_NODES = ("Node", GPUNODE_KIND)
_Known: TypeAlias = "dict[tuple[str, ...], Document]"
_MOST_REPLICAS = 100_000
_DEEPEST_LIST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One object, and where it stands."""

    kind: str
    name: str
    namespace: str
    """Empty for a kind without namespaces."""
    body: Mapping[str, Any]
    where: str
    """``pods.yaml:12``."""
    is_known: bool = True
    """False: a kind that nothing here reads."""
    has_prefix_only: bool = False
    """Whether ``name`` is a ``generateName``, still to be completed."""
    made_by: str = ""
    """The kind of the workload that it is a Pod of."""
    only_node: str = ""
    """Of a Pod of a DaemonSet: the one node that it is for."""
    warnings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``Pod default/p``."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"

    @property
    def key(self) -> tuple[str, ...]:
        """What only one object has. One of a kind that nothing reads may be there many times."""
        own = () if self.is_known else (self.where,)
        return (self.kind, self.namespace, self.name, *own)

    @property
    def kind_meant(self) -> str:
        """The kind that is read and differs by its letters' case alone; mostly none, empty."""
        near = (kind for kind in _GROUPS if kind.lower() == self.kind.lower())
        return next((kind for kind in near if kind != self.kind), "")

    @property
    def is_workload(self) -> bool:
        """Whether it stands for Pods."""
        return self.is_known and self.kind in _WORKLOADS


def read(paths: Iterable[str]) -> list[Document]:
    """Read the objects of some files in order; ``-`` is standard input.

    Raises:
        BadDocument: one sentence that names the file, and the line where there is one.
    """
    documents: list[Document] = []
    named = list(paths)
    if named.count(STDIN) > 1:
        raise BadDocument("standard input: it is named twice, and can be read only once.")
    for path in named:
        source = "standard input" if path == STDIN else path
        documents += documents_of(_content(path, source), source)
    return expanded(documents)


def documents_of(text: str, source: str) -> list[Document]:
    """Read the objects of one text, with lists unpacked.

    Raises:
        BadDocument: one sentence that names the source and the line.
    """
    return [
        _document(body, f"{source}:{line}")
        for each in texts_of(text, source)
        for body, line in _unpacked(each.value, each.line, each.item_lines, source, _DEEPEST_LIST)
    ]


def expanded(documents: Iterable[Document]) -> list[Document]:
    """Put the Pods that a workload makes in its place, and see that every name is there once.

    Raises:
        BadDocument: an object is there twice, or a workload can't be read.
    """
    given: _Known = {}
    for document in documents:
        _add(given, document)
    nodes = sorted({it.name for it in given.values() if it.kind in _NODES and it.is_known})
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


def _content(path: str, source: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise BadDocument(f"{source}: it can't be read: {reason}.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadDocument(f"{source}:{line}: it is not UTF-8.") from error


def _unpacked(
    value: object, line: int, item_lines: tuple[int, ...], source: str, depth: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects in a value: itself, or the items of a ``List``, ``PodList`` and so on."""
    where = f"{source}:{line}"
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or not kind:
        raise BadDocument(f"{where}: it is not a Kubernetes object: it has no kind.")
    if not (kind.endswith("List") and "items" in value):
        yield value, line
        return
    items = value["items"] or []
    if not isinstance(items, list):
        raise BadDocument(f"{where}: the items of this {kind} are not a list.")
    if depth == 0:
        raise BadDocument(f"{where}: lists are nested too deep.")
    for number, item in enumerate(items):
        item_line = item_lines[number] if number < len(item_lines) else line
        # The items of a typed list leave out what its own kind says.
        if isinstance(item, dict) and kind != "List" and "kind" not in item:
            item = {"apiVersion": value.get("apiVersion"), "kind": kind[:-4], **item}  # noqa: PLW2901
        yield from _unpacked(item, item_line, (), source, depth - 1)


def _document(body: dict[str, Any], where: str) -> Document:
    kind = body["kind"]
    version = body.get("apiVersion")
    group = version.rpartition("/")[0] if isinstance(version, str) else _GROUPS.get(kind)
    is_known = kind in _GROUPS and group == _GROUPS[kind]
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise BadDocument(f"{where}: the metadata of this {kind} is not an object.")
    name = metadata.get("name") or metadata.get("generateName")
    has_prefix_only = kind == "Pod" and is_known and not metadata.get("name")
    if is_known and (not isinstance(name, str) or not name):
        raise BadDocument(f"{where}: this {kind} has no name.")
    namespace = metadata.get("namespace") or "default"
    if is_known and not isinstance(namespace, str):
        raise BadDocument(f"{where}: the namespace of {kind} {name} is not a text.")
    return Document(
        kind=kind,
        name=str(name or ""),
        namespace="" if kind in _NODES else str(namespace),
        body=body,
        where=where,
        is_known=is_known,
        has_prefix_only=has_prefix_only,
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
