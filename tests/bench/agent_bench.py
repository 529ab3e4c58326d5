"""What an agent costs its node: a look at eight cards, and a process that has nothing to do.

The real pynvml over the fake library, and the real program against a real API server, with its
device plugin registered with a kubelet of ours that keeps the list of devices open. Run it with
``make bench-agent``; nothing is asserted, and times of a busy machine are not final.

The agent finds kubelet in its own mount namespace only, so that a kubelet of this machine is not
met; that takes root. Without it the device plugin looks for a kubelet that is not there.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import grpc
import pytest

from bench.measures import cpu_seconds, peak_mb
from cardwise.agent.deviceplugin import protobuf
from cardwise.agent.health import Health
from cardwise.agent.nvml import NvidiaLibrary
from cardwise.agent.probe import probe
from cardwise.model import NodeOverrides
from cardwise.settings import Agent
from controlplane.launcher import ControlPlane
from fakes.nvidia import FakeMachine, here

CRD = Path(__file__).parents[2] / "crds/gpunodes.yaml"
AGENT = Path(sys.executable).with_name("cardwise-agent")
SETTLED_SECONDS = 15.0
"""Until the first report is out and the watch is there."""


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="for how long it is idle")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        machine = here(monkeypatch, Path(directory))
        for profile in ("t4x4", "v100x8", "h100x8"):
            machine.become(profile)
            machine.write()
            took = look_at()
            print(f"a look at {profile:<8} {took:6.2f} ms of CPU     bar: under 50 ms for eight")
        idle(machine, Path(directory), seconds)


def look_at(tries: int = 50) -> float:
    """Milliseconds of CPU for one look, until there is a report."""
    nvml, health = NvidiaLibrary(), Health()
    took = []
    for _ in range(tries):
        began = time.process_time()
        readings = nvml.read()
        assert readings is not None
        probe("n1", health.judge(readings)[0], Agent(), NodeOverrides())
        took.append(time.process_time() - began)
    return median(took) * 1000


def idle(machine: FakeMachine, directory: Path, seconds: float) -> None:
    """An agent whose cards are well, and whose GPUNode nobody changes."""
    with ControlPlane.start(kwok=False, controller_manager=False) as cp:
        cp.apply(CRD)
        cp.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"-f={CRD}")
        cp.add_node("n1")
        kubelet = Kubelet(directory)
        agent = cp.start_process(
            "agent",
            [
                *kubelet.namespace(),
                str(AGENT),
                "--node-name=n1",
                f"--kubeconfig={cp.admin_kubeconfig}",
                "--metrics-listen=127.0.0.1:0",
            ],
            env=machine.environment(directory),
        )
        cp.wait("the first report", lambda: "n1" in cp.kubectl("get", "gn", "-o=name"), 60)
        time.sleep(SETTLED_SECONDS)
        print(kubelet.state())
        before, began = cpu_seconds(agent.pid), time.monotonic()
        time.sleep(seconds)
        part = (cpu_seconds(agent.pid) - before) / (time.monotonic() - began)
        print(f"idle for {seconds:g} s: {part:.2%} of a core           bar: under 1 %")
        print(f"memory, at its most: {peak_mb(agent.pid):.0f} MB        bar: under 120 MB")
        kubelet.end()


class Kubelet:
    """The other end of the device plugin: takes its registration, and keeps its list open."""

    def __init__(self, directory: Path) -> None:
        self._home = directory / "kubelet"
        self._sockets = self._home / "device-plugins"
        self._sockets.mkdir(parents=True)
        self._devices = 0
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._register)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self._sockets / 'kubelet.sock'}")
        self._server.start()
        self._channel: grpc.Channel | None = None

    def namespace(self) -> list[str]:
        """What runs a program so that it finds this kubelet where a node has it."""
        if os.geteuid() != 0:
            return []
        script = (
            "mount -t tmpfs none /var/lib && mkdir /var/lib/kubelet"
            f' && mount --bind {self._home} /var/lib/kubelet && exec "$@"'
        )
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    def state(self) -> str:
        """For people: how the agent stands with it."""
        if self._devices:
            return f"device plugin: registered, {self._devices} devices listed"
        return "device plugin: NOT registered (it takes root); what follows is without it"

    def end(self) -> None:
        """Close both ends."""
        if self._channel is not None:
            self._channel.close()
        self._server.stop(None)

    def _register(self, request: bytes, _context: object) -> bytes:
        (endpoint,) = protobuf.texts_of(request, 2)
        self._channel = grpc.insecure_channel(f"unix:{self._sockets / endpoint}")
        threading.Thread(target=self._listen, args=(self._channel,), daemon=True).start()
        return b""

    def _listen(self, channel: grpc.Channel) -> None:
        call = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
        with contextlib.suppress(grpc.RpcError):  # the agent ends
            for answer in call(b"", wait_for_ready=True):
                self._devices = len(list(protobuf.messages_of(answer, 1)))


if __name__ == "__main__":
    main()
