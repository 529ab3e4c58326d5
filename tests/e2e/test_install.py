"""`kubectl apply -k` and `kubectl delete -k` of every overlay, by kubectl on a real API server.

The controller manager makes Pods of what is applied; nothing runs in them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

import build
from callers import Caller, Json
from controlplane.launcher import ROOT, ControlPlane

OVERLAYS: Final = [
    "default",
    "ha",
    "cert-manager",
    "admission-policy",
    "migration",
    "gates",
    "gates-ha",
    "gates-admission-policy",
    "both-doors",
]
SYSTEM: Final = "cardwise-system"
NODE: Final = "node-a"
MOVED_NODE: Final = "node-b"
"""Taken over from HAMi: while that runs beside us, our agent goes to nodes of this label alone."""


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    """A cluster without Cardwise, with cert-manager's kinds."""
    with ControlPlane.start(kwok=False) as plane:
        plane.apply([cert_manager("Issuer", ISSUER), cert_manager("Certificate", CERTIFICATE)])
        plane.kubectl("wait", "--for=condition=Established", "--all", "crd", "--timeout=30s")
        plane.add_node(NODE, gpus=40, labels={"gpu": "on"})
        plane.add_node(MOVED_NODE, gpus=40, labels={"gpu": "on", "cardwise.dev/agent": "on"})
        plane.kubectl("create", "clusterrolebinding", "jane", "--clusterrole=edit", "--user=jane")
        yield plane


def text(*names: str) -> Json:
    return {name: {"type": "string"} for name in names}


def thing(properties: Json) -> Json:
    return {"type": "object", "properties": properties}


ISSUER: Final = {"selfSigned": thing({}), "ca": thing(text("secretName"))}
CERTIFICATE: Final = {
    **text("commonName", "secretName", "duration", "renewBefore"),
    "isCA": {"type": "boolean"},
    "dnsNames": {"type": "array", "items": {"type": "string"}},
    "usages": {"type": "array", "items": {"type": "string"}},
    "privateKey": thing({**text("algorithm", "rotationPolicy"), "size": {"type": "integer"}}),
    "issuerRef": thing(text("group", "kind", "name")),
}
"""The fields of cert-manager's kinds that are used, from its reference: kubectl refuses others."""


def cert_manager(kind: str, fields: Json) -> Json:
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": thing({"spec": thing(fields)})},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def apply(cp: ControlPlane, overlay: str, *more: str) -> Any:
    return cp.kubectl("apply", f"-k={ROOT / 'manifests/overlays' / overlay}", *more)


def delete(cp: ControlPlane, overlay: str) -> None:
    path = ROOT / "manifests/overlays" / overlay
    cp.kubectl("delete", f"-k={path}", "--timeout=60s", timeout=90)


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, cp: ControlPlane) -> Iterator[str]:
    """One overlay, applied; taken away afterwards where no test did it."""
    name: str = request.param
    said = apply(cp, name)
    assert said.stderr == "", "kubectl warns of something"
    yield name
    if left(cp):
        delete(cp, name)


only_the_default = pytest.mark.parametrize("overlay", ["default"], indirect=True, scope="module")


def left(cp: ControlPlane) -> set[str]:
    """Everything in the cluster that bears our name, of whatever kind."""
    kinds = cp.kubectl("api-resources", "--verbs=list", "-o=name").split()
    asked = ",".join(kind for kind in kinds if not kind.startswith("events"))
    everything = cp.kubectl("get", asked, "-A", "-o=name", "--ignore-not-found")
    return {line for line in everything.splitlines() if "cardwise" in line}


def test_the_workloads_become_pods(cp: ControlPlane, overlay: str) -> None:
    pods_of = {
        "cardwise-scheduler": 2 if overlay.endswith("ha") else 1,
        "cardwise-agent": 1 if overlay == "migration" else 2,
    }
    if not overlay.endswith("admission-policy"):
        pods_of["cardwise-webhook"] = 2

    def made() -> dict[str, int]:
        pods = json.loads(cp.kubectl("get", "pods", f"-n={SYSTEM}", "-o=json"))["items"]
        owners = [pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods]
        return {name: owners.count(name) for name in set(owners)}

    cp.wait("Pods of every workload", lambda: made() == pods_of, 60)


def test_what_is_applied_is_what_is_stored(cp: ControlPlane, overlay: str) -> None:
    differs = cp.kubectl("diff", f"-k={ROOT / 'manifests/overlays' / overlay}", check=False)

    assert (differs, differs.stderr, differs.returncode) == ("", "", 0)


@only_the_default
def test_applying_again_keeps_the_authority_that_was_filled_in(
    cp: ControlPlane, overlay: str
) -> None:
    path = "/webhooks/0/clientConfig/caBundle"
    bundle = "Zm9yIGEgdGVzdA=="
    what = ("mutatingwebhookconfiguration", "cardwise-webhook")
    patch = json.dumps([{"op": "add", "path": path, "value": bundle}])
    cp.kubectl("patch", *what, "--type=json", f"--patch={patch}")

    for more in ((), ("--server-side", "--force-conflicts")):
        apply(cp, overlay, *more)
        kept = cp.kubectl("get", *what, "-o=jsonpath={.webhooks[0].clientConfig.caBundle}")
        assert kept == bundle


@only_the_default
def test_controller_and_webhook_hold_the_level_restricted_and_the_agent_cannot(
    cp: ControlPlane, overlay: str
) -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "strict", "labels": restricted}
    cp.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
    built = cp.kubectl("kustomize", str(ROOT / "manifests/overlays" / overlay))

    said = {}
    for workload in yaml.safe_load_all(built):
        if workload["kind"] not in ("Deployment", "DaemonSet"):
            continue
        name = workload["metadata"]["name"]
        pod = {**workload["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {**pod["metadata"], "name": name, "namespace": "strict"}
        said[name] = Caller.administrator(cp).create_pod(pod, dry_run=True).message

    assert said.keys() == {"cardwise-scheduler", "cardwise-webhook", "cardwise-agent"}
    assert said["cardwise-scheduler"] == said["cardwise-webhook"] == ""
    assert re.search(r'violates PodSecurity "restricted.*hostPath', said["cardwise-agent"])


def test_it_goes_without_a_trace_and_stands_in_no_pods_way(cp: ControlPlane, overlay: str) -> None:
    administrator = Caller.administrator(cp)
    tenant = build.pod("tenant", gpus=None, node=NODE, allocated="GPU-a,NVIDIA,1000,0:;")
    assert administrator.create_pod(tenant).message == ""

    delete(cp, overlay)

    assert left(cp) == set()
    user = Caller.person(cp, "jane")
    for name, cards in (("cpu", None), ("gpu", 1)):
        stored = user.create_pod(build.pod(name, gpus=cards, scheduler=""))
        assert stored.message == ""
        assert stored.body["spec"]["schedulerName"] == "default-scheduler"
    cp.kubectl("delete", "pod", "--all", "--grace-period=0", "--force", "--timeout=30s")
