"""The oracle against cases worked out by hand, so that what the engine is held against holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from oracle import place, score_text, violations
from oracle_choice import pair_score
from oracle_reading import node_of

Json = dict[str, Any]
POLICY = "hami.io/gpu-scheduler-policy"
NODE_POLICY = "hami.io/node-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
BIND = {"nvidia.com/numa-bind": "true"}
EXCLUSIVE = {"cardwise.dev/exclusive": "true"}
PREFERRED = {"cardwise.dev/topology": "preferred"}
HELD = {"cardwise.dev/exclusive-held": "true"}
CONFLICT = "ExclusiveDeviceAllocateConflict"


# Building blocks


def card(index: int, numa: int | None = 0, **more: Any) -> Json:
    """A T4, or what is said otherwise; its UUID is g and its index."""
    known = {} if numa is None else {"numaNode": numa}
    base = {"uuid": f"g{index}", "index": index, "model": "NVIDIA-Tesla T4", "memoryMiB": 15360}
    return {**base, **known, **more}


def gpunode(*cards: Json, name: str = "n1", links: list[Json] | None = None, **spec: Any) -> Json:
    status: Json = {"cards": list(cards)}
    if links is not None:
        status["links"] = links
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def t4x4(links: list[Json] | None = None) -> Json:
    """Cards 0 and 1 on NUMA node 0, cards 2 and 3 on NUMA node 1."""
    return gpunode(card(0, 0), card(1, 0), card(2, 1), card(3, 1), links=links)


def link(one: int, other: int, nvlinks: int = 0, path: str | None = None) -> Json:
    return {"between": [one, other], "nvlinks": nvlinks, **({"path": path} if path else {})}


def switched(count: int, nvlinks: int = 12) -> list[Json]:
    """Every pair through an NVSwitch."""
    return [link(a, b, nvlinks, "SYS") for a in range(count) for b in range(a + 1, count)]


def box(gpu: object = None, mem: object = None, cores: object = None, **more: Any) -> Json:
    """A container; more: percent, priority, part (limits or requests), restartPolicy."""
    values = {
        "nvidia.com/gpu": gpu,
        "nvidia.com/gpumem": mem,
        "nvidia.com/gpumem-percentage": more.pop("percent", None),
        "nvidia.com/gpucores": cores,
        "nvidia.com/priority": more.pop("priority", None),
    }
    part = more.pop("part", "limits")
    return {"resources": {part: {k: v for k, v in values.items() if v is not None}}, **more}


def sidecar(gpu: object = None, mem: object = None) -> Json:
    return box(gpu, mem, restartPolicy="Always")


def pod(
    *containers: Json, init: Sequence[Json] = (), name: str = "p", ns: str = "default", **notes: str
) -> Json:
    """A Pod to be placed; ``policy`` is its chain, ``notes`` other annotations."""
    return {
        "metadata": {"name": name, "namespace": ns, "annotations": dict(notes)},
        "spec": {"containers": list(containers), "initContainers": list(init)},
    }


def ask(k: int = 1, mem: object = 1000, policy: str | None = None, **notes: str) -> Json:
    """One container that asks k cards with 1000 MiB each."""
    chain = {} if policy is None else {POLICY: policy}
    return pod(box(k, mem), **chain, **notes)


def bound(name: str, text: str, node: str = "n1", of: Json | None = None, **notes: str) -> Json:
    """A tenant; one container with one card unless another Pod is given."""
    found = of or pod(box(1))
    return {
        "metadata": {
            "name": name,
            "namespace": found["metadata"]["namespace"],
            "annotations": {"hami.io/vgpu-devices-allocated": text, **notes},
        },
        "spec": {**found["spec"], "nodeName": node},
        "status": {"phase": "Running"},
    }


def on(*uuids: str, mem: int = 1000, cores: int = 0) -> list[Json]:
    """One ordinary tenant on each card named, as often as it is named."""
    return [bound(f"t{n}", f"{u},NVIDIA,{mem},{cores}:;") for n, u in enumerate(uuids)]


def quota(mem: object = None, cores: object = None, ns: str = "default") -> Json:
    hard = {"limits.nvidia.com/gpumem": mem, "limits.nvidia.com/gpucores": cores}
    named = {key: value for key, value in hard.items() if value is not None}
    return {"metadata": {"name": "q", "namespace": ns}, "spec": {"hard": named}}


def taken(result: Json) -> Any:
    """The indexes of each container's cards, or the reason why there are none."""
    if result["node"] is None:
        return result["reason"]
    return [[c["index"] for c in container] for container in result["containers"]]


def words(result: Json, node: str = "n1") -> list[str | None]:
    return [line["reason"] for line in result["nodes"][node]["cards"]]


def scores(result: Json, node: str = "n1") -> list[str]:
    return [score_text(line["score"]) for line in result["nodes"][node]["cards"]]


# Section 4: scores


def test_a_t4_scores_as_the_law_works_it_out() -> None:
    result = place(ask(), [gpunode(card(0), card(1), card(2))], on("g1", "g2", "g2"))

    assert scores(result) == ["0.000000", "1.651042", "3.302083"]
    assert result["annotation"] == "g0,NVIDIA,1000,0:;"
    # 10 x (3/30 + 0 + 3000/46080)
    assert score_text(result["nodes"]["n1"]["score"]) == "1.651042"


def test_weights_change_card_scores_and_never_the_node_score() -> None:
    result = place(ask(**{WEIGHTS: " memory = 3, slot=1 ,core=1"}), [gpunode(card(0))], on("g0"))

    assert scores(result) == ["2.953125"]
    assert score_text(result["nodes"]["n1"]["score"]) == "1.651042"


def test_each_weight_multiplies_its_own_share() -> None:
    weights = {WEIGHTS: "slot=2,core=3,memory=5"}

    result = place(ask(**weights), [gpunode(card(0))], on("g0", cores=10))

    # 10 x (2/10 + 3 x 10/100 + 5 x 1000/15360)
    assert scores(result) == ["8.255208"]


def test_a_score_is_rounded_half_up() -> None:
    huge = gpunode(card(0, memoryMiB=20_000_000))

    result = place(ask(**{WEIGHTS: "slot=0,core=0,memory=1"}), [huge], on("g0", mem=1))

    assert scores(result) == ["0.000001"]


def test_a_denominator_of_zero_contributes_nothing_to_a_score() -> None:
    result = place(ask(cores="1"), [gpunode(card(0, cores=0))], on("g0"))

    assert scores(result) == ["1.651042"]


@pytest.mark.parametrize(
    ("node_policy", "card_policy", "node", "uuid"),
    [
        pytest.param("binpack", "binpack", "n2", "d4", id="full node, full card"),
        pytest.param("binpack", "spread", "n2", "d3", id="full node, idle card"),
        pytest.param("spread", "binpack", "n1", "d1", id="emptier node, full card"),
        pytest.param("spread", "spread", "n1", "d2", id="emptier node, idle card"),
        pytest.param("Spread", "spread", "n2", "d3", id="a node policy nobody knows is no policy"),
    ],
)
def test_node_and_card_policy_are_independent(
    node_policy: str, card_policy: str, node: str, uuid: str
) -> None:
    nodes = [
        gpunode(card(0, uuid="d3", memoryMiB=8000), card(1, uuid="d4", memoryMiB=8000), name="n2"),
        gpunode(card(0, uuid="d1", memoryMiB=8000), card(1, uuid="d2", memoryMiB=8000), name="n1"),
    ]
    tenants = [bound("a", "d1,NVIDIA,2000,25:;"), bound("b", "d4,NVIDIA,6000,75:;", "n2")]
    asking = pod(box(1, 1000, 20), **{POLICY: card_policy, NODE_POLICY: node_policy})

    result = place(asking, nodes, tenants)

    assert (result["node"], result["containers"][0][0]["uuid"]) == (node, uuid)
    assert [result["nodes"][n]["score"] for n in ("n1", "n2")] == [3_000_000, 8_000_000]


def test_equal_nodes_go_by_name() -> None:
    assert place(ask(), [gpunode(card(0), name="b"), gpunode(card(0), name="a")])["node"] == "a"


# Section 2: the chain

UNEVEN = [*on("g0", "g0", mem=2000), bound("x", "g1,NVIDIA,2000,0:;")]
CROSSED = gpunode(card(0, numa=1), card(1, numa=0))


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param(None, 2, id="absent: spread, then the lower index"),
        pytest.param("binpack", 0, id="binpack takes the fullest"),
        pytest.param("mutex,binpack,numa", 2, id="mutex leaves the idle ones, all else equal"),
        pytest.param("binpack,mutex", 2, id="a filter acts wherever it is written"),
        pytest.param("numa,spread", 1, id="the lower NUMA node, there the emptier card"),
        pytest.param("spread,numa", 2, id="spread before numa"),
        pytest.param("binpack,spread", 0, id="the first key dominates"),
        pytest.param("Binpack", 2, id="case matters"),
        pytest.param(" binpack , nonsense,,", 0, id="blanks and unknown names are dropped"),
    ],
)
def test_chains_on_four_cards_of_which_two_are_busy(policy: str | None, want: int) -> None:
    assert taken(place(ask(policy=policy), [t4x4()], UNEVEN)) == [[want]]


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("spread", 1, id="spread alone: the lower NUMA node breaks the tie"),
        pytest.param("binpack", 1, id="binpack alone likewise"),
        pytest.param("mutex", 1, id="mutex alone likewise"),
        pytest.param("topology-aware", 1, id="topology-aware alone likewise"),
        pytest.param("numa", 1, id="numa alone"),
        pytest.param("spread,huh,spread", 1, id="one name once the rest is dropped"),
        pytest.param("mutex,spread", 0, id="two names: only the written keys and the index"),
        pytest.param("mutex,topology-aware", 0, id="two filters: spread and the index"),
    ],
)
def test_numa_breaks_ties_only_where_one_name_is_left(policy: str, want: int) -> None:
    assert taken(place(ask(policy=policy), [CROSSED])) == [[want]]


def test_unknown_numa_comes_last() -> None:
    node = gpunode(card(0, numa=None), card(1, numa=7), card(2, numa=3))

    assert taken(place(ask(3, policy="numa"), [node])) == [[2, 1, 0]]


@pytest.mark.parametrize(
    ("policy", "settings", "want"),
    [
        pytest.param("binpak", {"cardPolicy": "binpack"}, 1, id="nothing known: the cluster's"),
        pytest.param("", {"cardPolicy": "mutex,binpack"}, 0, id="the cluster's may be a chain"),
        pytest.param("x", {"cardPolicy": "y"}, 0, id="nothing known in either: spread"),
        pytest.param(
            "topology-aware",
            {"topologyEnabled": False, "cardPolicy": "binpack"},
            1,
            id="a disabled name is an unknown one",
        ),
    ],
)
def test_the_cluster_decides_where_the_pod_does_not(policy: str, settings: Json, want: int) -> None:
    node = gpunode(card(0), card(1))

    assert taken(place(ask(policy=policy), [node], on("g1"), settings=settings)) == [[want]]


# Section 3: the checks


@pytest.mark.parametrize(
    ("spec", "asking", "tenants", "word"),
    [
        pytest.param({"healthy": False}, ask(), (), "CardNotHealth", id="unhealthy"),
        pytest.param({"mode": "mig"}, ask(), (), "CardTypeMismatch", id="mig is not placed yet"),
        pytest.param(
            {"mode": "mig"},
            ask(**{"nvidia.com/vgpu-mode": "mig"}),
            (),
            "CardTypeMismatch",
            id="not even where it is asked for",
        ),
        pytest.param(
            {},
            ask(**{"nvidia.com/vgpu-mode": "mps,mig"}),
            (),
            "CardTypeMismatch",
            id="another mode",
        ),
        pytest.param({}, ask(**{"nvidia.com/vgpu-mode": "x, hami-core"}), (), None, id="one mode"),
        pytest.param({}, ask(**{"nvidia.com/vgpu-mode": "mip,"}), (), None, id="no known mode"),
        pytest.param({}, ask(**{"nvidia.com/use-gputype": "a100, t4"}), (), None, id="a part"),
        pytest.param({}, ask(**{"nvidia.com/use-gputype": " ,"}), (), None, id="blank type list"),
        pytest.param(
            {}, ask(**{"nvidia.com/use-gputype": "A100"}), (), "CardTypeMismatch", id="another type"
        ),
        pytest.param({}, ask(**{"nvidia.com/use-gpuuuid": " ,"}), (), None, id="blank UUID list"),
        pytest.param(
            {},
            ask(**{"nvidia.com/use-gputype": "T4", "nvidia.com/nouse-gputype": "tesla"}),
            (),
            "CardTypeMismatch",
            id="nouse-gputype wins",
        ),
        pytest.param(
            {},
            ask(**{"nvidia.com/use-gpuuuid": "G0"}),
            (),
            "CardUuidMismatch",
            id="UUIDs are exact",
        ),
        pytest.param(
            {},
            ask(**{"nvidia.com/use-gpuuuid": "g0", "nvidia.com/nouse-gpuuuid": " g0 ,"}),
            (),
            "CardUuidMismatch",
            id="nouse-gpuuuid wins",
        ),
        pytest.param(
            {"slots": 2}, ask(), on("g0", "g0"), "CardTimeSlicingExhausted", id="no slot left"
        ),
        pytest.param(
            {"slots": 2}, ask(policy="mutex"), on("g0", "g0"), "CardTimeSlicingExhausted", id="5, 6"
        ),
        pytest.param({}, ask(policy="mutex"), on("g0", mem=0), CONFLICT, id="a tenant of nothing"),
        pytest.param({}, ask(mem=14360), on("g0"), None, id="the last MiB"),
        pytest.param({}, ask(mem=14361), on("g0"), "CardInsufficientMemory", id="one MiB more"),
        pytest.param({}, pod(box(1)), on("g0"), "CardInsufficientMemory", id="all of the memory"),
        pytest.param(
            {}, pod(box(1, 1, 71)), on("g0", cores=30), "CardInsufficientCore", id="cores"
        ),
        pytest.param({}, pod(box(1, 1, 70)), on("g0", cores=30), None, id="the last core"),
        pytest.param({}, pod(box(1, 1, 100)), on("g0"), CONFLICT, id="all cores beside a tenant"),
        pytest.param(
            {}, pod(box(1, 1, 100)), on("g0", cores=1), "CardInsufficientCore", id="8 before 9"
        ),
        pytest.param(
            {}, ask(), on("g0", cores=100), "CardComputeUnitsExhausted", id="all cores given out"
        ),
        pytest.param(
            {},
            ask(),
            on("g0", "g0", cores=60),
            "CardComputeUnitsExhausted",
            id="more cores given out than there are",
        ),
        pytest.param(
            {"cores": 150}, pod(box(1, 1, 1)), on("g0", cores=100), "CardInsufficientCore", id="all"
        ),
        pytest.param({"cores": 50}, pod(box(1, 1, 60)), (), "CardInsufficientCore", id="60 of 50"),
        pytest.param({"cores": 50}, pod(box(1, 1, 170)), (), None, id="all of 50 is all"),
    ],
)
def test_a_card_counts_under_the_first_check_that_fails(
    spec: Json, asking: Json, tenants: list[Json], word: str | None
) -> None:
    result = place(asking, [gpunode(card(0, **spec))], tenants)

    assert words(result) == [word]
    assert result["reason"] == word


def test_both_cordons_hold() -> None:
    node = {"metadata": {"name": "n1", "annotations": {"hami.io/device-cordon": "g1, "}}}

    result = place(ask(), [gpunode(card(0), card(1), card(2), cordonedCards=["g0"])], nodes=[node])

    assert words(result) == ["CardCordoned", "CardCordoned", None]
    assert taken(result) == [[2]]


def test_whole_cores_are_booked_as_a_hundred() -> None:
    result = place(pod(box(1, 5, 120)), [gpunode(card(0, cores=150))])

    assert result["annotation"] == "g0,NVIDIA,5,100:;"


@pytest.mark.parametrize(
    ("cards", "asking", "tenants", "want", "reason"),
    [
        pytest.param(
            [card(0), card(1), card(2)],
            ask(policy="mutex", mem=15360),
            [*on("g0"), bound("x", "g1,NVIDIA,1,0:;"), bound("y", "g2,NVIDIA,1,0:;")],
            [CONFLICT] * 3,
            CONFLICT,
            id="mutex speaks before memory",
        ),
        pytest.param(
            [card(0, healthy=False), card(1, healthy=False), card(2)],
            ask(mem=15361),
            [],
            ["CardNotHealth", "CardNotHealth", "CardInsufficientMemory"],
            "CardInsufficientMemory",
            id="one card past check 4 silences the early words",
        ),
        pytest.param(
            [card(0, healthy=False), card(1, healthy=False), card(2, slots=1)],
            ask(),
            on("g2"),
            ["CardNotHealth", "CardNotHealth", "CardTimeSlicingExhausted"],
            "CardTimeSlicingExhausted",
            id="check 5 is past check 4",
        ),
        pytest.param(
            [card(0, slots=1), card(1)],
            ask(mem=15000),
            on("g0", "g1"),
            ["CardTimeSlicingExhausted", "CardInsufficientMemory"],
            "CardInsufficientMemory",
            id="at a tie the later word",
        ),
        pytest.param(
            [card(0), card(1, cores=50)],
            pod(box(1, 1, 100), **EXCLUSIVE),
            [*on("g0"), bound("x", "g1,NVIDIA,1,1:;")],
            [CONFLICT, "CardInsufficientCore"],
            CONFLICT,
            id="a conflict stands at row 9",
        ),
        pytest.param(
            [card(0, healthy=False), card(1)],
            ask(2),
            [],
            ["CardNotHealth", None],
            "CardNotHealth",
            id="too few cards passed, and only early words are left",
        ),
    ],
)
def test_the_leading_reason_of_a_node(
    cards: list[Json], asking: Json, tenants: list[Json], want: list[str | None], reason: str
) -> None:
    result = place(asking, [gpunode(*cards)], tenants)

    assert words(result) == want
    assert result["nodes"]["n1"]["reason"] == reason


def test_node_level_words_and_the_leading_reason_over_nodes() -> None:
    offering = {"metadata": {"name": "late"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    plain = {"metadata": {"name": "plain"}, "status": {"allocatable": {"nvidia.com/gpu": "0"}}}
    nodes = [gpunode(card(0), name="full"), gpunode(name="few"), gpunode(name="bad")]
    broken = bound("b", "g0,NVIDIA,1;", "bad")

    result = place(ask(mem=15361), nodes, [broken], nodes=[offering, plain])

    assert {name: said["reason"] for name, said in result["nodes"].items()} == {
        "full": "CardInsufficientMemory",
        "few": "NodeInsufficientDevice",
        "bad": "NodeHasUnreadableAllocation",
        "late": "NodeNotReported",
        "plain": "NodeHasNoCards",
    }
    assert result["reason"] == "NodeHasUnreadableAllocation"
    assert place(ask(), [], nodes=[offering, plain])["reason"] == "NodeNotReported"
    assert place(ask(2), nodes[:2], nodes=[offering])["reason"] == "NodeInsufficientDevice"
    few = [gpunode(name="x"), gpunode(name="y"), nodes[0]]
    assert place(ask(mem=15361), few)["reason"] == "CardInsufficientMemory"
    assert place(ask(), [])["reason"] is None


def test_what_kubernetes_leaves_out_may_be_absent_or_null() -> None:
    asking = {
        "metadata": {"name": "p"},
        "spec": {"initContainers": None, "containers": [{}, box(1), {"resources": {}}]},
    }
    other = {"metadata": {"name": "p2"}, "spec": {"containers": None}, "status": None}
    bare = {"metadata": {"name": "n1"}, "spec": None, "status": {"cards": [card(0, numa=None)]}}

    result = place(asking, [bare], [other], [{"metadata": {"name": "q"}, "spec": None}])

    assert taken(result) == [[], [0], []]


# Section 1: requests


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        pytest.param(1000, 1000, id="a number"),
        pytest.param("1k", 1000, id="as the API server rewrites 1000"),
        pytest.param("1.5k", 1500, id="a fraction that comes out whole"),
        pytest.param("1e3", 1000, id="an exponent"),
        pytest.param("15E2", 1500, id="a capital exponent"),
        pytest.param("1000m", 1, id="thousandths that come out whole"),
        pytest.param("+7.", 7, id="a sign and a bare point"),
        pytest.param("9000u", None, id="millionths that do not"),
        pytest.param("9000000u", 9, id="millionths that do"),
        pytest.param("9000000000n", 9, id="billionths that do"),
        pytest.param("0.001M", 1000, id="mega"),
        pytest.param("0.000002G", 2000, id="giga"),
        pytest.param("0.000000003T", 3000, id="tera"),
        pytest.param("0.000000000004P", 4000, id="peta"),
        pytest.param("0.000000000000005E", 5000, id="exa, which is no exponent"),
        pytest.param("0", 15360, id="0 is not named: the whole card"),
    ],
)
def test_quantities_are_read_by_value(value: object, mib: int | None) -> None:
    result = place(ask(mem=value), [gpunode(card(0))])

    assert result["annotation"] == (None if mib is None else f"g0,NVIDIA,{mib},0:;")


def test_the_largest_number_is_valid() -> None:
    largest = 2**31 - 1
    held = bound("t", f"g0,NVIDIA,{largest},0:;")

    assert place(ask(mem=largest), [gpunode(card(0))])["reason"] == "CardInsufficientMemory"
    assert place(ask(), [gpunode(card(0))], [held])["reason"] == "CardInsufficientMemory"
    assert taken(place(pod(box(1, percent=100)), [gpunode(card(0))])) == [[0]]


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(box(1, "16Gi"), id="a binary suffix"),
        pytest.param(box(1, "1Ki"), id="a small binary suffix"),
        pytest.param(box(1, "1500m"), id="not whole"),
        pytest.param(box(1, "0.5"), id="a half"),
        pytest.param(box(1, 1.0), id="a float"),
        pytest.param(box(1, True), id="a boolean"),
        pytest.param(box(1, "-1"), id="negative"),
        pytest.param(box(1, "2147483648"), id="one too large"),
        pytest.param(box(1, "3G"), id="too large by suffix"),
        pytest.param(box(1, "1e999999999"), id="absurdly large"),
        pytest.param(box(1, "8GB"), id="no such suffix"),
        pytest.param(box(1, "1K"), id="a capital kilo"),
        pytest.param(box(1, "1e"), id="an exponent without digits"),
        pytest.param(box(1, ""), id="an empty text"),
        pytest.param(box(1, " 1"), id="a blank"),
        pytest.param(box("one"), id="a count in words"),
        pytest.param(box("1500m"), id="one card and a half"),
        pytest.param(box(1, cores="5Ki"), id="cores"),
        pytest.param(box(1, percent=101), id="more than all of a card"),
        pytest.param(box(1, 1000, percent=101), id="even where gpumem wins"),
        pytest.param(box(1, priority="high"), id="priority"),
        pytest.param(box(None, 1000), id="memory without a card"),
        pytest.param(box(0, cores=10), id="cores with 0 cards"),
        pytest.param(box(None, percent=10), id="a percentage without a card"),
        pytest.param(box("1", "x", part="requests"), id="in requests"),
    ],
)
def test_invalid_values_are_refused_everywhere(container: Json) -> None:
    result = place(pod(container), [gpunode(card(0)), gpunode(card(0), name="n2")])

    assert (result["asks"], result["node"], result["reason"]) == (True, None, "InvalidGPURequest")
    for said in result["nodes"].values():
        assert (said["fits"], said["reason"], said["cards"]) == (False, "InvalidGPURequest", [])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("slot=1,core=1", id="two of three"),
        pytest.param("slot=1,core=1,memory=1,slot=1", id="one twice"),
        pytest.param("slot=1,core=1,slot=1", id="one twice, one missing"),
        pytest.param("slot=0,core=0,memory=0", id="all 0"),
        pytest.param("slot=1,core=1,memory=-1", id="negative"),
        pytest.param("slot=1,core=1,memory=1.5", id="not digits only"),
        pytest.param("slot=1,core=1,memory=+1", id="a sign"),
        pytest.param("slot=1,core=1,memory=²", id="a digit of another kind"),
        pytest.param("slot=1,core=1,Memory=1", id="an unknown name"),
        pytest.param("slot,core,memory", id="no values"),
    ],
)
def test_weights_that_do_not_parse_make_the_pod_invalid(text: str) -> None:
    assert place(ask(**{WEIGHTS: text}), [gpunode(card(0))])["reason"] == "InvalidGPURequest"


@pytest.mark.parametrize(
    ("container", "settings", "mib", "cores"),
    [
        pytest.param(box(1), {}, 15360, 0, id="nothing named: the whole card"),
        pytest.param(box(1), {"defaultMemoryMiB": 512, "defaultCores": 5}, 512, 5, id="defaults"),
        pytest.param(box(1, cores=0), {"defaultCores": 5}, 15360, 0, id="cores 0 is said"),
        pytest.param(box(1, percent=33), {}, 5068, 0, id="a percentage, rounded down"),
        pytest.param(box(1, 7, percent=33), {}, 7, 0, id="gpumem wins over the percentage"),
        pytest.param(box(1, 0, percent=33), {}, 5068, 0, id="gpumem 0 does not"),
        pytest.param(box(1, percent=0), {"defaultMemoryMiB": 9}, 9, 0, id="0 percent is unnamed"),
        pytest.param(box(1, 7, part="requests"), {}, 7, 0, id="requests where there are no limits"),
    ],
)
def test_what_is_booked(container: Json, settings: Json, mib: int, cores: int) -> None:
    result = place(pod(container), [gpunode(card(0))], settings=settings)

    assert result["annotation"] == f"g0,NVIDIA,{mib},{cores}:;"


@pytest.mark.parametrize(
    "container",
    [box(), box(0), box(0, 0, 0), box(None, 0), box(priority=1)],
    ids=["nothing", "0 cards", "all 0", "gpumem 0", "priority alone"],
)
def test_a_pod_that_asks_for_no_card(container: Json) -> None:
    result = place(pod(container), [gpunode(card(0))])

    assert (result["asks"], result["node"], result["reason"]) == (False, None, None)


# Section 5: topology-aware

TRIANGLE = [link(0, 1, 1), link(0, 2, 2), link(1, 2, 1, "PIX")]
"""Pair scores 100, 200 and 150."""
PCIE = [link(0, 1, 0, "PHB"), link(2, 3, 0, "PIX"), link(1, 2, 0, "SYS")]
STAR = [link(0, 5, 1), link(2, 5, 1), link(0, 2, 0, "SYS"), link(1, 3, 0, "SYS")]
HALVES = [
    link(a, b, 2 if (a, b) == (4, 5) else 1, "NODE")
    for half in (range(4), range(4, 8))
    for a in half
    for b in half
    if a < b
]


@pytest.mark.parametrize(
    ("count", "links", "k", "notes", "want"),
    [
        pytest.param(3, TRIANGLE, 1, {}, [[1]], id="1: the card with the lowest sum"),
        pytest.param(3, TRIANGLE, 2, {}, [[0, 2]], id="2: the pair with the highest score"),
        pytest.param(3, TRIANGLE, 3, {}, [[0, 1, 2]], id="3 of 3"),
        pytest.param(4, PCIE, 1, {}, [[0]], id="1: sums 30, 40, 60, 50"),
        pytest.param(4, PCIE, 2, {}, "CardTopologyNotSatisfied", id="required: no NVLink"),
        pytest.param(4, PCIE, 2, PREFERRED, [[2, 3]], id="preferred: the best there is"),
        pytest.param(6, STAR, 3, PREFERRED, [[0, 2, 5]], id="preferred: a star is no clique"),
        pytest.param(6, STAR, 3, {}, "CardTopologyNotSatisfied", id="required: every pair"),
        pytest.param(6, STAR, 2, {}, [[0, 5]], id="equal pairs: the smaller indexes"),
        pytest.param(8, HALVES, 4, {}, [[4, 5, 6, 7]], id="4 of 8: the better half"),
        pytest.param(8, HALVES, 5, {}, "CardTopologyNotSatisfied", id="5 of two halves of 4"),
        pytest.param(2, None, 1, {}, [[0]], id="1, links unknown: fits"),
        pytest.param(2, None, 2, {}, "CardTopologyNotSatisfied", id="2, links unknown: refused"),
        pytest.param(2, [], 2, {}, "CardTopologyNotSatisfied", id="2, known to have no link"),
        pytest.param(3, None, 2, PREFERRED, [[0, 1]], id="preferred, unknown: the sort keys"),
        pytest.param(
            2,
            [],
            2,
            {"cardwise.dev/topology": "Preferred"},
            "CardTopologyNotSatisfied",
            id="a typo",
        ),
    ],
)
def test_topology_aware(
    count: int, links: list[Json] | None, k: int, notes: dict[str, str], want: Any
) -> None:
    node = gpunode(*(card(index) for index in range(count)), links=links)

    result = place(ask(k, policy="topology-aware", **notes), [node])

    assert taken(result) == want
    refused = want if isinstance(want, str) else None
    assert words(result) == [refused] * count


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("topology-aware", [[1, 2, 3, 4]], id="alone: spread, then NUMA, then index"),
        pytest.param("topology-aware,binpack", [[0, 1, 2, 3]], id="binpack: the highest total"),
        pytest.param("topology-aware,spread", [[1, 2, 3, 4]], id="spread: the lowest total"),
        pytest.param("numa,topology-aware", [[4, 5, 6, 7]], id="numa: the smaller list of nodes"),
        pytest.param("mutex,topology-aware,binpack", [[1, 2, 3, 4]], id="mutex sieves first"),
    ],
)
def test_equal_sets_are_ranked_key_by_key(policy: str, want: list[list[int]]) -> None:
    alone = policy == "topology-aware"
    numa = (0,) * 8 if alone else (1, 1, 1, 1, 0, 0, 0, 0)
    node = gpunode(*(card(i, numa[i]) for i in range(8)), links=switched(8))

    assert taken(place(ask(4, policy=policy), [node], on("g0"))) == want


@pytest.mark.parametrize(
    ("nvlinks", "path", "want"),
    [
        (0, None, 0),
        (0, "SYS", 10),
        (0, "NODE", 20),
        (0, "PHB", 30),
        (0, "PXB", 40),
        (0, "PIX", 50),
        (0, "BOARD", 60),
        (1, "SYS", 110),
        (4, "NODE", 420),
        (18, None, 1800),
    ],
    ids=lambda value: f"{value}",
)
def test_pair_scores(nvlinks: int, path: str | None, want: int) -> None:
    node = node_of("n1", gpunode(card(0), card(1), links=[link(1, 0, nvlinks, path)]), None)

    assert pair_score(node, *node.cards) == want


def test_only_fitting_cards_weigh_in_a_sum() -> None:
    links = [link(0, 1, 1), link(0, 2, 1), link(1, 3, 4)]
    node = gpunode(card(0), card(1), card(2), card(3, healthy=False), links=links)

    # sums over the fitting: 200, 100, 100; with card 3: 200, 500, 100
    assert taken(place(ask(policy="topology-aware"), [node])) == [[1]]


# Section 6: numa-bind


@pytest.mark.parametrize(
    ("k", "policy", "tenants", "want"),
    [
        pytest.param(2, "spread", on("g0"), [[2, 3]], id="spread: the idle NUMA node"),
        pytest.param(2, "binpack", on("g3"), [[3, 2]], id="binpack: the busy one, by rank"),
        pytest.param(2, "numa", on("g0", "g1"), [[0, 1]], id="numa: the lower"),
        pytest.param(2, "mutex", on("g0"), [[2, 3]], id="mutex leaves one NUMA node"),
        pytest.param(1, "binpack", on("g2"), [[2]], id="one card"),
        pytest.param(3, "spread", [], "NumaNotFit", id="three of two and two"),
    ],
)
def test_numa_bind(k: int, policy: str, tenants: list[Json], want: Any) -> None:
    result = place(ask(k, policy=policy, **BIND), [t4x4()], tenants)

    assert taken(result) == want
    if want == "NumaNotFit":
        assert words(result) == ["NumaNotFit"] * 4


def test_numa_bind_groups_before_it_ranks() -> None:
    node = gpunode(card(0, 0), card(1, 0), card(2, 1))

    assert taken(place(ask(2, **BIND), [node], on("g0", "g0", "g2"))) == [[1, 0]]


def test_numa_bind_leaves_out_cards_whose_node_is_unknown() -> None:
    node = gpunode(card(0, None), card(1, None), card(2, 4))

    assert taken(place(ask(1, **BIND), [node])) == [[2]]
    assert words(place(ask(2, **BIND), [node])) == ["NumaNotFit"] * 3
    assert taken(place(ask(2, **{"nvidia.com/numa-bind": "yes"}), [node])) == [[2, 0]]


@pytest.mark.parametrize(
    ("k", "links", "notes", "want"),
    [
        pytest.param(2, [link(1, 2, 4), link(2, 3, 1)], {}, [[2, 3]], id="never across nodes"),
        pytest.param(2, [link(1, 2, 4)], {}, "CardTopologyNotSatisfied", id="joined only across"),
        pytest.param(2, [link(1, 2, 4)], PREFERRED, [[0, 1]], id="preferred: unjoined on one node"),
        pytest.param(2, None, PREFERRED, [[0, 1]], id="preferred, unknown: the sort keys"),
        pytest.param(3, switched(4), {}, "NumaNotFit", id="numa-bind speaks before topology"),
    ],
)
def test_numa_bind_with_topology_aware(
    k: int, links: list[Json] | None, notes: dict[str, str], want: Any
) -> None:
    result = place(ask(k, policy="topology-aware", **BIND, **notes), [t4x4(links)])

    assert taken(result) == want


def test_one_card_on_a_numa_node_still_sums_over_all_that_fit() -> None:
    node = gpunode(card(0, None), card(1, 0), card(2, 0), links=[link(0, 1, 2)])

    assert taken(place(ask(policy="topology-aware", **BIND), [node])) == [[2]]
    assert taken(place(ask(policy="topology-aware"), [node])) == [[2]]


# Section 7: containers


@pytest.mark.parametrize(
    ("cards", "asking", "want"),
    [
        pytest.param(
            [card(0, memoryMiB=8000), card(1, memoryMiB=8000)],
            pod(box(1, 8000), box(1, 1000)),
            [[0], [1]],
            id="a container sees what the one before it took",
        ),
        pytest.param([card(0)], pod(box(1, 5), box(), box(1, 5)), [[0], [], [0]], id="reuse"),
        pytest.param(
            [card(0)], pod(box(1, 5), box(1, 5), **{POLICY: "mutex"}), CONFLICT, id="mutex: own too"
        ),
        pytest.param(
            [card(0), card(1)],
            pod(box(1, 5), box(1, 5), **{POLICY: "mutex,binpack"}),
            [[0], [1]],
            id="mutex: each container on a card of its own",
        ),
        pytest.param(
            [card(0)],
            pod(box(1, 5), init=[box(1, 5), box(1, 5)], **{POLICY: "mutex"}),
            [[0], [0], [0]],
            id="mutex: an init container that has run is no tenant",
        ),
        pytest.param(
            [card(0), card(1)],
            pod(box(1), init=[box(2)]),
            [[0, 1], [0]],
            id="regular containers do not see init containers",
        ),
        pytest.param(
            [card(0)],
            pod(box(1, 8000), init=[sidecar(1, 8000)]),
            "CardInsufficientMemory",
            id="regular containers see sidecars",
        ),
        pytest.param(
            [card(0)],
            pod(box(), init=[sidecar(1, 8000), box(1, 8000)]),
            "CardInsufficientMemory",
            id="an init container sees the sidecars before it",
        ),
        pytest.param(
            [card(0)],
            pod(box(), init=[box(1, 8000), sidecar(1, 8000)]),
            [[0], [0], []],
            id="and not those after it",
        ),
        pytest.param(
            [card(0, slots=1)],
            pod(box(1, 5), init=[box(1, 5)]),
            [[0], [0]],
            id="one slot serves init and regular",
        ),
        pytest.param(
            [card(0, slots=1)],
            pod(box(1, 5), init=[sidecar(1, 5)]),
            "CardTimeSlicingExhausted",
            id="one slot does not serve two that run together",
        ),
        pytest.param(
            [card(0)], pod(box(1, 5), box(1, 5, 100)), CONFLICT, id="whole cores beside its own"
        ),
        pytest.param(
            [card(0)],
            pod(box(1, 5, 100), box(1, 5)),
            "CardComputeUnitsExhausted",
            id="its own after whole cores",
        ),
    ],
)
def test_containers_of_one_pod(cards: list[Json], asking: Json, want: Any) -> None:
    assert taken(place(asking, [gpunode(*cards)])) == want


def test_the_text_has_a_segment_for_every_container() -> None:
    asking = pod(box(), box(2, 5, 7), init=[box(1, 3), box()])

    assert place(asking, [gpunode(card(0), card(1))])["annotation"] == (
        "g0,NVIDIA,3,0:;;;g0,NVIDIA,5,7:g1,NVIDIA,5,7:;"
    )


def test_cards_are_written_in_the_order_they_were_ranked() -> None:
    result = place(ask(2, policy="binpack"), [gpunode(card(0), card(1))], on("g1"))

    assert result["annotation"] == "g1,NVIDIA,1000,0:g0,NVIDIA,1000,0:;"


def test_the_report_is_of_the_first_container_that_asks_or_of_the_one_that_did_not_fit() -> None:
    node = gpunode(card(0), card(1, healthy=False))

    fits = place(pod(box(), box(1, 1000), box(1, 1000)), [node])
    fails = place(pod(box(1, 1000), box(1, 15000)), [node])

    assert (scores(fits), words(fits)) == (["0.000000", "0.000000"], [None, "CardNotHealth"])
    assert scores(fails) == ["1.651042", "0.000000"]
    assert words(fails) == ["CardInsufficientMemory", "CardNotHealth"]


INIT_SIDE_APP = pod(box(1), init=[box(1), sidecar(1)])
SIDE_INIT_APP = pod(box(1), init=[sidecar(1), box(1)])
INIT_NONE = pod(box(), init=[box(1)])


@pytest.mark.parametrize(
    ("of", "text", "slots", "mib"),
    [
        pytest.param(
            INIT_SIDE_APP,
            "g0,NVIDIA,8000,0:;g0,NVIDIA,2000,0:;g0,NVIDIA,3000,0:;",
            2,
            8000,
            id="init 8000 alone, then 2000 beside 3000",
        ),
        pytest.param(
            SIDE_INIT_APP,
            "g0,NVIDIA,2000,0:;g0,NVIDIA,8000,0:;g0,NVIDIA,3000,0:;",
            2,
            10000,
            id="init 8000 beside the sidecar's 2000",
        ),
        pytest.param(INIT_NONE, "g0,NVIDIA,3000,0:;;", 1, 3000, id="an init container alone"),
        pytest.param(
            INIT_SIDE_APP,
            "g0,NVIDIA,8000,0:;g0,NVIDIA,2000,0:;",
            2,
            10000,
            id="fewer segments than containers: summed",
        ),
        pytest.param(
            INIT_NONE,
            "g0,NVIDIA,3000,0:;g0,NVIDIA,4000,0:;",
            2,
            7000,
            id="cards for a container that asks for none: summed",
        ),
        pytest.param(
            pod(box(1)),
            "g0,NVIDIA,3000,0:;g0,NVIDIA,4000,0:;",
            2,
            7000,
            id="cards for a container that is not there: summed",
        ),
        pytest.param(
            pod(box(1)), "g0,NVIDIA,3000,0,more:;;;", 1, 3000, id="empty segments, further fields"
        ),
    ],
)
def test_what_a_bound_pod_holds(of: Json, text: str, slots: int, mib: int) -> None:
    tenants, node = [bound("t", text, of=of)], gpunode(card(0, slots=slots + 1))

    assert taken(place(ask(mem=15360 - mib), [node], tenants)) == [[0]]
    assert taken(place(ask(mem=15361 - mib), [node], tenants)) == "CardInsufficientMemory"
    full = gpunode(card(0, slots=slots))
    assert taken(place(ask(mem=1), [full], tenants)) == "CardTimeSlicingExhausted"


# Check 9: exclusive Pods


def test_an_exclusive_pod_wants_a_card_without_another_pod() -> None:
    node, asking = gpunode(card(0), card(1)), ask(policy="binpack", **EXCLUSIVE)

    assert taken(place(asking, [node], on("g0"))) == [[1]]
    assert words(place(asking, [node], on("g0", "g1"))) == [CONFLICT] * 2
    assert taken(place(ask(policy="binpack", **{"cardwise.dev/exclusive": "yes"}), [node])) == [[0]]


def test_an_exclusive_pod_keeps_others_away_and_only_the_binding_says_so() -> None:
    node, text = gpunode(card(0), card(1)), "g0,NVIDIA,10,0:;"

    assert taken(place(ask(policy="binpack"), [node], [bound("e", text, **HELD)])) == [[1]]
    assert taken(place(ask(policy="binpack"), [node], [bound("e", text, **EXCLUSIVE)])) == [[0]]


def test_containers_of_an_exclusive_pod_share_with_each_other() -> None:
    asking = pod(box(1, 10), box(1, 10), **EXCLUSIVE, **{POLICY: "binpack"})

    assert taken(place(asking, [gpunode(card(0), card(1))])) == [[0], [0]]


# Section 8: quota

EXCLUDED = pod(box(1, 1000), **EXCLUSIVE)
BIG_CORES = gpunode(card(0, cores=150))
FOUR_SIZES = gpunode(*(card(i, memoryMiB=m) for i, m in enumerate((2000, 8000, 4000, 6000))))
NO_ROOM = "ResourceQuotaNotFit"


@pytest.mark.parametrize(
    ("node", "asking", "quotas", "tenants", "want"),
    [
        pytest.param(t4x4(), ask(2, 4096), [quota(8192)], [], [[0, 1]], id="2 x 4096 of 8192"),
        pytest.param(t4x4(), ask(2, 4097), [quota(8192)], [], NO_ROOM, id="2 x 4097 of 8192"),
        pytest.param(t4x4(), ask(2, 4096), [quota(0, ns="x")], [], [[0, 1]], id="not ours"),
        pytest.param(t4x4(), ask(), [quota("9k"), quota("999")], [], NO_ROOM, id="the lowest"),
        pytest.param(t4x4(), ask(), [quota(0)], [], NO_ROOM, id="0 blocks"),
        pytest.param(t4x4(), ask(), [quota(cores=0)], [], [[0]], id="no cores asked of 0 cores"),
        pytest.param(t4x4(), pod(box(1, percent=50)), [quota(7680)], [], [[0]], id="50 percent"),
        pytest.param(t4x4(), pod(box(1, percent=50)), [quota(7679)], [], NO_ROOM, id="1 MiB less"),
        pytest.param(t4x4(), ask(), [quota(2000)], on("g0"), [[1]], id="beside a tenant"),
        pytest.param(t4x4(), ask(), [quota(1999)], on("g0"), NO_ROOM, id="and 1 MiB less"),
        pytest.param(
            t4x4(),
            ask(),
            [quota(1999)],
            [bound("a", "g0,NVIDIA,1000,0:;", "elsewhere")],
            NO_ROOM,
            id="on another node",
        ),
        pytest.param(
            t4x4(),
            ask(),
            [quota(1000)],
            [bound("a", "g0,NVIDIA,9,0:;", of=pod(box(1), ns="x"))],
            [[1]],
            id="a tenant of another namespace",
        ),
        pytest.param(
            t4x4(),
            ask(),
            [quota(1000)],
            [bound("a", "g0,NVIDIA,9,0:;", "")],
            [[0]],
            id="an annotation on a Pod that is not bound",
        ),
        pytest.param(
            t4x4(),
            ask(),
            [quota(1000)],
            [bound("a", "gone,NVIDIA,1,0:;", **HELD)],
            NO_ROOM,
            id="a bound exclusive Pod whose card is gone counts what it booked",
        ),
        pytest.param(FOUR_SIZES, pod(box(1)), [quota(2000)], [], [[0]], id="the card that fits"),
        pytest.param(FOUR_SIZES, pod(box(1)), [quota(1500)], [], NO_ROOM, id="no card does"),
        pytest.param(
            t4x4(), pod(box(2, 2000, 100)), [quota(4000, 200)], [], [[0, 1]], id="whole cores"
        ),
        pytest.param(
            t4x4(), pod(box(2, 2000, 100)), [quota(4000, 199)], [], NO_ROOM, id="199 for 200 cores"
        ),
        pytest.param(
            BIG_CORES, pod(box(1, 1, 100)), [quota(cores=100)], [], [[0]], id="100 is 100"
        ),
        pytest.param(
            t4x4(), pod(box(1, 500), init=[box(1, 8000)]), [quota(8000)], [], [[0], [0]], id="max"
        ),
        pytest.param(
            t4x4(), pod(box(1, 500), init=[sidecar(1, 7501)]), [quota(8000)], [], NO_ROOM, id="sum"
        ),
        pytest.param(t4x4(), EXCLUDED, [quota(15360)], [], [[0]], id="exclusive: the whole card"),
        pytest.param(t4x4(), EXCLUDED, [quota(15359)], [], NO_ROOM, id="exclusive: 1 MiB less"),
        pytest.param(
            BIG_CORES, EXCLUDED, [quota(cores=149)], [], NO_ROOM, id="exclusive: the whole cores"
        ),
        pytest.param(
            t4x4(),
            pod(box(1, 9), box(1, 9), **EXCLUSIVE, **{POLICY: "binpack"}),
            [quota(15360)],
            [],
            [[0], [0]],
            id="exclusive: a card it has already costs nothing more",
        ),
        pytest.param(
            t4x4(),
            ask(),
            [quota(16359)],
            [bound("e", "g0,NVIDIA,5,0:;", **HELD)],
            NO_ROOM,
            id="a bound exclusive Pod counts its card whole",
        ),
    ],
)
def test_quota(
    node: Json, asking: Json, quotas: list[Json], tenants: list[Json], want: Any
) -> None:
    assert taken(place(asking, [node], tenants, quotas)) == want


# Section 9


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        pytest.param("g0,NVIDIA,1000:;", True, id="three fields"),
        pytest.param("GPU-c;", True, id="no fields"),
        pytest.param("g0,NVIDIA,lots,0:;", True, id="memory in words"),
        pytest.param("g0,NVIDIA,1000,:;", True, id="no cores"),
        pytest.param("g0,NVIDIA,-1,0:;", True, id="negative memory"),
        pytest.param("g0,NVIDIA,1,2147483648:;", True, id="cores too large"),
        pytest.param(",NVIDIA,1000,0:;", True, id="no UUID"),
        pytest.param("g0,NVIDIA,1,0:;x:;", True, id="one bad piece among good ones"),
        pytest.param("", False, id="an empty text"),
        pytest.param(";; :;", False, id="blank pieces"),
        pytest.param("g0,NVIDIA,1000,0", False, id="nothing at the end"),
        pytest.param("gone,NVIDIA,1000,0:;", False, id="a card that is no longer reported"),
    ],
)
def test_a_text_that_cannot_be_read_blocks_its_node(text: str, blocks: bool) -> None:
    result = place(ask(), [gpunode(card(0))], [bound("t", text)])

    assert result["reason"] == ("NodeHasUnreadableAllocation" if blocks else None)
    assert words(result) == ([] if blocks else [None])


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        pytest.param({}, True, id="running"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True, id="ending"
        ),
        pytest.param({"status": {"phase": "Pending"}}, True, id="bound, not yet running"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, id="succeeded"),
        pytest.param({"status": {"phase": "Failed"}}, False, id="failed"),
        pytest.param({"spec": {"nodeName": ""}}, False, id="not bound"),
        pytest.param({"spec": {"nodeName": "n2"}}, False, id="on another node"),
        pytest.param({"metadata": {"name": "p"}}, False, id="the Pod itself, by name"),
        pytest.param({"metadata": {"uid": "u"}}, False, id="the Pod itself, by uid"),
    ],
)
def test_who_is_a_tenant(change: Json, counts: bool) -> None:
    asking, tenant = ask(), on("g0")[0]
    asking["metadata"]["uid"] = "u"
    for part, values in change.items():
        tenant[part].update(values)

    assert scores(place(asking, [gpunode(card(0))], [tenant])) == [
        "1.651042" if counts else "0.000000"
    ]


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(on("g0", "g0", mem=7680, cores=50), [], id="full to the brim"),
        pytest.param(
            on("g0", "g0", mem=7681),
            ["n1: g0 gives 15362 of 15360 memory"],
            id="memory twice",
        ),
        pytest.param(on("g0", "g0", cores=51), ["n1: g0 gives 102 of 100 cores"], id="cores twice"),
        pytest.param(on("g0", "g0", "g0"), ["n1: g0 gives 3 of 2 slots"], id="slots twice"),
        pytest.param(on("g9"), ["n1: default/t0 has g9, unknown there"], id="an unknown card"),
        pytest.param(
            [bound("a", "g0,NVIDIA,1,0:g0,NVIDIA,1,0:;", of=pod(box(2)))],
            ["n1: default/a has g0 2 times in container 0"],
            id="one card twice in a container",
        ),
        pytest.param(
            [bound("a", "g0,NVIDIA,1,0:;", **HELD), *on("g0")],
            ["n1: default/a is exclusive on g0, and not alone there"],
            id="an exclusive Pod in company",
        ),
        pytest.param(
            [bound("a", "g0,NVIDIA,1,100:;"), *on("g0")],
            ["n1: default/a has all cores of g0, and is not alone"],
            id="whole cores in company",
        ),
        pytest.param(
            [bound("a", "g0,NVIDIA,1,100:;g0,NVIDIA,1,0:;", of=pod(box(1), box(1)))],
            ["n1: a container of default/a shares all cores of g0"],
            id="whole cores in its own company",
        ),
        pytest.param(
            [bound("a", "g0,NVIDIA,9,100:;g0,NVIDIA,9,0:;", of=pod(box(1), init=[box(1)]))],
            [],
            id="whole cores of an init container before a regular one",
        ),
        pytest.param(
            [bound("a", "g0;")], ["n1: the allocation of default/a cannot be read"], id="unreadable"
        ),
    ],
)
def test_violations(pods: list[Json], want: list[str]) -> None:
    assert violations([gpunode(card(0, slots=2))], pods) == want


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_placed_one_after_another_is_legal(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [t4x4(switched(4)), gpunode(card(0, None), card(1, 0, slots=2, cores=150), name="n2")]
    pods: list[Json] = []
    answers = []
    for number in range(100):
        asking = some_pod(dice, f"p{number}")
        result = place(asking, nodes, pods, [quota(90000, 800)])
        answers.append(result["reason"])
        if result["node"]:
            notes = HELD if "cardwise.dev/exclusive" in asking["metadata"]["annotations"] else {}
            pods.append(bound(f"p{number}", result["annotation"], result["node"], asking, **notes))
        if pods and dice.random() < 0.4:
            pods.pop(dice.randrange(len(pods)))
        assert violations(nodes, pods) == []

    assert answers.count(None) > 30
    assert len(set(answers)) > 2


def some_pod(dice: random.Random, name: str) -> Json:
    """Any valid Pod."""

    def some_box() -> Json:
        k = dice.choice((0, 1, 1, 1, 2))
        return box(k, dice.choice((1, 1000, 5000)), dice.choice((0, 0, 30, 100))) if k else box()

    init = [
        {**some_box(), **({"restartPolicy": "Always"} if dice.random() < 0.5 else {})}
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]
    names = ("mutex", "topology-aware", "binpack", "spread", "numa")
    chain = ",".join(dice.sample(names, dice.randint(1, 3)))
    notes = {POLICY: chain}
    if dice.random() < 0.2:
        notes |= EXCLUSIVE
    if dice.random() < 0.2:
        notes |= BIND
    return pod(*(some_box() for _ in range(dice.choice((1, 1, 2)))), init=init, name=name, **notes)
