"""Child processes that never outlive their parent, whatever kills it, and the ports they listen on.

Separate from the launcher, because nothing here knows about Kubernetes.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_TAIL_BYTES = 64 * 1024

# The kernel kills the child when its parent goes. Set by the child itself, just before it becomes
# the program: `preexec_fn` would run Python between fork and exec in a process that has threads.
_UNTIL_PARENT_DIES = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):        # else the parent went before the line above
    os.execvp(sys.argv[2], sys.argv[2:])
"""

# "Parent" means the thread that forked. All forks are therefore made by this one thread, which
# lives as long as the interpreter; a test's own thread may come and go.
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controlplane-forker")


class Process:
    """A started program whose output goes to a file."""

    name: str
    log: Path
    url: str | None
    """Where it serves HTTP(S), if its starter knows."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> None:
        """Start ``argv``; ``env`` is added to this process's environment."""
        self.name = name
        self.log = log
        self.url = url
        command = [str(word) for word in argv]
        wrapper = [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_DIES, str(os.getpid())]
        environment = {**os.environ, **(env or {})}

        def fork() -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(
                    [*wrapper, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches the test runner alone, which stops us
                )

        self._popen = _forker.submit(fork).result()

    def __repr__(self) -> str:
        state = "running" if self.poll() is None else f"exited with {self.poll()}"
        return f"<{self.name}, pid {self.pid}, {state}>"

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; ``None`` while it runs."""
        return self._popen.poll()

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        self._popen.send_signal(sig)

    def terminate(self, timeout: float = 10) -> int:
        """Ask it to end, insist after ``timeout`` seconds, and return the exit status."""
        self._popen.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float = 10) -> int:
        """Return its exit status, after ``timeout`` seconds by killing it."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it at once, as a crash would, and return the exit status."""
        self._popen.kill()
        return self._popen.wait()

    def tail(self, n: int = 20) -> str:
        """Return the last ``n`` lines of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-n:])


class ReservedPort:
    """A port of 127.0.0.1 that nobody else is given while this object is open.

    The socket is bound and never listens. A program that sets ``SO_REUSEPORT`` (etcd and
    Kubernetes' do when told so) can listen on the port beside it and gets every connection.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago, for programs of one's own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
