"""Which slots kubelet should take."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.agent.deviceplugin import choice
from cardwise.agent.deviceplugin.messages import Device, Preference
from plugin import card, entry

ALL = tuple(f"GPU-{letter}-{slot}" for letter in "abc" for slot in range(11))


def preference(size: int, available: tuple[str, ...] = ALL, *must: str) -> Preference:
    return Preference(available=available, must_include=must, size=size)


def test_every_slot_is_a_device_as_healthy_as_its_card() -> None:
    cards = [card(0, slots=2), card(1, slots=1, healthy=False)]

    assert choice.devices_of(cards) == [
        Device("GPU-a-0", healthy=True),
        Device("GPU-a-1", healthy=True),
        Device("GPU-b-0", healthy=False),
    ]


ROWS: list[Any] = [
    pytest.param(preference(1), ("GPU-c",), ["GPU-c-0"], id="the-wanted-card"),
    pytest.param(preference(2), ("GPU-c", "GPU-a"), ["GPU-c-0", "GPU-a-0"], id="in-their-order"),
    pytest.param(preference(2), (), ["GPU-a-0", "GPU-b-0"], id="different-cards"),
    pytest.param(preference(1, ALL[2:]), ("GPU-a",), ["GPU-a-2"], id="lowest-free-slot"),
    pytest.param(preference(1, ALL[11:]), ("GPU-a",), ["GPU-b-0"], id="wanted-card-is-full"),
    pytest.param(
        preference(2, ALL, "GPU-b-7"),
        ("GPU-b", "GPU-a"),
        ["GPU-b-7", "GPU-b-0"],
        id="what-must-be-in-it",
    ),
    pytest.param(
        preference(3, ("GPU-a-0", "GPU-a-1", "GPU-a-10")),
        ("GPU-a",),
        ["GPU-a-0", "GPU-a-1", "GPU-a-10"],
        id="more-than-there-are-cards",
    ),
    pytest.param(preference(0), (), [], id="none"),
]


@pytest.mark.parametrize(("asked", "wanted", "expected"), ROWS)
def test_what_is_chosen(asked: Preference, wanted: tuple[str, ...], expected: list[str]) -> None:
    assert choice.choose(asked, wanted) == expected


@given(st.data())
def test_a_choice_is_one_that_kubelet_can_take(data: st.DataObject) -> None:
    available = data.draw(st.lists(st.sampled_from(ALL), unique=True))
    must = data.draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    size = data.draw(st.integers(len(must), max(len(available), len(must))))
    wanted = data.draw(st.lists(st.sampled_from(["GPU-a", "GPU-b", "GPU-c", "GPU-x"])))

    chosen = choice.choose(preference(size, tuple(available), *must), wanted)

    assert len(chosen) == size == len(set(chosen))
    assert set(must) <= set(chosen) <= set(available)


def pod(name: str, letter: str, created: int, **fields: Any) -> build.Json:
    made = {"node": "n1", "allocated": f"GPU-{letter},NVIDIA,1,0:;", **fields}
    made["created"] = f"2026-11-30T00:00:{created:02}Z"
    return build.pod(name, **made)


def test_the_oldest_pod_that_got_nothing_is_next() -> None:
    pods = [pod("new", "a", 9), pod("old", "b", 1), pod("served", "c", 0), pod("bad", "x:;", 0)]

    assert choice.next_cards(pods, [entry("served", "app")], 1) == ("GPU-b",)


def known(made: build.Json) -> build.Json:
    """A Pod that a kubelet told of."""
    made["status"]["startTime"] = "2026-11-30T00:01:00Z"
    return made


TWO = {
    "allocated": "GPU-a,NVIDIA,1,0:;GPU-c,NVIDIA,1,0:;",
    "containers": [build.container("one", gpu=1), build.container("two", gpu=1)],
}
FIRST: list[Any] = [
    pytest.param(
        [pod("old", "a", 1, resource_version="10"), pod("new", "b", 2, resource_version="9")],
        id="bound-first-though-created-last",
    ),
    pytest.param(
        [
            pod("old", "a", 1, resource_version="9"),
            known(pod("new", "b", 2, resource_version="99")),
        ],
        id="known-to-the-kubelet-before",
    ),
    pytest.param(
        [
            known(pod("new", "a", 2, resource_version="9")),
            known(pod("old", "b", 1, resource_version="99")),
        ],
        id="of-those-known-before-the-oldest",
    ),
    pytest.param(
        [pod("goes", "a", 1, terminating=True), pod("stays", "b", 2, resource_version="5")],
        id="one-that-is-deleted-comes-last",
    ),
    pytest.param(
        [pod("larger", "a", 1, allocated="GPU-a,NVIDIA,1,0:GPU-c,NVIDIA,1,0:;"), pod("p", "b", 2)],
        id="one-that-asks-for-another-number-is-not-the-one",
    ),
]


@pytest.mark.parametrize("pods", FIRST)
def test_who_is_asked_for(pods: list[build.Json]) -> None:
    assert choice.next_cards(pods, [], 1) == ("GPU-b",)


def test_the_pod_that_kubelet_has_begun_with_is_first() -> None:
    pods = [pod("other", "b", 1), pod("begun", "a", 9, resource_version="99", **TWO)]

    assert choice.next_cards(pods, [], 1) == ("GPU-b",)
    assert choice.next_cards(pods, [entry("begun", "one")], 1) == ("GPU-c",)


def test_a_pods_next_container_is_next() -> None:
    pods = [
        pod(
            "p",
            "a",
            1,
            allocated="GPU-a,NVIDIA,1,0:;;GPU-b,NVIDIA,1,0:GPU-c,NVIDIA,1,0:;GPU-c,NVIDIA,1,0:;",
            containers=[build.container(name, gpu=1) for name in ("one", "none", "two", "last")],
        )
    ]

    assert choice.next_cards(pods, [], 1) == ("GPU-a",)
    assert choice.next_cards(pods, [entry("p", "one")], 2) == ("GPU-b", "GPU-c")
    assert choice.next_cards(pods, [entry("p", "one")], 1) == ()
    assert choice.next_cards(pods, [entry("p", "one"), entry("p", "two")], 1) == ("GPU-c",)
    assert choice.next_cards(pods, [], 3) == ()
