"""Two replicas for end-to-end tests: a kube-scheduler and a controller each, as in one Pod.

In a Pod both share a host name, by which the controller knows its scheduler in the Lease. Here all
run on one machine, so each scheduler gets a host name of its own, and each controller is told it.
By the door of gates a replica is a controller alone, and the cluster has one kube-scheduler.
"""

import base64
import json
import signal
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from backstage import Json
from cable import Cable
from controlplane.launcher import (
    SCHEDULER_ACCOUNT,
    SYSTEM_NAMESPACE,
    Process,
    free_port,
)
from installation import Installation
from stage import Stage

LEASE: Final = (
    f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/cardwise-scheduler"
)
PROBE_SECONDS: Final = 5
PROBE_FAILURES: Final = 3
"""The liveness probe of kube-scheduler's container: its controller's /readyz (decision 7)."""
_BACKOFF_SECONDS: Final = 10
"""kubelet starts a container again at once, then after 10 s, and every time twice as late."""


@dataclass(frozen=True, order=True)
class Write:
    """A write of a controller, by the API server's audit log."""

    received: str
    """RFC 3339, to the microsecond."""
    host: str
    what: str
    """Verb and resource, such as ``create pods/binding``."""


class Replica:
    """One of the two Pods."""

    def __init__(self, installation: Installation, host: str, *, gates: bool = False) -> None:
        """Start nothing yet."""
        self.installation = installation
        self.gates = gates
        self.cp = cp = installation.cp
        self.host = host
        self.controllers_cable = Cable(cp, f"controller-{host}")
        self.schedulers_cable = Cable(cp, f"scheduler-{host}")
        self._controllers_way = self._way("controller", self.controllers_cable)
        self._schedulers_way = self._way("scheduler", self.schedulers_cable)
        self.credential = _credential(self._controllers_way.read_text())
        self._port, self._reports_port = free_port(), free_port()
        self.controller: Process
        self.scheduler: Process

    def _way(self, name: str, cable: Cable) -> Path:
        """A kubeconfig by a cable, with a token of its own: the audit log tells who wrote."""
        way = self.cp.service_account_kubeconfig(SCHEDULER_ACCOUNT)
        way = way.rename(self.cp.directory / f"{name}-{self.host}.kubeconfig")
        cable.lay(way)
        return way

    def start(self) -> None:
        """Start its containers, and return when they are ready."""
        self.start_controller()
        if not self.gates:
            self.start_scheduler()

    def start_controller(self) -> None:
        """Start the controller, and return when it is ready."""
        listen = {} if self.gates else {"listen": f"127.0.0.1:{self._port}"}
        argv = self.installation.command(
            "deployments/cardwise-scheduler",
            "controller",
            kubeconfig=self._controllers_way,
            metrics_listen=f"127.0.0.1:{self._reports_port}",
            identity=self.host,
            **listen,
        )
        self.controller = self.cp.start_process(f"controller-{self.host}", argv)
        self.cp.wait(f"{self.host} to be ready", lambda: bool(self._get("readyz")), 60)

    def start_scheduler(self) -> None:
        """Start the kube-scheduler."""
        self.scheduler = self.cp.start_scheduler(
            extender_url=f"http://127.0.0.1:{self._port}",
            name=f"scheduler-{self.host}",
            leader_elect=True,
            host=self.host,
            kubeconfig=self._schedulers_way,
            configuration=self.installation.scheduler,
        )

    def processes(self) -> tuple[Process, ...]:
        """One a container."""
        return (self.controller,) if self.gates else (self.scheduler, self.controller)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its containers."""
        for process in self.processes():
            process.signal(number)

    def cut_off(self) -> None:
        """Take the API server from its containers."""
        self.controllers_cable.cut()
        self.schedulers_cable.cut()

    def connect(self) -> None:
        """Give it back."""
        self.controllers_cable.mend()
        self.schedulers_cable.mend()

    def probed(self, until: Callable[[], bool], within: float) -> int:
        """Be its kubelet, which restarts kube-scheduler where the probe fails; how often it did."""
        failures, restarts, deadline = 0, 0, time.monotonic() + within
        probe = start = time.monotonic()
        while not until():
            now = time.monotonic()
            assert now < deadline, f"in vain, though restarted {restarts} times"
            if self.scheduler.poll() is not None:
                if now >= start:
                    self.start_scheduler()
            elif now >= probe:
                probe = now + PROBE_SECONDS
                failures = 0 if self._get("readyz") else failures + 1
                if failures == PROBE_FAILURES:
                    self.scheduler.terminate(20)
                    start = time.monotonic() + _BACKOFF_SECONDS * (2**restarts // 2)
                    failures, restarts = 0, restarts + 1
            time.sleep(0.1)
        return restarts

    def ask(self, verb: str, body: Json) -> Json:
        """Ask the controller as its kube-scheduler would, however long the answer takes."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{verb}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
            said: Any = json.load(answer)
            return dict(said)

    def ended(self) -> None:
        """Wait until its containers have ended."""
        for process in self.processes():
            process.wait(20)

    def is_up(self) -> bool:
        return all(process.poll() is None for process in self.processes())

    def is_active(self) -> bool:
        """Whether the controller says that it is the one that acts."""
        return "cardwise_active 1.0" in self._get("metrics")

    def _get(self, what: str) -> str:
        """What the controller answers; empty where it does not, or not well."""
        url = f"http://127.0.0.1:{self._reports_port}/{what}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


class Replicas(Stage):
    """A cluster in which two replicas compete."""

    def start_cardwise(self) -> None:
        """Start both, the first one first."""
        self.replicas = [
            Replica(self.installation, host, gates=self.gates)
            for host in ("replica-a", "replica-b")
        ]
        for replica in self.replicas:
            replica.start()
        if self.gates:
            self.scheduler = self.cp.start_default_scheduler()

    def mend(self) -> None:
        """Start what a test ended, and wait until one replica is active."""
        for replica in self.replicas:
            replica.connect()
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
        processes.append(self.webhook)
        return "\n".join(f"--- {process}\n{process.tail(60)}" for process in processes)

    def lease(self) -> Json:
        """What the Lease says."""
        found: Json = self.cp.request("GET", LEASE)["spec"]
        return found

    def writes(self, since: int) -> list[Write]:
        """All that the controllers wrote but their Lease, in the order of the API server.

        Args:
            since: bytes of the audit log that are older.
        """
        hosts = {replica.credential: replica.host for replica in self.replicas}
        requests = [json.loads(line) for line in self.audit_log(since) if b'"JTI=' in line]
        return sorted(
            Write(request["requestReceivedTimestamp"], hosts[credential], _what(request))
            for request in requests
            if request["verb"] not in ("get", "list", "watch")
            and (credential := _credential_of(request)) in hosts
            # Who competes for it writes it, whether or not he may act.
            and request["objectRef"]["resource"] != "leases"
            and "dryRun=" not in request["requestURI"]  # the test of the webhook
        )

    def audited(self) -> int:
        """Bytes of the audit log."""
        return (self.cp.directory / "audit.log").stat().st_size


def _credential(kubeconfig: str) -> str:
    """What the audit log calls a kubeconfig's token."""
    token = yaml.safe_load(kubeconfig)["users"][0]["user"]["token"]
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"JTI={claims['jti']}"


def _what(request: Json) -> str:
    target = request["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    return f"{request['verb']} {resource}"


def _credential_of(request: Json) -> str:
    extra = request["user"].get("extra", {})
    (credential,) = extra.get("authentication.kubernetes.io/credential-id", [""])
    return str(credential)
