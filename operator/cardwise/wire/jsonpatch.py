"""Two versions of a JSON object → the RFC 6902 operations that lead from one to the other.

Apart from admission, because it knows nothing of Pods. It never needs to move or test: admission
sets, adds and removes fields and appends to lists.
"""

from collections.abc import Iterator
from typing import Any


def json_patch(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations in a fixed order: the same two objects give the same patch."""
    return list(_operations("", before, after))


def _operations(path: str, before: object, after: object) -> Iterator[dict[str, Any]]:
    match before, after:
        case _ if before == after:
            return
        case dict(), dict():
            for key in sorted({**before, **after}, key=str):
                yield from _of_key(f"{path}/{_escaped(str(key))}", key, before, after)
        case list(), list() if len(before) <= len(after):
            for position, (old, new) in enumerate(zip(before, after, strict=False)):
                yield from _operations(f"{path}/{position}", old, new)
            for new in after[len(before) :]:
                yield {"op": "add", "path": f"{path}/-", "value": new}
        case _:
            yield {"op": "replace", "path": path, "value": after}


def _of_key(
    path: str, key: object, before: dict[Any, Any], after: dict[Any, Any]
) -> Iterator[dict[str, Any]]:
    if key not in after:
        yield {"op": "remove", "path": path}
    elif key not in before:
        yield {"op": "add", "path": path, "value": after[key]}
    else:
        yield from _operations(path, before[key], after[key])


def _escaped(key: str) -> str:
    """A key as one token of a JSON pointer (RFC 6901): most of ours contain a slash."""
    return key.replace("~", "~0").replace("/", "~1")
