"""A replica whose watches are dead, for end-to-end tests of the last resort."""

import urllib.error
import urllib.request

import build
from backstage import PROGRAMS
from cardwise.names import HEARTBEAT
from controlplane.launcher import SYSTEM_NAMESPACE, Process, free_port
from fault_proxy import FaultProxy
from stage import Stage


class Blind:
    """A passive replica in a Pod of its own, whose watches are dead since it began."""

    def __init__(self, stage: Stage, proxy: FaultProxy) -> None:
        self.stage = stage
        self.proxy = proxy
        self._path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
        pod = build.pod("blind", namespace=SYSTEM_NAMESPACE, gpus=None)
        pod["spec"]["schedulerName"] = "nobody"
        pod["metadata"] = {"name": "blind", "namespace": SYSTEM_NAMESPACE}
        self.uid = stage.cp.request("POST", self._path, pod)["metadata"]["uid"]
        self.process: Process
        self.start()

    def start(self) -> None:
        """Start the process; it is ready when this returns."""
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = self.stage.cp.start_process(
            "controller-blind",
            [
                str(PROGRAMS / "cardwise-controller"),
                f"--kubeconfig={self.proxy.through(self.stage.account)}",
                f"--listen={self.url.removeprefix('http://')}",
                f"--metrics-listen=127.0.0.1:{free_port()}",
                "--identity=nobody",  # so it never acts; the Lease it may read
            ],
            env={"POD_NAMESPACE": SYSTEM_NAMESPACE, "POD_NAME": "blind", "POD_UID": self.uid},
        )
        self.stage.cp.wait("it to be ready", lambda: self.get("readyz") == (200, "ok"), 60)

    def get(self, what: str) -> tuple[int, str]:
        """Status and text of an answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/{what}", timeout=5) as answer:  # noqa: S310
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()

    def heartbeat(self) -> str:
        """When it wrote its last heartbeat."""
        pod = self.stage.cp.request("GET", f"{self._path}/blind")
        return str(pod["metadata"].get("annotations", {}).get(HEARTBEAT, ""))

    def end(self) -> None:
        """End the process, and remove the Pod."""
        self.process.kill()
        self.stage.cp.request("DELETE", f"{self._path}/blind", {"gracePeriodSeconds": 0})
