"""What an agent costs its node: a look at eight cards, and a process that has nothing to do.

The real pynvml over the fake library, and the real program against a real API server. Run it with
``make bench-agent``; nothing is asserted, and times of a busy machine are not final.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pytest

from cardwise.agent.health import Health
from cardwise.agent.nvml import NvidiaLibrary
from cardwise.agent.probe import probe
from cardwise.model import NodeOverrides
from cardwise.settings import Agent
from controlplane.launcher import ControlPlane, Process
from fakes.nvidia import FakeMachine, here

CRD = Path(__file__).parents[2] / "crds/gpunodes.yaml"
AGENT = Path(sys.executable).with_name("cardwise-agent")
SETTLED_SECONDS = 15.0
"""Until the first report is out and the watch is there."""
TICKS = os.sysconf("SC_CLK_TCK")


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
            print(f"a look at {profile:<8} {took:6.2f} ms of CPU (promised: under 50 for eight)")
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
        agent = cp.start_process(
            "agent",
            [
                str(AGENT),
                "--node-name=n1",
                f"--kubeconfig={cp.admin_kubeconfig}",
                "--metrics-listen=127.0.0.1:0",
            ],
            env=machine.environment(directory),
        )
        cp.wait("the first report", lambda: "n1" in cp.kubectl("get", "gn", "-o=name"), 60)
        time.sleep(SETTLED_SECONDS)
        before, began = cpu(agent), time.monotonic()
        time.sleep(seconds)
        part = (cpu(agent) - before) / (time.monotonic() - began)
        print(f"idle for {seconds:g} s: {part:.2%} of a core (promised: under 1 %)")
        print(f"memory: {memory_mib(agent):.0f} MiB, at most (promised: under 120 MB)")


def cpu(process: Process) -> float:
    """Seconds of CPU so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(process: Process) -> float:
    """The most that it ever had resident."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("the process has ended")


if __name__ == "__main__":
    main()
