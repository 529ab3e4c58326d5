"""A DeviceClass that takes a resource name of ours is noticed and said."""

from typing import Any

import pytest

import build
from cardwise.names import EventReason
from controllers import World, passing
from fakes.cluster import refused

Json = dict[str, Any]


def device_class(name: str = "gpu.nvidia.com", resource: object = "nvidia.com/gpu") -> Json:
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {} if resource is None else {"extendedResourceName": resource},
    }


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(device_class(), {"gpu.nvidia.com": "nvidia.com/gpu"}, id="our count"),
        pytest.param(
            device_class(resource="nvidia.com/gpumem"),
            {"gpu.nvidia.com": "nvidia.com/gpumem"},
            id="another name of ours",
        ),
        pytest.param(device_class(resource="amd.com/gpu"), {}, id="somebody else's"),
        pytest.param(device_class(resource=None), {}, id="none"),
        pytest.param(device_class(resource=7), {}, id="what is no text"),
    ],
)
async def test_which_classes_are_in_the_way(
    document: Json, want: Json, caplog: pytest.LogCaptureFixture
) -> None:
    world = await World(document).load()

    assert world.controller.classes.conflicts == want
    assert ("takes the resource name" in caplog.text) == bool(want)


async def test_it_is_logged_once_and_forgotten_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World(device_class()).load()
    await world.controller.classes.refresh()
    assert sum("remove extendedResourceName" in text for text in caplog.messages) == 1

    world.cluster.remove("DeviceClass", "gpu.nvidia.com")
    await world.controller.classes.refresh()
    assert world.controller.classes.conflicts == {}


async def test_a_list_that_fails_leaves_what_was_known() -> None:
    world = await World(device_class()).load()
    world.cluster.fail("device_classes", refused(500))

    await world.controller.classes.refresh()

    assert world.controller.classes.conflicts == {"gpu.nvidia.com": "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        pytest.param(build.pod(), True, id="a waiting Pod of ours"),
        pytest.param(build.pod(gpus=None, gpumem=1), True, id="one that names memory alone"),
        pytest.param(build.pod(node="n1"), False, id="a bound one"),
        pytest.param(build.pod(scheduler="another"), False, id="another scheduler's"),
        pytest.param(build.pod(gpus=None), False, id="one without cards"),
        pytest.param({"metadata": 1, "spec": []}, False, id="one that is broken"),
    ],
)
async def test_who_is_told(pod: Json, told: bool) -> None:
    world = await World(device_class("z"), device_class("a")).load()

    world.controller.classes.see_pod(pod)
    world.controller.classes.see_pod(pod)

    events = await world.events()
    assert [reason for reason, _ in events] == [EventReason.CLASS_TAKES_OUR_RESOURCE] * told
    assert all("DeviceClass a takes" in note for _, note in events)


async def test_nobody_is_told_where_no_class_is_in_the_way() -> None:
    world = await World().load()

    world.controller.classes.see_pod(build.pod())

    assert await world.events() == []


async def test_a_class_that_comes_later_is_found_with_the_next_list() -> None:
    world = await World().load()
    world.cluster.put(device_class())

    async with world.running():
        await passing(299.0)
        assert world.controller.classes.conflicts == {}
        await passing(2.0)
        assert world.controller.classes.conflicts != {}
