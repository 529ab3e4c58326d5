"""Without CDI: whose cards kubelet is told, and that a wrong guess never starts."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.agent.deviceplugin import guess
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.handover import Library, Mount
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from plugin import card, entry, uid, uuid

NODE = Node(cards=[card(0), card(1), card(2)], cdi=False)


def pod(name: str = "p", text: str = "GPU-a,NVIDIA,1000,30:;", **fields: Any) -> build.Json:
    made = {"node": "n1", "phase": "Pending", "allocated": text, **fields}
    return build.pod(name, **made)


def test_an_answer_tells_the_cards_and_no_cdi_device() -> None:
    (answer,) = guess.answers({"t": 1}, [pod()], [], NODE)

    assert answer.envs == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "1000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/t.cache",
    }
    assert answer.annotations == {"cardwise.dev/token": "t"}
    assert answer.cdi_devices == ()
    assert answer.mounts == ()


def test_hami_core_is_mounted_by_the_token_because_nobody_knows_the_container() -> None:
    node = Node(cards=NODE.cards, library=Library(file="libvgpu.so"), cdi=False)

    (answer,) = guess.answers({"t": 1}, [pod()], [], node)

    assert answer.mounts[0] == Mount("/usr/local/vgpu/containers/t", "/usr/local/vgpu")


def test_each_of_several_containers_is_another() -> None:
    pods = [pod("p", resource_version="1"), pod("q", "GPU-b,NVIDIA,1,0:;", resource_version="2")]

    made = guess.answers({"t": 1, "u": 1, "v": 1}, pods, [], NODE)

    assert [each.envs["NVIDIA_VISIBLE_DEVICES"] for each in made] == ["GPU-a", "GPU-b", "void"]


def test_a_card_that_the_node_does_not_have_is_not_told() -> None:
    (answer,) = guess.answers({"t": 1}, [pod(text="GPU-x,NVIDIA,1,0:;")], [], NODE)

    assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert answer.annotations == {"cardwise.dev/token": "t"}


# --- the rule -------------------------------------------------------------------------------------

pods_of_a_node = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1000, 2000])), min_size=1, max_size=6
)


def admitted(pods: list[build.Json], order: list[int]) -> list[Entry]:
    """What kubelet keeps when it has asked for each Pod, in its order."""
    entries: list[Entry] = []
    for turn, position in enumerate(order):
        (answer,) = guess.answers({f"token-{turn}": 1}, pods, entries, NODE)
        entries.append(entry(f"p{position}", "app", f"id-{turn}", answer=answer))
    return entries


@given(pods_of_a_node, st.data())
def test_whatever_order_kubelet_takes_nobody_starts_with_anothers_cards(
    drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(drawn))))
    pods = [
        pod(f"p{position}", f"{uuid(index)},NVIDIA,{mib},0:;", resource_version=str(position))
        for position, (index, mib) in enumerate(drawn)
    ]

    for kept in admitted(pods, order):
        verdict = judge(kept.pod_uid, pods, [kept], NODE)

        position = next(i for i in range(len(drawn)) if uid(f"p{i}") == kept.pod_uid)
        index, mib = drawn[position]
        told = kept.answer.envs
        right = (told["NVIDIA_VISIBLE_DEVICES"], told.get("CUDA_DEVICE_MEMORY_LIMIT_0")) == (
            uuid(index),
            f"{mib}m",
        )
        assert isinstance(verdict, Refusal) != right
        if order == sorted(order):
            assert right, "kubelet hears of Pods in the order of their bindings"
