"""The door of gates, over a fake cluster whose watch shows every write at once."""

import asyncio
from functools import partial
from typing import Any

import pytest

import build
from cardwise import names
from cardwise.ledger import Stage
from cardwise.names import GATE, Door, EventReason, NodeReason, Reason
from cardwise.settings import Events, GatesSection, Scheduling, Settings
from cardwise.wire import pods
from controllers import World, at_work, passing
from fakes.cluster import Fault, refused, unanswered

Json = dict[str, Any]
SETTINGS = Settings(scheduling=Scheduling(door=Door.GATES))
door = partial(at_work, settings=SETTINGS)
"""A controller that decides, over a cluster of these objects."""


def gated(name: str = "p", **about: Any) -> Json:
    """A Pod that waits behind our gate."""
    return build.pod(name, **{"gates": [GATE], "scheduler": "default-scheduler", **about})


def node(name: str = "n1", cards: int = 2, **about: Any) -> list[Json]:
    """A node with cards."""
    return [build.gpunode(name, cards), build.node_object(name, gpus=10 * cards, **about)]


def seen(world: World, pod: Json) -> Json:
    """The Pod as the cluster has it."""
    return world.cluster.get("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])


def where(world: World, pod: Json) -> str | None:
    """The node that a Pod is pinned to."""
    return pods.placed_node(seen(world, pod))


async def test_one_patch_gives_node_and_cards_and_opens_the_gate() -> None:
    pod = gated(gpumem=1000, policy="mutex,binpack")
    async with door(*node(), pod) as world:
        pinned = seen(world, pod)

        assert world.cluster.called("patch_pod") == 1
        assert "schedulingGates" not in pinned["spec"]
        assert pinned["spec"]["affinity"]["nodeAffinity"] == {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]
            }
        }
        written = pinned["metadata"]["annotations"]
        assert written[names.ALLOCATED] == "GPU-n1-a,NVIDIA,1000,0:;"
        assert written[names.VGPU_NODE] == "n1"
        assert world.stage(pod) is Stage.BOOKED
        assert world.used() == {"GPU-n1-a": 1000}
        assert (await world.reasons())[0] == EventReason.CARDS_ALLOCATED


async def test_the_name_is_added_to_every_term_of_an_affinity() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        },
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    }
    pod = gated(spec={"affinity": affinity})
    async with door(*node(labels={"zone": "b"}), *node("n2"), pod) as world:
        assert where(world, pod) == "n1"
        after = seen(world, pod)["spec"]["affinity"]
        required = after["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        pin = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
        assert required["nodeSelectorTerms"] == [{**term, "matchFields": pin} for term in terms]
        assert after["podAffinity"] == affinity["podAffinity"]


async def test_a_term_that_matches_no_node_stays_as_it_is() -> None:
    # The API server takes no addition to it. Red: `pin_patch` adds to every term.
    terms: list[Json] = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = gated(spec={"affinity": {"nodeAffinity": required}})
    async with door(*node(labels={"zone": "a"}), pod) as world:
        assert where(world, pod) == "n1"
        after = seen(world, pod)["spec"]["affinity"]["nodeAffinity"]
        pin = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
        assert after["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
            {**terms[0], "matchFields": pin},
            {},
        ]


async def test_a_freed_card_goes_to_who_waits_at_once() -> None:
    tenant = build.pod("t", node="n1", allocated="GPU-n1-a,NVIDIA,15360,0:;")
    pod = gated()
    async with door(*node(cards=1), tenant, pod) as world:
        assert where(world, pod) is None
        world.cluster.remove("Pod", "t", "default")
        await passing(0.001)
        assert where(world, pod) == "n1"


async def test_who_comes_to_a_kind_that_waits_is_told_at_once_and_undecided() -> None:
    # Red: `returned` tells nobody, so that only the minute's look would.
    async with door(*node(cards=1), gated("a", gpumem=16000)) as world:
        late = gated("b", gpumem=16000)
        world.cluster.put(late)
        await passing(1)

        entry = world.entry(late)
        assert entry is not None
        assert entry.reason is Reason.MEMORY


async def test_why_it_waits_is_told() -> None:
    tenant = build.pod("t", node="n1", allocated="GPU-n1-a,NVIDIA,1000,0:;")
    async with door(*node(cards=1), tenant, gated(policy="mutex")) as world:
        [(reason, note)] = await world.events()
        assert reason == Reason.EXCLUSIVE
        assert note == (
            "0/1 nodes can take 1 card with all its memory (policy mutex). "
            "n1: 1/1 ExclusiveDeviceAllocateConflict (GPU 0: default/t)."
        )


async def test_nodes_that_kube_scheduler_would_refuse_are_no_candidates() -> None:
    pod = gated()
    async with door(*node(unschedulable=True), *node("n2", pods="0"), pod) as world:
        assert where(world, pod) is None
        [(reason, note)] = await world.events()
        assert reason == NodeReason.UNSCHEDULABLE
        assert "n1: NodeUnschedulable" in note
        world.cluster.put(build.node_object("n1", gpus=20))
        await passing(0.001)
        assert where(world, pod) == "n1"


async def test_a_node_whose_agent_advertises_nothing_yet_is_waited_for() -> None:
    pod = gated(gpumem=1000)
    bare = build.node_object("n1")
    async with door(build.gpunode("n1", 2), bare, pod) as world:
        assert where(world, pod) is None
        [(reason, _)] = await world.events()
        assert reason == NodeReason.RESOURCE
        world.cluster.put(build.node_object("n1", gpus=20))
        await passing(0.001)
        assert where(world, pod) == "n1"


async def test_room_for_cpu_is_counted_of_pods_without_cards_and_of_pinned_ones() -> None:
    asks = {"requests": {"cpu": "2"}}
    busy = build.pod("cpu", gpus=None, node="n1", containers=[build.container(**asks)])
    first, second = (
        gated(name, containers=[build.container(gpu=1, gpumem=1000, **asks)]) for name in "ab"
    )
    async with door(*node(cpu="4"), busy, first, second) as world:
        assert (where(world, first), where(world, second)) == ("n1", None)
        world.cluster.remove("Pod", "cpu", "default")
        await passing(0.001)
        assert where(world, second) == "n1"


async def test_by_priority_then_creation_then_name() -> None:
    early, late = "2026-11-29T12:00:00Z", "2026-11-29T12:00:01Z"
    order = [
        gated("z", pod_priority=10, created=late),
        gated("b", created=early),
        gated("c", created=early),
        gated("a", created=late),
    ]
    tenants = [
        build.pod(f"t{card}", node="n1", allocated=f"GPU-n1-{card},NVIDIA,15360,0:;")
        for card in "abcd"
    ]
    async with door(*node(cards=4), *tenants, *reversed(order)) as world:
        for served, tenant in enumerate(tenants):
            assert [where(world, pod) for pod in order] == ["n1"] * served + [None] * (4 - served)
            world.cluster.remove("Pod", tenant["metadata"]["name"], "default")
            await passing(0.01)
        assert None not in [where(world, pod) for pod in order]


async def test_a_pod_that_does_not_fit_keeps_nobody_back() -> None:
    big, small = gated("a", gpus=3, pod_priority=5), gated("b")
    async with door(*node(), big, small) as world:
        assert (where(world, big), where(world, small)) == (None, "n1")


async def test_in_strict_order_it_does_until_it_goes() -> None:
    strict = Settings(scheduling=SETTINGS.scheduling, gates=GatesSection(strictOrder=True))
    big, small = gated("a", gpus=3, pod_priority=5), gated("b")
    async with door(*node(), big, small, settings=strict) as world:
        assert (where(world, big), where(world, small)) == (None, None)
        world.cluster.remove("Pod", "a", "default")
        await passing(0.01)
        assert where(world, small) == "n1"


async def test_who_is_kept_back_is_told_for_whom() -> None:
    # Red: `_keep_back` tells nobody.
    strict = Settings(scheduling=SETTINGS.scheduling, gates=GatesSection(strictOrder=True))
    big, small = gated("a", gpus=3, pod_priority=5), gated("b")
    async with door(*node(), big, small, settings=strict) as world:
        told = dict(await world.events())
        assert told[EventReason.KEPT_BACK] == (
            "Kept back by Pod default/a, which is before it in the queue and fits nowhere."
        )


@pytest.mark.parametrize(
    ("named", "who"),
    [
        pytest.param(True, "Pod default/a", id="by name"),
        pytest.param(False, "a Pod of another namespace", id="not by name, where that is not told"),
    ],
)
async def test_who_comes_behind_one_that_keeps_others_back_is_told_too(
    named: bool, who: str
) -> None:
    # Red: `_is_kept_back` tells nobody.
    strict = Settings(
        scheduling=SETTINGS.scheduling,
        gates=GatesSection(strictOrder=True),
        events=Events(nameTenants=named),
    )
    big, small = gated("a", gpus=3, pod_priority=5), gated("b", namespace="team")
    async with door(*node(), big, settings=strict) as world:
        world.cluster.put(small)
        await passing(0.1)
        world.cluster.put(gated("c", namespace="team"))
        await world.events()
        told = {each["regarding"]["name"]: each["note"] for each in world.cluster.events()}
        wanted = f"Kept back by {who}, which is before it in the queue and fits nowhere."
        assert (told["b"], told["c"]) == (wanted, wanted)


async def test_what_its_owner_has_to_mend_keeps_nobody_back() -> None:
    # Red: `_keep_back` looks at no reason.
    strict = Settings(scheduling=SETTINGS.scheduling, gates=GatesSection(strictOrder=True))
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}
    first, second = gated("a", pod_priority=5, spec=claim), gated("b")
    async with door(*node(), first, second, settings=strict) as world:
        assert (where(world, first), where(world, second)) == (None, "n1")


async def test_the_next_pod_of_an_owner_goes_where_the_last_was_not_refused() -> None:
    # Red: `Standing.decision` avoids nothing; `Evictions.avoided` says nothing.
    async with door(*node(), *node("n2")) as world:
        first = gated("a", owner="uid-owner", policy="mutex")
        world.cluster.put(first)
        await passing(0.1)
        refused_pod = seen(world, first)
        node_of_first = where(world, first)
        refused_pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
        ]
        world.cluster.put(refused_pod)
        await passing(70)
        second = gated("b", owner="uid-owner", policy="mutex")
        other = gated("c", owner="uid-another", policy="mutex")
        world.cluster.put(second)
        world.cluster.put(other)
        await passing(0.1)
        assert node_of_first == "n1"
        assert (where(world, second), where(world, other)) == ("n2", "n2")


async def test_while_others_hold_gates_it_is_left_alone() -> None:
    pod = gated(gates=["kueue.x-k8s.io/admission", GATE])
    async with door(*node(), pod) as world:
        assert world.cluster.called("patch_pod") == 0
        opened = seen(world, pod)
        opened["spec"]["schedulingGates"] = [{"name": GATE}]
        world.cluster.put(opened)
        await passing(0.001)
        assert where(world, pod) == "n1"


async def test_a_pod_changed_meanwhile_is_read_and_decided_again() -> None:
    pod = gated()
    async with door(*node(), pod) as world:
        other = gated("q", gpumem=500)
        world.cluster.slow("patch_pod", 0.5)
        world.cluster.put(other)
        await passing(0.1)
        changed = seen(world, other)
        changed["metadata"]["labels"]["team"] = "a"
        world.cluster.put(changed)
        await passing(2)
        assert where(world, other) == "n1"
        assert world.cluster.called("patch_pod") == 3


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(unanswered(lands=0.0), id="it landed"),
        pytest.param(unanswered(), id="it did not"),
        pytest.param(unanswered(lands=1.0), id="it lands late"),
        pytest.param(refused(500), id="status 500"),
        pytest.param(refused(429), id="status 429"),
    ],
)
async def test_a_pin_without_an_answer_is_found_out(fault: Any) -> None:
    pod = gated(gpumem=1000)
    async with door(*node()) as world:
        world.cluster.fail("patch_pod", fault)
        world.cluster.put(pod)
        await passing(10)
        assert where(world, pod) == "n1"
        assert world.stage(pod) is Stage.BOOKED
        assert world.used() == {"GPU-n1-a": 1000}


async def test_a_list_that_is_older_than_the_pin_changes_nothing() -> None:
    # Red: `is_given` asks the pinner alone.
    pod = gated()
    async with door(*node()) as world:
        before = world.cluster.put(pod)
        await passing(0.1)
        assert world.stage(pod) is Stage.BOOKED
        world.mirror.see_pod(before)
        await passing(1)
        assert world.cluster.called("patch_pod") == 1
        assert world.stage(pod) is Stage.BOOKED


async def test_a_pin_that_is_refused_again_and_again_is_tried_later_and_later() -> None:
    # Red: `_pin` drops the Pod instead of letting it leave the queue.
    async with door(*node()) as world:
        world.cluster.fail("patch_pod", *[refused(403, "no")] * 100)
        world.cluster.put(gated())
        await passing(100)
        assert 6 <= world.cluster.called("patch_pod") <= 8


async def test_while_it_may_not_act_it_looks_twice_a_second_however_many_come() -> None:
    # Red: `_look_again` leaves its earlier timers.
    async with door(*node()) as world:
        looked: list[float] = []
        duty = world.controller.duty
        duty.refusal = lambda: looked.append(0) or "no"  # type: ignore[method-assign,func-returns-value]
        for number in range(50):
            world.cluster.put(gated(f"p{number}"))
            await passing(0.01)
        looked.clear()
        await passing(10)
        assert len(looked) <= 31  # once a second it is the keeper of HAMi's nodes that looks


async def test_a_refused_pin_is_told_and_tried_again() -> None:
    pod = gated()
    async with door(*node()) as world:
        world.cluster.fail("patch_pod", refused(403, "no"), refused(403, "no"))
        world.cluster.put(pod)
        await passing(0.1)
        assert where(world, pod) is None
        assert world.used() == {}
        assert (EventReason.BINDING_FAILED, "the API server refused the pin: no") in (
            await world.events()
        )
        assert where(world, pod) == "n1"


async def test_a_pod_that_goes_while_it_is_pinned_holds_nothing() -> None:
    pod = gated()
    async with door(*node()) as world:
        world.cluster.slow("patch_pod", 0.5)
        world.cluster.put(pod)
        await passing(0.1)
        world.cluster.remove("Pod", "p", "default")
        await passing(5)
        assert world.used() == {}
        assert world.entry(pod) is None


async def test_a_pod_shown_late_as_it_was_before_its_pin_is_not_decided_again() -> None:
    async with door(*node()) as world:
        before = world.cluster.put(gated())
        world.cluster.watch = world.cluster.changes.append
        await passing(0.5)
        world.mirror.see_pod(before)  # by a list, say, that began before the pin
        await passing(0.5)
        assert world.stage(before) is Stage.BOOKED
        assert world.cluster.called("patch_pod") == 1


async def test_news_of_a_pod_that_is_being_pinned_anew_does_not_decide_it_twice() -> None:
    pod = gated()
    async with door(*node()) as world:
        world.cluster.slow("patch_pod", 0.05)
        world.cluster.put(pod)
        await passing(0.01)
        world.cluster.watch = world.cluster.changes.append
        world.cluster.put(relabelled(world, pod))
        await passing(0.06)  # the conflict is known, the Pod is read, and pinned again
        world.cluster.watch = world.show
        world.deliver()
        await passing(1)
        assert where(world, pod) == "n1"
        assert world.cluster.called("patch_pod") == 2


def relabelled(world: World, pod: Json) -> Json:
    """The Pod as somebody else changes it."""
    changed = seen(world, pod)
    changed["metadata"]["labels"]["team"] = "a"
    return changed


CPU = {"containers": [build.container(gpu=1, gpumem=1000, requests={"cpu": "3"})]}


async def test_a_pod_that_ended_before_its_pin_was_known_takes_no_room() -> None:
    pod, other = gated(**CPU), gated("q", **CPU)
    async with door(*node(cpu="4")) as world:
        world.cluster.fail("patch_pod", unanswered(lands=0.0, after=2.0))
        world.cluster.put(pod)
        await passing(1)
        ended = seen(world, pod)
        ended["status"]["phase"] = "Succeeded"
        world.cluster.put(ended)
        await passing(10)
        assert world.cluster.called("patch_pod") == 1
        world.cluster.put(other)
        await passing(0.1)
        assert where(world, other) == "n1"


async def test_a_pod_that_is_deleted_while_it_is_pinned_takes_no_room() -> None:
    pod, other = gated(**CPU), gated("q", **CPU)
    async with door(*node(cpu="4")) as world:
        world.cluster.slow("patch_pod", 0.5)
        world.cluster.put(pod)
        await passing(0.1)
        ending = seen(world, pod)  # a finalizer keeps it there
        ending["metadata"]["deletionTimestamp"] = build.REPORTED_AT
        world.cluster.put(ending)
        await passing(1)
        world.cluster.put(other)
        await passing(1)
        assert (where(world, pod), where(world, other)) == (None, "n1")


async def test_a_pod_that_is_gone_and_could_not_be_read_is_no_member_of_its_gang() -> None:
    first, second = gang(2, 2)
    async with door(*node()) as world:
        late = Fault(403, "no", after=0.5)
        world.cluster.fail("patch_pod", late, late)
        world.cluster.fail("pod", refused(500), refused(500))
        world.cluster.put(first)
        world.cluster.put(second)
        await passing(0.1)
        world.cluster.remove("Pod", "g0", "default")
        await passing(10)
        assert world.cluster.called("patch_pod") == 2
        assert where(world, second) is None


async def test_a_pod_without_cards_that_was_changed_meanwhile_is_let_through() -> None:
    pod = gated(gpus=0)
    async with door(*node()) as world:
        world.cluster.slow("patch_pod", 0.5)
        world.cluster.put(pod)
        await passing(0.1)
        world.cluster.put(relabelled(world, pod))
        await passing(5)
        assert "schedulingGates" not in seen(world, pod)["spec"]


async def test_a_restarted_controller_counts_what_was_pinned_and_not_bound() -> None:
    pod = gated(gpumem=1000)
    async with door(*node(), pod) as world:
        pass
    again = await World(cluster=world.cluster, settings=SETTINGS).load()
    assert again.stage(pod) is Stage.BOOKED
    assert again.used() == {"GPU-n1-a": 1000}


async def test_a_pod_that_asks_for_no_card_is_let_through() -> None:
    pod = gated(gpus=0)
    async with door(*node(), pod) as world:
        assert "schedulingGates" not in seen(world, pod)["spec"]
        assert names.ALLOCATED not in seen(world, pod)["metadata"]["annotations"]


async def test_an_invalid_request_is_told_and_waits() -> None:
    pod = gated(gpumem="16Gi")
    async with door(*node(), pod) as world:
        assert where(world, pod) is None
        assert await world.reasons() == [Reason.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints",
            id="a spread",
        ),
        pytest.param({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims", id="a claim"),
    ],
)
async def test_what_only_kube_scheduler_can_judge_is_named(spec: Json, field: str) -> None:
    pod = gated(spec=spec)
    async with door(*node(), pod) as world:
        assert where(world, pod) is None
        [(reason, note)] = await world.events()
        assert reason == EventReason.NEEDS_EXTENDER_DOOR
        assert note.startswith(field)


# Gangs --------------------------------------------------------------------------------------------


def gang(count: int, size: int | None = None, **about: Any) -> list[Json]:
    """So many Pods of one gang."""
    said = {names.GANG: "g"} | ({names.GANG_SIZE: str(size)} if size else {})
    return [gated(f"g{number}", annotations=said, **about) for number in range(count)]


async def test_a_gang_is_placed_when_all_are_there_and_not_before() -> None:
    *early, last = gang(4, 4)
    async with door(*node(), *node("n2"), *early) as world:
        assert [where(world, pod) for pod in early] == [None] * 3
        assert set(await world.reasons()) == {EventReason.GANG_INCOMPLETE}
        world.cluster.put(last)
        await passing(0.1)
        assert None not in [where(world, pod) for pod in [*early, last]]


async def test_who_comes_to_a_gang_that_waits_is_told_so() -> None:
    # Red: `returned` does not open the group of a gang.
    early, late, _, _ = gang(4, 4)
    async with door(*node(), early) as world:
        await passing(70)
        world.cluster.put(late)
        await world.events()
        told = {event["regarding"]["name"]: event["note"] for event in world.cluster.events()}
        assert told["g1"] == "Gang g: 2 of its 4 Pods are here; none is placed before all are."


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param({names.GANG: "g"}, "nobody says how many Pods it has", id="no size"),
        pytest.param(
            {names.GANG: "g", names.GANG_SIZE: "three"},
            'cardwise.dev/gang-size is "three", which is no whole number from 1 to 10000',
            id="a size that is none",
        ),
        pytest.param(
            {names.GANG: "a\nWARNING \x1b[31m"}, 'Gang "a\\nWARNING \\u001b[31m":', id="an odd name"
        ),
    ],
)
async def test_what_is_wrong_with_a_gang_is_said(annotations: Json, words: str) -> None:
    async with door(*node(), gated(annotations=annotations)) as world:
        [(reason, note)] = await world.events()
        assert reason == EventReason.GANG_INCOMPLETE
        assert words in note


async def test_no_pod_group_is_asked_for_by_a_name_that_it_can_not_have() -> None:
    async with door(*node(), gated(annotations={names.GANG: "../../nodes"})) as world:
        await passing(20)
        assert world.cluster.called("pod_group") == 0


async def test_a_gang_that_does_not_fit_holds_nothing() -> None:
    pods_of_gang = gang(3, 3)
    alone = gated("z")
    async with door(*node(), *pods_of_gang, alone) as world:
        assert [where(world, pod) for pod in pods_of_gang] == [None] * 3
        assert where(world, alone) == "n1"
        notes = [note for _, note in await world.events() if note.startswith("Gang")]
        assert notes
        assert all(note.startswith("Gang g: 2 of 3 Pods would fit. 0/1 nodes") for note in notes)
        world.cluster.put(build.gpunode("n2", 2))
        world.cluster.put(build.node_object("n2", gpus=20))
        await passing(0.1)
        assert None not in [where(world, pod) for pod in pods_of_gang]


@pytest.mark.parametrize("named", [True, False], ids=["others are named", "others are not"])
async def test_a_gangs_own_trial_is_told_apart_from_the_tenants(named: bool) -> None:
    # Red: `hold_gang` without `held` to `hold`, or the account by the ledger's own views.
    tenant = build.pod("t", namespace="other", node="n1", allocated=build.allocation("GPU-n1-a"))
    settings = Settings(scheduling=Scheduling(door=Door.GATES), events=Events(nameTenants=named))
    members = gang(4, 4, gpumem=6000, policy=None)
    async with door(*node(cards=1), tenant, *members, settings=settings) as world:
        [note] = {note for _, note in await world.events() if note.startswith("Gang")}

    held = "default/g0 and 1 more (of this gang, not placed)"
    tenants = "other/t" if named else "1 of other namespaces"
    assert note.startswith("Gang g: 2 of 4 Pods would fit. 0/1 nodes can take 1 card with 6000 MiB")
    assert f"largest free 2360 MiB, total free 2360 MiB; GPU 0: {held}, {tenants})" in note


async def test_the_size_of_a_gang_may_stand_in_its_pod_group() -> None:
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    label = {names.POD_GROUP_LABEL: "g"}
    members = [gated("a", labels=label), gated("b", labels=label)]
    async with door(*node(), *members) as world:
        assert where(world, members[0]) is None
        world.cluster.put(group)
        await passing(6)
        assert [where(world, pod) for pod in members] == ["n1", "n1"]


async def test_what_is_left_of_a_gang_goes_before_all_others() -> None:
    members = gang(2, 2)
    async with door(*node()) as world:
        world.cluster.fail("patch_pod", None, refused(403))
        for pod in members:
            world.cluster.put(pod)
        await passing(0.5)
        assert [where(world, pod) for pod in members] == ["n1", None]
        # Its card is free for now, and would be taken by whoever comes.
        await passing(5)
        assert [where(world, pod) for pod in members] == ["n1", "n1"]


async def test_a_gang_whose_pins_were_all_refused_has_not_begun() -> None:
    first, second = gang(2, 2)
    async with door(*node()) as world:
        world.cluster.fail("patch_pod", refused(403), refused(403))
        world.cluster.put(first)
        world.cluster.put(second)
        await passing(0.3)
        world.cluster.put(relabelled(world, second))  # so it is tried at once, and the other is not
        await passing(0.3)
        assert (where(world, first), where(world, second)) == (None, None)
        await passing(1)
        assert (where(world, first), where(world, second)) == ("n1", "n1")


async def test_of_the_rest_of_a_gang_one_that_does_not_fit_keeps_no_other_back() -> None:
    begun, (big, small) = gang(1, 1, gpumem=500), gang(2, 1)
    for number, pod in enumerate((big, small)):
        pod["metadata"] |= {"name": f"h{number}", "uid": f"h{number}"}
    big["spec"]["containers"] = [build.container(gpu=3)]
    async with door(*node(), *begun) as world:
        world.cluster.put(big)
        world.cluster.put(small)
        await passing(0.1)
        assert [where(world, pod) for pod in (*begun, big, small)] == ["n1", None, "n1"]


async def test_ten_thousand_of_one_kind_are_one_question() -> None:
    tenant = build.pod("t", node="n1", allocated="GPU-n1-a,NVIDIA,15360,0:;")
    async with door(*node(cards=1), tenant) as world:
        asked: list[str] = []
        choose = world.controller.decider.hold_chosen

        def counted(request: Any, decision: Any) -> Any:
            asked.append(str(request.pod))
            return choose(request, decision)

        world.controller.decider.hold_chosen = counted  # type: ignore[method-assign]
        for number in range(1000):
            world.cluster.put(gated(f"p{number:04}"))
        await asyncio.sleep(0.1)
        assert asked == ["default/p0000"]
        world.cluster.put(build.gpunode("n1", 1, reported_at="2026-11-29T12:01:00Z"))
        world.ledger.grew = True
        world.mirror.see_node(build.node_object("n1", gpus=10))
        await asyncio.sleep(0.1)
        assert asked == ["default/p0000"] * 2
