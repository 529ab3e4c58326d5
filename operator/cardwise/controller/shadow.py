"""Say where Pods that somebody else placed would have gone, and place nothing.

Each is decided on the cluster as it was without it. Who was placed before this began is compared
as if they had come one by one, by the times that their annotations tell; what ended since is
missing there. Volumes are not looked at: the Pod has its node, and they are there.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from cardwise.controller.clock import Clock, rfc3339
from cardwise.controller.gates.tracker import Tracker
from cardwise.engine.decide import Memo, decide, leading_word
from cardwise.ledger import Ledger, Stage
from cardwise.model import Booking, Decision, InvalidRequest, PodRef, Request
from cardwise.names import BIND_TIME, RESOURCES, VGPU_TIME, Reason
from cardwise.noderules import Needs, NodeBook
from cardwise.settings import Settings
from cardwise.wire import pods
from cardwise.wire.fields import annotations_of

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.2
_KEPT = 1000
"""Differences in the report: the newest."""
_REPLAYED = 200
"""Pods that were there before, and are compared: the newest."""

Json = dict[str, Any]
Cards = tuple[tuple[str, ...], ...]
"""By container, the UUIDs of its cards, sorted."""
RESULTS = ("same", "other_card", "other_node", "refused")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A Pod to be compared."""

    pod: PodRef
    request: Request | InvalidRequest
    needs: Needs
    when: int
    """Unix seconds, as its annotations tell; 0 where they do not."""


class Shadow:
    """A follower of the mirror; after the ledger."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        memo: Memo,
        settings: Settings,
        clock: Clock,
        before: Callable[[], Awaitable[bool]],
        counted: Callable[[str], None],
    ) -> None:
        """Compare nothing yet.

        Args:
            ledger: who has which card, as somebody else gave them.
            memo: of the engine.
            settings: how cards are chosen where a Pod does not say.
            clock: when this began.
            before: brings the nodes' cards up to date, before Pods are compared on them; False
                where that has to wait, and so the Pods.
            counted: called with the result of each comparison.
        """
        self._ledger = ledger
        self._memo = memo
        self._settings = settings
        self._before = before
        self._counted = counted
        self._since = clock.unix()
        # Our own resources are the cards' affair, as at the extender door.
        self._book = NodeBook(ignored=RESOURCES)
        self._tracker = Tracker(
            self._book,
            clock,
            waits=lambda _pod: None,
            placed=self._placed,
            gone=self._gone,
            is_given=lambda _uid: False,
        )
        self._new: dict[str, _Placed] = {}
        self._known: set[str] = set()
        """UIDs of Pods that were compared, or need not be."""
        self._begun = False
        self._totals: Counter[str] = Counter()
        self._differences: deque[Json] = deque(maxlen=_KEPT)

    # A follower of the mirror ---------------------------------------------------------------------

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """A Pod is there, changed, or gone."""
        self._tracker.see_pod(pod, deleted=deleted)

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone."""
        self._tracker.see_node(node, deleted=deleted)

    def listed(self, uids: set[str], began: float) -> None:
        """A complete list of unfinished Pods."""
        self._tracker.listed(uids, began)

    def _placed(self, pod: Json) -> None:
        ref = pods.pod_ref(pod)
        if ref.uid in self._known or not pods.has_allocation(pod):
            return
        self._known.add(ref.uid)
        request = pods.request_of(pod, self._settings)
        if request is not None:
            self._new[ref.uid] = _Placed(ref, request, Needs(pod), _time_of(pod))

    def _gone(self, uid: str) -> None:
        self._known.discard(uid)
        self._new.pop(uid, None)

    # Comparing ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Compare whoever is new, until cancelled."""
        while True:
            if (self._new or not self._begun) and await self._before():
                self.compare()
            await asyncio.sleep(_ROUND_SECONDS)

    def compare(self) -> None:
        """Compare each new Pod, the earliest first: without it, and without those after it."""
        new = sorted(self._new.values(), key=lambda each: (each.when, str(each.pod)))
        self._new.clear()
        found, self._begun = not self._begun, True
        new = new[-_REPLAYED:]
        nodes = {each.pod.uid: self._node_of(each.pod.uid) for each in new}
        for each in new:
            self._book.release(each.pod.uid)
        later = {uid: node for uid, node in nodes.items() if node is not None}
        for each in new:
            node = nodes[each.pod.uid]
            if node is None:
                continue  # its allocation can't be read, or it is gone: nothing to compare with
            self._compare_one(each, later, found=found)
            del later[each.pod.uid]
            self._book.take(each.pod.uid, node, each.needs.load)

    def _node_of(self, uid: str) -> str | None:
        entry = self._ledger.entry(uid)
        if entry is None or entry.stage is not Stage.BOOKED or entry.booking is None:
            return None
        return entry.node

    def _compare_one(self, placed: _Placed, later: dict[str, str], *, found: bool) -> None:
        entry = self._ledger.entry(placed.pod.uid)
        assert entry is not None  # noqa: S101 - the caller has looked
        assert entry.booking is not None  # noqa: S101
        theirs = entry.booking
        ours: Booking | None = None
        reason = str(Reason.INVALID_REQUEST)
        if isinstance(placed.request, Request):
            decision, reason = self._decide(placed.request, placed.needs, later)
            ours = decision.booking
        result = _result(theirs, ours)
        self._totals[result] += 1
        self._counted(result)
        line = {
            "pod": str(placed.pod),
            "result": result,
            "before": found,
            "placed": {"node": theirs.node, "cards": _cards(theirs)},
            "cardwise": None if ours is None else {"node": ours.node, "cards": _cards(ours)},
            "reason": None if ours is not None else reason,
            "policy": placed.request.policy_text if isinstance(placed.request, Request) else None,
        }
        if result != "same":
            self._differences.append(line)
        _log.info(
            "shadow: Pod %s is on %s; here it would be %s: %s",
            placed.pod,
            _told(theirs),
            f"refused ({reason})" if ours is None else f"on {_told(ours)}",
            result,
        )

    def _decide(
        self, request: Request, needs: Needs, later: dict[str, str]
    ) -> tuple[Decision, str]:
        """What would have been decided, and the word of a refusal."""
        refused = self._book.answers(needs)
        without, touched = later.keys(), set(later.values())
        names = [n for n in self._book.names() if n not in refused and n in self._ledger]
        views = [
            self._ledger.view(name, without=without if name in touched else ()) for name in names
        ]
        room = self._ledger.room(request.pod.namespace, without=without)
        decision = decide(request, views, self._memo, room)
        if decision.reason is not None:
            return decision, str(decision.reason)
        words = Counter(word for name, word in refused.items() if name in self._ledger)
        if words:
            return decision, str(words.most_common(1)[0][0])
        return decision, str(leading_word(()) or Reason.NODE_HAS_NO_CARDS)

    # The report -----------------------------------------------------------------------------------

    def report(self) -> Json:
        """How many were compared with which result, and the newest thousand differences."""
        return {
            "since": rfc3339(self._since),
            "totals": {result: self._totals[result] for result in RESULTS},
            "differences": list(self._differences),
        }


def add_report(app: web.Application, shadow: Shadow) -> None:
    """Answer GET /shadow with the report."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(shadow.report()), content_type="application/json")

    app.router.add_get("/shadow", show)


def _result(theirs: Booking, ours: Booking | None) -> str:
    if ours is None:
        return "refused"
    if ours.node != theirs.node:
        return "other_node"
    return "same" if _cards(ours) == _cards(theirs) else "other_card"


def _cards(booking: Booking) -> Cards:
    """The cards by container; HAMi's text may have more empty segments than the Pod containers."""
    cards = [tuple(sorted(share.uuid for share in shares)) for shares in booking.containers]
    while cards and not cards[-1]:
        cards.pop()
    return tuple(cards)


def _told(booking: Booking) -> str:
    uuids: Collection[str] = dict.fromkeys(uuid for cards in _cards(booking) for uuid in cards)
    return f"{booking.node} ({', '.join(uuids)})"


def _time_of(pod: Json) -> int:
    written = annotations_of(pod)
    for key in (BIND_TIME, VGPU_TIME):
        word = written.get(key, "")
        if word.isascii() and word.isdigit() and len(word) <= 12:
            return int(word)
    return 0
