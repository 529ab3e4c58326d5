"""Server-side apply of a GPUNode's status, as the API server does it by the schema of the CRD.

Separate, because it is the one rule of the API server that takes a page: a manager owns fields, not
the status; what it leaves out goes unless another manager owns it too.
"""

import copy
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
Path = tuple[Any, ...]
_KEYS = {("cards",): "uuid", ("usage",): "uuid", ("conditions",): "type"}
"""The keyed lists of the schema; ``links`` is one atomic list."""


class Applied:
    """Who owns which fields of one object's status."""

    def __init__(self) -> None:
        self._owned: dict[str, set[Path]] = {}

    def apply(self, held: Json, status: Json, manager: str) -> Json:
        """The status once the manager applied this, by force."""
        wanted = dict(_leaves(status))
        before = dict(_leaves(held))
        for other, owned in self._owned.items():
            if other != manager:
                owned -= {p for p in wanted if p in before and before[p] != wanted[p]}
        others = {p for m, owned in self._owned.items() if m != manager for p in owned}
        left_out = self._owned.get(manager, set()) - wanted.keys() - others
        self._owned[manager] = set(wanted)
        return _tree({p: v for p, v in before.items() if p not in left_out} | wanted)

    def conflicts(self, held: Json, status: Json, manager: str) -> bool:
        """Whether another manager owns a field that this would give another value."""
        wanted, before = dict(_leaves(status)), dict(_leaves(held))
        others = {p for m, owned in self._owned.items() if m != manager for p in owned}
        return any(p in others and before.get(p) != value for p, value in wanted.items())


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field that holds a value of its own, by its path."""
    key = _KEYS.get(path)
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list) and value and key is not None:
        for item in value:
            yield from _leaves(item, (*path, (key, item[key])))
    elif path:
        yield path, copy.deepcopy(value)


def _tree(leaves: dict[Path, Any]) -> Json:
    """The object with these fields."""
    root: Json = {}
    for path, value in leaves.items():
        _put(root, path, value)
    return root


def _put(thing: Any, path: Path, value: Any) -> None:
    step, rest = path[0], path[1:]
    if not rest:
        thing[step] = value
        return
    following = rest[0]
    if isinstance(following, tuple):  # an item of a keyed list
        items = thing.get(step) or []
        thing[step] = items
        key, wanted = following
        found = [item for item in items if item.get(key) == wanted]
        if not found:
            found = [{key: wanted}]
            items.append(found[0])
        _put(found[0], rest[1:], value)
        return
    inner = thing.get(step) or {}
    thing[step] = inner
    _put(inner, rest, value)
