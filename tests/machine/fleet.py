"""The GPU nodes of the state machine's cluster, their agents, and what happens to their cards."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import build
from cardwise.names import NODE_CORDON
from fakes.cluster import FakeCluster
from machine.gated import TAINT

Json = dict[str, Any]
NODES = {"n1": 3, "n2": 2}
"""How many cards each has."""
SLOTS, MEMORY, MORE_MEMORY = 3, 4000, 5500
_REPORT_SECONDS = 60.0
CHANGES = (
    "sick",
    "cordoned",
    "closed on the Node",
    "away",
    "GPUNode deleted",
    "agent silent",
    "memory scaled",
    "renumbered",
)
"""Each is begun, and undone when it comes again."""
NODE_CHANGES = ("Node cordoned", "Node tainted", "Node small")
"""Likewise, of what kube-scheduler's own rules look at."""


@dataclass
class Machine:
    """One GPU node, as it is."""

    name: str
    cards: int
    marks: dict[str, set[int]] = field(default_factory=dict)
    """What is changed, and of which cards; of whole nodes it is card 0."""
    beats: int = 0

    def has(self, what: str, index: int = 0) -> bool:
        return index in self.marks.get(what, ())

    def report(self, *, whole: bool = False) -> Json:
        """Its GPUNode; ``whole``: with everything that it may ever have offered."""
        memory = MORE_MEMORY if "memory scaled" in self.marks and whole else MEMORY
        if self.has("memory scaled"):
            memory = MORE_MEMORY
        shift = 1 if self.has("renumbered") else 0
        cards = [
            build.card(
                (index + shift) % self.cards,
                uuid=f"GPU-{self.name}-{build.letter(index)}",
                memoryMiB=memory,
                slots=SLOTS,
                healthy=not self.has("sick", index),
            )
            for index in range(self.cards)
            if whole or not self.has("away", index)
        ]
        cordoned = [self.uuid(index) for index in sorted(self.marks.get("cordoned", ()))]
        return build.gpunode(self.name, cards, cordoned=cordoned, reported_at=f"beat {self.beats}")

    def uuid(self, index: int) -> str:
        return f"GPU-{self.name}-{build.letter(index)}"


class Fleet:
    """All GPU nodes, each with an agent that reports once a minute."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.machines = {name: Machine(name, cards) for name, cards in NODES.items()}
        for machine in self.machines.values():
            cluster.put(build.node_object(machine.name, gpus=machine.cards * SLOTS))
            self._publish(machine)

    async def run(self) -> None:
        """The agents."""
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            for machine in self.machines.values():
                if not machine.has("agent silent"):
                    self._publish(machine)

    def change(self, name: str, what: str, index: int) -> None:
        """Begin a change, or undo it."""
        machine = self.machines[name]
        if what in (
            "GPUNode deleted",
            "agent silent",
            "memory scaled",
            "renumbered",
            *NODE_CHANGES,
        ):
            index = 0
        machine.marks.setdefault(what, set()).symmetric_difference_update({index % machine.cards})
        if what == "closed on the Node" or what in NODE_CHANGES:
            self._write_node(machine)
        elif what == "GPUNode deleted" and machine.has(what):
            self._cluster.remove("GPUNode", name)
        elif what != "agent silent" or not machine.has(what):
            self._publish(machine)

    def changed(self) -> list[tuple[str, str, int]]:
        """Node, change and card of all that is not as it was."""
        return [
            (name, what, index)
            for name, machine in self.machines.items()
            for what, indexes in machine.marks.items()
            for index in sorted(indexes)
        ]

    def speak(self) -> None:
        """Every agent reports, now and from now on."""
        for machine in self.machines.values():
            machine.marks.pop("agent silent", None)
            self._publish(machine)

    def trusted(self) -> list[Json]:
        """Every GPUNode, offering nothing where the agent is silent.

        Not left out: its cards still tell how much an exclusive Pod there takes of its quota.
        """
        known = self._cluster.objects["GPUNode"]
        return [
            closed(known["", name]) if machine.has("agent silent") else known["", name]
            for name, machine in self.machines.items()
            if ("", name) in known
        ]

    def physical(self) -> list[Json]:
        """Every card that there ever was, at its largest: no tenants may be above that."""
        return [machine.report(whole=True) for machine in self.machines.values()]

    def _publish(self, machine: Machine) -> None:
        if machine.has("GPUNode deleted"):
            return
        machine.beats += 1
        document = machine.report()
        known = self._cluster.objects["GPUNode"].get(("", machine.name))
        if known is not None:  # what the controller wrote there stays
            document["status"] = {**known["status"], **document["status"]}
        self._cluster.put(document)

    def _write_node(self, machine: Machine) -> None:
        closed = ",".join(map(machine.uuid, sorted(machine.marks.get("closed on the Node", ()))))
        node = self._cluster.get("Node", machine.name)
        node["metadata"]["annotations"][NODE_CORDON] = closed
        node["spec"] = {
            "unschedulable": machine.has("Node cordoned"),
            "taints": [TAINT] if machine.has("Node tainted") else [],
        }
        node["status"]["allocatable"]["cpu"] = "2" if machine.has("Node small") else "8"
        self._cluster.put(node)


def closed(gpunode: Json) -> Json:
    """The same with every card cordoned."""
    cards = [card["uuid"] for card in gpunode["status"]["cards"]]
    return {**gpunode, "spec": {**gpunode["spec"], "cordonedCards": cards}}
