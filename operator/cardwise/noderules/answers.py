"""Answers about all nodes that are kept up to date by what happened to which node."""

from collections.abc import Callable, Collection, Hashable
from typing import NamedTuple

from cardwise.journal import START, Journal
from cardwise.names import NodeReason


class _Kept(NamedTuple):
    position: int
    answers: dict[str, NodeReason]


class Answers:
    """The refusals of every node, by kind of question; only touched nodes are asked again."""

    def __init__(self, journal: Journal, most: int) -> None:
        """Keep at most so many kinds: those asked for last."""
        self._journal = journal
        self._most = most
        self._kept: dict[Hashable, _Kept] = {}

    def of(
        self, kind: Hashable, names: Collection[str], judge: Callable[[str], NodeReason | None]
    ) -> dict[str, NodeReason]:
        """The refusals now.

        Args:
            kind: what the question depends on besides the node.
            names: of all nodes that there are.
            judge: answers for one node.
        """
        kept = self._kept.pop(kind, None)
        if kept is None:
            kept = _Kept(START, {})
            position, touched = self._journal.since(START)[0], None
        else:
            position, touched = self._journal.since(kept.position)
        answers = kept.answers if touched is not None else {}
        for name in names if touched is None else touched:
            reason = judge(name) if name in names else None
            if reason is not None:
                answers[name] = reason
            elif touched is not None:
                answers.pop(name, None)
        self._kept[kind] = _Kept(position, answers)
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return answers
