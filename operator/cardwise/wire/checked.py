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
from cardwise.wire.fields import quoted


def mapping(value: object, where: str) -> dict[str, Any]:
    """An object; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadGPUNode(f"{where} is {quoted(value)}: write an object")
    return value


def sequence(value: object, where: str) -> list[Any]:
    """A list; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadGPUNode(f"{where} is {quoted(value)}: write a list")
    return value


def text(value: object, where: str) -> str:
    """A text; empty where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadGPUNode(f"{where} is {quoted(value)}: write text (in YAML, in quotes)")
    return value


def match(value: object, where: str, *, pattern: re.Pattern[str], what: str) -> str:
    """A text of a given form, which must be there.

    Raises:
        BadGPUNode: it is absent or has another form; ``what`` says what to write instead.
    """
    if value is None:
        raise BadGPUNode(f"{where} is missing: write {what}")
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadGPUNode(f"{where} is {quoted(value)}: write {what}")
    return value


def flag(value: object, where: str, *, default: bool) -> bool:
    """A truth value.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadGPUNode(f"{where} is {quoted(value)}: write true or false")
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
        raise BadGPUNode(f"{where} is {quoted(value)}: write a whole number from {least} to {most}")
    return value


def needed(value: object, where: str) -> int:
    """A whole number from 0 to 2**31 - 1 which must be there.

    Raises:
        BadGPUNode: it is absent or something else.
    """
    if value is None:
        raise BadGPUNode(f"{where} is missing: write a whole number from 0 to {LARGEST}")
    return number(value, where, default=0)


def factor(value: object, where: str) -> float | None:
    """A factor above 0, at most 100; None where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise BadGPUNode(f"{where} is {quoted(value)}: write a number above 0, at most 100")
    return float(value)


def choice(value: object, where: str, choices: Sequence[str]) -> str | None:
    """One of a few words; None where absent.

    Raises:
        BadGPUNode: it is something else.
    """
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise BadGPUNode(f"{where} is {quoted(value)}: write one of {', '.join(choices)}")
    return value
