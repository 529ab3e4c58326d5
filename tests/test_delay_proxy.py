"""The proxy that the end-to-end tests put before the API server: late, in order, and complete."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from delay_proxy import copy


async def said(*when: float, cut_off: bool = False) -> AsyncIterator[bytes]:
    """Pieces at these seconds, each its own number."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, second in enumerate(when):
        await asyncio.sleep(began + second - loop.time())
        yield str(number).encode()
    if cut_off:
        raise ConnectionError("cut off")


class Heard:
    """What was written, and when."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self.pieces: list[tuple[bytes, float]] = []

    async def write(self, piece: bytes) -> None:
        second = asyncio.get_running_loop().time() - self._began
        self.pieces.append((piece, round(second, 3)))


async def test_every_piece_is_late_by_the_same_time_and_in_its_order() -> None:
    heard = Heard()

    await copy(said(0.0, 0.1, 0.1, 5.0), heard.write, late=0.2)

    assert heard.pieces == [(b"0", 0.2), (b"1", 0.3), (b"2", 0.3), (b"3", 5.2)]


async def test_an_answer_that_is_not_held_back_comes_at_once() -> None:
    heard = Heard()

    await copy(said(0.0, 1.0), heard.write, late=0.0)

    assert heard.pieces == [(b"0", 0.0), (b"1", 1.0)]


async def test_an_answer_that_is_cut_off_is_cut_off_here_too() -> None:
    heard = Heard()

    with pytest.raises(ConnectionError, match="cut off"):
        await copy(said(0.0, 1.0, cut_off=True), heard.write, late=0.2)

    assert [piece for piece, _ in heard.pieces] == [b"0", b"1"]
