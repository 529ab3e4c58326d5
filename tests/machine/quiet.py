"""The end of a run: all faults are over, and what was promised must have come true."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import build
import oracle
from cardwise.ledger import HOLD_SECONDS, Stage
from cardwise.names import Door
from cardwise.wire.allocation import encode
from cardwise.wire.pods import bound_node
from controllers import World, passing
from machine import laws, quiet_gates
from machine.pins import fresh_book
from machine.queue_oracle import offered_to

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]
_AUDIT_SECONDS = 303.0
"""A list every 5 minutes mends what no other sign told of."""
_STILL_SECONDS = 3.0
"""Nobody is asked for within so long: nobody will be. A wake comes within 1 s, and is then seen."""
_REST_SECONDS = 15.0
"""More than a wake-up takes whose first write has no answer: 10 s, and a second for the next."""
PROBES = 2


async def active(model: "Model") -> None:
    """The controller and kube-scheduler are at work."""
    await until(model, lambda: model.is_up, 60.0)


async def until(model: "Model", true: Callable[[], bool], seconds: float) -> None:
    deadline = model.loop.time() + seconds
    while not true():
        assert model.loop.time() < deadline, f"not within {seconds} s"
        await passing(0.5)


async def settle(model: "Model") -> None:
    """End all faults, let everybody finish, and look."""
    model.cluster.heal()
    await passing(_REST_SECONDS)  # a wake that is under way without an answer comes to its end
    model.fleet.speak()
    await active(model)
    for stream in model.streams.by_kind.values():
        stream.unblock()
    model.scheduler.come_back()
    model.stock.come_back()
    await quiet_gates.settle(model)
    await until(model, lambda: not any(map(_is_ending, model.cluster.objects["Pod"].values())), 62)
    await drain(model)
    if model.cluster.listed <= model.streams.spoilt:
        await passing(_AUDIT_SECONDS)
        assert model.cluster.listed > model.streams.spoilt
        await drain(model)
    if laws.staged(model, Stage.HELD):
        # Of Pods whose end nobody told us: a list never overrules a hold by absence (decision 6).
        model.tally.quiet["holds left to expire"] += 1
        await passing(HOLD_SECONDS + 2.0)
        await drain(model)
    await look(model)


async def rest(model: "Model", grow: Callable[[], None], *, killed: bool) -> None:
    """Let room grow in the midst of a walk, and see that nobody sleeps who could be placed.

    At the end of a walk one wake-up stands for many; here the one that was due must have come.

    Red: ``Accounts.set_bound`` or ``Accounts._compare`` sets no ``grew``; ``Waker.run`` does not
    try a failed wake again; ``Waker.begin`` does nothing; ``Mirror._take_quota`` keeps a quota
    that is gone.

    Args:
        model: the walk.
        grow: makes room, or does nothing.
        killed: the controller is not there meanwhile.
    """
    if killed:
        await model.process.kill()
        model.pins.forget()
    grow()
    await passing(_REST_SECONDS)
    before = laws.counted(model)
    await passing(_STILL_SECONDS)
    if (
        model.is_up
        and model.streams.are_still
        # All that it does not know is what it was not told, and what a list just now told it.
        and model.streams.spoilt < model.cluster.listed < model.loop.time() - _STILL_SECONDS
        and laws.counted(model) == before
    ):
        model.tally.quiet["rests undisturbed"] += 1
        others = nobody_sleeps_who_would_fit(model)
        quiet_gates.nobody_waits_who_would_fit(model, others)


def nobody_sleeps_who_would_fit(model: "Model") -> list[Json]:
    """Of those in kube-scheduler's pool none fits anywhere, with holds counted as bookings.

    Also holds of Pods whose end nobody told us: a list never overrules a hold by absence (decision
    6), so their cards come back when the hold expires.

    Returns:
        All Pods, each placed where it is held.
    """
    held = model.cluster.objects
    under_way = [
        entry
        for entry in _world(model).ledger.entries()
        if entry.stage in (Stage.HELD, Stage.BINDING) and entry.booking is not None
    ]
    uids = {entry.pod.uid for entry in under_way}
    others = [it for it in model.cluster.placed() if it["metadata"]["uid"] not in uids]
    others += [
        build.pod(
            entry.pod.name,
            namespace=entry.pod.namespace,
            uid=entry.pod.uid,
            node=entry.booking.node,
            allocated=encode(entry.booking.containers),
            exclusive_held=entry.booking.exclusive,
        )
        for entry in under_way
        if entry.booking is not None
    ]
    for uid in model.scheduler.pool:
        pod = model.scheduler.pods[uid]
        answer = oracle.place(
            pod,
            model.fleet.trusted(),
            others,
            held["ResourceQuota"].values(),
            held["Node"].values(),
        )
        model.tally.quiet["sleepers looked at"] += 1
        assert answer["node"] is None, f"{pod['metadata']} fits on {answer['node']}, and sleeps"
    return others


async def drain(model: "Model") -> None:
    """Let kube-scheduler go on, with nothing in its way, until nobody is left to be asked for."""
    scheduler = model.scheduler
    deadline = model.loop.time() + 200.0
    still = model.loop.time()
    while model.loop.time() - still < _STILL_SECONDS:
        assert model.loop.time() < deadline, f"they go on for ever: {list(scheduler.queue)}"
        if scheduler.queue or scheduler.reserved or scheduler.is_binding or is_pinning(model):
            still = model.loop.time()
        if laws.staged(model, Stage.BINDING):
            # A replica that lost the Lease meanwhile sends nothing again: it waits until the write
            # can't land any more, and only then are the cards given to anybody.
            still = model.loop.time()
        for uid in list(scheduler.queue):
            scheduler.ask(uid)
        for uid in list(scheduler.reserved):
            model.cluster.expect(uid, "success")
            scheduler.bind(uid)
        await passing(0.4)
        laws.no_card_is_over_its_capacity(model)
        laws.every_bound_pod_is_booked(model)


def is_pinning(model: "Model") -> bool:
    """Whether a pin is under way, or a pinned Pod is not bound yet."""
    return bool(model.pinned() or model.cluster.pinning.total())


async def look(model: "Model") -> None:
    """All that must be true when nothing happens any more."""
    world = model.process.world
    assert world is not None
    for law in (
        *laws.ALWAYS,
        nothing_is_under_way,
        no_booking_without_a_bound_pod,
        every_waiting_pod_that_would_fit_was_asked_for,
        preemption_is_judged_rightly,
        *quiet_gates.LAWS,
    ):
        law(model)
    await quiet_gates.the_queue_is_served_in_order(model)
    await freed_room_is_offered_again(model)
    # Red: `Binder._failed` looks into no 409.
    assert await world.mirror.reconcile(model.cluster) == 0, "a list found something to mend"


def nothing_is_under_way(model: "Model") -> None:
    """Every outcome was found out, and every hold came to an end.

    Red: ``Binder._look_and_send`` returns None where the Pod is gone; ``Ledger.expire_holds`` drops
    none.
    """
    assert laws.staged(model, Stage.BINDING) == []
    assert laws.staged(model, Stage.HELD) == []


def no_booking_without_a_bound_pod(model: "Model") -> None:
    """What is booked is what bound Pods have; with ``every_bound_pod_is_booked``, exactly that.

    Red: ``Ledger.reconcile`` does not ``_end`` what is not in the list.
    """
    bound = [pod["metadata"]["uid"] for pod in laws.tenants(model)]
    assert sorted(laws.staged(model, Stage.BOOKED)) == sorted(bound)
    model.tally.quiet["Pods bound"] += len(bound)


def every_waiting_pod_that_would_fit_was_asked_for(model: "Model") -> None:
    """Nobody sleeps in kube-scheduler's pool for whom there is room, by the oracle.

    Red: ``Waker.look`` does not set ``_due``; ``Accounts._discharge`` sets no ``grew``;
    ``Scheduler._refused`` tells the waker nothing; ``Standings.decision`` passes no room.
    """
    assert not model.scheduler.queue
    waiting = [pod for pod in model.pods(bound=False) if pod["metadata"]["uid"] not in model.gated]
    assert {pod["metadata"]["uid"] for pod in waiting} == set(model.scheduler.pool)
    for pod in waiting:
        answer = place(model, pod)
        assert answer["node"] is None, f"{pod['metadata']} fits on {answer['node']}, and waits"
        refused = _world(model).filter(pod, *sorted(model.scheduler.nodes))
        words = {name: each["reason"] for name, each in answer["nodes"].items()}
        assert refused["FailedAndUnresolvableNodes"] == words
    model.tally.quiet["Pods waiting"] += len(waiting)


def preemption_is_judged_rightly(model: "Model") -> None:
    """/preempt keeps the nodes where a waiting Pod would fit without all their tenants.

    Red: ``Scheduler.preempt`` leaves the victims in ``without`` out.
    """
    tenants = laws.tenants(model)
    here = {
        name: [it["metadata"]["uid"] for it in tenants if bound_node(it) == name]
        for name in sorted(model.scheduler.nodes)
    }
    for uid in list(model.scheduler.pool)[:2]:
        pod = model.scheduler.pods[uid]
        want = {
            name
            for name, victims in here.items()
            if place(model, pod, without=victims)["nodes"][name]["fits"]
        }
        assert set(_world(model).preempt(pod, dict(here))) == want
        model.tally.quiet["preemptions kept" if want else "preemptions refused"] += 1


async def freed_room_is_offered_again(model: "Model") -> None:
    """New Pods get what the oracle says that they get, card by card, and others once they end.

    Red: ``decide`` ranks the fullest node last where the policy says first.
    """
    for number in range(PROBES):
        ask = model.asks[(model.made + 5 * number) % len(model.asks)]
        if Door.EXTENDER in model.doors:
            uid = model.put_pod("probe", "default", ask)
        else:
            uid = model.put_gated("probe", "default", ask, "tolerates the taint")
        [pod] = [it for it in model.cluster.alive() if it["metadata"]["uid"] == uid]
        want = place(model, pod)
        await drain(model)
        [pod] = [it for it in model.cluster.alive() if it["metadata"]["uid"] == uid]
        assert bound_node(pod) == want["node"]
        if want["node"] is not None:
            assert laws.given(pod)[1] == [
                (position, card["uuid"], card["memoryMiB"], card["cores"])
                for position, cards in enumerate(want["containers"])
                for card in sorted(cards, key=lambda it: it["uuid"])
            ]
        model.tally.quiet["probes placed" if want["node"] else "probes refused"] += 1
        model.remove(pod)
        await drain(model)
        every_waiting_pod_that_would_fit_was_asked_for(model)
        quiet_gates.nobody_waits_who_would_fit(model)


def place(model: "Model", pod: Json, without: list[str] | None = None) -> dict[str, Any]:
    """What the oracle says."""
    held = model.cluster.objects
    others = [it for it in model.cluster.placed() if it["metadata"]["uid"] not in (without or ())]
    offered = list(held["GPUNode"].values())
    if pod["metadata"]["uid"] in model.gated:
        offered = offered_to(pod, fresh_book(model), offered)
    return oracle.place(pod, offered, others, held["ResourceQuota"].values(), held["Node"].values())


async def end() -> None:
    """Leave nothing behind on the loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _is_ending(pod: Json) -> bool:
    return bool(
        pod["metadata"].get("deletionTimestamp")
        or pod["status"]["phase"] in ("Succeeded", "Failed")
    )


def _world(model: "Model") -> World:
    assert model.process.world is not None
    return model.process.world
