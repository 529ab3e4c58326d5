"""Two replicas for end-to-end tests: a kube-scheduler and a controller each, as in one Pod.

In a Pod both share a host name, by which the controller knows its scheduler in the Lease. Here all
run on one machine, so each scheduler gets a host name of its own, and each controller is told it.
"""

import base64
import json
import shutil
import signal
import urllib.request
from typing import Final

import yaml

from backstage import PROGRAMS, Json
from controlplane.launcher import SYSTEM_NAMESPACE, ControlPlane, Process, free_port
from stage import Stage

LEASE: Final = (
    f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/cardwise-scheduler"
)


class Replica:
    """One of the two Pods."""

    def __init__(self, cp: ControlPlane, host: str) -> None:
        """Start nothing yet."""
        self.cp = cp
        self.host = host
        # A token of its own, so that the audit log tells who wrote.
        kubeconfig = cp.service_account_kubeconfig("cardwise-controller")
        self._kubeconfig = cp.directory / f"{host}.kubeconfig"
        shutil.copy(kubeconfig, self._kubeconfig)
        self.credential = _credential(kubeconfig.read_text())
        self._port = free_port()
        self.controller: Process
        self.scheduler: Process

    def start(self) -> None:
        """Start both containers, and return when both are ready."""
        self.start_controller()
        self.start_scheduler()

    def start_controller(self) -> None:
        """Start the controller, and return when it is ready."""
        self.controller = self.cp.start_process(
            f"controller-{self.host}",
            [
                str(PROGRAMS / "cardwise-controller"),
                f"--kubeconfig={self._kubeconfig}",
                f"--listen=127.0.0.1:{self._port}",
                f"--metrics-listen=127.0.0.1:{free_port()}",
                f"--identity={self.host}",
            ],
        )
        self.cp.wait(f"{self.host} to be ready", lambda: bool(self._get("readyz")), 60)

    def start_scheduler(self) -> None:
        """Start the kube-scheduler."""
        self.scheduler = self.cp.start_scheduler(
            extender_url=f"http://127.0.0.1:{self._port}",
            name=f"scheduler-{self.host}",
            leader_elect=True,
            host=self.host,
        )

    def processes(self) -> tuple[Process, Process]:
        return self.scheduler, self.controller

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to both containers."""
        for process in self.processes():
            process.signal(number)

    def ended(self) -> None:
        """Wait until both containers have ended."""
        for process in self.processes():
            process.wait(20)

    def is_up(self) -> bool:
        return all(process.poll() is None for process in self.processes())

    def is_active(self) -> bool:
        """Whether the controller says that it is the one that acts."""
        return "cardwise_active 1.0" in self._get("metrics")

    def _get(self, what: str) -> str:
        """What the controller answers; empty where it does not, or not well."""
        url = f"http://127.0.0.1:{self._port}/{what}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


class Replicas(Stage):
    """A cluster in which two replicas compete."""

    def start_cardwise(self) -> None:
        """Start both, the first one first."""
        self.replicas = [Replica(self.cp, host) for host in ("replica-a", "replica-b")]
        for replica in self.replicas:
            replica.start()

    def mend(self) -> None:
        """Start what a test ended, and wait until one replica is active."""
        for replica in self.replicas:
            if not replica.is_up():
                replica.signal(signal.SIGKILL)
                replica.ended()
                replica.start()
        self.cp.wait("a replica to be active", self.active, 60)

    def active(self) -> Replica | None:
        """The replica that says that it acts."""
        found = [replica for replica in self.replicas if replica.is_active()]
        assert len(found) <= 1, "both replicas are active"
        return found[0] if found else None

    def leading(self) -> tuple[Replica, Replica]:
        """The active replica and the passive one."""
        active = self.cp.wait("a replica to be active", self.active, 60)
        assert active is not None
        (passive,) = (replica for replica in self.replicas if replica is not active)
        return active, passive

    def tails(self) -> str:
        """The ends of our processes' logs."""
        processes = [each for replica in self.replicas for each in replica.processes()]
        return "\n".join(f"--- {process}\n{process.tail(60)}" for process in processes)

    def lease(self) -> Json:
        """What the Lease says."""
        found: Json = self.cp.request("GET", LEASE)["spec"]
        return found

    def writers(self, since: int) -> list[str]:
        """Who wrote what the controllers write, one entry for each change of hands.

        Args:
            since: bytes of the audit log that are older.
        """
        hosts = {replica.credential: replica.host for replica in self.replicas}
        with (self.cp.directory / "audit.log").open("rb") as log:
            log.seek(since)
            requests = [json.loads(line) for line in log if b'"JTI=' in line]
        writes = sorted(
            (request["requestReceivedTimestamp"], hosts[credential])
            for request in requests
            if request["verb"] in ("create", "patch", "update", "delete")
            and (credential := _credential_of(request)) in hosts
        )
        return [
            host
            for number, (_, host) in enumerate(writes)
            if number == 0 or writes[number - 1][1] != host
        ]

    def audited(self) -> int:
        """Bytes of the audit log."""
        return (self.cp.directory / "audit.log").stat().st_size


def _credential(kubeconfig: str) -> str:
    """What the audit log calls a kubeconfig's token."""
    token = yaml.safe_load(kubeconfig)["users"][0]["user"]["token"]
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"JTI={claims['jti']}"


def _credential_of(request: Json) -> str:
    extra = request["user"].get("extra", {})
    (credential,) = extra.get("authentication.kubernetes.io/credential-id", [""])
    return str(credential)
