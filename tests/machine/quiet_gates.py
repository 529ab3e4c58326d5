"""The end of a run for the door of gates; the other half of ``quiet``."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cardwise.names import Door
from controllers import World, passing
from machine import laws
from machine.gated import GANGS, OTHER_GATE, gang_key, gates
from machine.pins import fresh_book
from machine.queue_oracle import Served

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]
_PUT_OFF_SECONDS = 62.0
"""How long the controller may leave a Pod alone whose pin was refused."""
_GANG_SECONDS = 6.0
_RIVALS = (0, 10, 10, 5)
"""Priorities of Pods that want the same room."""


async def settle(model: "Model") -> None:
    """Let everybody be tried again whose pin was refused, and the other gates go."""
    for pod in model.behind_gates():
        if OTHER_GATE in gates(pod):
            left = [it for it in pod["spec"]["schedulingGates"] if it["name"] != OTHER_GATE]
            model.cluster.put({**pod, "spec": {**pod["spec"], "schedulingGates": left}})
    if model.cluster.put_off:
        await passing(_PUT_OFF_SECONDS)


def nobody_waits_who_would_fit(model: "Model", others: Iterable[Json] | None = None) -> None:
    """Of those behind our gate alone none fits, nor does any gang.

    Red: ``GatesDoor.grew`` does nothing; ``_read_again`` does not show the Pod; ``Tracker._end``
    releases nobody.

    Args:
        model: the walk.
        others: every Pod, placed where it is or will be; None: as in the cluster.
    """
    if model.loop.time() - model.pins.gang_sent < _GANG_SECONDS:
        return  # others are kept back while a gang is being pinned
    late = model.loop.time() - _PUT_OFF_SECONDS
    put_off = {uid for uid, when in model.cluster.put_off.items() if when > late}
    gangs = {model.gang_of[uid] for uid in put_off if uid in model.gang_of}
    everybody = model.cluster.placed() if others is None else others
    placed = [pod for pod in everybody if pod["spec"].get("nodeName")]
    served = put_off | {pod["metadata"]["uid"] for pod in placed}
    waiting = [
        pod
        for pod in model.waiting()
        if pod["metadata"]["uid"] not in served and gang_key(pod) not in gangs
    ]
    would_fit = Served(model, waiting, placed, model.fleet.trusted()).nodes
    assert would_fit == {}, f"they would fit, and wait: {would_fit}"
    model.tally.quiet["Pods behind the gate"] += len(waiting)


def node_rules_know_the_cluster(model: "Model") -> None:
    """The controller's book of nodes is one made anew from the cluster.

    Red: ``Dispatcher.unplaced`` does not ``release``; ``Tracker.listed`` ends nobody;
    ``Tracker.see_pod`` takes no Pods without cards.
    """
    parts = _world(model).controller.gates_door
    if parts is None:
        return
    kept, fresh = parts.dispatcher._book, fresh_book(model)
    assert _account(kept._taken, model) == _account(fresh._taken, model)
    assert kept._facts == fresh._facts


def _account(taken: Any, model: "Model") -> Any:
    own = model.process.own_uid
    return {uid: each for uid, each in taken.items() if uid != own}


def nothing_is_left_running(model: "Model") -> None:
    """No task, no timer of a Pod, no pin.

    Red: ``Dispatcher.pin_ended`` does not ``pop``.
    """
    world = _world(model)
    parts = world.controller.gates_door
    if parts is not None:
        assert parts.pinner._under_way == {}
        assert parts.pinner._later == {}
        assert parts.dispatcher._gang_pins == {}
        waiting = {it["metadata"]["uid"] for it in model.waiting()}
        differing = waiting.symmetric_difference(parts.dispatcher._queue.uids())
        assert not differing, f"{differing} wait in the cluster or in the queue, not in both"
    assert world.controller.binder._settling == set()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    names = Counter(str(getattr(task.get_coro(), "__name__", "")) for task in tasks)
    names -= Counter(_LASTING)
    assert not names, f"left running: {names}"


def gangs_are_placed_all_or_none(model: "Model") -> None:
    """A gang that waits has no Pod placed, or enough of them, unless something came between.

    That is a pin that did not go well at once, or the end of one of its Pods, or of the process.
    What breaks it is seen sooner by ``Pins``, when the gang begins.
    """
    for gang in set(model.gang_of.values()) - model.disturbed_gangs:
        members = [pod for pod in model.cluster.placed() if gang_key(pod) == gang]
        count = sum(bool(pod["spec"].get("nodeName")) for pod in members)
        assert count == 0 or count >= GANGS[gang[1]], f"{gang}: {count} Pods are placed"
        if members:
            model.tally.quiet["gangs whole" if count else "gangs waiting"] += 1


_LASTING = {
    "run": 12,
    "_ask": 1,
    "_tick": 1,
    "_renew": 1,
    "tick": 1,
    "audit": 1,
    "beat": 1,
    "tell_again": 1,
} | {
    "_write_waiting": 1,
    "_write_urgent": 1,
    "later": 9,
}
"""Coroutines that last as long as the controller, kube-scheduler, or the agents; and writes that
the API server has yet to carry out."""
LAWS: tuple[Callable[["Model"], None], ...] = (
    nobody_waits_who_would_fit,
    node_rules_know_the_cluster,
    nothing_is_left_running,
    gangs_are_placed_all_or_none,
)


async def the_queue_is_served_in_order(model: "Model") -> None:
    """Where room comes for some of those who wait, it goes to whom the queue says, card by card.

    All nodes are closed; rivals come, the last first, and a tenant goes; then all are opened in
    one moment.

    Red: ``_order`` leaves the priority out, or begins with the name; ``NodeBook.apply_node`` sets
    no ``grew``.
    """
    if Door.EXTENDER in model.doors or not model.gated:
        return
    changed = {node for node, what, _ in model.fleet.changed() if what == "Node cordoned"}
    closing = [node for node in model.fleet.machines if node not in changed]
    for node in closing:
        model.fleet.change(node, "Node cordoned", 0)
    await passing(0.5)
    ask = model.asks[model.made % len(model.asks)]
    for number, priority in reversed(list(enumerate(_RIVALS))):
        model.put_gated(f"rival-{number}", "default", ask, "tolerates the taint", priority=priority)
    for tenant in laws.tenants(model)[:1]:
        model.remove(tenant)
    await passing(0.5)
    waiting = model.waiting()
    for node in closing:
        model.fleet.change(node, "Node cordoned", 0)
    want = Served(model, waiting, model.cluster.placed(), model.fleet.trusted()).nodes
    await passing(8.0)
    uids = {pod["metadata"]["uid"] for pod in waiting}
    nodes = {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in model.cluster.placed()}
    got = {uid: node for uid, node in nodes.items() if node and uid in uids}
    assert got == want, f"served {got}, and the queue says {want}"
    model.tally.quiet["rivals served"] += len(want)
    model.tally.quiet["rivals waiting"] += len(waiting) - len(want)


def _world(model: "Model") -> World:
    assert model.process.world is not None
    return model.process.world
