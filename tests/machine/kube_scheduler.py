"""kube-scheduler as far as an extender sees it: its queues, its cycles, and its Lease.

A Pod that was refused is asked for again only when a Node's annotation changed, an assigned Pod
ended, or its own metadata changed. The real one would also do so by the clock, after five minutes;
here it never does, so that a wake-up that got lost is found. It hears of every change at once, so
it asks before the controller has heard of it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from cardwise.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cardwise.wire.pods import bound_node
from fakes.cluster import Change, FakeCluster
from machine.process import HOST, Process
from machine.tally import Tally

Json = dict[str, Any]
_RENEW_SECONDS = 2.0
_LEASE_SECONDS = 15


class KubeScheduler:
    """The only one; after it was killed it is at work again when its own Lease has run out."""

    def __init__(self, cluster: FakeCluster, process: Process, tally: Tally) -> None:
        self._cluster = cluster
        self._process = process
        self._tally = tally
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        """Every Pod of ours that waits, by UID."""
        self.queue: dict[str, None] = {}
        """To be asked for."""
        self.pool: dict[str, None] = {}
        """Refused by us."""
        self.away: dict[str, None] = {}
        """Refused by another plugin, after we chose a node."""
        self.reserved: dict[str, tuple[Json, str]] = {}
        """The Pod, and the node that we chose; its binding has not begun."""
        self.lies: list[str] = []
        """Answers of /bind that the cluster does not bear out."""
        self._binding: set[asyncio.Task[None]] = set()
        self.is_alive = False
        self._life = 0
        self._transitions = 0
        self._renewing: asyncio.Task[None] | None = None

    # Its life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the Lease, and list."""
        self.is_alive = True
        self._life += 1
        self._transitions += 1
        self._renewing = asyncio.ensure_future(self._renew(f"{HOST}_{self._life}"))
        self.nodes = {name: it for (_, name), it in self._cluster.objects["Node"].items()}
        for pod in self._cluster.objects["Pod"].values():
            self._see_pod("ADDED", pod)

    def kill(self, *, released: bool) -> None:
        """End it. What it asked for goes on; nobody hears the answer."""
        self.is_alive = False
        self._life += 1
        assert self._renewing is not None
        self._renewing.cancel()
        for kept in (self.pods, self.queue, self.pool, self.away, self.reserved, self.nodes):
            kept.clear()
        if released:
            self._write_lease("", 1)
        seconds = 1.0 if released else _LEASE_SECONDS + 1.0
        asyncio.get_running_loop().call_later(seconds, self.start)

    async def _renew(self, identity: str) -> None:
        while True:
            self._write_lease(identity, _LEASE_SECONDS)
            await asyncio.sleep(_RENEW_SECONDS)

    def _write_lease(self, holder: str, seconds: int) -> None:
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "leaseTransitions": self._transitions,
            "renewTime": f"{asyncio.get_running_loop().time():.6f}",
        }
        # Nobody watches it, and it is written more often than all else together.
        self._cluster.objects["Lease"][SYSTEM_NAMESPACE, SCHEDULER_NAME] = {"spec": spec}

    # What it hears --------------------------------------------------------------------------------

    def see(self, change: Change) -> None:
        if not self.is_alive:
            return
        if change.kind == "Pod":
            self._see_pod(change.type, change.object)
        elif change.kind == "Node":
            self._see_node(change.object)

    def _see_pod(self, what: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        known = self.pods.get(uid)
        if what == "DELETED" or bound_node(pod) or pod["metadata"].get("deletionTimestamp"):
            self._forget(uid)
            if what == "DELETED" and bound_node(pod):
                self.move_all()
            return
        if pod["spec"].get("schedulerName") != SCHEDULER_NAME:
            return  # the cluster's own has it
        self.pods[uid] = pod
        if known is None:
            self.queue[uid] = None
        elif uid in self.pool and _asks(known) != _asks(pod):
            self._move(uid)

    def _see_node(self, node: Json) -> None:
        name = node["metadata"]["name"]
        known, self.nodes[name] = self.nodes.get(name), node
        if known is None or known["metadata"]["annotations"] != node["metadata"]["annotations"]:
            self.move_all()

    def _forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        # Not from `reserved`: a binding that is about to begin goes on, and fails.
        for queue in (self.queue, self.pool, self.away):
            queue.pop(uid, None)

    def move_all(self) -> None:
        for uid in list(self.pool):
            self._move(uid)

    def _move(self, uid: str) -> None:
        self.pool.pop(uid, None)
        self.queue[uid] = None

    # Its cycle ------------------------------------------------------------------------------------

    def ask(self, uid: str, *, nominated: str | None = None) -> None:
        """One scheduling cycle up to the choice of a node, perhaps for the nominated node first."""
        del self.queue[uid]
        pod = self.pods[uid]
        chosen = self._filter(pod, [nominated]) if nominated else None
        if chosen is None:
            chosen = self._filter(pod, sorted(self.nodes))
        if chosen is None:
            self.pool[uid] = None
        elif chosen:
            self.reserved[uid] = pod, chosen
        else:
            self.queue[uid] = None

    def _filter(self, pod: Json, names: Sequence[str]) -> str | None:
        """The node; None: refused; empty: an error, so the Pod is asked for again by itself."""
        answer = self._process.filter(pod, names)
        if answer["Error"]:
            self._tally.filters["error"] += 1
            return ""
        if not answer["NodeNames"]:
            self._tally.filters["refused"] += 1
            assert set(answer["FailedAndUnresolvableNodes"]) == set(names)
            return None
        self._tally.filters["fitted"] += 1
        [node] = answer["NodeNames"]
        assert node in names
        return str(node)

    def refuse(self, uid: str) -> None:
        """Another plugin refuses the node that we chose: no /bind comes."""
        del self.reserved[uid]
        if uid in self.pods:
            self.away[uid] = None

    def come_back(self) -> None:
        """What stood in the way of other plugins is gone."""
        self.queue.update(self.away)
        self.away.clear()

    def bind(self, uid: str, elsewhere: str | None = None) -> None:
        """Begin the binding cycle; it goes on beside the next Pod's scheduling cycle."""
        pod, node = self.reserved.pop(uid)
        task = asyncio.ensure_future(self._bind(uid, pod, elsewhere or node, self._life))
        self._binding.add(task)
        task.add_done_callback(self._bound)

    def _bound(self, task: "asyncio.Task[None]") -> None:
        self._binding.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.lies.append(f"/bind raised {task.exception()!r}")

    async def _bind(self, uid: str, pod: Json, node: str, life: int) -> None:
        error = await self._process.bind(pod, node)
        held = self._cluster.objects["Pod"].get(
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
        )
        there = held is not None and held["metadata"]["uid"] == uid
        if not error and held is not None and there and bound_node(held) != node:
            self.lies.append(f"/bind of {uid} to {node} was answered, but it is not bound there")
        if error and life == self._life and uid in self.pods:
            self.queue[uid] = None

    @property
    def is_binding(self) -> bool:
        return bool(self._binding)


def _asks(pod: Json) -> tuple[object, object]:
    metadata = pod["metadata"]
    return metadata.get("annotations"), metadata.get("labels")
