"""Fields of Kubernetes JSON whose types nobody has checked, read one by one.

Separate from the codecs, because a wrong type must give the same sentence wherever it stands. A
``null`` is an absent field, as it is for the API server. ``where`` is the path that a person would
look for, such as ``status.cards[0].uuid``.
"""

import re
from collections.abc import Sequence
from typing import Any, overload

from cardwise.errors import BadGPUNode
from cardwise.quantity import LARGEST

_LONGEST_SHOWN = 60
_LARGEST_SHOWN = 10**_LONGEST_SHOWN


def shown(value: object) -> str:
    """A value as a sentence may repeat it: short, on one line, without what it contains."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Python refuses to write numbers of thousands of digits, and nobody would read them.
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return "a number of very many digits"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def mapping(value: object, where: str) -> dict[str, Any]:
    """An object; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadGPUNode(f"{where} is {shown(value)}: write an object")
    return value


def sequence(value: object, where: str) -> list[Any]:
    """A list; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadGPUNode(f"{where} is {shown(value)}: write a list")
    return value


def text(value: object, where: str) -> str:
    """A text; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadGPUNode(f"{where} is {shown(value)}: write text (in YAML, in quotes)")
    return value


def match(value: object, where: str, *, pattern: re.Pattern[str], what: str) -> str:
    """A text of a given form, which must be there.

    Raises:
        BadGPUNode: it is absent or has another form; ``what`` says what to write instead.
    """
    if value is None:
        raise BadGPUNode(f"{where} is missing: write {what}")
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadGPUNode(f"{where} is {shown(value)}: write {what}")
    return value


def flag(value: object, where: str, *, default: bool) -> bool:
    """A truth value.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadGPUNode(f"{where} is {shown(value)}: write true or false")
    return value


@overload
def number(
    value: object, where: str, *, default: int, least: int = ..., most: int = ...
) -> int: ...
@overload
def number(
    value: object, where: str, *, default: None, least: int = ..., most: int = ...
) -> int | None: ...
def number(
    value: object, where: str, *, default: int | None, least: int = 0, most: int = LARGEST
) -> int | None:
    """A whole number from ``least`` to ``most``.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return default
    # A truth value is a number to Python, not to people.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadGPUNode(f"{where} is {shown(value)}: write a whole number from {least} to {most}")
    return value


def needed(value: object, where: str, *, most: int = LARGEST) -> int:
    """A whole number from 0 to ``most`` which must be there.

    Raises:
        BadGPUNode: it is absent or something else.
    """
    if value is None:
        raise BadGPUNode(f"{where} is missing: write a whole number from 0 to {most}")
    return number(value, where, default=0, most=most)


def factor(value: object, where: str) -> float | None:
    """A factor above 0, at most 100; None where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise BadGPUNode(f"{where} is {shown(value)}: write a number above 0, at most 100")
    return float(value)


def choice(value: object, where: str, choices: Sequence[str]) -> str | None:
    """One of a few words; None where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise BadGPUNode(f"{where} is {shown(value)}: write one of {', '.join(choices)}")
    return value
