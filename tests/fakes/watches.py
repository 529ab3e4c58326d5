"""The watches of a fake: what is there, then what others do to it, until they are told to end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError

Json = dict[str, Any]
_END = object()


class Watches:
    """Every watch that goes on, each of one object."""

    def __init__(self) -> None:
        self._going_on: list[tuple[str, asyncio.Queue[Any]]] = []

    async def watch(self, name: str, first: Json | None) -> AsyncIterator[Json | None]:
        """Watch an object; ``first`` is as it is now, None where there is none."""
        news: asyncio.Queue[Any] = asyncio.Queue()
        watch = name, news
        self._going_on.append(watch)
        try:
            if first is not None:
                yield first
            while (event := await news.get()) is not _END:
                if isinstance(event, ApiError):
                    raise event
                yield event
        finally:
            self._going_on.remove(watch)

    def tell(self, name: str, document: Json | None) -> None:
        """An object changed, or, with None, went."""
        for watched, news in self._going_on:
            if watched == name:
                news.put_nowait(document)

    def end(self, error: ApiError | None = None) -> None:
        """End all of them, in peace or by an error."""
        for _, news in self._going_on:
            news.put_nowait(error or _END)
