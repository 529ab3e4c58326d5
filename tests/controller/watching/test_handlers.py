"""The Kopf operator: which kinds it watches, and what becomes of an event."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import kopf
import pytest

import build
from cardwise.controller.watching import handlers
from cardwise.controller.watching.watch import BEAT_SECONDS, SILENCE_SECONDS
from controllers import OWN, World, passing

Json = dict[str, Any]


def registered(world: World) -> kopf.OperatorRegistry:
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


async def tell(world: World, kind: str, what: str | None, document: Json) -> None:
    """An event as Kopf hands it over."""
    [handler] = [
        each
        for each in registered(world)._watching.get_all_handlers()
        if each.selector is not None and each.selector.any_name == kind
    ]
    await handler.fn(event={"type": what, "object": document}, logger=None, memo=None)


async def test_four_kinds_are_watched_by_coroutines() -> None:
    found = registered(World())._watching.get_all_handlers()

    assert {
        (each.selector.group, each.selector.version, each.selector.any_name)
        for each in found
        if each.selector is not None
    } == {
        ("", "v1", "pods"),
        ("cardwise.dev", "v1alpha1", "gpunodes"),
        ("", "v1", "nodes"),
        ("", "v1", "resourcequotas"),
    }
    assert len({each.id for each in found}) == 4


async def test_kopf_is_told_to_write_nothing() -> None:
    settings = handlers.settings()

    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.scanning.disabled


async def test_kopf_copies_and_remembers_nothing_of_an_object() -> None:
    storage = handlers.settings().persistence.diffbase_storage
    body = kopf.Body(build.pod("p", gpumem=1000, annotations={"a": "1"}))

    assert storage.build(body=body, extra_fields=[("status",)]) == {}
    assert storage.fetch(body=body) is None


async def test_kopf_looks_for_no_progress_of_handlers_in_an_object() -> None:
    # Red: Kopf's own storage, which copies what it is given and looks through the annotations.
    storage, essence = handlers.settings().persistence.progress_storage, kopf.BodyEssence()
    body, patch = kopf.Body(build.pod("p", annotations={"kopf.zalando.org/h": "{}"})), kopf.Patch()

    storage.touch(body=body, patch=patch, value="now")

    assert storage.clear(essence=essence) is essence
    assert storage.fetch(key="h", body=body) is None
    assert not patch


async def test_kopf_never_gives_a_watch_up_and_never_stays_away_for_long() -> None:
    backoffs = handlers.settings().networking.error_backoffs
    assert isinstance(backoffs, Iterable)

    for _ in range(2):  # each request begins anew
        first = list(islice(backoffs, 1000))
        assert len(first) == 1000
        assert (first[0], max(first)) == (1, 5)


async def test_a_dead_watch_is_found_out_long_before_the_process_counts_as_dead() -> None:
    settings = handlers.settings()

    assert settings.watching.server_timeout is not None
    assert settings.networking.request_timeout is not None
    # Between these two the API server ends an idle watch: that is no silence.
    assert settings.watching.server_timeout + 5 <= settings.watching.inactivity_timeout
    # A dead watch, and then a list that is not answered, once.
    worst = settings.watching.inactivity_timeout + settings.networking.request_timeout
    assert worst + BEAT_SECONDS < SILENCE_SECONDS


async def test_kopf_logs_in_as_it_is_told() -> None:
    registry = registered(World())
    [handler] = registry._activities.get_all_handlers()

    assert (await handler.fn(logger=None)).server == "https://api"


async def test_events_reach_the_ledger() -> None:
    world = await World().load()
    pod = build.pod(node="n1", gpumem=1000, allocated=build.allocation("GPU-n1-a"))

    await tell(world, "gpunodes", "ADDED", build.gpunode())
    await tell(world, "nodes", "ADDED", build.node_object(cordon="GPU-n1-b"))
    await tell(world, "resourcequotas", "ADDED", build.quota(gpumem=5000))
    await tell(world, "pods", "MODIFIED", pod)
    assert world.used() == {"GPU-n1-a": 1000}
    assert world.ledger.view("n1").state.cards[1].cordoned
    assert world.ledger.bound("default").memory_mib == 5000

    await tell(world, "pods", "DELETED", pod)
    await tell(world, "gpunodes", "DELETED", build.gpunode())
    assert world.used() == {}
    assert world.ledger.gpunode_names() == []


@pytest.mark.parametrize(
    ("what", "document", "lists"),
    [
        pytest.param("ADDED", build.gpunode(), 0, id="an event of the watch"),
        pytest.param(None, build.gpunode(), 1, id="a line of a list: something may be missed"),
        pytest.param("ADDED", None, 1, id="an event that can't be taken"),
    ],
)
async def test_when_a_fresh_list_is_asked_for(
    what: str | None, document: Any, lists: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = await World().load()
    before = world.cluster.called("unfinished_pods")

    async with world.running():
        await tell(world, "gpunodes", what, document)
        await passing(5.0)

    assert world.cluster.called("unfinished_pods") - before == lists
    assert ("an event could not be taken" in caplog.text) == (document is None)


async def test_a_list_of_kopf_is_compared_when_its_last_line_was_taken() -> None:
    # Red: `_handler` doubts at each line of a list, or tells nobody that a list comes.
    world = await World().load()
    before = world.cluster.called("unfinished_pods")

    async with world.running():
        for _ in range(10):
            await tell(world, "gpunodes", None, build.gpunode())
            await passing(1.0)
        assert world.cluster.called("unfinished_pods") == before
        await passing(2.0)
        assert world.cluster.called("unfinished_pods") - before == 1


@pytest.mark.parametrize(
    ("pod", "heard"),
    [
        pytest.param(
            build.pod(OWN.name, namespace=OWN.namespace, uid=OWN.uid, gpus=None), True, id="its own"
        ),
        pytest.param(build.pod("other", gpus=None), False, id="another"),
        pytest.param(
            build.pod(OWN.name, namespace=OWN.namespace, uid="before", gpus=None),
            False,
            id="its predecessor of the same name",
        ),
    ],
)
async def test_a_change_of_its_own_pod_shows_that_the_watch_lives(pod: Json, heard: bool) -> None:
    world = await World(own_pod=OWN).load()
    await passing(50.0)

    await tell(world, "pods", "MODIFIED", pod)

    assert (world.controller.health.silence == 0) is heard


async def test_a_pod_that_a_device_class_takes_is_told_when_it_comes_not_when_it_goes() -> None:
    taking = {"metadata": {"name": "a"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    world = await World({"kind": "DeviceClass", **taking}).load()

    await tell(world, "pods", "DELETED", build.pod("gone"))
    await tell(world, "pods", "ADDED", build.pod("came"))

    assert await world.reasons() == ["ClassTakesOurResource"]
    assert world.cluster.events()[0]["regarding"]["name"] == "came"
