"""The overlays without a webhook give the same Pods as the webhook: its table and random Pods.

The webhook's answer is `admit`, given the Pod as the API server would send it. Where the two differ
is listed in `docs/installation.md`, and here in `test_a_record_that_somebody_wrote_stays`.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings

import build
import test_admission as table
import test_doors
from callers import Answer, Caller, Json
from cardwise.admission import admit
from cardwise.names import DEFAULTED, GATE, SCHEDULER_NAME, WEBHOOK_IGNORE, WEBHOOK_LABEL
from cardwise.settings import Settings
from controlplane.launcher import ROOT, ControlPlane

OPTED_OUT: Final = {WEBHOOK_LABEL: WEBHOOK_IGNORE}
SPACE: Final = "team"
BESIDE: Final = "opted-out"


SETTINGS: Final = {
    "admission-policy": test_doors.EXTENDER,
    "gates-admission-policy": test_doors.GATES,
}


@dataclass(frozen=True)
class Admin(Caller):
    """He may write whatever he likes, in a cluster with an overlay."""

    settings: Settings = test_doors.EXTENDER
    """What the webhook would be told there."""

    @property
    def by_gates(self) -> bool:
        """Whether the overlay is the one of the door of gates."""
        return self.settings is test_doors.GATES


@pytest.fixture(scope="module", params=SETTINGS)
def administrator(request: pytest.FixtureRequest) -> Iterator[Admin]:
    """The administrator of an API server with an overlay."""
    with ControlPlane.start(kwok=False, controller_manager=False) as cp:
        cp.apply(ROOT / "manifests/overlays" / request.param)
        cp.apply([namespace(SPACE, {}), namespace(BESIDE, OPTED_OUT)])
        caller = Admin(cp, cp.admin_token, settings=SETTINGS[request.param])
        probe = build.pod(gpumem=1000, namespace=SPACE, scheduler="")
        sick = build.pod(gpumem="16Gi", namespace=SPACE, scheduler="")

        def is_in_force() -> bool:
            stored = caller.create_pod(probe, dry_run=True).body["spec"]
            changed = "schedulingGates" in stored or stored["schedulerName"] == SCHEDULER_NAME
            return changed and not caller.create_pod(sick, dry_run=True).ok

        cp.wait("the policies to be in force", is_in_force, 30)
        yield caller


def namespace(name: str, labels: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def with_policies(caller: Caller, pod: Json) -> Answer:
    return caller.create_pod(
        {**pod, "metadata": {**pod["metadata"], "namespace": SPACE}}, dry_run=True
    )


def without_them(caller: Caller, pod: Json) -> Answer:
    """The Pod with the API server's own defaults: what a webhook would be asked about."""
    metadata = {**pod["metadata"], "namespace": BESIDE}
    return caller.create_pod({**pod, "metadata": metadata}, dry_run=True)


def essence(pod: Json) -> Json:
    """What admission may change; an absent and an empty field are the same."""
    return {
        "annotations": pod["metadata"].get("annotations") or {},
        "labels": pod["metadata"].get("labels") or {},
        "spec": {k: v for k, v in pod["spec"].items() if (k, v) != ("schedulingGates", [])},
    }


def compare(caller: Admin, pod: Json) -> str:
    """Hold the policies' answer against the webhook's; say what it was."""
    plain = without_them(caller, pod)
    answer = with_policies(caller, pod)
    if not plain.ok:
        assert not answer.ok, "the API server itself takes no such Pod"
        return "no Pod"
    admission = admit(plain.body, caller.settings)
    if admission.denial is not None:
        assert not answer.ok, f"the webhook denies it: {admission.denial}"
        assert "denied request: " in answer.message
        return "denied"
    assert answer.message == ""
    assert essence(answer.body) == essence(table.stored(admission.pod))
    return "changed" if admission.pod is not plain.body else "left"


# The table ----------------------------------------------------------------------------------------


def rows(test: Callable[..., None], pod_of: Callable[..., Json], *columns: str) -> list[Any]:
    """The rows of one of the webhook's tables, as Pods."""
    marks: list[pytest.Mark] = test.pytestmark  # type: ignore[attr-defined]
    found = []
    for mark in marks:
        wanted = mark.args[0] if isinstance(mark.args[0], str) else ",".join(mark.args[0])
        positions = [wanted.split(",").index(column) for column in columns]
        for row in mark.args[1]:
            pod = pod_of(*(row.values[position] for position in positions))
            name = test.__name__.removeprefix("test_").replace("_", " ")
            found.append(pytest.param(pod, id=f"{name}: {row.id}"))
    return found


def beside(container: Json) -> Json:
    return table.pod_of(container, build.container("beside", **table.SHARED))


TABLE: Final = [
    *rows(table.test_other_pods_are_left_alone, copy.deepcopy, "pod"),
    *rows(table.test_another_scheduler_is_respected_and_told, copy.deepcopy, "pod"),
    *rows(
        table.test_the_limits_that_are_added,
        lambda resources: table.pod_of(build.container(**resources)),
        "resources",
    ),
    *rows(table.test_the_environment, beside, "container"),
    *rows(table.test_what_is_denied_says_what_to_write, copy.deepcopy, "pod"),
    *rows(table.test_the_warnings, copy.deepcopy, "pod"),
    *(
        pytest.param(build.pod(gpumem=1000, scheduler=name), id=f"the scheduler: {name!r}")
        for name in ("", "default-scheduler", "hami-scheduler", "cardwise-scheduler")
    ),
    *(
        pytest.param(
            build.pod(gpumem=1000, annotations={key: "x", "mine": "y"}), id=f"strips {key}"
        )
        for key in table.ALLOCATION_ANNOTATIONS
    ),
    pytest.param(
        table.pod_of(
            build.container("app", gpu=1),
            init=[build.container("i", gpumem=1000), build.container("s", gpu=1, sidecar=True)],
        ),
        id="init containers",
    ),
    *(
        pytest.param(build.pod(weights=text), id=f"weights {text!r}")
        for text in (
            "slot=1,core=1,memory=3",
            " slot = 1 , core=0,memory=10 ",
            "memory=3,slot=1,core=1",
            "slot=0,core=0,memory=0",
            "slot=1,core=1",
            "slot=1,core=1,memory=1,memory=1",
            "slot=1,core=1,memory=1.5",
            "slot=1,core=1,memory=-1",
            "slot=1,slot=1,core=1",
            "Slot=1,core=1,memory=1",
            "slot=1,core=1,memory=1,",
            "slot=1,core=1,memory=1234567890123456789",
        )
    ),
    pytest.param(
        build.pod(gpumem=1000, annotations={"k": "ä" * (100 * 1024)}), id="bytes, not characters"
    ),
    pytest.param(
        build.pod(gpumem=1000, annotations={"k": "x" * (200 * 1024 - 1)}),
        id="200 KiB of annotations",
    ),
    pytest.param(build.pod(gpumem="2147483647"), id="as much memory as 32 bits hold"),
    *rows(test_doors.test_the_door, copy.deepcopy, "asked"),
    *(
        pytest.param(test_doors.pod(schedulingGates=gates), id=f"gates {gates}")
        for gates in (
            [],
            [test_doors.KUEUE],
            [test_doors.OURS],
            [test_doors.OURS, test_doors.KUEUE],
        )
    ),
    pytest.param(
        test_doors.with_spec(
            build.pod(gpus=0, scheduler=""), None, {"schedulingGates": [test_doors.OURS]}
        ),
        id="our gate without a card",
    ),
]


def is_whole(pod: Json) -> bool:
    """Whether a client could send it: the table has what only a hostile one could."""
    return bool(pod.get("spec", {}).get("containers"))


@pytest.mark.parametrize("pod", TABLE)
def test_the_policies_answer_as_the_webhook_does(administrator: Admin, pod: Json) -> None:
    if not is_whole(pod):
        pod = {"metadata": build.pod()["metadata"], "spec": {"containers": []}}
    assert compare(administrator, pod)


def test_the_table_has_every_kind_of_answer(administrator: Admin) -> None:
    answers = [compare(administrator, row.values[0]) for row in TABLE if is_whole(row.values[0])]

    assert {answers.count(kind) >= 8 for kind in ("changed", "left", "denied", "no Pod")} == {True}
    assert answers.count("changed") >= 30


@pytest.mark.timeout(300)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pod=test_doors.pods)
def test_the_policies_answer_as_the_webhook_does_for_any_pod(
    administrator: Admin, pod: Json
) -> None:
    pod["metadata"]["annotations"].pop(DEFAULTED, None)

    compare(administrator, pod)


@pytest.mark.timeout(300)
@settings(max_examples=50, deadline=None)
@given(pod=test_doors.pods)
def test_what_the_policies_made_they_leave_alone(administrator: Admin, pod: Json) -> None:
    pod["metadata"]["annotations"].pop(DEFAULTED, None)
    first = with_policies(administrator, pod)
    if not first.ok:
        return

    again = with_policies(administrator, first.body)

    assert again.message == ""
    assert essence(again.body) == essence(first.body)


# Where they differ --------------------------------------------------------------------------------


def test_a_record_that_somebody_wrote_stays(administrator: Admin) -> None:
    pod = build.pod(gpumem=1000, annotations={DEFAULTED: "nonsense"})

    assert admit(pod, Settings()).pod["metadata"]["annotations"] == {}
    assert with_policies(administrator, pod).body["metadata"]["annotations"] == {
        DEFAULTED: "nonsense"
    }


def test_the_gate_is_where_the_door_is(administrator: Admin) -> None:
    made = with_policies(administrator, build.pod(gpumem=1000, scheduler="hami-scheduler")).body

    assert (made["spec"].get("schedulingGates"), made["spec"]["schedulerName"]) == (
        ([{"name": GATE}], "default-scheduler")
        if administrator.by_gates
        else (None, SCHEDULER_NAME)
    )


def test_nobody_is_warned(administrator: Admin) -> None:
    pod = build.pod(policy="binpak")

    assert admit(pod, Settings()).warnings
    assert with_policies(administrator, pod).warnings == ()


# Sentences ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        pytest.param(
            build.pod(gpumem="16Gi"),
            'container app: nvidia.com/gpumem is "16Gi"; write a plain number, of MiB per card',
            id="a binary suffix",
        ),
        pytest.param(
            build.pod(percent=101),
            'container app: nvidia.com/gpumem-percentage is "101"; write a plain number, 0 to 100, '
            "of a card's memory",
            id="over 100 %",
        ),
        pytest.param(
            build.pod(gpus=0, gpumem=1000),
            'container app: nvidia.com/gpumem is "1k", but the container asks for no card; '
            "add nvidia.com/gpu: 1",
            id="a count of 0",
        ),
        pytest.param(
            build.pod(weights="slot=1"),
            "annotation hami.io/device-scoring-weights: write slot, core and memory once each, not "
            "all 0, e.g. slot=1,core=1,memory=3",
            id="weights",
        ),
        pytest.param(
            table.pod_of(build.container(gpu=1), build.container("side", privileged=True)),
            "container side: it is privileged, so it sees every card of its node; remove "
            "securityContext.privileged, or run it in a Pod without cards",
            id="privileged",
        ),
        pytest.param(
            build.pod(annotations={"k": "x" * (200 * 1024)}),
            "the annotations take 204850 bytes, and a Pod with cards may have 204800, so that its "
            "allocation fits in; write less",
            id="annotations, with what was added",
        ),
    ],
)
def test_a_denial_says_what_to_write(administrator: Admin, pod: Json, sentence: str) -> None:
    answer = with_policies(administrator, pod)

    assert answer.status == 422, answer
    assert answer.message.endswith(f"denied request: {sentence}")


def test_three_hundred_containers_are_within_the_limits_of_cost(
    administrator: Admin,
) -> None:
    pod = table.pod_of(*(build.container(f"c{n}", gpumem=1000, priority=1) for n in range(300)))

    assert compare(administrator, pod) == "changed"


def test_a_pod_without_our_resources_is_not_touched(administrator: Admin) -> None:
    pod = build.pod(gpus=None, scheduler="", policy="mutex")

    assert compare(administrator, pod) == "left"
