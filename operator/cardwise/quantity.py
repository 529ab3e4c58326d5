"""Kubernetes quantities as whole numbers (docs/placement.md section 1).

The API server rewrites what a user wrote (``1000`` arrives as ``1k``), so values are read by what
they are worth, not by how they look. Binary suffixes are refused: ``gpumem: 16Gi`` would be 17
billion MiB, which nobody means.
"""

import re
from decimal import Context, Decimal
from functools import lru_cache
from typing import Final

from cardwise.errors import BadQuantity

LARGEST: Final = 2**31 - 1
"""HAMi keeps these numbers in 32 signed bits; a larger one is never what a user means."""

_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64}))"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_SHORT: Final = 16
"""Characters of a text that is remembered; nearly all have fewer."""
_POWER_OF_TEN: Final = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_POWER_OF_1024: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_EXACT: Final = Context(prec=200)
"""Holds every number that the form above lets through: nothing is rounded on the way to a check."""


def whole(value: object) -> int:
    """Read a quantity as a whole number from 0 to 2**31 - 1.

    Raises:
        BadQuantity: the text says what is wrong, without naming the key (the caller knows it).
    """
    if isinstance(value, str):
        return _whole_of_short(value) if len(value) <= _SHORT else _whole_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadQuantity("is not a number")
    if isinstance(value, int):
        # Not by way of text: Python refuses to spell an integer of thousands of digits.
        return _bounded(Decimal(max(-1, min(value, LARGEST + 1))))
    return _whole_of(str(value))


def _whole_of(text: str) -> int:
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadQuantity("is not a number")
    suffix = match["suffix"] or ""
    if suffix in _POWER_OF_1024:
        raise BadQuantity(f"has the binary suffix {suffix}")
    return _bounded(_number(match))


_whole_of_short = lru_cache(maxsize=4096)(_whole_of)
"""Pods name few amounts, and each is read several times."""


def worth(value: object) -> Decimal | None:
    """What a quantity comes to, exactly, whatever its suffix; None for what is no quantity.

    For amounts that are not of cards (a node's CPU and memory), where binary suffixes, fractions
    and any size have a meaning.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return Decimal(value)
    match = _FORM.fullmatch(str(value))
    return None if match is None else _number(match)


def mebibytes(value: object) -> int | None:
    """Guess the MiB that somebody meant who wrote bytes: 16384 for ``16Gi``, 15258 for ``16G``.

    For advice only. None where the value is no amount of bytes, or comes to less than 1 MiB or to
    more than a card can have; a binary suffix that is not a whole number of MiB is rounded down.
    """
    number = worth(value) if isinstance(value, str) else None
    if number is None or not 2**20 <= number <= LARGEST * 2**20:
        return None
    return int(number) // 2**20


def _number(match: re.Match[str]) -> Decimal:
    """The number that a text of the form above is worth, exactly."""
    digits, suffix = Decimal(match["number"]), match["suffix"]
    if suffix in _POWER_OF_1024:
        return _EXACT.multiply(digits, 1024 ** _POWER_OF_1024[suffix])
    power = _POWER_OF_TEN[suffix] if suffix else int(match["exponent"] or 0)
    return digits.scaleb(power, _EXACT)


def _bounded(number: Decimal) -> int:
    """Refuse what is negative, too large or not whole."""
    if number < 0:
        raise BadQuantity("is negative")
    # Compared first: an exponent of hundreds must not become a number of hundreds of digits.
    if number > LARGEST:
        raise BadQuantity(f"is above {LARGEST}")
    if number != int(number):
        raise BadQuantity("is not a whole number")
    return int(number)
