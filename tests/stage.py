"""The verbs in which the end-to-end tests speak of a cluster with Cardwise at work in it.

What a verb tells was read from the API server, never from our own processes.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import build
import oracle
from backstage import GPUNODES, Backstage, Json, path_of
from cardwise import names
from cardwise.wire.pods import asks_cards

__all__ = ["GPUNODES", "Json", "Placement", "Stage", "node_of", "uuids"]

_SHARE: Final = re.compile(r"([^,:;]+),NVIDIA,\d+,\d+(?:,[^:;]*)?:")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CREATED: Final = ("uid", "resourceVersion")
"""Metadata that only the API server writes."""
_OPTED_OUT: Final = {names.WEBHOOK_LABEL: names.WEBHOOK_IGNORE}


@dataclass(frozen=True)
class Placement:
    """Where a Pod is: its node, and the indexes of its cards in the order of the annotation."""

    node: str
    cards: tuple[int, ...]


class Stage(Backstage):
    """A running cluster with Cardwise in it; `clear` makes it empty for the next test."""

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
            admitted: by the webhook. False: it opts out of that, by its label.
            fields: as `build.pod` takes them; ``gpus=None`` is a Pod without cards. Only a Pod
                that the webhook does not give to our scheduler names it.
        """
        document = build.pod(name, namespace=self.namespace, **fields)
        if admitted and asks_cards(document):
            document["spec"]["schedulerName"] = fields.get("scheduler", "")
        document["spec"].update(spec or {})
        if cpu is not None:
            resources = document["spec"]["containers"][0].setdefault("resources", {})
            resources.setdefault("requests", {})["cpu"] = cpu
        self.create(document, admitted=admitted)

    def create(self, document: Json, *, admitted: bool = True) -> None:
        """Create a Pod from its JSON, in this test's namespace."""
        metadata = {k: v for k, v in document["metadata"].items() if k not in _CREATED}
        metadata["namespace"] = self.namespace
        if not admitted:
            metadata["labels"] = {**metadata.get("labels", {}), **_OPTED_OUT}
        document = {**document, "metadata": metadata}
        self.cp.request("POST", f"/api/v1/namespaces/{self.namespace}/pods", document)

    def tenant(self, name: str, text: str, *, on: str = "node-a", **fields: Any) -> None:
        """Create a Pod that is bound with its cards already, as another scheduler left it."""
        self.create_tenant(build.pod(name, node=on, allocated=text, **fields))

    def create_tenant(self, document: Json) -> None:
        """Create a Pod that is bound with its cards already, from its JSON.

        The webhook leaves the Pods of a scheduler that it does not know as they are, and who
        creates this one may write allocations.
        """
        spec = {**document["spec"], "schedulerName": "another-scheduler"}
        self.create({**document, "spec": spec})

    def get(self, name: str) -> Json:
        """The Pod as it is now."""
        found: Json = self.cp.request("GET", self.path(name))
        return found

    def path(self, name: str) -> str:
        """Where this test's Pod of that name is found."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def write_of(self, name: str) -> dict[str, str]:
        """The write that gives a Pod its cards: its method, and what its path ends in."""
        if self.gates:
            return {"method": "PATCH", "ends": self.path(name)}
        return {"method": "POST", "ends": f"{self.path(name)}/binding"}

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

    def pending(
        self, name: str, reason: str, within: float = 20, *, nodes: int | None = None
    ) -> str:
        """Wait until a person is told that the Pod waits for this reason; all that is said.

        kube-scheduler says it in a condition; of a Pod behind our gate only our event tells.

        Args:
            name: the Pod's.
            reason: the word.
            within: seconds.
            nodes: how many nodes kube-scheduler says the word of.
        """
        condition_word = reason if nodes is None else f"{nodes} {reason}"

        def said() -> str:
            pod = self.get(name)
            assert "nodeName" not in pod["spec"], f"Pod {name} does not wait: it is bound"
            if pod["spec"].get("schedulingGates"):
                return self._told(pod, reason)
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    message = str(condition.get("message"))
                    return message if condition_word in message else ""
            return ""

        return self.cp.wait(f"Pod {name} to wait for {reason}", said, within)

    def event(self, name: str, reason: str, within: float = 60) -> str:
        """Wait for our event of this reason on the Pod; what it says."""
        pod = self.get(name)
        return self.cp.wait(
            f"event {reason} on Pod {name}", lambda: self._told(pod, reason), within
        )

    def _told(self, pod: Json, reason: str) -> str:
        """What our event of this reason says; empty where there is none."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        for event in self.cp.request("GET", path)["items"]:
            if (
                event["reason"] == reason
                and event["regarding"].get("uid") == pod["metadata"]["uid"]
            ):
                return str(event.get("note"))
        return ""

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

    def placed_pods(self) -> list[Json]:
        """Every Pod that is bound, or that lacks nothing but that: each with its node."""
        return [
            {**pod, "spec": {**pod["spec"], "nodeName": node}}
            for pod in self.all_pods()
            if (node := node_of(pod)) is not None
        ]

    def legal(self) -> list[str]:
        """What is illegal about the Pods that are placed, by the oracle; nothing should be."""
        placed = self.placed_pods()
        without = [
            f"{path_of(pod)} has no cards" for pod in placed if asks_cards(pod) > bool(uuids(pod))
        ]
        return without + oracle.violations(self.gpunodes(), placed)

    def fitting(self) -> list[str]:
        """The Pods of this test that wait although they would fit, by the oracle."""
        gpunodes, everyone, placed = self.gpunodes(), self.all_pods(), self.placed_pods()
        quotas = self.cp.request("GET", "/api/v1/resourcequotas")["items"]
        nodes = self.cp.request("GET", "/api/v1/nodes")["items"]
        return [
            pod["metadata"]["name"]
            for pod in everyone
            if pod["metadata"]["namespace"] == self.namespace
            and node_of(pod) is None
            and oracle.place(pod, gpunodes, placed, quotas, nodes)["node"] is not None
        ]

    def settled(self) -> None:
        """Wait until the controller tells of every placed Pod's cards, and of no others."""

        def booked() -> set[tuple[str, str]]:
            return {
                (uuid, f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                for pod in self.placed_pods()
                if pod["status"]["phase"] not in ("Succeeded", "Failed")
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


def node_of(pod: Json) -> str | None:
    """The node that a Pod is bound to, or that its cards are on; None while it waits.

    By the door of gates a Pod has its cards before it is bound: its gate is gone then, and it may
    go to the one node alone.
    """
    spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    node: str | None = annotations.get(names.VGPU_NODE)
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ())
    alone = {"key": "metadata.name", "operator": "In", "values": [node]}
    pinned = bool(terms) and all(alone in term.get("matchFields", ()) for term in terms)
    gated = bool(spec.get("schedulingGates"))
    return node if pinned and not gated and names.ALLOCATED in annotations else None


def uuids(pod: Json) -> list[str]:
    """The cards in a Pod's allocation, in its order."""
    return _SHARE.findall(pod["metadata"].get("annotations", {}).get(names.ALLOCATED, ""))
