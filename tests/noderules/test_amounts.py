"""What a Pod asks of its node and what a node has, as kube-scheduler adds it up."""

import pytest

import build
from cardwise.noderules.amounts import Amounts, allocatable_of, asked_by, billionths


def pod(*, requests=None, limits=None, init=(), status=None, **spec):
    container = build.container(requests=requests, limits=limits)
    made = build.pod(containers=[container], init=list(init))
    made["spec"].update(spec)
    made["status"].update(status or {})
    return made


def asking(cpu, sidecar=False, name="i"):
    return build.container(name, requests={"cpu": cpu}, sidecar=sidecar)


def of_pod(**resources):
    return {"resources": resources}


@pytest.mark.parametrize(
    ("pod_json", "want"),
    [
        pytest.param(
            pod(requests={"cpu": "1", "memory": "1Ki", "ephemeral-storage": "1k"}),
            Amounts(1000, 1024, 1000),
            id="requests",
        ),
        pytest.param(pod(limits={"cpu": "2"}), Amounts(2000), id="a limit alone is a request"),
        pytest.param(
            pod(requests={"cpu": "1"}, limits={"cpu": "2"}), Amounts(1000), id="requests win"
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[asking("3")]), Amounts(3000), id="an init container"
        ),
        pytest.param(pod(requests={"cpu": "3"}, init=[asking("1")]), Amounts(3000), id="smaller"),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[asking("2", sidecar=True), asking("4")]),
            Amounts(6000),
            id="an init container beside a sidecar",
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[asking("4"), asking("2", sidecar=True)]),
            Amounts(4000),
            id="an init container before a sidecar",
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[asking("2", sidecar=True)]),
            Amounts(3000),
            id="a sidecar runs beside the regular ones",
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, overhead={"cpu": "500m", "memory": "1"}),
            Amounts(1500, 1),
            id="the overhead of its runtime class",
        ),
        pytest.param(
            pod(requests={"cpu": "1u", "memory": "1500m"}, init=[asking("1u", sidecar=True)]),
            Amounts(1, 2),
            id="the sum is rounded up, once",
        ),
        pytest.param(
            pod(requests={"example.com/b": "2", "hugepages-2Mi": "4Mi", "example.com/a": "1"}),
            Amounts(others=(("example.com/a", 1), ("example.com/b", 2), ("hugepages-2Mi", 2**22))),
            id="huge pages and extended resources, by name",
        ),
        pytest.param(
            pod(requests={"example.com/a": "0", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "1k"}),
            Amounts(others=(("nvidia.com/gpu", 1), ("nvidia.com/gpumem", 1000))),
            id="what is asked of cards, as the node's totals stand for it",
        ),
        pytest.param(
            pod(requests={"bananas": "1", "pods": "7", "cpu": "much"}),
            Amounts(),
            id="what is no resource or no quantity",
        ),
    ],
)
def test_what_a_pod_asks_of_its_node(pod_json, want) -> None:
    assert asked_by(pod_json) == want


@pytest.mark.parametrize(
    ("whole", "want"),
    [
        pytest.param({"requests": {"cpu": "5"}}, Amounts(5000, 1), id="goes before the sum"),
        pytest.param({"requests": {"cpu": "10m"}}, Amounts(10, 1), id="even where it is less"),
        pytest.param({"limits": {"cpu": "5"}}, Amounts(1000, 1), id="a limit does not"),
        pytest.param(
            {"limits": {"hugepages-2Mi": "2Mi"}},
            Amounts(1000, 1, 0, (("hugepages-2Mi", 2**21),)),
            id="a limit of what no container asks",
        ),
        pytest.param(
            {"requests": {"ephemeral-storage": "1Gi", "example.com/a": "1"}},
            Amounts(1000, 1),
            id="only CPU, memory and huge pages",
        ),
    ],
)
def test_resources_of_the_pod_as_a_whole(whole, want) -> None:
    assert asked_by(pod(requests={"cpu": "1", "memory": "1"}, **of_pod(**whole))) == want


def told(allocated=None, actual=None):
    status = {"name": "app"}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}}
    return {"containerStatuses": [status]}


INFEASIBLE = {
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param({}, 2000, id="nothing told"),
        pytest.param(told("3"), 3000, id="it was given more"),
        pytest.param(told("1"), 2000, id="it asks for more"),
        pytest.param(told("1", "4"), 4000, id="it still uses more"),
        pytest.param(told("1") | INFEASIBLE, 1000, id="what can't be given does not count"),
        pytest.param(
            {"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "3"}}
            | told("1", "1"),
            5000,
            id="told of the Pod as a whole",
        ),
    ],
)
def test_while_a_pod_is_resized_the_largest_counts(status, cpu) -> None:
    assert asked_by(pod(requests={"cpu": "2"}, status=status)).cpu == cpu


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param({"cpu": "1"}, 4000, id="it asks for more"),
        pytest.param({"cpu": "6"}, 6000, id="it was given more"),
    ],
)
def test_a_pod_is_resized_as_a_whole(status, cpu) -> None:
    pod_json = pod(
        requests={"cpu": "2"},
        status=told("2", "2") | {"resources": {"requests": status}, "allocatedResources": status},
        **of_pod(requests={"cpu": "4"}),
    )

    assert asked_by(pod_json).cpu == cpu


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(
            {"allocatable": {"cpu": "1500m", "memory": "1Ki", "pods": "3", "nvidia.com/gpu": "4"}},
            {"cpu": 1500, "memory": 1024, "pods": 3, "nvidia.com/gpu": 4},
            id="what is allocatable",
        ),
        pytest.param({"capacity": {"cpu": "1"}}, {"cpu": 1000}, id="else what there is"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_what_a_node_has_to_give(status, want) -> None:
    assert allocatable_of({"status": status}) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("1", 10**9), ("100m", 10**8), ("1.5", 1_500_000_000), ("2Gi", 2**31 * 10**9),
        ("1k", 10**12), ("1e3", 10**12), ("1E", 10**27), ("0.1n", 1), (2, 2 * 10**9),
        (0.5, 5 * 10**8), ("0", 0), ("-1", None), ("", None), ("Gi", None), ("1KiB", None),
        (True, None), (None, None), ([], None), (float("nan"), None), ("1e999", 10**1008),
        ("1e1000", None), (" 1", None), ("1" * 141, None), (2**70, 2**70 * 10**9),
    ],
)  # fmt: skip
def test_quantities_in_billionths(value, want) -> None:
    assert billionths(value) == want
