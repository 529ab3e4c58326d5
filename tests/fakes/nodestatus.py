"""Nodes without a cluster: ``ports.NodeStatus`` in memory, with who owns which resource."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from cardwise.errors import ApiError
from cardwise.names import MANAGER_AGENT
from fakes.watches import Watches

Json = dict[str, Any]
SIDES = ("capacity", "allocatable")


class FakeNodeStatus:
    """What an API server would hold, the writes it got, and failures to come.

    It follows who wrote a resource last: writing what stands there already changes no owner.
    """

    def __init__(self, *nodes: Json) -> None:
        self.nodes = {node["metadata"]["name"]: copy.deepcopy(node) for node in nodes}
        self.writes: list[dict[str, int | None]] = []
        """What was advertised, in order."""
        self.calls: list[str] = []
        self.failures: list[ApiError] = []
        """Raised by the next calls, one each; a watch's is raised at its beginning."""
        self.daemonset = True
        self.unanswered = False
        """No call is ever answered."""
        self._ours: dict[str, dict[str, set[str]]] = {}
        self._watches = Watches()

    # --- the port ---------------------------------------------------------------------------------

    async def get(self, name: str) -> Json | None:
        await self._called("get")
        return self._shown(name)

    async def watch(self, name: str) -> AsyncIterator[Json | None]:
        await self._called("watch")
        async for document in self._watches.watch(name, self._shown(name)):
            yield document

    async def advertise(self, name: str, changes: Mapping[str, int | None]) -> None:
        await self._called("advertise")
        if name not in self.nodes:
            return
        self.writes.append(dict(changes))
        self._write(name, {k: v and rewritten(v) for k, v in changes.items()}, ours=True)

    async def installed(self) -> bool:
        await self._called("installed")
        return self.daemonset

    # --- others -----------------------------------------------------------------------------------

    def put(self, node: Json) -> None:
        """A Node is made, or made anew."""
        name = node["metadata"]["name"]
        self.nodes[name] = copy.deepcopy(node)
        self._ours.pop(name, None)
        self._tell(name)

    def write(
        self, name: str, resources: Mapping[str, str | None], *, sides: Sequence[str] = SIDES
    ) -> None:
        """Somebody else writes resources, on both sides or one; None removes one."""
        self._write(name, resources, ours=False, sides=sides)

    def remove(self, name: str) -> None:
        """The Node goes."""
        del self.nodes[name]
        self._ours.pop(name, None)
        self._tell(name)

    def end_watches(self, error: ApiError | None = None) -> None:
        """Every watch ends, by itself or with an error."""
        self._watches.end(error)

    def _write(
        self,
        name: str,
        resources: Mapping[str, str | None],
        *,
        ours: bool,
        sides: Sequence[str] = SIDES,
    ) -> None:
        for side in sides:
            amounts = self.nodes[name].setdefault("status", {}).setdefault(side, {})
            owned = self._ours.setdefault(name, {}).setdefault(side, set())
            for resource, amount in resources.items():
                if amounts.get(resource) == amount:
                    continue
                owned.discard(resource)
                if amount is None:
                    del amounts[resource]
                else:
                    amounts[resource] = amount
                    if ours:
                        owned.add(resource)
        self._tell(name)

    def _tell(self, name: str) -> None:
        self._watches.tell(name, self._shown(name))

    def _shown(self, name: str) -> Json | None:
        if name not in self.nodes:
            return None
        node = copy.deepcopy(self.nodes[name])
        status = {
            f"f:{side}": {f"f:{each}": {} for each in sorted(owned)}
            for side, owned in self._ours.get(name, {}).items()
            if owned
        }
        if status:
            entry = {"manager": MANAGER_AGENT, "operation": "Update", "subresource": "status"}
            node["metadata"]["managedFields"] = [{**entry, "fieldsV1": {"f:status": status}}]
        return node

    async def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.unanswered:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)


def rewritten(amount: int) -> str:
    """As the API server writes a quantity: ``1000`` becomes ``1k``."""
    for power, suffix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if amount and amount % 10**power == 0:
            return f"{amount // 10**power}{suffix}"
    return str(amount)
