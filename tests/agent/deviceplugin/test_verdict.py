"""Whether a Pod's containers may start, and with which cards each."""

from typing import Any

import pytest

import build
from cardwise import names
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from plugin import card, entry, uid

CARDS = [card(0), card(1), card(2)]


def pod(name: str = "p", text: str | None = "GPU-a,NVIDIA,1000,0:;", **fields: Any) -> build.Json:
    bound_at = fields.pop("bound_at", 1)
    annotations = {names.BIND_TIME: str(bound_at), **fields.pop("annotations", {})}
    made = {"node": "n1", "phase": "Pending", "annotations": annotations, **fields}
    return build.pod(name, allocated=text, **made)


def verdict(pods: list[build.Json], *entries: Entry, **node: Any) -> dict[str, str] | str:
    """The cards of each token, or why not."""
    found = judge(uid("p"), pods, entries or (entry(),), Node(cards=CARDS, **node))
    if isinstance(found, Refusal):
        return f"{found.reason}: {found.message}"
    return {token: edits.env["NVIDIA_VISIBLE_DEVICES"] for token, edits in found.items()}


def test_a_container_gets_what_its_pod_was_given() -> None:
    assert verdict([pod()]) == {"t-p-app": "GPU-a"}


FAMILY = {
    "containers": [
        build.container("app", gpu=1),
        build.container("plain"),
        build.container("two", gpu=2),
    ],
    "init": [build.container("first", gpu=1), build.container("beside", gpu=1, sidecar=True)],
}
TEXT = "GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,2,0:;GPU-c,NVIDIA,3,0:;;GPU-a,NVIDIA,4,0:GPU-b,NVIDIA,5,0:;"


def test_each_container_gets_its_own_segment() -> None:
    entries = [
        entry("p", "first", "GPU-a-0"),
        entry("p", "beside", "GPU-a-1"),
        entry("p", "app", "GPU-a-0"),
        entry("p", "two", "GPU-a-2", "GPU-b-0"),
    ]

    assert verdict([pod(text=TEXT, **FAMILY)], *entries) == {
        "t-p-first": "GPU-a",
        "t-p-beside": "GPU-b",
        "t-p-app": "GPU-c",
        "t-p-two": "GPU-a,GPU-b",
    }


def test_what_another_plugin_answered_is_left_alone() -> None:
    assert verdict([pod()], entry(cdi=("nvidia.com/gpu=0",))) == {}


def test_the_users_variables_are_read() -> None:
    env = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}, {"name": "X", "valueFrom": {}}]
    one = pod(containers=[build.container("app", gpu=1, env=env)])

    found = judge(uid("p"), [one], [entry()], Node(cards=CARDS))

    assert not isinstance(found, Refusal)


REFUSED = [
    pytest.param([], "AllocationMismatch: the API server has no such Pod", id="no-pod"),
    pytest.param([pod("q")], "AllocationMismatch: the API server has no such Pod", id="a-namesake"),
    pytest.param([pod(text=None)], "AllocationMismatch: it has no allocation", id="no-cards"),
    pytest.param(
        [pod(text="GPU-a,NVIDIA:;")],
        "AllocationMismatch: its allocation can't be read",
        id="unreadable",
    ),
    pytest.param([pod(phase="Failed")], "AllocationMismatch: it has no allocation", id="ended"),
    pytest.param(
        [pod(text=";")],
        "container app asked for 1 cards, and its allocation has 0",
        id="fewer-cards",
    ),
    pytest.param(
        [pod(text="GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;")],
        "container app asked for 1 cards, and its allocation has 2",
        id="more-cards",
    ),
    pytest.param(
        [pod(text="")],
        "container app asked for 1 cards, and its allocation has 0",
        id="shorter-text",
    ),
    pytest.param(
        [pod(containers=[build.container("other", gpu=1)])],
        "container app asked for 1 cards, and its allocation has 0",
        id="no-such-container",
    ),
    pytest.param(
        [pod(text="GPU-x,NVIDIA,1,0:;")], "this node has no card GPU-x", id="no-such-card"
    ),
    pytest.param([pod(text="GPU-a,NVIDIA,99999,0:;")], "CardOverbooked: GPU 0", id="too-large"),
]


@pytest.mark.parametrize(("pods", "sentence"), REFUSED)
def test_what_must_not_start(pods: list[build.Json], sentence: str) -> None:
    assert sentence in verdict(pods)


def test_one_container_without_its_cards_keeps_the_whole_pod_from_starting() -> None:
    text = TEXT.replace("GPU-c,NVIDIA,3,0:", "")
    entries = [entry("p", "first", "GPU-a-0"), entry("p", "app", "GPU-a-0")]

    assert "container app asked for 1 cards" in verdict([pod(text=text, **FAMILY)], *entries)


BIG = "GPU-a,NVIDIA,10000,0:;"
EARLIER = [
    pytest.param({}, True, id="bound-before"),
    pytest.param({"bound_at": 3}, False, id="bound-later"),
    pytest.param({"bound_at": 2}, False, id="same-second-by-uid"),
    pytest.param({"annotations": {names.BIND_TIME: "soon"}}, False, id="no-time-comes-last"),
    pytest.param({"bound_at": 3, "status": True}, True, id="has-a-container"),
    pytest.param({"phase": "Succeeded"}, False, id="ended"),
    pytest.param({"node": None}, False, id="not-bound"),
    pytest.param({"text": "broken,NVIDIA:;"}, False, id="unreadable"),
    pytest.param({"terminating": True}, True, id="terminating"),
]


@pytest.mark.parametrize(("fields", "stands_in_the_way"), EARLIER)
def test_another_pod_on_the_card(fields: dict[str, Any], stands_in_the_way: bool) -> None:
    started = fields.pop("status", False) if "status" in fields else False
    other = pod("z", **{"text": BIG, "bound_at": 1, **fields})
    if started:
        other["status"]["containerStatuses"] = [{"name": "app", "containerID": "containerd://1"}]

    found = verdict([pod(text=BIG, bound_at=2), other])

    assert ("CardOverbooked" in found) == stands_in_the_way


def test_a_pod_that_was_let_start_before_comes_first_though_kubelet_told_nothing_yet() -> None:
    other = pod("z", text=BIG, bound_at=3)

    found = verdict([pod(text=BIG, bound_at=2), other], begun=frozenset({uid("z")}))

    assert "CardOverbooked" in found


INIT_TOO = {
    "text": "GPU-a,NVIDIA,10000,0:;GPU-a,NVIDIA,1000,0:;",
    "init": [build.container("first", gpu=1)],
    "init_exits": {"first": 0},
}


@pytest.mark.parametrize(("shrinks", "refused"), [(False, True), (True, False)])
def test_init_containers_that_ended_count_unless_the_settings_say_not(
    shrinks: bool, refused: bool
) -> None:
    found = verdict([pod(text=BIG, bound_at=2), pod("z", **INIT_TOO)], init_shrink=shrinks)

    assert ("CardOverbooked" in found) == refused


def test_ones_own_init_containers_keep_their_cards_in_any_case() -> None:
    """They run again where the sandbox is made anew."""
    entries = [entry("p", "first", "GPU-a-0"), entry("p", "app", "GPU-a-0")]

    assert verdict([pod("p", **INIT_TOO)], *entries, init_shrink=True) == {
        "t-p-first": "GPU-a",
        "t-p-app": "GPU-a",
    }
