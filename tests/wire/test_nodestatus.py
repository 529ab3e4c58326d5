"""What a Node advertises of its cards, and what has to be written for that."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.errors import BadGPUNode
from cardwise.model import WHOLE_CORES
from cardwise.names import (
    MANAGER_AGENT,
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
)
from cardwise.wire.nodestatus import UNBOUNDED, advertised, changes_of, patch_of, resources_of

Json = dict[str, Any]


def gpunode(*cards: Json, usage: list[Json] | None = None) -> Json:
    return build.gpunode(cards=list(cards), status={"usage": usage or []})


def use(uuid: str, slots: int = 1, memory: int = 0, cores: int = 0) -> Json:
    return {"uuid": uuid, "slots": slots, "memoryMiB": memory, "cores": cores}


def sums(document: Json) -> tuple[int, int, int]:
    """Slots, MiB and cores."""
    found = resources_of(document)
    return found[RESOURCE_COUNT], found[RESOURCE_MEMORY], found[RESOURCE_CORES]


# What cards come to -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(gpunode(build.card(0)), (10, 15360, 100), id="one card"),
        pytest.param(
            gpunode(build.card(0), build.card(1, memoryMiB=23040, cores=150, slots=4)),
            (14, 38400, 250),
            id="two cards, each as it is scaled",
        ),
        pytest.param(
            gpunode(build.card(0), build.card(1, healthy=False)),
            (20, 30720, 200),
            id="an unhealthy card counts: its tenants are still there",
        ),
        pytest.param(
            gpunode(build.card(0, cores=50)),
            (10, 15360, 100),
            id="a card of fewer cores, all of which a Pod may have by asking 100",
        ),
        pytest.param(
            gpunode(build.card(0, slots=2, memoryMiB=8000), usage=[use("GPU-a", 3, 12000, 100)]),
            (3, 12000, 100),
            id="a card that was made smaller than what is used of it",
        ),
        pytest.param(
            gpunode(build.card(0), usage=[use("GPU-a", 2, 2000), use("GPU-gone", 1, 500, 30)]),
            (11, 15860, 130),
            id="a card that is gone counts as far as it is used",
        ),
        pytest.param(
            gpunode(usage=[use("GPU-a", 1, 500)]), (1, 500, 0), id="the driver fails: tenants alone"
        ),
    ],
)
def test_sums(document: Json, want: tuple[int, int, int]) -> None:
    assert sums(document) == want


def test_a_percentage_and_a_priority_are_no_limit() -> None:
    found = resources_of(gpunode(build.card(0)))

    assert found[RESOURCE_MEMORY_PERCENT] == found[RESOURCE_PRIORITY] == UNBOUNDED
    # More Pods than a node can have, each with the largest priority that we take.
    assert UNBOUNDED > 10_000 * (2**31 - 1)
    assert 1000 * UNBOUNDED < 2**63, "it is counted in thousandths in places"


def test_memory_and_cores_are_no_limit_where_our_accounts_shrink_and_theirs_do_not() -> None:
    found = resources_of(gpunode(build.card(0)), bounded=False)

    assert found[RESOURCE_MEMORY] == found[RESOURCE_CORES] == UNBOUNDED
    assert found[RESOURCE_COUNT] == 10


@pytest.mark.parametrize("document", [gpunode(), {"metadata": {"name": "n1"}}])
def test_without_cards_nothing_is_advertised(document: Json) -> None:
    assert resources_of(document) == {}


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param("x", id="no list"),
        pytest.param(["x"], id="no object in it"),
        pytest.param([{"slots": 1}], id="no UUID"),
        pytest.param([use("GPU-a", slots=-1)], id="a negative number"),
    ],
)
def test_a_usage_that_can_not_be_read_is_refused_with_its_place(usage: Any) -> None:
    document = gpunode(build.card(0))
    document["status"]["usage"] = usage

    with pytest.raises(BadGPUNode, match=r"GPUNode n1: status\.usage"):
        resources_of(document)


uses = st.builds(
    use,
    st.just("x"),
    slots=st.integers(0, 12),
    memory=st.integers(0, 40_000),
    cores=st.integers(0, 250),
)
cards = st.builds(
    build.card,
    st.just(0),
    memoryMiB=st.integers(1, 30_000),
    cores=st.integers(1, 200),
    slots=st.integers(1, 12),
)


@given(st.lists(st.tuples(st.none() | cards, uses), min_size=1, max_size=6), st.data())
def test_a_pod_that_fits_on_its_cards_is_within_the_sums_of_the_node(
    states: list[tuple[Json | None, Json]], data: st.DataObject
) -> None:
    """Whatever was made smaller or has gone meanwhile, beside what is used of all cards."""
    reported = []
    for index, (card, used) in enumerate(states):
        used["uuid"] = f"GPU-{index}"
        if card is not None:
            card.update(index=index, uuid=f"GPU-{index}")
            reported.append((card, used))
    document = gpunode(*(card for card, _ in reported), usage=[used for _, used in states])
    asked = [0, 0, 0]
    for card, used in reported:
        room = card["slots"] > used["slots"] and data.draw(st.booleans())
        if room:
            memory = data.draw(st.integers(0, max(0, card["memoryMiB"] - used["memoryMiB"])))
            # Whole cores are written as 100, and need a card without a tenant.
            cores = data.draw(st.integers(0, min(99, max(0, card["cores"] - used["cores"]))))
            alone = used["slots"] == used["cores"] == 0 and data.draw(st.booleans())
            asked = [
                asked[0] + 1,
                asked[1] + memory,
                asked[2] + (WHOLE_CORES if alone else cores),
            ]
    counted = [sum(used[key] for _, used in states) for key in ("slots", "memoryMiB", "cores")]

    if reported or counted[0]:
        for total, before, more in zip(sums(document), counted, asked, strict=True):
            assert before + more <= total


# What has to be written ---------------------------------------------------------------------------

WANTED = {RESOURCE_COUNT: 10, RESOURCE_MEMORY: 16000, RESOURCE_CORES: 100}
STANDS = {RESOURCE_COUNT: "10", RESOURCE_MEMORY: "16k", RESOURCE_CORES: "100"}


def node(
    capacity: Mapping[str, Any],
    *,
    ours: tuple[str, ...] = (),
    ours_allocatable: tuple[str, ...] | None = None,
    allocatable: Mapping[str, Any] | None = None,
) -> Json:
    def entry(manager: str, capacity: tuple[str, ...], allocatable: tuple[str, ...]) -> Json:
        sides = {"f:capacity": capacity, "f:allocatable": allocatable}
        fields = {side: {f"f:{name}": {} for name in written} for side, written in sides.items()}
        return {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": fields}}

    own = entry(MANAGER_AGENT, ours, ours if ours_allocatable is None else ours_allocatable)
    return {
        "metadata": {"managedFields": [entry("kubelet", ("cpu",), ("cpu",)), own]},
        "status": {
            "capacity": {"cpu": "8", **capacity},
            "allocatable": {
                "cpu": "8",
                **(capacity if allocatable is None else allocatable),
            },
        },
    }


ALL = tuple(WANTED)


@pytest.mark.parametrize(
    ("there", "want"),
    [
        pytest.param({}, WANTED, id="a Node without a status"),
        pytest.param(node({}), WANTED, id="nothing of ours"),
        pytest.param(node(STANDS, ours=ALL), {}, id="all is right, in the server's writing"),
        pytest.param(
            node({**STANDS, RESOURCE_MEMORY: "0"}, ours=ALL[:1]),
            {RESOURCE_MEMORY: 16000},
            id="kubelet set the memory to zero",
        ),
        pytest.param(
            node(STANDS, ours=ALL, allocatable={**STANDS, RESOURCE_CORES: "0"}),
            {RESOURCE_CORES: 100},
            id="on one side alone",
        ),
        pytest.param(
            node({**STANDS, RESOURCE_COUNT: "7"}, ours=ALL[1:]), {}, id="a device plugin's count"
        ),
        pytest.param(
            node({**STANDS, RESOURCE_COUNT: "0"}, ours=ALL[1:]),
            {},
            id="the zero of a device plugin that is away",
        ),
        pytest.param(
            node(
                STANDS,
                ours=ALL,
                ours_allocatable=ALL[1:],
                allocatable={**STANDS, RESOURCE_COUNT: "7"},
            ),
            {},
            id="a count of ours that a device plugin lowered for a sick card",
        ),
        pytest.param(
            node({**STANDS, RESOURCE_COUNT: "7"}, ours=ALL),
            {RESOURCE_COUNT: 10},
            id="a count of ours",
        ),
        pytest.param(
            node({**STANDS, RESOURCE_PRIORITY: "1P"}, ours=(*ALL, RESOURCE_PRIORITY)),
            {RESOURCE_PRIORITY: None},
            id="what we no longer advertise goes",
        ),
        pytest.param(
            node({**STANDS, RESOURCE_PRIORITY: "5"}, ours=ALL), {}, id="what another wrote stays"
        ),
        pytest.param(
            node({**STANDS, RESOURCE_MEMORY: "much"}, ours=ALL),
            {RESOURCE_MEMORY: 16000},
            id="no quantity",
        ),
    ],
)
def test_changes(there: Json, want: Json) -> None:
    assert changes_of(there, WANTED) == want


def test_everything_of_ours_goes_when_nothing_is_advertised() -> None:
    there = node({**STANDS, RESOURCE_COUNT: "7"}, ours=ALL[1:])

    assert changes_of(there, {}) == {RESOURCE_MEMORY: None, RESOURCE_CORES: None}


def test_a_patch_names_both_sides_and_no_other_field() -> None:
    assert patch_of({RESOURCE_MEMORY: 16000, RESOURCE_CORES: None}) == {
        "status": {
            "capacity": {RESOURCE_MEMORY: "16000", RESOURCE_CORES: None},
            "allocatable": {RESOURCE_MEMORY: "16000", RESOURCE_CORES: None},
        }
    }


@pytest.mark.parametrize("fields", [None, [], "x", [None], [{"manager": MANAGER_AGENT}]])
def test_a_node_without_an_account_of_its_fields_has_none_of_ours(fields: Any) -> None:
    assert advertised({"metadata": {"managedFields": fields}}) == frozenset()
