"""The watches of one controller, and what goes wrong on the way from the API server to it."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import kopf

from cardwise.controller.app import Controller
from cardwise.controller.watching import handlers
from fakes.cluster import Change, FakeCluster, copied

Json = dict[str, Any]
Handle = Callable[..., Coroutine[Any, Any, None]]
PLURALS = {
    "Pod": "pods",
    "GPUNode": "gpunodes",
    "Node": "nodes",
    "ResourceQuota": "resourcequotas",
}
KINDS = tuple(PLURALS)
LATENCY = 0.02
"""Seconds that an event takes where nothing goes wrong."""
_FINISHED = ("Succeeded", "Failed")


class Stream:
    """The watch of one kind: in order, unless it is told otherwise."""

    def __init__(self, handle: Handle) -> None:
        self.coming: deque[tuple[float, str | None, Json]] = deque()
        """When it is due, what happened, and the object."""
        self.shown: deque[tuple[str | None, Json]] = deque(maxlen=30)
        self.blocked = 0.0
        """Nothing is shown before."""
        self.spoilt = 0.0
        """When something was last lost, or shown older than what was known; 0: never."""
        self.lost: set[str] = set()
        """UIDs of which an event was lost."""
        self._newest: dict[str, int] = {}
        """By UID, the version of the newest event that was shown or lost."""
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._handling: set[asyncio.Task[None]] = set()

    def take(self, what: str | None, document: Json) -> None:
        self.coming.append((self._loop.time() + LATENCY, what, document))
        self._loop.call_later(LATENCY, self.deliver)

    def deliver(self) -> None:
        """Show what is due."""
        now = self._loop.time() + 1e-6
        while self.coming and not self._closed and now >= max(self.coming[0][0], self.blocked):
            _, what, document = self.coming.popleft()
            self._show(what, document)

    def _show(self, what: str | None, document: Json) -> None:
        if self._note(document):
            # Now, not when the order was changed: a list between the two can't mend it. Among
            # different objects there is no order: that must do no harm without any list.
            self.spoilt = self._loop.time()
        event = {"type": what, "object": document}
        task = self._loop.create_task(self._handle(event=event, logger=None, memo=None))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        self.shown.append((what, document))

    def _note(self, document: Json) -> bool:
        """Remember how far an object's events have come; whether this one is older than that."""
        uid, version = document["metadata"]["uid"], int(document["metadata"]["resourceVersion"])
        newest = self._newest.get(uid, 0)
        self._newest[uid] = max(newest, version)
        return version < newest

    def close(self) -> None:
        self._closed = True
        self.coming.clear()

    # What goes wrong ------------------------------------------------------------------------------

    def lose(self, count: int) -> None:
        """Drop the next events."""
        if self.coming:
            self.spoilt = self._loop.time()
        for _ in range(min(count, len(self.coming))):
            _, _, document = self.coming.popleft()
            self._note(document)
            self.lost.add(document["metadata"]["uid"])

    def delay(self, seconds: float) -> None:
        self.blocked = self._loop.time() + seconds
        self._loop.call_later(seconds, self.deliver)

    def unblock(self) -> None:
        self.blocked = 0.0
        self.deliver()

    def repeat(self, at: int) -> None:
        """Show an event again that was shown before."""
        self._show(*self.shown[at])

    def reorder(self) -> None:
        """The next event comes last."""
        due = [each[0] for each in self.coming]
        self.coming.rotate(-1)
        self.coming = deque((when, *each[1:]) for when, each in zip(due, self.coming, strict=True))


class Streams:
    """All watches of one controller, by the handlers that Kopf would call."""

    def __init__(self, controller: Controller, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.began = asyncio.get_running_loop().time()
        registry = kopf.OperatorRegistry()
        handlers.register(
            registry,
            mirror=controller.mirror,
            watchman=controller.watchman,
            health=controller.health,
            classes=controller.classes,
            login=_login,
        )
        handles: dict[str, Any] = {
            str(each.selector.any_name): each.fn
            for each in registry._watching.get_all_handlers()
            if each.selector is not None
        }
        self.by_kind = {kind: Stream(handles[plural]) for kind, plural in PLURALS.items()}

    def take(self, change: Change) -> None:
        """The API server wrote something."""
        stream = self.by_kind.get(change.kind)
        if stream is not None:
            stream.take(change.type, change.object)

    def list_anew(self, kind: str) -> None:
        """As Kopf does when a watch breaks: what was on its way is lost, what is there is told."""
        stream = self.by_kind[kind]
        spoilt_before = stream.spoilt
        stream.lose(len(stream.coming))
        documents = [
            document
            for document in self._cluster.objects[kind].values()
            if kind != "Pod" or document["status"]["phase"] not in _FINISHED
        ]
        for document in documents:
            stream.take(None, copied(document))
        if documents:
            # Being told, the controller lists by itself: what was lost is mended in seconds. Where
            # there is no object any more nobody is told, and only the list after 5 minutes helps.
            stream.spoilt = spoilt_before

    @property
    def spoilt(self) -> float:
        """When something was last lost, or shown older than what was known."""
        return max(stream.spoilt for stream in self.by_kind.values())

    @property
    def are_still(self) -> bool:
        """Whether all that was written has been shown."""
        return not any(stream.coming for stream in self.by_kind.values())

    def close(self) -> None:
        for stream in self.by_kind.values():
            stream.close()


async def _login() -> kopf.ConnectionInfo:
    raise AssertionError("nobody connects here")
