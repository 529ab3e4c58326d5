"""Every Pod and Node as it was seen last: what of them is told to the queue, and to the node rules.

Events come late and more than once, and a list may be older than events: a Pod's resourceVersion
decides, and whoever ended stays ended.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.noderules import NodeBook, load_of
from cardwise.wire import pods
from cardwise.wire.fields import at, text

_TOMBSTONES = 20_000

Json = dict[str, Any]


class Tracker:
    """A follower of the mirror."""

    def __init__(
        self,
        book: NodeBook,
        clock: Clock,
        *,
        waits: Callable[[Json], None],
        placed: Callable[[Json], None],
        gone: Callable[[str], None],
        is_given: Callable[[str], bool],
    ) -> None:
        """Make it.

        Args:
            book: is told of every Node, and of every placed Pod, whoever placed it.
            clock: for the age of what was seen.
            waits: called with a Pod that is not placed.
            placed: called with a Pod that is.
            gone: called with the UID of a Pod that ended.
            is_given: whether a Pod has its cards, or its pin is under way: who is shown without
                them is shown as it was, or is read again when the pin comes to nothing.
        """
        self._book = book
        self._clock = clock
        self._waits = waits
        self._placed = placed
        self._gone = gone
        self._is_given = is_given
        self._seen: dict[str, tuple[int, float]] = {}
        """By UID: the newest resourceVersion, and when it was seen (monotonic seconds)."""
        self._ended: OrderedDict[str, None] = OrderedDict()

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone."""
        uid, version = pods.pod_ref(pod).uid, pods.version_number(pod)
        if uid in self._ended or version < self._seen.get(uid, (0, 0.0))[0]:
            return
        if deleted or pods.is_finished(pod):
            self._end(uid)
            return
        node = pods.placed_node(pod)
        if node is None and self._is_given(uid):
            return  # not noted as seen either: what is read later must not be taken for older
        self._seen[uid] = version, self._clock.monotonic()
        if node is None:
            self._waits(pod)
        else:
            self._book.take(uid, node, load_of(pod))
            self._placed(pod)

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone."""
        if deleted:
            self._book.remove_node(text(at(node, "metadata", "name")))
        else:
            self._book.apply_node(node)

    def listed(self, uids: set[str], began: float) -> None:
        """Who is not in a complete list has ended, unless seen after the list began."""
        for uid, (_, seen) in list(self._seen.items()):
            if uid not in uids and seen < began:
                self._end(uid)

    def _end(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._ended[uid] = None
        while len(self._ended) > _TOMBSTONES:
            self._ended.popitem(last=False)
        self._book.release(uid)
        self._gone(uid)
