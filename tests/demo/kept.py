"""The demo that ``KEEP=1`` left running, found again by the number of its process."""

import os
import select
import signal
from enum import Enum
from pathlib import Path

END_SECONDS = 60.0
"""How long a demo may take to end its processes: two rounds of ten seconds, on a busy machine."""
_SCRIPT = b"demo.py"


class Ending(Enum):
    """What became of a demo that was to be stopped: what to tell, and the exit status."""

    NONE = "No demo is running.", 0
    STOPPED = "The demo is stopped.", 0
    LASTS = (
        "The demo was told to stop, and its processes have not ended in time: wait, and ask again.",
        1,
    )

    @property
    def told(self) -> str:
        """The sentence."""
        return self.value[0]

    @property
    def status(self) -> int:
        """The exit status."""
        return self.value[1]


def note(pid_file: Path) -> None:
    """Write down that this process is the demo. Who stops it takes that away again."""
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    pid_file.write_text(str(os.getpid()))


def stop(pid_file: Path, *, within: float = END_SECONDS) -> Ending:
    """Stop the demo, and wait until its last process has ended: its own ends after all others.

    Args:
        pid_file: where its number was written.
        within: seconds to wait.
    """
    try:
        process = os.pidfd_open(number := int(pid_file.read_text()))
    except (OSError, ValueError, OverflowError):
        pid_file.unlink(missing_ok=True)
        return Ending.NONE
    try:
        # The number may be another process's by now: after a reboot, say.
        if _SCRIPT not in Path(f"/proc/{number}/cmdline").read_bytes():
            raise ProcessLookupError(number)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], within)[0]:
            return Ending.LASTS
    except OSError:
        pid_file.unlink(missing_ok=True)
        return Ending.NONE
    finally:
        os.close(process)
    pid_file.unlink(missing_ok=True)
    return Ending.STOPPED
