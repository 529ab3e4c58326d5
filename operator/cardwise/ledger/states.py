"""Give equal node states the same number, so that a memo can be asked by a small integer."""

from cardwise.model import NodeState


class States:
    """The node states seen so far, numbered."""

    def __init__(self, limit: int = 50_000) -> None:
        """Make an empty table.

        Args:
            limit: states kept. Above it the table starts afresh; numbers are never used twice, so
                that an old answer can't be taken for a new state's.
        """
        self._limit = limit
        self._numbers: dict[NodeState, int] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, state: NodeState) -> int:
        """The number of a state: the same for equal states while the table lasts."""
        known = self._numbers.get(state)
        if known is not None:
            return known
        if len(self._numbers) >= self._limit:
            self._numbers.clear()
        number = self._numbers[state] = self._next
        self._next += 1
        return number
