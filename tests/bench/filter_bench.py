"""How long /filter takes at 1,000 nodes x 8 cards, beside a handler that does nothing.

The real HTTP server of the controller over loopback, asked by another process as kube-scheduler
asks it: one connection, one call after the other, each Pod like the one before but new, so that
every call finds one node changed by the last. Times depend on the machine; the ratio to the handler
that does nothing does so much less. Nothing here is asserted.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from rich.console import Console
from rich.table import Table

from build import gpunode, pod
from cardwise.controller.app import Controller
from cardwise.controller.extender.http import verbs
from cardwise.options import start_logging
from cardwise.settings import Settings
from controlplane.launcher import free_port
from fakes.cluster import FakeCluster

_FIRST = 5
MIXES: dict[str, Callable[[int], dict[str, Any]]] = {
    "all alike": lambda _: {"gpumem": 1000},
    "mutex,binpack,numa": lambda _: {"gpumem": 1000, "policy": "mutex,binpack,numa"},
    "50 different requests": lambda number: {"gpumem": 1000 + 10 * (number % 50)},
    "every request new": lambda number: {"gpumem": 1000 + number},
    "refused everywhere": lambda _: {"gpumem": 200_000},
}


def main() -> None:
    """Measure every mix and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    port = free_port()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=_serve, args=(port, options.nodes, options.cards), daemon=True)
    server.start()
    names = [f"node-{number:05d}" for number in range(options.nodes)]
    connection = _connect(port)
    table = Table(title=f"/filter at {options.nodes:,} nodes x {options.cards} cards")
    for column in ("requests", "median ms", "p99 ms", "CPU ms", "÷ do-nothing"):
        table.add_column(column, justify="left" if column == "requests" else "right")
    calls, pid = options.calls, server.pid or 0
    idle = _measured(connection, pid, "/nothing", MIXES["all alike"], names, calls, "idle")
    table.add_row("a handler that does nothing", *_figures(idle, idle))
    for title, mix in MIXES.items():
        measured = _measured(connection, pid, "/filter", mix, names, calls, title)
        table.add_row(title, *_figures(measured, idle))
    server.terminate()
    console = Console()
    console.print(table)
    console.print(
        f"Python {platform.python_version()}, {platform.machine()}, {options.calls} calls"
    )


@dataclass(frozen=True)
class _Measured:
    """Calls of one kind."""

    times: list[float]
    """Milliseconds of each, as its caller waits."""
    cpu_ms: float
    """Processor time of the server a call: what others take of the machine is no part of it."""


def _measured(
    connection: http.client.HTTPConnection,
    pid: int,
    path: str,
    mix: Callable[[int], dict[str, Any]],
    names: list[str],
    calls: int,
    title: str,
) -> _Measured:
    """All calls but the first few, which meet the question for the first time."""
    times, cpu = [], 0.0
    for number in range(calls + _FIRST):
        if number == _FIRST:
            cpu = _cpu_ms(pid)
        asked = pod(f"{title}-{number}".replace(" ", "-"), uid=f"{title}-{number}", **mix(number))
        random.shuffle(names)  # kube-scheduler's filters run side by side
        document = {"Pod": asked, "Nodes": None, "NodeNames": names}
        body = json.dumps(document, separators=(",", ":")).encode()  # as Go writes it
        began = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        times.append((time.perf_counter() - began) * 1000)
        assert not json.loads(answer)["Error"], answer[:200]
    return _Measured(times[_FIRST:], (_cpu_ms(pid) - cpu) / calls)


def _cpu_ms(pid: int) -> float:
    """Processor time of a process's first thread so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def _figures(measured: _Measured, idle: _Measured) -> tuple[str, str, str, str]:
    median = statistics.median(measured.times)
    p99 = statistics.quantiles(measured.times, n=100)[98]
    ratio = measured.cpu_ms / idle.cpu_ms
    return f"{median:.2f}", f"{p99:.2f}", f"{measured.cpu_ms:.2f}", f"{ratio:.1f}"


def _connect(port: int) -> http.client.HTTPConnection:
    """Connect as soon as the server is there."""
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.connect()
        except OSError:
            time.sleep(0.1)
        else:
            return connection
    raise SystemExit("the server did not come up")


def _serve(port: int, nodes: int, cards: int) -> None:
    # The log is written as in a cluster, and read by nobody.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    start_logging("info")
    uvloop.run(_server(port, nodes, cards))


async def _server(port: int, nodes: int, cards: int) -> None:
    controller = Controller(FakeCluster(), Settings())
    for number in range(nodes):
        name = f"node-{number:05d}"
        controller.mirror.see_gpunode(gpunode(name, cards, numa=(0, 0, 0, 0, 1, 1, 1, 1)))
    controller.duty.loaded = True

    async def nothing(request: web.Request) -> web.Response:
        names = json.loads(await request.read())["NodeNames"]
        answer = {"NodeNames": names[:1], "FailedNodes": {}, "Error": ""}
        return web.json_response(answer)

    app = verbs(controller.scheduler, controller.metrics, controller.health)
    app.router.add_post("/nothing", nothing)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
