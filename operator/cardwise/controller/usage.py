"""Write what is used of each GPUNode's cards into its status, for people to read.

Slowly, and only what changed: it is nobody's input, and must not crowd out Bindings.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from cardwise.controller.gate import Gate
from cardwise.errors import ApiError
from cardwise.ledger import Ledger
from cardwise.model import Condition
from cardwise.names import MANAGER_CONTROLLER
from cardwise.ports import Cluster
from cardwise.wire.gpunodes import usage_of

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 1.0
_A_ROUND = 5


class UsageWriter:
    """Writes ``status.usage`` and ``status.summary``."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        gate: Gate,
        conditions: Callable[[str], Sequence[Condition]] = lambda _node: (),
    ) -> None:
        """Write nothing yet.

        Args:
            ledger: who uses what.
            cluster: where it is written.
            gate: a passive replica writes nothing.
            conditions: what the controller has to say of a node, beside its agent.
        """
        self._conditions = conditions
        self._ledger = ledger
        self._cluster = cluster
        self._gate = gate
        self._written: dict[str, dict[str, Any]] = {}
        self._due: dict[str, None] = {}

    def begin(self) -> None:
        """A beginning: what another replica wrote meanwhile is not known, so write everything."""
        self._written.clear()
        self._ledger.touched.update(self._ledger.gpunode_names())

    async def run(self) -> None:
        """Write what changed, a few nodes a second, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self.write_some()

    async def write_some(self) -> None:
        """Write up to five nodes, the longest waiting first; a passive replica writes none."""
        self._due.update(dict.fromkeys(sorted(self._ledger.touched)))
        self._ledger.touched.clear()
        # What was written went with its GPUNode, though one of the same name may be there again.
        for name in self._ledger.removed:
            self._written.pop(name, None)
        self._ledger.removed.clear()
        for name in list(self._due)[:_A_ROUND]:
            # Asked before each: the one before may have taken long.
            if self._gate.passive():
                return
            del self._due[name]
            await self._write(name)

    async def _write(self, name: str) -> None:
        account = self._ledger.account(name)
        if account is None or account.report is None:
            self._written.pop(name, None)
            return
        status = usage_of(account.report, account.uses(), account.tenants(), self._conditions(name))
        if self._written.get(name) == status:
            return
        try:
            await self._cluster.apply_gpunode_status(name, status, MANAGER_CONTROLLER)
        except ApiError as error:
            if error.status != 404:
                _log.info("the usage of GPUNode %s was not written: %s", name, error)
                self._due[name] = None
        else:
            self._written[name] = status
