"""Everything that may happen, one function a kind of step, with how often it does.

Each draws what it needs, and acts on the running loop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

import build
from cardwise.ledger import HOLD_SECONDS, Stage
from cardwise.names import Door
from cardwise.wire.pods import bound_node
from controllers import passing
from machine import laws, quiet
from machine.cluster import FAULTS, OUTCOMES
from machine.fleet import CHANGES, NODES
from machine.streams import KINDS, Stream
from machine.tally import ELSEWHERE, KILLED, RESTARTS, SCHEDULER, STOPPED, TOGETHER

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]
Act = Callable[["Model", st.DataObject], Awaitable[None] | None]
MOST_PODS = 12
NAMESPACES = ("default", "team")
QUOTAS: dict[str, Json] = {
    "none": {},
    "no more": {},
    "little memory": {"gpumem": 1500},
    "memory": {"gpumem": 9000},
    "cores": {"gpucores": 60},
}
TERMINATES_SECONDS = 30.0


@dataclass(frozen=True)
class Step:
    """A kind of step."""

    name: str
    weight: int
    is_possible: Callable[["Model"], object]
    act: Act


ALL: dict[str, Step] = {}


def step(
    name: str, weight: int, when: Callable[["Model"], object] = lambda _: True
) -> Callable[[Act], Act]:
    """Register a kind of step."""

    def register(act: Act) -> Act:
        ALL[name] = Step(name, weight, when, act)
        return act

    return register


# kube-scheduler -----------------------------------------------------------------------------------


@step("bind", 40, lambda model: model.scheduler.reserved)
def bind(model: "Model", data: st.DataObject) -> None:
    uid = data.draw(st.sampled_from(list(model.scheduler.reserved)), label="UID")
    outcome = data.draw(st.sampled_from(["success"] * 12 + sorted(OUTCOMES)), label="outcome")
    elsewhere = data.draw(st.sampled_from([None] * 12 + sorted(NODES)), label="elsewhere")
    model.cluster.expect(uid, outcome)
    model.scheduler.bind(uid, elsewhere)


@step("filter", 24, lambda model: model.scheduler.queue)
def ask(model: "Model", data: st.DataObject) -> None:
    uid = data.draw(st.sampled_from(list(model.scheduler.queue)), label="UID")
    nominated = data.draw(st.sampled_from([None] * 4 + sorted(NODES)), label="nominated")
    model.scheduler.ask(uid, nominated=nominated)


@step("another plugin refuses", 22, lambda model: model.scheduler.reserved)
def another_plugin_refuses(model: "Model", data: st.DataObject) -> None:
    model.scheduler.refuse(data.draw(st.sampled_from(list(model.scheduler.reserved)), label="UID"))


@step("another plugin allows", 60, lambda model: model.scheduler.away)
def another_plugin_allows(model: "Model", _data: st.DataObject) -> None:
    model.scheduler.come_back()


@step("preempt", 30, lambda model: model.scheduler.pool)
def preempt(model: "Model", data: st.DataObject) -> None:
    """Ask on which nodes it would help to evict, and perhaps evict there."""
    uid = data.draw(st.sampled_from(list(model.scheduler.pool)), label="UID")
    most = data.draw(st.sampled_from([1, 10]), label="victims a node")
    tenants = model.pods(bound=True)
    victims = {node: [it for it in tenants if bound_node(it) == node][:most] for node in NODES}
    uids = {node: [it["metadata"]["uid"] for it in pods] for node, pods in victims.items()}
    before = laws.counted(model)
    kept = model.process.preempt(model.scheduler.pods[uid], uids)
    assert laws.counted(model) == before, "asking about preemption changed the ledger"
    assert set(kept) <= set(victims)
    if kept and data.draw(st.booleans(), label="evict"):
        for pod in victims[min(kept)]:
            terminate(model, pod, lingers=True)


@step("bound by another scheduler", 4, lambda model: model.pods(bound=False))
def bound_by_another_scheduler(model: "Model", data: st.DataObject) -> None:
    pod = data.draw(st.sampled_from(model.pods(bound=False)), label="Pod")
    node = data.draw(st.sampled_from(sorted(NODES)), label="node")
    model.cluster.put({**pod, "spec": {**pod["spec"], "nodeName": node}})


# Users --------------------------------------------------------------------------------------------


def has_place(model: "Model", door: Door) -> bool:
    """Whether one more Pod may come by this door."""
    return door in model.doors and len(model.cluster.alive()) < MOST_PODS


@step("create", 16, lambda model: has_place(model, Door.EXTENDER))
def create(model: "Model", data: st.DataObject) -> None:
    """Names come again, with other UIDs."""
    ask = data.draw(st.sampled_from(model.asks), label="asks for")
    namespace = data.draw(st.sampled_from(NAMESPACES), label="namespace")
    model.put_pod(f"p{data.draw(st.integers(0, 11), label='name')}", namespace, ask)


@step("delete", 3, lambda model: model.cluster.alive())
def delete(model: "Model", data: st.DataObject) -> None:
    pod = data.draw(st.sampled_from(model.cluster.alive()), label="Pod")
    lingers = bool(bound_node(pod)) or data.draw(st.booleans(), label="has a finalizer")
    terminate(model, pod, lingers=lingers)


def terminate(model: "Model", pod: Json, *, lingers: bool) -> None:
    """Delete a Pod; one that lingers is there for some time yet, and holds its cards."""
    if not lingers:
        model.remove(pod)
    elif not pod["metadata"].get("deletionTimestamp"):
        metadata = {**pod["metadata"], "deletionTimestamp": build.REPORTED_AT}
        model.cluster.put({**pod, "metadata": metadata})
        model.loop.call_later(TERMINATES_SECONDS, model.remove, pod)


@step("force delete", 3, lambda model: model.cluster.alive())
def force_delete(model: "Model", data: st.DataObject) -> None:
    model.remove(data.draw(st.sampled_from(model.cluster.alive()), label="Pod"))


@step("finish", 7, lambda model: model.pods(bound=True))
def finish(model: "Model", data: st.DataObject) -> None:
    pod = data.draw(st.sampled_from(model.pods(bound=True)), label="Pod")
    phase = data.draw(st.sampled_from(["Succeeded", "Failed"]), label="phase")
    model.cluster.put({**pod, "status": {**pod["status"], "phase": phase}})
    model.loop.call_later(2 * TERMINATES_SECONDS, model.remove, pod)


@step("quota change", 4)
def change_quota(model: "Model", data: st.DataObject) -> None:
    namespace = data.draw(st.sampled_from(NAMESPACES), label="namespace")
    hard = QUOTAS[data.draw(st.sampled_from(sorted(QUOTAS)), label="quota")]
    if hard:
        model.cluster.put(build.quota(namespace, **hard))
    elif namespace in model.quotas():
        model.cluster.remove("ResourceQuota", "quota", namespace)


@step("GPUNode change", 6)
def change_gpunode(model: "Model", data: st.DataObject) -> None:
    """As often as not, what was changed before is undone, so that there is room at all."""
    changed = model.fleet.changed()
    if changed and data.draw(st.booleans(), label="undo"):
        node, what, card = data.draw(st.sampled_from(changed), label="change")
    else:
        node = data.draw(st.sampled_from(sorted(NODES)), label="node")
        what = data.draw(st.sampled_from(CHANGES), label="what")
        card = data.draw(st.integers(0, 2), label="card")
    model.fleet.change(node, what, card)


# Processes, and time ------------------------------------------------------------------------------


@step("restart", 3, lambda model: model.is_up)
async def restart(model: "Model", data: st.DataObject) -> None:
    what = data.draw(st.sampled_from(RESTARTS[model.tally.door]), label="what")
    model.tally.restarts[what] += 1
    if what in (KILLED, TOGETHER) and model.scheduler.reserved:
        # In the midst of a Binding, which is carried out when its successor is there already.
        uid = next(iter(model.scheduler.reserved))
        model.cluster.expect(uid, "no answer, carried out at the deadline")
        model.scheduler.bind(uid)
        await passing(data.draw(st.sampled_from([0.01, 1.0]), label="killed after"))
    if what == STOPPED:
        await model.process.stop()
    elif what in (KILLED, TOGETHER):
        await model.process.kill()
    elif what == ELSEWHERE:
        model.process.lose_lease(data.draw(st.sampled_from([1.0, 8.0, 20.0]), label="for"))
        model.pins.broken_off()
    if what in (STOPPED, KILLED, TOGETHER):
        model.pins.forget()
    if what in (SCHEDULER, TOGETHER):
        model.scheduler.kill(released=data.draw(st.booleans(), label="Lease is released"))
    await passing(data.draw(st.sampled_from([0.0, 3.0, 12.0, 25.0, 25.0]), label="seconds"))


@step("hold expiry", 20, lambda model: laws.staged(model, Stage.HELD))
async def expire_holds(model: "Model", _data: st.DataObject) -> None:
    """Nobody comes back for 15 minutes."""
    await passing(HOLD_SECONDS + 2.0)
    assert laws.staged(model, Stage.HELD) == [], "held for ever"


@step("time passes", 14)
async def wait(_model: "Model", data: st.DataObject) -> None:
    moments = [0.01, 0.03, 0.03, 0.06, 0.06, 0.5, 1.0, 3.0, 10.0]
    await passing(data.draw(st.sampled_from(moments), label="seconds"))


def someone_waits(model: "Model") -> bool:
    return bool(model.scheduler.pods or model.behind_gates())


def _nothing() -> None:
    """No room grows."""


@step("rest", 7, lambda model: model.process.is_active and someone_waits(model))
async def rest(model: "Model", data: st.DataObject) -> None:
    """Everybody was asked for; room grows where kube-scheduler does not see it; nothing else is."""
    remove, change = model.cluster.remove, model.fleet.change
    quotas = [partial(remove, "ResourceQuota", "quota", it) for it in model.quotas()]
    undone = [partial(change, *it) for it in model.fleet.changed()]
    kind = data.draw(st.sampled_from([[_nothing], *filter(None, [quotas, undone])]), label="kind")
    grow = data.draw(st.sampled_from(kind), label="room")
    killed = data.draw(st.sampled_from([False, False, True]), label="controller is away")
    for uid in list(model.scheduler.queue):
        model.scheduler.ask(uid)
    model.cluster.forgive()
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="wakes that fail")):
        model.cluster.fail(*FAULTS["a wake is refused"])
    await quiet.rest(model, grow, killed=killed)


# The API server and its watches -------------------------------------------------------------------


@step("API fault", 3)
def fail(model: "Model", data: st.DataObject) -> None:
    verb, fault = FAULTS[data.draw(st.sampled_from(sorted(FAULTS)), label="fault")]
    model.cluster.fail(verb, fault)


@step("re-list", 3, lambda model: model.process.streams)
async def list_anew(model: "Model", data: st.DataObject) -> None:
    """A watch breaks; the controller lists everything 2 s later, and that may take a while."""
    kind = data.draw(st.sampled_from(KINDS), label="kind")
    slow = data.draw(st.sampled_from([0.005, 0.3, 1.0]), label="seconds a page of Pods")
    model.cluster.slow("unfinished_pods", slow)
    model.streams.list_anew(kind)
    if data.draw(st.booleans(), label="until it lists"):
        await passing(2.05)


def _coming(model: "Model", least: int = 1) -> list[Stream]:
    """The watches on which so many events are on their way, and may go astray."""
    if model.process.streams is None or model.is_watch_honest:
        return []
    return [it for it in model.streams.by_kind.values() if len(it.coming) >= least]


def _shown(model: "Model") -> list[Stream]:
    if model.process.streams is None or model.is_watch_honest:
        return []
    return [it for it in model.streams.by_kind.values() if it.shown]


@step("events lost", 10, _coming)
def lose_events(model: "Model", data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(_coming(model)), label="watch")
    stream.lose(data.draw(st.integers(1, 3), label="events"))


@step("events delayed", 3, lambda model: model.process.streams)
def delay_events(model: "Model", data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS), label="kind")
    seconds = data.draw(st.sampled_from([0.5, 5.0, 50.0]), label="seconds")
    model.streams.by_kind[kind].delay(seconds)


@step("event repeated", 7, _shown)
def repeat_event(model: "Model", data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(_shown(model)), label="watch")
    stream.repeat(data.draw(st.integers(0, len(stream.shown) - 1), label="event"))


@step("events re-ordered", 20, lambda model: _coming(model, 2))
def reorder_events(model: "Model", data: st.DataObject) -> None:
    data.draw(st.sampled_from(_coming(model, 2)), label="watch").reorder()
