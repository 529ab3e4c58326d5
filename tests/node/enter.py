"""Run a program in the namespaces of a node, as `enter.py PID PROGRAM…`.

PID is the process that made the namespaces. util-linux's nsenter would do, but a signal that is
sent to it never reaches the program.
"""

import contextlib
import ctypes
import os
import signal
import sys

_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main(maker: int, program: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # Both are opened first: in the node's own /proc the maker is not to be found.
    places = [f"/proc/{maker}/ns/{namespace}" for namespace in ("mnt", "pid_for_children")]
    for opened in [os.open(place, os.O_RDONLY | os.O_CLOEXEC) for place in places]:
        if libc.setns(opened, 0) != 0:
            raise OSError(ctypes.get_errno(), f"setns to a namespace of {maker}")
    child = os.fork()
    if child == 0:
        libc.prctl(_KILL_WITH_PARENT, signal.SIGKILL)
        os.execvp(program[0], program)  # noqa: S606 (a shell would stand between)

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
