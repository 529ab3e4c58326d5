"""Field reports about nodes that come, go, fall ill and reject Pods, as a controller sees them."""

from typing import Any

import pytest

import build
import hami
from cardwise import names
from cardwise.names import GATE, Door, NodeEvent, Reason
from cardwise.settings import Migration, Rejections, Scheduling, Settings
from cardwise.wire import pods
from controllers import World, at_work, passing
from fakes.cluster import refused
from reports import fixtures

Json = dict[str, Any]
NO_DEVICES = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
    "unhealthy devices nvidia.com/gpu, which is unexpected"
)


def beat(world: World, *names_of_nodes: str, at: str) -> None:
    """The agents of these nodes report."""
    for name in names_of_nodes:
        document = world.cluster.get("GPUNode", name)
        document["status"]["reportedAt"] = at
        world.cluster.put(document)


def word(world: World, pod: Json, node: str = "n1") -> str | None:
    """Why /filter refuses a node; None where it is chosen."""
    answer = world.filter(pod, node)
    if answer["NodeNames"]:
        return None
    return str(answer["FailedAndUnresolvableNodes"][node])


def another() -> Json:
    """One more Pod, small."""
    return build.pod("q", gpumem=100)


def reject(
    world: World,
    pod: Json,
    reason: str = "UnexpectedAdmissionError",
    message: str = NO_DEVICES,
) -> None:
    """kubelet rejects a Pod that was bound to its node."""
    seen = world.cluster.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    seen["status"] = {"phase": "Failed", "reason": reason, "message": message}
    world.cluster.put(seen)


def start(world: World, pod: Json) -> None:
    """kubelet runs it."""
    seen = world.cluster.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    seen["status"] = {"phase": "Running"}
    world.cluster.put(seen)


async def bound(world: World, name: str, node: str = "n1", **fields: Any) -> Json:
    """A new Pod that is placed and bound there; it has not started."""
    pod = world.cluster.put(build.pod(name, **{"gpumem": 100, **fields}))
    assert world.chosen(pod, node) == node
    assert await world.bind(pod, node) == ""
    return pod


async def rejected(world: World, *names_of_pods: str, **why: str) -> None:
    """Pod after Pod is bound to n1 and rejected there."""
    for name in names_of_pods:
        reject(world, await bound(world, name), **why)
        await passing(1)


def counted(world: World, reason: str, node: str = "n1") -> float:
    """What the metric says."""
    sample = f'cardwise_pods_rejected_total{{node="{node}",reason="{reason}"}} '
    for line in world.controller.metrics.render().decode().splitlines():
        if line.startswith(sample):
            return float(line.removeprefix(sample))
    return 0.0


def told(world: World, reason: str) -> list[str]:
    """The notes of the events on Node n1 with that reason."""
    return [
        event["note"]
        for event in world.cluster.events()
        if event["reason"] == reason and event["regarding"]["kind"] == "Node"
    ]


async def test_r56_waiting_pods_are_placed_without_help_once_their_node_reports_again() -> None:
    """After a reboot Pods waited until somebody deleted them by hand.

    Red: ``NodeAccount.set_report`` leaves ``stale`` as it is; ``Accounts.apply_gpunode`` does not
    ``_compare``.
    """
    pod = build.pod("p1", gpumem=1000)
    async with at_work(*fixtures.t4x1(), build.node_object("n1"), pod) as world:
        await passing(200)
        refused = word(world, pod)
        await passing(60)
        before = world.cluster.called("annotate_node")

        beat(world, "n1", at="2026-11-30T12:10:00Z")
        await passing(5)

        assert refused == Reason.NODE_NOT_REPORTED
        assert world.cluster.called("annotate_node") == before + 1, "kube-scheduler is woken"
        assert world.chosen(pod, "n1") == "n1"


async def test_r57_a_rejected_pod_holds_nothing_at_once_and_is_counted() -> None:
    """A thousand Failed Pods piled up, and nobody knew where.

    Red: ``Reading.read`` takes ``deleted`` for nothing; ``RejectedPods._end`` never asks;
    ``rejection_of`` looks for the reason alone.
    """
    async with at_work(*fixtures.t4x1()) as world:
        pod = await bound(world, "p1", gpumem=15000)
        assert world.used() == {"GPU-g0": 15000}

        reject(world, pod)

        assert world.used() == {}
        await passing(2)
        assert counted(world, "UnexpectedAdmissionError") == 1
        assert word(world, build.pod("p2", gpumem=15000)) is None


@pytest.mark.parametrize(
    ("status", "label"),
    [
        pytest.param({"phase": "Succeeded"}, None, id="R57 a Job that ended well is no rejection"),
        pytest.param(
            {"phase": "Failed", "reason": "Error", "message": "exit code 1"},
            None,
            id="R57 a program that failed is no rejection",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "x" * 300, "message": "Pod was rejected: y"},
            "Other",
            id="R57 a reason that nobody knows makes no label of its own",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "OutOfexample.com/nic", "message": "Pod was rejected: y"},
            "OutOfExtendedResources",
            id="R57 another plugin's resource makes no label of its own",
        ),
    ],
)
async def test_r57_what_counts_as_rejected(status: Json, label: str | None) -> None:
    """Red: ``_REJECTED`` is the empty text; ``_word`` answers the reason as it is."""
    async with at_work(*fixtures.t4x1()) as world:
        pod = world.cluster.get("Pod", (await bound(world, "p"))["metadata"]["name"], "default")
        world.cluster.put({**pod, "status": status})
        await passing(2)

        text = world.controller.metrics.render().decode()

        assert ("cardwise_pods_rejected_total{" in text) == (label is not None)
        assert label is None or counted(world, label) == 1


async def test_r57_a_node_that_was_started_again_takes_no_pod_before_its_agent_reports() -> None:
    """Pods were sent there while the device plugin had not registered yet, and failed for good.

    Red: ``Mirror._take_node`` passes no ``boot_id``.
    """

    def booted(number: int) -> Json:
        node = build.node_object("n1")
        node["status"]["nodeInfo"] = {"bootID": f"boot-{number}"}
        return node

    pod = build.pod("p", gpumem=1000)
    async with at_work(*fixtures.t4x1(), booted(1), pod) as world:
        world.cluster.put(booted(1))
        same = word(world, pod)
        world.controller.ledger.drop_hold(pod["metadata"]["uid"], 0.0)
        world.cluster.put(booted(2))
        started = word(world, pod)
        await passing(5)
        before = world.cluster.called("annotate_node")
        beat(world, "n1", at="2026-11-30T12:10:00Z")
        await passing(5)

        assert (same, started, word(world, pod)) == (None, Reason.NODE_NOT_REPORTED, None)
        assert world.cluster.called("annotate_node") == before + 1, "who waits is woken"


async def test_r58_a_sick_card_takes_no_new_pod_and_its_tenants_stay_counted() -> None:
    """Two reports disagreed for a while, and a sick card was given out.

    Red: ``candidates._unhealthy`` answers False; ``NodeAccount.set_report`` drops the bookings of
    cards that are not healthy.
    """
    [gpunode] = fixtures.t4x2()
    async with at_work(gpunode, *fixtures.load(g0="1/1000/0")) as world:
        world.cluster.put(fixtures.changed(gpunode, 0, healthy=False, unhealthyReason="Xid 79"))
        two = word(world, build.pod("two", gpus=2, gpumem=1000))
        await bound(world, "one", policy="binpack", gpumem=1000)

        assert world.used() == {"GPU-g0": 1000, "GPU-g1": 1000}
        assert two == Reason.CARD_NOT_HEALTHY
        world.cluster.put(fixtures.changed(gpunode, slots=1, memoryMiB=500))
        view = world.ledger.view("n1")
        assert all(card.used_memory_mib == 1000 for card in view.state.cards)
        assert word(world, build.pod("late", gpumem=1)) == Reason.SLOTS, "nothing is less than 0"


def _taint(key: str, value: str = "") -> Json:
    return {"key": key, "value": value, "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("n1", "fields", "load", "goes_to"),
    [
        pytest.param(
            {"taints": [_taint("node.kubernetes.io/unreachable")]}, {}, [], "n2",
            id="R62 a node that is not ready (kube-controller-manager taints it so)",
        ),
        pytest.param({"unschedulable": True}, {}, [], "n2", id="R62 a node that is cordoned"),
        pytest.param(
            {"taints": [_taint("gpu", "x")]}, {}, [], "n2", id="R62 a taint that the Pod minds"
        ),
        pytest.param(
            {"taints": [_taint("gpu", "x")]},
            {"node_policy": "binpack", "spec": {"tolerations": [{"key": "gpu", "value": "x"}]}},
            fixtures.load("n1", several=True, g0="1/100/0"), "n1",
            id="R62 a taint that the Pod tolerates: the fuller node",
        ),
    ],
)  # fmt: skip
def test_r62_either_sign_of_a_closed_node_closes_it(
    n1: Json, fields: Json, load: list[Json], goes_to: str
) -> None:
    """A dead node's cards were still offered, from an annotation that nobody cleared.

    Red: ``noderules.nodes`` does not look at taints; nor at ``unschedulable``.
    """
    nodes = [build.node_object("n1", **n1), build.node_object("n2")]

    pod = fixtures.one(*fixtures.two_nodes(), *nodes, *load, build.pod("p", gpumem=100, **fields))

    assert pod["node"] == goes_to


@pytest.mark.parametrize("door", Door)
async def test_r62_a_node_whose_agent_is_silent_is_closed_though_its_node_is_ready(
    door: Door,
) -> None:
    """The other of the two signs, by both doors.

    Red: ``Watchman.tick`` does not call ``age_reports``.
    """
    nodes = [build.node_object(name, gpus=10) for name in ("n1", "n2")]
    settings = Settings(scheduling=Scheduling(door=door))
    load = fixtures.load("n1", several=True, g0="1/100/0")
    async with at_work(*fixtures.two_nodes(), *nodes, *load, settings=settings) as world:
        for minute in range(5):
            await passing(60)
            beat(world, "n2", at=f"2026-11-30T12:0{minute}:00Z")

        assert await _placed(world, door, "p") == "n2", "binpack would take n1"


async def _placed(world: World, door: Door, name: str, *nodes: str) -> str | None:
    """The node that a new Pod gets by a door; None where it waits."""
    if door is Door.GATES:
        pod = build.pod(name, gpumem=100, gates=[GATE], scheduler=names.DEFAULT_SCHEDULER)
        world.cluster.put(pod)
        await passing(2)
        return pods.placed_node(world.cluster.get("Pod", name, "default"))
    chosen = world.filter(build.pod(name, gpumem=100), *(nodes or ("n1", "n2")))["NodeNames"]
    return chosen[0] if chosen else None


async def test_r63_a_node_that_rejects_one_pod_after_the_other_is_closed_for_a_while() -> None:
    """Pods were made and rejected without an end: the node looked as free as before.

    Red: ``RejectedPods._judge`` does not ``close_node``; ``Rejections.limit`` is 6; ``_judge`` does
    not call ``_notes.tell``.
    """
    async with at_work(*fixtures.t4x1()) as world:
        await rejected(world, "p0", "p1", "p2", "p3")
        assert word(world, another()) is None
        world.ledger.drop_hold("uid-default-q", 0.0)
        await rejected(world, "p4")

        assert word(world, another()) == Reason.NODE_REJECTS_PODS
        [note] = told(world, NodeEvent.REJECTS_PODS)
        assert note == (
            "kubelet rejected Pod after Pod there, the last default/p4 with"
            " UnexpectedAdmissionError; the node is tried again after 60 s"
        )
        notes = [note for reason, note in await world.events() if reason == "NodeRejectsPods"]
        assert "n1: NodeRejectsPods (kubelet rejected Pod after Pod there" in notes[-1]


async def test_r63_it_opens_by_itself_and_who_waits_is_woken() -> None:
    """Red: ``Accounts.open_node`` does not ``_compare``; ``RejectedPods._tick`` does nothing."""
    async with at_work(*fixtures.t4x1(), build.node_object("n1")) as world:
        await rejected(world, *(f"p{number}" for number in range(5)))
        closed = word(world, another())
        await passing(50)
        before = world.cluster.called("annotate_node")
        still = word(world, another())
        await passing(15)

        assert (closed, still) == (Reason.NODE_REJECTS_PODS,) * 2
        assert world.cluster.called("annotate_node") == before + 1
        assert word(world, another()) is None
        assert told(world, NodeEvent.TAKES_PODS) == ["it takes new Pods again"]


async def test_r63_on_trial_one_rejection_closes_it_for_twice_as_long_up_to_a_bound() -> None:
    """Red: ``RejectingNodes.rejected`` does not double; it forgets ``closings`` when it opens."""
    settings = Settings(rejections=Rejections(limit=2, closedSeconds=60, longestClosedSeconds=200))
    lengths = []
    async with at_work(*fixtures.t4x1(), settings=settings) as world:
        await rejected(world, "a", "b")
        for number in range(4):
            seconds = 0
            while word(world, another()) is not None:
                await passing(1)
                seconds += 1
                beat(world, "n1", at=f"2026-11-30T12:00:00.{number}{seconds:04}Z")
            lengths.append(seconds)
            world.ledger.drop_hold("uid-default-q", 0.0)
            await rejected(world, f"c{number}")

    assert lengths == [pytest.approx(it, abs=3) for it in (60, 120, 200, 200)]


async def test_r63_a_pod_that_starts_in_between_clears_the_account() -> None:
    """A node where others start is no black hole, whatever one author's Pods do there.

    Red: ``RejectedPods.see_pod`` does not call ``started``.
    """
    async with at_work(*fixtures.t4x1()) as world:
        await rejected(world, "p0", "p1", "p2", "p3")
        start(world, await bound(world, "well"))
        await rejected(world, "p4", "p5", "p6", "p7")

        assert word(world, another()) is None


async def test_r63_a_pod_that_starts_while_it_is_closed_opens_it() -> None:
    """Red: ``RejectedPods.see_pod`` does not ``_open`` a node where ``started`` says closed."""
    async with at_work(*fixtures.t4x1()) as world:
        late = await bound(world, "late")
        await rejected(world, *(f"p{number}" for number in range(5)))
        closed = word(world, another())
        start(world, late)

        assert (closed, word(world, another())) == (Reason.NODE_REJECTS_PODS, None)


@pytest.mark.parametrize(
    ("reason", "message", "more"),
    [
        pytest.param(
            "NodeAffinity", "no label nvidia.com/gpu", {}, id="R63 the Pod's node selector"
        ),
        pytest.param("TopologyAffinityError", "", {}, id="R63 more cards than one NUMA node has"),
        pytest.param("OutOfcpu", "", {}, id="R63 CPU that was taken meanwhile"),
        pytest.param("SysctlForbidden", "", {}, id="R63 a sysctl that the Pod wants"),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to not enough cpus available to satisfy request: requested=4,"
            " available=2, which is unexpected",
            {},
            id="R63 whole CPUs that the Pod wants",
        ),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for"
            " nvidia.com/gpu.shared. Requested: 1, Available: 0, which is unexpected",
            {},
            id="R63 a resource whose name begins as ours",
        ),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to rpc error: code = Unknown desc = no, which is unexpected",
            {"example.com/nic": "1"},
            id="R63 another device that the Pod asks, too, whose plugin refuses",
        ),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for"
            " example.com/nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
            {},
            id="R63 a resource whose name ends as ours",
        ),
    ],
)
async def test_r63_nobody_can_close_a_node_for_others_by_pods_of_their_own(
    reason: str, message: str, more: Json
) -> None:
    """Red: ``rejection_of`` says ``of_cards`` of each ``UnexpectedAdmissionError``, or of all."""
    container = build.container(gpu=1, gpumem=100, limits=more, requests=more)
    async with at_work(*fixtures.t4x1()) as world:
        for number in range(9):
            pod = await bound(world, f"p{number}", containers=[container])
            reject(world, pod, reason, f"Pod was rejected: {message}")
            await passing(1)

        assert counted(world, reason) == 9
        assert word(world, another()) is None


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param(
            "OutOfnvidia.com/gpu", "Node didn't have enough resource", id="R63 fewer cards there"
        ),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to rpc error: code = Unavailable desc = connection refused, which"
            " is unexpected",
            id="R63 a plugin that does not answer",
        ),
        pytest.param(
            "UnexpectedAdmissionError",
            "Allocate failed due to cannot allocate unregistered device nvidia.com/gpu, which is"
            " unexpected",
            id="R63 a plugin that is not registered",
        ),
    ],
)
async def test_r63_what_counts_against_a_node(reason: str, message: str) -> None:
    """Red: ``_is_of_cards`` leaves out that case."""
    async with at_work(*fixtures.t4x1()) as world:
        names_of_pods = [f"p{number}" for number in range(5)]
        await rejected(world, *names_of_pods, reason=reason, message=f"Pod was rejected: {message}")

        assert word(world, another()) == Reason.NODE_REJECTS_PODS


async def test_r63_rejections_that_are_far_apart_close_nothing() -> None:
    """Red: ``RejectingNodes.rejected`` does not drop old times."""
    async with at_work(*fixtures.t4x1()) as world:
        for number in range(12):
            await rejected(world, f"p{number}")
            await passing(16)
            beat(world, "n1", at=f"2026-11-30T12:00:00.{number:06}Z")

        assert word(world, another()) is None


async def test_r63_limit_0_turns_it_off() -> None:
    """Red: ``rejected`` does not look at the limit."""
    settings = Settings(rejections=Rejections(limit=0))
    async with at_work(*fixtures.t4x1(), settings=settings) as world:
        await rejected(world, *(f"p{number}" for number in range(9)))

        assert word(world, another()) is None


async def test_r63_pods_that_ran_and_were_rejected_by_a_new_kubelet_close_nothing() -> None:
    """kubelet began anew, and its plugins were late: that is over when a Pod is decided.

    Red: ``_judge`` does not look at ``bound.started``.
    """
    async with at_work(*fixtures.t4x1()) as world:
        ran = [await bound(world, f"p{number}") for number in range(6)]
        for pod in ran:
            start(world, pod)
        for pod in ran:
            reject(world, pod)
        await passing(3)

        assert counted(world, "UnexpectedAdmissionError") == 6
        assert word(world, another()) is None


async def test_r63_by_the_door_of_gates_the_next_pods_go_elsewhere() -> None:
    """Red: ``NodeAccount._problem`` does not know ``rejects``."""
    nodes = [build.node_object(name, gpus=10) for name in ("n1", "n2")]
    load = fixtures.load("n1", several=True, g0="1/100/0")
    settings = Settings(scheduling=Scheduling(door=Door.GATES))
    async with at_work(*fixtures.two_nodes(), *nodes, *load, settings=settings) as world:
        for number in range(5):
            name = f"p{number}"
            assert await _placed(world, Door.GATES, name) == "n1"
            pod = world.cluster.get("Pod", name, "default")
            pod["spec"]["nodeName"] = "n1"  # the cluster's own kube-scheduler binds it
            world.cluster.put(pod)
            reject(world, pod)
            await passing(1)

        assert await _placed(world, Door.GATES, "next") == "n2"


async def test_r63_a_pod_that_can_not_be_read_is_asked_for_again_and_who_is_gone_is_not() -> None:
    """Red: ``_ask_again`` does not put it back."""
    async with at_work(*fixtures.t4x1()) as world:
        world.cluster.fail("pod", refused(500), refused(500), None)
        reject(world, await bound(world, "p0"))
        gone = await bound(world, "p1")
        await passing(20)
        asked = world.cluster.called("pod")
        terminating = world.cluster.get("Pod", "p1", "default")
        terminating["metadata"]["deletionTimestamp"] = build.REPORTED_AT
        world.cluster.put(terminating)
        world.cluster.remove("Pod", "p1", "default")
        await passing(20)

        assert counted(world, "UnexpectedAdmissionError") == 1
        assert (asked, world.cluster.called("pod")) == (3, 3)
        assert world.entry(gone) is None


async def test_r63_what_the_watch_missed_a_list_finds() -> None:
    """Red: ``RejectedPods.listed`` does nothing."""
    async with at_work(*fixtures.t4x1()) as world:
        pod = await bound(world, "p0")
        await passing(1)
        world.cluster.watch = lambda _: None
        reject(world, pod)
        await passing(310)  # every five minutes

        assert counted(world, "UnexpectedAdmissionError") == 1


CONFLICT = names.CONDITION_OWNER_CONFLICT


def _conditions(world: World) -> dict[str, tuple[str, str]]:
    status = world.cluster.get("GPUNode", "n1")["status"]
    return {it["type"]: (it["status"], it["message"]) for it in status.get("conditions", ())}


async def test_r67_a_second_owner_of_our_resource_is_told_on_gpunode_and_node() -> None:
    """NVIDIA's plugin came back with its operator; slot counts flipped, Pods failed.

    Red: ``Owners.compare`` takes every count; ``LASTING_SECONDS`` is 600; ``UsageWriter`` is given
    no ``conditions``.
    """
    async with at_work(*fixtures.t4x2(), build.node_object("n1", gpus=2)) as world:
        await passing(50)
        early = _conditions(world)
        await passing(60)
        late = _conditions(world)
        placed = word(world, another())
        world.cluster.put(build.node_object("n1", gpus=20))
        await passing(20)

        assert early == {}
        assert late[CONFLICT][0] == "True"
        assert late[CONFLICT][1].startswith("allocatable nvidia.com/gpu is 2, expected 20: another")
        assert [note[:33] for note in told(world, NodeEvent.OWNER_CONFLICT)] == [
            "allocatable nvidia.com/gpu is 2, "
        ]
        assert placed is None, "it is told, and closes nothing"
        assert _conditions(world) == {}


@pytest.mark.parametrize(
    ("allocatable", "sick"),
    [
        pytest.param(20, False, id="R67 kubelet has all our slots"),
        pytest.param(10, True, id="R67 kubelet leaves out those of a sick card"),
        pytest.param(0, False, id="R67 no device plugin is registered now"),
        pytest.param(None, False, id="R67 kubelet has never heard of it"),
    ],
)
async def test_r67_what_is_no_second_owner(allocatable: int | None, sick: bool) -> None:
    """Red: ``owners._advertised`` leaves out that number."""
    [gpunode] = fixtures.t4x2()
    if sick:
        gpunode = fixtures.changed(gpunode, 0, healthy=False)
    async with at_work(gpunode, build.node_object("n1", gpus=allocatable)) as world:
        await passing(170)

        assert _conditions(world) == {}
        assert told(world, NodeEvent.OWNER_CONFLICT) == []


async def test_r67_while_an_agent_is_silent_its_nodes_numbers_tell_nothing() -> None:
    """Red: ``owners._is_ours`` does not look at ``stale``."""
    async with at_work(*fixtures.t4x2(), build.node_object("n1", gpus=20)) as world:
        await passing(200)
        world.cluster.put(build.node_object("n1", gpus=2))
        await passing(100)

        assert _conditions(world) == {}


async def test_r67_until_a_node_that_was_started_again_reports_its_numbers_tell_nothing() -> None:
    """Red: ``owners._is_ours`` does not look at ``rebooted``."""

    def booted(number: int, gpus: int) -> Json:
        node = build.node_object("n1", gpus=gpus)
        node["status"]["nodeInfo"] = {"bootID": f"boot-{number}"}
        return node

    async with at_work(*fixtures.t4x2(), booted(1, 20)) as world:
        world.cluster.put(booted(2, 4))
        await passing(100)

        assert _conditions(world) == {}


async def test_r67_on_a_node_that_hami_serves_its_plugin_is_the_owner() -> None:
    """Red: ``owners._is_ours`` does not look at ``by_hami``."""
    settings = Settings(migration=Migration(hamiNodes=True))
    async with at_work(hami.node("n1", 2, gpus=2), settings=settings) as world:
        await passing(170)

        assert _conditions(world).keys() == {names.CONDITION_READY}
        assert told(world, NodeEvent.OWNER_CONFLICT) == []


async def test_r67_the_agents_own_conditions_stay_beside_it() -> None:
    """Red: ``UsageWriter`` applies as the agent's manager."""
    said = {"conditions": [{"type": "Ready", "status": "True", "message": "x"}]}
    async with at_work(*fixtures.t4x2(), build.node_object("n1", gpus=2)) as world:
        await world.cluster.apply_gpunode_status("n1", said, names.MANAGER_AGENT)
        await passing(120)

        assert set(_conditions(world)) == {"Ready", CONFLICT}
