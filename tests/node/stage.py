"""A node with Cardwise's agent on it: simulated cards, the real plugin, a real kubelet.

One class, for a test speaks to one thing: what it does to the node, and what it sees there.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from cardwise import names
from cardwise.agent.deviceplugin import checkpoint
from cardwise.agent.simulated import shipped
from cardwise.names import Door
from controlplane.launcher import ROOT, ControlPlane, Process, standing_ground
from node.machine import Node
from node.pods import Json, pod

PROFILE: Final = "t4x4"
SLOTS: Final = 40
_AGENT: Final = Path(sys.executable).with_name("cardwise-agent")


class Ward:
    """The node, its agent, and Pods as a scheduler would leave them."""

    agent: Process

    def __init__(self, cp: ControlPlane, node: Node, door: Door = Door.EXTENDER) -> None:
        """Install what the agent finds; `raised` is the way in."""
        self.cp = cp
        self._settings = node.directory / "cardwise.yaml"
        self._settings.write_text(yaml.safe_dump({"scheduling": {"door": door.value}}))
        self.node = node
        self._bound = 0
        self._logs: set[Path] = set()
        self._profile = node.directory / "cards.yaml"
        self.sick()
        standing_ground(cp)
        cp.apply(ROOT / "manifests/base/agents.yaml")
        self.account = cp.service_account_kubeconfig("cardwise-agent")
        self.start_agent()
        self.offers(SLOTS)

    @classmethod
    @contextlib.contextmanager
    def raised(cls, door: Door = Door.EXTENDER, *, cdi: bool = True) -> Iterator[Self]:
        """Start everything, and end it. ``cdi``: whether the node's containerd has CDI."""
        with ControlPlane.start(kwok=False) as cp, Node.start(cp, "node-a", cdi=cdi) as node:
            node.wait_until_ready()
            yield cls(cp, node, door)

    def start_agent(self, name: str = "agent") -> None:
        """Start the agent in the node, where it finds kubelet's directory at its fixed place."""
        argv = [str(_AGENT), "--nvml", f"simulated:{self._profile}", "--node-name", self.node.name]
        argv += ["--kubeconfig", str(self.account), "--config", str(self._settings)]
        self.agent = self.node.run(name, argv)
        self._logs.add(self.agent.log)

    def offers(self, slots: int, within: float = 30) -> None:
        """Wait until kubelet tells of so many slots."""
        self.cp.wait(
            f"kubelet to offer {slots} slots",
            lambda: self.node.allocatable(names.RESOURCE_COUNT) == slots,
            within,
        )

    def sick(self, *indexes: int) -> None:
        """These cards fail from now on, and no others; the agent looks every ten seconds."""
        document = yaml.safe_load(shipped(PROFILE))
        for card in document["status"]["cards"]:
            card["healthy"] = card["index"] not in indexes
        self._profile.write_text(yaml.safe_dump(document))

    def card(self, index: int) -> str:
        """The UUID of a card."""
        return f"GPU-{PROFILE}-{index}"

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

    def wait_to_be_bound(self, name: str, containers: Sequence[Json], **fields: Any) -> Json:
        """Create a Pod that nobody schedules."""
        document = pod(name, containers, **fields)
        del document["spec"]["nodeName"]
        document["spec"]["schedulerName"] = "nobody"
        return self.node.create(document)

    def bind(self, name: str, text: str) -> None:
        """Bind such a Pod with its cards in one write, as the controller does."""
        self._bound += 1
        self.cp.request(
            "POST",
            f"{self._path(name)}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": name,
                    "annotations": {names.ALLOCATED: text, names.BIND_TIME: str(self._bound)},
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": self.node.name},
            },
        )

    def label(self, name: str) -> None:
        """Write something of no matter to a Pod, so that it is the last one written."""
        body = {"metadata": {"labels": {"written": "last"}}}
        merge = "application/merge-patch+json"
        self.cp.request("PATCH", self._path(name), body, content_type=merge)

    @contextlib.contextmanager
    def kubelet_stands_still(self) -> Iterator[None]:
        """Meanwhile it hears of nothing; it is the child of the program that entered the node."""
        entered = self.node.kubelet.pid
        kubelet = int(Path(f"/proc/{entered}/task/{entered}/children").read_text())
        os.kill(kubelet, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(kubelet, signal.SIGCONT)

    def restart_kubelet(self, *, lost: bool = False) -> None:
        """Kill kubelet and start it, until it knows the agent again and the node is ready.

        ``lost``: it finds no accounts of the devices that it gave.
        """
        before = self._registrations()
        self.node.kubelet.kill()
        if lost:
            (self.node.plugins / checkpoint.FILE).unlink()
        self.node.start_kubelet()
        self._known(before)

    def restart_kubelet_alone(self, name: str) -> None:
        """Kill kubelet and start it while the agent is away, until it has taken the Pod anew."""
        taken = f'"Processing pod event" pod="default/{name}"'
        before = self.node.kubelet.log.read_text().count(taken)
        self.node.kubelet.kill()
        self.node.start_kubelet()
        self.cp.wait(
            f"kubelet to look after {name}",
            lambda: self.node.kubelet.log.read_text().count(taken) > before,
            60,
        )

    def roll_out(self, meanwhile: Callable[[], object]) -> None:
        """Start an agent beside the one that there is, and end that, as the DaemonSet says.

        ``meanwhile`` is called again and again; at last after kubelet knows of the old one's end.
        """
        old, before = self.agent, (self._registrations(), self._disconnections())
        self.start_agent("agent-anew" if old.name == "node-a-agent" else "agent")

        def until(what: str, true: Callable[[], bool]) -> None:
            self.cp.wait(what, lambda: (meanwhile(), true())[1], 30)

        until("kubelet to know the new agent", lambda: self._registrations() > before[0])
        old.signal(signal.SIGTERM)
        until("the old agent to end", lambda: old.poll() is not None)
        until("kubelet to know of its end", lambda: self._disconnections() > before[1])
        meanwhile()

    def _disconnections(self) -> int:
        return self.node.kubelet.log.read_text().count('"Device plugin disconnected"')

    def restart_agent(self) -> None:
        """Kill the agent and start it, until kubelet knows it again."""
        before = self._registrations()
        self.agent.kill()
        self.start_agent()
        self._known(before)

    def _known(self, before: int) -> None:
        self.cp.wait("kubelet to know the agent", lambda: self._registrations() > before, 60)
        self.node.wait_until_ready()
        self.offers(SLOTS)

    def agent_said(self, text: str) -> int:
        """How often an agent of this node wrote this into its log."""
        return sum(log.read_text().count(text) for log in self._logs)

    def asked_to_start(self, container: str) -> int:
        """How often kubelet asked whether a container of this name may start."""
        asked = f'"Issuing a PreStartContainer call for container" containerName="{container}"'
        return self.node.kubelet.log.read_text().count(asked)

    def _registrations(self) -> int:
        return self.agent_said("kubelet knows the device plugin")

    @contextlib.contextmanager
    def no_api_server(
        self, found: Json, container: str, path: str
    ) -> Iterator[Callable[[int], list[str]]]:
        """Make a file in a container of a Pod while the API server does not answer.

        Gives a function that waits for what the container's given attempt prints.
        """

        def printed(attempt: int) -> list[str]:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                lines = self.node.printed(found, container, attempt)
                if "seen" in lines:
                    return lines
                time.sleep(0.1)
            raise AssertionError(f"container {container} did not start again: attempt {attempt}")

        server = self.cp.api_server
        server.signal(signal.SIGSTOP)
        try:
            self.touch_in(found, container, path)
            yield printed
        finally:
            server.signal(signal.SIGCONT)

    def unblock(self, name: str) -> None:
        """Make what a blocked Pod waits for."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        self.cp.request("POST", "/api/v1/namespaces/default/configmaps", body)

    def kill_sandbox(self, name: str) -> None:
        """End what holds a Pod's sandbox, as a crash of it would."""
        uid = self.node.get(name)["metadata"]["uid"]
        found = self.node.ctr_lines(
            "containers",
            "list",
            "--quiet",
            f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==sandbox',
        )
        for sandbox in found:
            self.node.ctr("tasks", "kill", "--signal", "SIGKILL", sandbox)

    def touch(self, name: str, container: str, path: str) -> None:
        """Make a file in a container that runs."""

        def running() -> Json | None:
            # After a restart kubelet tells the API server of the new container some time later.
            found = self.node.get(name)
            task = f"{_container_ids(found).get(container)} "
            lines = self.node.ctr_lines("tasks", "ls")
            return found if any(task in line and "RUNNING" in line for line in lines) else None

        found = self.cp.wait(f"{container} of Pod {name} to be told as it runs", running, 20)
        self.touch_in(found, container, path)

    def touch_in(self, found: Json, container: str, path: str) -> None:
        """Likewise in a Pod as it was found, without asking the API server."""
        command = ["sh", "-c", f": > {path}"]
        task = _container_ids(found)[container]
        self.node.ctr("tasks", "exec", "--exec-id", "touch", task, *command)

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

    def ids(self, name: str) -> dict[str, frozenset[str]]:
        """The device ids that kubelet gave to each container of a Pod, by its checkpoint."""
        uid = self.node.get(name)["metadata"]["uid"]
        with contextlib.suppress(FileNotFoundError):
            entries = checkpoint.parse((self.node.plugins / checkpoint.FILE).read_bytes())
            return {entry.container: entry.ids for entry in entries if entry.pod_uid == uid}
        return {}

    def annotation(self, name: str, key: str) -> str | None:
        """An annotation of a Pod as it is now."""
        found: str | None = self.node.get(name)["metadata"].get("annotations", {}).get(key)
        return found

    def event(self, name: str, reason: str, within: float = 30) -> str:
        """Wait for our event on a Pod; what it says."""
        uid = self.node.get(name)["metadata"]["uid"]

        def told() -> str:
            path = "/apis/events.k8s.io/v1/namespaces/default/events"
            for event in self.cp.request("GET", path)["items"]:
                if event["reason"] == reason and event["regarding"].get("uid") == uid:
                    return str(event["note"])
            return ""

        return self.cp.wait(f"event {reason} on Pod {name}", told, within)

    def waiting_message(self, name: str, within: float = 30) -> str:
        """Wait until kubelet says why a container does not start; what it says."""

        def said() -> str:
            for status in self.node.get(name)["status"].get("containerStatuses", ()):
                if message := status.get("state", {}).get("waiting", {}).get("message"):
                    return str(message)
            return ""

        return self.cp.wait(f"kubelet to say why {name} waits", said, within)

    def init_runs(self, name: str) -> bool:
        """Whether the Pod's first init container runs."""
        statuses = self.node.get(name)["status"].get("initContainerStatuses", ())
        return bool(statuses) and "running" in statuses[0]["state"]

    def _path(self, name: str) -> str:
        return f"/api/v1/namespaces/default/pods/{name}"

    def tails(self) -> str:
        """The end of each log."""
        return f"{self.node.tails()}\n--- {self.agent}\n{self.agent.tail(40)}"

    def clear(self) -> None:
        """Start what a test ended, and delete every Pod."""
        if self.node.kubelet.poll() is not None:
            self.node.start_kubelet()
        if self.agent.poll() is not None:
            before = self._registrations()
            self.start_agent()
            self._known(before)
        self.node.clear()


def _container_ids(pod: Json) -> dict[str, str]:
    """The containerd id of each container that has one, by the container's name."""
    status = pod["status"]
    return {
        each["name"]: each["containerID"].removeprefix("containerd://")
        for key in ("initContainerStatuses", "containerStatuses")
        for each in status.get(key, ())
        if "containerID" in each
    }
