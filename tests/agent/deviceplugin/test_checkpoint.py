"""Kubelet's checkpoint: whose start it is, without a guess."""

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.agent.deviceplugin import checkpoint
from cardwise.agent.deviceplugin.handover import Mount
from cardwise.agent.deviceplugin.messages import ContainerAnswer
from cardwise.errors import BadBody
from cardwise.names import RESOURCE_COUNT
from plugin import checkpoint_text, entry, uid

names = st.text("abcdefgh-0123456789", min_size=1, max_size=8)
told = ContainerAnswer(
    envs={"A": "1"}, mounts=(Mount("/a", "/b"),), annotations={"cardwise.dev/token": "t"}
)
entries = st.lists(
    st.builds(
        lambda pod, container, ids, more: entry(pod, container, *ids, **more),
        names,
        names,
        st.sets(names, min_size=1, max_size=4),
        st.sampled_from([{}, {"answer": told}]),
    ),
    max_size=6,
)


@given(entries, st.integers(-1, 3))
def test_what_kubelet_writes_is_read(written: list[checkpoint.Entry], numa: int) -> None:
    assert checkpoint.parse(checkpoint_text(written, numa=numa)) == written


@pytest.mark.parametrize(
    ("kept", "tokens", "by_cdi"),
    [
        pytest.param(entry(), ("t-p-app",), True, id="by-cdi"),
        pytest.param(entry(answer=told), ("t",), False, id="without"),
        pytest.param(entry(cdi=("nvidia.com/gpu=0",)), (), False, id="another-plugins"),
    ],
)
def test_the_token_is_in_the_answer(
    kept: checkpoint.Entry, tokens: tuple[str, ...], by_cdi: bool
) -> None:
    assert (kept.tokens, kept.by_cdi) == (tokens, by_cdi)


def test_ids_of_several_numa_nodes_are_one_set() -> None:
    document = orjson.loads(checkpoint_text([entry("p", "app", "a", "b")]))
    document["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = {"0": ["a", "b"], "1": ["b", "c"]}

    (read,) = checkpoint.parse(orjson.dumps(document))

    assert read.ids == {"a", "b", "c"}


@pytest.mark.parametrize("listed", [b'{"Data":{"PodDeviceEntries":null}}', checkpoint_text([])])
def test_a_kubelet_that_gave_nothing_yet(listed: bytes) -> None:
    assert checkpoint.parse(listed) == []


ODD = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="cut-off"),
    pytest.param(b"[]", id="list"),
    pytest.param(b'{"Data":{}}', id="another-version"),
    pytest.param(b'{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}', id="entry-of-another-version"),
    pytest.param(
        checkpoint_text([entry()]).replace(b'"AllocResp":"', b'"AllocResp":"%'), id="no-base64"
    ),
    pytest.param(
        checkpoint_text([entry()]).replace(
            orjson.dumps(
                orjson.loads(checkpoint_text([entry()]))["Data"]["PodDeviceEntries"][0]["AllocResp"]
            ),
            orjson.dumps(base64.b64encode(b"\x0a\xff").decode()),
        ),
        id="no-message",
    ),
]


@pytest.mark.parametrize("data", ODD)
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(BadBody):
        checkpoint.parse(data)


def found(*listed: checkpoint.Entry, ids: set[str]) -> list[tuple[str, str]]:
    pod = checkpoint.of_start(listed, RESOURCE_COUNT, frozenset(ids))
    return [(each.pod_uid, each.container) for each in pod]


def test_the_ids_tell_the_pod_and_all_of_its_containers() -> None:
    assert found(
        entry("p", "app", "a"), entry("q", "app", "b"), entry("p", "other", "c"), ids={"a"}
    ) == [(uid("p"), "app"), (uid("p"), "other")]


def test_an_init_container_and_a_later_one_may_have_the_same_ids() -> None:
    assert found(entry("p", "init", "a"), entry("p", "app", "a"), ids={"a"}) == [
        (uid("p"), "init"),
        (uid("p"), "app"),
    ]


def test_another_resource_with_the_same_ids_is_another_thing() -> None:
    assert found(entry("q", "app", "a", resource="x/y"), entry("p", "app", "a"), ids={"a"}) == [
        (uid("p"), "app")
    ]


UNKNOWN = [
    pytest.param([entry("p", "app", "a", "b")], {"a"}, "no Pod", id="part-of-a-set"),
    pytest.param([entry("p", "app", "a")], {"a", "b"}, "no Pod", id="more-than-a-set"),
    pytest.param([], {"a"}, "no Pod", id="none"),
    pytest.param([entry("p", "app", "a"), entry("q", "app", "a")], {"a"}, "2 Pods", id="two"),
]


@pytest.mark.parametrize(("listed", "ids", "told"), UNKNOWN)
def test_ids_that_tell_no_pod_are_refused(
    listed: list[checkpoint.Entry], ids: set[str], told: str
) -> None:
    with pytest.raises(BadBody, match=told):
        found(*listed, ids=ids)
