"""The processes and ports of one run, and waiting on them with an account of what went wrong."""

import signal
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from controlplane.api import ApiError
from controlplane.kubectl import KubectlError
from controlplane.process import Process, ReservedPort

T = TypeVar("T")

_READY_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 10.0  # for guests to end by themselves, all at once
_POLL_SECONDS: Final = 0.05


class ControlPlaneError(Exception):
    """Something did not come up or did not come true; the message ends with the log tails."""


class Supervisor:
    """Starts processes, whose logs lie in one directory, and ends them all.

    *Core* processes are the control plane's own: the run is over when one of them goes. The others
    are guests, which a test may end and start again as it likes.
    """

    def __init__(self, directory: Path, ca: Path) -> None:
        """Start nothing yet; ``ca`` is the file that the processes' HTTPS is verified against."""
        self.directory = directory
        self._ca = ca
        self._core: list[Process] = []
        self._guests: list[Process] = []
        self._ports: list[ReservedPort] = []

    def reserve_port(self) -> int:
        """Return a port that stays ours until the end, for a program that can share it."""
        port = ReservedPort()
        self._ports.append(port)
        return port.number

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        url: str | None = None,
        core: bool = False,
    ) -> Process:
        """Start a program that logs to ``NAME.log``.

        A name may be used again once its process has ended; the log goes on.
        """
        if any(other.name == name and other.poll() is None for other in self._all()):
            raise ValueError(f"a process named {name!r} is running already")
        process = Process(name, argv, log=self.directory / f"{name}.log", env=env, url=url)
        (self._core if core else self._guests).append(process)
        return process

    def wait(self, what: str, predicate: Callable[[], T], timeout: float) -> T:
        """Ask until the answer is truthy and return it; a refused request counts as "not yet".

        Raises:
            ControlPlaneError: It did not come true in time, or a process of the control plane
                died. The message says what was waited for, the last answer, and the log tails.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = predicate()
            except (ApiError, KubectlError, OSError) as error:
                last = str(error)
            else:
                if answer:
                    return answer
                last = repr(answer)
            gone = [process for process in self._core if process.poll() is not None]
            if gone:
                raise ControlPlaneError(f"waited for {what}, but {gone}\n{_tails(gone)}")
            if time.monotonic() >= deadline:
                sentence = f"waited {timeout:.0f} s for {what}; the last answer: {last}"
                raise ControlPlaneError(f"{sentence}\n{_tails(self._all())}")
            time.sleep(_POLL_SECONDS)

    def wait_until_ready(self, process: Process, path: str) -> None:
        """Wait until the process serves ``path``, or raise with its log."""
        context = ssl.create_default_context(cafile=str(self._ca))
        url = f"{process.url}{path}"

        def answers() -> bool:
            if process.poll() is not None:
                raise ControlPlaneError(f"{process}\n{_tails([process])}")
            with urllib.request.urlopen(url, timeout=5, context=context):  # noqa: S310 (http only)
                return True

        self.wait(f"{process.name} to answer {path}", answers, _READY_SECONDS)

    def stop(self) -> None:
        """Ask the guests to end, insist, end the core at once, and give the ports back."""
        for process in self._guests:
            process.signal(signal.SIGTERM)
        for process in self._guests:
            process.wait(_GRACE_SECONDS)
        for process in reversed(self._core):
            process.kill()  # what it would still write is thrown away
        self._guests.clear()
        self._core.clear()
        while self._ports:
            self._ports.pop().close()

    def _all(self) -> list[Process]:
        return [*self._core, *self._guests]


def _tails(processes: Sequence[Process]) -> str:
    return "\n".join(f"--- {process}, {process.log}\n{process.tail()}" for process in processes)
