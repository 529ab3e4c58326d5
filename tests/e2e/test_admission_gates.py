"""What people meet at the door of gates, by real kubectl: through the webhook, and without one.

The overlays "gates" and "gates-admission-policy" are installed, with the settings that they ship;
of their processes only the webhook runs, so every Pod waits.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

import build
from callers import MERGE, Answer, Caller, Json, pod_path
from cardwise import names
from controlplane.launcher import ROOT, ControlPlane
from installation import CONFIGURATION, SYSTEM
from terminal import Terminal
from webhooks import WebhookProcess

SPACE: Final = "team"
OURS: Final = {"name": names.GATE}
KUEUE: Final = {"name": "kueue.x-k8s.io/admission"}
REFUSED: Final = (
    "the scheduling gate cardwise.dev/cards is removed when the Pod is given its cards, and only "
    "Cardwise does that; delete the Pod if it is not to wait for them"
)
_names = (f"p{number}" for number in count())


@pytest.fixture(scope="module", params=["gates", "gates-admission-policy"])
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cp(overlay: str) -> Iterator[ControlPlane]:
    """An API server that gates Pods, by a webhook or by itself."""
    with ControlPlane.start(kwok=False) as plane:
        plane.apply(ROOT / "manifests/overlays" / overlay)
        if overlay == "gates":
            call_a_webhook(plane)
        administrator = Caller.administrator(plane)
        probe = build.pod(gpumem=1000, scheduler="")

        def in_force() -> bool:
            return "schedulingGates" in spec_of(administrator.create_pod(probe, dry_run=True))

        plane.wait("Pods to be gated", in_force, 60)
        yield plane


def call_a_webhook(cp: ControlPlane) -> None:
    """Run the webhook with the settings of the overlay, and lead the API server to it."""
    (shipped,) = (
        each["data"]["cardwise.yaml"]
        for each in cp.request("GET", f"{SYSTEM}/configmaps")["items"]
        if each["metadata"]["name"].startswith("cardwise-settings-")
    )
    settings = cp.directory / "cardwise.yaml"
    settings.write_text(shipped)
    webhook = WebhookProcess(cp.directory, f"--config={settings}")
    webhook.start(lambda argv: cp.start_process("webhook", argv))
    cp.wait("the webhook to be ready", webhook.is_ready, 30)
    administrator = Caller.administrator(cp)
    called, *_ = administrator.ask("GET", CONFIGURATION).body["webhooks"]
    change = {"webhooks": [{**called, "clientConfig": webhook.client_config()}]}
    assert administrator.ask("PATCH", CONFIGURATION, change, content_type=MERGE).ok


def spec_of(answer: Answer) -> Json:
    spec: Json = answer.body.get("spec", {})
    return spec


@pytest.fixture(scope="module")
def jane(cp: ControlPlane) -> Terminal:
    """A user who may edit in her namespace."""
    return Terminal(cp, SPACE)


@pytest.fixture(scope="module")
def controller(cp: ControlPlane) -> Caller:
    """The controller's account, with the rights that the overlay gives it."""
    return Caller.account(cp, "cardwise-controller")


def pod(gates: list[Json] | None = None, **fields: Any) -> Json:
    """A Pod that shares a card, as a user writes it."""
    made = build.pod(next(_names), **{"gpumem": 1000, "scheduler": "", **fields})
    if gates is not None:
        made["spec"]["schedulingGates"] = gates
    return made


def created(jane: Terminal, document: Json) -> Json:
    said = jane.create(document)
    assert said.stderr == ""
    return stored(jane, document)


def stored(jane: Terminal, document: Json) -> Json:
    found: Json = json.loads(jane("get", "pod", document["metadata"]["name"], "-o=json"))
    return found


def gates_of(pod: Json) -> list[Json]:
    gates: list[Json] = pod["spec"].get("schedulingGates", [])
    return gates


# What is stored -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ("", "default-scheduler"),
        ("default-scheduler", "default-scheduler"),
        ("hami-scheduler", "default-scheduler"),
        ("cardwise-scheduler", "default-scheduler"),
    ],
)
def test_a_pod_with_cards_waits_behind_the_gate(jane: Terminal, named: str, kept: str) -> None:
    found = created(jane, pod(scheduler=named))

    assert gates_of(found) == [OURS]
    assert found["spec"]["schedulerName"] == kept
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    row = jane("get", "pod", found["metadata"]["name"], "--no-headers").split()
    assert row[2] == "SchedulingGated"


def test_gates_of_others_stay_and_ours_is_the_last(jane: Terminal) -> None:
    assert gates_of(created(jane, pod([KUEUE]))) == [KUEUE, OURS]


def test_a_pod_that_brings_the_gate_has_it_once(jane: Terminal) -> None:
    assert gates_of(created(jane, pod([OURS, KUEUE]))) == [OURS, KUEUE]


def test_a_pod_without_cards_is_not_gated(jane: Terminal) -> None:
    assert gates_of(created(jane, pod(gpus=None, gpumem=None))) == []


def test_a_pod_of_another_scheduler_is_gated_only_where_it_says_so(jane: Terminal) -> None:
    jane.create(left := pod(scheduler="volcano"))
    gated = created(jane, pod(scheduler="volcano", annotations={names.DOOR: "gates"}))

    assert gates_of(stored(jane, left)) == []
    assert gates_of(gated) == [OURS]
    assert gated["spec"]["schedulerName"] == "volcano"


def test_the_pods_of_a_deployment_are_gated(cp: ControlPlane, jane: Terminal) -> None:
    template = pod(labels={"app": "served"})
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "served"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "served"}},
            "template": {
                "metadata": {"labels": {"app": "served"}},
                "spec": {"containers": template["spec"]["containers"]},
            },
        },
    }
    assert jane.apply(deployment).stderr == ""

    def pods() -> list[Json]:
        found: list[Json] = json.loads(jane("get", "pods", "-l=app=served", "-o=json"))["items"]
        return found

    cp.wait("two Pods", lambda: len(pods()) == 2, 30)
    assert [gates_of(each) for each in pods()] == [[OURS], [OURS]]


def test_a_preset_node_is_refused_with_our_sentence(jane: Terminal) -> None:
    said = jane.create(pod(node="node-a"))

    assert "write a nodeSelector for kubernetes.io/hostname instead" in said.stderr


# Who may open it ----------------------------------------------------------------------------------


def test_who_may_edit_cannot_remove_the_gate(jane: Terminal) -> None:
    waiting = created(jane, pod([KUEUE]))
    name = waiting["metadata"]["name"]

    for left in ([], [KUEUE]):
        change = json.dumps({"spec": {"schedulingGates": left}})
        said = jane("patch", "pod", name, "--type=merge", f"--patch={change}")
        assert said.stderr.strip() == (
            f'Error from server (Forbidden): pods "{name}" is forbidden: ValidatingAdmissionPolicy '
            f"'cardwise-gates' with binding 'cardwise-gates' denied request: {REFUSED}"
        )
    assert gates_of(stored(jane, waiting)) == [KUEUE, OURS]


def test_who_may_edit_can_remove_a_gate_of_others_and_whatever_else(jane: Terminal) -> None:
    waiting = created(jane, pod([KUEUE]))
    name = waiting["metadata"]["name"]
    change = {"spec": {"schedulingGates": [OURS], "nodeSelector": {"zone": "a"}}}

    assert jane("patch", "pod", name, "--type=merge", f"--patch={json.dumps(change)}").stderr == ""
    assert jane("annotate", "pod", name, "team=x").stderr == ""

    assert gates_of(stored(jane, waiting)) == [OURS]
    assert jane("delete", "pod", name).stderr == ""


def test_nobody_gives_a_waiting_pod_its_cards_but_the_controller(jane: Terminal) -> None:
    waiting = created(jane, pod())
    name = waiting["metadata"]["name"]

    said = jane("annotate", "pod", name, f"{names.ALLOCATED}=GPU-a,NVIDIA,1000,0:;")

    assert "'cardwise-allocations' denied request" in said.stderr


def test_the_controller_gives_cards_and_node_and_opens_the_gate_in_one_write(
    cp: ControlPlane, jane: Terminal, controller: Caller
) -> None:
    waiting = created(jane, pod())
    metadata = waiting["metadata"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    change = {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {
                names.ALLOCATED: "GPU-a,NVIDIA,1000,0:;",
                names.VGPU_NODE: "node-a",
            },
        },
        "spec": {"schedulingGates": [], "affinity": {"nodeAffinity": required}},
    }

    assert controller.patch_pod(waiting, change).message == ""

    after = stored(jane, waiting)
    assert gates_of(after) == []
    assert after["spec"]["affinity"]["nodeAffinity"] == required
    again = controller.patch_pod(waiting, change)
    assert again.status == 409, "the version that was decided about is no longer there"


def test_the_agents_may_write_allocations_and_still_open_no_gate(
    cp: ControlPlane, jane: Terminal
) -> None:
    waiting = created(jane, pod())
    agent = Caller.account(cp, "cardwise-agent")

    assert agent.patch_pod(waiting, {"spec": {"schedulingGates": []}}).status == 403


def test_a_pod_that_waits_is_gone_at_once_when_it_is_deleted(
    jane: Terminal, controller: Caller
) -> None:
    waiting = created(jane, pod())

    assert jane("delete", "pod", waiting["metadata"]["name"]).stderr == ""
    assert controller.ask("GET", pod_path(waiting)).status == 404


# Both doors ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joe() -> Iterator[Terminal]:
    """A user in a cluster with both doors, where Pods come by the extender if they do not say."""
    with ControlPlane.start(kwok=False) as plane:
        plane.apply(ROOT / "manifests/overlays/both-doors")
        call_a_webhook(plane)
        administrator = Caller.administrator(plane)
        probe = build.pod(gpumem=1000, scheduler="")

        def in_force() -> bool:
            spec = spec_of(administrator.create_pod(probe, dry_run=True))
            return spec.get("schedulerName") == names.SCHEDULER_NAME

        plane.wait("Pods to be admitted", in_force, 60)
        yield Terminal(plane, SPACE)


APART: Final = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


@pytest.mark.parametrize(
    ("written", "apart", "by_gates", "said"),
    [
        pytest.param({}, False, False, "", id="nothing is said"),
        pytest.param({names.DOOR: "gates"}, False, True, "", id="gates are asked"),
        pytest.param({names.GANG: "g", names.GANG_SIZE: "2"}, False, True, "", id="a gang"),
        pytest.param(
            {names.DOOR: "gates"},
            True,
            False,
            'Warning: cardwise.dev/door: "gates" has no effect, because '
            "spec.affinity.podAntiAffinity needs the door extender\n",
            id="gates are asked, and can't check it",
        ),
        pytest.param(
            {names.DOOR: "window"},
            False,
            False,
            'Warning: cardwise.dev/door: "window" has no effect; write extender or gates\n',
            id="an unknown door",
        ),
    ],
)
def test_where_both_doors_are_a_pod_chooses(
    joe: Terminal, written: dict[str, str], apart: bool, by_gates: bool, said: str
) -> None:
    made = pod(annotations=written)
    if apart:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}
        made["spec"]["affinity"] = {"podAntiAffinity": required}

    assert joe.create(made).stderr == said

    found = stored(joe, made)
    assert gates_of(found) == ([OURS] if by_gates else [])
    assert found["spec"]["schedulerName"] == (
        "default-scheduler" if by_gates else names.SCHEDULER_NAME
    )
