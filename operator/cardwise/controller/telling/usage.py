"""Write what is used of each GPUNode's cards into its status, for people to read.

Slowly, and only what changed: it is nobody's input, and must not crowd out Bindings.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from cardwise.controller.lease.duty import Duty
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.model import Condition
from cardwise.names import CONTROLLER_CONDITIONS, MANAGER_CONTROLLER
from cardwise.ports import Cluster
from cardwise.wire.fields import at, items, mapping, text
from cardwise.wire.gpunodes_written import usage_of

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 1.0
_WRITES, _BUSY_WRITES = 5, 2
"""Nodes that are written in a round in which nothing happened, and in one in which Pods came or
went: such a write is the API server's most expensive, at 24 ms of its processor time for eight
linked cards, and a Binding waits for the same processor."""
_LOOKS = 200
"""Nodes that are looked at in a round; most may be as they should be already."""


class UsageWriter:
    """Writes ``status.usage`` and ``status.summary``."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        duty: Duty,
        conditions: Callable[[str], Sequence[Condition]] = lambda _node: (),
    ) -> None:
        """Write nothing yet.

        Args:
            ledger: who uses what.
            cluster: where it is written.
            duty: a passive replica writes nothing.
            conditions: what the controller has to say of a node, beside its agent.
        """
        self._conditions = conditions
        self._ledger = ledger
        self._cluster = cluster
        self._duty = duty
        self._written: dict[str, dict[str, Any]] = {}
        self._due: dict[str, None] = {}
        self._found: dict[str, bytes] = {}
        """What the GPUNodes that were not written yet have already, each in few bytes."""

    def begin(self) -> None:
        """A beginning: what another replica wrote meanwhile is not known, so all are due."""
        self._written.clear()
        self._ledger.touched.update(self._ledger.gpunode_names())

    def see_gpunode(self, document: dict[str, Any], *, deleted: bool) -> None:
        """A GPUNode is there, changed, or gone: after a start most have what is to be written."""
        name, status = text(at(document, "metadata", "name")), mapping(document.get("status"))
        if deleted:
            self._found.pop(name, None)
        elif name not in self._written:
            self._found[name] = _digest(status)

    async def run(self) -> None:
        """Write what changed, a few nodes a second, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self.write_some()

    async def write_some(self) -> None:
        """Write a few nodes, the longest waiting first; a passive replica writes none."""
        most = _BUSY_WRITES if self._ledger.touched else _WRITES
        self._due.update(dict.fromkeys(sorted(self._ledger.touched)))
        self._ledger.touched.clear()
        # What was written went with its GPUNode, though one of the same name may be there again.
        for name in self._ledger.removed:
            self._written.pop(name, None)
        self._ledger.removed.clear()
        writes = 0
        for name in list(self._due)[:_LOOKS]:
            # Asked before each: the one before may have taken long.
            if writes == most or self._duty.passive():
                return
            del self._due[name]
            writes += await self._write(name)
            await asyncio.sleep(0)  # after a start there are thousands to look at

    async def _write(self, name: str) -> bool:
        """Write a node, where it is not so already; whether the API server was asked."""
        account = self._ledger.account(name)
        if account is None or account.report is None:
            self._written.pop(name, None)
            return False
        status = usage_of(account.report, account.uses(), account.tenants(), self._conditions(name))
        found = self._found.pop(name, None)
        if self._written.get(name) == status:
            return False
        if found is not None and found == _digest(status):
            self._written[name] = status
            return False
        try:
            await self._cluster.apply_gpunode_status(name, status, MANAGER_CONTROLLER)
        except ApiError as error:
            if error.status != 404:
                _log.info("the usage of GPUNode %s was not written: %s", name, error)
                self._due[name] = None
        else:
            self._written[name] = status
        return True


def _digest(status: Mapping[str, Any]) -> bytes:
    """The controller's part of a status; of equal parts it is equal."""
    ours = [status.get("usage"), status.get("summary"), _own_conditions(status)]
    return blake2b(json.dumps(ours, sort_keys=True).encode(), digest_size=16).digest()


def _own_conditions(status: Mapping[str, Any]) -> list[Any]:
    """Those of its conditions that the controller says, whenever they began."""
    told = [mapping(each) for each in items(status.get("conditions"))]
    return [
        [each.get(field) for field in ("type", "status", "reason", "message")]
        for each in told
        if each.get("type") in CONTROLLER_CONDITIONS
    ]
