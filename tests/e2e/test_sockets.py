"""Our processes listen where docs/operations.md says, and nowhere else; the kernel is asked.

What is written beside a test is the smallest change to the product after which it failed.
"""

import ipaddress
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from backstage import PROGRAMS
from controlplane.launcher import Process
from stage import Stage

_LISTEN, _UNCONNECTED = "0A", "07"
_ACCEPTS = 0x10000
"""In /proc/net/unix: a socket that waits for connections."""
UNSHARE = shutil.which("unshare")


def listening(process: Process) -> set[str]:
    """Every socket of a process on which it can be spoken to: ``tcp 127.0.0.1:80``, say."""
    own = Path(f"/proc/{process.pid}")
    links = [fd.readlink() for fd in (own / "fd").iterdir() if fd.is_symlink()]
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:[")}
    found = set()
    for kind, state in [
        ("tcp", _LISTEN),
        ("tcp6", _LISTEN),
        ("udp", _UNCONNECTED),
        ("udp6", _UNCONNECTED),
    ]:
        for line in (own / "net" / kind).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                found.add(f"{kind} {address(fields[1])}")
    for line in (own / "net" / "unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _ACCEPTS and fields[6] in inodes:
            found.add(f"unix {fields[7:]}")
    return found


def address(text: str) -> str:
    """``0100007F:211E`` as people write it; the kernel's words are in the machine's byte order."""
    host, _, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return f"{ipaddress.ip_address(packed)}:{int(port, 16)}"


def arguments(process: Process) -> dict[str, str]:
    """The options with which it was started."""
    words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    return dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)


# Red with TCPSite(runner, "0.0.0.0", port) in serving._listen; so is the last test of this file.
def test_a_controller_at_work_listens_on_two_sockets(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.pod("p", gpumem=1000)
    stage.placed("p")

    given = arguments(stage.controller)
    assert listening(stage.controller) == {
        f"tcp {given['listen']}",
        f"tcp {given['metrics-listen']}",
    }


# Red with asyncio.start_server(…) anywhere in agent.main._publish.
def test_an_agent_at_work_listens_for_probes_and_metrics_alone(stage: Stage) -> None:
    stage.node("node-a", "t4x4")
    (agent,) = stage.agents()

    assert listening(agent) == {f"tcp {arguments(agent)['metrics-listen']}"}


@pytest.mark.skipif(
    UNSHARE is None or subprocess.run([UNSHARE, "--net", "true"], check=False).returncode != 0,
    reason="unshare may not make a network namespace, in which the ports are free; root may",
)
def test_where_a_controller_listens_that_was_told_nothing(stage: Stage) -> None:
    # There is no way to the API server from there: it listens, and tries to load.
    command = [str(PROGRAMS / "cardwise-controller"), f"--kubeconfig={stage.account}"]
    alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    controller = stage.cp.start_process("controller-alone", [*alone, *command])
    try:
        want = {"tcp 127.0.0.1:8478", "tcp 0.0.0.0:9395"}
        stage.cp.wait("it to listen", lambda: len(listening(controller)) >= len(want), 20)
        assert listening(controller) == want
    finally:
        controller.kill()
