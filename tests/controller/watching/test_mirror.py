"""The ledger follows the cluster: by events, by lists, and by both at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.controller.clock import Clock
from cardwise.errors import ApiError
from cardwise.ledger import Stage
from cardwise.model import QuotaBound
from cardwise.names import EventReason, Reason
from cardwise.settings import Scheduling, Settings
from controllers import World, background, passing, turns_while
from fakes.cluster import refused

Json = dict[str, Any]
TEXT = build.allocation("GPU-n1-a")


def bound(name: str = "p", **more: Any) -> Json:
    return build.pod(name, **{"gpumem": 1000, "node": "n1", "allocated": TEXT, **more})


# Pods ---------------------------------------------------------------------------------------------


async def test_a_pod_books_when_it_is_shown_bound_and_frees_when_it_is_gone() -> None:
    world = await World(build.gpunode()).load()

    world.cluster.put(bound())
    world.deliver()
    assert world.used() == {"GPU-n1-a": 1000}
    world.cluster.remove("Pod", "p", "default")
    world.deliver()
    assert world.used() == {}


@pytest.mark.parametrize(
    ("pod", "used"),
    [
        pytest.param(bound(phase="Succeeded"), {}, id="a Pod that ended well holds nothing"),
        pytest.param(bound(phase="Failed"), {}, id="a Pod that failed holds nothing"),
        pytest.param(
            bound(terminating=True), {"GPU-n1-a": 1000}, id="a Pod being deleted holds its cards"
        ),
        pytest.param(
            bound(node=None, phase="Pending"),
            {},
            id="an annotation on an unbound Pod is no booking",
        ),
        pytest.param(
            bound(annotations={"hami.io/vgpu-devices-allocated": None}),
            {},
            id="a null is an allocation of no card",
        ),
        pytest.param(bound(gpus=None), {"GPU-n1-a": 1000}, id="cards of a Pod that asks for none"),
        pytest.param(
            bound(resource_version="many"), {"GPU-n1-a": 1000}, id="a version that is no number"
        ),
    ],
)
async def test_what_one_pod_counts(pod: Json, used: Json) -> None:
    by_event = await World(build.gpunode()).load()
    by_event.mirror.see_pod(pod)
    by_list = await World(build.gpunode(), pod).load()

    assert by_event.used() == used
    assert by_list.used() == used


async def test_a_pod_that_vanished_without_a_word_leaves_no_trace() -> None:
    # Red: `reconcile` does not tell `Reading.keep` who is there.
    world = await World(build.gpunode(), bound()).load()
    assert world.mirror._reading._known

    world.cluster.remove("Pod", "p", "default")
    await passing(1.0)
    await world.mirror.reconcile(world.cluster)

    assert list(world.ledger.entries()) == []
    assert not world.mirror._reading._known


# Red: `Reading.read` or `Ledger.reconcile` passes over what a list shows garbled.
@pytest.mark.parametrize("first", ["the node", "the Pod"])
async def test_a_node_that_a_garbled_allocation_closed_is_closed_after_a_restart(
    first: str,
) -> None:
    garbled, other = bound(allocated="GPU-n1-a,NVIDIA,many,0:;"), build.pod("q", gpumem=1000)
    gpunode = build.gpunode("n1", 1)
    world = await World(*((gpunode,) if first == "the node" else ()), garbled, other).load()
    for _ in range(2):
        world = await world.restarted()
        if first == "the Pod":
            world.mirror.see_gpunode(gpunode)
        answered = world.filter(other, "n1")["FailedAndUnresolvableNodes"]
        assert answered == {"n1": Reason.NODE_UNREADABLE}

    world.cluster.put(bound())
    world.deliver()
    assert world.chosen(other, "n1") == "n1"


async def test_a_pod_that_has_nothing_to_do_with_cards_leaves_no_trace() -> None:
    world = await World(build.gpunode()).load()
    world.mirror.see_pod(build.pod(gpus=None))
    world.mirror.see_pod(build.pod(gpus=None), deleted=True)

    assert list(world.ledger.entries()) == []
    assert not world.ledger._ended


@pytest.mark.parametrize(
    "shrink", [pytest.param(False, id="to the end"), pytest.param(True, id="HAMi's way")]
)
async def test_init_containers_count_as_the_setting_says(shrink: bool) -> None:
    settings = Settings(scheduling=Scheduling(initShrink=shrink))
    world = await World(build.gpunode(), settings=settings).load()
    init = build.container("i", gpu=1, gpumem=5000)
    text = "GPU-n1-a,NVIDIA,5000,0:;GPU-n1-a,NVIDIA,1000,0:;"

    world.mirror.see_pod(bound(init=[init], init_exits={"i": 0}, allocated=text))

    assert world.used() == {"GPU-n1-a": 1000 if shrink else 5000}


async def test_an_older_event_than_the_last_changes_nothing() -> None:
    world = await World(build.gpunode()).load()
    world.mirror.see_pod(bound(resource_version="9"))
    world.mirror.see_pod(bound(allocated=build.allocation("GPU-n1-b"), resource_version="8"))

    assert world.used() == {"GPU-n1-a": 1000}


async def test_events_repeated_dropped_and_late_come_to_the_same() -> None:
    world = await World(build.gpunode()).load()
    pod = world.cluster.put(build.pod(gpumem=1000))
    world.chosen(pod, "n1")
    await world.bind(pod)
    world.cluster.remove("Pod", "p", "default")
    created, booked, ended = world.cluster.changes

    for change in (booked, created, booked, ended, booked, created, ended):
        world.show(change)

    assert world.used() == {}
    assert world.stage(pod) is None


async def test_the_end_of_a_waiting_pod_is_remembered_for_a_filter_that_comes_late() -> None:
    world = await World(build.gpunode()).load()
    pod = build.pod(gpumem=1000)
    world.mirror.see_pod(pod)
    world.mirror.see_pod(pod, deleted=True)

    world.chosen(pod, "n1")  # it was under way all the while
    async with world.running():
        await passing(2.0)
        assert world.used() == {}


async def test_an_allocation_that_can_not_be_read_closes_the_node_until_it_is_mended() -> None:
    world = await World(build.gpunode()).load()
    world.mirror.see_pod(bound(allocated="GPU-n1-a,NVIDIA,lots,0:;", resource_version="5"))

    view = world.ledger.view("n1")
    assert view.problem is Reason.NODE_UNREADABLE
    assert "default/p" in view.problem_detail
    [(reason, note)] = await world.events()
    assert reason == EventReason.UNREADABLE_ALLOCATION
    assert "lots" in note

    world.mirror.see_pod(bound(resource_version="6"))
    assert world.ledger.view("n1").problem is None
    assert world.used() == {"GPU-n1-a": 1000}


async def test_lists_tell_once_of_an_allocation_that_can_not_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World(build.gpunode(), bound(allocated="rubbish:;")).load()
    async with background(world.controller.recorder.run()):
        for _ in range(3):
            await passing(90.0)
            await world.mirror.reconcile(world.cluster)

    assert world.ledger.view("n1").problem is Reason.NODE_UNREADABLE
    assert [event["reason"] for event in world.cluster.events()] == [
        EventReason.UNREADABLE_ALLOCATION
    ]
    assert world.cluster.called("count_event") == 0
    assert caplog.text.count("closes node n1") == 1


HOSTS = {
    "see_pod": st.sampled_from([bound(), build.pod(), bound(allocated="rubbish:;")]),
    "see_gpunode": st.just(build.gpunode(links=build.all_links(4))),
    "see_node": st.just(build.node_object(gpus=4, cordon="GPU-a")),
    "see_quota": st.just(build.quota(gpumem=1, gpucores=1, scopes=["Terminating"])),
}


@pytest.mark.parametrize("verb", HOSTS)
@given(data=st.data(), deleted=st.booleans())
def test_no_object_makes_it_fail(verb: str, data: st.DataObject, deleted: bool) -> None:
    world = World(clock=Clock(monotonic=lambda: 0.0, unix=lambda: 0.0))
    document = data.draw(hostile.spoilt(HOSTS[verb]))

    getattr(world.mirror, verb)(document, deleted=deleted)

    world.mirror.see_gpunode(build.gpunode("next"))
    assert "next" in world.ledger.gpunode_names(), "what comes after it is taken"


# GPUNodes, Nodes, quotas --------------------------------------------------------------------------


async def test_a_broken_gpunode_offers_nothing_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World(build.gpunode()).load()
    twins = [build.card(0), build.card(1, uuid="GPU-a")]

    world.mirror.see_gpunode(build.gpunode("n1", twins, resource_version="90"))

    assert world.ledger.view("n1").problem is Reason.NODE_HAS_NO_CARDS
    assert "no card of it is offered" in caplog.text
    world.mirror.see_gpunode(build.gpunode("n1", 1, resource_version="91"))
    assert world.ledger.view("n1").problem is None


async def test_a_gpunode_that_is_known_is_not_read_again() -> None:
    # Red: `_take_gpunode` without `_reports`; with its followers told after the `return`; or with
    # `_reports` kept where the GPUNode is gone.
    world = await World().load()
    told: list[str] = []
    world.mirror.gpunode_followers.append(lambda document, *, deleted: told.append("GPUNode"))
    other = build.gpunode("n1", 3)  # of the same version, which no API server has

    world.mirror.see_gpunode(build.gpunode("n1", 1))
    world.mirror.see_gpunode(other)
    assert len(world.ledger.view("n1").state.cards) == 1
    assert len(told) == 2

    world.mirror.see_gpunode(other, deleted=True)
    world.mirror.see_gpunode(other)
    assert len(world.ledger.view("n1").state.cards) == 3


async def test_a_gpunode_that_could_not_be_taken_is_read_again() -> None:
    # Red: `_reports` is set before all of it was taken.
    world = await World().load()
    troubles = [LookupError("once")]

    def take(_: Json, *, deleted: bool) -> None:
        if troubles:
            raise troubles.pop()

    world.mirror.gpunode_followers.append(take)
    with pytest.raises(LookupError):
        world.mirror.see_gpunode(build.gpunode("n1"))
    world.mirror.see_gpunode(build.gpunode("n1"))

    assert world.ledger.view("n1").problem is None


async def test_tenants_outlive_their_gpunode() -> None:
    world = await World(build.gpunode(), bound()).load()

    world.mirror.see_gpunode(build.gpunode(), deleted=True)
    assert world.ledger.view("n1").problem is Reason.NODE_HAS_NO_CARDS
    world.mirror.see_gpunode(build.gpunode())
    assert world.used() == {"GPU-n1-a": 1000}


async def test_nodes_are_known_by_name_and_say_what_they_offer() -> None:
    world = await World(build.gpunode("n1")).load()

    world.mirror.see_node(build.node_object("n1", cordon="GPU-n1-a, GPU-n1-b"))
    world.mirror.see_node(build.node_object("bare", gpus=4))
    assert world.mirror.node_names == {"n1", "bare"}
    assert [card.cordoned for card in world.ledger.view("n1").state.cards] == [True] * 2 + [
        False
    ] * 2
    assert world.ledger.view("bare").problem is Reason.NODE_NOT_REPORTED

    world.mirror.see_node(build.node_object("bare", gpus=4), deleted=True)
    world.mirror.see_node(build.node_object("never seen"), deleted=True)
    assert world.mirror.node_names == {"n1"}
    assert world.ledger.view("bare").problem is Reason.NODE_HAS_NO_CARDS


async def test_the_lowest_of_several_quotas_holds_until_it_is_lifted() -> None:
    world = await World().load()

    world.mirror.see_quota(build.quota(gpumem=8000, gpucores=200, name="a"))
    world.mirror.see_quota(build.quota(gpumem=4000, name="b"))
    assert world.ledger.bound("default") == QuotaBound(memory_mib=4000, cores=200)
    world.mirror.see_quota(build.quota(name="b"))
    assert world.ledger.bound("default") == QuotaBound(memory_mib=8000, cores=200)
    world.mirror.see_quota(build.quota(gpumem=8000, name="a"), deleted=True)
    assert world.ledger.bound("default") == QuotaBound()
    assert dict(world.ledger.bounded_namespaces()) == {}


async def test_a_quota_with_scopes_is_warned_of_once_a_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World().load()
    scoped = build.quota(gpumem=4000, scopes=["NotTerminating"])

    world.mirror.see_quota(scoped)
    world.mirror.see_quota(scoped)

    assert sum("scopes have no effect" in text for text in caplog.messages) == 1


async def test_a_quota_that_can_not_be_read_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    world = await World(build.quota(gpumem="8Gi")).load()

    assert world.ledger.bound("default") == QuotaBound()
    assert sum("so it is no bound" in text for text in caplog.messages) == 1


# Lists --------------------------------------------------------------------------------------------


async def test_a_list_is_the_whole_cluster_page_by_page() -> None:
    pods = [bound(f"p{n}", allocated=build.allocation(f"GPU-n{n}-a")) for n in range(5)]
    for n, pod in enumerate(pods):
        pod["spec"]["nodeName"] = f"n{n}"
    nodes = [build.gpunode(f"n{n}", 1) for n in range(5)]
    world = await World(*pods, *nodes, build.quota(gpumem=1)).load()

    assert [world.used(f"n{n}") for n in range(5)] == [{f"GPU-n{n}-a": 1000} for n in range(5)]
    assert world.cluster.called("unfinished_pods") == 3
    assert world.mirror.repairs == 0


def bind_p(world: World) -> None:
    world.cluster.put(bound())


def finish(world: World) -> None:
    world.cluster.put(bound("q", phase="Succeeded"))


def delete(world: World) -> None:
    world.cluster.remove("Pod", "q", "default")


def move(world: World) -> None:
    world.cluster.put(bound("q", allocated=build.allocation("GPU-n1-b")))


@pytest.mark.parametrize(
    ("missed", "used", "repairs"),
    [
        pytest.param(bind_p, {"GPU-n1-a": 2000}, 1, id="a Pod that was bound"),
        pytest.param(delete, {}, 1, id="a Pod that is gone"),
        pytest.param(finish, {}, 1, id="a Pod that ended"),
        pytest.param(move, {"GPU-n1-b": 1000}, 1, id="an allocation that was changed"),
        pytest.param(lambda _: None, {"GPU-n1-a": 1000}, 0, id="nothing"),
    ],
)
async def test_what_the_watch_missed_is_mended_counted_and_logged(
    missed: Callable[[World], None],
    used: Json,
    repairs: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World(build.gpunode(), bound("q")).load()
    missed(world)
    world.cluster.changes.clear()
    await passing(5.0)

    assert await world.mirror.reconcile(world.cluster) == repairs

    assert world.used() == used
    assert world.mirror.repairs == repairs
    assert caplog.text.count("the ledger was mended") == repairs


@pytest.mark.parametrize("kind", ["GPUNodes", "Pods"])
async def test_questions_are_answered_while_a_page_of_a_list_is_read(kind: str) -> None:
    # Red: `_list`, or `reconcile`, takes a page of hundreds of objects without a pause.
    made = build.gpunode if kind == "GPUNodes" else build.pod
    full = await World().load()
    full.cluster.chunk = 100
    for number in range(100):
        full.cluster.put(made(f"n{number}"))

    empty = await World().load()
    of_none = await turns_while(empty.mirror.reconcile(empty.cluster))
    assert await turns_while(full.mirror.reconcile(full.cluster)) >= of_none + 4


async def test_everything_else_that_vanished_goes_with_the_next_list() -> None:
    world = await World(
        build.gpunode("n1"),
        build.gpunode("n2"),
        build.node_object("n1"),
        build.node_object("n2"),
        build.quota("default", gpumem=1),
        build.quota("other", gpumem=1),
    ).load()
    for kind in ("GPUNode", "Node"):
        world.cluster.remove(kind, "n2")
    world.cluster.remove("ResourceQuota", "quota", "other")

    await world.mirror.reconcile(world.cluster)

    assert world.ledger.gpunode_names() == ["n1"]
    assert world.mirror.node_names == {"n1"}
    assert list(world.ledger.bounded_namespaces()) == ["default"]


async def test_holds_and_bindings_are_not_repaired_away() -> None:
    world = await World(build.gpunode()).load()
    held, binding = build.pod("held", gpumem=1000), build.pod("binding", gpumem=1000)
    world.chosen(held, "n1")
    world.cluster.put(binding)
    world.chosen(binding, "n1")
    world.cluster.slow("bind", 1.5)
    task = asyncio.ensure_future(world.bind(binding))
    await passing(1.0)

    assert await world.mirror.reconcile(world.cluster) == 0

    assert world.stage(held) is Stage.HELD
    assert world.stage(binding) is Stage.BINDING
    assert await task == ""


@pytest.mark.parametrize(
    "known",
    [pytest.param(True, id="it shows the Pod unbound"), pytest.param(False, id="not at all")],
)
async def test_a_booking_younger_than_the_list_stays(known: bool) -> None:
    world = await World(build.gpunode(), build.pod("other")).load()
    if known:
        world.cluster.put(build.pod(gpumem=1000))
    world.cluster.slow("unfinished_pods", 1.0)  # the list is as of its beginning
    listing = asyncio.ensure_future(world.mirror.reconcile(world.cluster))
    await passing(0.5)
    pod = world.cluster.put(build.pod(gpumem=1000))
    world.chosen(pod, "n1")
    assert await world.bind(pod) == ""

    assert await listing == 0
    assert world.used() == {"GPU-n1-a": 1000}


async def test_a_waiting_pod_that_vanished_is_forgotten_without_a_repair() -> None:
    world = await World(build.gpunode()).load()
    world.filter(build.pod(gpus=9), "n1")
    await passing(5.0)

    assert await world.mirror.reconcile(world.cluster) == 0
    assert list(world.ledger.entries()) == []


@pytest.mark.parametrize(
    ("verb", "change", "check"),
    [
        pytest.param(
            "gpunodes",
            build.gpunode("n1", 2, cordoned=["GPU-n1-a"]),
            lambda it: it.ledger.view("n1").state.cards[0].cordoned,
            id="a card that was closed",
        ),
        pytest.param(
            "nodes",
            build.node_object("n1", cordon="GPU-n1-a"),
            lambda it: it.ledger.view("n1").state.cards[0].cordoned,
            id="a card that was closed by HAMi's annotation",
        ),
        pytest.param(
            "quotas",
            build.quota(gpumem=5),
            lambda it: it.ledger.bound("default").memory_mib == 5,
            id="a quota that was lowered",
        ),
        pytest.param(
            "gpunodes",
            build.gpunode("n9", 1),
            lambda it: it.ledger.gpunode_names() == ["n1", "n9"],
            id="a GPUNode that is new",
        ),
    ],
)
async def test_a_list_does_not_undo_what_events_showed_while_it_was_read(
    verb: str, change: Json, check: Callable[[World], bool]
) -> None:
    world = await World(
        build.gpunode("n1", 2), build.node_object("n1"), build.quota(gpumem=9)
    ).load()
    world.cluster.slow(verb, 2.0)
    listing = asyncio.ensure_future(world.mirror.reconcile(world.cluster))
    await passing(1.0)
    world.cluster.put(change)
    world.deliver()

    await listing

    assert check(world)


async def test_a_list_does_not_bring_back_what_went_while_it_was_read() -> None:
    world = await World(build.gpunode("n1"), build.gpunode("n2")).load()
    world.cluster.slow("gpunodes", 2.0)
    listing = asyncio.ensure_future(world.mirror.reconcile(world.cluster))
    await passing(1.0)
    world.cluster.remove("GPUNode", "n2")
    world.deliver()

    await listing
    assert world.ledger.gpunode_names() == ["n1"]


async def test_a_late_event_does_not_hide_what_a_newer_list_says() -> None:
    world = await World(build.gpunode("n1", 2)).load()
    world.cluster.put(build.gpunode("n1", 2, cordoned=["GPU-n1-a"]))
    world.cluster.put(build.gpunode("n1", 2, cordoned=["GPU-n1-b"]))
    late, _ = world.cluster.changes
    world.cluster.slow("gpunodes", 2.0)
    listing = asyncio.ensure_future(world.mirror.reconcile(world.cluster))
    await passing(1.0)
    world.show(late)

    await listing
    assert [card.cordoned for card in world.ledger.view("n1").state.cards] == [False, True]


async def test_an_object_made_anew_while_it_was_missed_is_not_taken_for_gone() -> None:
    world = await World(build.gpunode("n1", 1), build.gpunode("n2", 1)).load()
    world.cluster.remove("GPUNode", "n2")
    world.cluster.changes.clear()
    world.cluster.slow("gpunodes", 2.0)
    listing = asyncio.ensure_future(world.mirror.reconcile(world.cluster))
    await passing(1.0)
    world.cluster.put(build.gpunode("n2", 3))
    world.deliver()

    await listing
    assert len(world.ledger.view("n2").state.cards) == 3


@pytest.mark.parametrize("verb", ["gpunodes", "nodes", "quotas", "unfinished_pods"])
async def test_a_list_that_fails_changes_no_booking(verb: str) -> None:
    world = await World(
        *(build.gpunode(f"n{n}") for n in range(3)),
        *(build.node_object(f"n{n}") for n in range(3)),
        *(build.quota(f"s{n}", gpumem=9) for n in range(3)),
        *(bound(f"p{n}") for n in range(3)),
    ).load()
    await passing(5.0)
    world.cluster.fail(verb, None, refused(410, "too old"))

    with pytest.raises(ApiError, match="too old"):
        await world.mirror.reconcile(world.cluster)

    assert world.used() == {"GPU-n1-a": 3000}
    assert world.ledger.gpunode_names() == ["n0", "n1", "n2"]
    assert len(world.mirror.node_names) == len(world.ledger.bounded_namespaces()) == 3


async def test_it_tells_its_owner_of_every_change() -> None:
    world = await World(
        build.gpunode("n1", 1), bound(allocated=build.allocation("GPU-n1-a", mib=15000))
    ).load()
    other = build.pod("q", gpumem=9000)
    world.filter(other, "n1")
    world.cluster.put(build.node_object("n1"))
    world.deliver()
    world.cluster.remove("Pod", "p", "default")

    async with world.running():
        world.deliver()
        await passing(0.1)
        assert world.cluster.called("annotate_node") == 1
