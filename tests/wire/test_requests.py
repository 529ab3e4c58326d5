from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.model import Ask, ContainerKind, InvalidRequest, PodRef, Request, Weights
from cardwise.names import (
    EXCLUSIVE,
    NODE_POLICY,
    NOUSE_TYPE,
    NOUSE_UUID,
    NUMA_BIND,
    POLICY,
    TOPOLOGY,
    USE_TYPE,
    USE_UUID,
    VGPU_MODE,
    WEIGHTS,
    NodePolicy,
    PolicyName,
    TopologyMode,
)
from cardwise.quantity import LARGEST
from cardwise.settings import Settings, parse
from cardwise.wire.pods import request_of
from cardwise.wire.requests import USER_ANNOTATIONS

Json = dict[str, Any]
DEFAULTS = Settings()
INIT, SIDECAR, REGULAR = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.REGULAR


def read(pod: Any, settings: str = "") -> Request:
    request = request_of(pod, parse(settings))
    assert isinstance(request, Request), request
    return request


def refusal(pod: Any) -> str:
    request = request_of(pod, DEFAULTS)
    assert isinstance(request, InvalidRequest), request
    assert request.pod == PodRef("default", "p", "uid-default-p")
    assert "\n" not in request.message
    return request.message


# What containers ask ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "ask"),
    [
        pytest.param({"gpu": 1}, Ask(count=1), id="a count alone is all of the memory"),
        pytest.param({"gpu": 2, "gpumem": 4096}, Ask(count=2, memory_mib=4096), id="MiB per card"),
        pytest.param(
            {"gpu": 1, "gpumem": "1k"}, Ask(count=1, memory_mib=1000), id="the server's 1000"
        ),
        pytest.param({"gpu": 1, "gpumem": "1e3"}, Ask(count=1, memory_mib=1000), id="an exponent"),
        pytest.param({"gpu": 1, "percent": 50}, Ask(count=1, memory_percent=50), id="a percentage"),
        pytest.param({"gpu": 1, "percent": 100}, Ask(count=1), id="100 % is the default"),
        pytest.param({"gpu": 1, "percent": 1}, Ask(count=1, memory_percent=1), id="the least"),
        pytest.param(
            {"gpu": 1, "gpumem": 2000, "percent": 50},
            Ask(count=1, memory_mib=2000),
            id="MiB win over the percentage",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": 0, "percent": 50},
            Ask(count=1, memory_percent=50),
            id="0 MiB is not named",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": 2000, "percent": 0},
            Ask(count=1, memory_mib=2000),
            id="0 % is not named",
        ),
        pytest.param({"gpu": 1, "gpumem": 0, "percent": 0}, Ask(count=1), id="neither is named"),
        pytest.param({"gpu": 1, "gpucores": 30}, Ask(count=1, cores=30), id="a part of the cores"),
        pytest.param({"gpu": 1, "gpucores": 99}, Ask(count=1, cores=99), id="almost all cores"),
        pytest.param({"gpu": 1, "gpucores": 100}, Ask(count=1, cores=100), id="all cores"),
        pytest.param({"gpu": 1, "gpucores": 120}, Ask(count=1, cores=100), id="more than all"),
        pytest.param({"gpu": 1, "priority": 1}, Ask(count=1), id="priority is not for placement"),
        pytest.param(
            {"gpu": LARGEST, "gpumem": LARGEST, "gpucores": LARGEST},
            Ask(count=LARGEST, memory_mib=LARGEST, cores=100),
            id="the largest",
        ),
    ],
)
def test_what_a_container_asks(resources: dict[str, Any], ask: Ask) -> None:
    assert read(build.pod(containers=[build.container(**resources)])).signature.asks == (ask,)


@pytest.mark.parametrize(
    ("resources", "ask"),
    [
        pytest.param({"gpu": 1}, Ask(count=1, memory_mib=512, cores=10), id="neither named"),
        pytest.param(
            {"gpu": 1, "gpumem": 0, "percent": 0},
            Ask(count=1, memory_mib=512, cores=10),
            id="0 MiB and 0 % are not named",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": 2000, "gpucores": 5},
            Ask(count=1, memory_mib=2000, cores=5),
            id="both named",
        ),
        pytest.param({"gpu": 1, "percent": 100}, Ask(count=1, cores=10), id="100 % is named"),
        pytest.param(
            {"gpu": 1, "gpucores": 0}, Ask(count=1, memory_mib=512), id="0 cores are named"
        ),
        pytest.param({"gpu": 0}, Ask(), id="no defaults for a container without cards"),
    ],
)
def test_the_defaults_of_the_settings(resources: dict[str, Any], ask: Ask) -> None:
    pod = build.pod(containers=[build.container("x", **resources), build.container("y", gpu=1)])

    request = read(pod, "defaults: {memoryMiB: 512, cores: 10}")

    assert request.signature.asks[0] == ask


def test_default_cores_above_100_are_a_whole_card() -> None:
    assert read(build.pod(), "defaults: {cores: 150}").signature.asks == (Ask(count=1, cores=100),)


@pytest.mark.parametrize(
    ("limits", "requests", "ask"),
    [
        pytest.param({"nvidia.com/gpu": "1"}, {}, Ask(count=1), id="limits alone"),
        pytest.param({}, {"nvidia.com/gpu": "1"}, Ask(count=1), id="requests alone"),
        pytest.param(
            {"nvidia.com/gpu": "2"},
            {"nvidia.com/gpu": "1"},
            Ask(count=2),
            id="limits go before requests",
        ),
        pytest.param(
            {"nvidia.com/gpu": "1"},
            {"nvidia.com/gpumem": "2k"},
            Ask(count=1, memory_mib=2000),
            id="each resource by itself",
        ),
        pytest.param(
            {"nvidia.com/gpu": None}, {"nvidia.com/gpu": 1}, Ask(count=1), id="a null limit is none"
        ),
        pytest.param({"nvidia.com/gpu": 1}, {}, Ask(count=1), id="an integer, as in a file"),
    ],
)
def test_limits_go_before_requests(limits: Any, requests: Any, ask: Ask) -> None:
    pod = build.pod(containers=[build.container(limits=limits, requests=requests)])

    assert read(pod).signature.asks == (ask,)


def test_init_containers_stand_before_regular_ones() -> None:
    request = read(
        build.pod(
            init=[build.container("i", gpu=1), build.container("s", gpu=2, sidecar=True)],
            containers=[build.container("a"), build.container("b", gpu=3)],
        )
    )

    assert request.containers == ("i", "s", "a", "b")
    assert request.signature.asks == (
        Ask(kind=INIT, count=1),
        Ask(kind=SIDECAR, count=2),
        Ask(kind=REGULAR),
        Ask(kind=REGULAR, count=3),
    )


def test_a_restart_policy_makes_no_sidecar_of_a_regular_container() -> None:
    pod = build.pod(containers=[build.container(gpu=1, sidecar=True)])

    assert read(pod).signature.asks == (Ask(kind=REGULAR, count=1),)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build.pod(gpus=None), id="no resource of ours"),
        pytest.param(build.pod(gpus=0), id="a count of 0"),
        pytest.param(build.pod(gpus=0, gpumem=0, percent=0, gpucores=0), id="nothing of anything"),
        pytest.param(build.pod(gpus=None, priority=1), id="a priority alone"),
        pytest.param(build.pod(gpus=None, weights="nonsense"), id="annotations mean nothing"),
        pytest.param(build.pod(gpus=None, annotations={POLICY: 7}), id="whatever their type"),
        pytest.param({}, id="an empty object"),
    ],
)
def test_a_pod_that_asks_for_no_card(pod: dict[str, Any]) -> None:
    assert request_of(pod, DEFAULTS) is None


@pytest.mark.parametrize(
    ("resources", "parts"),
    [
        pytest.param(
            {"gpu": 1, "gpumem": "16Gi"},
            ['nvidia.com/gpumem is "16Gi"', "binary suffix Gi", "MiB", "nvidia.com/gpumem: 16384"],
            id="a binary suffix, with what was meant",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": "16G"},
            ['"16G"', f"above {LARGEST}", "nvidia.com/gpumem: 15258"],
            id="bytes, with what was meant",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": "1Ki"}, ["Ki", "nvidia.com/gpumem: 4096"], id="too few bytes"
        ),
        pytest.param(
            {"gpu": 1, "gpumem": "1500m"},
            ['"1500m"', "not a whole number", "nvidia.com/gpumem: 4096"],
            id="a fraction",
        ),
        pytest.param({"gpu": "-1"}, ['"-1"', "negative", "nvidia.com/gpu: 1"], id="minus a card"),
        pytest.param({"gpu": "one"}, ["nvidia.com/gpu", '"one"', "not a number"], id="a word"),
        pytest.param(
            {"gpu": 1, "percent": 101},
            ['nvidia.com/gpumem-percentage is "101"', "above 100", "percentage: 50"],
            id="more than 100 %",
        ),
        pytest.param(
            {"gpu": 1, "percent": "0.5"}, ["gpumem-percentage", "whole"], id="half a percent"
        ),
        pytest.param(
            {"gpu": 1, "gpucores": "30m"},
            ["gpucores", "nvidia.com/gpucores: 30"],
            id="cores in milli",
        ),
        pytest.param(
            {"gpu": 1, "priority": "high"}, ["priority", "0 (high) or 1 (low)"], id="a priority"
        ),
        pytest.param(
            {"gpumem": 1000}, ['nvidia.com/gpumem is "1k"', "add nvidia.com/gpu: 1"], id="no count"
        ),
        pytest.param(
            {"gpu": 0, "percent": 50},
            ["gpumem-percentage", "add nvidia.com/gpu"],
            id="a count of 0",
        ),
        pytest.param({"gpucores": 30}, ["gpucores", "add nvidia.com/gpu"], id="cores alone"),
        pytest.param({"gpu": None, "gpumem": "x" * 500}, ['"xxx', "…"], id="a long value is cut"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": True}}, ["is true", "not a number"], id="a truth value"
        ),
        pytest.param({"limits": {"nvidia.com/gpu": {}}}, ["is an object"], id="an object"),
        pytest.param({"limits": {"nvidia.com/gpu": []}}, ["is a list"], id="a list"),
        pytest.param({"limits": {"nvidia.com/gpu": 1.5}}, ["is 1.5", "whole"], id="a float"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 1 << 20_000}}, ["many digits"], id="a huge integer"
        ),
        pytest.param({"limits": {"nvidia.com/gpu": "1\n2"}}, ['"1\\n2"'], id="a line end"),
        pytest.param({"limits": {"nvidia.com/gpu": "\ud800"}}, ['"?"'], id="half a surrogate pair"),
    ],
)
@pytest.mark.parametrize("beside", [[], [build.container("other", gpu=1)]], ids=["alone", "beside"])
def test_what_cannot_be_read_is_refused(
    resources: dict[str, Any], parts: list[str], beside: list[build.Json]
) -> None:
    message = refusal(build.pod(containers=[*beside, build.container("app", **resources)]))

    assert message.startswith("container app: ")
    assert [part for part in parts if part not in message] == []
    assert len(message) < 300


@pytest.mark.parametrize(
    "name",
    [
        pytest.param({}, id="none"),
        pytest.param({"name": ""}, id="an empty one"),
        pytest.param({"name": "\ud800"}, id="one that can't be written to anyone"),
        pytest.param({"name": "a\nb"}, id="one of two lines"),
    ],
)
def test_a_container_without_a_name_to_show_goes_by_its_place(name: Json) -> None:
    nameless = {**name, "resources": {"limits": {"nvidia.com/gpu": "x"}}}
    containers = [build.container(gpu=1), nameless]

    assert refusal(build.pod(containers=containers)).startswith("container containers[1]: ")
    assert refusal(build.pod(init=containers)).startswith("container initContainers[1]: ")


# How it wants to be placed ------------------------------------------------------------------------


def test_without_annotations_the_settings_hold() -> None:
    request = read(
        build.pod(),
        "scheduling: {cardPolicy: 'mutex,binpack', nodePolicy: spread, "
        "topologyAware: {mode: preferred}}",
    )
    asked = request.signature

    assert asked.policy.names == (PolicyName.MUTEX, PolicyName.BINPACK)
    assert asked.node_policy is NodePolicy.SPREAD
    assert asked.topology_mode is TopologyMode.PREFERRED
    assert asked.weights == Weights()
    assert (asked.use_types, asked.nouse_types) == ((), ())
    assert (asked.use_uuids, asked.nouse_uuids, asked.modes) == (frozenset(),) * 3
    assert (asked.numa_bind, asked.exclusive) == (False, False)
    assert (request.policy_text, request.unknown_policies, request.warnings) == (None, (), ())


def test_the_chain_is_parsed_and_what_is_unknown_in_it_told() -> None:
    request = read(build.pod(policy="numa, binpak,mutex"))

    assert request.policy_text == "numa, binpak,mutex"
    assert request.signature.policy.names == (PolicyName.NUMA, PolicyName.MUTEX)
    assert request.unknown_policies == ("binpak",)
    assert request.warnings == ()


def test_of_many_unknown_names_the_first_are_told() -> None:
    request = read(build.pod(policy=",".join(f"w{number}" for number in range(30_000))))

    assert request.unknown_policies == tuple(f"w{number}" for number in range(20))


def test_a_name_that_is_switched_off_is_warned_of() -> None:
    request = read(
        build.pod(policy="topology-aware,binpack"),
        "scheduling: {topologyAware: {enabled: false}}",
    )

    assert request.signature.policy.names == (PolicyName.BINPACK,)
    assert request.unknown_policies == ()
    (warning,) = request.warnings
    assert "topology-aware is switched off" in warning


def test_all_annotations_together() -> None:
    asked = read(
        build.pod(
            annotations={
                NODE_POLICY: "spread",
                WEIGHTS: "slot=1,core=1,memory=3",
                USE_TYPE: "T4, A100,,t4",
                NOUSE_TYPE: "V100",
                USE_UUID: "GPU-a, GPU-b,",
                NOUSE_UUID: " GPU-B ",
                NUMA_BIND: "T",
                VGPU_MODE: "mps, hami-core",
                EXCLUSIVE: "1",
                TOPOLOGY: "preferred",
            }
        )
    ).signature

    assert asked.node_policy is NodePolicy.SPREAD
    assert asked.weights == Weights(slot=1, core=1, memory=3)
    assert asked.use_types == ("a100", "t4")
    assert asked.nouse_types == ("v100",)
    assert asked.use_uuids == frozenset({"GPU-a", "GPU-b"})
    assert asked.nouse_uuids == frozenset({"GPU-B"})
    assert asked.numa_bind
    assert asked.modes == frozenset({"mps", "hami-core"})
    assert asked.exclusive
    assert asked.topology_mode is TopologyMode.PREFERRED


def test_the_order_of_a_list_makes_no_other_question() -> None:
    one = read(build.pod(annotations={USE_TYPE: "T4,A100", USE_UUID: "GPU-a,GPU-b"}))
    other = read(build.pod(annotations={USE_TYPE: "a100, t4", USE_UUID: "GPU-b,GPU-a"}))

    assert one.signature == other.signature


@pytest.mark.parametrize("key", sorted({*USER_ANNOTATIONS} - {WEIGHTS, POLICY}))
@pytest.mark.parametrize("blank", ["", " ", None], ids=["empty", "a blank", "null"])
def test_a_blank_annotation_is_none(key: str, blank: str | None) -> None:
    request = read(build.pod(annotations={key: blank}))

    assert request.signature == read(build.pod()).signature
    assert request.warnings == ()


@pytest.mark.parametrize("key", [USE_TYPE, NOUSE_TYPE, USE_UUID, NOUSE_UUID, VGPU_MODE])
def test_blank_members_are_none(key: str) -> None:
    request = read(build.pod(annotations={key: " , ,"}))

    assert request.signature == read(build.pod()).signature
    assert request.warnings == ()


@pytest.mark.parametrize("key", [NUMA_BIND, EXCLUSIVE])
@pytest.mark.parametrize(
    ("value", "truth"),
    [(word, True) for word in ("1", "t", "T", "TRUE", "true", "True")]
    + [(word, False) for word in ("0", "f", "F", "FALSE", "false", "False")],
)
def test_booleans_are_gos(key: str, value: str, truth: bool) -> None:
    request = read(build.pod(annotations={key: value}))
    asked = request.signature

    assert (asked.numa_bind if key == NUMA_BIND else asked.exclusive) is truth
    assert request.warnings == ()


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        pytest.param(NUMA_BIND, "yes", '"true" or "false"', id="no boolean"),
        pytest.param(NUMA_BIND, "tRUE", '"true" or "false"', id="a boolean in mixed case"),
        pytest.param(EXCLUSIVE, "on", '"true" or "false"', id="no boolean for exclusive"),
        pytest.param(NODE_POLICY, "Binpack", "binpack or spread", id="case matters"),
        pytest.param(NODE_POLICY, "numa", "binpack or spread", id="a card policy for nodes"),
        pytest.param(NODE_POLICY, " spread", "binpack or spread", id="a blank before a word"),
        pytest.param(TOPOLOGY, "best", "required or preferred", id="no topology mode"),
        pytest.param(VGPU_MODE, "MIG", "hami-core, mig, mps", id="no mode of a card"),
    ],
)
def test_a_value_outside_its_set_has_no_effect(key: str, value: str, instead: str) -> None:
    request = read(build.pod(annotations={key: value}))

    assert request.signature == read(build.pod()).signature
    (warning,) = request.warnings
    assert warning.startswith(f'{key}: "{value}" has no effect')
    assert instead in warning


def test_known_modes_beside_unknown_ones_hold() -> None:
    request = read(build.pod(annotations={VGPU_MODE: "mig,best,mps,best"}))

    assert request.signature.modes == frozenset({"mig", "mps"})
    assert len(request.warnings) == 1


def test_a_percentage_beside_mebibytes_is_warned_of() -> None:
    request = read(
        build.pod(
            containers=[
                build.container("a", gpu=1, gpumem=1000, percent=50),
                build.container("b", gpu=1, gpumem=1000, percent=0),
                build.container("c", gpu=1, percent=50),
            ]
        )
    )

    (warning,) = request.warnings
    assert warning.startswith("container a: nvidia.com/gpumem-percentage has no effect")


@pytest.mark.parametrize("key", USER_ANNOTATIONS)
@pytest.mark.parametrize(("value", "told"), [(True, "true"), (1, "1"), ([], "a list")], ids=str)
def test_an_annotation_that_is_no_text_is_refused(key: str, value: Any, told: str) -> None:
    message = refusal(build.pod(annotations={key: value}))

    assert message == f"annotation {key} is {told}, which is no text; put it in quotes"


def test_the_size_of_the_annotations_goes_with_the_request() -> None:
    assert read(build.pod(annotations={"ä": "€"})).annotation_bytes == 5


@pytest.mark.parametrize(
    ("value", "priority"), [(1000, 1000), (-5, -5), (None, 0), ("high", 0)], ids=str
)
def test_the_pods_priority_goes_with_the_request(value: Any, priority: int) -> None:
    pod = build.pod()
    pod["spec"]["priority"] = value

    assert read(pod).priority == priority


# Many Pods, few questions -------------------------------------------------------------------------


def test_pods_that_ask_the_same_share_one_question() -> None:
    one, other = (read(build.pod(name, gpumem=1000, policy="mutex,binpack")) for name in "pq")
    assert one.signature is other.signature
    assert read(build.pod(gpumem=1000, policy="mutex,spread")).signature != one.signature


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"annotations": {"note": "x" * 20_000}}, id="long annotations"),
        pytest.param({"containers": [build.container(gpu=1)] * 20}, id="many containers"),
    ],
)
def test_what_may_be_large_is_not_kept(more: dict[str, Any]) -> None:
    one, other = (read(build.pod(name, **more)) for name in "pq")
    assert one.signature is not other.signature
    assert one.signature == other.signature
    assert hash(one.signature) == hash(other.signature)


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        pytest.param("slot=1,core=1,memory=3", Weights(slot=1, core=1, memory=3), id="as printed"),
        pytest.param("memory=3,slot=1,core=2", Weights(slot=1, core=2, memory=3), id="any order"),
        pytest.param(
            " slot = 1 , core= 1,memory =3 ",
            Weights(slot=1, core=1, memory=3),
            id="blanks around the tokens",
        ),
        pytest.param("slot=0,core=0,memory=1", Weights(slot=0, core=0, memory=1), id="two zeros"),
        pytest.param(
            "slot=007,core=0,memory=0", Weights(slot=7, core=0, memory=0), id="zeros in front"
        ),
        pytest.param(
            f"slot={10**18 - 1},core=0,memory=0",
            Weights(slot=10**18 - 1, core=0, memory=0),
            id="the largest",
        ),
    ],
)
def test_weights_that_parse(text: str, weights: Weights) -> None:
    assert read(build.pod(weights=text)).signature.weights == weights


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "is empty", id="an empty text"),
        pytest.param("  ", "is empty", id="blanks alone"),
        pytest.param("1,1,1", 'has the part "1"', id="numbers alone"),
        pytest.param("slot=1,core=1", "leaves out memory", id="two of three"),
        pytest.param("memory=1", "leaves out slot and core", id="one of three"),
        pytest.param("slot=1,core=1,memory=1,", 'has the part ""', id="a comma at the end"),
        pytest.param("slot=1,core=1,memory=1,x=1", 'has the part "x=1"', id="a fourth key"),
        pytest.param("Slot=1,core=1,memory=1", 'has the part "Slot=1"', id="another case"),
        pytest.param("slot=1,slot=1,core=1,memory=1", "names slot twice", id="a key twice"),
        pytest.param("slot=1,core=1,memory=-1", "has a memory weight", id="a negative weight"),
        pytest.param("slot=1,core=1,memory=+1", "has a memory weight", id="a sign"),
        pytest.param("slot=1,core=1.5,memory=1", "has a core weight", id="a fraction"),
        pytest.param("slot=,core=1,memory=1", "has a slot weight", id="no number"),
        pytest.param("slot=1=1,core=1,memory=1", "has a slot weight", id="two equal signs"),
        pytest.param("slot=²,core=1,memory=1", "has a slot weight", id="a raised digit"),
        pytest.param(f"slot={10**18},core=1,memory=1", "has a slot weight", id="19 digits"),
        pytest.param("slot=" + "9" * 5000, "has a slot weight", id="thousands of digits"),
        pytest.param("slot=0,core=0,memory=00", "has only zeros", id="nothing but zeros"),
    ],
)
def test_weights_that_do_not_parse_are_refused(text: str, fault: str) -> None:
    message = refusal(build.pod(weights=text))

    assert message.startswith(f"annotation {WEIGHTS} is ")
    assert f"which {fault}" in message
    assert message.endswith("e.g. slot=1,core=1,memory=3")
    assert len(message) < 300


@given(st.permutations(["slot", "core", "memory"]), st.tuples(*[st.integers(0, 10**18 - 1)] * 3))
def test_any_three_digits_parse(keys: list[str], numbers: tuple[int, int, int]) -> None:
    wanted = dict(zip(keys, numbers, strict=True))
    text = ",".join(f"{key}={number}" for key, number in wanted.items())

    if any(numbers):
        assert read(build.pod(weights=text)).signature.weights == Weights(**wanted)
    else:
        assert "only zeros" in refusal(build.pod(weights=text))


# Anything anywhere --------------------------------------------------------------------------------

WHOLE = st.just(
    build.pod(
        policy="mutex,binpack",
        weights="slot=1,core=1,memory=3",
        exclusive="true",
        topology="required",
        numa_bind="true",
        annotations={USE_TYPE: "T4", USE_UUID: "GPU-a", VGPU_MODE: "mig"},
        init=[build.container("s", gpu=1, sidecar=True)],
        containers=[build.container(gpu=1, gpumem=1000, gpucores=30, percent=50, priority=1)],
    )
)


@given(hostile.spoilt(WHOLE))
def test_no_pod_gives_a_traceback(pod: Any) -> None:
    request = request_of(pod, DEFAULTS)

    if isinstance(request, Request):
        assert len(request.containers) == len(request.signature.asks)
        assert any(ask.count for ask in request.signature.asks)
        assert hash(request.signature) == hash(request_of(pod, DEFAULTS).signature)  # type: ignore[union-attr]
    elif request is not None:
        assert request.message
        assert "\n" not in request.message
        assert request.message.encode()
