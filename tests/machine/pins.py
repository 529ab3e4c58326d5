"""What holds of every pin: when it is sent, and when it opens a gate.

A law that is broken here is not raised: whoever wrote would take it for an answer of the API
server. "Red" as in ``laws``.
"""

from typing import TYPE_CHECKING, Any

from cardwise.ledger import Stage
from cardwise.names import GATE
from cardwise.noderules import Needs, NodeBook, load_of
from fakes.cluster import Change
from machine import laws
from machine.gated import GANGS, as_placed, gates, is_tight, pinned

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]
_LATENCY_SECONDS = 0.05
"""More than what an event takes, and a list that repeats what was on its way."""
_LANDS_SECONDS = 60.0
"""A pin without an answer may land for so long."""


class Pins:
    """Watches them for a walk."""

    def __init__(self, model: "Model") -> None:
        self._model = model
        self._placed: dict[str, str] = {}
        """By UID: where the cluster showed a Pod last."""
        self._disturbed: dict[str, float] = {}
        """By node: when something changed there that no pin did."""
        self._sent: dict[tuple[str, str], tuple[float, bool]] = {}
        """By UID and version: when the first was sent, and whether the watch was up to date."""
        self._unknown: dict[tuple[str, str], tuple[float, Json]] = {}
        """Likewise: pins that may land yet."""
        self.gang_sent = -1.0
        """When a pin of a gang was sent last."""

    def forget(self) -> None:
        """The controller was killed: its successor knows of no pin that may land yet."""
        self._unknown.clear()
        self.broken_off()

    def broken_off(self) -> None:
        """Whatever was under way may come to nothing."""
        self._model.disturbed_gangs.update(self._model.gang_of.values())

    def see(self, change: Change) -> None:
        """Note what else may make a node unfit."""
        now, metadata = self._model.loop.time(), change.object["metadata"]
        if change.kind == "Node":
            self._disturbed[metadata["name"]] = now
        if change.kind != "Pod":
            return
        if change.type == "DELETED" or metadata.get("deletionTimestamp"):
            self._disturb_gang(metadata["uid"])
            return
        node = as_placed(change.object)["spec"].get("nodeName")
        if node and self._placed.get(metadata["uid"]) != node:
            self._placed[metadata["uid"]] = node
            if not pinned(change.object):
                self._disturbed[node] = now

    # ports of the fake cluster --------------------------------------------------------------------

    def sent(self, patch: Json) -> None:
        """Look at a pin that is about to be sent."""
        now, which = self._model.loop.time(), _which(patch)
        if which[0] in self._model.gang_of:
            self.gang_sent = now
        self._sent.setdefault(which, (now, self._is_up_to_date(now)))
        if _is_pin(patch):
            self._check(self._repeats_word_for_word(which, patch, now))
            if self._unknown.get(which, (0.0, None))[1] != patch:  # else it is no new decision
                self._check(self._gang_is_whole(which[0]))

    def failed(self, patch: Json, *, is_known: bool) -> None:
        """A pin was refused, or nobody knows what became of it."""
        self._disturb_gang(patch["metadata"]["uid"])
        if _is_pin(patch) and not is_known:
            self._unknown[_which(patch)] = self._model.loop.time(), patch

    def landed(self, before: Json, after: Json) -> None:
        """Look at a gate that was opened."""
        if gates(before) != [GATE]:
            self._complain(f"a pin landed on {_name(before)}, which holds {gates(before)}")
        if pinned(after) and not is_tight(after):
            self._complain(f"{_name(after)} may go to other nodes than that of its cards")
        if pinned(after):
            self._check(self._node_takes_it(before, pinned(after) or ""))

    # Laws -----------------------------------------------------------------------------------------

    def _repeats_word_for_word(self, which: tuple[str, str], patch: Json, now: float) -> str:
        """While a pin may land yet, no other is sent for the same version of its Pod.

        A Pod that is gone is beyond every pin: a late event may have it pinned in vain.

        Red: ``Binder._failed`` calls ``_over`` where the outcome is not known.
        """
        known = self._unknown.get(which)
        if known is None or now - known[0] > _LANDS_SECONDS or known[1] == patch:
            return ""
        held = self._model.cluster.objects["Pod"].values()
        if which[0] not in {pod["metadata"]["uid"] for pod in held}:
            return ""
        return f"{which} may be pinned yet, and is pinned in another way"

    def _gang_is_whole(self, uid: str) -> str:
        """The first Pod of a gang is pinned only while cards are held for all that it needs.

        What comes between those pins and their landing (a conflict, a refusal, a crash) may leave
        some of them out: then the gang has begun, and the rest comes first, one by one.

        Red: ``Dispatcher._place_gang`` is never called, so its Pods go one by one;
        ``Holder.hold_gang`` returns who is held where the next is refused.
        """
        gang = self._model.gang_of.get(uid)
        if gang is None or self._model.process.world is None:
            return ""
        counted = laws.counted(self._model)
        stages = [
            counted[other][0]
            for other, key in self._model.gang_of.items()
            if key == gang and other != uid and other in counted
        ]
        has = sum(stage is not Stage.WAITING for stage in stages)
        if any(stage in (Stage.BINDING, Stage.BOOKED) for stage in stages):
            return ""
        size = GANGS[gang[1]]
        return "" if has + 1 >= size else f"{gang} begins with {has + 1} of its {size} Pods"

    def _node_takes_it(self, before: Json, node: str) -> str:
        """No pin to a node that refuses the Pod by kube-scheduler's rules, as far as was told.

        Red: ``Surroundings.decision`` drops nobody; ``Holder.hold`` does not ``_book.take``.
        """
        model, metadata = self._model, before["metadata"]
        sent, was_up_to_date = self._sent[metadata["uid"], metadata["resourceVersion"]]
        if not was_up_to_date or self._disturbed.get(node, -1.0) > sent - _LATENCY_SECONDS:
            model.tally.quiet["pins to nodes in motion"] += 1
            return ""
        refusal = fresh_book(model, without=metadata["uid"]).refusal(Needs(before), node)
        model.tally.quiet["pins held against node rules"] += 1
        return f"{_name(before)} is pinned to {node}, where: {refusal}" if refusal else ""

    # Steps ----------------------------------------------------------------------------------------

    def _is_up_to_date(self, now: float) -> bool:
        """Whether the controller was told of everything but the last moment."""
        streams = self._model.process.streams
        return (
            streams is not None
            and self._model.is_watch_honest
            and now - streams.began > _LATENCY_SECONDS
            and all(
                due >= now - 1e-6
                for stream in streams.by_kind.values()
                for due, _, _ in list(stream.coming)[:1]
            )
        )

    def _disturb_gang(self, uid: str) -> None:
        if uid in self._model.gang_of:
            self._model.disturbed_gangs.add(self._model.gang_of[uid])

    def _check(self, broken: str) -> None:
        if broken:
            self._complain(broken)

    def _complain(self, broken: str) -> None:
        self._model.complaints.heard.append(f"at a pin: {broken}")


def fresh_book(model: "Model", without: str = "") -> NodeBook:
    """Node rules made anew from the cluster."""
    book = NodeBook()
    for node in model.cluster.objects["Node"].values():
        book.apply_node(node)
    for pod in model.cluster.objects["Pod"].values():
        placed, uid = as_placed(pod), pod["metadata"]["uid"]
        is_finished = pod["status"]["phase"] in ("Succeeded", "Failed")
        if placed["spec"].get("nodeName") and uid != without and not is_finished:
            book.take(uid, placed["spec"]["nodeName"], load_of(pod))
    return book


def _which(patch: Json) -> tuple[str, str]:
    return patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]


def _is_pin(patch: Json) -> bool:
    """Not of a Pod that asks for no card."""
    return "affinity" in patch["spec"]


def _name(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']} ({metadata['uid']})"
