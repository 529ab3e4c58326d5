"""On which nodes DaemonSets have Pods, by selector, affinity and taints."""

from collections.abc import Sequence

from cardwise.cli.documents import Document
from cardwise.names import NodeReason
from cardwise.noderules import Needs, NodeBook

_NO_NODE = "its nodeSelector, affinity or tolerations keep it from every node"
_NOT_THERE = (NodeReason.AFFINITY, NodeReason.TAINT)
"""Where the DaemonSet's controller makes no Pod at all."""


def is_made(document: Document, book: NodeBook) -> bool:
    """Whether there is such a Pod: one of a DaemonSet may be made from its node."""
    node = document.only_node
    if not node:
        return True
    return book.refusals(Needs(dict(document.body)), [node]).get(node) not in _NOT_THERE


def without_pods(documents: Sequence[Document], there: Sequence[Document]) -> list[str]:
    """A note on each DaemonSet that has no Pod on any node.

    Args:
        documents: Pods; of each DaemonSet one for every node.
        there: those of them for which `is_made`.
    """
    made = {_owner(document) for document in there if document.only_node}
    owners = {_owner(document): document for document in documents if document.only_node}
    return [
        f"{document.where}: DaemonSet {name}: it stands for no Pod: {_NO_NODE}"
        for name, document in owners.items()
        if name not in made
    ]


def _owner(document: Document) -> str:
    """Namespace and name of the DaemonSet that a Pod is of."""
    return f"{document.namespace}/{document.name.removesuffix(f'-{document.only_node}')}"
