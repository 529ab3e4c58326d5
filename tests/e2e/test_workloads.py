"""Pods that somebody makes for people: Jobs, Deployments, StatefulSets and gangs, by each door.

kube-controller-manager's own controllers make them, and KWOK ends those of a Job.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

import build
import fault_proxy
from cardwise import names
from cardwise.names import EventReason, Reason
from fault_proxy import FaultProxy
from stage import Json, Placement, Stage, node_of

pytestmark = pytest.mark.both_doors

GROUPS: Final = {"Job": "batch/v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1"}
WHOLE_MIB: Final = 15360
"""Of a card."""
CLASSES = {"workloads-low": -10, "workloads-high": 1000}


@pytest.fixture(scope="module", autouse=True)
def priority_classes(theatre: Stage) -> Iterator[None]:
    """Classes by which Pods may preempt one another."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in CLASSES.items():
        theatre.cp.request("POST", path, {"metadata": {"name": name}, "value": value})
    yield
    for name in CLASSES:
        theatre.cp.request("DELETE", f"{path}/{name}")


@pytest.fixture
def stage(stage: Stage) -> Iterator[Stage]:
    """As elsewhere; at the end nobody makes Pods any more."""
    yield stage
    for kind in GROUPS:
        stage.cp.request("DELETE", f"{path(stage, kind)}?propagationPolicy=Background")


def path(stage: Stage, kind: str) -> str:
    return f"/apis/{GROUPS[kind]}/namespaces/{stage.namespace}/{kind.lower()}s"


def make(stage: Stage, kind: str, spec: Json, *, cpu: str | None = None, **fields: Any) -> None:
    """Make a workload ``w`` whose Pods are as `build.pod` builds them."""
    pod = build.pod(labels={"app": "w"}, **fields)
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    template_spec = {key: value for key, value in pod["spec"].items() if key != "schedulerName"}
    template_spec["terminationGracePeriodSeconds"] = 0
    if kind == "Job":
        template_spec["restartPolicy"] = "Never"
    else:
        spec = {**spec, "selector": {"matchLabels": {"app": "w"}}}
    if cpu is not None:
        template_spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
    template = {"metadata": metadata, "spec": template_spec}
    body = {"metadata": {"name": "w"}, "spec": {**spec, "template": template}}
    stage.cp.request("POST", path(stage, kind), body)


def status(stage: Stage, kind: str) -> Json:
    found: Json = stage.cp.request("GET", f"{path(stage, kind)}/w")
    return {**found["status"], "generation": found["metadata"]["generation"]}


def placements(stage: Stage) -> dict[str, Placement]:
    """Where every bound Pod of this test is that is not at its end."""
    return {
        name: placement
        for name, pod in stage.pods().items()
        if pod["status"]["phase"] == "Running"
        and (placement := stage.placement_of(pod)) is not None
    }


def cards(stage: Stage) -> list[int]:
    """The cards of node-a that have a tenant, once for each."""
    return sorted(card for placement in placements(stage).values() for card in placement.cards)


def fill(stage: Stage, kind: str, spec: Json, cards_: int) -> dict[str, Placement]:
    """A workload that has every card, a whole one for each of its Pods."""
    stage.node("node-a", cards_)
    make(stage, kind, spec, gpumem=WHOLE_MIB)
    stage.cp.wait("every card to be taken", lambda: cards(stage) == list(range(cards_)), 30)
    return placements(stage)


def test_a_job_gets_its_one_card_for_one_pod_after_the_other(stage: Stage) -> None:
    stage.node("node-a", 1)

    make(stage, "Job", {"parallelism": 2, "completions": 4}, gpumem=WHOLE_MIB)

    stage.cp.wait("it to be complete", lambda: status(stage, "Job").get("succeeded") == 4, 60)
    assert [names.ALLOCATED in pod["metadata"]["annotations"] for pod in stage.pods().values()] == [
        True
    ] * 4
    stage.settled()


@pytest.mark.parametrize("surge", [0, 1])
def test_a_rollout_on_full_cards_gives_the_old_ones_cards_to_the_new(
    stage: Stage, surge: int
) -> None:
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}
    before = fill(stage, "Deployment", {"replicas": 4, "strategy": strategy}, 4)

    change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
    stage.patch(f"{path(stage, 'Deployment')}/w", change)

    def is_through() -> bool:
        found = status(stage, "Deployment")
        counts = {found.get(f"{each}Replicas") for each in ("updated", "available")}
        observed = found["observedGeneration"] == found["generation"]
        return observed and counts == {4} and found["replicas"] == 4

    stage.cp.wait("the rollout to be through", is_through, 60)
    assert cards(stage) == [0, 1, 2, 3]
    assert not before.keys() & placements(stage).keys()
    assert stage.legal() == []


def test_the_pod_of_a_statefulset_that_was_deleted_comes_back_to_its_card(stage: Stage) -> None:
    before = fill(stage, "StatefulSet", {"replicas": 3, "serviceName": "w"}, 3)
    uid = stage.get("w-1")["metadata"]["uid"]

    stage.cp.request("DELETE", stage.path("w-1"))

    def is_back() -> bool:
        pod = stage.pods().get("w-1")
        return pod is not None and pod["metadata"]["uid"] != uid and "nodeName" in pod["spec"]

    stage.cp.wait("it to be back", is_back, 30)
    stage.cp.wait("it to run", lambda: len(placements(stage)) == 3, 30)
    assert placements(stage) == before


def test_a_deployment_that_grows_takes_the_card_of_a_bare_pod_that_ends(stage: Stage) -> None:
    stage.node("node-a", 2)
    stage.pod("bare", gpumem=WHOLE_MIB)
    card = stage.placed("bare")
    make(stage, "Deployment", {"replicas": 2}, gpumem=WHOLE_MIB)
    stage.cp.wait("one of its Pods to run", lambda: cards(stage) == [0, 1], 30)
    (waits,) = stage.pods().keys() - placements(stage).keys()
    stage.pending(waits, Reason.MEMORY)

    stage.delete("bare")

    assert stage.placed(waits) == card


# Gangs --------------------------------------------------------------------------------------------

GANG_PODS, GANG_CARDS = 8, 2


# Red: decide for each Pod of a gang by itself (`Dispatcher._place`).
@pytest.mark.gates_alone
def test_a_gang_is_placed_all_at_once_and_not_at_all_while_one_card_is_missing(
    stage: Stage,
) -> None:
    for number in range(4):
        stage.node(f"node-{number}", 4)
    stage.pod("in-the-way", gpumem=1000)
    stage.placed("in-the-way")
    gang = {names.GANG: "training", names.GANG_SIZE: str(GANG_PODS)}

    make(
        stage,
        "StatefulSet",
        {"replicas": GANG_PODS, "serviceName": "w", "podManagementPolicy": "Parallel"},
        gpus=GANG_CARDS,
        gpumem=WHOLE_MIB,
        annotations=gang,
    )
    members = {f"w-{number}" for number in range(GANG_PODS)}
    told = f"Gang training: {GANG_PODS - 1} of {GANG_PODS} Pods would fit."
    stage.cp.wait("all to be there", lambda: members <= stage.pods().keys(), 20)
    stage.cp.wait("one to be told", lambda: any(told in note for note in notes(stage)), 20)
    stage.stays("w-0", 1)
    assert placed(stage) == {"in-the-way"}

    stage.delete("in-the-way")

    stage.cp.wait("all to be bound", lambda: placements(stage).keys() == members, 20)
    assert all(len(each.cards) == GANG_CARDS for each in placements(stage).values())
    assert stage.legal() == []


# Red: as above.
@pytest.mark.gates_alone
def test_a_gang_that_is_not_complete_holds_nothing(stage: Stage) -> None:
    stage.node("node-a", 2)
    gang = {names.GANG: "pair", names.GANG_SIZE: "2"}
    stage.pod("first", gpumem=WHOLE_MIB, annotations=gang)
    assert "1 of its 2 Pods are here" in stage.event("first", EventReason.GANG_INCOMPLETE)

    for name in ("other", "another"):
        stage.pod(name, gpumem=WHOLE_MIB)
        stage.placed(name)

    stage.pod("second", gpumem=WHOLE_MIB, annotations=gang)
    stage.stays("second", 1)
    assert placed(stage) == {"other", "another"}
    stage.delete("other")
    stage.stays("first", 1)
    stage.delete("another")
    assert {stage.placed("first"), stage.placed("second")} == {0, 1}


def placed(stage: Stage) -> set[str]:
    """The Pods of this test that have their cards."""
    return {name for name, pod in stage.pods().items() if node_of(pod) is not None}


def notes(stage: Stage) -> list[str]:
    """What the events of this test say."""
    events = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
    return [str(event.get("note")) for event in stage.cp.request("GET", events)["items"]]


# On the node that it was pinned to ----------------------------------------------------------------


def held(stage: Stage, proxy: FaultProxy, name: str) -> None:
    """Wait until the Pod is decided, and its pin is on its way."""
    stage.cp.wait(f"the pin of {name} to be held", lambda: proxy.held() is not None, 20)
    assert node_of(stage.get(name)) is None


def takes_cpu(stage: Stage, **spec: Any) -> None:
    """A Pod ``taker`` takes most of the CPU of node-a, and kube-scheduler knows."""
    stage.pod("taker", gpus=None, cpu="3", spec={"nodeName": "node-a", **spec})
    stage.cp.wait("it to run", lambda: stage.get("taker")["status"]["phase"] == "Running", 20)


@pytest.mark.gates_alone
def test_kube_scheduler_preempts_for_cpu_on_the_node_that_a_pod_was_pinned_to(
    stage: Stage, proxy: FaultProxy
) -> None:
    stage.node("node-a", 1, cpu="4")
    proxy.next(**stage.write_of("p"), fault=fault_proxy.HOLD)
    stage.pod("p", gpumem=1000, cpu="3", spec={"priorityClassName": "workloads-high"})
    held(stage, proxy, "p")
    takes_cpu(stage, priorityClassName="workloads-low")

    proxy.release(on=True)

    assert stage.placed_at("p").node == "node-a"
    stage.gone("taker")


OTHERS_GATE: Final = "test.example/hold"


# Red: never evict (`RefusedPods._evicts`).
@pytest.mark.gates_alone
def test_a_pod_that_is_refused_where_it_was_pinned_is_made_anew_and_goes_elsewhere(
    stage: Stage, proxy: FaultProxy
) -> None:
    stage.controller.terminate()
    quick = {"gates": {"refusedSeconds": 6}}
    stage.start_controller(kubeconfig=proxy.through(stage.account), settings=quick)
    stage.node("node-a", 1, cpu="4")
    make(stage, "Deployment", {"replicas": 1}, gpumem=1000, cpu="3", gates=(OTHERS_GATE,))
    (name,) = stage.cp.wait("its Pod", lambda: list(stage.pods()), 20)
    proxy.next(**stage.write_of(name), fault=fault_proxy.HOLD)
    open_others_gate(stage, name)
    held(stage, proxy, name)
    takes_cpu(stage)
    stage.node("node-b", 1, cpu="4")

    proxy.release(on=True)

    assert "Insufficient cpu" in stage.event(name, EventReason.PINNED_NODE_REFUSED, 20)
    stage.gone(name)
    (another,) = stage.cp.wait("another", lambda: stage.pods().keys() - {"taker"}, 20)
    open_others_gate(stage, another)
    assert stage.placed_at(another).node == "node-b"
    stage.settled()


def open_others_gate(stage: Stage, name: str) -> None:
    """Take the gate away that is not ours: until then nothing is decided about the Pod."""
    gates = [gate["name"] for gate in stage.get(name)["spec"]["schedulingGates"]]
    assert sorted(gates) == sorted([names.GATE, OTHERS_GATE])
    stage.patch(stage.path(name), {"spec": {"schedulingGates": [{"name": names.GATE}]}})
