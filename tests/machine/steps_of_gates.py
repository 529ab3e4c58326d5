"""What may happen beside where Pods wait behind gates; the other half of ``steps``."""

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from cardwise.names import GATE, Door
from machine.cluster import CHANGED, GONE, PIN_OUTCOMES, SLOW
from machine.fleet import NODE_CHANGES, NODES
from machine.gated import GANGS, OTHER_GATE, WISHES, gates, relabelled
from machine.steps import ALL, NAMESPACES, has_place, step

if TYPE_CHECKING:
    from machine.model import Model

__all__ = ["ALL"]

Json = dict[str, Any]
_PRIORITIES = (0, 0, 0, 0, 10, 100)
_FATES = ["success"] * 10 + [SLOW, CHANGED, GONE] * 2 + sorted(PIN_OUTCOMES)


def _has_gates(model: "Model") -> bool:
    return Door.GATES in model.doors


def _with_other_gates(model: "Model") -> list[Json]:
    return [pod for pod in model.behind_gates() if gates(pod) != [GATE]]


@step("create gated", 16, lambda model: has_place(model, Door.GATES))
def create_gated(model: "Model", data: st.DataObject) -> None:
    """As admission leaves a new Pod; sometimes another gate is there, too."""
    ask = data.draw(st.sampled_from(model.asks), label="asks for")
    uid = model.put_gated(
        f"g{data.draw(st.integers(0, 11), label='name')}",
        data.draw(st.sampled_from(NAMESPACES), label="namespace"),
        ask,
        data.draw(st.sampled_from(sorted(WISHES)), label="wishes"),
        priority=data.draw(st.sampled_from(_PRIORITIES), label="priority"),
        waits_for_other=data.draw(st.sampled_from([False] * 3 + [True]), label="other gate"),
    )
    model.cluster.expect(uid, data.draw(st.sampled_from(_FATES), label="its pin"))


@step("gang", 7, lambda model: has_place(model, Door.GATES))
def create_gang(model: "Model", data: st.DataObject) -> None:
    """Some Pods of a gang, or all that it needs, or one more."""
    name = data.draw(st.sampled_from(sorted(GANGS)), label="gang")
    namespace = data.draw(st.sampled_from(NAMESPACES), label="namespace")
    count = data.draw(st.sampled_from([1, GANGS[name], GANGS[name]]), label="Pods")
    ask = data.draw(st.sampled_from(model.asks), label="asks for")
    priority = data.draw(st.sampled_from(_PRIORITIES), label="priority")
    for number in range(count):
        uid = model.put_gated(
            f"{name}-{number}",
            namespace,
            ask,
            data.draw(st.sampled_from(["nothing more", "much CPU"]), label="wishes"),
            priority=priority,
            gang=name,
        )
        model.cluster.expect(uid, data.draw(st.sampled_from(_FATES), label="its pin"))


@step("Pod without cards", 4, lambda model: has_place(model, Door.GATES))
def create_without_cards(model: "Model", data: st.DataObject) -> None:
    """kube-scheduler binds it at once; it takes CPU."""
    name = f"c{data.draw(st.integers(0, 11), label='name')}"
    node = data.draw(st.sampled_from(sorted(NODES)), label="node")
    model.put_other(name, "default", node, data.draw(st.sampled_from(["1", "4"]), label="CPU"))


@step("other gate goes", 120, _with_other_gates)
def open_other_gate(model: "Model", data: st.DataObject) -> None:
    pod = data.draw(st.sampled_from(_with_other_gates(model)), label="Pod")
    left = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != OTHER_GATE]
    model.cluster.put({**pod, "spec": {**pod["spec"], "schedulingGates": left}})


@step("Pod changed", 5, lambda model: model.behind_gates())
def change_pod(model: "Model", data: st.DataObject) -> None:
    """By somebody who has nothing to do with us."""
    pod = data.draw(st.sampled_from(model.behind_gates()), label="Pod")
    model.cluster.put(relabelled(pod))


@step("fate of a pin", 6, lambda model: model.behind_gates())
def choose_fate(model: "Model", data: st.DataObject) -> None:
    pod = data.draw(st.sampled_from(model.behind_gates()), label="Pod")
    fate = data.draw(st.sampled_from(sorted(PIN_OUTCOMES)), label="its pin")
    model.cluster.expect(pod["metadata"]["uid"], fate)


@step("refused after the pin", 50, lambda model: model.pinned())
def refuse_after_pin(model: "Model", data: st.DataObject) -> None:
    """kube-scheduler finds the node full, for a while."""
    pod = data.draw(st.sampled_from(model.pinned()), label="Pod")
    model.stock.refuse(pod, data.draw(st.sampled_from([3.0, 30.0, 100.0]), label="seconds"))


@step("Node change", 6, _has_gates)
def change_node(model: "Model", data: st.DataObject) -> None:
    """What kube-scheduler's own rules look at; as often as not it is undone."""
    changed = [it for it in model.fleet.changed() if it[1] in NODE_CHANGES]
    if changed and data.draw(st.booleans(), label="undo"):
        node, what, _ = data.draw(st.sampled_from(changed), label="change")
    else:
        node = data.draw(st.sampled_from(sorted(NODES)), label="node")
        what = data.draw(st.sampled_from(NODE_CHANGES), label="what")
    model.fleet.change(node, what, 0)
