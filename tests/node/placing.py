"""A real node under the whole of Cardwise: what it places runs, and prints which cards it got.

The processes are those of `backstage`; the one node is a real kubelet's, and its agent runs on it.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, Self

from cardwise import names
from cardwise.names import Door
from controlplane.launcher import ControlPlane, Process
from installation import WORKLOADS
from node.images import BUSYBOX
from node.machine import Node
from node.pods import FOREVER, SEE
from stage import Json, Stage

PROFILE: Final = "t4x4"
SLOTS: Final = 40


class PlacingStage(Stage):
    """A stage with one real node; made by `on_a_node`."""

    node_a: Node
    agent: Process

    @classmethod
    @contextlib.contextmanager
    def on_a_node(cls, door: Door) -> Iterator[Self]:
        """Start everything, and end it."""
        with ControlPlane.start(kwok=False) as cp, Node.start(cp, "node-a") as node:
            stage = cls(cp, door)
            stage.node_a = node
            stage.leave_it_to_processes()
            node.wait_until_ready()
            stage.start_agent()
            cp.wait("the controller to know the cards", lambda: stage.usage(node.name), 60)
            stage.offers(SLOTS)
            yield stage

    def leave_it_to_processes(self) -> None:
        """Make no Pods of Cardwise's own: their programs run beside the node here."""
        for name in ("cardwise-scheduler", "cardwise-webhook"):
            self.patch(f"{WORKLOADS}/deployments/{name}", {"spec": {"replicas": 0}})
        nowhere = {"spec": {"template": {"spec": {"nodeSelector": {"tests": "nowhere"}}}}}
        self.patch(f"{WORKLOADS}/daemonsets/cardwise-agent", nowhere)

    def start_agent(self) -> None:
        """Start the agent on the node, by the command line of its DaemonSet."""
        argv = self.installation.command(
            "daemonsets/cardwise-agent",
            "agent",
            nvml=f"simulated:{PROFILE}",
            node_name=self.node_a.name,
            kubeconfig=self._agent_account,
            metrics_listen="127.0.0.1:0",
        )
        self.agent = self.node_a.run("agent", argv)

    def offers(self, slots: int) -> None:
        """Wait until kubelet tells of so many slots."""
        self.cp.wait(
            f"kubelet to offer {slots} slots",
            lambda: self.node_a.allocatable(names.RESOURCE_COUNT) == slots,
            60,
        )

    def clear(self) -> None:
        """Delete the Pods of the last test, and name the next one's namespace."""
        self._request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods?gracePeriodSeconds=0")
        self.cp.wait("the last test's Pods to go", lambda: not self.all_pods(), 60)
        self.mend()
        self._begin()

    def create(self, document: Json, *, admitted: bool = True) -> None:
        """Create a Pod whose containers print their variables and stay, on the host's network."""
        spec = {**document["spec"], "hostNetwork": True, "terminationGracePeriodSeconds": 0}
        for each in [*spec.get("initContainers", ()), *spec["containers"]]:
            each["image"] = BUSYBOX
            each.setdefault("command", ["sh", "-c", SEE + FOREVER])
        super().create({**document, "spec": spec}, admitted=admitted)

    def saw(self, name: str, container: str = "app", within: float = 60) -> dict[str, str]:
        """Wait until a container printed its variables; what they are."""
        found = self.get(name)

        def printed() -> list[str]:
            lines = self.node_a.printed(found, container)
            return lines if "seen" in lines else []

        lines = self.cp.wait(f"{name} to print its variables", printed, within)
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def phase(self, name: str, phase: str) -> None:
        """Wait until the Pod's allocation is in this phase."""
        self.cp.wait(
            f"the allocation of {name} to be {phase}",
            lambda: self.get(name)["metadata"]["annotations"][names.BIND_PHASE] == phase,
            30,
        )
