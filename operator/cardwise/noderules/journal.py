"""What happened to which node since somebody last looked, and answers kept up to date by it."""

from collections.abc import Callable, Collection, Hashable
from typing import Final, NamedTuple

from cardwise.names import NodeReason

START: Final = 0
"""A position before everything."""
_SLACK: Final = 1000


class Journal:
    """The nodes by when they were last touched."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._position = START
        self._horizon = START
        self._last: dict[str, int] = {}

    def touch(self, name: str) -> None:
        """Note that an answer about this node may have changed."""
        self._position += 1
        self._last.pop(name, None)
        self._last[name] = self._position

    def since(self, position: int) -> tuple[int, set[str] | None]:
        """The position now, and the nodes touched since another; None: too long ago to tell."""
        if position < self._horizon:
            return self._position, None
        names = set()
        for name in reversed(self._last):
            if self._last[name] <= position:
                break
            names.add(name)
        return self._position, names

    def forget(self, known: Collection[str]) -> None:
        """Drop the names of nodes that are gone, once there are more of them than is of use."""
        if len(self._last) <= 2 * len(known) + _SLACK:
            return
        self._last = {name: at for name, at in self._last.items() if name in known}
        self._horizon = self._position


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
