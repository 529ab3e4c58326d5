"""The cluster that all contestants find: nodes with cards that are Ready because we wrote so.

No kubelet, no KWOK, no lease traffic and no controller manager: Pods are bound, nobody runs them,
and nothing but a contestant is at work.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from cardwise import names
from cardwise.wire.nodestatus import resources_of
from controlplane.api import Api, ApiError
from controlplane.launcher import ROOT, ControlPlane, fake_node, standing_ground

Json = dict[str, Any]

_GATES = ("manifests/components/gates/rbac.yaml", "manifests/components/gates/guard.yaml")
_PROFILE = ROOT / "operator/cardwise/agent/profiles/v100x8.yaml"
_GPUNODES = f"/apis/{names.API_GROUP}/{names.API_VERSION}/{names.GPUNODE_PLURAL}"
AGENT_SECONDS = 60.0
"""Between two reports of an agent, as it comes."""
CLIENTS = 8
"""Connections by which nodes and Pods are created."""


class Crowd:
    """Requests by several connections at a time, as the administrator."""

    def __init__(self, cp: ControlPlane) -> None:
        self._cp = cp
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(CLIENTS, thread_name_prefix="crowd")

    def each(self, work: Callable[[Api, Any], None], items: Iterable[Any]) -> None:
        """Do something for each, in no order; the first error is raised."""

        def one(item: Any) -> None:
            if not hasattr(self._own, "api"):
                self._own.api = Api(self._cp.server, self._cp.ca, self._cp.admin_token)
            work(self._own.api, item)

        list(self._pool.map(one, items))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def lay(cp: ControlPlane, crowd: Crowd, nodes: int, told: Callable[[int], None]) -> None:
    """Write accounts, rights, guards and so many nodes of eight cards; ``told`` of each node."""
    standing_ground(cp)
    for manifest in _GATES:
        cp.apply(ROOT / manifest)
    profile = yaml.safe_load(_PROFILE.read_text())

    def write(api: Api, number: int) -> None:
        name = f"node-{number:05}"
        gpunode = _gpunode(profile, name)
        node = fake_node(name)
        amounts = {key: str(value) for key, value in resources_of(gpunode).items()}
        slots = sum(card["slots"] for card in gpunode["status"]["cards"])
        room = {**node["status"]["capacity"], names.RESOURCE_COUNT: str(slots), **amounts}
        node["status"] |= {"capacity": room, "allocatable": room}
        api.request("POST", "/api/v1/nodes", node)
        api.request("POST", _GPUNODES, {**gpunode, "status": {}})
        status = {key: gpunode[key] for key in ("apiVersion", "kind", "metadata", "status")}
        query = f"fieldManager={names.MANAGER_AGENT}&force=true"
        path = f"{_GPUNODES}/{name}/status?{query}"
        api.request("PATCH", path, status, content_type="application/apply-patch+yaml")
        told(number)

    crowd.each(write, range(nodes))


@contextlib.contextmanager
def agents(cp: ControlPlane, nodes: int, every: float = AGENT_SECONDS) -> Iterator[None]:
    """Report each of the nodes again, once in so many seconds, as its agent would.

    Without it they are stale three minutes after a controller's start, and no Pod fits any more.
    """
    over = threading.Event()

    def report() -> None:
        api, began = Api(cp.server, cp.ca, cp.admin_token), time.monotonic()
        for count in itertools.count(1):
            if over.wait(max(0.0, began + count * every / nodes - time.monotonic())):
                break
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            path = f"{_GPUNODES}/node-{count % nodes:05}/status"
            change = {"status": {"reportedAt": now}}
            with contextlib.suppress(ApiError, OSError):  # an agent tries again, too
                api.request("PATCH", path, change, content_type="application/merge-patch+json")
        api.close()

    thread = threading.Thread(target=report, name="agents", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _gpunode(profile: Json, name: str) -> Json:
    """Eight V100 in a hybrid cube mesh, with UUIDs of their own."""
    cards = [
        {**card, "uuid": f"GPU-{name}-{card['index']}", "slots": 10, "cores": 100}
        for card in profile["status"]["cards"]
    ]
    return {
        "apiVersion": profile["apiVersion"],
        "kind": profile["kind"],
        "metadata": {"name": name},
        "status": {
            "reportedAt": "2026-11-29T12:00:00Z",
            "cards": cards,
            "links": profile["status"]["links"],
        },
    }


def settings_of_gates(directory: Path) -> Path:
    """The settings file of the door of gates."""
    path = directory / "gates.yaml"
    path.write_text("scheduling: {door: gates}\n")
    return path
