"""Kubernetes objects from files, with lists unpacked.

Separate from ``simulate``, because what a file holds is one question and where its Pods go another.
Every object remembers its file and line, so that an error can name them.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
NODES = ("Node", GPUNODE_KIND)
"""The kinds of which each object is about one node, and has its name."""
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
    return documents


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
        namespace="" if kind in NODES else str(namespace),
        body=body,
        where=where,
        is_known=is_known,
        has_prefix_only=has_prefix_only,
    )
