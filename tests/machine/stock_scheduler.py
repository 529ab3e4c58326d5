"""The cluster's own kube-scheduler: it binds who has no gate any more and one node left."""

import asyncio
from typing import Any

from fakes.cluster import Change, FakeCluster
from machine.gated import pinned

Json = dict[str, Any]
_SECONDS = 1.0
"""From the pin to the Binding: long, so that much happens in between."""


class StockScheduler:
    """Never away, never asked by us, and it hears of every change at once."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._until: dict[str, float] = {}
        """By UID: how long a Pod is refused on its node."""

    def see(self, change: Change) -> None:
        """The API server wrote something."""
        pod = change.object
        if change.kind == "Pod" and change.type != "DELETED" and pinned(pod):
            self._later(_SECONDS, pod)

    def refuse(self, pod: Json, seconds: float) -> None:
        """Its node has no room for it just now, and its status says so."""
        uid = pod["metadata"]["uid"]
        self._until[uid] = asyncio.get_running_loop().time() + seconds
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self._cluster.put({**pod, "status": {**pod["status"], "conditions": [why]}})

    def come_back(self) -> None:
        """From now on everybody is bound."""
        self._until.clear()
        for pod in list(self._cluster.objects["Pod"].values()):
            self._bind(pod)

    def _later(self, seconds: float, pod: Json) -> None:
        asyncio.get_running_loop().call_later(seconds, self._bind, pod)

    def _bind(self, pod: Json) -> None:
        metadata = pod["metadata"]
        held = self._cluster.objects["Pod"].get((metadata["namespace"], metadata["name"]))
        if held is None or held["metadata"]["uid"] != metadata["uid"]:
            return
        node = pinned(held)
        if node is None or held["metadata"].get("deletionTimestamp"):
            return
        wait = self._until.get(metadata["uid"], 0.0) - asyncio.get_running_loop().time()
        if wait > 0:
            self._later(wait, held)
            return
        self._cluster.put({**held, "spec": {**held["spec"], "nodeName": node}})
