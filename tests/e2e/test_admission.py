"""What people meet when they create Pods with cards: by real kubectl, through the real webhook.

The API server calls the webhook as the shipped configuration says: by its Service, with the
certificate that the controller made.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

import pytest
import yaml

import build
from cardwise import names
from controlplane.kubectl import KubectlOutput
from controlplane.launcher import ROOT
from stage import Json, Stage
from terminal import Terminal

_names = (f"p{number}" for number in count())
DENIED: Final = (
    'Error from server (Forbidden): error when creating "STDIN": '
    'admission webhook "pods.cardwise.dev" denied the request: '
)


@pytest.fixture(scope="module")
def jane(theatre: Stage) -> Terminal:
    """A user in a namespace of her own; there is no node, so her Pods wait."""
    theatre.clear()
    return Terminal(theatre.cp, "team")


@pytest.fixture(scope="module")
def stage(theatre: Stage) -> Iterator[Stage]:
    """A node with four T4 for the tests that place; each leaves it as empty as it was."""
    theatre.clear()
    theatre.node("node-a", "t4x4")
    yield theatre
    theatre.clear()


@pytest.fixture(scope="module")
def user(stage: Stage) -> Terminal:
    """A user in the stage's namespace."""
    return Terminal(stage.cp, stage.namespace)


@pytest.fixture
def t4(stage: Stage, user: Terminal) -> Iterator[Terminal]:
    """A user of four empty cards."""
    yield user
    assert stage.legal() == []
    for kind in ("apps/v1/{}/deployments", "apps/v1/{}/statefulsets", "batch/v1/{}/jobs"):
        path = f"/apis/{kind.format(f'namespaces/{stage.namespace}')}"
        stage.cp.request("DELETE", path, {"propagationPolicy": "Background"})
    everyone = f"/api/v1/namespaces/{stage.namespace}/pods"
    stage.cp.request("DELETE", everyone, {"gracePeriodSeconds": 0})
    stage.cp.wait("the Pods to go", lambda: not stage.pods(), 30)


def pod(**fields: Any) -> Json:
    """A Pod that shares a card, as a user writes it."""
    return build.pod(next(_names), **{"gpumem": 1000, "scheduler": "", **fields})


def pod_of(*containers: Json, **fields: Any) -> Json:
    return pod(containers=containers, **fields)


def shared(name: str = "app", **fields: Any) -> Json:
    """A container that shares a card."""
    return build.container(name, gpu=1, gpumem=1000, **fields)


def name_of(document: Json) -> str:
    return str(document["metadata"]["name"])


def stored(jane: Terminal, document: Json) -> Json:
    found: Json = json.loads(jane("get", "pod", name_of(document), "-o=json"))
    return found


# What kubectl says --------------------------------------------------------------------------------


WARNINGS = [
    pytest.param(
        pod(policy="binpak"),
        'hami.io/gpu-scheduler-policy: "binpak" is unknown and has no effect; did you mean '
        "binpack?",
        id="an unknown policy",
    ),
    pytest.param(
        pod(gpumem=None),
        "container app: nvidia.com/gpumem is left out, so it takes the whole card; to share a card,"
        " write the MiB it needs, e.g. nvidia.com/gpumem: 4096",
        id="the memory left out",
    ),
    pytest.param(
        pod(policy="topology-aware"),
        "hami.io/gpu-scheduler-policy: topology-aware is about containers with two or more cards; "
        "with one card each it only keeps well-joined groups of cards whole",
        id="topology-aware with one card",
    ),
    pytest.param(
        pod(allocated="GPU-a,NVIDIA,15360,100:;"),
        "annotation hami.io/vgpu-devices-allocated is written when the Pod is bound; removed",
        id="a forged allocation",
    ),
    pytest.param(
        pod(scheduler="volcano"),
        'spec.schedulerName is "volcano", so Cardwise neither changes nor places this Pod; '
        "leave the name out to have it placed",
        id="another scheduler",
    ),
]


@pytest.mark.parametrize(("document", "warning"), WARNINGS)
def test_kubectl_shows_the_warning_about(jane: Terminal, document: Json, warning: str) -> None:
    said = jane.apply(document)

    assert said.stderr == f"Warning: {warning}\n"
    assert said == f"pod/{name_of(document)} created\n"


DENIALS = [
    pytest.param(
        pod(gpumem="16Gi"),
        'container app: nvidia.com/gpumem is "16Gi", which has the binary suffix Gi; write the '
        "number of MiB per card, e.g. nvidia.com/gpumem: 16384",
        id="memory with a suffix",
    ),
    pytest.param(
        pod(percent=150, gpumem=None),
        'container app: nvidia.com/gpumem-percentage is "150", which is above 100; write the '
        "percentage of a card's memory, 1 to 100, e.g. nvidia.com/gpumem-percentage: 50",
        id="more than all of a card",
    ),
    pytest.param(
        pod_of(shared(privileged=True)),
        "container app: it is privileged, so it sees every card of its node; remove "
        "securityContext.privileged, or run it in a Pod without cards",
        id="a privileged container",
    ),
    pytest.param(
        pod_of(build.container("helper", privileged=True), shared()),
        "container helper: it is privileged, so it sees every card of its node; remove "
        "securityContext.privileged, or run it in a Pod without cards",
        id="a privileged container beside the one with the card",
    ),
    pytest.param(
        pod_of(shared(), init=[build.container("prepare", privileged=True)]),
        "container prepare: it is privileged, so it sees every card of its node; remove "
        "securityContext.privileged, or run it in a Pod without cards",
        id="a privileged init container",
    ),
    pytest.param(
        pod(node="node-a"),
        'spec.nodeName is "node-a", which passes by the scheduler and so by the cards\' accounts; '
        "write a nodeSelector for kubernetes.io/hostname instead",
        id="a preset node",
    ),
    pytest.param(
        pod(annotations={"notes": "x" * 205_000}),
        "the annotations take 205005 bytes, and a Pod with cards may have 204800, so that its "
        "allocation fits in; write less",
        id="too many annotations",
    ),
]


@pytest.mark.parametrize(("document", "why"), DENIALS)
def test_kubectl_shows_the_denial_of(jane: Terminal, document: Json, why: str) -> None:
    said = jane.create(document)

    assert said.stderr == f"{DENIED}{why}\n"
    assert said.returncode == 1
    assert "NotFound" in jane("get", "pod", name_of(document)).stderr


def test_a_privileged_pod_without_cards_is_none_of_our_business(jane: Terminal) -> None:
    said = jane.create(pod_of(build.container(privileged=True)))

    assert said.stderr == ""


# What is stored -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "becomes"),
    [
        ("", "cardwise-scheduler"),
        ("default-scheduler", "cardwise-scheduler"),
        ("hami-scheduler", "cardwise-scheduler"),
        ("cardwise-scheduler", "cardwise-scheduler"),
        ("volcano", "volcano"),
    ],
)
def test_the_scheduler_that_a_pod_names_and_gets(jane: Terminal, named: str, becomes: str) -> None:
    document = pod(scheduler=named)
    jane.apply(document)

    assert stored(jane, document)["spec"]["schedulerName"] == becomes


def test_no_forged_key_is_stored(jane: Terminal) -> None:
    document = pod(annotations=dict.fromkeys(names.ALLOCATION_ANNOTATIONS, "x") | {"team": "red"})

    said = jane.create(document)

    assert len(said.stderr.splitlines()) == len(names.ALLOCATION_ANNOTATIONS)
    assert stored(jane, document)["metadata"]["annotations"] == {"team": "red"}


def test_who_opts_out_of_the_webhook_is_refused_what_it_would_have_removed(jane: Terminal) -> None:
    opted_out = {"hami.io/webhook": "ignore"}

    said = jane.create(pod(labels=opted_out, allocated="GPU-a,NVIDIA,15360,100:;"))

    assert said.stderr.startswith('Error from server (Forbidden): error when creating "STDIN": ')
    assert "ValidatingAdmissionPolicy 'cardwise-allocations'" in said.stderr
    assert said.stderr.endswith("only Cardwise writes it; leave it as it is\n")


SERVER_SIDE: Final = ("apply", "--server-side")


@pytest.mark.parametrize("how", [("apply",), SERVER_SIDE], ids=["apply", "server-side apply"])
def test_what_was_applied_can_be_applied_again(jane: Terminal, how: tuple[str, ...]) -> None:
    document = pod_of(build.container(gpumem=1000))  # the webhook adds the count

    first = jane.apply(document, how=how)
    before = stored(jane, document)
    again = jane.apply(document, how=how)
    differs = jane.apply(document, how=("diff", *how[1:]))

    assert (first.stderr, again.stderr, differs.stderr) == ("", "", "")
    assert (first.returncode, again.returncode, differs.returncode) == (0, 0, 0)
    assert before["metadata"]["annotations"][names.DEFAULTED] == "app:nvidia.com/gpu=1"
    assert stored(jane, document)["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_server_side_dry_run_shows_the_pod_and_leaves_no_trace(
    stage: Stage, t4: Terminal
) -> None:
    document = pod_of(build.container(gpumem=1000))

    said = t4.apply(document, how=("create", "--dry-run=server", "-o=json"))

    shown = json.loads(said)
    assert shown["spec"]["schedulerName"] == "cardwise-scheduler"
    assert shown["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert said.stderr == ""
    assert stage.pods() == {}
    t4.apply(pod(policy="mutex"))  # would have to wait, or go elsewhere, had the other left any
    (after,) = stage.pods()
    assert stage.placed(after) == 0


# Whatever makes the Pod ---------------------------------------------------------------------------


def placed(stage: Stage, begins: str, pods: int) -> list[Json]:
    """Wait until so many Pods whose names begin so are bound."""

    def bound() -> list[Json]:
        found = [
            each
            for name, each in stage.pods().items()
            if name.startswith(begins) and each["spec"].get("nodeName")
        ]
        return found if len(found) == pods else []

    return stage.cp.wait(f"{pods} Pods of {begins} to be bound", bound, 30)


def controlled(kind: str, group: str, spec: Json, template: Json) -> Json:
    labels = {"app": kind.lower()}
    metadata = {"labels": labels, "annotations": template["metadata"]["annotations"]}
    if group == "apps":
        spec = {**spec, "selector": {"matchLabels": labels}}
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": kind.lower()},
        "spec": {**spec, "template": {"metadata": metadata, "spec": template["spec"]}},
    }


def template_of(**fields: Any) -> Json:
    document = pod(**fields)
    del document["spec"]["schedulerName"]
    return document


def test_r07_kubectl_shows_what_is_wrong_with_a_deployments_template(jane: Terminal) -> None:
    template = template_of(gpumem="16Gi")
    web = controlled("Deployment", "apps", {"replicas": 0}, template)
    web["metadata"] |= {"name": "misplaced", "annotations": {names.POLICY: "binpack"}}

    said = jane.apply(web)

    assert said == "deployment.apps/misplaced created\n"
    assert (
        "Warning: Deployment misplaced: annotation hami.io/gpu-scheduler-policy has no effect on "
        "its Pods; write it in spec.template.metadata.annotations\n"
    ) in said.stderr
    assert "Warning: its Pods will be denied: container app: nvidia.com/gpumem is " in said.stderr


@pytest.mark.parametrize(
    ("document", "pods"),
    [
        (controlled("Deployment", "apps", {"replicas": 3}, template_of(policy="binpack")), 3),
        (controlled("StatefulSet", "apps", {"replicas": 2}, template_of(policy="binpack")), 2),
        (
            controlled(
                "Job",
                "batch",
                {"parallelism": 2, "completions": 2},
                {**(job := template_of(policy="binpack")),
                 "spec": {**job["spec"], "restartPolicy": "Never"}},
            ),
            2,
        ),
    ],
    ids=["Deployment", "StatefulSet", "Job"],
)  # fmt: skip
def test_the_pods_of_a_controller_are_placed(
    stage: Stage, t4: Terminal, document: Json, pods: int
) -> None:
    said = t4.apply(document)

    assert said.stderr == ""
    found = placed(stage, document["metadata"]["name"], pods)
    assert {each["spec"]["schedulerName"] for each in found} == {"cardwise-scheduler"}


# Red where kube-controller-manager's controllers act as administrators, as they did here once: the
# Pod was bound with a whole card that nobody gave it.
@pytest.mark.parametrize(
    ("kind", "group", "spec"),
    [("Deployment", "apps", {}), ("Job", "batch", {})],
    ids=["Deployment", "Job"],
)
def test_what_may_not_be_written_on_a_pod_is_not_written_by_way_of_its_controller(
    stage: Stage, t4: Terminal, kind: str, group: str, spec: Json
) -> None:
    template = template_of(gpus=None, gpumem=None, allocated="GPU-node-a-a,NVIDIA,15360,100:;")
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    t4.apply(controlled(kind, group, spec, template))

    told = stage.cp.wait(
        "its controller to be refused",
        lambda: (
            t4("get", "events", "--field-selector=reason=FailedCreate", "--output=yaml")
            if "cardwise-allocations" in t4("get", "events", "--output=yaml")
            else None
        ),
        30,
    )
    assert "only Cardwise writes it; leave it as it is" in " ".join(told.split())
    assert stage.pods() == {}


def test_a_name_that_the_api_server_makes_is_no_trouble(stage: Stage, t4: Terminal) -> None:
    document = pod()
    document["metadata"] = {"generateName": "made-"}

    said = t4.create(document)

    assert said.startswith("pod/made-")
    (found,) = placed(stage, "made-", 1)
    assert found["metadata"]["annotations"][names.ALLOCATED].endswith(",NVIDIA,1000,0:;")


def test_init_containers_and_sidecars_have_their_cards(stage: Stage, t4: Terminal) -> None:
    document = pod_of(
        build.container("plain"),
        build.container("app", gpumem=2000),  # the count is added
        init=[build.container("prepare", gpumem=500), shared("mesh", sidecar=True)],
    )

    assert t4.apply(document).stderr == ""

    stage.placed_at(name_of(document))
    found = stored(t4, document)
    shares = found["metadata"]["annotations"][names.ALLOCATED].split(";")
    assert [share.split(",")[2:3] for share in shares] == [["500"], ["1000"], [], ["2000"], []]
    assert found["metadata"]["annotations"][names.DEFAULTED] == (
        "prepare:nvidia.com/gpu=1,app:nvidia.com/gpu=1"
    )


# kubectl debug ------------------------------------------------------------------------------------


@pytest.fixture
def debugged(stage: Stage, t4: Terminal) -> Json:
    """A Pod that is bound, for copies of it."""
    document = pod(policy="binpack")
    t4.apply(document)
    stage.placed(name_of(document))
    return stored(t4, document)


def debug(t4: Terminal, document: Json, *words: str) -> KubectlOutput:
    copy = ("--copy-to=copy", "--image=busybox", "--container=tools", "--quiet")
    return t4("debug", name_of(document), *copy, *words)


@pytest.mark.parametrize("keep", [(), ("--keep-annotations",)], ids=["bare", "with annotations"])
def test_a_copy_to_debug_is_given_cards_of_its_own(
    stage: Stage, t4: Terminal, debugged: Json, keep: Sequence[str]
) -> None:
    said = debug(t4, debugged, *keep)

    assert said.returncode == 0, said.stderr
    assert ("is written when the Pod is bound; removed" in said.stderr) == bool(keep)
    # The original is alone on card 0, and the copy has its policy only where it kept it.
    assert stage.placed("copy") == (0 if keep else 1)
    copy = stage.get("copy")["metadata"]["annotations"]
    assert copy[names.ALLOCATED].endswith(",NVIDIA,1000,0:;;")


def test_a_copy_on_the_same_node_is_refused(stage: Stage, t4: Terminal, debugged: Json) -> None:
    said = debug(t4, debugged, "--same-node")

    assert 'webhook "pods.cardwise.dev" denied the request: spec.nodeName is' in said.stderr
    assert [*stage.pods()] == [name_of(debugged)]


def test_a_container_added_to_a_pod_that_runs_changes_nothing(stage: Stage, debugged: Json) -> None:
    name = name_of(debugged)
    said = stage.cp.kubectl(
        "debug", name, f"-n={stage.namespace}", "--image=busybox", "--container=tools", "--quiet"
    )

    assert said.stderr == ""
    after = stage.get(name)
    assert [each["name"] for each in after["spec"]["ephemeralContainers"]] == ["tools"]
    annotations = debugged["metadata"]["annotations"]
    assert after["metadata"]["annotations"][names.ALLOCATED] == annotations[names.ALLOCATED]


# Manifests written for HAMi -----------------------------------------------------------------------

SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
FOR_HAMI = [
    pytest.param({}, {}, [SHARE], 1, id="a share of a card"),
    pytest.param({"schedulerName": "hami-scheduler"}, {}, [SHARE], 1, id="HAMi's scheduler named"),
    pytest.param({}, {}, [{"nvidia.com/gpu": 2}], 2, id="whole cards"),
    pytest.param(
        {}, {}, [{"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50}], 2, id="half of each"
    ),
    pytest.param({}, {}, [{"nvidia.com/gpumem": 2000}], 1, id="memory alone"),
    pytest.param({}, {}, [SHARE, {}, SHARE], 2, id="containers with and without cards"),
    pytest.param({}, {"nvidia.com/use-gputype": "T4"}, [SHARE], 1, id="a model wanted"),
    pytest.param({}, {"nvidia.com/nouse-gputype": "A100,V100"}, [SHARE], 1, id="models not wanted"),
    pytest.param(
        {"runtimeClassName": None},
        {"hami.io/gpu-scheduler-policy": "binpack", "hami.io/node-scheduler-policy": "spread"},
        [{**SHARE, "nvidia.com/priority": 0}],
        1,
        id="policies and a priority",
    ),
]


@pytest.mark.parametrize(("spec", "annotations", "limits", "cards"), FOR_HAMI)
def test_a_manifest_for_hami_works_unchanged(
    stage: Stage, t4: Terminal, spec: Json, annotations: Json, limits: list[Json], cards: int
) -> None:
    containers = [
        {
            "name": f"ubuntu-container-{number}",
            "image": "ubuntu:22.04",
            "command": ["bash", "-c", "sleep 86400"],
            "resources": {"limits": each},
        }
        for number, each in enumerate(limits)
    ]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-pod", "annotations": annotations},
        "spec": {**spec, "containers": containers},
    }

    said = t4("apply", "-f=-", stdin=yaml.safe_dump(manifest))

    assert said == "pod/gpu-pod created\n", said.stderr
    assert len(stage.placed_at("gpu-pod").cards) == cards
    assert {k: stage.get("gpu-pod")["metadata"]["annotations"][k] for k in annotations} == (
        annotations
    )


def test_the_example_to_try_on_a_cluster_is_placed(stage: Stage, t4: Terminal) -> None:
    said = t4("apply", f"-f={ROOT / 'examples/cluster/pod.yaml'}")

    assert (said, said.stderr) == ("pod/hello created\n", "")
    assert stage.placed("hello") == 0
