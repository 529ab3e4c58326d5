"""What a large cluster does to one controller: what `bench.scale_bench` proves, each by itself."""

import asyncio
import http.client
import json
import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.audit import AuditTail
from bench.contestants import contestants, controller
from bench.ground import Crowd
from bench.measures import (
    cpu_seconds,
    lives,
    now_mb,
    peak_mb,
    quantile,
)
from bench.mixes import MIXES, Mix, pod
from cardwise.model import Booking, ContainerKind, Share
from cardwise.names import SCHEDULER_NAME
from cardwise.wire.pods import allocation_annotations
from controlplane.api import Api
from controlplane.launcher import ControlPlane, free_port

Json = dict[str, Any]
Told = Callable[[str], None]
"""Is told what goes on, in words."""

_CONNECTIONS = 16
CARDS = 8
_MIB = 1000
_SETTLED_SECONDS, _SETTLED_AT_MOST = 5.0, 300.0
_BETWEEN_AT_MOST = 20.0
"""Between waves: events and usage are written behind, for minutes."""
_QUIET_PART = 0.25
"""Settled: less than this part of a processor was taken for five seconds. Some is always taken: the
agents of 5,000 nodes report 83 times a second."""
QPS = 2000.0
WAVE_SECONDS = 300.0


@dataclass
class Figures:
    """What a proof came to."""

    what: str
    figures: dict[str, float | list[float]] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    """The most that some of them should be."""

    def missed(self) -> list[str]:
        """The figures that are above their bars, or were not measured."""
        return [name for name, bar in self.bars.items() if not self._within(name, bar)]

    def _within(self, name: str, bar: float) -> bool:
        value = self.figures.get(name, math.nan)
        return isinstance(value, float) and value < bar

    def document(self) -> Json:
        """For JSON; what is not known is null."""
        known = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in self.figures.items()
        }
        return {"what": self.what, "figures": known, "bars": self.bars}


def loaded(cp: ControlPlane, nodes: int, pods: int, calls: int, told: Told) -> Figures:
    """Start a controller where so many Pods have their cards already."""
    cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": "full"}})
    began = time.monotonic()
    write(cp, "/api/v1/namespaces/full/pods", (placed(n, nodes) for n in range(pods)))
    told(f"{pods:,} bound Pods written in {time.monotonic() - began:.0f} s, etcd {_etcd_mb(cp)}")
    found = Figures(
        f"{nodes:,} nodes, {pods:,} Pods with cards",
        bars={"start to ready, s": 60.0, "memory at most, MB": 600.0},
    )
    port = free_port()
    began = time.monotonic()
    running = controller(cp, f"--listen=127.0.0.1:{port}")
    pid = running.processes["controller"].pid
    try:
        found.figures["start to ready, s"] = time.monotonic() - began
        found.figures["memory when ready, MB"] = peak_mb(pid)
        told(f"ready after {found.figures['start to ready, s']:.1f} s")
        names = [f"node-{number:05}" for number in range(nodes)]
        began = time.monotonic()
        _ask(found, "while Kopf lists", port, names, calls)
        cpu = cpu_seconds(pid)
        if not settle(pid, _SETTLED_AT_MOST):
            told("it does not come to rest: what is called settled below is not")
        found.figures["busy after ready, s"] = time.monotonic() - began - _SETTLED_SECONDS
        found.figures["CPU of that, s"] = cpu_seconds(pid) - cpu
        _ask(found, "settled", port, names, calls)
        found.figures["memory settled, MB"] = now_mb(pid)
        found.figures["memory at most, MB"] = peak_mb(pid)
    finally:
        running.end()
    return found


def waves(cp: ControlPlane, crowd: Crowd, count: int, size: int, told: Told) -> Figures:
    """Have so many Pods bound and deleted, wave by wave."""
    mix = MIXES["alike"]
    grown = "growth in the second half, MB"
    found = Figures(
        f"{count} waves of {size:,} Pods, created, bound, deleted",
        bars={grown: 10.0},  # UIDs and events of Pods that ended are remembered, 20,000 and 10,000
    )
    running = contestants(None)["extender"].start(cp, QPS)
    pid = running.processes["controller"].pid
    after: list[float] = []
    rates: list[float] = []
    tail = AuditTail(cp)
    try:
        for number in range(count):
            name = f"wave-{number}"
            cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            tail.begin()
            create(cp, name, mix, range(size))
            until_bound(cp, name)
            rates.append(lives(tail.lines(), name).rate)
            _delete(crowd, name, size)
            settle(pid)
            after.append(now_mb(pid))
            told(f"wave {number + 1}: {after[-1]:.0f} MB, {rates[-1]:.0f} Pods/s")
    finally:
        running.end()
    half = after[len(after) // 2 :]
    found.figures["memory after each wave, MB"] = after
    found.figures["Pods bound a second"] = rates
    found.figures[grown] = half[-1] - half[0]
    return found


# Steps --------------------------------------------------------------------------------------------


def placed(number: int, nodes: int) -> Json:
    """A Pod that is bound and has one card: node after node, and then the next card of each."""
    document = pod(MIXES["alike"], number, scheduler=SCHEDULER_NAME, gated=False)
    node = f"node-{number % nodes:05}"
    uuid = f"GPU-{node}-{number // nodes % CARDS}"
    booking = Booking(
        node=node,
        containers=((Share(uuid, _MIB, 0),),),
        kinds=(ContainerKind.REGULAR,),
    )
    document["metadata"]["annotations"] |= allocation_annotations(booking, 0, exclusive=False)
    document["spec"]["nodeName"] = node
    return document


def write(cp: ControlPlane, path: str, documents: Iterable[Json]) -> None:
    """Create objects by several connections, as fast as they are taken.

    Raises:
        RuntimeError: one was refused; the server's words.
    """
    asyncio.run(_write(cp, path, iter(documents)))


async def _write(cp: ControlPlane, path: str, documents: Iterator[Json]) -> None:
    trust = ssl.create_default_context(cafile=str(cp.ca))
    headers = {
        "Authorization": f"Bearer {cp.admin_token}",
        "Content-Type": "application/json",
    }

    async def one_after_the_other(session: aiohttp.ClientSession) -> None:
        for document in documents:
            async with session.post(f"{cp.server}{path}", data=orjson.dumps(document)) as answer:
                text = await answer.read()
                if answer.status != 201:
                    raise RuntimeError(text.decode())

    connector = aiohttp.TCPConnector(ssl=trust, limit=_CONNECTIONS)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(_CONNECTIONS):
            group.create_task(one_after_the_other(session))


def create(
    cp: ControlPlane,
    namespace: str,
    mix: Mix,
    numbers: Iterable[int],
    scheduler: str = SCHEDULER_NAME,
    gated: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> None:
    def document(number: int) -> Json:
        made = pod(mix, number, scheduler=scheduler, gated=gated)
        made["metadata"]["annotations"] |= annotations or {}
        return made

    write(cp, f"/api/v1/namespaces/{namespace}/pods", map(document, numbers))


def _delete(crowd: Crowd, namespace: str, size: int) -> None:
    def delete(api: Api, number: int) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/p{number:05}"
        api.request("DELETE", path, {"gracePeriodSeconds": 0})

    crowd.each(delete, range(size))


def _ask(found: Figures, when: str, port: int, names: list[str], calls: int) -> None:
    """Ask /filter as kube-scheduler does, one call after the other, each of a new Pod."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took = []
    for number in range(calls):
        document = pod(MIXES["alike"], number, scheduler=SCHEDULER_NAME, gated=False)
        document["metadata"] |= {"namespace": "ask", "uid": f"{when}-{number}"}
        body = json.dumps({"Pod": document, "NodeNames": names}).encode()
        began = time.monotonic()
        connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        took.append(1000 * (time.monotonic() - began))
        if answer["Error"] or not answer["NodeNames"]:
            raise RuntimeError(f"/filter: {answer['Error'] or 'fits nowhere'}")
    connection.close()
    found.figures |= {
        f"/filter median ms, {when}": quantile(took, 0.5),
        f"/filter p99 ms, {when}": quantile(took, 0.99),
    }


def settle(pid: int, at_most: float = _BETWEEN_AT_MOST) -> bool:
    """Wait until a process is idle, at most so many seconds; whether it came to it."""
    deadline = time.monotonic() + at_most
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(_SETTLED_SECONDS)
        if cpu_seconds(pid) - before < _QUIET_PART * _SETTLED_SECONDS:
            return True
    return False


def until_bound(cp: ControlPlane, namespace: str) -> None:
    """Wait until all Pods of a namespace are bound.

    By the Pods, not by the audit log: on a full machine a Binding is made that was answered with
    "timeout", and the controller finds out.
    """
    cp.wait(f"{namespace} to be bound", lambda: not unbound(cp, namespace, 1), WAVE_SECONDS)


def unbound(cp: ControlPlane, namespace: str, limit: int = 0) -> list[Json]:
    """The Pods of a namespace that are not bound, or so many of them."""
    query = f"fieldSelector=spec.nodeName%3D&limit={limit}"
    listed = cp.request("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]
    return [each for each in listed if not each["spec"].get("nodeName")]


def _etcd_mb(cp: ControlPlane) -> str:
    data = Path(cp.directory / "etcd")
    return f"{sum(f.stat().st_size for f in data.rglob('*') if f.is_file()) / 1e6:.0f} MB on disk"
