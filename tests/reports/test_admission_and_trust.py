"""Section D of the field reports: admission, and whom to trust."""

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import build
from cardwise.admission import admit
from cardwise.controller.lease.duty import Duty
from cardwise.controller.webhook.certificates import WEBHOOK
from cardwise.controller.webhook.keeper import CertificateKeeper
from cardwise.settings import Settings
from cardwise_webhook.certs import Certificate
from cardwise_webhook.metrics import Metrics
from cardwise_webhook.review import WORKLOADS, Result, answer
from controllers import World, background, loop_clock, passing
from fakes.cluster import FakeCluster
from reports import fixtures
from reports.fixtures import load, one
from webhooks import Authority, Mount, review

SMALL = {"gpumem": 1000}
MANIFESTS = Path(__file__).parents[2] / "manifests" / "components" / "webhook"
[CONFIGURATION] = yaml.safe_load_all((MANIFESTS / "configuration.yaml").read_text())
PODS, WARNING, _ = CONFIGURATION["webhooks"]


def test_r31_a_webhook_that_does_not_answer_lets_no_pod_with_cards_slip_through() -> None:
    """The API server refuses the Pod and names the cause, down to the TLS error.

    That it does: tests/e2e/test_webhook_down.py, and "a wrong authority is told by kubectl and
    mended" in test_admission_trouble.py. Whoever runs the cluster is told before anybody asks:
    tests/controller/webhook/test_selftest.py. Where somebody writes ``Ignore``, R20 tells each Pod.

    Red: in manifests/components/webhook/configuration.yaml write ``failurePolicy: Ignore``.
    """
    assert PODS["failurePolicy"] == "Fail"


async def test_r32_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """Whatever makes it, within seconds; a pair that is broken leaves the old one in use.

    No request is lost meanwhile: tests/webhook/test_certs.py, "a stream of requests outlives every
    exchange".

    Red: in webhook/certs.py take new files only while there is no certificate.
    """
    authority, mount = Authority(), Mount(tmp_path / "tls")
    certificate = Certificate(mount.path, Metrics(), unix=lambda: 0.0)
    until = []
    async with background(certificate.follow()):
        for days in (30, 60):
            mount.put(authority.issue(life=fixtures.days(days)))
            await passing(3.0)
            until.append(expires(certificate))

    assert until[0] < until[1]


def expires(certificate: Certificate) -> float:
    """Until when the certificate that is served is good, by its metric."""
    lines = certificate._metrics.render().decode().splitlines()
    name = "cardwise_certificate_expires_timestamp_seconds "
    [line] = [it for it in lines if it.startswith(name)]
    return float(line.removeprefix(name))


def test_r33_the_webhook_has_no_business_with_other_pods() -> None:
    """Who matches is said in the configuration, so a webhook that is away stands in nobody's way.

    What the API server makes of it: tests/e2e/test_webhook_down.py, "no other Pod waits".

    Red: in manifests/components/webhook/configuration.yaml take kube-system out of the namespaces.
    """
    for webhook in (PODS, WARNING):
        [named, *_] = webhook["namespaceSelector"]["matchExpressions"]
        assert {"kube-system", "cardwise-system"} <= set(named["values"])
        assert named["operator"] == "NotIn"
        conditions = {each["name"].partition("-in-")[0] for each in webhook["matchConditions"]}
        assert "names-a-resource-of-ours" in conditions
        assert webhook["timeoutSeconds"] <= 5
    assert WARNING["failurePolicy"] == "Ignore"


PRIVILEGED = build.container("side", privileged=True)
WITH_CARD = build.container("app", gpu=1, gpumem=1000)


@pytest.mark.parametrize(
    ("pod", "denied"),
    [
        pytest.param(
            build.pod(containers=[PRIVILEGED, WITH_CARD]), True, id="R34 a privileged sidecar"
        ),
        pytest.param(
            build.pod(init=[PRIVILEGED], containers=[WITH_CARD]),
            True,
            id="R34 a privileged init container",
        ),
        pytest.param(build.pod(containers=[PRIVILEGED]), False, id="R34 a Pod without cards"),
    ],
)
def test_r34_a_privileged_container_beside_cards_is_denied(pod: Any, denied: bool) -> None:
    """It is refused, not only logged.

    Red: in admission.py look for ``privileged`` in containers with cards alone.
    """
    assert (admit(pod, Settings()).denial is not None) == denied


@pytest.mark.parametrize(
    ("named", "becomes", "warned"),
    [
        pytest.param("", "cardwise-scheduler", False, id="R35 none"),
        pytest.param("default-scheduler", "cardwise-scheduler", False, id="R35 the default one"),
        pytest.param("other", "other", True, id="R35 another one is a choice, and told"),
    ],
)
def test_r35_which_scheduler_is_overwritten(named: str, becomes: str, warned: bool) -> None:
    """The same for every Pod. The setting ``overwriteDefault`` of HAMi has no counterpart.

    Red: in doors.py take every scheduler for one of ours.
    """
    admission = admit(build.pod(scheduler=named, **SMALL), Settings())

    assert admission.pod["spec"]["schedulerName"] == becomes
    assert bool(admission.warnings) == warned


FORGED = "GPU-g0,NVIDIA,15360,100:;"


async def test_r37_a_forged_allocation_is_neither_stored_nor_counted() -> None:
    """Admission removes it; where that was passed by, an unbound Pod's text is no booking.

    That nobody else may write it later, or remove it: tests/e2e/test_guards.py.

    Red: in wire/pins.py let ``pinned_node`` take the annotation hami.io/vgpu-node for the node.
    """
    node = {"hami.io/vgpu-node": "n1"}
    forged = build.pod(allocated=FORGED, annotations=node, gpumem=100)

    admission = admit(copy.deepcopy(forged), Settings())
    world = await World(*fixtures.t4x1(), forged).load()

    assert "hami.io/vgpu-devices-allocated" not in admission.pod["metadata"]["annotations"]
    assert any("removed" in warning for warning in admission.warnings)
    assert world.used() == {}
    assert world.chosen(build.pod("other", gpumem=15360), "n1") == "n1"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"operation": "DELETE"}, id="R38 a deletion"),
        pytest.param({"operation": "UPDATE"}, id="R38 a change"),
        pytest.param({"uid": "made-up"}, id="R38 of nobody"),
        pytest.param({"subResource": "binding"}, id="R38 a Binding"),
    ],
)
def test_r38_a_made_up_review_has_no_effect(changes: dict[str, Any]) -> None:
    """The webhook answers a question and keeps nothing; it has no cluster and no ledger at all.

    The extender listens at 127.0.0.1 alone (tests/test_manifests.py), the webhook's port has no
    other path (tests/e2e/test_admission_trouble.py).

    Red: in webhook/review.py let ``_creates`` not ask for the operation and the subresource.
    """
    [tenant] = load(g0="1/15000/0")
    body = orjson.dumps(review(tenant, **changes))

    first, second = answer(body, Settings()), answer(body, Settings())

    assert first == second
    ignored = changes.keys() != {"uid"}
    assert (first.result is Result.IGNORED) == ignored


def test_r39_what_another_webhook_adds_is_in_the_allocation() -> None:
    """Places are counted in the stored Pod, and being called again changes nothing.

    Red: in wire/defaulting.py let ``_take_back`` take nothing back.
    """
    admitted = admit(build.pod(), Settings()).pod
    injected = copy.deepcopy(admitted)
    injected["spec"]["initContainers"] = [build.container("prepare")]
    injected["spec"]["containers"].append(build.container("mesh"))

    again = admit(injected, Settings()).pod

    assert again == injected
    assert one(*fixtures.t4x1(), injected)["annotation"] == ";GPU-g0,NVIDIA,15360,100:;;"


def test_r39_a_default_that_is_no_longer_right_is_worked_out_anew() -> None:
    """A whole card was assumed, until another webhook wrote the memory.

    Red: in wire/defaulting.py let ``_take_back`` take nothing back.
    """
    admitted = copy.deepcopy(admit(build.pod(), Settings()).pod)
    [container] = admitted["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpucores"] == "100"
    container["resources"]["limits"]["nvidia.com/gpumem"] = "1k"

    again = admit(admitted, Settings()).pod

    [container] = again["spec"]["containers"]
    assert "nvidia.com/gpucores" not in container["resources"]["limits"]


async def test_r41_the_configuration_is_written_once() -> None:
    """Three replicas look at it for ten minutes; only the first bundle is written.

    The path is fixed, /mutate, in a manifest that anybody can manage.

    Red: in controller/webhook/certificates.py let ``next_step`` write the bundle whatever it is.
    """
    cluster = FakeCluster(
        {**copy.deepcopy(CONFIGURATION), "metadata": {"name": WEBHOOK, "namespace": ""}}
    )
    keepers = [CertificateKeeper(cluster, Duty(), loop_clock()) for _ in range(3)]

    await keepers[0].tend()
    async with background(*(keeper.run() for keeper in keepers)):
        await passing(600.0)

    assert cluster.called("patch_webhook_configuration") == 1
    bundles = {
        each["clientConfig"]["caBundle"]
        for each in cluster.get("MutatingWebhookConfiguration", WEBHOOK)["webhooks"]
    }
    assert len(bundles) == 1
    assert {each["clientConfig"]["service"]["path"] for each in (PODS, WARNING)} == {"/mutate"}


@pytest.mark.parametrize(
    ("group", "resource"), [(group, kind) for group, kinds in WORKLOADS.items() for kind in kinds]
)
def test_r07_whoever_writes_a_workload_is_told_of_a_misplaced_annotation(
    group: str, resource: str
) -> None:
    """And of what its Pods are warned of, which nobody else would see.

    Red: in webhook/review.py let ``_writes_a_workload`` ask for UPDATE alone.
    """
    template = build.pod(policy="binpak", **SMALL)
    spec: dict[str, Any] = {"template": template}
    if resource == "cronjobs":
        spec = {"jobTemplate": {"spec": spec}}
    written = {"hami.io/node-scheduler-policy": "spread"}
    workload = {"kind": "W", "metadata": {"name": "w", "annotations": written}, "spec": spec}
    kind = {"group": group, "version": "v1", "resource": resource}

    told = orjson.loads(answer(orjson.dumps(review(workload, resource=kind)), Settings()).body)

    assert told["response"]["allowed"] is True
    misplaced, misspelt = told["response"]["warnings"]
    assert "template.metadata.annotations" in misplaced
    assert "did you mean binpack?" in misspelt
