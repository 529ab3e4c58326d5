"""Behind the stage: the processes of Cardwise, the nodes and their cards, and making all empty.

Cardwise is installed by its overlay "default", or "gates" for that door. Controller,
kube-scheduler, webhook and agents are the real processes with the command lines that it ships,
under their own accounts; the nodes are KWOK's.
"""

import contextlib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

import build
from cardwise import names
from cardwise.names import Door
from cardwise.wire.nodestatus import resources_of
from controlplane.launcher import (
    SYSTEM_NAMESPACE,
    ApiError,
    ControlPlane,
    ControlPlaneError,
    Process,
    free_port,
)
from installation import GPUNODES, PROGRAMS, Installation

__all__ = ["GPUNODES", "PROGRAMS", "Backstage", "Json", "path_of"]

Json = dict[str, Any]

_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_OVERLAYS: Final = {Door.EXTENDER: "default", Door.GATES: "gates"}
_APPLY: Final = "application/apply-patch+yaml"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NOW: Final = {"gracePeriodSeconds": 0}


class Backstage:
    """One running cluster; `clear` makes it empty for the next test."""

    namespace: str
    """Where this test's Pods go."""
    controller: Process
    leader_election = False
    overlay: str | None = None
    """Instead of the one that installs the door."""
    installed: type[Installation] = Installation
    environment: Mapping[str, str] | None = None
    """What the downward API would tell the controller."""
    scheduler: Process
    """Ours, or the cluster's own where Pods come by the door of gates."""

    def __init__(self, cp: ControlPlane, door: Door = Door.EXTENDER) -> None:
        """Install Cardwise on a control plane and start it; `raised` is the way in."""
        self.cp = cp
        self.door = door
        self.installation = self.installed(cp, self.overlay or _OVERLAYS[door])
        self.account = cp.service_account_kubeconfig("cardwise-controller")
        self._agent_account = cp.service_account_kubeconfig("cardwise-agent")
        self._agents: dict[str, Process] = {}
        self._indexes: dict[str, int] = {}
        self._tests = 0
        self._marks = 0
        self._changed = False
        self.launch_webhook()
        self.start_cardwise()
        self._begin()
        self.admits()

    @classmethod
    @contextlib.contextmanager
    def raised(cls, *, audit: bool = False, door: Door = Door.EXTENDER) -> Iterator[Self]:
        """Start everything, and end it."""
        with ControlPlane.start(audit=audit) as cp:
            yield cls(cp, door)

    @property
    def gates(self) -> bool:
        """Whether Pods come by the door of gates."""
        return self.door is Door.GATES

    @property
    def advertises(self) -> bool:
        """Whether the nodes' own scheduler needs to be told what cards come to."""
        return self.gates

    @property
    def kinds(self) -> int:
        """How many kinds the controller watches: those of storage at the door of gates alone."""
        return 7 if self.gates else 4

    # --- life -------------------------------------------------------------------------------------

    def start_cardwise(self) -> None:
        """Start one controller, and the kube-scheduler that binds."""
        self._port, self._reports_port = free_port(), free_port()
        self.start_controller()
        if self.gates:
            self.scheduler = self.cp.start_default_scheduler()
        else:
            self.scheduler = self.cp.start_scheduler(
                extender_url=self.extender_url, configuration=self.installation.scheduler
            )

    def mend(self) -> None:
        """Start what a test ended or changed."""
        if self.webhook.poll() is not None:
            self.launch_webhook()
            self.admits()
        if self._changed or self.controller.poll() is not None:
            self.controller.terminate()
            self.start_controller()

    def start_controller(
        self, *, kubeconfig: Path | None = None, settings: Json | None = None
    ) -> None:
        """Start the controller and return when it answers.

        Args:
            kubeconfig: instead of its own account's way to the API server.
            settings: its settings file.
        """
        self.launch_controller(kubeconfig=kubeconfig, settings=settings)
        self.ready()

    def launch_controller(
        self, *, kubeconfig: Path | None = None, settings: Json | None = None
    ) -> None:
        """Start the controller without waiting for it."""
        self._changed = kubeconfig is not None or settings is not None
        config = self.installation.settings
        if settings is not None:
            config = self.cp.directory / "controller.yaml"
            scheduling = {"door": str(self.door), **settings.get("scheduling", {})}
            config.write_text(yaml.safe_dump({**settings, "scheduling": scheduling}))
        listen = {} if self.gates else {"listen": f"127.0.0.1:{self._port}"}
        argv = self.installation.command(
            "deployments/cardwise-scheduler",
            "controller",
            config=config,
            metrics_listen=f"127.0.0.1:{self._reports_port}",
            kubeconfig=kubeconfig or self.account,
            **listen,
        )
        if not self.leader_election:
            argv.append("--no-leader-election")
        self.controller = self.cp.start_process("controller", argv, env=self.environment)

    def launch_webhook(self) -> None:
        """Start the webhook without waiting for it, nor for its certificate."""
        argv = self.installation.command(
            "deployments/cardwise-webhook",
            "webhook",
            listen=self.installation.webhook_address,
            metrics_listen=f"127.0.0.1:{free_port()}",
            drain_seconds=0,  # nobody needs time to hear that it ends
        )
        self.webhook = self.cp.start_process("webhook", argv)

    def admits(self) -> None:
        """Wait until a new Pod with cards passes through the webhook, by the Service's address."""

        def passes() -> bool:
            self.installation.bring_certificate()
            assert self.webhook.poll() is None, f"it ended:\n{self.webhook.tail()}"
            path = f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All"
            pod = build.pod(scheduler="", namespace=self.namespace)
            del pod["metadata"]["resourceVersion"]
            spec = self.cp.request("POST", path, pod)["spec"]
            return bool(spec["schedulerName"] == names.SCHEDULER_NAME or "schedulingGates" in spec)

        self.cp.wait("the webhook to admit Pods", passes, 60)

    def ready(self) -> None:
        """Wait until the controller is ready to act."""
        self.cp.wait("the controller to be ready", self.is_ready, 60)

    @property
    def reports_url(self) -> str:
        """Where the controller answers probes and Prometheus."""
        return f"http://127.0.0.1:{self._reports_port}"

    @property
    def extender_url(self) -> str:
        """Where the controller answers kube-scheduler."""
        return f"http://127.0.0.1:{self._port}"

    def is_ready(self) -> bool:
        """Whether the controller is ready to act now."""
        assert self.controller.poll() is None, f"it ended:\n{self.controller.tail()}"
        try:
            with urllib.request.urlopen(f"{self.reports_url}/readyz", timeout=5):  # noqa: S310
                return True
        except OSError:  # nobody listens yet, or it says that it is not ready
            return False

    def clear(self) -> None:
        """Take everything away that a test brought, and name the next one's namespace."""
        for agent in self._agents.values():
            agent.kill()
        self._agents.clear()
        for namespace in {pod["metadata"]["namespace"] for pod in self.all_pods()}:
            self._request("DELETE", f"/api/v1/namespaces/{namespace}/pods", _NOW)
        for quota in self.cp.request("GET", "/api/v1/resourcequotas")["items"]:
            path = f"/api/v1/namespaces/{quota['metadata']['namespace']}/resourcequotas/"
            self._request("DELETE", path + quota["metadata"]["name"])
        self.cp.wait("the last test's Pods to go", lambda: not self.all_pods(), 60)
        self.cp.request("DELETE", "/api/v1/nodes")
        self.cp.request("DELETE", GPUNODES)
        # They would go by themselves, but in the very moment when KWOK renews them for a new node
        # of the same name; it then gives that node up for minutes.
        self.cp.request("DELETE", _LEASES)
        self.mend()
        self._begin()

    def _begin(self) -> None:
        self._tests += 1
        self._indexes.clear()
        self.namespace = f"test-{self._tests}"
        body = {"metadata": {"name": self.namespace}}
        self.cp.request("POST", "/api/v1/namespaces", body)

    def tails(self) -> str:
        """The ends of our processes' logs."""
        processes = [self.controller, self.scheduler, self.webhook, *self._agents.values()]
        return "\n".join(f"--- {process}\n{process.tail(60)}" for process in processes)

    # --- nodes and cards --------------------------------------------------------------------------

    def node(
        self,
        name: str,
        cards: int | Sequence[Json] | str | Path | None = 4,
        *,
        links: Sequence[tuple[Any, ...]] | None = None,
        **fields: Any,
    ) -> None:
        """Add a node, and wait until the controller knows its cards.

        Args:
            name: the node's.
            cards: a number or a list is reported by hand; a shipped profile's name or a file is
                published by an agent; None is a node without cards.
            links: of a report by hand, as `build.gpunode` takes them.
            fields: of the Node, as `ControlPlane.add_node` takes them.
        """
        self.bare_node(name, gpus=0 if cards is None else 40, **fields)
        if isinstance(cards, str | Path):
            self._start_agent(name, cards)
        elif cards is not None:
            self.report(build.gpunode(name, cards, links=links))
        if cards is not None:
            self.cp.wait(f"the controller to know {name}", lambda: self.usage(name), 30)

    def bare_node(self, name: str, **fields: Any) -> None:
        """Add a node that nothing is reported of, and wait until KWOK runs and ends its Pods."""
        self.cp.add_node(name, **fields)
        try:
            self._kept(name)
        except ControlPlaneError:
            # KWOK now and then takes a node that is made anew for the one that went, and waits.
            self.cp.request("DELETE", f"/api/v1/nodes/{name}")
            self.cp.add_node(name, **fields)
            self._kept(name)

    def _kept(self, name: str) -> None:
        uid = self.cp.request("GET", f"/api/v1/nodes/{name}")["metadata"]["uid"]

        def kept() -> bool:
            lease = self.cp.request("GET", f"{_LEASES}/{name}")
            return any(o["uid"] == uid for o in lease["metadata"].get("ownerReferences", ()))

        self.cp.wait(f"KWOK to keep {name}", kept, 30)

    def report(self, document: Json) -> None:
        """Publish a GPUNode as its agent would; ``spec`` is its administrator's."""
        kind = {key: document[key] for key in ("apiVersion", "kind")}
        name = document["metadata"]["name"]
        if self.advertises:
            self._advertise(name, document)
        kind["metadata"] = {"name": name}
        for part, owner, path in (
            ("spec", "administrator", f"{GPUNODES}/{name}"),
            ("status", names.MANAGER_AGENT, f"{GPUNODES}/{name}/status"),
        ):
            body = {**kind, part: document.get(part, {})}
            query = f"?fieldManager={owner}&force=true"
            self.cp.request("PATCH", path + query, body, content_type=_APPLY)

    def _advertise(self, node: str, document: Json) -> None:
        """Write what its cards come to into the node's status, as the agent would."""
        amounts = {name: str(amount) for name, amount in resources_of(document).items()}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        self.cp.request("PATCH", f"/api/v1/nodes/{node}/status", status, content_type=_STRATEGIC)

    def agent(self, node: str, profile: Json) -> None:
        """Our agent comes to a node whose cards a GPUNode's JSON tells."""
        file = self.cp.directory / f"{node}.yaml"
        file.write_text(yaml.safe_dump(profile))
        self._start_agent(node, file)

    def agent_leaves(self, node: str) -> None:
        """Our agent leaves it."""
        self._agents.pop(node).kill()

    def _start_agent(self, node: str, profile: str | Path) -> None:
        config = self.cp.directory / "agent.yaml"
        config.write_text(f"agent: {{reportSeconds: 1}}\nscheduling: {{door: {self.door}}}")
        argv = self.installation.command(
            "daemonsets/cardwise-agent",
            "agent",
            nvml=f"simulated:{profile}",
            node_name=node,
            config=config,
            kubeconfig=self._agent_account,
            metrics_listen=f"127.0.0.1:{free_port()}",
        )
        self._agents[node] = self.cp.start_process(f"agent-{node}", argv)

    def agents(self) -> list[Process]:
        """The agents that run."""
        return list(self._agents.values())

    def gpunodes(self) -> list[Json]:
        """Every GPUNode as it is now."""
        found: list[Json] = self.cp.request("GET", GPUNODES)["items"]
        for gpunode in found:
            for card in gpunode.get("status", {}).get("cards", ()):
                self._indexes[card["uuid"]] = card["index"]
        return found

    def usage(self, node: str) -> list[Json]:
        """What the controller wrote of each card's use; empty before it did."""
        status = self.cp.request("GET", f"{GPUNODES}/{node}").get("status", {})
        usage: list[Json] = status.get("usage", [])
        return usage

    def audit_log(self, since: int = 0) -> list[bytes]:
        """A line of JSON for each request that the API server had until now.

        Args:
            since: bytes of the log that are older.
        """
        # A request is written down after its answer was given, and so a little later.
        self._marks += 1
        mark = f"/version?mark={self._marks}"
        self.cp.request("GET", mark)

        def lines() -> list[bytes]:
            with (self.cp.directory / "audit.log").open("rb") as log:
                log.seek(since)
                found = log.readlines()
            return found if any(mark.encode() + b'"' in line for line in found) else []

        return self.cp.wait("the audit log", lines, 10)

    def patch(self, path: str, change: Json) -> None:
        """Merge a change into any object."""
        self.cp.request("PATCH", path, change, content_type=_MERGE)

    def all_pods(self) -> list[Json]:
        """Every Pod of the cluster but Cardwise's own."""
        others = f"/api/v1/pods?fieldSelector=metadata.namespace!={SYSTEM_NAMESPACE}"
        found: list[Json] = self.cp.request("GET", others)["items"]
        return found

    def _request(self, method: str, path: str, body: Any = None) -> None:
        """Ask for something that may be gone already."""
        try:
            self.cp.request(method, path, body)
        except ApiError as error:
            if error.status != 404:
                raise


def path_of(pod: Json) -> str:
    """Where a Pod is found."""
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
