"""A cluster that HAMi serves, to follow docs/migrating-from-hami.md on: it plays the kubelets.

There are no kubelets and no scheduler of the cluster's own: what a person applies is only objects.
So whoever has a Pod of HAMi or of ours gets its process here, and where the Pod of a device plugin
is, the node offers cards. Which Pods there are is the controller manager's work, as ever.
"""

import json
import threading
import urllib.request
from typing import Any, Final

import yaml

from backstage import Backstage
from cardwise import names
from controlplane.launcher import ROOT, ApiError, ControlPlane, Process
from hamicluster import HamiCluster
from installation import CONFIGURATION, PROGRAMS, SYSTEM, WORKLOADS, Installation

Json = dict[str, Any]
NODES: Final = ("node-a", "node-b")
SHADOW_PORT: Final = 9395
_SHADOW: Final = "cardwise-shadow"
_SETTINGS: Final = ROOT / "manifests/overlays/shadow/cardwise.yaml"
_THEIRS: Final = "hami-device-plugin"
_OURS: Final = "cardwise-agent"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE: Final = "application/merge-patch+json"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SECONDS: Final = 0.2


class _Installed(Installation):
    scaled_down = False


class _Beside(Backstage):
    overlay = "migration"
    installed = _Installed

    def _begin(self) -> None:
        """Bring no namespace: a person comes and goes as often as they like."""
        self.namespace = "default"

    def end(self) -> None:
        """End every process."""
        for process in (self.controller, self.scheduler, self.webhook, *self.agents()):
            process.terminate()


class HamiPlay:
    """Two nodes with four T4s each, HAMi's objects, and five Pods that HAMi placed."""

    def __init__(self, cp: ControlPlane, shadow_port: int = SHADOW_PORT) -> None:
        """Set the stage; `run` plays."""
        self._cp = cp
        self._hami = HamiCluster(cp)
        self._shadow_port = shadow_port
        self._shadow: Process | None = None
        self._beside: _Beside | None = None
        self._settings = ""
        """The ConfigMap that the controller was started with."""
        self._agents: dict[str, str] = {}
        """By node whose agent runs: the UID of its Pod."""
        for node in NODES:
            self._hami.node(node)
            cp.kubectl("label", "node", node, "gpu=on")
        for name, node, card in (("a", 0, 0), ("b", 0, 3), ("c", 0, 3), ("d", 1, 2)):
            self._hami.place(name, NODES[node], card)
        self._hami.place("e", NODES[1], 3, policy="mutex")
        self._hami.installed()
        cp.wait("HAMi's device plugins", lambda: self._bind_all() or self._plugins_are_there(), 30)

    def run(self, stop: threading.Event) -> None:
        """Play until told to stop."""
        while not stop.wait(_SECONDS):
            try:
                self._play_shadow()
                self._play_installation()
                self._play_plugins()
                self._bind_all()
            except (ApiError, KeyError):  # somebody is changing what was just read
                continue

    def _exists(self, path: str) -> bool:
        try:
            self._cp.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    # The shadow -----------------------------------------------------------------------------------

    def _play_shadow(self) -> None:
        there = self._exists(f"/apis/apps/v1/namespaces/{_SHADOW}/deployments/{_SHADOW}")
        if there and self._shadow is None:
            account = self._cp.service_account_kubeconfig(_SHADOW, _SHADOW)
            program = str(PROGRAMS / "cardwise-controller")
            options = [f"--config={_SETTINGS}", f"--kubeconfig={account}", "--no-leader-election"]
            listen = f"--metrics-listen=127.0.0.1:{self._shadow_port}"
            self._shadow = self._cp.start_process("shadow", [program, *options, listen])
        elif not there and self._shadow is not None:
            self._shadow.terminate()
            self._shadow = None

    def _shadow_is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self._shadow_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return self._shadow is not None
        except OSError:  # it does not listen yet, or says that it is not ready
            return False

    # The installation -----------------------------------------------------------------------------

    def _play_installation(self) -> None:
        # What kubectl applies last: before, it would be in the way of what is applied here.
        there = self._exists(CONFIGURATION)
        if there and self._beside is None:
            # Port 443 is root's: it is made anew with another.
            self._cp.request("DELETE", f"{SYSTEM}/services/cardwise-webhook")
            self._beside = _Beside(self._cp)
            self._settings = self._settings_of("deployments/cardwise-scheduler")
            self._remember_port(self._beside)
        elif not there and self._beside is not None:
            self._beside.end()
            self._beside = None
            self._agents.clear()
        elif self._beside is not None:
            self._follow(self._beside)

    def _follow(self, beside: _Beside) -> None:
        """An overlay was applied again, or another one."""
        port = beside.installation.webhook_port
        service = f"{SYSTEM}/services/cardwise-webhook"
        if self._cp.request("GET", service)["spec"]["ports"][0]["port"] != port:
            self._replace(service, {"/spec/ports/0/port": port})
            self._remember_port(beside)
        for number, webhook in enumerate(self._cp.request("GET", CONFIGURATION)["webhooks"]):
            if webhook["clientConfig"]["service"]["port"] != port:
                self._replace(
                    CONFIGURATION, {f"/webhooks/{number}/clientConfig/service/port": port}
                )
        settings = self._settings_of("deployments/cardwise-scheduler")
        if settings != self._settings:
            self._settings = settings
            data = self._cp.request("GET", f"{SYSTEM}/configmaps/{settings}")["data"]
            beside.controller.terminate()
            beside.start_controller(settings=yaml.safe_load(data["cardwise.yaml"]) or {})

    def _replace(self, path: str, values: Json) -> None:
        change = [{"op": "replace", "path": p, "value": value} for p, value in values.items()]
        self._cp.request("PATCH", path, change, content_type=_JSON_PATCH)

    def _remember_port(self, beside: _Beside) -> None:
        """Write the Service's port down as kubectl would have: a later apply then replaces it."""
        path = f"{SYSTEM}/services/cardwise-webhook"
        service = self._cp.request("GET", path)
        applied = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {key: service["metadata"][key] for key in ("name", "namespace", "labels")},
            "spec": {
                "ports": [
                    {
                        "name": "webhook",
                        "port": beside.installation.webhook_port,
                        "targetPort": "webhook",
                    }
                ],
                "selector": service["spec"]["selector"],
            },
        }
        change = {"metadata": {"annotations": {_APPLIED: json.dumps(applied)}}}
        self._cp.request("PATCH", path, change, content_type=_MERGE)

    def _settings_of(self, workload: str) -> str:
        spec = self._cp.request("GET", f"{WORKLOADS}/{workload}")["spec"]["template"]["spec"]
        (found,) = (
            volume["configMap"]["name"]
            for volume in spec["volumes"]
            if volume.get("configMap", {}).get("name", "").startswith("cardwise-settings-")
        )
        return str(found)

    # Device plugins -------------------------------------------------------------------------------

    def _play_plugins(self) -> None:
        pods = self._pods()
        ours = {_node(pod): pod["metadata"]["uid"] for pod in pods if _is_of(pod, _OURS)}
        theirs = {_node(pod) for pod in pods if _is_of(pod, _THEIRS)}
        if self._beside is not None:
            for node in [n for n, uid in self._agents.items() if ours.get(n) != uid]:
                self._beside.agent_leaves(node)
                del self._agents[node]
            for node in ours.keys() - self._agents.keys() - {""}:
                self._beside.agent(node, self._hami.profile(node))
                self._agents[node] = ours[node]
        for node in self._cp.request("GET", "/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            wanted = 40 if name in ours or name in theirs else 0
            if node["status"]["allocatable"].get(names.RESOURCE_COUNT, "0") != str(wanted):
                self._hami.offers(name, wanted)
        for pod in pods:
            phase = pod["metadata"].get("annotations", {}).get(names.BIND_PHASE)
            if phase == names.BIND_PHASE_ALLOCATING and _node(pod) in theirs:
                metadata = pod["metadata"]
                self._hami.hand_over(metadata["name"], _node(pod), metadata["namespace"])

    def _plugins_are_there(self) -> bool:
        return {_node(pod) for pod in self._pods() if _is_of(pod, _THEIRS)} == set(NODES)

    # The cluster's own scheduler ------------------------------------------------------------------

    def _bind_all(self) -> None:
        """Bind whose process runs; KWOK then shows the Pod Running and Ready."""
        for pod in self._pods():
            if _node(pod) or "deletionTimestamp" in pod["metadata"]:
                continue
            metadata = pod["metadata"]
            runs = {
                "kube-system": True,
                _SHADOW: self._shadow_is_ready,
                names.SYSTEM_NAMESPACE: self._beside is not None,
            }.get(metadata["namespace"], False)
            if runs() if callable(runs) else runs:
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                target = {"apiVersion": "v1", "kind": "Node", "name": _wanted_node(pod)}
                body = {"metadata": {"name": metadata["name"]}, "target": target}
                self._cp.request("POST", f"{path}/binding", body)

    def _pods(self) -> list[Json]:
        found: list[Json] = self._cp.request("GET", "/api/v1/pods")["items"]
        return found


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _is_of(pod: Json, daemon_set: str) -> bool:
    """Whether a DaemonSet's Pod is on its node, and not about to leave it."""
    owners = pod["metadata"].get("ownerReferences", ())
    mine = any((each["kind"], each["name"]) == ("DaemonSet", daemon_set) for each in owners)
    return mine and bool(_node(pod)) and "deletionTimestamp" not in pod["metadata"]


def _wanted_node(pod: Json) -> str:
    """A DaemonSet's controller names the node of each Pod; any will do for the others."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            return str(field["values"][0])
    return NODES[0]
