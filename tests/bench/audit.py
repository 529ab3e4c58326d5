"""The API server's audit log while it is written: its own record of who asked what, and when."""

from collections.abc import Callable

from bench.measures import is_binding
from controlplane.launcher import ControlPlane


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

    def bindings(self) -> Callable[[], int]:
        """A counter of the Bindings since `begin`, which reads what is new at each call."""
        offset, count = self._offset, 0

        def look() -> int:
            nonlocal offset, count
            lines = self._read(offset)
            offset += sum(map(len, lines))
            count += sum(map(is_binding, lines))
            return count

        return look

    def _read(self, offset: int) -> list[bytes]:
        with self._path.open("rb") as log:
            log.seek(offset)
            return [line for line in log if line.endswith(b"\n")]
