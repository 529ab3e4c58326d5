"""The rights of our accounts, by the API server's audit log: none is missing, none is in vain.

At each door one replica runs as it is shipped: it competes for the Lease and writes its own Pod's
heartbeat.
What the whole run of the other end-to-end tests is refused, is checked at their end (conftest).
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

import audit
from cardwise import names
from cardwise.names import Door, EventReason, Reason
from controlplane.launcher import SYSTEM_NAMESPACE, free_port
from installation import SYSTEM, WORKLOADS
from stage import Json, Stage

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
OF_THE_CLUSTER: Final = {
    "system:kube-scheduler",
    "system:volume-scheduler",
    "extension-apiserver-authentication-reader",
}
"""Roles that every cluster has for its own kube-scheduler; they are not ours to narrow."""


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one kind of object."""

    account: str
    group: str
    resource: str
    verb: str
    namespace: str = ""
    """Empty: everywhere."""
    name: str = ""
    """Empty: any."""


UNUSED: Final = {
    Right("cardwise-agent", names.API_GROUP, "allocations", "write"): (
        "nothing is stored there: the policy cardwise-allocations asks for this right"
    ),
    Right("cardwise-controller", names.API_GROUP, "allocations", "write"): (
        "nothing is stored there: the policy cardwise-allocations asks for this right"
    ),
    Right("cardwise-agent", "apps", "daemonsets", "get", SYSTEM_NAMESPACE, "cardwise-agent"): (
        "an agent that ends asks whether it is uninstalled: `test_advertise` ends some"
    ),
    Right("cardwise-agent", "events.k8s.io", "events", "create", "default"): (
        "a card that falls ill is told of: `test_agent` makes some ill"
    ),
    **dict.fromkeys(
        (
            Right("cardwise-agent", "", "pods", "list"),
            Right("cardwise-agent", "", "pods/status", "patch"),
            Right("cardwise-agent", "events.k8s.io", "events", "create"),
        ),
        "KWOK starts no container, so nobody asks an agent: `tests/e2e_node` has a kubelet",
    ),
    Right("cardwise-controller", "", "pods", "get"): (
        "a write whose answer was lost is looked up: `test_faults` loses them"
    ),
    Right(
        "cardwise-controller", "", "secrets", "update", SYSTEM_NAMESPACE, "cardwise-webhook-ca"
    ): "a CA is renewed every four years: `test_admission_trouble` breaks one",
}
"""Rights that no quiet day uses, and why they are needed."""
UNUSED_AT: Final = {
    Door.EXTENDER: {
        **UNUSED,
        **dict.fromkeys(
            (
                Right("cardwise-agent", "", "nodes", "watch"),
                Right("cardwise-agent", "", "nodes/status", "patch"),
            ),
            "nodes advertise by the door of gates alone",
        ),
    },
    Door.GATES: {
        **UNUSED,
        Right("cardwise-controller", "", "pods/eviction", "create"): (
            "a Pod that is refused on its node for long is evicted: the contract of the cluster"
        ),
    },
}


class Shipped(Stage):
    """One replica with its Lease and its own Pod."""

    leader_election = True

    def start_cardwise(self) -> None:
        """Start both containers; before that, somebody broke the webhook's certificate."""
        self._port, self._reports_port = free_port(), free_port()
        broken = {"tls.crt": "", "tls.key": ""}
        secret = {"metadata": {"name": "cardwise-webhook-tls"}, "type": "kubernetes.io/tls"}
        self.cp.request("POST", f"{SYSTEM}/secrets", {**secret, "data": broken})
        workload = self.cp.request("GET", f"{WORKLOADS}/deployments/cardwise-scheduler")
        pod = {**workload["spec"]["template"]}
        pod["metadata"] = {**pod["metadata"], "name": "cardwise-scheduler-0"}
        stored = self.cp.request("POST", f"{SYSTEM}/pods", pod)["metadata"]
        self.environment = {
            "POD_NAMESPACE": stored["namespace"],
            "POD_NAME": stored["name"],
            "POD_UID": stored["uid"],
        }
        self.launch_controller()
        if self.gates:
            self.scheduler = self.cp.start_default_scheduler()
        else:
            self.scheduler = self.cp.start_scheduler(
                extender_url=self.extender_url,
                leader_elect=True,
                configuration=self.installation.scheduler,
            )
        self.ready()


@pytest.fixture(scope="module", params=list(Door))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A cluster that has seen a day's work."""
    with Shipped.raised(audit=True, door=request.param) as raised:
        work(raised)
        yield raised


def work(stage: Stage) -> None:
    """Cards come, Pods are placed, one waits and is woken, another is broken twice by hand."""
    stage.node("node-a", "t4x4")
    for card in range(4):
        stage.pod(f"p{card}", gpumem=1000)
        stage.placed(f"p{card}", within=60)
    stage.pod("waits", gpumem=1000, policy="mutex")
    stage.event("waits", Reason.EXCLUSIVE)
    stage.delete("p2")
    assert stage.placed("waits") == 2
    stage.settled()
    stage.tenant("broken", "no allocation")
    stage.event("broken", EventReason.UNREADABLE_ALLOCATION)
    again = {names.ALLOCATED: "and no better"}
    stage.patch(stage.path("broken"), {"metadata": {"annotations": again}})

    def told_again() -> bool:
        return "and no better" in stage.event("broken", EventReason.UNREADABLE_ALLOCATION)

    stage.cp.wait("the event to tell it again", told_again, 30)
    if stage.gates:
        stage.pod("alone", gpumem=1000, labels={names.POD_GROUP_LABEL: "unheard-of"})
        stage.event("alone", EventReason.GANG_INCOMPLETE)


def granted(stage: Stage) -> Iterator[Right]:
    """Every right that the installed roles give to our accounts."""
    for kind in ("rolebindings", "clusterrolebindings"):
        for binding in stage.cp.request("GET", f"{RBAC}/{kind}")["items"]:
            accounts = [
                subject["name"]
                for subject in binding.get("subjects", ())
                if subject.get("namespace") == SYSTEM_NAMESPACE
            ]
            role = binding["roleRef"]
            if accounts and role["name"] not in OF_THE_CLUSTER:
                namespace = binding["metadata"].get("namespace", "")
                for rule in role_of(stage, role, namespace)["rules"]:
                    for account in accounts:
                        yield from rights_of(rule, account, namespace)


def role_of(stage: Stage, role: Json, namespace: str) -> Json:
    where = f"namespaces/{namespace}/roles" if role["kind"] == "Role" else "clusterroles"
    found: Json = stage.cp.request("GET", f"{RBAC}/{where}/{role['name']}")
    return found


def rights_of(rule: Json, account: str, namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield Right(account, group, resource, verb, namespace, name)


def used(stage: Stage) -> set[Right]:
    """Every right that was used, by each of the ways in which it may be granted."""
    found = set()
    for request in audit.requests(stage.cp):
        what = request.get("objectRef", {})
        asked = (
            audit.account(request),
            what.get("apiGroup", ""),
            audit.kind(request),
            request["verb"],
        )
        for namespace in {"", what.get("namespace", "")}:
            for name in {"", what.get("name", "")}:
                found.add(Right(*asked, namespace, name))
    return found


def test_no_right_is_missing(stage: Stage) -> None:
    assert audit.refused(stage.cp) == set()


def test_no_right_is_granted_in_vain(stage: Stage) -> None:
    rights, unused = set(granted(stage)), UNUSED_AT[stage.door].keys()

    assert len(rights) > 25
    assert sorted(rights - used(stage) - unused) == []
    assert sorted(unused - rights) == []


def test_the_webhook_asks_the_api_server_nothing(stage: Stage) -> None:
    assert {audit.account(request) for request in audit.requests(stage.cp)} == {
        "cardwise-controller",
        "cardwise-agent",
    }


def test_a_certificate_that_somebody_broke_was_mended(stage: Stage) -> None:
    data = stage.cp.request("GET", f"{SYSTEM}/secrets/cardwise-webhook-tls")["data"]

    assert base64.b64decode(data["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
