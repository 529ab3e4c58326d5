"""Killed by -9 at the worst moments: exactly one of two Pods has the one card afterwards.

A proxy holds the call that is under way, so that a test knows when the controller was killed, and
fails where the kill came too late.
"""

import signal
from collections.abc import Iterator

import pytest

import fault_proxy
from bookings import in_cluster, in_ledger, samples
from cardwise.controller.lease.tenure import WRITE_SECONDS
from cardwise.names import Reason
from fault_proxy import FaultProxy
from stage import Stage, node_of


def takes_over(stage: Stage, winner: str = "p", loser: str = "q") -> None:
    """Exactly one of two Pods has the one card, and the ledger says so; then the other gets it."""
    stage.placed(winner)
    if loser not in stage.pods():
        stage.pod(loser, gpumem=1000, policy="mutex")
    stage.pending(loser, Reason.EXCLUSIVE)
    assert in_ledger(stage) == in_cluster(stage)
    assert len(in_cluster(stage)) == 1
    stage.delete(winner)
    stage.placed(loser, within=10)


def answered(stage: Stage, verb: str) -> int:
    """How many calls of kube-scheduler, or pins of our own, have come to their end."""
    told = samples(stage, "cardwise_decision_seconds_count")
    return int(sum(value for labels, value in told if labels["verb"] == verb))


# Between /filter and /bind ------------------------------------------------------------------------


@pytest.fixture
def door(stage: Stage) -> Iterator[FaultProxy]:
    """A proxy between kube-scheduler and the controller."""
    with FaultProxy(stage.cp, server=stage.extender_url, name="extender-proxy") as door:
        stage.controller.terminate()
        stage.start_controller()
        stage.scheduler.terminate()
        stage.scheduler = stage.cp.start_scheduler(extender_url=door.url)
        yield door
        stage.scheduler.terminate()
        stage.scheduler = stage.cp.start_scheduler(extender_url=stage.extender_url)


def killed_before_bind(stage: Stage, door: FaultProxy) -> None:
    """A Pod's cards are held, its /bind is under way, and the controller is killed; a new one."""
    stage.node("node-a", 1)
    door.next("/bind", fault_proxy.HOLD)
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.cp.wait("the proxy to hold /bind", lambda: door.held() is not None, 20)
    assert (answered(stage, "filter"), answered(stage, "bind")) == (1, 0)
    assert [value for _, value in samples(stage, "cardwise_holds")] == [1]
    assert stage.controller.poll() is None

    stage.controller.kill()

    assert door.held() is not None, "too late: /bind went on"
    assert stage.placement("p") is None
    stage.start_controller()
    assert in_ledger(stage) == set(), "the hold is lost"


@pytest.mark.parametrize("on", [True, False], ids=["arrives at the next", "is lost"])
def test_killed_between_filter_and_a_bind_that(stage: Stage, door: FaultProxy, on: bool) -> None:
    killed_before_bind(stage, door)

    door.release(on=on)

    takes_over(stage)


# Red: count no tenants (`NodeAccount.uses`).
def test_killed_between_filter_and_a_bind_that_arrives_when_another_pod_has_the_card(
    stage: Stage, door: FaultProxy
) -> None:
    killed_before_bind(stage, door)
    stage.pod("q", gpumem=1000, policy="mutex")
    stage.placed("q")

    door.release(on=True)

    takes_over(stage, winner="q", loser="p")


# In the middle of the write that gives the cards: a Binding, or a pin -----------------------------


def killed_in_a_write(stage: Stage, proxy: FaultProxy, fault: str) -> None:
    """The write that gives a Pod its cards is under way, and the controller is killed meanwhile."""
    stage.node("node-a", 1)
    if not stage.gates:
        # Else the watch would tell what came of the Binding before its answer does. By the door of
        # gates it is the watch that tells of the Pod.
        proxy.silence()
    proxy.next(**stage.write_of("p"), fault=fault)
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.cp.wait("the proxy to hold the write", lambda: proxy.held() is not None, 20)
    assert answered(stage, "pin" if stage.gates else "bind") == 0
    assert stage.controller.poll() is None

    stage.controller.kill()

    age = proxy.held()
    assert age is not None
    assert age < WRITE_SECONDS, "too late: the controller had given its first try up"


def restart(stage: Stage, proxy: FaultProxy) -> None:
    """A new controller, by the same way."""
    stage.start_controller(kubeconfig=proxy.through(stage.account))


@pytest.mark.both_doors
def test_killed_when_a_write_was_sent_and_never_arrived(stage: Stage, proxy: FaultProxy) -> None:
    killed_in_a_write(stage, proxy, fault_proxy.HOLD)
    assert stage.placement("p") is None
    proxy.release(on=False)

    restart(stage, proxy)
    takes_over(stage)


# Red: take no Pod from the first list (`Mirror.reconcile`).
@pytest.mark.both_doors
def test_killed_when_a_write_was_sent_and_arrives_afterwards(
    stage: Stage, proxy: FaultProxy
) -> None:
    killed_in_a_write(stage, proxy, fault_proxy.HOLD)
    assert stage.placement("p") is None
    proxy.release(on=True)
    stage.placed("p", within=5)  # though nobody lives who asked for it

    restart(stage, proxy)
    takes_over(stage)


# Red: as above.
@pytest.mark.both_doors
def test_killed_when_a_write_was_answered_and_nobody_heard_it(
    stage: Stage, proxy: FaultProxy
) -> None:
    killed_in_a_write(stage, proxy, fault_proxy.KEEP)
    assert node_of(stage.get("p")) is not None
    proxy.release(on=False)

    restart(stage, proxy)
    takes_over(stage)


# Red: name no version of the Pod in the pin (`pins.pin_patch`).
@pytest.mark.both_doors
def test_a_write_that_arrives_after_the_next_controller_placed_the_pod_changes_nothing(
    stage: Stage, proxy: FaultProxy
) -> None:
    killed_in_a_write(stage, proxy, fault_proxy.HOLD)
    restart(stage, proxy)
    stage.placed("p")
    before = stage.get("p")["metadata"]["annotations"]

    proxy.release(on=True)

    stage.pod("q", gpumem=1000, policy="mutex")
    stage.pending("q", Reason.EXCLUSIVE)
    assert stage.get("p")["metadata"]["annotations"] == before
    assert in_ledger(stage) == in_cluster(stage)


# Red: count a Pod's cards from when it is bound (`pods.placed_node`).
@pytest.mark.gates_alone
def test_killed_when_a_pod_had_its_cards_and_was_not_bound_yet(stage: Stage) -> None:
    stage.node("node-a", 1)
    stage.scheduler.signal(signal.SIGSTOP)  # nobody binds
    try:
        stage.pod("p", gpumem=1000, policy="mutex")
        stage.cp.wait("it to have its card", lambda: node_of(stage.get("p")), 20)

        stage.controller.kill()

        stage.start_controller()
        assert in_ledger(stage) == in_cluster(stage) != set()
        stage.pod("q", gpumem=1000, policy="mutex")
        stage.pending("q", Reason.EXCLUSIVE)
        assert stage.placement("p") is None
    finally:
        stage.scheduler.signal(signal.SIGCONT)

    takes_over(stage)
