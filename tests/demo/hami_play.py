"""A cluster that HAMi serves, to follow docs/migrating-from-hami.md on: it plays the kubelets.

There are no kubelets: what a person applies is only objects. So whoever applies a Deployment of
ours gets its process here, and a node's labels say which device plugin would be on it.
"""

import threading
from typing import Any

from backstage import Backstage
from cardwise import names
from controlplane.launcher import ROOT, ApiError, ControlPlane, Process
from hamicluster import HamiCluster
from installation import CONFIGURATION, PROGRAMS, SYSTEM

Json = dict[str, Any]
NODES = ("node-a", "node-b")
SHADOW_PORT = 9395
_SHADOW = "/apis/apps/v1/namespaces/cardwise-shadow/deployments/cardwise-shadow"
_SETTINGS = ROOT / "manifests/overlays/shadow/cardwise.yaml"


class _Beside(Backstage):
    overlay = "migration"

    def end(self) -> None:
        """End every process."""
        for process in (self.controller, self.scheduler, self.webhook, *self.agents()):
            process.terminate()


class HamiPlay:
    """Two nodes with four T4s each, and five Pods that HAMi placed."""

    def __init__(self, cp: ControlPlane) -> None:
        """Set the stage; `run` plays."""
        self._cp = cp
        self._hami = HamiCluster(cp)
        self._shadow: Process | None = None
        self._beside: _Beside | None = None
        self._agents: set[str] = set()
        for node in NODES:
            self._hami.node(node)
            cp.kubectl("label", "node", node, "gpu=on")
        for name, node, card in (("a", 0, 0), ("b", 0, 3), ("c", 0, 3), ("d", 1, 2)):
            self._hami.place(name, NODES[node], card)
        self._hami.place("e", NODES[1], 3, policy="mutex")

    def run(self, stop: threading.Event) -> None:
        """Play until told to stop."""
        while not stop.wait(1.0):
            try:
                self._play_shadow()
                self._play_installation()
                if self._beside is not None:
                    self._play_plugins(self._beside)
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

    def _play_shadow(self) -> None:
        there = self._exists(_SHADOW)
        if there and self._shadow is None:
            account = self._cp.service_account_kubeconfig("cardwise-shadow", "cardwise-shadow")
            program = str(PROGRAMS / "cardwise-controller")
            options = [f"--config={_SETTINGS}", f"--kubeconfig={account}", "--no-leader-election"]
            listen = f"--metrics-listen=127.0.0.1:{SHADOW_PORT}"
            self._shadow = self._cp.start_process("shadow", [program, *options, listen])
        elif not there and self._shadow is not None:
            self._shadow.terminate()
            self._shadow = None

    def _play_installation(self) -> None:
        # What kubectl applies last: before, it would be in the way of what is applied here.
        there = self._exists(CONFIGURATION)
        if there and self._beside is None:
            # Port 443 is root's: it is made anew with another.
            self._cp.request("DELETE", f"{SYSTEM}/services/cardwise-webhook")
            self._beside = _Beside(self._cp)
        elif not there and self._beside is not None:
            self._beside.end()
            self._beside = None
            self._agents.clear()

    def _play_plugins(self, beside: _Beside) -> None:
        for node in self._cp.request("GET", "/api/v1/nodes")["items"]:
            name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
            ours, theirs = labels.get(names.AGENT_LABEL) == "on", labels.get("gpu") == "on"
            offered = node["status"]["allocatable"].get(names.RESOURCE_COUNT, "0")
            if offered != ("40" if ours or theirs else "0"):
                self._hami.offers(name, 40 if ours or theirs else 0)
            if ours and name not in self._agents:
                beside.agent(name, self._hami.profile(name))
                self._agents.add(name)
            elif not ours and name in self._agents:
                beside.agent_leaves(name)
                self._agents.discard(name)
        for pod in beside.all_pods():
            phase = pod["metadata"].get("annotations", {}).get(names.BIND_PHASE)
            if phase == names.BIND_PHASE_ALLOCATING and "nodeName" in pod["spec"]:
                metadata = pod["metadata"]
                self._hami.hand_over(
                    metadata["name"], pod["spec"]["nodeName"], metadata["namespace"]
                )
