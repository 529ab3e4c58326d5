"""Cardwise installed by one of its overlays, and what kubelet would do for its containers.

There is no kubelet, so the Deployments have no Pods here; the containers' command lines, settings
and Secrets are taken from what the API server stores, and run as processes of this machine. All
else is as shipped, but the number of the webhook's port: 443 is root's. Its Service has an address
of the loopback, so that the API server reaches it by the Service and checks the Service's name.
"""

import base64
import functools
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from cardwise import names
from cardwise.controller.webhook.authority import Pair
from controlplane.launcher import ROOT, ControlPlane, free_port
from webhooks import Mount

Json = dict[str, Any]

PROGRAMS: Final = Path(sys.executable).parent
GPUNODES: Final = f"/apis/{names.API_GROUP}/{names.API_VERSION}/{names.GPUNODE_PLURAL}"
WORKLOADS: Final = f"/apis/apps/v1/namespaces/{names.SYSTEM_NAMESPACE}"
SYSTEM: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}"
CONFIGURATION: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cardwise-webhook"
)
SERVING_SECRET: Final = f"{SYSTEM}/secrets/cardwise-webhook-tls"


class Installation:
    """What ``kubectl apply -k manifests/overlays/OVERLAY`` brings into a cluster."""

    scaled_down = True
    """Whether its Deployments make no Pods: nobody would run them."""

    def __init__(self, cp: ControlPlane, overlay: str = "default") -> None:
        """Apply it, and return when GPUNodes can be written."""
        self.cp = cp
        self._overlay = overlay
        self._directory = Path(tempfile.mkdtemp(prefix="installation-", dir=cp.directory))
        self.webhook_port = free_port()
        self._apply()
        self.cp.wait("GPUNodes to be served", lambda: self.cp.request("GET", GPUNODES), 30)
        address = self.cp.request("GET", f"{SYSTEM}/services/cardwise-webhook")
        self.webhook_address = f"{address['spec']['clusterIP']}:{self.webhook_port}"
        """Where the API server calls the webhook."""
        self.settings = self._config_map("cardwise-settings") / "cardwise.yaml"
        self._tls = Mount(self._directory / "tls")

    def _apply(self) -> None:
        # kustomize takes a base by a relative path only.
        base = os.path.relpath(
            ROOT / "manifests/overlays" / self._overlay, self._directory.resolve()
        )

        def port(kind: str, path: str) -> Json:
            change = [{"op": "replace", "path": path, "value": self.webhook_port}]
            target = {"kind": kind, "name": "cardwise-webhook"}
            return {"target": target, "patch": yaml.safe_dump(change)}

        kustomization = {
            "resources": [base],
            "replicas": [
                {"name": name, "count": 0}
                for name in ("cardwise-scheduler", "cardwise-webhook")
                if self.scaled_down
            ],
            "patches": [
                port("Service", "/spec/ports/0/port"),
                *(
                    port("MutatingWebhookConfiguration", f"/webhooks/{n}/clientConfig/service/port")
                    for n in range(3)
                ),
            ],
        }
        (self._directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.cp.apply(self._directory)

    @functools.cached_property
    def scheduler(self) -> Path:
        """The configuration of our kube-scheduler."""
        return self._config_map("cardwise-kube-scheduler") / "scheduler.yaml"

    def _config_map(self, name: str) -> Path:
        """A directory with the files of a ConfigMap, whose name ends in a hash."""
        (found,) = (
            each
            for each in self.cp.request("GET", f"{SYSTEM}/configmaps")["items"]
            if each["metadata"]["name"].startswith(f"{name}-")
        )
        directory = self._directory / name
        directory.mkdir()
        for file, text in found["data"].items():
            (directory / file).write_text(text)
        return directory

    def command(self, workload: str, container: str, **local: object) -> list[str]:
        """The command line of a container.

        Args:
            workload: ``deployments/NAME`` or ``daemonsets/NAME``.
            container: of its Pods.
            local: values of options that are others on this machine; with underscores. None: the
                value that a container gets.
        """
        template = self.cp.request("GET", f"{WORKLOADS}/{workload}")["spec"]["template"]["spec"]
        (found,) = (each for each in template["containers"] if each["name"] == container)
        options = dict(argument.partition("=")[::2] for argument in found["args"])
        if "--config" in options:
            options["--config"] = str(self.settings)
        if "--tls-dir" in options:
            options["--tls-dir"] = str(self._tls.path)
        for name, value in local.items():
            options[f"--{name.replace('_', '-')}"] = str(value)
        (program,) = found["command"]
        arguments = [f"{name}={value}" if value else name for name, value in options.items()]
        return [str(PROGRAMS / program), *arguments]

    def bring_certificate(self) -> bytes:
        """Bring the webhook the certificate in its Secret, as kubelet does within a minute.

        Raises:
            ApiError: there is none yet.
        """
        data = self.cp.request("GET", SERVING_SECRET)["data"]
        certificate, key = (base64.b64decode(data[name]) for name in ("tls.crt", "tls.key"))
        if not self._tls.holds(certificate):
            self._tls.put(Pair(certificate=certificate, key=key))
        return certificate
