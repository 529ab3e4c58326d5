"""Metrics: HAMi's names with their labels, our own, and series that vanish with what they show."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import build
from cardwise.controller.reports.metrics import Metrics
from cardwise.ledger import Ledger
from cardwise.wire.gpunodes import gpunode_of
from controllers import World, passing

Json = dict[str, Any]
MIB = 1024 * 1024
CARD = {"zone", "node", "device_uuid", "device_index", "device_type"}
POD = {"zone", "namespace", "node", "pod", "container_index", "device_uuid"}
QUOTA = {"zone", "namespace", "quota_name"}


def families(metrics: Metrics) -> dict[str, Metric]:
    return {it.name: it for it in text_string_to_metric_families(metrics.render().decode())}


def values(metrics: Metrics, name: str, **labels: str) -> list[float]:
    """The samples of a name that have these labels."""
    return [
        sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


async def busy() -> World:
    tenant = build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a", mib=3000, cores=30))
    return await World(
        build.gpunode("n1", 2),
        build.gpunode("n2", 1, model="NVIDIA A10", cores=200, slots=4),
        tenant,
        build.quota(gpumem=9000, gpucores=300),
        build.quota("other", gpumem=1),
    ).load()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("hami_gpu_memory_limit_bytes", CARD),
        ("hami_gpu_core_limit_ratio", CARD),
        ("hami_gpu_memory_allocated_bytes", CARD | {"device_cores"}),
        ("hami_gpu_shared_count", CARD),
        ("hami_gpu_core_allocated_ratio", CARD),
        ("hami_node_gpu_overview", CARD | {"device_cores", "device_memory_limit"}),
        ("hami_node_gpu_memory_allocated_ratio", CARD),
        ("hami_vgpu_memory_allocated_bytes", POD),
        ("hami_vgpu_core_allocated_ratio", POD),
        ("hami_resource_quota_limit", QUOTA),
        ("hami_resource_quota_used", QUOTA | {"limit"}),
        ("cardwise_pending_pods", {"reason"}),
        ("cardwise_holds", set()),
        ("cardwise_bindings", set()),
        ("cardwise_free_memory_mebibytes", {"node"}),
        ("cardwise_free_memory_largest_mebibytes", {"node"}),
        ("cardwise_ledger_repairs_total", set()),
        ("cardwise_engine_states", set()),
        ("cardwise_device_class_conflict", {"device_class", "resource"}),
    ],
)
async def test_each_gauge_has_its_labels(name: str, labels: set[str]) -> None:
    world = await busy()
    world.filter(build.pod("w", gpus=9), "n1")
    world.controller.classes.conflicts = {"a": "nvidia.com/gpu"}

    family = families(world.controller.metrics)[name]

    assert family.samples
    assert {frozenset(sample.labels) for sample in family.samples} == {frozenset(labels)}
    assert all(sample.labels.get("zone", "vGPU") == "vGPU" for sample in family.samples)


async def test_what_the_cards_show() -> None:
    metrics = (await busy()).controller.metrics
    a = {"node": "n1", "device_uuid": "GPU-n1-a", "device_index": "0"}
    a |= {"device_type": "NVIDIA-Tesla T4"}

    assert values(metrics, "hami_gpu_memory_limit_bytes", **a) == [15360 * MIB]
    assert values(metrics, "hami_gpu_core_limit_ratio", **a) == [100]
    assert values(metrics, "hami_gpu_memory_allocated_bytes", device_cores="100", **a) == [
        3000 * MIB
    ]
    assert values(metrics, "hami_gpu_shared_count", **a) == [1]
    assert values(metrics, "hami_gpu_core_allocated_ratio", **a) == [30]
    assert values(metrics, "hami_node_gpu_overview", device_memory_limit="15360", **a) == [
        3000 * MIB
    ]
    assert values(metrics, "hami_node_gpu_memory_allocated_ratio", **a) == [3000 / 15360]
    assert values(metrics, "hami_gpu_core_limit_ratio", node="n2") == [200]
    assert values(metrics, "hami_gpu_shared_count", node="n2") == [0]


async def test_what_the_pods_and_quotas_show() -> None:
    metrics = (await busy()).controller.metrics
    pod = {"namespace": "default", "pod": "t", "node": "n1", "device_uuid": "GPU-n1-a"}
    memory, cores = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"

    assert values(metrics, "hami_vgpu_memory_allocated_bytes", container_index="0", **pod) == [
        3000 * MIB
    ]
    assert values(metrics, "hami_vgpu_core_allocated_ratio", **pod) == [30]
    used = "hami_resource_quota_used"
    assert values(metrics, used, namespace="default", quota_name=memory, limit="9000") == [3000]
    assert values(metrics, used, namespace="default", quota_name=cores, limit="300") == [30]
    assert values(metrics, "hami_resource_quota_limit", namespace="other") == [1]


@pytest.mark.parametrize(
    ("goes", "name", "labels"),
    [
        pytest.param(
            lambda it: it.cluster.remove("Pod", "t", "default"),
            "hami_vgpu_memory_allocated_bytes",
            {"pod": "t"},
            id="a Pod",
        ),
        pytest.param(
            lambda it: it.cluster.remove("GPUNode", "n1"),
            "hami_gpu_memory_limit_bytes",
            {"node": "n1"},
            id="a GPUNode",
        ),
        pytest.param(
            lambda it: it.cluster.put(build.gpunode("n1", 1)),
            "hami_gpu_shared_count",
            {"device_uuid": "GPU-n1-b"},
            id="a card",
        ),
        pytest.param(
            lambda it: it.cluster.remove("ResourceQuota", "quota", "default"),
            "hami_resource_quota_limit",
            {"namespace": "default"},
            id="a quota",
        ),
    ],
)
async def test_series_vanish_with_what_they_show(
    goes: Callable[[World], object], name: str, labels: dict[str, str]
) -> None:
    world = await busy()
    metrics = world.controller.metrics
    assert values(metrics, name, **labels)

    goes(world)
    world.deliver()

    assert values(metrics, name, **labels) == []


async def test_a_card_that_is_away_takes_its_pods_series_along_with_the_node() -> None:
    world = await busy()
    world.cluster.remove("GPUNode", "n1")
    world.deliver()

    metrics = world.controller.metrics
    assert values(metrics, "hami_vgpu_memory_allocated_bytes", pod="t") == [3000 * MIB]


async def test_waiting_pods_by_reason_and_holds() -> None:
    world = await busy()
    metrics = world.controller.metrics
    for name, gpus in [("a", 9), ("b", 9)]:
        world.filter(build.pod(name, gpus=gpus), "n1")
    world.filter(build.pod("c", gpumem=20000, namespace="free"), "n1")
    held = build.pod("d", gpumem=1000)
    world.chosen(held, "n1")

    pending = "cardwise_pending_pods"
    assert values(metrics, pending, reason="NodeInsufficientDevice") == [2]
    assert values(metrics, pending, reason="CardInsufficientMemory") == [1]
    assert values(metrics, "cardwise_holds") == [1]

    world.ledger.drop_hold(held["metadata"]["uid"], 0.0)
    assert values(metrics, pending, reason="") == [1]
    assert values(metrics, "cardwise_holds") == [0]
    assert values(metrics, "cardwise_engine_states")[0] > 0


async def test_decisions_are_counted_by_result_and_reason() -> None:
    world = await busy()
    metrics = world.controller.metrics
    world.chosen(build.pod(gpumem=1000), "n1")
    for _ in range(2):
        world.filter(build.pod(gpumem=20000, namespace="free"), "n1")
    world.filter(build.pod(gpumem="16Gi"), "n1")

    def count(**labels: str) -> list[float]:
        return values(metrics, "cardwise_decisions_total", **labels)

    assert count(result="fits", reason="") == [1]
    assert count(result="refused", reason="CardInsufficientMemory") == [2]
    assert count(result="invalid", reason="InvalidGPURequest") == [1]


async def test_repairs_are_counted() -> None:
    world = await busy()
    world.cluster.remove("Pod", "t", "default")
    await passing(5.0)
    await world.mirror.reconcile(world.cluster)

    assert values(world.controller.metrics, "cardwise_ledger_repairs_total") == [1]


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
def test_calls_are_timed_and_binds_twice(verb: str) -> None:
    times = iter([1.0, 1.25])
    metrics = Metrics(Ledger(), clock=lambda: next(times))

    with metrics.timed(verb) as timer:
        timer.result = "ok"

    assert values(metrics, "cardwise_decision_seconds_sum", verb=verb, result="ok") == [0.25]
    assert values(metrics, "cardwise_bind_seconds_count") == [1.0 if verb == "bind" else 0.0]


def test_a_call_that_dies_is_timed_as_an_error() -> None:
    metrics = Metrics(Ledger())

    with pytest.raises(ValueError, match="died"), metrics.timed("filter"):
        raise ValueError("died")

    assert values(metrics, "cardwise_decision_seconds_count", verb="filter", result="error") == [1]


async def test_questions_are_answered_between_the_parts_of_a_large_clusters_metrics() -> None:
    """Red when `CardMetrics` writes all nodes, or all lines, in one part."""
    ledger = Ledger()
    for number in range(1500):
        ledger.apply_gpunode(gpunode_of(build.gpunode(f"n{number}", 1)), 0)
    parts = [part.decode() for part in Metrics(ledger).parts()]

    assert max(part.count("\n") for part in parts) <= 1000
    assert parts.count("") >= 2 * 1500 // 100
    text = "".join(parts)
    assert text.count("\nhami_gpu_shared_count{") == 1500
    assert text.count("# TYPE hami_gpu_shared_count gauge") == 1


async def test_what_comes_and_goes_while_metrics_are_written_does_not_end_them() -> None:
    """Red when `_tenants` goes over the ledger's own entries."""
    tenants = [
        build.pod(f"t{n}", node="n1", allocated=build.allocation("GPU-n1-a")) for n in range(250)
    ]
    world = await World(build.gpunode("n1", 2), build.gpunode("n2", 2), *tenants).load()
    texts = []
    for part in world.controller.metrics.parts():
        texts.append(part.decode())
        world.mirror.see_pod(tenants.pop(), deleted=True)
        world.filter(build.pod(f"new-{len(texts)}", gpumem=1000), "n1", "n2")
        world.mirror.see_gpunode(build.gpunode("n2", 2), deleted=len(texts) % 2 == 0)

    assert len(texts) > 10
    told = {it.name: it for it in text_string_to_metric_families("".join(texts))}
    assert len(told["hami_vgpu_core_allocated_ratio"].samples) > 200


async def test_names_with_odd_characters_are_told_as_they_are() -> None:
    odd = 'A "B" \\ C\nD'
    metrics = (await World(build.gpunode("n1", 1, model=odd)).load()).controller.metrics

    [sample] = families(metrics)["hami_gpu_core_limit_ratio"].samples

    assert sample.labels["device_type"] == odd


def test_tries_to_evict_are_counted_by_their_result() -> None:
    metrics = Metrics(Ledger())
    for result in ("evicted", "forbidden", "evicted"):
        metrics.evicted(result)

    assert values(metrics, "cardwise_evictions_total", result="evicted") == [2]
    assert values(metrics, "cardwise_evictions_total", result="forbidden") == [1]


def test_two_controllers_live_in_one_process() -> None:
    one, other = Metrics(Ledger()), Metrics(Ledger())
    one.decided("fits", "")

    assert values(one, "cardwise_decisions_total") == [1]
    assert values(other, "cardwise_decisions_total") == []
