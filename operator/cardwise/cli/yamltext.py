"""YAML and JSON texts as values, each with the line where it begins.

Separate from the documents' meaning, because YAML alone has its traps: it takes an unquoted
``0000:00:04.0`` for a number in base 60 and ``2026-11-29`` for a date, and Kubernetes does neither.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from cardwise.errors import BadDocument

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # a PyYAML without libyaml: slower, the same answers
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_KEPT_TAGS = ("map", "seq", "str", "int", "float", "bool", "null")
"""What JSON has, too. Sets, dates and bytes never reach the rest of the program."""
_INT = re.compile(r"[-+]?(?:[1-9][0-9_]*|0(?:[0-7_]*|x[0-9a-fA-F_]+|b[01_]+|o[0-7_]+))\Z")
"""As kubectl reads it: 010 is 8."""
_FLOAT = re.compile(
    r"(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN))\Z"
)
_ITEMS = re.compile(r'"items"\s*:\s*\[')
_MERGE = "<<"
_LONGEST_KEY = 100
_BLANK = re.compile(r"\s*")
_BLANK_OR_COMMA = re.compile(r"[\s,]*")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Text:
    """One document of a text, or one item of a list in it."""

    value: Any
    line: int
    item_lines: tuple[int, ...] = ()
    """Where the entries of its ``items`` begin; empty where that is not known."""


class _Loader(_BaseLoader):
    """Reads what JSON can say, and keeps every other scalar as the text that it is."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make every plain key a text: ``on`` and ``80`` are keys in JSON as well."""
        if not isinstance(node, yaml.MappingNode):  # a value that is tagged as what it is not
            return super().construct_mapping(node, deep)
        span = range(node.start_mark.index, node.end_mark.index)
        written = [key for key, _ in node.value if key.start_mark.index in span]
        self.flatten_mapping(node)
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is not a text", key.start_mark
                )
            key.tag = _TAG + "str"
        self._refuse_twins(written)
        return super().construct_mapping(node, deep)

    @staticmethod
    def _refuse_twins(keys: list[yaml.ScalarNode]) -> None:
        """Two blocks of annotations: YAML would take the last, and the API server refuses both."""
        seen: set[str] = set()
        for key in keys:
            if key.value in seen and key.value != _MERGE:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value[:_LONGEST_KEY]} is there twice", key.start_mark
                )
            seen.add(key.value)


def _restrict() -> None:
    resolvers: dict[str, list[tuple[str, Any]]] = _BaseLoader.yaml_implicit_resolvers
    dropped = {_TAG + name for name in ("int", "float", "timestamp")}
    _Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in dropped]
        for first, rules in resolvers.items()
    }
    _Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+0123456789."))
    _Loader.add_implicit_resolver(_TAG + "int", _INT, list("-+0123456789"))
    constructors: dict[str | None, Any] = _BaseLoader.yaml_constructors
    kept = {None, *(_TAG + name for name in _KEPT_TAGS)}
    _Loader.yaml_constructors = {tag: how for tag, how in constructors.items() if tag in kept}


_restrict()


def texts_of(text: str, source: str) -> list[Text]:
    """Read all documents of a YAML or JSON text; empty ones are left out.

    Raises:
        BadDocument: one sentence with the source and the line.
    """
    try:
        if text.lstrip()[:1] in ("{", "["):
            try:
                return list(_json(text))
            except ValueError:
                pass  # a YAML flow mapping begins like JSON; its own error says more
        return list(_yaml(text, source))
    except RecursionError as error:
        raise BadDocument(f"{source}:1: it is nested too deep to be read.") from error


def _json(text: str) -> Iterator[Text]:
    """JSON values one after another, as ``kubectl`` writes them."""
    decoder = json.JSONDecoder()
    position = _after(_BLANK, text, 0)
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        if _HALF_PAIR.search(text, position, end):
            # What can't be written as UTF-8 can't be a name, nor be printed.
            json.dumps(value, ensure_ascii=False).encode()
        items = value.get("items") if isinstance(value, dict) else None
        lines: tuple[int, ...] = ()
        if isinstance(items, list):
            lines = _item_lines(text, position, end, items)
        yield Text(value, _line(text, position), lines)
        position = _after(_BLANK, text, end)


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _item_lines(text: str, start: int, end: int, items: list[Any]) -> tuple[int, ...]:
    """The line of each entry of ``items``: read again, entry by entry, until they agree."""
    decoder = json.JSONDecoder()
    for match in _ITEMS.finditer(text, start, end):
        position, found, lines = match.end(), [], []
        line, counted = _line(text, position), position
        try:
            for _ in items:
                position = _after(_BLANK_OR_COMMA, text, position)
                line, counted = line + text.count("\n", counted, position), position
                value, position = decoder.raw_decode(text, position)
                found.append(value)
                lines.append(line)
        except ValueError:
            continue
        if found == items:
            return tuple(lines)
    return ()


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _yaml(text: str, source: str) -> Iterator[Text]:
    try:
        loader = _Loader(text)
    except UnicodeEncodeError as error:
        raise BadDocument(f"{source}:1: it holds half a surrogate pair.") from error
    except yaml.YAMLError as error:
        raise BadDocument(_yaml_error(error, text, source)) from error
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            line = node.start_mark.line + 1
            # At once, not piece by piece: only so is what contains itself found out.
            loader.deep_construct = True
            try:
                value = loader.construct_document(node)
            except (ValueError, LookupError) as error:
                # A tag that its value does not bear (!!int "x"), a number of 5,000 digits.
                raise BadDocument(f"{source}:{line}: a value in it can't be read.") from error
            if value is not None:
                yield Text(value, line, _node_item_lines(node))
    except yaml.YAMLError as error:
        raise BadDocument(_yaml_error(error, text, source)) from error
    finally:
        loader.dispose()


def _node_item_lines(node: yaml.Node) -> tuple[int, ...]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                return tuple(item.start_mark.line + 1 for item in value.value)
    return ()


def _yaml_error(error: yaml.YAMLError, text: str, source: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", None)
    if mark is not None:
        line = mark.line + 1
    else:
        line = _line(text, position) if isinstance(position, int) else 1
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return f"{source}:{line}: it is not YAML: {' '.join(str(problem).split())}."
