import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardwise.agent.probe import probe
from cardwise.agent.simulated import PROFILES, SimulatedNvml, shipped
from cardwise.errors import BadDocument, NvmlUnavailable
from cardwise.model import GPUNode, NodeOverrides
from cardwise.settings import Agent
from cardwise.wire.gpunodes import gpunode_of

every_profile = pytest.mark.parametrize("profile", PROFILES)


def published(profile: str, node: str = "n1") -> GPUNode:
    readings = SimulatedNvml(profile, node=node).load()
    return probe(node, readings, Agent(), NodeOverrides()).node


def nvlinks(node: GPUNode) -> dict[tuple[int, int], int]:
    return {(link.first, link.second): link.nvlinks for link in node.links or ()}


# The shipped profiles -----------------------------------------------------------------------------


@every_profile
def test_a_shipped_profile_is_a_gpunode_and_names_every_pair(profile: str) -> None:
    node = gpunode_of(yaml.safe_load(shipped(profile)))
    count = int(profile.rpartition("x")[2])

    assert [card.index for card in node.cards] == list(range(count))
    assert [(link.first, link.second) for link in node.links or ()] == [
        (a, b) for a in range(count) for b in range(a + 1, count)
    ]
    assert all(link.path for link in node.links or ())
    assert len({card.pci_bus_id for card in node.cards}) == count


@every_profile
def test_the_agent_offers_a_shipped_profile_as_it_is_but_for_its_uuids(profile: str) -> None:
    written = gpunode_of(yaml.safe_load(shipped(profile)))

    offered = published(profile)

    assert offered.links == written.links
    assert [(card.model, card.memory_mib, card.numa) for card in offered.cards] == [
        (card.model, card.memory_mib, card.numa) for card in written.cards
    ]


@pytest.mark.parametrize(
    ("profile", "model", "memory_mib", "numa"),
    [
        pytest.param("t4x4", "NVIDIA-Tesla T4", 15360, [0, 0, 1, 1], id="four T4"),
        pytest.param(
            "v100x8",
            "NVIDIA-Tesla V100-SXM2-32GB",
            32768,
            [0, 0, 0, 0, 1, 1, 1, 1],
            id="eight V100",
        ),
        pytest.param(
            "a100x8", "NVIDIA A100-SXM4-80GB", 81920, [3, 3, 1, 1, 7, 7, 5, 5], id="eight A100"
        ),
        pytest.param(
            "h100x8", "NVIDIA H100 80GB HBM3", 81559, [0, 0, 0, 0, 1, 1, 1, 1], id="eight H100"
        ),
        pytest.param("l40sx8", "NVIDIA L40S", 46068, [0, 0, 0, 0, 1, 1, 1, 1], id="eight L40S"),
    ],
)
def test_what_a_shipped_profile_holds(
    profile: str, model: str, memory_mib: int, numa: list[int]
) -> None:
    cards = published(profile).cards

    assert {(card.model, card.memory_mib, card.slots) for card in cards} == {
        (model, memory_mib, 10)
    }
    assert [card.numa for card in cards] == numa


@pytest.mark.parametrize(
    ("profile", "links"),
    [
        pytest.param("t4x4", 0, id="T4 has no NVLink"),
        pytest.param("a100x8", 12, id="A100 behind NVSwitch"),
        pytest.param("h100x8", 18, id="H100 behind NVSwitch"),
        pytest.param("l40sx8", 0, id="L40S has no NVLink"),
    ],
)
def test_all_pairs_are_joined_alike(profile: str, links: int) -> None:
    assert set(nvlinks(published(profile)).values()) == {links}


def test_a_v100_has_six_nvlinks_to_four_neighbours() -> None:
    joined = nvlinks(published("v100x8"))

    for card in range(8):
        mine = [count for pair, count in joined.items() if card in pair and count]
        assert sorted(mine) == [1, 1, 2, 2]


def test_shipped_cards_have_uuids_of_their_own_on_every_node_and_keep_them() -> None:
    uuids = [card.uuid for node in ("n1", "n2") for card in published("t4x4", node).cards]

    assert len(set(uuids)) == 8
    assert all(
        re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", each) for each in uuids
    )
    assert [card.uuid for card in published("t4x4", "n1").cards] == uuids[:4]


# A file -------------------------------------------------------------------------------------------

PROFILE: dict[str, Any] = {
    "apiVersion": "cardwise.dev/v1alpha1",
    "kind": "GPUNode",
    "metadata": {"name": "any"},
    "status": {
        "driverVersion": "1.2",
        "cards": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 1000}],
    },
}


def write(path: Path, **card: Any) -> str:
    profile = copy.deepcopy(PROFILE)
    profile["status"]["cards"][0].update(card)
    path.write_text(yaml.safe_dump(profile))
    return str(path)


def test_a_files_uuids_stay_as_written(tmp_path: Path) -> None:
    readings = SimulatedNvml(write(tmp_path / "p.yaml"), node="n1").load()

    assert [card.uuid for card in readings.cards] == ["GPU-a"]
    assert readings.driver_version == "1.2"
    assert readings.links is None


def test_what_a_file_says_of_a_card_goes_before_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path / "p.yaml", slots=2, cores=50, mode="mps")
    readings = SimulatedNvml(path, node="n1").load()

    card = probe("n1", readings, Agent(slotsPerCard=7), NodeOverrides()).node.cards[0]

    assert (card.slots, card.cores, card.mode) == (2, 50, "mps")


def test_a_file_is_read_anew_so_that_a_card_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    nvml = SimulatedNvml(write(path), node="n1")
    before = nvml.read()

    write(path, healthy=False, unhealthyReason="Xid 79")
    after = nvml.read()

    assert [card.trouble for card in before.cards] == [""]
    assert [card.trouble for card in after.cards] == ["Xid 79"]


def test_an_unhealthy_card_without_a_reason_gets_one(tmp_path: Path) -> None:
    readings = SimulatedNvml(write(tmp_path / "p.yaml", healthy=False), node="n1").read()

    assert readings.cards[0].trouble == "the profile says that it is unhealthy"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("a: [", "it is not YAML: while parsing", id="no YAML"),
        pytest.param(
            "a: 1\n---\nb: 2", "it is not YAML: expected a single document", id="two documents"
        ),
        pytest.param("", "it is not a GPUNode", id="an empty file"),
        pytest.param("kind: Pod", "it is not a GPUNode", id="a Pod"),
        pytest.param("kind: GPUNode", "a GPUNode has no metadata.name", id="no name"),
        pytest.param(
            "{kind: GPUNode, metadata: {name: x}, status: {cards: [{uuid: a, index: 0}]}}",
            "GPUNode x: status.cards[0].memoryMiB is missing",
            id="a card without memory",
        ),
        pytest.param("\x00", "it is not YAML", id="a NUL"),
    ],
)
def test_a_bad_file_is_refused_with_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    nvml = SimulatedNvml(str(path), node="n1")

    with pytest.raises(BadDocument) as refused:
        nvml.load()
    with pytest.raises(NvmlUnavailable):
        nvml.read()

    assert str(refused.value).startswith(f"profile {path}: ")
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param(
            "nope", "there is no such file, and the shipped profiles are t4x4", id="no such name"
        ),
        pytest.param("/", "it can't be read", id="a directory"),
        pytest.param("a\x00b", "it can't be read", id="no name of a file"),
    ],
)
def test_a_missing_file_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(BadDocument, match=re.escape(sentence)):
        SimulatedNvml(name, node="n1").load()
