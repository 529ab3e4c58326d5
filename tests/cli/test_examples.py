"""Every file in examples/ places its Pods where its comment says."""

from pathlib import Path

import pytest

from cardwise.cli.documents import read
from cardwise.cli.rendering import document_of
from cardwise.cli.simulation import simulate
from cardwise.cli.workloads import expanded
from cardwise.names import POLICY, PolicyName
from cardwise.settings import Settings
from simulated import where

EXAMPLES = Path(__file__).parents[2] / "examples"
WAITS = "ExclusiveDeviceAllocateConflict"

OUTCOMES = {
    "worked-example.yaml": {"newcomer": 2},
    "recipe-binpack.yaml": {"small-1": 1, "small-2": 1, "large": 0},
    "recipe-spread.yaml": {"first": 1, "second": 2, "third": 1},
    "recipe-mutex.yaml": {"measure": 1, "joiner": 1, "late": WAITS},
    "recipe-binpack-numa.yaml": {"near": 1, "next": 1},
    "recipe-mutex-binpack.yaml": {"train-0": 1, "train-1": 2, "train-2": WAITS},
    "recipe-mutex-binpack-numa.yaml": {"fast": 3},
}
"""Per file and Pod: the index of its card, or why it waits."""


def outcome_of(name):
    found = document_of(simulate(expanded(read([str(EXAMPLES / name)])), Settings()))
    return {
        pod["pod"].removeprefix("default/"): answer if isinstance(answer, str) else answer[0][0]
        for pod in found["pods"]
        for answer in [where(pod)]
    }


@pytest.mark.parametrize(
    ("name", "want"), [pytest.param(name, want, id=name) for name, want in OUTCOMES.items()]
)
def test_an_example_places_its_pods_as_its_comment_says(name, want) -> None:
    assert outcome_of(name) == want


def test_no_example_is_without_an_outcome() -> None:
    assert {path.name for path in EXAMPLES.glob("*.yaml")} == set(OUTCOMES)


@pytest.mark.parametrize(
    ("name", "chain", "other", "want"),
    [
        pytest.param(
            "worked-example.yaml", "mutex,binpack", "binpack", {"newcomer": 0}, id="worked example"
        ),
        pytest.param("recipe-binpack.yaml", "binpack", "spread", {"small-1": 0}, id="binpack"),
        pytest.param("recipe-spread.yaml", "spread", "binpack", {"first": 0}, id="spread"),
        pytest.param("recipe-mutex.yaml", "mutex", "binpack", {"measure": 0}, id="mutex"),
        pytest.param(
            "recipe-binpack-numa.yaml", "binpack,numa", "binpack,spread", {"near": 0}, id="numa"
        ),
        pytest.param(
            "recipe-mutex-binpack.yaml", "mutex,binpack", "binpack", {"train-0": 0}, id="a Job"
        ),
        pytest.param(
            "recipe-mutex-binpack-numa.yaml",
            "mutex,binpack,numa",
            "mutex,binpack",
            {"fast": 1},
            id="all three",
        ),
    ],
)
def test_another_chain_would_place_the_example_elsewhere(
    name, chain, other, want, tmp_path
) -> None:
    changed = tmp_path / name
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    changed.write_text(text.replace(f'{POLICY}: "{chain}"', f'{POLICY}: "{other}"'))

    got = outcome_of(changed)

    assert {pod: got[pod] for pod in want} == want


def test_the_worked_example_has_the_published_scores() -> None:
    (pod,) = document_of(simulate(read([str(EXAMPLES / "worked-example.yaml")]), Settings()))[
        "pods"
    ]

    assert [card["score"] for card in pod["nodes"]["node-a"]["cards"]] == [
        "3.302083",
        "1.651042",
        "0.000000",
        "0.000000",
    ]
    assert pod["annotation"] == "GPU-c,NVIDIA,1000,0:;"


def test_the_recipes_are_the_six_published_ones() -> None:
    chains = {
        name.removeprefix("recipe-").removesuffix(".yaml").replace("-", ",")
        for name in OUTCOMES
        if name.startswith("recipe-")
    }

    assert chains == {
        PolicyName.BINPACK.value,
        PolicyName.SPREAD.value,
        PolicyName.MUTEX.value,
        "binpack,numa",
        "mutex,binpack",
        "mutex,binpack,numa",
    }
