"""Whether a Pod's containers may start, and with which cards each."""

from dataclasses import replace
from typing import Any

import pytest

import build
from cardwise import names
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.handover import Mount
from cardwise.agent.deviceplugin.messages import ContainerAnswer
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


# --- without CDI ----------------------------------------------------------------------------------

RIGHT = {
    "NVIDIA_VISIBLE_DEVICES": "GPU-a",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "1000m",
    "CUDA_DEVICE_SM_LIMIT": "0",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/t.cache",
}


def told(envs: dict[str, str | None], mounts: tuple[Mount, ...] = ()) -> Entry:
    """What kubelet was told, but for these variables."""
    written = {name: value for name, value in {**RIGHT, **envs}.items() if value is not None}
    answer = ContainerAnswer(envs=written, mounts=mounts, annotations={"cardwise.dev/token": "t"})
    return entry(answer=answer)


def env(value: dict[str, Any]) -> list[build.Json]:
    """The Pod, with a variable of its author's."""
    return [pod(containers=[build.container("app", gpu=1, env=[value])])]


def test_what_kubelet_was_told_rightly_starts() -> None:
    assert verdict([pod()], told({}), cdi=False) == {"t": "GPU-a"}


def test_what_was_told_without_cdi_stays_right_where_there_is_cdi() -> None:
    assert verdict([pod()], told({}), cdi=True) == {"t": "GPU-a"}


def test_an_authors_variable_that_says_the_same_hides_nothing() -> None:
    same = env({"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-a"})

    assert verdict(same, told({}), cdi=False) == {"t": "GPU-a"}


MOUNT = Mount("/usr/local/vgpu/containers/t", "/usr/local/vgpu")
TOLD = [
    pytest.param(
        [pod()],
        told({"NVIDIA_VISIBLE_DEVICES": "GPU-b"}),
        "kubelet was told NVIDIA_VISIBLE_DEVICES=GPU-b, and the Pod's allocation says GPU-a",
        id="anothers-card",
    ),
    pytest.param(
        [pod()],
        told({"CUDA_DEVICE_MEMORY_LIMIT_0": "9000m"}),
        "was told CUDA_DEVICE_MEMORY_LIMIT_0=9000m, and the Pod's allocation says 1000m",
        id="anothers-memory",
    ),
    pytest.param([pod()], told({"CUDA_DEVICE_SM_LIMIT": "50"}), "SM_LIMIT=50", id="anothers-cores"),
    pytest.param(
        [pod()], told({"CUDA_DEVICE_SM_LIMIT": None}), "SM_LIMIT=, and", id="one-limit-less"
    ),
    pytest.param([pod()], told({"CUDA_OVERSUBSCRIBE": "true"}), "OVERSUBSCRIBE=true", id="more"),
    pytest.param([pod()], told({}, (MOUNT,)), "HAMi-core's mounts are others", id="mounts"),
    pytest.param(
        [pod(text="GPU-b,NVIDIA,1000,0:;")], told({}), "says GPU-b", id="the-allocation-was-changed"
    ),
    pytest.param(
        [pod()],
        entry(
            answer=ContainerAnswer(
                envs={"NVIDIA_VISIBLE_DEVICES": "void"}, annotations={"cardwise.dev/token": "t"}
            )
        ),
        "nobody could tell its cards when kubelet asked",
        id="nothing",
    ),
    pytest.param([pod()], entry(), "told by CDI, which the runtime lacks", id="a-cdi-device"),
    pytest.param(
        env({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
        told({}),
        "its own variable NVIDIA_VISIBLE_DEVICES would hide ours",
        id="the-authors-own-variable",
    ),
    pytest.param(
        env({"name": "CUDA_DEVICE_SM_LIMIT", "valueFrom": {"fieldRef": {}}}),
        told({}),
        "its own variable CUDA_DEVICE_SM_LIMIT would hide ours",
        id="the-authors-own-from-elsewhere",
    ),
]


@pytest.mark.parametrize(("pods", "kept", "sentence"), TOLD)
def test_what_kubelet_was_told_wrongly_does_not_start(
    pods: list[build.Json], kept: Entry, sentence: str
) -> None:
    found = verdict(pods, kept, cdi=False)

    assert isinstance(found, str)
    assert found.startswith("AllocationMismatch: container app: ")
    assert sentence in found


def test_one_container_that_was_told_wrongly_keeps_the_whole_pod_from_starting() -> None:
    two = pod(
        text="GPU-a,NVIDIA,1000,0:;GPU-b,NVIDIA,1000,0:;",
        containers=[build.container("app", gpu=1), build.container("other", gpu=1)],
    )
    other = told({"NVIDIA_VISIBLE_DEVICES": "GPU-c"})
    entries = [told({}), replace(other, container="other", ids=frozenset({"GPU-a-1"}))]

    assert "container other: kubelet was told" in verdict([two], *entries, cdi=False)


def test_a_card_that_is_over_booked_is_refused_though_kubelet_was_told_rightly() -> None:
    kept = told({"CUDA_DEVICE_MEMORY_LIMIT_0": "99999m"})

    found = verdict([pod(text="GPU-a,NVIDIA,99999,0:;")], kept, cdi=False)

    assert "CardOverbooked" in found
