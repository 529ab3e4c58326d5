"""The queue of the door of gates, slow and obviously right: who is next, and what he gets."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import oracle
from cardwise.names import ALLOCATED, EXCLUSIVE_HELD
from cardwise.noderules import Needs, NodeBook, load_of
from cardwise.settings import Settings
from cardwise.wire.pods import request_of
from machine.fleet import closed
from machine.gated import GANGS, gang_key
from machine.pins import fresh_book

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]


class Served:
    """The waiting Pods that are given cards, one after the other, until nobody fits any more."""

    def __init__(
        self, model: "Model", waiting: Iterable[Json], placed: Iterable[Json], gpunodes: list[Json]
    ) -> None:
        """Serve them.

        Args:
            model: whose Nodes and quotas count.
            waiting: Pods that wait for us alone.
            placed: every other Pod that has cards, each with its node.
            gpunodes: the cards that are offered.
        """
        self._model = model
        self._placed = [pod for pod in placed if pod["spec"].get("nodeName")]
        self._gpunodes = gpunodes
        self._book = fresh_book(model)
        self._count_what_is_on_its_way()
        self.nodes: dict[str, str] = {}
        """By UID, whoever is served."""
        left = sorted(waiting, key=_order)
        while left:
            served = self._serve_first(left)
            if not served:
                return
            left = [pod for pod in left if pod not in served]

    def _count_what_is_on_its_way(self) -> None:
        """A pin under way counts at its node, which the cluster does not show yet."""
        here = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in self._placed}
        for pod in self._model.behind_gates():
            uid = pod["metadata"]["uid"]
            if uid in here:
                self._book.take(uid, here[uid], load_of(pod))

    def _serve_first(self, left: list[Json]) -> list[Json]:
        """The first who fit: a Pod, or as many of a gang as it needs."""
        begun = {gang_key(pod) for pod in self._placed} - {None}
        for pod in sorted(left, key=lambda it: (_order(it)[0], gang_key(it) not in begun)):
            gang = gang_key(pod)
            together = [pod]
            if gang is not None and gang not in begun:
                together = [it for it in left if gang_key(it) == gang][: GANGS[gang[1]]]
                if len(together) < GANGS[gang[1]]:
                    continue
            if self._fit(together):
                return together
        return []

    def _fit(self, together: list[Json]) -> bool:
        """Give them cards, all or none."""
        before = len(self._placed)
        for pod in together:
            answer = self._ask(pod)
            if answer["node"] is None:
                for other in together:
                    if self.nodes.pop(other["metadata"]["uid"], None):
                        self._book.release(other["metadata"]["uid"])
                del self._placed[before:]
                return False
            self._give(pod, answer)
        return True

    def _ask(self, pod: Json) -> Json:
        held = self._model.cluster.objects
        offered = offered_to(pod, self._book, self._gpunodes)
        self._model.tally.quiet["questions of the queue"] += 1
        return oracle.place(
            pod, offered, self._placed, held["ResourceQuota"].values(), held["Node"].values()
        )

    def _give(self, pod: Json, answer: Json) -> None:
        uid, node = pod["metadata"]["uid"], answer["node"]
        request: Any = request_of(pod, Settings())
        annotations = {**pod["metadata"]["annotations"], ALLOCATED: answer["annotation"]}
        if request.signature.exclusive:
            annotations[EXCLUSIVE_HELD] = "true"
        given = {
            **pod,
            "metadata": {**pod["metadata"], "annotations": annotations},
            "spec": {**pod["spec"], "nodeName": node},
        }
        self._placed.append(given)
        self._book.take(uid, node, load_of(pod))
        self.nodes[uid] = node


def offered_to(pod: Json, book: NodeBook, gpunodes: Iterable[Json]) -> list[Json]:
    """GPUNodes, offering nothing where kube-scheduler's rules refuse the Pod."""
    needs = Needs(pod)
    return [closed(it) if book.refusal(needs, it["metadata"]["name"]) else it for it in gpunodes]


def _order(pod: Json) -> tuple[int, str, str, str]:
    metadata = pod["metadata"]
    priority = pod["spec"].get("priority", 0)
    return -priority, metadata["creationTimestamp"], metadata["name"], metadata["namespace"]
