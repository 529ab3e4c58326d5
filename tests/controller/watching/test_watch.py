"""Whether our own watch lives, and what is done about what it missed."""

import asyncio
from typing import Any

import pytest

import build
from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.watching.watch import BEAT_SECONDS, SILENCE_SECONDS, Health
from cardwise.ledger import STALE_SECONDS
from cardwise.names import HEARTBEAT, Reason
from controllers import OWN, World, background, passing
from fakes.cluster import refused, unanswered

Json = dict[str, Any]
OWN_POD = build.pod(OWN.name, namespace=OWN.namespace, uid=OWN.uid, gpus=None, node="n1")


class Times:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now, unix=lambda: self.now)


def stale(world: World, node: str = "n1") -> bool:
    view = world.ledger.view(node)
    assert view.problem in (None, Reason.NODE_NOT_REPORTED)
    return view.problem is not None


def report(world: World, beat: object, node: str = "n1") -> None:
    world.mirror.see_gpunode(build.gpunode(node, reported_at=str(beat)))


# Health -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "own", "want"),
    [
        pytest.param(SILENCE_SECONDS, True, "", id="two minutes are borne"),
        pytest.param(SILENCE_SECONDS + 1, True, "no heartbeat came back for 121 s", id="no more"),
        pytest.param(10_000.0, False, "", id="without a Pod of its own there is no heartbeat"),
    ],
)
def test_silence_fails_the_liveness_probe(silence: float, own: bool, want: str) -> None:
    times = Times()
    health = Health(Duty(), times.clock(), own_pod=OWN if own else None)
    times.now = silence

    assert want in health.not_live()
    assert bool(health.not_live()) == bool(want)
    health.heard()
    assert health.not_live() == ""


def test_it_is_ready_once_it_is_loaded_and_until_it_stops() -> None:
    duty = Duty()
    health = Health(duty, Times().clock(), own_pod=None)

    assert health.not_ready() == "ledger not loaded yet; ask again"
    duty.loaded = True
    assert health.not_ready() == ""
    duty.stopping = True
    assert health.not_ready() == "the controller is stopping; ask again"


# Heartbeats ---------------------------------------------------------------------------------------


async def test_the_own_pod_is_annotated_every_thirty_seconds() -> None:
    world = await World(OWN_POD, own_pod=OWN).load()

    async with world.running():
        await passing(95.0)

    assert world.cluster.called("annotate_pod") == 4
    written = world.cluster.get("Pod", OWN.name, OWN.namespace)["metadata"]["annotations"]
    assert written[HEARTBEAT].isdecimal()


async def test_without_a_pod_of_its_own_nothing_is_annotated() -> None:
    world = await World().load()

    async with world.running():
        await passing(95.0)

    assert world.cluster.called("annotate_pod") == 0


async def test_heartbeats_that_fail_go_on(caplog: pytest.LogCaptureFixture) -> None:
    world = await World(OWN_POD, own_pod=OWN).load()
    world.cluster.fail("annotate_pod", refused(403), unanswered(after=5.0))

    async with world.running():
        await passing(70.0)

    assert world.cluster.called("annotate_pod") == 3
    assert sum("the heartbeat can't be written" in text for text in caplog.messages) == 2


# Stale reports ------------------------------------------------------------------------------------


async def test_a_silent_agent_closes_its_node_until_it_reports_again() -> None:
    world = await World(build.gpunode("n1"), build.gpunode("n2")).load()

    async with world.running():
        await passing(STALE_SECONDS - 10)
        report(world, "later", "n2")
        assert not stale(world)
        await passing(15)
        assert stale(world)
        assert not stale(world, "n2")
        report(world, "later")
        assert not stale(world)


async def test_the_same_report_again_is_no_heartbeat() -> None:
    world = await World(build.gpunode("n1")).load()

    async with world.running():
        for _ in range(40):
            report(world, build.REPORTED_AT)
            await passing(5.0)
        assert stale(world)


async def test_a_report_grows_old_only_while_our_own_watch_lives() -> None:
    world = await World(build.gpunode("n1"), OWN_POD, own_pod=OWN).load()
    health = world.controller.health
    health.heard()

    async with world.running():
        await passing(2 * STALE_SECONDS)
        assert not stale(world), "the watch is silent: so may be the agents, for all we know"
        health.heard()
        await passing(5.0)
        assert not stale(world), "what was missed is not held against the agents"
        for _ in range(20):
            health.heard()
            await passing(10.0)
        assert stale(world), "but from then on it counts"


async def test_the_age_before_the_silence_counts() -> None:
    world = await World(build.gpunode("n1"), OWN_POD, own_pod=OWN).load()
    health = world.controller.health

    async with world.running():
        for _ in range(10):
            health.heard()
            await passing(10.0)
        await passing(300.0)
        for _ in range(7):
            health.heard()
            assert not stale(world)
            await passing(10.0)
        for _ in range(4):
            health.heard()
            await passing(10.0)
        assert stale(world)


async def test_a_short_silence_is_no_silence() -> None:
    world = await World(build.gpunode("n1"), OWN_POD, own_pod=OWN).load()

    async with world.running():
        for _ in range(5):
            world.controller.health.heard()
            await passing(2 * BEAT_SECONDS - 10)
        assert stale(world)


# Loading and comparing ----------------------------------------------------------------------------


async def test_loading_is_tried_until_it_succeeds() -> None:
    world = World(build.gpunode(), build.node_object())
    world.cluster.fail("gpunodes", unanswered(), refused(500), refused(403))
    world.cluster.fail("unfinished_pods", *[refused(410)] * 4)

    await world.load()

    assert world.ledger.gpunode_names() == ["n1"]
    assert world.cluster.called("gpunodes") == 8
    assert world.cluster.called("unfinished_pods") == 5
    assert world.mirror.repairs == 0


async def test_waits_between_tries_grow_to_five_seconds() -> None:
    world = World()
    world.cluster.fail("gpunodes", *[refused(500)] * 8)

    async with background(world.controller.watchman.load()):
        tried = []
        for _ in range(30):
            tried.append(world.cluster.called("gpunodes"))
            await passing(1.0)

    # After 0, 0.2, 0.7, 1.7, 3.7 s and every five seconds from then on.
    assert tried[:15] == [0, 3, 4, 4, *[5] * 5, *[6] * 5, 7]
    assert world.cluster.called("gpunodes") == 9


# Red: `hear` returns at once, or `heard` is content with one kind.
async def test_it_answers_once_each_watch_has_shown_something_of_what_was_listed() -> None:
    world = await World(build.gpunode(), build.node_object("n1"), build.pod()).load()
    watchman = world.controller.watchman

    async with background(watchman.hear()) as [hearing]:
        for kind in ("pods", "nodes", "nodes", "resourcequotas", "gpunodes"):
            await passing(1.0)
            assert not hearing.done()
            watchman.heard(kind)
        await passing(0.1)
        assert hearing.done()


async def test_a_watch_that_shows_nothing_is_waited_for_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World(build.gpunode(), build.node_object("n1"), build.pod()).load()
    world.controller.watchman.heard("gpunodes")

    async with background(world.controller.watchman.hear()) as [hearing]:
        await passing(9.9)
        assert not hearing.done()
        await passing(0.2)
        assert hearing.done()

    assert "show nothing yet of what was listed of: nodes, pods" in caplog.text


async def test_in_an_empty_cluster_there_is_nothing_to_hear_of() -> None:
    world = await World().load()

    async with asyncio.timeout(0.1):
        await world.controller.watchman.hear()


async def test_every_five_minutes_a_list_is_compared() -> None:
    world = await World(build.gpunode()).load()
    lists = world.cluster.called("unfinished_pods")

    async with world.running():
        await passing(1000.0)

    assert world.cluster.called("unfinished_pods") - lists == 3


async def test_a_doubt_brings_a_list_two_seconds_later_once() -> None:
    world = await World(build.gpunode()).load()
    pod = build.pod(node="n1", gpumem=1000, allocated=build.allocation("GPU-n1-a"))
    world.cluster.put(pod)
    lists = world.cluster.called("unfinished_pods")

    async with world.running():
        await passing(10.0)
        for _ in range(5):
            world.controller.watchman.doubt()
            await passing(0.1)
        assert world.used() == {}
        await passing(2.0)
        assert world.used() == {"GPU-n1-a": 1000}
        await passing(60.0)

    assert world.cluster.called("unfinished_pods") - lists == 1


@pytest.mark.parametrize(
    ("seconds", "lists"),
    [
        pytest.param(10, [0] * 11 + [1] * 50, id="once it was silent for two seconds"),
        pytest.param(140, [0] * 120 + [1] * 21 + [2] * 9, id="at most two minutes later"),
    ],
)
async def test_a_list_of_kopf_is_compared_when_it_is_over(seconds: int, lists: list[int]) -> None:
    # Red: `listed` is `doubt`; or nothing puts an end to the waiting.
    world = await World(build.gpunode()).load()
    before = world.cluster.called("unfinished_pods")
    seen = []

    async with world.running():
        for second in range(len(lists)):
            if second < seconds:
                world.controller.watchman.listed()
            await passing(1.0)
            seen.append(world.cluster.called("unfinished_pods") - before)

    assert seen == lists


async def test_a_failure_is_not_put_off_by_a_list_of_kopf() -> None:
    # Red: `_soon` does not look whether anything failed.
    world = await World(build.gpunode()).load()
    before = world.cluster.called("unfinished_pods")

    async with world.running():
        for second in range(8):
            if second == 5:
                world.controller.watchman.doubt()
            world.controller.watchman.listed()
            await passing(1.0)

    assert world.cluster.called("unfinished_pods") - before == 1


async def test_a_failure_is_of_one_comparison() -> None:
    # Red: `audit` does not forget the failure, and lists of Kopf's are no more waited for.
    world = await World(build.gpunode()).load()

    async with world.running():
        world.controller.watchman.doubt()
        await passing(3.0)
        before = world.cluster.called("unfinished_pods")
        for _ in range(10):
            world.controller.watchman.listed()
            await passing(1.0)
        assert world.cluster.called("unfinished_pods") == before


async def test_a_comparison_that_fails_is_tried_again_soon() -> None:
    world = await World(build.gpunode()).load()
    lists = world.cluster.called("gpunodes")
    world.cluster.fail("gpunodes", *[refused(500)] * 3)

    async with world.running():
        world.controller.watchman.doubt()
        await passing(9.0)

    assert world.cluster.called("gpunodes") - lists == 4
