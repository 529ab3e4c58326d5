"""A cable between a process and an API server: while it is cut there is silence, and no end.

Nothing is refused and no connection is closed, as when a switch dies. What was sent meanwhile is
lost; the connections of before are reset when the cable is mended. TLS passes through unread.

    python cable.py --to 127.0.0.1:6443 --port 8080

`Cable` is the test's side of it, and starts it.
"""

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import yaml

from controlplane.launcher import ControlPlane, Process, free_port

_CUT: Final = signal.SIGUSR1
_MEND: Final = signal.SIGUSR2
_PIECE: Final = 64 * 1024


class Relay:
    """Carries bytes both ways, unless it is cut."""

    def __init__(self, host: str, port: int) -> None:
        """Carry to this address."""
        self._to = (host, port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._lost: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """From now on nothing gets through, in neither direction."""
        self._whole.clear()
        self._lost |= self._ends

    def mend(self) -> None:
        """New connections get through again; those of before are reset."""
        self._whole.set()
        for end in self._lost:
            end.transport.abort()
        self._lost.clear()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        self._ends.add(writer)
        try:
            if not self._whole.is_set():
                self._lost.add(writer)
                await self._carry(reader, writer, writer)  # it is lost: nothing is written
                return
            away, back = await asyncio.open_connection(*self._to)
            self._ends.add(back)
            try:
                await asyncio.gather(
                    self._carry(reader, back, writer), self._carry(away, writer, writer)
                )
            finally:
                await self._close(back)
        finally:
            await self._close(writer)

    async def _carry(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, caller: asyncio.StreamWriter
    ) -> None:
        """One direction; ``caller`` says whether the connection is lost."""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_PIECE):
                if caller not in self._lost:
                    to.write(piece)
                    await to.drain()
        if caller not in self._lost and to.can_write_eof():
            with contextlib.suppress(OSError):
                to.write_eof()
        if caller in self._lost:
            await self._whole.wait()  # nobody is told that an end went away

    async def _close(self, end: asyncio.StreamWriter) -> None:
        self._ends.discard(end)
        self._lost.discard(end)
        end.close()
        with contextlib.suppress(OSError):
            await end.wait_closed()


# --- the test's side ------------------------------------------------------------------------------


class Cable:
    """A cable to the API server of a control plane; a process of its own, which ends with that."""

    def __init__(self, cp: ControlPlane, name: str) -> None:
        """Lay it, and wait until it carries."""
        self._port = free_port()
        self._process: Process = cp.start_process(
            f"cable-{name}",
            [
                sys.executable,
                __file__,
                f"--to={cp.server.removeprefix('https://')}",
                f"--port={self._port}",
            ],
            env={"PYTHONPATH": str(Path(__file__).parent)},
        )
        cp.wait("the cable to carry", self._carries, 30)

    def cut(self) -> None:
        """Let there be silence."""
        self._process.signal(_CUT)

    def mend(self) -> None:
        """Let new connections through again."""
        self._process.signal(_MEND)

    def lay(self, kubeconfig: Path) -> None:
        """Change a kubeconfig so that its user goes by this cable."""
        config = yaml.safe_load(kubeconfig.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{self._port}"
        kubeconfig.write_text(yaml.safe_dump(config))

    def _carries(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), timeout=5):
            return True


# --- the process ----------------------------------------------------------------------------------


async def serve(to: str, port: int) -> None:
    """Serve until cancelled."""
    host, _, number = to.rpartition(":")
    relay, loop = Relay(host, int(number)), asyncio.get_running_loop()
    loop.add_signal_handler(_CUT, relay.cut)
    loop.add_signal_handler(_MEND, relay.mend)
    async with await asyncio.start_server(relay.accept, "127.0.0.1", port) as server:
        await server.serve_forever()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, required=True)
    said = parser.parse_args()
    asyncio.run(serve(said.to, said.port))


if __name__ == "__main__":
    main()
