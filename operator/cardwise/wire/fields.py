"""Reach into Kubernetes JSON that may hold anything anywhere, without ever failing.

For the objects of users, where a field of the wrong type reads as an absent one (``wire.checked``
is for GPUNodes, where it is refused). A value that goes into a sentence is quoted and cut in one
way.
"""

import json
from collections.abc import Mapping
from typing import Any


def at(thing: object, *path: str) -> object:
    """What stands under the keys of a path; None where the path ends early."""
    for key in path:
        if not isinstance(thing, dict):
            return None
        thing = thing.get(key)
    return thing


def mapping(value: object) -> dict[str, Any]:
    """The object itself, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The list itself, or an empty one where something else stands."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """The text itself, or an empty one where something else stands."""
    return value if isinstance(value, str) else ""


def annotations_of(thing: object) -> dict[str, str]:
    """The annotations of a Kubernetes object that are text; a null is an empty text, as in Go."""
    written: dict[Any, Any] = mapping(at(thing, "metadata", "annotations"))
    return {
        key: value or ""
        for key, value in written.items()
        if isinstance(key, str) and (value is None or isinstance(value, str))
    }


def annotation(thing: object, key: str) -> str | None:
    """One of `annotations_of`; None where it is not written, or is no text."""
    written = mapping(at(thing, "metadata", "annotations"))
    if key not in written:
        return None
    value = written[key]
    if value is None:
        return ""
    return value if isinstance(value, str) else None


def quoted(value: object, most: int = 60) -> str:
    """A value for a sentence: one line, as JSON writes it, at most so many characters."""
    line = _spelled(value, most)
    # Half a surrogate pair, which JSON can carry, could not be written to anyone.
    line = line.encode("utf-8", "replace").decode()
    # JSON escapes no line end of Unicode's, nor what turns the writing around.
    line = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
    return line if len(line) <= most else line[: most - 1] + "…"


def _spelled(value: object, most: int) -> str:
    """A value as JSON writes it, a collection only by its kind."""
    match value:
        case str():
            # Only the beginning: it may be megabytes of somebody's making.
            return json.dumps(value[:most], ensure_ascii=False)
        case dict():
            return "an object"
        case list():
            return "a list"
        case int() if value.bit_length() > 64:
            # Python refuses to spell an integer of thousands of digits.
            return "a number of many digits"
        case _:
            return json.dumps(value, default=str)


def size_of(annotations: Mapping[str, str]) -> int:
    """Bytes of annotations, as the API server counts them against its limit of 256 KiB."""
    return sum(len(_utf8(key)) + len(_utf8(value)) for key, value in annotations.items())


def _utf8(word: str) -> bytes:
    # JSON can carry half a surrogate pair; the server stores three bytes in its place.
    return word.encode("utf-8", "surrogatepass")
