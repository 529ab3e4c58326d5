"""Start and stop a node on this machine: containerd, kubelet, and the containers of its Pods.

    with ControlPlane.start(kwok=False) as cp, Node.start(cp, "node-a") as node:
        node.wait_until_ready()
        ...

There is one at a time on a machine: kubelet's plugin directory is at a fixed place, and the control
groups are the machine's. It takes root, and packages of Debian; `ground.why_not` says what is
missing.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from controlplane.launcher import ControlPlane, ControlPlaneError, Process, free_port
from node import ground, images, settings

_PYTHON: Final = (sys.executable, "-I", "-S")
_UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PODS: Final = "/api/v1/namespaces/default/pods"


class Node:
    """A running node. Made by `start`."""

    name: str
    directory: Path
    """Data, logs and what the node shares with the tests."""
    kubelet: Process
    containerd: Process

    def __init__(
        self, cp: ControlPlane, name: str, directory: Path, network: str = "", *, cdi: bool = True
    ) -> None:
        """Make the namespaces; `start` is the way in."""
        self.cp = cp
        self._network = network
        self._cdi = cdi
        self.name = name
        self.directory = directory
        self._binaries = ground.built()
        self._debian = Path(ground.output(ground.HERE / "packages.sh"))
        self._runtime = self._binaries if cdi else ground.without_cdi()
        self._port, self._health_port = free_port(), free_port()
        self._holder = cp.start_process(
            f"{name}-namespaces",
            [*_UNSHARE, *_PYTHON, str(ground.HERE / "init.py"), str(directory)],
        )
        cp.wait("the node's namespaces", (directory / "namespaces-ready").exists, 10)

    @classmethod
    @contextlib.contextmanager
    def start(
        cls, cp: ControlPlane, name: str, network: str = "", *, cdi: bool = True
    ) -> Iterator[Self]:
        """Start containerd and kubelet, and end everything of theirs.

        ``network`` is the script of a CNI plugin; without it Pods have to be on the host's network.
        ``cdi`` is whether containerd is one that has CDI.
        """
        with ground.alone():
            directory = cp.directory / name
            directory.mkdir()
            node = cls(cp, name, directory, network, cdi=cdi)
            try:
                node.start_containerd()
                node.start_kubelet()
                yield node
            finally:
                node.stop()

    def stop(self) -> None:
        """End every process of the node, and remove what they left outside of its directory."""
        for process in (getattr(self, "kubelet", None), getattr(self, "containerd", None)):
            if process is not None:
                process.kill()
        self._holder.kill()
        ground.remove_cgroups()

    # --- processes --------------------------------------------------------------------------------

    def start_containerd(self) -> None:
        """Start containerd with the images in it, and return when it answers."""
        config = self.directory / "containerd.toml"
        if not config.exists():
            runc = self._debian / "usr/sbin/runc"
            document = settings.containerd(
                self.directory, runc=runc, plugin=self._network, cdi=self._cdi
            )
            config.write_text(document)
        (library,) = (self._debian / "usr/lib").glob("*/libseccomp.so.2")
        path = f"{self._runtime}:{os.environ['PATH']}"
        self.containerd = self.run(
            "containerd",
            [str(self._runtime / "containerd"), "--config", str(config)],
            env={"PATH": path, "LD_LIBRARY_PATH": str(library.parent)},
        )
        self.cp.wait("containerd to answer", self._containerd_answers, 30)
        archive = self.directory / "images.tar"
        if not archive.exists():
            images.write_busybox(archive, self._debian / "bin/busybox")
            self.ctr("images", "import", "--all-platforms", str(archive))

    def start_kubelet(self) -> None:
        """Start kubelet, which makes its Node object, and return when it is healthy."""
        (self.directory / "logs").mkdir(exist_ok=True)
        (self.directory / "resolv.conf").touch()
        config = self.directory / "kubelet.yaml"
        document = settings.kubelet(self.directory, port=self._port, health_port=self._health_port)
        config.write_text(yaml.safe_dump(document))
        self.kubelet = self.run(
            "kubelet",
            [
                str(self._binaries / "kubelet"),
                f"--kubeconfig={self.cp.admin_kubeconfig}",
                f"--config={config}",
                f"--hostname-override={self.name}",
                "--v=4",
            ],
        )

    def run(self, name: str, argv: Sequence[str], *, env: dict[str, str] | None = None) -> Process:
        """Start a program in the node: it sees the node's places, and ends with it."""
        return self.cp.start_process(f"{self.name}-{name}", [*self._enter(), *argv], env=env)

    def ctr(self, *words: str) -> str:
        """Ask containerd, in the namespace of kubelet's containers."""
        return "\n".join(self.ctr_lines(*words))

    def ctr_lines(self, *words: str) -> list[str]:
        """Likewise, line by line."""
        ctr = [str(self._runtime / "ctr"), "--address", settings.CONTAINERD_SOCKET]
        return ground.lines(*self._enter(), *ctr, "--namespace", ground.CONTAINERS, *words)

    def _enter(self) -> list[str]:
        return [*_PYTHON, str(ground.HERE / "enter.py"), str(self._holder.pid)]

    # --- Pods -------------------------------------------------------------------------------------

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        """Create a Pod; as the API server has it."""
        made: dict[str, Any] = self.cp.request("POST", _PODS, document)
        return made

    def get(self, name: str) -> dict[str, Any]:
        """The Pod as it is now."""
        found: dict[str, Any] = self.cp.request("GET", f"{_PODS}/{name}")
        return found

    def ended(self, name: str, within: float = 30) -> dict[str, Any]:
        """Wait until the Pod ended, well or not."""
        return self._phase(name, ("Succeeded", "Failed"), within)

    def delete(self, name: str, within: float = 60) -> None:
        """Delete the Pod and wait until it is gone."""
        self.cp.request("DELETE", f"{_PODS}/{name}")
        self.cp.wait(f"Pod {name} to go", lambda: name not in self.names(), within)

    def names(self) -> list[str]:
        """The Pods that there are."""
        return [pod["metadata"]["name"] for pod in self.cp.request("GET", _PODS)["items"]]

    def running(self, name: str, within: float = 30) -> dict[str, Any]:
        """Wait until the Pod runs: every container of it was started at least once."""
        return self._phase(name, ("Running",), within)

    def clear(self) -> None:
        """Delete every Pod and wait until none is left."""
        self.cp.request("DELETE", f"{_PODS}?gracePeriodSeconds=0")
        self.cp.wait("the Pods to go", lambda: not self.cp.request("GET", _PODS)["items"], 60)

    def _phase(self, name: str, phases: tuple[str, ...], within: float) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found = self.get(name)
            return found if found["status"].get("phase") in phases else None

        found = self.cp.wait(f"Pod {name} to be {' or '.join(phases)}", reached, within)
        assert found is not None
        return found

    # --- what it says -----------------------------------------------------------------------------

    @property
    def plugins(self) -> Path:
        """kubelet's plugin directory, as it is found from outside."""
        return self.directory / "kubelet" / "device-plugins"

    @property
    def cdi(self) -> Path:
        """Where containerd looks for CDI specs, as it is found from outside."""
        return self.directory / "run" / "cdi"

    @property
    def hami_core(self) -> Path:
        """Where HAMi-core is looked for, as it is found from outside; empty at first."""
        return self.directory / "vgpu"

    def wait_until_ready(self, within: float = 60) -> None:
        """Wait until kubelet has told the API server that the node is ready."""
        self.cp.wait(f"node {self.name} to be ready", self._ready, within)

    def allocatable(self, resource: str) -> int:
        """How much of a resource kubelet says that the node has."""
        found = self.cp.request("GET", f"/api/v1/nodes/{self.name}")["status"]
        return int(found.get("allocatable", {}).get(resource, 0))

    def printed(self, pod: dict[str, Any], container: str, attempt: int = 0) -> list[str]:
        """The lines that a container wrote, from the log that kubelet keeps; none: no log yet."""
        meta = pod["metadata"]
        place = f"{meta['namespace']}_{meta['name']}_{meta['uid']}/{container}/{attempt}.log"
        with contextlib.suppress(FileNotFoundError):
            lines = (self.directory / "logs" / place).read_text().splitlines()
            return [line.split(" ", 3)[3] for line in lines]
        return []

    def tails(self) -> str:
        """The end of each log."""
        return "\n".join(
            f"--- {process}\n{process.tail(40)}" for process in (self.containerd, self.kubelet)
        )

    def _containerd_answers(self) -> bool:
        if self.containerd.poll() is not None:
            raise ControlPlaneError(f"{self.containerd}\n{self.containerd.tail()}")
        return (self.directory / "run" / "containerd" / "containerd.sock").exists() and bool(
            self.ctr("version")
        )

    def _ready(self) -> bool:
        if self.kubelet.poll() is not None:
            raise ControlPlaneError(f"{self.kubelet}\n{self.kubelet.tail()}")
        found = self.cp.request("GET", f"/api/v1/nodes/{self.name}")["status"]
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in found.get("conditions", ())
        )
