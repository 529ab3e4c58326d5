"""Notice cordons that close no card: on the GPUNode as a condition, on its Node as an event.

Whoever misspells a UUID believes a card closed that takes Pods.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from cardwise.controller.clock import Clock, rfc3339
from cardwise.controller.telling.notes import Notes
from cardwise.ledger import Ledger
from cardwise.model import Condition
from cardwise.names import CONDITION_CORDON_STRAY, NodeEvent
from cardwise.wire.cordons import misspelt_cordon, trouble_of
from cardwise.wire.events import node_ref
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 10.0

Json = dict[str, Any]


class Cordons:
    """A follower of the mirror."""

    def __init__(self, ledger: Ledger, clock: Clock, notes: Notes) -> None:
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._misspelt: dict[str, str] = {}
        """By Node: an annotation that is nearly the one that closes cards."""
        self._told: dict[str, Condition] = {}
        """By node: what stands on its GPUNode now."""

    def see_pod(self, pod: Json, *, deleted: bool) -> None:
        """Pods are of no interest here."""

    def listed(self, uids: set[str], began: float) -> None:
        """Pods are of no interest here."""

    def see_node(self, node: Json, *, deleted: bool) -> None:
        """A Node is there, changed, or gone."""
        name = text(at(node, "metadata", "name"))
        self._misspelt.pop(name, None)
        if not deleted and (key := misspelt_cordon(node)):
            self._misspelt[name] = key

    def conditions(self, node: str) -> Sequence[Condition]:
        """What is to stand on its GPUNode."""
        told = self._told.get(node)
        return () if told is None else (told,)

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            for name, note in self.look():
                await self._notes.tell(node_ref(name), NodeEvent.CORDON_STRAY, note)

    def look(self) -> list[tuple[str, str]]:
        """Look at every cordon; which troubles are new, and what to say of them."""
        news, troubles = [], dict(self._troubles())
        for name in self._told.keys() - troubles.keys():
            del self._told[name]
            self._ledger.touched.add(name)
        for name, note in troubles.items():
            before = self._told.get(name)
            if before is not None and before.message == note:
                continue
            self._told[name] = Condition(
                type=CONDITION_CORDON_STRAY,
                holds=True,
                reason="NamesNoCard",
                message=note,
                since=before.since if before is not None else rfc3339(self._clock.unix()),
            )
            self._ledger.touched.add(name)
            _log.warning("node %s: %s", name, note)
            news.append((name, note))
        return news

    def _troubles(self) -> Iterator[tuple[str, str]]:
        """Node and sentence; of a node that reports no card nothing can be said."""
        for name in self._ledger.node_names():
            account = self._ledger.account(name)
            if account is None or account.report is None or not account.report.cards:
                continue
            by_spec, misspelt = account.report.cordoned, self._misspelt.get(name, "")
            if by_spec or account.cordoned or misspelt:
                note = trouble_of(
                    [card.uuid for card in account.cards()],
                    by_spec=by_spec,
                    by_annotation=account.cordoned,
                    misspelt=misspelt,
                )
                if note:
                    yield name, note
