"""Field reports, section I: the process itself; and R92, filters by type and UUID.

Each test shows the kind of fault, at the cheapest level that can. Its docstring ends with the
change of the product that makes it red.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import build
from cardwise.controller.lease.tenure import Election
from cardwise.controller.watching import handlers
from cardwise.controller.watching.watch import SILENCE_SECONDS
from cardwise.names import NODE_CORDON, EventReason, Reason
from controllers import OWN, World, background, passing
from fakes.cluster import FakeCluster, refused
from reports import fixtures

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[2] / "manifests"


def registered(world: World) -> kopf.OperatorRegistry:
    """What Kopf is given to run."""
    registry = kopf.OperatorRegistry()

    async def login() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server="https://api")

    handlers.register(
        registry,
        mirror=world.mirror,
        watchman=world.controller.watchman,
        health=world.controller.health,
        classes=world.controller.classes,
        login=login,
    )
    return registry


async def lives(world: World, pods: list[Json]) -> None:
    """Each Pod is placed, runs, and ends well."""
    for pod in pods:
        assert await world.bind(pod, world.chosen(pod, "n1")) == ""
        bound = world.cluster.get("Pod", pod["metadata"]["name"], "default")
        world.cluster.put({**bound, "status": {"phase": "Succeeded"}})
        world.deliver()


# The watch ----------------------------------------------------------------------------------------


async def test_r82_a_watcher_that_died_fails_the_liveness_probe_and_says_why() -> None:
    """By a heartbeat of our own that does not come back: an idle stream and a dead one look alike.

    Dead connections, resets and 410 on real sockets: tests/e2e/test_watches.py.
    Red: `Health.heard` is called when the heartbeat is written.
    """
    own = build.pod(OWN.name, namespace=OWN.namespace, uid=OWN.uid, gpus=None)
    world = await World(*fixtures.t4x1(), own, own_pod=OWN).load()
    async with world.running():
        await passing(SILENCE_SECONDS - 1)
        assert world.controller.health.not_live() == ""
        await passing(2)
        assert "no heartbeat came back" in world.controller.health.not_live()


async def test_r82_what_happened_while_nobody_watched_is_found_out() -> None:
    """A list soon after the watch began anew, and every five minutes: nothing lost, nothing double.

    Red: `Watchman.audit` lists only when something was doubted.
    """
    tenants = fixtures.load(g0="1/15000/0")
    world = await World(*fixtures.t4x2(), *tenants).load()
    world.cluster.remove("Pod", "g0-0", "default")
    world.cluster.put(fixtures.load(g1="1/9000/0")[0])
    world.cluster.changes.clear()
    async with world.running():
        await passing(301)
        assert world.used() == {fixtures.uuid("g1"): 9000}


async def test_r83_a_foreign_peering_does_not_pause_us() -> None:
    """With a real one in the cluster: tests/e2e/test_watches.py. Red: peering is not standalone."""
    settings = handlers.settings()

    assert settings.peering.standalone
    assert not settings.peering.mandatory


# What is written ----------------------------------------------------------------------------------


async def test_r84_nothing_is_kept_on_pods_but_their_allocation() -> None:
    """One write a Pod with cards, none to others, none after its end; Kopf keeps no state on any.

    By audit of a real API server: tests/e2e/test_footprint.py. Red: a handler is registered by
    `kopf.on.update`.
    """
    pods = fixtures.pods(20, gpumem=1000)
    others = [build.pod(f"o{number}", gpus=None, node="n1") for number in range(20)]
    world = await World(build.node_object("n1"), *fixtures.t4x4(), *pods, *others).load()
    async with world.running():
        await lives(world, pods)
        after = len(world.cluster.calls)
        await passing(600)

    writes = [call for call in world.cluster.calls if call[0] in ("bind", "patch_pod")]
    assert sorted(writes) == sorted(("bind", "default", pod["metadata"]["name"]) for pod in pods)
    assert [call for call in world.cluster.calls[after:] if call[0] == "annotate_pod"] == []
    for pod in world.cluster.objects["Pod"].values():
        assert not [key for key in pod["metadata"]["annotations"] if "kopf" in key]
        assert "finalizers" not in pod["metadata"]
    registry = registered(world)
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()


async def test_r86_nothing_of_ours_keeps_an_object_from_its_deletion() -> None:
    """No finalizer, in no manifest and by no handler; GPUNodes go without us.

    On a real API server: tests/e2e/test_install.py, "goes without a trace". Red: a handler is
    registered by `kopf.on.delete`.
    """
    required = registered(await World().load())._watching.get_all_handlers()

    assert [each.id for each in required if getattr(each, "requires_finalizer", False)] == []
    assert registered(World())._changing.get_all_handlers() == []
    for path in [*MANIFESTS.rglob("*.yaml"), *(MANIFESTS.parent / "crds").glob("*.yaml")]:
        assert "finalizers" not in path.read_text(), path


async def test_r89_a_missing_right_on_events_is_told_once_and_places_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That none is missing: tests/e2e/test_rights.py. Red: `Recorder._tell` says it each time."""
    pods = fixtures.pods(5, gpumem=1000)
    world = await World(*fixtures.t4x4(), *pods).load()
    world.cluster.fail("create_event", *[refused(403, "events is forbidden")] * 99)
    async with background(world.controller.recorder.run()):
        await lives(world, pods)
        world.filter(build.pod("never", gpumem=99999), "n1")
        await passing(60)

    told = [text for text in caplog.messages if "events can't be written" in text]
    assert told == ["events can't be written, placement goes on: events is forbidden"]
    assert world.cluster.called("create_event") >= 5


# Several replicas, rollout ------------------------------------------------------------------------


async def holds(cluster: FakeCluster, holder: str, seconds: int, *, transitions: int) -> None:
    """A kube-scheduler takes the Lease, and renews it every second for so long."""
    for second in range(seconds):
        cluster.put(
            {
                "kind": "Lease",
                "metadata": {"namespace": "cardwise-system", "name": "cardwise-scheduler"},
                "spec": {
                    "holderIdentity": holder,
                    "leaseDurationSeconds": 15,
                    "leaseTransitions": transitions,
                    "renewTime": f"2026-11-29T12:{transitions:02}:{second:02}.000000Z",
                },
            }
        )
        await passing(1.0)


async def test_r87_the_standby_places_when_its_scheduler_takes_over_and_the_other_does_not() -> (
    None
):
    """One at a time, ready both, and nothing given away twice.

    Kills, pauses and cuts on real processes: tests/e2e/test_replicas.py. Red: `Duty.refusal` does
    not ask the tenure.
    """
    first, second = (build.pod(name, gpumem=15000) for name in "pq")
    cluster = FakeCluster(build.node_object("n1"), *fixtures.t4x1(), first, second)
    a, b = [
        await World(cluster=cluster, election=Election(identity=host)).load() for host in ("a", "b")
    ]
    async with a.running(), b.running():
        await holds(cluster, "a_uuid-1", 10, transitions=1)
        assert "not active" in b.filter(first, "n1")["Error"]
        assert b.controller.health.not_ready() == ""
        assert await a.bind(first, a.chosen(first, "n1")) == ""
        await holds(cluster, "b_uuid-2", 20, transitions=2)
        assert "not active" in a.filter(second, "n1")["Error"]
        assert b.filter(second, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.MEMORY}


@pytest.mark.parametrize(
    "path",
    sorted(p for p in MANIFESTS.rglob("*.yaml") if "Anti" in p.read_text()),
    ids=lambda path: f"R88 {path.parent.name}",
)
def test_r88_on_one_node_a_rollout_does_not_wait_for_a_second(path: Path) -> None:
    """Replicas only prefer to be apart, and no port of the machine is taken by two.

    Passive replicas are ready: R87. Red: the anti-affinity is required.
    """
    text = path.read_text()

    assert "preferredDuringSchedulingIgnoredDuringExecution" in text
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in text


def test_r88_no_port_of_the_machine_is_taken() -> None:
    """Red: a hostPort in a manifest."""
    documents = {
        path: list(yaml.safe_load_all(path.read_text())) for path in MANIFESTS.rglob("*.yaml")
    }

    assert "containerPort" in str(documents)
    assert [path for path, found in documents.items() if "hostPort" in str(found)] == []


# Metrics ------------------------------------------------------------------------------------------

CARD = ("device_index", "device_type", "device_uuid", "node", "zone")


def series(world: World) -> dict[str, list[Mapping[str, str]]]:
    """The labels of each sample, by metric."""
    rendered = world.controller.metrics.render().decode()
    return {
        family.name: [sample.labels for sample in family.samples]
        for family in text_string_to_metric_families(rendered)
    }


def of_cards(world: World) -> dict[str, list[Mapping[str, str]]]:
    """Those that tell of cards, not of their tenants."""
    found = series(world)
    return {k: v for k, v in found.items() if v and "device_index" in v[0]}


async def test_r90_all_series_of_cards_have_one_label_set_and_ghosts_vanish() -> None:
    """Node, UUID, index and model, the same in each; what HAMi adds to two of them stays constant.

    Red: `_cards` gives one family the container's name, or reads Pods that are gone.
    """
    pod = build.pod("p1", gpumem=1000)
    world = await World(*fixtures.t4x2(), pod).load()
    idle = of_cards(world)
    assert await world.bind(pod, world.chosen(pod, "n1")) == ""
    world.deliver()

    busy = of_cards(world)
    assert busy == idle, "a label that changed with the load"
    sets = {
        tuple(sorted(tuple(labels[key] for key in CARD) for labels in samples))
        for samples in busy.values()
    }
    assert len(sets) == 1
    assert len(busy) >= 7
    assert "p1" in str(series(world))

    world.cluster.remove("Pod", "p1", "default")
    world.cluster.put(fixtures.t4x1()[0])  # the second card is taken out
    world.deliver()
    assert "p1" not in str(series(world))
    assert "GPU-g1" not in str(series(world))
    world.cluster.remove("GPUNode", "n1")
    world.deliver()
    assert of_cards(world) == {}
    assert "n1" not in str(series(world))


@pytest.mark.parametrize(
    ("objects", "largest", "total"),
    [
        pytest.param(
            [*fixtures.t4x2(), *fixtures.load(g0="1/8000/0", g1="1/8000/0")],
            7360,
            14720,
            id="R81 the largest block and the sum",
        ),
        pytest.param(
            [fixtures.changed(fixtures.t4x2()[0], 0, healthy=False)], 15360, 15360, id="a sick card"
        ),
        pytest.param(
            [fixtures.changed(fixtures.t4x1()[0], slots=1), *fixtures.load(g0="1/8/0")],
            0,
            0,
            id="no slot left",
        ),
        pytest.param(
            [*fixtures.t4x1(), build.node_object(annotations={NODE_CORDON: "GPU-g0"})],
            0,
            0,
            id="a card that is closed",
        ),
        pytest.param(
            [*fixtures.t4x1(), build.pod("x", node="n1", allocated="GPU-g0,NVIDIA,abc,0:;")],
            0,
            0,
            id="a node that is closed",
        ),
    ],
)
async def test_r81_how_scattered_the_free_memory_is(
    objects: list[Json], largest: int, total: int
) -> None:
    """Red: `CardState.room_mib` looks at the memory alone."""
    rendered = (await World(*objects).load()).controller.metrics.render().decode()

    assert f'cardwise_free_memory_largest_mebibytes{{node="n1"}} {float(largest)}' in rendered
    assert f'cardwise_free_memory_mebibytes{{node="n1"}} {float(total)}' in rendered


# Classes, filters ---------------------------------------------------------------------------------


async def test_r67_a_device_class_that_takes_our_resource_name_is_said_to_the_pods_it_stops() -> (
    None
):
    """kube-scheduler refuses them before it asks: tests/controller/followers/test_classes.py.

    Red: `Classes.see_pod` tells nobody.
    """
    taker = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"extendedResourceName": "nvidia.com/gpu"},
    }
    world = await World(taker, *fixtures.t4x1()).load()
    world.controller.classes.see_pod(build.pod("stopped"))
    assert b"cardwise_device_class_conflict{" in world.controller.metrics.render()
    assert await world.reasons() == [EventReason.CLASS_TAKES_OUR_RESOURCE]


USE, NOT_USE = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"


@pytest.mark.parametrize(
    ("load", "policy", "annotations", "want"),
    [
        pytest.param(
            {"g0": "1/100/0"},
            "binpack",
            {USE: "GPU-g3, GPU-g2"},
            ["g2"],
            id="R92 a list with blanks, beside a policy",
        ),
        pytest.param({}, "spread", {NOT_USE: "GPU-g0"}, ["g1"], id="R92 one card left out"),
        pytest.param({}, None, {USE: "nope"}, Reason.CARD_UUID, id="R92 nothing is left"),
        pytest.param({}, None, {USE: "GPU-g"}, Reason.CARD_UUID, id="R92 a part is no UUID"),
        pytest.param(
            {},
            None,
            {USE: "GPU-g1,GPU-g2", NOT_USE: "GPU-g1"},
            ["g2"],
            id="R92 what is left out wins",
        ),
    ],
)
def test_r92_the_cards_that_are_asked_for_and_no_other(
    load: dict[str, str], policy: str | None, annotations: Json, want: list[str] | str
) -> None:
    """Red: `decide` takes a UUID that begins as the Pod says."""
    pod = build.pod(gpumem=100, policy=policy, annotations=annotations)

    found = fixtures.one(*fixtures.t4x4(), *fixtures.load(**load), pod)

    assert fixtures.cards_of(found) == want
    if isinstance(want, str):
        assert "4/4 CardUuidMismatch" in found["message"]


def test_r92_a_single_card_can_be_closed() -> None:
    """Red: `_make_view` leaves out the report's cordoned cards."""
    [gpunode] = fixtures.t4x4()
    closed = {**gpunode, "spec": {"cordonedCards": ["GPU-g0"]}}

    assert fixtures.got(closed, build.pod(gpumem=100, policy="spread")) == {"p": ["g1"]}
