"""The nodes that a call of kube-scheduler's is about, read no further than somebody needs.

It names every node for each Pod: of 5,000 nodes 70 kB, in another order each time. The usual answer
is one of them, and whether that one is named can be told by the bytes as they came
(docs/decisions/0017).
"""

from collections.abc import Collection, Iterator, Sequence

import orjson

_FIELD, _END = b'"NodeNames":[', b"]}"
"""As Go writes the field, which is the last of the body's."""
_OF_NAMES = b"abcdefghijklmnopqrstuvwxyz0123456789.-"
"""What a node's name is made of; none of it is ever escaped."""
_SIGNS, _BETWEEN = b'"",', b'","'
"""What a list has beside a name, with the comma after it; and what it has between two."""


class NodeNames(Collection[str]):
    """Names, each once, in their caller's order. Asked ``in``, it reads nothing."""

    __slots__ = ("_count", "_distinct", "_in_order", "_known", "_packed")

    def __init__(self, names: Sequence[str] = (), known: frozenset[str] = frozenset()) -> None:
        """Take names that were read.

        Args:
            names: of nodes.
            known: names that were asked about before. Where these are the same, in whatever order,
                `distinct` is that very set: of thousands, none need be made anew.
        """
        self._known = known
        self._packed: bytes | None = None
        self._take(names)

    @classmethod
    def packed(cls, section: bytes, count: int, known: frozenset[str]) -> "NodeNames":
        """Take names as they came: ``count`` texts of a JSON list, made of `_OF_NAMES` alone."""
        made = cls(known=known)
        made._packed, made._count = section, count
        return made

    def __contains__(self, name: object) -> bool:
        if self._packed is None:
            return name in self._distinct
        # Between two of the names stands a comma in quotes, which no node is called.
        if not isinstance(name, str) or "," in name:
            return False
        return f'"{name}"'.encode(errors="replace") in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self.in_order)

    def __len__(self) -> int:
        """As many as were written; a name that came twice counts twice."""
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeNames):
            return NotImplemented
        return self.in_order == other.in_order

    def __hash__(self) -> int:
        return hash(self.in_order)

    def __repr__(self) -> str:
        return f"NodeNames({self.in_order!r})"

    @property
    def is_read(self) -> bool:
        """Whether the names were read, because somebody needed them."""
        return self._packed is None

    @property
    def in_order(self) -> tuple[str, ...]:
        """The names in the caller's order, each once."""
        self._read()
        return self._in_order

    @property
    def distinct(self) -> frozenset[str]:
        """The same names."""
        self._read()
        return self._distinct

    def _read(self) -> None:
        if self._packed is not None:
            names = orjson.loads(b"[" + self._packed + b"]")
            self._packed = None
            self._take(names)

    def _take(self, names: Sequence[str]) -> None:
        self._count = len(names)
        # As many as are known, of which none is left over: so each is one, and none comes twice.
        if len(names) == len(self._known) and not self._known.difference(names):
            self._distinct = self._known
        else:
            self._distinct = frozenset(names)
        same = len(self._distinct) == len(names)
        self._in_order = tuple(names if same else dict.fromkeys(names))


def set_apart(body: bytes, known: frozenset[str]) -> tuple[bytes, NodeNames] | None:
    """Take the names out of a body, unread.

    Args:
        body: JSON, or not.
        known: names that were asked about before.

    Returns:
        The body with an empty list instead, and the names; None where it is not as Go writes it.
        Where the former is JSON, so is the body, and ``NodeNames`` is its last field: the list runs
        to the end, and a quote after a brace or a comma is not escaped, so it opens that name.
    """
    at = body.rfind(_FIELD)
    if at < 1 or body[at - 1] not in b"{," or not body.endswith(_END):
        return None
    section = body[at + len(_FIELD) : -len(_END)]
    count = _count(section)
    if count is None:
        return None
    return body[:at] + _FIELD + _END, NodeNames.packed(section, count, known)


def _count(section: bytes) -> int | None:
    """How many names a list has, by what is between its brackets; None: not just names."""
    if not section:
        return 0
    signs = section.translate(None, _OF_NAMES)
    count = (len(signs) + 1) // len(_SIGNS)
    # The signs are right; and letters are nowhere but where a name is.
    is_list = (
        signs == (_SIGNS * count)[:-1]
        and section.startswith(b'"')
        and section.endswith(b'"')
        and section.count(_BETWEEN) == count - 1
    )
    return count if is_list else None
