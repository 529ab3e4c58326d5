"""What a Pod asks, what admission makes of it, and what a quota bounds: HAMi's cases."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import build
from cardwise.admission import admit
from cardwise.model import CardUse, InvalidRequest, Request
from cardwise.settings import Settings, parse
from cardwise.wire.requests import request_of
from controllers import World
from simulated import answer, node, tenant, where

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENT, CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
ROOT = Path(__file__).parents[2]
DEFAULTS = Settings()
MEMORY_512 = parse("defaults: {memoryMiB: 512}")


def asked(pod: build.Json, settings: Settings = DEFAULTS) -> list[tuple[int, int, int, int]]:
    """Cards, MiB (0: the per cent of the card), per cent and cores, container by container."""
    request = request_of(pod, settings)
    assert isinstance(request, Request)
    return [
        (ask.count, ask.memory_mib, ask.memory_percent, ask.cores) for ask in request.signature.asks
    ]


def in_requests(**values: str) -> build.Json:
    """A Pod whose one container names its resources in the requests alone."""
    named = {f"nvidia.com/{key}": value for key, value in values.items()}
    return build.pod(containers=[build.container(requests=named)])


# Requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(
            build.pod(gpus=1), (1, 0, 100, 0), id="request 1: a count alone asks all of the memory"
        ),
        pytest.param(
            build.pod(gpus=2, gpumem=4096),
            (2, 4096, 100, 0),
            id="request 2: gpumem is for each of the cards",
        ),
        pytest.param(
            build.pod(gpus=1, percent=50),
            (1, 0, 50, 0),
            id="request 3: a percentage is of the card's memory",
        ),
        pytest.param(
            build.pod(gpus=1, percent=0),
            (1, 0, 100, 0),
            id="request 5: a percentage of 0 is not named",
        ),
        pytest.param(
            build.pod(gpus=1, gpumem=2000, percent=0),
            (1, 2000, 100, 0),
            id="request 6: gpumem beside a percentage of 0",
        ),
        pytest.param(
            build.pod(gpus=1, gpumem=2000, percent=50),
            (1, 2000, 100, 0),
            id="request 7: gpumem wins over a percentage",
        ),
        pytest.param(
            build.pod(gpus=1, gpumem=0), (1, 0, 100, 0), id="request 8: gpumem of 0 is not named"
        ),
        pytest.param(
            build.pod(gpus=1, gpumem=1024, gpucores=120),
            (1, 1024, 100, 100),
            id="request 11: cores above 100 are the whole card's",
        ),
        pytest.param(
            in_requests(gpu="1"), (1, 0, 100, 0), id="request 12: a count in the requests alone"
        ),
    ],
)
def test_a_request_is_read_as_hami_reads_it(
    pod: build.Json, want: tuple[int, int, int, int]
) -> None:
    """R1: as the table of requests lists them."""
    assert asked(pod) == [want]


@pytest.mark.parametrize(
    ("pod", "settings", "want"),
    [
        pytest.param(
            build.pod(gpus=1),
            parse("defaults: {cores: 30}"),
            (1, 0, 100, 30),
            id="request 1: the cluster's default of cores",
        ),
        pytest.param(
            build.pod(gpus=1, percent=0),
            MEMORY_512,
            (1, 512, 100, 0),
            id="request 5: a percentage of 0 leaves the default memory",
        ),
        pytest.param(
            build.pod(gpus=1, gpumem=0),
            MEMORY_512,
            (1, 512, 100, 0),
            id="request 8: gpumem of 0 leaves the default memory",
        ),
    ],
)
def test_what_is_not_named_has_the_clusters_default(
    pod: build.Json, settings: Settings, want: tuple[int, int, int, int]
) -> None:
    assert asked(pod, settings) == [want]


@pytest.mark.parametrize(
    ("pod", "key", "instead"),
    [
        pytest.param(
            build.pod(percent=150), PERCENT, "1 to 100", id="request 4: a percentage of 150"
        ),
        pytest.param(
            build.pod(percent=2**32 + 50), PERCENT, "1 to 100", id="request 4: one above 32 bits"
        ),
        pytest.param(
            build.pod(percent=-1), PERCENT, "1 to 100", id="request 5: a negative percentage"
        ),
        pytest.param(build.pod(gpumem="16Gi"), MEMORY, "16384", id="request 10: gpumem of 16Gi"),
        pytest.param(
            build.pod(gpumem="16.0Gi"), MEMORY, "16384", id="request 10: gpumem of 16.0Gi"
        ),
        pytest.param(build.pod(gpumem="1Gi"), MEMORY, "1024", id="request 10: gpumem of 1Gi"),
        pytest.param(build.pod(gpumem="1500m"), MEMORY, "4096", id="request 10: a fraction"),
        pytest.param(build.pod(gpumem=-5), MEMORY, "4096", id="request 10: a negative gpumem"),
        pytest.param(build.pod(gpumem=2**31), MEMORY, "2048", id="request 10: one above 32 bits"),
    ],
)
def test_a_value_that_hami_bends_or_drops_is_denied_and_told(
    pod: build.Json, key: str, instead: str
) -> None:
    """Never silently no request: such a Pod would start without an account of its card."""
    denial = admit(pod, DEFAULTS).denial
    assert denial is not None
    assert key in denial
    assert instead in denial
    assert isinstance(request_of(pod, DEFAULTS), InvalidRequest)


def test_there_is_no_factor() -> None:
    """request 9: gpumem is MiB, whatever a memoryFactor was in HAMi's file."""
    assert asked(build.pod(gpus=1, gpumem=1024)) == [(1, 1024, 100, 0)]
    with pytest.raises(Exception, match="memoryFactor"):
        parse("defaults: {memoryFactor: 2}")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build.pod(gpus=0, scheduler=""), id="request 13: a count of 0 asks no card"),
        pytest.param(build.pod(gpus=None, scheduler=""), id="W3: no resources"),
        pytest.param(
            build.pod(containers=[build.container(limits={"cpu": "1"})], scheduler=""),
            id="W15: CPU alone",
        ),
    ],
)
def test_a_pod_without_cards_is_left_as_it_is(pod: build.Json) -> None:
    admission = admit(pod, parse("admission: {hideCardsFromOthers: true}"))

    assert admission.pod is pod
    assert admission.denial is None
    assert request_of(pod, DEFAULTS) is None


def test_rule_one_an_added_limit_needs_no_request() -> None:
    """request rule 1: the API server makes the requests out of the limits that are added."""
    pod = build.pod(gpus=None, gpumem=1000, scheduler="")

    changed = admit(pod, DEFAULTS).pod["spec"]["containers"][0]["resources"]

    assert changed["limits"][GPU] == "1"
    assert GPU not in changed["requests"]


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [build.pod("p", gpumem=1000, priority=0), build.pod("q", gpumem=1000, priority=1)],
            [[1]],
            id="request rule 2: a priority is of no account in placement",
        ),
        pytest.param(
            [build.pod("q", gpus=2, gpumem=1000)],
            [[0, 1]],
            id="request rule 4: the cards of a container are different ones",
        ),
        pytest.param(
            [build.pod("q", gpus=3, gpumem=1000)],
            "NodeInsufficientDevice",
            id="request rule 4: more than the node has",
        ),
        pytest.param(
            [
                build.pod(
                    "q",
                    init=[build.container("i", gpu=2, gpumem=15360)],
                    containers=[build.container("a", gpu=2, gpumem=15360)],
                )
            ],
            [[0, 1], [0, 1]],
            id="request rule 5: an init container and a regular one don't add up",
        ),
        pytest.param(
            [
                build.pod(
                    "q",
                    init=[build.container("s", gpu=2, gpumem=8000, sidecar=True)],
                    containers=[build.container("a", gpu=2, gpumem=8000)],
                )
            ],
            "CardInsufficientMemory",
            id="request rule 6: a sidecar runs beside the regular ones, so they do",
        ),
    ],
)
def test_how_requests_of_a_pod_go_together(objects: list[build.Json], want: Any) -> None:
    assert where(answer(node(cards=2), *objects)["default/q"]) == want


async def test_a_pod_without_a_count_passes_every_node() -> None:
    """request rule 3: what asks for no card is not ours to refuse."""
    world = await World(build.gpunode("n1", 1)).load()

    answered = world.filter(build.pod(gpus=None), "n1", "n2")

    assert answered["NodeNames"] == ["n1", "n2"]
    assert answered["FailedAndUnresolvableNodes"] == {}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(
            build.pod(
                init=[build.container("a"), build.container("b", gpu=1)],
                containers=[build.container("c", gpu=1)],
            ),
            [(0, 0, 100, 0), (1, 0, 100, 0), (1, 0, 100, 0)],
            id="R2: init containers first, an empty one for who asks none",
        )
    ],
)
def test_the_order_of_containers(pod: build.Json, want: list[tuple[int, int, int, int]]) -> None:
    assert asked(pod) == want


# Admission ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "added"),
    [
        pytest.param({"gpu": 1}, {CORES: "100"}, id="W1: a count alone is a whole card"),
        pytest.param({"gpucores": 30}, {GPU: "1"}, id="W2: cores alone"),
        pytest.param({"gpumem": 1000}, {GPU: "1"}, id="W2: memory alone"),
        pytest.param({"percent": 50}, {GPU: "1"}, id="W2, request 14: a percentage alone"),
        pytest.param({"gpu": 1, "percent": 0}, {CORES: "100"}, id="W4: a percentage of 0"),
        pytest.param({"gpu": 1, "percent": 100}, {CORES: "100"}, id="W4, W5: a percentage of 100"),
        pytest.param(
            {"requests": {GPU: "1", PERCENT: "100"}}, {CORES: "100"}, id="W5: in the requests alone"
        ),
        pytest.param({"gpu": 1, "percent": 50}, {}, id="W6: half of the memory"),
        pytest.param({"gpu": 1, "gpumem": 8192}, {}, id="W6: a part of the memory"),
        pytest.param({"gpu": 1, "gpucores": 70}, {}, id="W7: cores are named"),
        pytest.param(
            {"gpu": 1, "requests": {CORES: "55"}}, {}, id="W7: cores are named in the requests"
        ),
    ],
)
def test_the_limits_that_admission_adds_are_hamis(
    resources: dict[str, Any], added: dict[str, str]
) -> None:
    before = build.container(**resources)

    changed = admit(build.pod(containers=[before], scheduler=""), DEFAULTS).pod

    limits = changed["spec"]["containers"][0]["resources"].get("limits", {})
    assert limits == {**before["resources"].get("limits", {}), **added}


@pytest.mark.parametrize("percent", [101, 150])
def test_a_percentage_above_100_is_denied(percent: int) -> None:
    """W4."""
    assert PERCENT in (admit(build.pod(percent=percent), DEFAULTS).denial or "")


def test_the_names_of_resources_are_no_setting() -> None:
    """W8: HAMi's file may leave a name empty; here they are fixed, with the same whole card."""
    with pytest.raises(Exception, match="resourceMemoryName"):
        parse("defaults: {resourceMemoryName: ''}")
    limits = admit(build.pod(gpus=1), DEFAULTS).pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits[CORES] == "100"


@pytest.mark.parametrize(
    ("settings", "resources", "variable"),
    [
        pytest.param(
            "{}",
            {"gpu": 1, "gpumem": 1, "priority": 5},
            ("CUDA_TASK_PRIORITY", "5"),
            id="W9: the priority",
        ),
        pytest.param(
            "admission: {coreUtilizationPolicy: force}",
            {"gpu": 1, "gpumem": 1},
            ("GPU_CORE_UTILIZATION_POLICY", "force"),
            id="W10: the policy of cores",
        ),
        pytest.param(
            "admission: {hideCardsFromOthers: true}",
            {},
            ("NVIDIA_VISIBLE_DEVICES", "none"),
            id="W12: a container without cards sees none",
        ),
    ],
)
def test_the_variables_that_admission_adds(
    settings: str, resources: dict[str, Any], variable: tuple[str, str]
) -> None:
    with_cards = build.container("cards", gpu=1, gpumem=1)
    pod = build.pod(containers=[build.container("first", **resources), with_cards])

    container = admit(pod, parse(settings)).pod["spec"]["containers"][0]

    assert [(each["name"], each["value"]) for each in container["env"]] == [variable]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("admission: {coreUtilizationPolicy: force}", id="W10: in no other Pod"),
        pytest.param("admission: {hideCardsFromOthers: true}", id="W12: in no other Pod"),
    ],
)
def test_variables_are_for_pods_with_cards(settings: str) -> None:
    pod = build.pod(gpus=None)

    assert admit(pod, parse(settings)).pod is pod


def test_the_runtime_class_is_set_where_none_is_named() -> None:
    """W11."""
    settings = parse("admission: {runtimeClassName: nvidia}")

    assert admit(build.pod(), settings).pod["spec"]["runtimeClassName"] == "nvidia"
    own = build.pod(spec={"runtimeClassName": "own"})
    assert admit(own, settings).pod["spec"]["runtimeClassName"] == "own"


@pytest.mark.parametrize(
    ("pod", "denial"),
    [
        pytest.param(build.pod(node="n1"), "spec.nodeName", id="W13: a node is named already"),
        pytest.param(
            build.pod(containers=[build.container(gpu=1), build.container("x", privileged=True)]),
            "privileged",
            id="W13: a privileged container",
        ),
    ],
)
def test_what_is_denied(pod: build.Json, denial: str) -> None:
    assert denial in (admit(pod, DEFAULTS).denial or "")


def test_another_scheduler_is_left_alone_and_told() -> None:
    """W13: HAMi says nothing; kubectl shows our sentence."""
    pod = build.pod(scheduler="other")

    admission = admit(pod, DEFAULTS)

    assert admission.pod is pod
    assert len(admission.warnings) == 1


def test_a_pod_without_containers_is_the_api_servers_to_refuse() -> None:
    """W13."""
    assert not admit(build.pod(containers=[]), DEFAULTS).matched


@pytest.mark.parametrize(
    "named",
    [
        pytest.param("", id="W14: none"),
        pytest.param("default-scheduler", id="W14: the cluster's own"),
        pytest.param("hami-scheduler", id="W14: HAMi's"),
    ],
)
def test_the_scheduler_is_ours_where_none_was_chosen(named: str) -> None:
    pod = build.pod(scheduler=named)

    assert admit(pod, DEFAULTS).pod["spec"]["schedulerName"] == "cardwise-scheduler"


def test_the_webhook_leaves_alone_who_opts_out() -> None:
    """HAMi's label on a Pod, which admission looks at, or a Namespace, which the selector does."""
    assert not admit(build.pod(labels={"hami.io/webhook": "ignore"}), DEFAULTS).matched
    configuration = yaml.safe_load(
        (ROOT / "manifests/components/webhook/configuration.yaml").read_text()
    )
    opted_out = {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
    of_others = [it for it in configuration["webhooks"] if it["name"] != "self-test.cardwise.dev"]
    assert len(of_others) == 2
    for webhook in of_others:
        assert opted_out in webhook["namespaceSelector"]["matchExpressions"]


# Quota --------------------------------------------------------------------------------------------

USED = tenant("t", "GPU-a,NVIDIA,500,100:GPU-b,NVIDIA,500,100:;")
"""1000 MiB and 200 cores in the namespace ``default``."""
BOUND = build.quota(gpumem=2000, gpucores=400)
OVER = "ResourceQuotaNotFit"


def uses(memory: int) -> build.Json:
    """A bound Pod of the namespace that has so much memory of one card."""
    return tenant("used", f"GPU-a,NVIDIA,{memory},0:;")


BIG = {
    "init": [build.container("i", gpu=1, gpumem=20000)],
    "containers": [build.container("a", gpu=1, gpumem=10000)],
}


@pytest.mark.parametrize(
    ("objects", "pod", "fits"),
    [
        pytest.param([USED, BOUND], {"gpumem": 100}, True, id="Q1: 100 MiB beside 1000 of 2000"),
        pytest.param([USED, BOUND], {"gpumem": 1024}, False, id="Q1: 1024 MiB"),
        pytest.param([USED, BOUND], {"gpus": 2, "gpumem": 1024}, False, id="Q1: twice 1024 MiB"),
        pytest.param([USED, BOUND], {"gpus": 2, "gpumem": 400}, True, id="Q1: twice 400 MiB"),
        pytest.param(
            [USED, BOUND],
            {
                "init": [build.container(n, gpu=1, gpumem=800) for n in ("i", "j")],
                "containers": [build.container("a", gpu=1, gpumem=500)],
            },
            True,
            id="Q2: the largest of two init containers of 800 counts",
        ),
        pytest.param(
            [USED, BOUND],
            {
                "init": [build.container("i", gpu=1, gpumem=1500)],
                "containers": [build.container("a", gpu=1, gpumem=100)],
            },
            False,
            id="Q2: an init container of 1500",
        ),
        pytest.param([build.quota(gpumem=30000)], BIG, True, id="Q3: 20000 of 30000"),
        pytest.param([build.quota(gpumem=30000), uses(20000)], BIG, False, id="Q3: used 20000"),
        pytest.param([build.quota(gpumem=30000), uses(10000)], BIG, True, id="Q3: used 10000"),
        pytest.param([build.quota(gpumem=0)], {"gpumem": 500}, False, id="Q4: 0 blocks"),
        pytest.param(
            [build.quota("other", gpumem=0)], {"gpumem": 500}, True, id="Q4: another namespace"
        ),
        pytest.param(
            [build.quota(hard={"limits.example.com/gpumem": "0"})],
            {"gpumem": 500},
            True,
            id="Q4: another device",
        ),
    ],
)
def test_a_quota_bounds_as_hamis(
    objects: list[build.Json], pod: dict[str, Any], fits: bool
) -> None:
    """Said by placement and not by admission: the Pod waits, and goes when there is room."""
    waiting = build.pod("p", **pod)
    assert admit(waiting, DEFAULTS).denial is None

    got = answer(node(cards=4, memory=40960), *objects, waiting)["default/p"]

    assert got["reason"] == (None if fits else OVER)


async def test_a_quota_that_goes_takes_its_own_bound_alone() -> None:
    """Q5."""
    world = await World(build.gpunode("n1", 1), build.quota(gpumem=2000), USED).load()
    unrelated = build.quota(name="counts", hard={"requests.nvidia.com/gpu": "4"})
    world.mirror.see_quota(unrelated)

    world.mirror.see_quota(unrelated, deleted=True)

    assert world.ledger.bound("default").memory_mib == 2000
    world.mirror.see_quota(build.quota(gpucores=400, resource_version="2"))
    assert world.ledger.bound("default").memory_mib is None
    assert world.ledger.quota_use("default") == CardUse(0, 1000, 200)
