"""A cluster with Cardwise at work in it, and the verbs in which the end-to-end tests speak.

Controller, kube-scheduler and agents are the real processes under their own accounts; the nodes are
KWOK's. What a verb tells was read from the API server, never from our own processes.
"""

import contextlib
import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

import build
import oracle
from cardwise import names
from cardwise.admission import admit
from cardwise.settings import Settings
from cardwise.wire.pods import asks_cards
from controlplane.launcher import ApiError, ControlPlane, Process, free_port, standing_ground

Json = dict[str, Any]

PROGRAMS = Path(sys.executable).parent
GPUNODES = f"/apis/{names.API_GROUP}/{names.API_VERSION}/{names.GPUNODE_PLURAL}"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_NOW = {"gracePeriodSeconds": 0}
_SHARE = re.compile(r"([^,:;]+),NVIDIA,\d+,\d+:")
_CREATED = ("uid", "resourceVersion")
"""Metadata that only the API server writes."""


@dataclass(frozen=True)
class Placement:
    """Where a Pod is: its node, and the indexes of its cards in the order of the annotation."""

    node: str
    cards: tuple[int, ...]


class Stage:
    """One running cluster; `clear` makes it empty for the next test."""

    namespace: str
    """Where this test's Pods go."""
    controller: Process

    def __init__(self, cp: ControlPlane) -> None:
        """Install Cardwise on a control plane; `raised` is the way in."""
        self.cp = cp
        standing_ground(cp)
        self.account = cp.service_account_kubeconfig("cardwise-controller")
        self._agent_account = cp.service_account_kubeconfig("cardwise-agent")
        self._agents: dict[str, Process] = {}
        self._indexes: dict[str, int] = {}
        self._tests = 0
        self._changed = False
        self._port = free_port()
        self.start_controller()
        self.scheduler = cp.start_scheduler(extender_url=f"http://127.0.0.1:{self._port}")
        self._begin()

    @classmethod
    @contextlib.contextmanager
    def raised(cls, *, audit: bool = False) -> Iterator[Self]:
        """Start everything, and end it."""
        with ControlPlane.start(audit=audit) as cp:
            yield cls(cp)

    # --- life -------------------------------------------------------------------------------------

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
        argv = [
            str(PROGRAMS / "cardwise-controller"),
            f"--kubeconfig={kubeconfig or self.account}",
            f"--listen=127.0.0.1:{self._port}",
            f"--metrics-listen=127.0.0.1:{free_port()}",
        ]
        if settings is not None:
            config = self.cp.directory / "controller.yaml"
            config.write_text(yaml.safe_dump(settings))
            argv.append(f"--config={config}")
        self.controller = self.cp.start_process("controller", argv)

    def ready(self) -> None:
        """Wait until the controller answers kube-scheduler."""

        def answers() -> bool:
            assert self.controller.poll() is None, f"it ended:\n{self.controller.tail()}"
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5):
                return True

        self.cp.wait("the controller to be ready", answers, 60)

    def clear(self) -> None:
        """Take everything away that a test brought, and name the next one's namespace."""
        for agent in self._agents.values():
            agent.kill()
        self._agents.clear()
        for pod in self.all_pods():
            self._request("DELETE", _path(pod), _NOW)
        for quota in self.cp.request("GET", "/api/v1/resourcequotas")["items"]:
            path = f"/api/v1/namespaces/{quota['metadata']['namespace']}/resourcequotas/"
            self._request("DELETE", path + quota["metadata"]["name"])
        self.cp.wait("the last test's Pods to go", lambda: not self.all_pods(), 60)
        self.cp.request("DELETE", "/api/v1/nodes")
        self.cp.request("DELETE", GPUNODES)
        if self._changed or self.controller.poll() is not None:
            self.controller.terminate()
            self.start_controller()
        self._begin()

    def _begin(self) -> None:
        self._tests += 1
        self._indexes.clear()
        self.namespace = f"test-{self._tests}"
        body = {"metadata": {"name": self.namespace}}
        self.cp.request("POST", "/api/v1/namespaces", body)

    def tails(self) -> str:
        """The ends of our processes' logs."""
        processes = [self.controller, self.scheduler, *self._agents.values()]
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
        self.cp.add_node(name, gpus=0 if cards is None else 40, **fields)
        if isinstance(cards, str | Path):
            self._start_agent(name, cards)
        elif cards is not None:
            self.report(build.gpunode(name, cards, links=links))
        if cards is not None:
            self.cp.wait(f"the controller to know {name}", lambda: self.usage(name), 30)

    def report(self, document: Json) -> None:
        """Publish a GPUNode as its agent would; ``spec`` is its administrator's."""
        kind = {key: document[key] for key in ("apiVersion", "kind")}
        name = document["metadata"]["name"]
        kind["metadata"] = {"name": name}
        for part, owner, path in (
            ("spec", "administrator", f"{GPUNODES}/{name}"),
            ("status", names.MANAGER_AGENT, f"{GPUNODES}/{name}/status"),
        ):
            body = {**kind, part: document.get(part, {})}
            query = f"?fieldManager={owner}&force=true"
            self.cp.request("PATCH", path + query, body, content_type=APPLY)

    def _start_agent(self, node: str, profile: str | Path) -> None:
        config = self.cp.directory / "agent.yaml"
        config.write_text("agent: {reportSeconds: 1}")
        self._agents[node] = self.cp.start_process(
            f"agent-{node}",
            [
                str(PROGRAMS / "cardwise-agent"),
                f"--nvml=simulated:{profile}",
                f"--node-name={node}",
                f"--config={config}",
                f"--kubeconfig={self._agent_account}",
            ],
        )

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

    def settled(self) -> None:
        """Wait until the controller tells of every bound Pod's cards, and of no others."""

        def booked() -> set[tuple[str, str]]:
            return {
                (uuid, f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                for pod in self.all_pods()
                if "nodeName" in pod["spec"]
                for uuid in uuids(pod)
            }

        def told() -> set[tuple[str, str]]:
            return {
                (card["uuid"], tenant)
                for gpunode in self.gpunodes()
                for card in gpunode["status"].get("usage", ())
                for tenant in card.get("tenants", ())
            }

        self.cp.wait("the usage to tell of every tenant", lambda: booked() == told(), 30)

    def patch(self, path: str, change: Json) -> None:
        """Merge a change into any object."""
        self.cp.request("PATCH", path, change, content_type=MERGE)

    # --- Pods -------------------------------------------------------------------------------------

    def pod(
        self,
        name: str,
        *,
        cpu: str | None = None,
        spec: Mapping[str, Any] | None = None,
        admitted: bool = True,
        **fields: Any,
    ) -> None:
        """Create a Pod.

        Args:
            name: the Pod's.
            cpu: asked by its container.
            spec: more fields of the spec, such as ``nodeSelector``.
            admitted: as the webhook would have changed it. False: as it is while there is none.
            fields: as `build.pod` takes them; ``gpus=None`` is a Pod without cards.
        """
        document = build.pod(name, namespace=self.namespace, **fields)
        document["spec"].update(spec or {})
        if cpu is not None:
            resources = document["spec"]["containers"][0].setdefault("resources", {})
            resources.setdefault("requests", {})["cpu"] = cpu
        self.create(document, admitted=admitted)

    def create(self, document: Json, *, admitted: bool = True) -> None:
        """Create a Pod from its JSON, in this test's namespace."""
        metadata = {k: v for k, v in document["metadata"].items() if k not in _CREATED}
        document = {**document, "metadata": {**metadata, "namespace": self.namespace}}
        if admitted:
            admission = admit(document, Settings())
            assert admission.denial is None, admission.denial
            document = admission.pod
        self.cp.request("POST", f"/api/v1/namespaces/{self.namespace}/pods", document)

    def tenant(self, name: str, text: str, *, on: str = "node-a", **fields: Any) -> None:
        """Create a Pod that is bound with its cards already, as another scheduler left it."""
        document = build.pod(name, node=on, allocated=text, **fields)
        self.create(document, admitted=False)

    def get(self, name: str) -> Json:
        """The Pod as it is now."""
        found: Json = self.cp.request("GET", self.path(name))
        return found

    def path(self, name: str) -> str:
        """Where this test's Pod of that name is found."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def all_pods(self) -> list[Json]:
        """Every Pod of the cluster."""
        found: list[Json] = self.cp.request("GET", "/api/v1/pods")["items"]
        return found

    def pods(self) -> dict[str, Json]:
        """This test's Pods by name."""
        found = self.cp.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def placement(self, name: str) -> Placement | None:
        """Where the Pod is; None while it waits."""
        return self.placement_of(self.get(name))

    def placement_of(self, pod: Json) -> Placement | None:
        """Where a Pod is, by its JSON."""
        node = pod["spec"].get("nodeName")
        if node is None:
            return None
        booked = uuids(pod)
        if not self._indexes.keys() >= set(booked):
            self.gpunodes()
        return Placement(node, tuple(self._indexes[uuid] for uuid in booked))

    def placed_at(self, name: str, within: float = 20) -> Placement:
        """Wait until the Pod is bound; where."""
        placement = self.cp.wait(f"Pod {name} to be bound", lambda: self.placement(name), within)
        assert placement is not None
        return placement

    def placed(self, name: str, within: float = 20) -> int:
        """Wait until the Pod is bound with one card; the card's index."""
        (card,) = self.placed_at(name, within).cards
        return card

    def pending(self, name: str, reason: str, within: float = 20) -> str:
        """Wait until kube-scheduler says that the Pod waits for this reason; all it says."""

        def said() -> str:
            pod = self.get(name)
            assert "nodeName" not in pod["spec"], f"Pod {name} does not wait: it is bound"
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    message = str(condition.get("message"))
                    return message if reason in message else ""
            return ""

        return self.cp.wait(f"Pod {name} to wait for {reason}", said, within)

    def event(self, name: str, reason: str, within: float = 60) -> str:
        """Wait for our event of this reason on the Pod; what it says."""
        uid = self.get(name)["metadata"]["uid"]
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def note() -> str:
            for event in self.cp.request("GET", path)["items"]:
                if event["reason"] == reason and event["regarding"].get("uid") == uid:
                    return str(event.get("note"))
            return ""

        return self.cp.wait(f"event {reason} on Pod {name}", note, within)

    def describe(self, name: str) -> str:
        """What ``kubectl describe`` prints."""
        return self.cp.kubectl("describe", "pod", name, f"-n={self.namespace}")

    def delete(self, name: str) -> None:
        """Delete the Pod and wait until it is gone."""
        self.cp.request("DELETE", self.path(name))
        self.gone(name)

    def gone(self, name: str, within: float = 30) -> None:
        """Wait until there is no such Pod."""
        self.cp.wait(f"Pod {name} to go", lambda: name not in self.pods(), within)

    def stays(self, name: str, seconds: float) -> None:
        """See that the Pod waits for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert "nodeName" not in self.get(name)["spec"], f"Pod {name} was placed"
            time.sleep(0.1)

    # --- the law ----------------------------------------------------------------------------------

    def legal(self) -> list[str]:
        """What is illegal about the Pods that are bound, by the oracle; nothing should be."""
        bound = [pod for pod in self.all_pods() if "nodeName" in pod["spec"]]
        without = [f"{_path(pod)} has no cards" for pod in bound if asks_cards(pod) > bool(uuids(pod))]
        return without + oracle.violations(self.gpunodes(), bound)

    def fitting(self) -> list[str]:
        """The Pods of this test that wait although they would fit, by the oracle."""
        gpunodes, everyone = self.gpunodes(), self.all_pods()
        quotas = self.cp.request("GET", "/api/v1/resourcequotas")["items"]
        nodes = self.cp.request("GET", "/api/v1/nodes")["items"]
        return [
            name
            for name, pod in self.pods().items()
            if "nodeName" not in pod["spec"]
            and oracle.place(pod, gpunodes, everyone, quotas, nodes)["node"] is not None
        ]

    def _request(self, method: str, path: str, body: Any = None) -> None:
        """Ask for something that may be gone already."""
        try:
            self.cp.request(method, path, body)
        except ApiError as error:
            if error.status != 404:
                raise


def uuids(pod: Json) -> list[str]:
    """The cards in a Pod's allocation, in its order."""
    return _SHARE.findall(pod["metadata"].get("annotations", {}).get(names.ALLOCATED, ""))


def _path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
