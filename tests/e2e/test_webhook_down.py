"""With the webhook down, GPU Pods wait for it and nothing else does.

The overlay "default" is installed and nothing of it runs.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

import build
from callers import MERGE, Caller, Json
from cardwise.names import RESOURCES
from cardwise.wire.pods import asks_cards
from controlplane.launcher import ROOT, ControlPlane, free_port

CONFIGURATION: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cardwise-webhook"
)
SERVICE: Final = "/api/v1/namespaces/cardwise-system/services/cardwise-webhook"


@pytest.fixture(scope="module", params=["its Service leads nowhere", "nobody listens"])
def administrator(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """An API server with our manifests, whose webhook does not answer, in two ways."""
    with ControlPlane.start(kwok=False, controller_manager=False) as cp:
        cp.apply(ROOT / "manifests/overlays/default")
        opted_out = {"name": "opted-out", "labels": {"hami.io/webhook": "ignore"}}
        cp.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": opted_out}])
        caller = Caller.administrator(cp)
        if request.param == "nobody listens":
            webhook, *_ = caller.ask("GET", CONFIGURATION).body["webhooks"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{free_port()}/mutate"}
            change = {"webhooks": [webhook]}
            assert caller.ask("PATCH", CONFIGURATION, change, content_type=MERGE).ok
            said = "connection refused"
        else:
            # Nothing routes a Service's address here: without the Service nobody waits for that.
            assert caller.ask("DELETE", SERVICE).ok
            said = 'service "cardwise-webhook" not found'
        probe = build.pod(scheduler="")

        def is_down() -> bool:
            return said in caller.create_pod(probe, dry_run=True).message

        cp.wait("the configuration to be in force", is_down, 30)
        yield caller


def pod(**fields: Any) -> Json:
    return build.pod(**{"gpus": None, "scheduler": "", **fields})


def elsewhere(namespace: str) -> Json:
    return pod(gpus=1, namespace=namespace)


OPTED_OUT: Final = {"hami.io/webhook": "ignore"}


@pytest.mark.parametrize(
    "asking",
    [
        *(
            pytest.param(
                pod(containers=[build.container(limits={name: "1"}, requests={name: "1"})]), id=name
            )
            for name in RESOURCES
        ),
        pytest.param(pod(gpus=0), id="a count of 0"),
        pytest.param(pod(init=[build.container("i", gpumem=1000)]), id="an init container"),
        pytest.param(pod(init=[build.container("s", gpu=1, sidecar=True)]), id="a sidecar"),
        pytest.param(
            pod(containers=[build.container("a"), build.container("b", gpu=1)]),
            id="the second container",
        ),
        pytest.param(
            pod(containers=[build.container(requests={"nvidia.com/gpu": "1"})]), id="requests alone"
        ),
        pytest.param(pod(gpus=1, scheduler="other"), id="another scheduler"),
    ],
)
def test_a_pod_with_a_resource_of_ours_is_refused_and_told_why(
    administrator: Caller, asking: Json
) -> None:
    assert asks_cards(asking)

    answer = administrator.create_pod(asking, dry_run=True)

    assert answer.status == 500
    assert answer.message.startswith(
        'Internal error occurred: failed calling webhook "pods.cardwise.dev": '
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod(), id="a CPU Pod"),
        pytest.param(pod(policy="mutex,binpack"), id="a policy alone"),
        pytest.param(
            pod(containers=[build.container(limits={"amd.com/gpu": "1"})]), id="others' cards"
        ),
        pytest.param(
            pod(containers=[build.container(limits={"nvidia.com/mig-1g.5gb": "1"})]),
            id="a slice of NVIDIA's own plugin",
        ),
        pytest.param(pod(gpus=1, labels=OPTED_OUT), id="opted out by its label"),
        pytest.param(elsewhere("opted-out"), id="opted out by its namespace"),
        pytest.param(elsewhere("kube-system"), id="in kube-system"),
        pytest.param(elsewhere("cardwise-system"), id="in our own namespace"),
    ],
)
def test_no_other_pod_waits_for_the_webhook(administrator: Caller, other: Json) -> None:
    answer = administrator.create_pod(other, dry_run=True)

    assert answer.message == ""
    assert answer.warnings == ()
    assert answer.body["spec"]["schedulerName"] == "default-scheduler"


def test_a_pod_that_is_there_is_changed_and_deleted_as_ever(administrator: Caller) -> None:
    cards = pod(gpus=1, labels=OPTED_OUT)
    assert administrator.create_pod(cards).message == ""

    # It comes back under the webhook's eyes, but only new Pods are looked at.
    label: Json = {"metadata": {"labels": {"hami.io/webhook": None}}}
    assert administrator.patch_pod(cards, label).message == ""
    gone = administrator.ask(
        "DELETE", "/api/v1/namespaces/default/pods/p", {"gracePeriodSeconds": 0}
    )
    assert gone.message == ""


def test_kubectl_says_which_webhook_did_not_answer(administrator: Caller) -> None:
    said = administrator.cp.kubectl(
        "run", "p", "--image=busybox", '--overrides={"spec":{"containers":[{"name":"p",'
        '"image":"busybox","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}', check=False
    ).stderr  # fmt: skip

    assert 'failed calling webhook "pods.cardwise.dev"' in said
