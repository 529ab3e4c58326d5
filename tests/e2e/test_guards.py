"""What the API server holds by itself, with no process of ours running: the guards.

The overlay "both-doors" is installed without its webhook, and nothing of it runs.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import pytest

import build
from callers import Answer, Caller, Json, pod_path, submitted
from cardwise.names import (
    ALLOCATED,
    ALLOCATION_ANNOTATIONS,
    BIND_PHASE,
    EXCLUSIVE_HELD,
    GATE,
)
from controlplane.launcher import ROOT, ControlPlane

NODE: Final = "node-a"
SPACE: Final = "team"
WHOLE_CARD: Final = "GPU-a,NVIDIA,15360,100:;"
WRITERS: Final = ["controller", "agent", "administrator"]
OTHERS: Final = ["user", "kubelet", "webhook"]

_names = (f"p{number}" for number in count())


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    """An API server with our manifests, and people with more rights than they should have."""
    with ControlPlane.start(kwok=False, controller_manager=False) as plane:
        plane.apply(ROOT / "manifests/overlays/both-doors")
        plane.kubectl("delete", "mutatingwebhookconfiguration", "cardwise-webhook")
        plane.apply(
            [
                space(SPACE),
                space("opted-out", {"hami.io/webhook": "ignore"}),
                # RBAC is not what is tried here: everybody may do everything with Pods.
                everything_with_pods("anybody"),
                grant("anybody", "Group", "system:authenticated"),
            ]
        )
        plane.add_node(NODE, gpus=40)
        user = Caller.person(plane, "jane")
        forged = build.pod(gpus=None, namespace=SPACE, allocated=WHOLE_CARD)
        plane.wait("the guards", lambda: not user.create_pod(forged, dry_run=True).ok, 30)
        yield plane


def space(name: str, labels: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels or {}},
    }


def everything_with_pods(name: str) -> Json:
    resources = ["bindings", "pods", "pods/binding", "pods/ephemeralcontainers", "pods/resize"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [*resources, "pods/status"], "verbs": ["*"]}],
    }


def grant(role: str, kind: str, name: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": name}],
    }


@pytest.fixture(scope="module")
def callers(cp: ControlPlane) -> dict[str, Caller]:
    """Everybody who may ask."""
    return {
        "user": Caller.person(cp, "jane"),
        "kubelet": Caller.kubelet(cp, NODE),
        "webhook": Caller.account(cp, "cardwise-webhook"),
        "controller": Caller.account(cp, "cardwise-controller"),
        "agent": Caller.account(cp, "cardwise-agent"),
        "administrator": Caller.administrator(cp),
    }


@pytest.fixture
def caller(callers: dict[str, Caller], who: str) -> Caller:
    return callers[who]


@pytest.fixture
def administrator(callers: dict[str, Caller]) -> Caller:
    return callers["administrator"]


@pytest.fixture
def user(callers: dict[str, Caller]) -> Caller:
    return callers["user"]


def cpu_pod(**fields: Any) -> Json:
    """A Pod that never meets the webhook."""
    return build.pod(next(_names), namespace=SPACE, gpus=None, **{"scheduler": "other", **fields})


def gpu_pod(**fields: Any) -> Json:
    """A Pod with cards, as a user writes it."""
    return build.pod(next(_names), namespace=SPACE, **{"gpumem": 1000, "scheduler": "", **fields})


def unbound(administrator: Caller, **fields: Any) -> Json:
    pod = cpu_pod(**fields)
    assert administrator.create_pod(pod).message == ""
    return pod


def bound(administrator: Caller) -> Json:
    """A Pod with cards, as the controller leaves it."""
    pod = unbound(administrator)
    assert bind(administrator, pod, {ALLOCATED: WHOLE_CARD, BIND_PHASE: "allocating"}).ok
    return pod


def bind(caller: Caller, pod: Json, annotations: dict[str, str]) -> Answer:
    return caller.ask("POST", pod_path(pod, "binding"), binding(pod, annotations))


def binding(pod: Json, annotations: dict[str, str]) -> Json:
    metadata = {"name": pod["metadata"]["name"], "annotations": annotations}
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def annotations_of(administrator: Caller, pod: Json) -> dict[str, str]:
    found: dict[str, str] = (
        administrator.ask("GET", pod_path(pod)).body["metadata"].get("annotations", {})
    )
    return found


def change(annotations: dict[str, str | None]) -> Json:
    return {"metadata": {"annotations": annotations}}


# Who may write an allocation, by which door -------------------------------------------------------


def created(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = cpu_pod(allocated=value)
    return pod, caller.create_pod(pod)


def annotated(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = unbound(administrator)
    return pod, caller.patch_pod(pod, change({ALLOCATED: value}))


def replaced(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = bound(administrator)
    whole = administrator.ask("GET", pod_path(pod)).body
    whole["metadata"]["annotations"][ALLOCATED] = value
    return pod, caller.ask("PUT", pod_path(pod), whole)


def by_status(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = bound(administrator)
    return pod, caller.patch_pod(pod, change({ALLOCATED: value}), subresource="status")


def by_binding(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = unbound(administrator)
    return pod, bind(caller, pod, {ALLOCATED: value})


def by_bindings(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = unbound(administrator)
    path = f"/api/v1/namespaces/{SPACE}/bindings"
    return pod, caller.ask("POST", path, binding(pod, {ALLOCATED: value}))


def by_apply(caller: Caller, administrator: Caller, value: str) -> tuple[Json, Answer]:
    pod = cpu_pod(allocated=value)
    path = pod_path(pod) + "?fieldManager=somebody"
    return pod, caller.ask(
        "PATCH", path, submitted(pod), content_type="application/apply-patch+yaml"
    )


Door = Callable[[Caller, Caller, str], tuple[Json, Answer]]
DOORS: Final = [created, annotated, replaced, by_status, by_binding, by_bindings, by_apply]


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("door", DOORS)
def test_an_allocation_by_anybody_else_is_refused_with_one_sentence(
    caller: Caller, administrator: Caller, door: Door
) -> None:
    pod, answer = door(caller, administrator, "GPU-forged,NVIDIA,1,1:;")

    assert answer.status == 403, answer
    assert answer.message.endswith(
        f"annotation {ALLOCATED} says which cards a Pod has, and only Cardwise writes it; "
        "leave it as it is"
    )
    assert "cardwise-allocations" in answer.message
    stored = administrator.ask("GET", pod_path(pod)).body["metadata"]
    assert "forged" not in str(stored)


@pytest.mark.parametrize("who", WRITERS)
@pytest.mark.parametrize("door", DOORS)
def test_controller_agent_and_administrator_may_write_allocations(
    caller: Caller, administrator: Caller, door: Door, who: str
) -> None:
    pod, answer = door(caller, administrator, "GPU-b,NVIDIA,1,1:;")

    if (who, door) == ("agent", by_status):
        # By the one right to Pods that an agent has it writes their phase, and no cards.
        assert "cardwise-agents" in answer.message
        return
    assert answer.message == ""
    assert annotations_of(administrator, pod)[ALLOCATED] == "GPU-b,NVIDIA,1,1:;"


@pytest.mark.parametrize("key", ALLOCATION_ANNOTATIONS)
@pytest.mark.parametrize("value", ["x", ""])
def test_every_key_is_guarded_an_empty_text_too(user: Caller, key: str, value: str) -> None:
    answer = user.create_pod(cpu_pod(annotations={key: value}))

    assert answer.status == 403
    assert f"annotation {key} says" in answer.message


def test_all_keys_are_told_in_one_sentence(user: Caller) -> None:
    answer = user.create_pod(cpu_pod(allocated=";", exclusive_held=True))

    assert f"annotation {ALLOCATED}, {EXCLUSIVE_HELD} says" in answer.message


def test_a_person_who_may_edit_is_told_by_kubectl(cp: ControlPlane, administrator: Caller) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {**role, "kind": "User", "name": "eve"}
    metadata = {"name": "eve", "namespace": SPACE}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    cp.apply([{**kind, "metadata": metadata, "roleRef": role, "subjects": [subject]}])
    name = bound(administrator)["metadata"]["name"]

    def said(*words: str) -> str:
        return cp.kubectl("--as=eve", f"-n={SPACE}", *words, check=False).stderr.strip()

    assert said("annotate", "pod", name, "team=x") == ""
    assert said("annotate", "pod", name, f"{ALLOCATED}-") == (
        f'Error from server (Forbidden): pods "{name}" is forbidden: ValidatingAdmissionPolicy '
        f"'cardwise-allocations' with binding 'cardwise-allocations' denied request: annotation "
        f"{ALLOCATED} says which cards a Pod has, and only Cardwise writes it; leave it as it is"
    )
    assert "denied request" in said("annotate", "--overwrite", "pod", name, f"{ALLOCATED}=;")


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_allocation_cannot_be_removed(
    caller: Caller, administrator: Caller, subresource: str
) -> None:
    pod = bound(administrator)

    answer = caller.patch_pod(pod, change({ALLOCATED: None}), subresource=subresource)

    assert answer.status == 403
    assert annotations_of(administrator, pod)[ALLOCATED] == WHOLE_CARD


@pytest.mark.parametrize("subresource", ["resize", "ephemeralcontainers"])
def test_no_other_door_leads_to_annotations(
    user: Caller, administrator: Caller, subresource: str
) -> None:
    pod = bound(administrator)

    user.patch_pod(pod, change({ALLOCATED: ";", "mine": "x"}), subresource=subresource)

    assert annotations_of(administrator, pod)[ALLOCATED] == WHOLE_CARD
    assert "mine" not in annotations_of(administrator, pod)


@pytest.mark.parametrize("labelled", ["pod", "namespace"])
def test_no_label_opts_out(user: Caller, labelled: str) -> None:
    pod = gpu_pod(allocated=WHOLE_CARD, labels={"hami.io/webhook": "ignore"})
    if labelled == "namespace":
        pod = gpu_pod(allocated=WHOLE_CARD)
        pod["metadata"]["namespace"] = "opted-out"

    answer = user.create_pod(pod)

    assert answer.status == 403
    assert "cardwise-allocations" in answer.message


# What is nobody's business ------------------------------------------------------------------------

RUNNING: Final = {"status": {"phase": "Running", "hostIP": "10.1.1.1"}}


@pytest.mark.parametrize(
    ("who", "changed", "subresource"),
    [
        pytest.param("user", change({"team": "x"}), "", id="a user annotates"),
        pytest.param("user", {"metadata": {"labels": {"a": "b"}}}, "", id="a user labels"),
        pytest.param("kubelet", RUNNING, "status", id="a kubelet reports"),
        pytest.param(
            "user",
            {"metadata": {"finalizers": ["example.com/f"]}},
            "",
            id="somebody adds a finalizer",
        ),
        pytest.param(
            "user",
            {"spec": {"containers": [{"name": "app", "image": "other"}]}},
            "",
            id="an image is changed",
        ),
        pytest.param(
            "user", change({ALLOCATED: WHOLE_CARD}), "", id="an allocation is written as it is"
        ),
    ],
)
def test_other_changes_of_a_pod_with_cards_pass(
    caller: Caller, administrator: Caller, changed: Json, subresource: str
) -> None:
    pod = bound(administrator)

    answer = caller.patch_pod(pod, changed, subresource=subresource)

    assert answer.message == ""
    assert annotations_of(administrator, pod)[ALLOCATED] == WHOLE_CARD


def test_a_pod_with_cards_is_deleted_by_its_owner(user: Caller, administrator: Caller) -> None:
    pod = bound(administrator)

    assert user.ask("DELETE", pod_path(pod), {"gracePeriodSeconds": 0}).ok
    assert administrator.ask("GET", pod_path(pod)).status == 404


@pytest.mark.parametrize("who", ["user", "kubelet"])
def test_a_binding_without_cards_passes(caller: Caller, administrator: Caller) -> None:
    assert bind(caller, unbound(administrator), {"team": "x"}).message == ""


def test_a_pod_without_annotations_passes(user: Caller) -> None:
    pod = cpu_pod()
    del pod["metadata"]["annotations"], pod["metadata"]["labels"]

    assert user.create_pod(pod).message == ""


# The gate -----------------------------------------------------------------------------------------

OURS: Final = {"name": GATE}
FOREIGN: Final = {"name": "example.com/gate"}


def gated(administrator: Caller, *gates: Json) -> Json:
    pod = gpu_pod()
    pod["spec"]["schedulingGates"] = list(gates)
    assert administrator.create_pod(pod).message == ""
    return pod


def gates_of(administrator: Caller, pod: Json) -> list[Json]:
    spec = administrator.ask("GET", pod_path(pod)).body["spec"]
    found: list[Json] = spec.get("schedulingGates", [])
    return found


def by_patch(caller: Caller, administrator: Caller, pod: Json, left: list[Json]) -> Answer:
    return caller.patch_pod(pod, {"spec": {"schedulingGates": left}})


def by_replacing(caller: Caller, administrator: Caller, pod: Json, left: list[Json]) -> Answer:
    whole = administrator.ask("GET", pod_path(pod)).body
    whole["spec"]["schedulingGates"] = left
    return caller.ask("PUT", pod_path(pod), whole)


def by_json_patch(caller: Caller, administrator: Caller, pod: Json, left: list[Json]) -> Answer:
    path = "/spec/schedulingGates"
    change = [{"op": "replace", "path": path, "value": left}]
    return caller.ask("PATCH", pod_path(pod), change, content_type="application/json-patch+json")


WAYS: Final = [by_patch, by_replacing, by_json_patch]
Way = Callable[[Caller, Caller, Json, list[Json]], Answer]


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left", [[], [FOREIGN]], ids=["all gates", "ours alone"])
def test_the_gate_is_not_opened_by_anybody_else(
    caller: Caller, administrator: Caller, way: Way, left: list[Json]
) -> None:
    pod = gated(administrator, FOREIGN, OURS)

    answer = way(caller, administrator, pod, left)

    assert answer.status == 403, answer
    assert "'cardwise-gates' denied request: the scheduling gate" in answer.message
    assert gates_of(administrator, pod) == [FOREIGN, OURS]


@pytest.mark.parametrize("who", WRITERS)
@pytest.mark.parametrize("way", WAYS)
def test_who_may_write_allocations_may_open_the_gate(
    caller: Caller, administrator: Caller, way: Way
) -> None:
    pod = gated(administrator, FOREIGN, OURS)

    assert way(caller, administrator, pod, [FOREIGN]).message == ""
    assert gates_of(administrator, pod) == [FOREIGN]


@pytest.mark.parametrize("way", WAYS)
def test_gates_of_others_are_opened_by_whoever_may(
    user: Caller, administrator: Caller, way: Way
) -> None:
    pod = gated(administrator, FOREIGN, OURS)

    assert way(user, administrator, pod, [OURS]).message == ""
    assert gates_of(administrator, pod) == [OURS]


def test_a_pod_without_our_gate_is_opened_by_whoever_may(
    user: Caller, administrator: Caller
) -> None:
    pod = gated(administrator, FOREIGN)

    assert by_patch(user, administrator, pod, []).message == ""


def test_a_waiting_pod_may_be_changed_otherwise(user: Caller, administrator: Caller) -> None:
    pod = gated(administrator, OURS)

    changes: list[Json] = [change({"team": "x"}), {"spec": {"nodeSelector": {"zone": "a"}}}]
    for each in changes:
        assert user.patch_pod(pod, each).message == ""
    status = {"status": {"conditions": [{"type": "x", "status": "True"}]}}
    assert user.patch_pod(pod, status, subresource="status").message == ""


def test_a_waiting_pod_is_not_bound(user: Caller, administrator: Caller) -> None:
    pod = gated(administrator, OURS)

    assert bind(user, pod, {}).status == 409
    status = {"spec": {"schedulingGates": []}}
    user.patch_pod(pod, status, subresource="status")
    assert gates_of(administrator, pod) == [OURS]


# A preset node ------------------------------------------------------------------------------------

IGNORE: Final = {"hami.io/webhook": "ignore"}
MIRROR: Final = {"kubernetes.io/config.mirror": "x"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(gpu_pod(node=NODE), id="with a card"),
        pytest.param(gpu_pod(node=NODE, gpus=None), id="with memory alone"),
        pytest.param(gpu_pod(node=NODE, scheduler="hami-scheduler"), id="of HAMi's scheduler"),
        pytest.param(gpu_pod(node=NODE, scheduler="cardwise-scheduler"), id="of our scheduler"),
        pytest.param(gpu_pod(node=NODE, labels=IGNORE), id="opted out by a label of its own"),
        pytest.param(
            gpu_pod(node=NODE, containers=[build.container()], init=[build.container("i", gpu=1)]),
            id="with a card for an init container",
        ),
        pytest.param(
            gpu_pod(node=NODE, containers=[build.container(f"c{n}", gpu=1) for n in range(300)]),
            id="with three hundred containers, within the limits of an expression's cost",
        ),
    ],
)
def test_a_preset_node_for_cards_is_refused(user: Caller, pod: Json) -> None:
    answer = user.create_pod(pod, dry_run=True)

    assert answer.status == 403
    assert "cardwise-preset-nodes" in answer.message
    assert answer.message.endswith(
        'spec.nodeName is "node-a", which passes by the scheduler and so by the cards\' accounts; '
        "write a nodeSelector for kubernetes.io/hostname instead"
    )


@pytest.mark.parametrize(
    ("who", "pod"),
    [
        pytest.param("user", gpu_pod(), id="no node is preset"),
        pytest.param("user", gpu_pod(node=NODE, gpus=None, gpumem=None), id="no card is asked for"),
        pytest.param("user", gpu_pod(node=NODE, gpus=0, gpumem=None), id="a count of 0"),
        pytest.param(
            "user", gpu_pod(node=NODE, scheduler="other"), id="another scheduler is named"
        ),
        pytest.param("kubelet", gpu_pod(node=NODE, annotations=MIRROR), id="a kubelet's mirror"),
    ],
)
def test_other_pods_may_have_a_preset_node(caller: Caller, pod: Json) -> None:
    assert caller.create_pod(pod, dry_run=True).message == ""


@pytest.mark.parametrize("namespace", ["kube-system", "opted-out"])
def test_an_administrators_namespace_may_preset_nodes(user: Caller, namespace: str) -> None:
    pod = gpu_pod(node=NODE)
    pod["metadata"]["namespace"] = namespace

    assert user.create_pod(pod, dry_run=True).message == ""


def test_a_pod_full_of_annotations_is_within_the_limits_of_cost(user: Caller) -> None:
    many = {f"key-{number}": "x" * 40 for number in range(5000)}

    assert user.create_pod(cpu_pod(annotations=many), dry_run=True).message == ""
    answer = user.create_pod(cpu_pod(annotations=many, allocated=";"), dry_run=True)
    assert f"annotation {ALLOCATED} says" in answer.message
