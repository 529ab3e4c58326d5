"""Field reports, section E: races, double allocation, leaks.

Each test shows the kind of fault, at the cheapest level that can. Its docstring ends with the
change of the product that makes it red.
"""

import asyncio
from random import Random
from typing import Any

import pytest

import build
import plugin
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from cardwise.ledger import HOLD_SECONDS, Stage
from cardwise.names import ALLOCATED, SOURCE, SOURCE_HAMI, EventReason, Reason
from controllers import World, passing
from fakes.cluster import refused, unanswered
from reports import fixtures

Json = dict[str, Any]
G0, G1 = fixtures.uuid("g0"), fixtures.uuid("g1")


def full(name: str, **fields: Any) -> Json:
    """A Pod that leaves no room beside it on a T4."""
    return build.pod(name, **{"gpumem": 15000, **fields})


async def placed(world: World, pod: Json, *nodes: str) -> str:
    """/filter, then /bind at the node that it chose; the error of the latter."""
    return await world.bind(pod, world.chosen(pod, *(nodes or ("n1",))))


def allocation(world: World, name: str) -> str:
    """What was written on a Pod."""
    written = world.cluster.get("Pod", name, "default")["metadata"]["annotations"]
    return str(written[ALLOCATED])


@pytest.mark.parametrize("seed", range(10))
async def test_r42_two_pods_that_start_together_keep_each_its_own_slice(seed: int) -> None:
    """Identity decides, never the order of time: the API server checks the UID of a Binding.

    What a node makes of it: tests/e2e_node/test_starts.py, twenty Pods at once.
    Red: `Ledger.begin_binding` hands out the booking of the first held entry.
    """
    big, small = build.pod("big", gpumem=24576), build.pod("small", gpumem=600)
    card = build.card(0, uuid=G0, memoryMiB=40960)
    world = await World(build.gpunode("n1", [card]), big, small).load()
    turn = Random(seed)
    both = [big, small]
    for pod in turn.sample(both, 2):
        assert world.chosen(pod, "n1") == "n1"

    errors = await asyncio.gather(*(world.bind(pod) for pod in turn.sample(both, 2)))

    assert errors == ["", ""]
    assert allocation(world, "big") == f"{G0},NVIDIA,24576,0:;"
    assert allocation(world, "small") == f"{G0},NVIDIA,600,0:;"


@pytest.mark.parametrize(("count", "waiting"), [(16, 0), (17, 1)])
async def test_r43_sixteen_halves_at_once_are_two_on_each_of_eight_cards(
    count: int, waiting: int
) -> None:
    """A hold counts before anything is written, so the next answer sees it.

    On the real control plane: tests/e2e/test_crowd.py. Red: `Ledger.hold` charges nothing.
    """
    halves = fixtures.pods(count, gpumem=40960, policy="binpack")
    world = await World(*fixtures.a8(), *halves).load()

    answers = [world.filter(pod, "n1") for pod in halves]
    fit = [pod for pod, answer in zip(halves, answers, strict=True) if answer["NodeNames"]]
    assert await asyncio.gather(*(world.bind(pod) for pod in fit)) == [""] * len(fit)

    assert world.used() == {fixtures.uuid(f"a{card}"): 81920 for card in range(8)}
    assert count - len(fit) == waiting


async def test_r45_one_allocation_counts_once_however_often_it_is_told() -> None:
    """Our own write, its echo, a resync and a restart all leave the same total.

    Red: `NodeAccount.book` adds to what it has of that UID.
    """
    pod = build.pod("p1", gpumem=5000)
    world = await World(*fixtures.t4x1(), pod).load()
    assert await placed(world, pod) == ""
    echo = list(world.cluster.changes)
    for change in echo * 3:
        world.show(change)
    assert await world.mirror.reconcile(world.cluster) == 0
    assert (world.used(), world.ledger.view("n1").state.cards[0].used_slots) == ({G0: 5000}, 1)

    again = await world.restarted()

    assert (again.used(), again.ledger.view("n1").state.cards[0].used_slots) == ({G0: 5000}, 1)


async def test_r47_a_replica_that_has_not_listed_in_its_term_gives_nothing_away() -> None:
    """Before its first list it refuses to answer; a Pod whose card is taken waits after it.

    Terms, delays and A to B to A: tests/controller/test_activity.py, tests/e2e/test_replicas.py.
    Red: `Duty.refusal` does not ask whether the ledger is loaded.
    """
    first, second = full("p1"), full("p2")
    a = await World(*fixtures.t4x1(), first, second).load()
    assert await placed(a, first) == ""

    b = World(cluster=a.cluster)
    assert b.filter(second, "n1")["Error"]
    assert await b.bind(second)
    await b.load()

    assert b.filter(second, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.MEMORY}
    assert b.used() == {G0: 15000}


@pytest.mark.parametrize("status", [403, 422])
async def test_r49_a_binding_that_was_refused_leaves_no_phantom(status: int) -> None:
    """The refused node is free at once, and the Pod may go to the other one.

    Red: `Binder._over` tells the ledger that it was bound.
    """
    pod = full("p")
    world = await World(*fixtures.two_nodes(), pod).load()
    world.cluster.fail("bind", refused(status))
    error = await placed(world, pod, "n1", "n2")
    assert "refused" in error
    assert world.used("n1") == {}
    assert EventReason.BINDING_FAILED in await world.reasons()

    assert await placed(world, pod, "n2") == ""
    assert (world.used("n1"), world.used("n2")) == ({}, {"GPU-n2-g0": 15000})


async def test_r49_a_binding_without_an_answer_is_told_and_keeps_its_card_until_it_is_known() -> (
    None
):
    """It may land yet: given away, the card would have two tenants. It is sent again till then.

    Unlike the report says, no time frees it: docs/decisions/0005. Red: `_is_unknown` is never true.
    """
    pod, other = full("p"), full("q")
    world = await World(*fixtures.t4x1(), pod, other).load()
    world.cluster.fail("bind", *[unanswered(after=1.0)] * 8)
    error = await placed(world, pod)

    assert "not known yet" in error
    assert b"cardwise_bindings 1.0" in world.controller.metrics.render()
    assert world.filter(other, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.MEMORY}
    [(reason, note)] = [e for e in await world.events() if e[0] == EventReason.BINDING_FAILED]
    assert (reason, "not known yet" in note) == (EventReason.BINDING_FAILED, True)
    await passing(30.0)
    assert world.stage(pod) is Stage.BOOKED
    assert b"cardwise_bindings 0.0" in world.controller.metrics.render()


async def test_r49_a_hold_that_nobody_binds_is_given_back_and_said() -> None:
    """After fifteen minutes; an event on the Pod, and a count.

    Red: `Watchman.tick` tells nobody.
    """
    pod, other = full("p"), full("q")
    world = await World(*fixtures.t4x1(), *fixtures.load(), pod, other).load()
    world.chosen(pod, "n1")
    async with world.running():
        await passing(HOLD_SECONDS - 5)
        world.cluster.put(build.gpunode("n1", [build.card(0, uuid=G0)], reported_at="later"))
        world.deliver()
        assert world.filter(other, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.MEMORY}
        await passing(10)
        assert world.chosen(other, "n1") == "n1"
    assert b"cardwise_holds_expired_total 1.0" in world.controller.metrics.render()
    told = [note for reason, note in await world.events() if reason == EventReason.HOLD_EXPIRED]
    assert told == [
        "kube-scheduler did not bind the Pod within 15 min of its decision; the cards held for it"
        " are free again"
    ]


@pytest.mark.parametrize("seed", range(10))
async def test_r50_a_pod_that_is_deleted_right_after_its_decision_blocks_nobody(seed: int) -> None:
    """No lock on a Node: who comes next is placed at once, and no Node is written to for it.

    Red: `Ledger.see` does not believe the end of a Pod that is held.
    """
    delays = Random(seed)
    pods_ = [full(f"p{number}", gpus=2) for number in range(4)]
    world = await World(build.node_object("n1"), *fixtures.t4x2(), *pods_).load()
    for pod in pods_:
        world.chosen(pod, "n1")
        bound = asyncio.ensure_future(world.bind(pod)) if delays.random() < 0.5 else None
        await passing(delays.uniform(0.0, 0.2))
        world.cluster.remove("Pod", pod["metadata"]["name"], "default")
        if bound is not None:
            await bound
        world.deliver()

    assert world.used() == {}
    assert world.cluster.called("annotate_node") == 0


async def test_r51_a_missed_delete_heals_by_itself() -> None:
    """A list every five minutes, and two seconds after a watch was made anew; it is counted.

    With real watches: tests/e2e/test_watches.py. Red: `Ledger.reconcile` ends nobody.
    """
    tenant, waiting = fixtures.load(g0="1/15000/0")[0], full("w")
    world = await World(*fixtures.t4x1(), tenant, waiting).load()
    assert world.filter(waiting, "n1")["NodeNames"] == []
    world.cluster.remove("Pod", "g0-0", "default")
    world.cluster.changes.clear()  # nobody was told
    async with world.running():
        world.controller.watchman.doubt()
        await passing(3.0)
        assert world.used() == {}
        assert b"cardwise_ledger_repairs_total 1.0" in world.controller.metrics.render()
        assert world.chosen(waiting, "n1") == "n1"


@pytest.mark.parametrize("watched", [True, False], ids=["R51 by the watch", "R51 by a read"])
async def test_r51_what_finished_holds_nothing_whatever_keeps_its_object(watched: bool) -> None:
    """A Pod that ended, with finalizers and a deletion that hangs: its cards are free.

    Red: `is_finished` wants the Pod not to be terminating.
    """
    tenant = build.pod("t", node="n1", allocated=build.allocation(G0, mib=15000), terminating=True)
    tenant["metadata"]["finalizers"] = ["example.com/slow"]
    world = await World(*fixtures.t4x1(), tenant).load()
    assert world.used() == {G0: 15000}, "until its containers ended"

    finished = world.cluster.put({**tenant, "status": {"phase": "Failed"}})
    if watched:
        world.deliver()
    else:
        world.mirror.see_pod(finished)

    assert world.used() == {}
    assert (await world.restarted()).used() == {}, "a list does not bring it back"


async def test_r51_the_tenants_of_a_node_that_is_gone_count_until_they_are_gone() -> None:
    """The Node and its GPUNode may come back while its Pods are still there; nothing leaks after.

    Red: `Accounts.remove_gpunode` drops the bookings.
    """
    tenant, waiting = fixtures.load(g0="1/15000/0")[0], full("w")
    world = await World(build.node_object("n1"), *fixtures.t4x1(), tenant, waiting).load()
    world.cluster.remove("Node", "n1")
    world.cluster.remove("GPUNode", "n1")
    world.deliver()
    assert world.filter(waiting, "n1")["FailedAndUnresolvableNodes"] == {
        "n1": Reason.NODE_HAS_NO_CARDS
    }

    world.cluster.put(build.node_object("n1"))
    world.cluster.put(fixtures.t4x1()[0])
    world.deliver()
    assert world.used() == {G0: 15000}

    world.cluster.remove("Node", "n1")
    world.cluster.remove("GPUNode", "n1")
    world.cluster.remove("Pod", "g0-0", "default")  # as Kubernetes collects it
    world.deliver()
    assert world.ledger.node_names() == []
    assert [entry for entry in world.ledger.entries() if entry.booking] == []


async def test_r51_a_card_that_was_replaced_owes_nothing_of_the_old_ones_tenants() -> None:
    """Who a card is, its UUID says: the new one in the same slot is idle, the old one is not.

    Red: `NodeAccount._make_view` takes uses by index.
    """
    tenant = fixtures.load(g0="1/15000/0")[0]
    world = await World(*fixtures.t4x1(), tenant).load()
    world.cluster.put(build.gpunode("n1", [build.card(0, uuid="GPU-new")]))
    world.deliver()
    assert (world.used(), world.chosen(full("p"), "n1")) == ({}, "n1")

    world.cluster.put(build.gpunode("n1", [build.card(0, uuid=G0)]))
    world.deliver()
    assert world.used() == {G0: 15000}


async def test_r52_an_allocation_that_can_not_be_read_closes_its_node_and_no_user_can_do_that() -> (
    None
):
    """Fail closed where it counts, on a Pod that is bound; the same text elsewhere closes nothing.

    The whole node, not the card alone: docs/placement.md section 9. Who may write it at all: R37.
    Red: the mirror's sighting of it says nothing.
    """
    garbled = f"{G0},NVIDIA,abc,0:;"
    broken = build.pod("broken", node="n1", allocated=garbled)
    waiting, unbound = build.pod("w", gpumem=1000), build.pod("u", allocated=garbled)
    world = await World(*fixtures.t4x2(), unbound, waiting).load()
    assert world.chosen(waiting, "n1") == "n1"

    world.cluster.put(broken)
    world.deliver()

    assert world.filter(build.pod("x"), "n1")["FailedAndUnresolvableNodes"] == {
        "n1": Reason.NODE_UNREADABLE
    }
    assert EventReason.UNREADABLE_ALLOCATION in await world.reasons()


# Who is on a card past us -------------------------------------------------------------------------


def strangers(world: World) -> list[str]:
    """The lines of metrics about strangers."""
    rendered = world.controller.metrics.render().decode()
    names = ("cardwise_unmanaged_pods{", "cardwise_card_overbooked{")
    return [line for line in rendered.splitlines() if line.startswith(names)]


@pytest.mark.parametrize("late", [False, True], ids=["the GPUNode was there", "it came later"])
async def test_r08_a_pod_on_our_cards_without_an_allocation_is_noticed_and_said(late: bool) -> None:
    """By an event on the Pod, once, and a number for each node; gone with the Pod.

    Red: `Strangers.see_pod` returns where there is no allocation.
    """
    stranger = build.pod("s", node="n1")
    elsewhere = build.pod("e", node="n9")
    cpu = build.pod("cpu", gpus=None, node="n1")
    world = await World(*([] if late else fixtures.t4x1()), stranger, elsewhere, cpu).load()
    if late:
        assert strangers(world) == []
        world.cluster.put(fixtures.t4x1()[0])
        world.deliver()
        await world.mirror.reconcile(world.cluster)
    world.cluster.put(stranger)
    world.deliver()

    assert strangers(world) == ['cardwise_unmanaged_pods{node="n1"} 1.0']
    [(reason, note)] = await world.events()
    assert (reason, world.cluster.events()[0]["regarding"]["name"]) == ("UnmanagedPod", "s")
    assert "on node n1 without an allocation" in note

    world.cluster.remove("Pod", "s", "default")
    world.deliver()
    assert strangers(world) == []


async def test_r08_a_stranger_whose_end_nobody_told_is_forgotten_with_the_next_list() -> None:
    """Red: `Strangers.listed` forgets nobody."""
    world = await World(*fixtures.t4x1(), build.pod("s", node="n1")).load()
    await passing(1.0)
    world.cluster.remove("Pod", "s", "default")
    world.cluster.changes.clear()

    await world.mirror.reconcile(world.cluster)

    assert strangers(world) == []


async def test_r42_a_card_given_twice_by_others_is_said_before_its_agent_refuses_anything() -> None:
    """An event on the later of the two, and a number; no new Pod gets on; over when one goes.

    Red: `CardState.is_overbooked` is always false.
    """
    first, second = (
        build.pod(name, node="n1", allocated=build.allocation(G0, mib=10000)) for name in "ab"
    )
    world = await World(*fixtures.t4x1(), first).load()
    assert strangers(world) == []
    world.cluster.put(second)
    world.deliver()
    world.deliver()

    labels = f'device_index="0",device_type="NVIDIA-Tesla T4",device_uuid="{G0}"'
    assert strangers(world) == [f'cardwise_card_overbooked{{{labels},node="n1",zone="vGPU"}} 1.0']
    [(reason, note)] = await world.events()
    assert (reason, world.cluster.events()[0]["regarding"]["name"]) == ("CardOverbooked", "b")
    assert "2/10 slots, 20000/15360 MiB" in note

    world.cluster.remove("Pod", "a", "default")
    world.deliver()
    assert strangers(world) == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param({}, "its agent lets no Pod start that does not fit", id="R42 our agent's"),
        pytest.param(
            {SOURCE: SOURCE_HAMI},
            "HAMi's device plugin starts them all the same",
            id="R42 HAMi's: both schedulers at once",
        ),
    ],
)
async def test_r42_who_starts_pods_on_the_node_is_said_with_a_card_given_twice(
    source: Json, told: str
) -> None:
    """No agent of ours refuses anything where HAMi's device plugin hands out the cards.

    Red: `Strangers._tell_overbooked` tells each time of the agent.
    """
    gpunode = fixtures.t4x1()[0]
    gpunode["metadata"]["labels"] = source
    tenants = [
        build.pod(name, node="n1", allocated=build.allocation(G0, mib=10000)) for name in "ab"
    ]
    world = await World(gpunode, *tenants).load()

    [(_, note)] = await world.events()
    assert note.partition("did; ")[2].startswith(told)


@pytest.mark.parametrize(
    ("picked", "want"),
    [
        pytest.param("GPU-b-0", "GPU-a", id="R55 what kubelet picked is of no account"),
        pytest.param(None, "AllocationMismatch", id="R55 a card that is not there starts nothing"),
    ],
)
def test_r55_a_container_starts_with_the_card_that_is_booked_or_not_at_all(
    picked: str | None, want: str
) -> None:
    """Record and use can't differ: the cards come from the booking, after a check.

    On a real kubelet: tests/e2e_node/test_starts.py. Red: `judge` takes the cards of the ids.
    """
    text = build.allocation("GPU-a" if picked else "GPU-x")
    bound = build.pod("p", node="n1", phase="Pending", allocated=text)
    entries = (plugin.entry("p", "app", picked or "GPU-a-0"),)

    found = judge(plugin.uid("p"), [bound], entries, Node(cards=[plugin.card(0), plugin.card(1)]))

    if isinstance(found, Refusal):
        assert found.reason == want
    else:
        [edits] = found.values()
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == want
