"""Protocol buffers as they are on the wire, as far as kubelet's messages need them.

A message is a row of fields, each with its number: whole numbers (booleans, too), or bytes with
their length in front (texts, messages within messages). Some messages of two or three fields each
are no reason to ship a compiler's output and its runtime.
"""

from collections.abc import Iterable, Iterator

from cardwise.errors import BadBody

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10
_BITS64 = (1 << 64) - 1


def number(field: int, value: int) -> bytes:
    """A field with a whole number; empty for 0, which is what an absent field means."""
    if not value:
        return b""
    return _varint(field << 3 | _VARINT) + _varint(value & _BITS64)


def text(field: int, value: str) -> bytes:
    """A field with a text; empty for the empty text, which is what an absent field means."""
    return message(field, value.encode()) if value else b""


def texts(field: int, values: Iterable[str]) -> bytes:
    """A repeated field of texts: each is written, the empty one, too."""
    return b"".join(message(field, value.encode()) for value in values)


def message(field: int, value: bytes) -> bytes:
    """A field with bytes: one message, or one element of a repeated field, empty or not."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field with its number, in the order on the wire.

    Raises:
        BadBody: it is cut off, or no message.
    """
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield field, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(data, at)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise BadBody(f"a field of kind {kind} is no field of a protobuf message")
        if at + length > len(data):
            raise BadBody("a protobuf message is cut off")
        yield field, data[at : at + length]
        at += length


def texts_of(data: bytes, field: int) -> tuple[str, ...]:
    """The texts of a repeated field.

    Raises:
        BadBody: it is no message, or a text is no UTF-8.
    """
    try:
        return tuple(value.decode() for value in messages_of(data, field))
    except UnicodeDecodeError as error:
        raise BadBody("a text in a protobuf message is no UTF-8") from error


def messages_of(data: bytes, field: int) -> tuple[bytes, ...]:
    """The elements of a repeated field of messages, or of texts.

    Raises:
        BadBody: it is no message.
    """
    return tuple(
        value for name, value in fields(data) if name == field and isinstance(value, bytes)
    )


def number_of(data: bytes, field: int) -> int:
    """A whole number of 64 bits; 0 where the field is absent. The last one written counts.

    Raises:
        BadBody: it is no message.
    """
    found = 0
    for name, value in fields(data):
        if name == field and isinstance(value, int):
            found = value
    return found - (1 << 64) if found >> 63 else found


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value & _BITS64, at + position + 1
    raise BadBody("a number in a protobuf message is cut off")
