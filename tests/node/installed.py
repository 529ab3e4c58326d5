"""Cardwise as a cluster has it: its Pods on a real node, of the shipped image and manifests.

What the node lacks of a cluster's is put in its place, and nothing of Cardwise knows of it: a CNI
plugin (`node.cni`), kube-proxy (`node.services`), and the driver's library
(``tests/node/manifests/driver``). Names are not resolved by any DNS; nothing of ours asks one.
"""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from controlplane.launcher import SYSTEM_NAMESPACE, ControlPlane, program
from fakes.nvidia import FakeMachine, placed
from node import shipped
from node.machine import Node

Json = dict[str, Any]

NODE: Final = "node-a"
SERVICES: Final = "198.18.0.0/24"
"""Beside the addresses of Pods."""
_HERE: Final = Path(__file__).parent
_PODS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PLUGIN: Final = f"#!/bin/sh\nexec {sys.executable} -I -S {_HERE / 'cni.py'}\n"
_LEFT: Final = (Path("/usr/local/vgpu"), Path("/tmp/vgpulock"))
"""What kubelet makes for the agent outside of the node's own places."""


class Installed:
    """A cluster of one node that has Cardwise."""

    def __init__(self, cp: ControlPlane, node: Node) -> None:
        """Bring the images, the driver and the manifests; `raised` is the way in."""
        self.cp = cp
        self.node = node
        node.ctr("images", "import", str(shipped.archive(program("kube-scheduler"))))
        driver = node.directory / "run/driver"
        driver.mkdir()
        placed(driver)
        self.machine = FakeMachine(driver / "machine")
        self.machine.become("t4x4")
        del self.machine.cards[2:]
        self.machine.write()
        cp.request(
            "PATCH",
            f"/api/v1/nodes/{NODE}",
            {"metadata": {"labels": {"gpu": "on"}}},
            content_type="application/merge-patch+json",
        )

    @classmethod
    @contextlib.contextmanager
    def raised(cls, overlay: str) -> Iterator[Self]:
        """Start everything, install the overlay, and end it."""
        made = [place for place in _LEFT if not place.exists()]
        with (
            ControlPlane.start(
                kwok=False, audit=True, services=SERVICES, tokens_for_pods=True
            ) as cp,
            Node.start(cp, NODE, _PLUGIN) as node,
            contextlib.ExitStack() as stack,
        ):
            cp.start_default_scheduler()
            node.wait_until_ready()
            installed = cls(cp, node)
            installed.apply(overlay)
            stack.enter_context(installed.services())
            yield installed
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()

    def apply(self, overlay: str) -> None:
        """As docs/installation.md says."""
        self.cp.kubectl("apply", f"-k={_HERE / 'manifests' / overlay}")

    def move_to_gates(self) -> None:
        """As docs/doors.md says, where no Pod waits any more at the other door."""
        self.apply("gates")
        self.cp.kubectl("delete", "clusterrole", "cardwise-controller:extender")
        self.cp.kubectl(
            "delete",
            "clusterrolebinding",
            "cardwise-controller:extender",
            "cardwise-controller:kube-scheduler",
            "cardwise-controller:volume-scheduler",
        )
        role = "cardwise-controller:authentication-reader"
        self.cp.kubectl("-n", "kube-system", "delete", "rolebinding", role)

    @contextlib.contextmanager
    def services(self) -> Iterator[None]:
        """Make the addresses of Services lead to their Pods, from this machine and from Pods."""
        found = {
            name: self.cp.request("GET", f"/api/v1/namespaces/{path}")["spec"]["clusterIP"]
            for name, path in (
                ("default/kubernetes", "default/services/kubernetes"),
                ("cardwise-system/cardwise-webhook", "cardwise-system/services/cardwise-webhook"),
            )
        }
        for address in found.values():
            subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
        try:
            script = [sys.executable, str(_HERE / "services.py")]
            routes = [f"{address}:443={name}" for name, address in found.items()]
            self.cp.start_process(
                "services",
                [*script, self.cp.server, str(self.cp.ca), *routes],
                env={"TOKEN": self.cp.admin_token},
            )
            yield
        finally:
            for address in found.values():
                subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)

    # --- Cardwise's own Pods ----------------------------------------------------------------------

    def ours(self, workload: str = "") -> list[Json]:
        """Cardwise's Pods; of one workload."""
        label = f"?labelSelector=app.kubernetes.io/name%3D{workload}" if workload else ""
        found: list[Json] = self.cp.request("GET", _PODS + label)["items"]
        return found

    def ready(self, count: int, within: float = 120) -> None:
        """Wait until so many Pods of ours are ready, and no others are there."""

        def all_ready() -> bool:
            pods = self.ours()
            return len(pods) == count and all(map(is_ready, pods))

        self.cp.wait("every Pod of Cardwise to be ready", all_ready, within)

    def restart(self, workload: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """``kubectl rollout restart``, until it is done and the former Pods are gone.

        ``meanwhile`` is called again and again.
        """
        own = ("-n", SYSTEM_NAMESPACE)
        name = workload.partition("/")[2]
        before = {pod["metadata"]["uid"] for pod in self.ours(name)}
        self.cp.kubectl("rollout", "restart", workload, *own)

        def replaced() -> bool:
            meanwhile()
            return not before & {pod["metadata"]["uid"] for pod in self.ours(name)}

        self.cp.wait(f"the former Pods of {workload} to go", replaced, 90)
        self.cp.kubectl("rollout", "status", workload, *own, "--timeout=60s", timeout=70)

    def memory(self, workload: str) -> tuple[float, float]:
        """The most memory that the one container of a workload had so far, and its limit; MiB.

        Its control group counts what it has read of files, too.
        """
        (pod,) = self.ours(workload)
        (status,) = pod["status"]["containerStatuses"]
        container = status["containerID"].removeprefix("containerd://")
        groups = [*_CGROUPS.glob(f"*/{container}"), *_CGROUPS.glob(f"memory/*/{container}")]
        for group in groups:
            for most, limit in (
                ("memory.peak", "memory.max"),
                ("memory.max_usage_in_bytes", "memory.limit_in_bytes"),
            ):
                if (group / most).exists():
                    told = (int((group / name).read_text()) / 2**20 for name in (most, limit))
                    return next(told), next(told)
        raise AssertionError(f"no control group tells of {workload}: {groups}")

    def tails(self) -> str:
        """The end of each log: the node's, and of every container of ours."""
        told = [self.node.tails()]
        told.append(str(self.cp.kubectl("get", "pods", "-A", "-o=wide")))
        told.append(str(self.cp.kubectl("get", "events", "-A")))
        for log in sorted((self.node.directory / "logs").glob(f"{SYSTEM_NAMESPACE}_*/*/*.log")):
            lines = log.read_text().splitlines()[-25:]
            told.append("\n".join([f"--- {log.parts[-3]} {log.parts[-2]}", *lines]))
        return "\n".join(told)

    # --- users' Pods ------------------------------------------------------------------------------

    def create(self, name: str, policy: str, script: str) -> Json:
        """Create a Pod by kubectl, as a user who may do that: 1000 MiB of one card.

        Answers it as admission left it.
        """
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {"hami.io/gpu-scheduler-policy": policy}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "app",
                        "image": "cardwise.test/busybox:1",
                        "command": ["sh", "-c", script],
                        "resources": {"limits": {"nvidia.com/gpumem": 1000}},
                    }
                ],
            },
        }
        made: Json = json.loads(
            self.cp.kubectl("create", "-f", "-", "-o=json", "--as=jane", stdin=json.dumps(document))
        )
        return made

    def printed(self, name: str) -> dict[str, str]:
        """Wait until the container has printed its variables by `pods.SEE`."""
        found = self.node.running(name, 60)

        def lines() -> Sequence[str]:
            said = self.node.printed(found, "app")
            return said if "seen" in said else ()

        said = self.cp.wait(f"{name} to print its variables", lines, 30)
        return dict(line.split("=", 1) for line in said if "=" in line)


def is_ready(pod: Json) -> bool:
    """Whether kubelet says that the Pod answers its probes."""
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in pod["status"].get("conditions", ())
    )


def starts(pods: Sequence[Json]) -> int:
    """How often containers of these Pods were started again."""
    return sum(
        status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]
    )


def why_not() -> str:
    """Why Cardwise's Pods can't run on this machine's node; empty: they can."""
    return shipped.why_not() or ("" if shutil.which("ip") else "ip (package iproute2) is needed")
