"""The driver as the publisher asks it: one question at a time, and an answer within a bound.

Apart from what is done with the answer: a driver may be silent for minutes, or fail for hours, and
the loops around it must go on.
"""

import asyncio
from collections.abc import Awaitable, Callable

from cardwise.agent.complaints import Complaints
from cardwise.errors import NvmlUnavailable
from cardwise.ports import Readings

SILENT_SECONDS = 30.0
"""For the driver's answer to a look; a first one may wake sleeping cards for seconds each."""
HOPELESS_SECONDS = 600.0
"""After this long of a failing driver a new process may do better: a container keeps the driver's
library that there was at its start, and a new driver does not speak with an old library."""

NO_LIBRARY = "this machine has no NVIDIA library (libnvidia-ml.so.1), so it has no cards to report"


class Driver:
    """Asks for readings, and knows since when there are none."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Readings | None]],
        monotonic: Callable[[], float],
        complaints: Complaints,
    ) -> None:
        """Make it; nothing was asked yet.

        Args:
            read: ``Nvml.read``, off the loop's thread because it may block.
            monotonic: seconds that never jump.
            complaints: where its failures are logged.
        """
        self._read = read
        self._monotonic = monotonic
        self._complaints = complaints
        self._asked: asyncio.Future[Readings | None] | None = None
        """A look that the driver has not answered yet."""
        self._failing: tuple[float, str] | None = None
        """Since when it fails, and why now."""

    def hopeless(self) -> str:
        """Why only a new process may do better; empty where this one does well, or may yet."""
        if self._failing is None or self._monotonic() - self._failing[0] < HOPELESS_SECONDS:
            return ""
        return f"the driver fails for more than {HOPELESS_SECONDS:g} s: {self._failing[1]}"

    async def readings(self) -> Readings | str | None:
        """What the driver says; a text says why it fails, None that there is none."""
        # Where it still owes the last answer, another question would only wait behind that one.
        self._asked = self._asked or asyncio.ensure_future(self._read())
        done, _ = await asyncio.wait({self._asked}, timeout=SILENT_SECONDS)
        if not done:
            return self._fails(f"it has not answered for {SILENT_SECONDS:g} s")
        asked, self._asked = self._asked, None
        try:
            readings = asked.result()
        except NvmlUnavailable as error:
            return self._fails(str(error))
        if readings is None:
            self._complaints.complain("driver", f"no GPUNode: {NO_LIBRARY}")
        else:
            self._failing = None
            self._complaints.settle("driver")
        return readings

    def _fails(self, why: str) -> str:
        self._complaints.complain("driver", f"the driver fails: {why}")
        self._failing = (self._monotonic() if self._failing is None else self._failing[0]), why
        return why
