"""The sizes of gangs whose Pods do not say: they stand in PodGroups.

A PodGroup is asked for while its gang waits, and not watched: few clusters have that kind at all.
"""

import asyncio
import logging
from collections.abc import Callable

from cardwise.doors import MOST_PODS
from cardwise.errors import ApiError
from cardwise.gangs import Key
from cardwise.ports import Cluster
from cardwise.wire.fields import at

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 5.0


class PodGroups:
    """Asks for PodGroups, until they are there and say a size."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        said: Callable[[Key, int], None],
        waits: Callable[[Key], bool],
    ) -> None:
        """Make it.

        Args:
            cluster: who is asked.
            said: called with a gang and its size.
            waits: whether a gang has a Pod that waits.
        """
        self._cluster = cluster
        self._said = said
        self._waits = waits
        self._wanted: dict[Key, None] = {}
        self._news = asyncio.Event()

    def ask(self, key: Key) -> None:
        """The size of a gang is wanted."""
        if key not in self._wanted:
            self._wanted[key] = None
            self._news.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            for key in list(self._wanted):
                size = await self._size(key) if self._waits(key) else None
                if size is not None:
                    self._said(key, size)
                if size is not None or not self._waits(key):
                    self._wanted.pop(key, None)
            if self._wanted:
                await asyncio.sleep(_AGAIN_SECONDS)
                self._news.set()

    async def _size(self, key: Key) -> int | None:
        try:
            group = await self._cluster.pod_group(*key)
        except ApiError as error:
            _log.info(
                "PodGroup %s/%s can't be read: %s", *key, error
            )  # a name that a PodGroup can have
            return None
        size = at(group, "spec", "minMember")
        return size if isinstance(size, int) and 1 <= size <= MOST_PODS else None
