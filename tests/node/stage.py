"""A node with Cardwise's agent on it: simulated cards, the real plugin, a real kubelet."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from cardwise import names
from controlplane.launcher import ControlPlane, Process, standing_ground
from node.machine import Node
from node.pods import Json, pod

PROFILE: Final = "t4x4"
SLOTS: Final = 40
_AGENT: Final = Path(sys.executable).with_name("cardwise-agent")


class Ward:
    """The node, its agent, and Pods as a scheduler would leave them."""

    agent: Process

    def __init__(self, cp: ControlPlane, node: Node) -> None:
        """Install what the agent finds; `raised` is the way in."""
        self.cp = cp
        self.node = node
        self._bound = 0
        standing_ground(cp)
        self._account = cp.service_account_kubeconfig("cardwise-agent")
        self.start_agent()
        self.offers(SLOTS)

    @classmethod
    @contextlib.contextmanager
    def raised(cls) -> Iterator[Self]:
        """Start everything, and end it."""
        with ControlPlane.start(kwok=False) as cp, Node.start(cp, "node-a") as node:
            node.wait_until_ready()
            yield cls(cp, node)

    def start_agent(self) -> None:
        """Start the agent in the node, where it finds kubelet's directory at its fixed place."""
        argv = [str(_AGENT), "--nvml", f"simulated:{PROFILE}", "--node-name", self.node.name]
        argv += ["--kubeconfig", str(self._account)]
        self.agent = self.node.run("agent", argv)

    def offers(self, slots: int, within: float = 30) -> None:
        """Wait until kubelet tells of so many slots."""
        self.cp.wait(
            f"kubelet to offer {slots} slots",
            lambda: self.node.allocatable(names.RESOURCE_COUNT) == slots,
            within,
        )

    def card(self, index: int) -> str:
        """The UUID of a card."""
        path = f"/apis/cardwise.dev/v1alpha1/gpunodes/{self.node.name}"
        cards = self.cp.request("GET", path)["status"]["cards"]
        return str(next(card["uuid"] for card in cards if card["index"] == index))

    def text(self, *containers: Sequence[tuple[int, int, int]]) -> str:
        """An allocation: for each container its cards as (index, MiB, cores)."""
        return "".join(
            "".join(f"{self.card(index)},NVIDIA,{mib},{cores}:" for index, mib, cores in cards)
            + ";"
            for cards in containers
        )

    def book(
        self,
        name: str,
        text: str | None,
        containers: Sequence[Json],
        *,
        bound_at: int | None = None,
        annotations: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Json:
        """Create a Pod that is bound with its cards; a text of None: without any."""
        self._bound += 1
        written = {names.BIND_TIME: str(self._bound if bound_at is None else bound_at)}
        if text is not None:
            written |= {names.ALLOCATED: text, names.BIND_PHASE: names.BIND_PHASE_ALLOCATING}
        return self.node.create(
            pod(name, containers, annotations={**written, **(annotations or {})}, **fields)
        )

    def saw(
        self, name: str, container: str, attempt: int = 0, within: float = 30
    ) -> dict[str, str]:
        """The variables that a container printed, by `SEE`."""
        found = self.node.get(name)
        lines = self.cp.wait(
            f"container {container} of {name} to print its variables",
            lambda: (
                [line for line in self.node.printed(found, container, attempt) if line == "seen"]
                and self.node.printed(found, container, attempt)
            ),
            within,
        )
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def tails(self) -> str:
        """The end of each log."""
        return f"{self.node.tails()}\n--- {self.agent}\n{self.agent.tail(40)}"

    def clear(self) -> None:
        """Delete every Pod."""
        self.node.clear()
