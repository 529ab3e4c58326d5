"""The allocation text: which cards each container of a Pod has, and how much of them.

Apart from the Pods that carry it, because it is a promise of its own: HAMi's tools and ours read
each other's texts. Per card ``UUID,NVIDIA,MiB,cores:``, per container its cards, then ``;``.
"""

import re
from collections.abc import Sequence
from typing import Final

from cardwise.errors import BadAllocation
from cardwise.model import Share
from cardwise.names import DEVICE_WORD
from cardwise.quantity import LARGEST
from cardwise.wire.fields import quoted

UUID: Final = re.compile(r"[!-+\--9<-~]{1,128}")
"""Of a card. It is a field of the text, whose marks are the comma, the colon and the semicolon:
printable ASCII without these."""
UUID_FORM: Final = (
    "a card's UUID: at most 128 ASCII characters, no blank, comma, colon or semicolon among them"
)

_FIELDS = 4
_PIECE_SHOWN = 80
_MOST_DIGITS = 64


def encode(containers: Sequence[Sequence[Share]]) -> str:
    """Write the cards of each container, in annotation order, a bare ``;`` for one without."""
    return "".join(
        "".join(f"{share.uuid},{DEVICE_WORD},{share.memory_mib},{share.cores}:" for share in shares)
        + ";"
        for shares in containers
    )


def decode(text: str) -> tuple[tuple[Share, ...], ...]:
    """Read the cards of each container; more empty segments are empty containers.

    As lenient as HAMi's codec with extra fields and extra empty segments, and strict where a
    number is no number: a share that is read wrongly would be given away twice.

    Raises:
        BadAllocation: one sentence that names the piece.
    """
    segments = text.split(";")
    if not segments[-1].strip():
        # What follows the last ";" is the end of the text, not one more container.
        segments.pop()
    return tuple(
        tuple(_share(piece) for piece in segment.split(":") if piece.strip())
        for segment in segments
    )


def _share(piece: str) -> Share:
    """Read ``UUID,NVIDIA,MiB,cores``."""
    fields = piece.split(",")
    if len(fields) < _FIELDS:
        raise BadAllocation(f"{quoted(piece, _PIECE_SHOWN)} has fewer than {_FIELDS} fields")
    uuid, _, memory, cores = fields[:_FIELDS]
    if not uuid.strip():
        raise BadAllocation(f"{quoted(piece, _PIECE_SHOWN)} names no card")
    if not UUID.fullmatch(uuid):
        # A slip of somebody's hand, " GPU-a": counted on a card that nobody has, the one that was
        # meant would be given away once more.
        raise BadAllocation(f"{quoted(piece, _PIECE_SHOWN)} does not begin with {UUID_FORM}")
    return Share(uuid, _number(memory, "MiB", piece), _number(cores, "cores", piece))


def _number(field: str, unit: str, piece: str) -> int:
    """Read digits that stand for 0 to 2**31 - 1."""
    if field.isascii() and field.isdigit() and len(field) <= _MOST_DIGITS:
        number = int(field)
        if number <= LARGEST:
            return number
    raise BadAllocation(
        f"{quoted(piece, _PIECE_SHOWN)} has {unit} that are no whole number from 0 to {LARGEST}"
    )
