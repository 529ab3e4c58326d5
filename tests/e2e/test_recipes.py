"""The recipes in examples/, applied as they are: every Pod goes where the file's comment says."""

from pathlib import Path

import pytest
import yaml

from cardwise.cli.documents import documents_of
from cardwise.cli.workloads import expanded
from stage import Json, Stage

EXAMPLES = Path(__file__).parents[2] / "examples"
WAITS = "ExclusiveDeviceAllocateConflict"

RECIPES = [
    pytest.param(
        "recipe-binpack.yaml",
        {"small-1": 1, "small-2": 1, "large": 0},
        id="binpack fills the tenant's card and opens another where it is full",
    ),
    pytest.param(
        "recipe-spread.yaml",
        {"first": 1, "second": 2, "third": 1},
        id="spread takes the emptiest card, as no policy does",
    ),
    pytest.param(
        "recipe-mutex.yaml",
        {"measure": 1, "joiner": 1, "late": WAITS},
        id="mutex takes an empty card, and ordinary Pods may join",
    ),
    pytest.param(
        "recipe-binpack-numa.yaml",
        {"near": 1, "next": 1},
        id="numa decides between equally full cards",
    ),
    pytest.param(
        "recipe-mutex-binpack.yaml",
        {"train-0": 1, "train-1": 2, "train-2": WAITS},
        id="mutex,binpack uses empty cards up from one end",
    ),
    pytest.param(
        "recipe-mutex-binpack-numa.yaml",
        {"fast": 3},
        id="mutex,binpack,numa takes an empty card near NUMA node 0",
    ),
    pytest.param(
        "worked-example.yaml", {"newcomer": 2}, id="the worked example takes the first idle card"
    ),
]


@pytest.mark.parametrize(("file", "want"), RECIPES)
def test_the_recipe_places(stage: Stage, file: str, want: dict[str, int | str]) -> None:
    pods = put_up(stage, (EXAMPLES / file).read_text())
    assert list(pods) == list(want)

    for name, outcome in want.items():  # one by one: the file's comment tells of an order
        stage.create(pods[name])
        if isinstance(outcome, int):
            assert stage.placed(name) == outcome
        else:
            stage.pending(name, outcome)


def put_up(stage: Stage, text: str) -> dict[str, Json]:
    """Put up the nodes and tenants of a file; its other Pods by name.

    The controllers that would make Pods of a Job are asked of `simulate`, whose expansion names
    them predictably.
    """
    waiting: dict[str, Json] = {}
    for document in expanded(documents_of(text, "recipe")):
        body = yaml.safe_load(yaml.safe_dump(document.body))
        name = body["metadata"]["name"]
        if body["kind"] == "GPUNode":
            stage.bare_node(name, gpus=40)
            stage.report(body)
        elif "nodeName" in body["spec"]:
            stage.create_tenant(body)
        else:
            waiting[name] = body
    stage.settled()
    return waiting
