"""The API server's audit log while it is written: its own record of who asked what, and when."""

import time
from collections.abc import Callable

from bench.measures import events
from controlplane.launcher import ControlPlane

_CALM_SECONDS, _CALM_EVENTS = 1.0, 3
"""Hardly any event is written where fewer than three are in a second."""


class AuditTail:
    """The audit log from a moment on."""

    def __init__(self, cp: ControlPlane) -> None:
        self._cp = cp
        self._path = cp.directory / "audit.log"
        self._marks = 0
        self._offset = self._path.stat().st_size

    def begin(self) -> None:
        """From now on."""
        self._offset = self._path.stat().st_size

    def lines(self) -> list[bytes]:
        """All whole lines since, once the API server has written of everything until now."""
        self._marks += 1
        mark = f"/version?mark={id(self)}-{self._marks}"
        self._cp.request("GET", mark)
        sign = mark.encode() + b'"'

        def found() -> list[bytes]:
            lines = self._read(self._offset)
            return lines if any(sign in line for line in lines) else []

        return self._cp.wait("the audit log", found, 30)

    def news(self) -> Callable[[], list[bytes]]:
        """What gives at each call the whole lines since the call before, the first since `begin`.

        Of what has just happened they may not tell yet.
        """
        offset = self._offset

        def read() -> list[bytes]:
            nonlocal offset
            lines = self._read(offset)
            offset += sum(map(len, lines))
            return lines

        return read

    def calm(self, namespace: str, at_most: float) -> None:
        """Wait until hardly any event on a namespace's Pods is written, at most so many seconds."""
        read, deadline = self.news(), time.monotonic() + at_most
        read()
        while time.monotonic() < deadline:
            time.sleep(_CALM_SECONDS)
            if events(read(), namespace) < _CALM_EVENTS:
                return

    def _read(self, offset: int) -> list[bytes]:
        if self._path.stat().st_size < offset:
            raise RuntimeError(f"{self._path} was begun anew: what it told before is lost")
        with self._path.open("rb") as log:
            log.seek(offset)
            return [line for line in log if line.endswith(b"\n")]
