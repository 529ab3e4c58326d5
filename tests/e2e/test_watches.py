"""Watches that end, fall silent, or are never answered, and what else could leave us blind.

Each is found out and made up for without a restart, as far as Kopf can go on. The last resort, a
process whose watches stay dead, takes two minutes: it runs beside the other tests.
"""

import time
from collections.abc import Iterator

import pytest

import build
import fault_proxy
from blind import Blind
from bookings import agree, in_cluster, in_ledger
from cardwise.controller.watching.handlers import DEAD_SECONDS
from cardwise.controller.watching.watch import SILENCE_SECONDS
from cardwise.kube.client import LIST_SECONDS
from cardwise.names import USE_UUID, Reason
from controlplane.launcher import SYSTEM_NAMESPACE
from fault_proxy import FaultProxy, Plan
from stage import GPUNODES, Json, Stage

SLACK_SECONDS = 10.0
"""Kopf's wait before it asks again, a list, and kube-scheduler's next attempt."""
DOUBT_SECONDS = 3.0
"""After Kopf's first lists there is one of ours."""
GROUP = "kopf.dev"
PEERINGS = f"/apis/{GROUP}/v1/clusterkopfpeerings"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def one_waits(stage: Stage) -> None:
    """Pod ``t`` has the one card, ``p`` waits for it."""
    stage.node("node-a", 1)
    stage.pod("t", gpumem=1000, policy="mutex")
    stage.placed("t")
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.pending("p", Reason.EXCLUSIVE)


def cordon(stage: Stage, node: str, *cards: str) -> None:
    """Close these cards of a node, and open the others."""
    stage.patch(f"{GPUNODES}/{node}", {"spec": {"cordonedCards": list(cards)}})


# The last resort ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blind(theatre: Stage) -> Iterator[Blind]:
    plan = Plan(watches={fault_proxy.FROZEN: 1.0})
    with FaultProxy(theatre.cp, plan, name="fault-proxy-blind") as proxy:
        blind = Blind(theatre, proxy)
        yield blind
        blind.end()


def test_a_process_whose_watches_are_dead_is_live_at_first(blind: Blind) -> None:
    blind.stage.cp.wait("a heartbeat", blind.heartbeat, 20)

    assert blind.get("livez") == (200, "ok")


# The end of a watch -------------------------------------------------------------------------------


# Red: no doubt after a line of a list (`handlers._handler`), for a watch that is gone.
@pytest.mark.both_doors
@pytest.mark.parametrize("fault", [fault_proxy.BROKEN, fault_proxy.GONE, fault_proxy.CUT])
def test_what_happens_while_a_watch_is_away_is_found_out(
    stage: Stage, proxy: FaultProxy, fault: str
) -> None:
    stage.node("node-a", 1)
    for turn in range(3):
        stage.pod(f"t{turn}", gpumem=1000, policy="mutex")
        stage.placed(f"t{turn}")
        stage.pod(f"p{turn}", gpumem=1000, policy="mutex")
        stage.pending(f"p{turn}", Reason.EXCLUSIVE)
        proxy.plan(Plan(seed=turn, watches={fault: 1.0}))
        stage.delete(f"t{turn}")
        time.sleep(0.5)
        proxy.plan(Plan())

        stage.placed(f"p{turn}", within=10)
        stage.delete(f"p{turn}")


# Red: take no Pod from the first list (`Mirror.reconcile`); for one of them, wait for Kopf's own
# end alone (`handlers.watch`).
@pytest.mark.both_doors(gates_long=True)
@pytest.mark.parametrize(
    "watches",
    [
        pytest.param({fault_proxy.ILL: 1.0}, id="all at once"),
        # Kopf waits for the others then, and they for it.
        pytest.param({fault_proxy.ILL: 0.3, fault_proxy.BROKEN: 0.7}, id="one of them"),
    ],
)
def test_a_watch_that_can_not_go_on_ends_the_process_soon_and_the_next_lists_anew(
    stage: Stage, proxy: FaultProxy, watches: dict[str, float]
) -> None:
    stage.node("node-a", 3)
    for number in range(2):
        stage.pod(f"t{number}", gpumem=1000, policy="mutex")
        assert stage.placed(f"t{number}") == number

    proxy.plan(Plan(seed=3, watches=watches))
    status = stage.controller.wait(40)
    proxy.plan(Plan())

    assert status == 1, "somebody restarts it"
    # While nobody looks one goes, one comes, and a card is closed.
    stage.delete("t0")
    stage.tenant("h", build.allocation("GPU-node-a-c"))
    cordon(stage, "node-a", "GPU-node-a-a")
    stage.start_controller(kubeconfig=proxy.through(stage.account))
    assert in_ledger(stage) == in_cluster(stage)
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.pending("p", Reason.EXCLUSIVE if stage.gates else "0/1 nodes are available")
    cordon(stage, "node-a")
    assert stage.placed("p") == 0


# Silence ------------------------------------------------------------------------------------------


# Red: inactivity_timeout = 1000 (`handlers.settings`).
@pytest.mark.both_doors(gates_long=True)
def test_watches_that_fall_silent_or_are_never_answered_are_noticed(
    stage: Stage, proxy: FaultProxy
) -> None:
    stage.node("node-b", 1)
    cordon(stage, "node-b", "GPU-node-b-a")
    stage.pod("r", gpumem=1000, annotations={USE_UUID: "GPU-node-b-a"})
    stage.pending("r", Reason.CARD_CORDONED)
    one_waits(stage)
    time.sleep(DOUBT_SECONDS)
    proxy.silence("/pods")
    proxy.plan(Plan(watches={fault_proxy.FROZEN: 1.0}))  # the others are asked for anew
    stage.cp.wait("them to freeze", lambda: proxy.met()[fault_proxy.FROZEN] == proxy.kinds - 1, 20)
    proxy.plan(Plan())  # those that wait for an answer wait on

    stage.delete("t")
    cordon(stage, "node-b")
    stage.stays("p", 2)
    assert stage.placement("r") is None

    stage.placed("p", within=DEAD_SECONDS + SLACK_SECONDS)
    stage.placed("r", within=SLACK_SECONDS)
    assert agree(stage)
    assert stage.controller.poll() is None


# Red: request_timeout = 300 (`handlers.settings`).
@pytest.mark.both_doors(gates_long=True)
def test_lists_that_are_never_answered_are_asked_for_again(stage: Stage, proxy: FaultProxy) -> None:
    one_waits(stage)
    time.sleep(DOUBT_SECONDS)
    requests = {fault_proxy.FROZEN: 1.0}
    proxy.plan(Plan(requests=requests, watches={fault_proxy.GONE: 1.0}))
    stage.cp.wait("the lists", lambda: proxy.met()[fault_proxy.FROZEN] >= proxy.kinds, 20)
    assert proxy.watches() == 0
    proxy.plan(Plan())

    stage.delete("t")
    stage.stays("p", 2)

    stage.placed("p", within=LIST_SECONDS + SLACK_SECONDS)
    stage.cp.wait("them to agree", lambda: agree(stage), SLACK_SECONDS)
    assert stage.controller.poll() is None


# Red: WRITE_SECONDS = 200 (`tenure`).
@pytest.mark.both_doors
def test_a_write_that_is_never_answered_is_sent_again(stage: Stage, proxy: FaultProxy) -> None:
    stage.node("node-a", 1)
    proxy.plan(Plan(requests={fault_proxy.FROZEN: 1.0}))
    stage.pod("p", gpumem=1000, policy="mutex")
    stage.stays("p", 3)
    assert proxy.met()[fault_proxy.FROZEN] >= 2  # the write, and a look at the Pod
    proxy.plan(Plan())

    stage.placed("p", within=SLACK_SECONDS)

    stage.cp.wait("them to agree", lambda: agree(stage), SLACK_SECONDS)


# Kopf's peering -----------------------------------------------------------------------------------


def crd(kind: str, scope: str) -> Json:
    """A CustomResourceDefinition as Kopf's documentation tells people to install it."""
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


@pytest.fixture
def paused(stage: Stage) -> Iterator[None]:
    """Kopf's peering, in which somebody of the highest priority wants all others to pause.

    The controller has the rights to follow it, as an administrator's account would.
    """
    crds = [crd("ClusterKopfPeering", "Cluster"), crd("KopfPeering", "Namespaced")]
    name = {"metadata": {"name": "kopf-peering"}}
    rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kopf-peering"}
    us = {"kind": "ServiceAccount", "name": "cardwise-controller", "namespace": SYSTEM_NAMESPACE}
    stage.cp.request("POST", ROLES, {**name, "rules": rules})
    stage.cp.request("POST", ROLE_BINDINGS, {**name, "roleRef": role, "subjects": [us]})
    for each in crds:
        stage.cp.request("POST", CRDS, each)
    other = {"priority": 10_000, "lifetime": 3600}
    peering = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "default"},
        "status": {"somebody": other},
    }
    stage.cp.wait("it to be created", lambda: stage.cp.request("POST", PEERINGS, peering), 20)
    stage.controller.terminate()
    stage.start_controller()
    yield
    for each in crds:
        stage.cp.request("DELETE", f"{CRDS}/{each['metadata']['name']}")
    stage.cp.request("DELETE", f"{ROLES}/kopf-peering")
    stage.cp.request("DELETE", f"{ROLE_BINDINGS}/kopf-peering")
    stage.controller.kill()


# Red: standalone = False (`handlers.settings`).
@pytest.mark.usefixtures("paused")
def test_kopfs_peering_does_not_pause_the_controller(stage: Stage) -> None:
    one_waits(stage)
    stage.delete("t")
    stage.placed("p", within=SLACK_SECONDS)

    (peering,) = stage.cp.request("GET", PEERINGS)["items"]
    assert peering["status"].keys() == {"somebody"}, "it took part in it"


# The last resort, two minutes later ---------------------------------------------------------------


# Red: SILENCE_SECONDS = 1000 (`watch`).
def test_a_process_whose_watches_stay_dead_is_not_live_and_its_successor_knows_the_truth(
    stage: Stage, blind: Blind
) -> None:
    one_waits(stage)
    written = blind.heartbeat()
    stage.cp.wait(
        "it to be found dead", lambda: blind.get("livez")[0] != 200, SILENCE_SECONDS + SLACK_SECONDS
    )
    assert "the watch is silent: no heartbeat came back" in blind.get("livez")[1]
    assert blind.get("readyz") == (200, "ok")
    assert blind.heartbeat() >= written != ""

    blind.process.kill()  # as kubelet does
    blind.proxy.plan(Plan())
    blind.start()

    assert in_ledger(stage, blind.url) == in_cluster(stage)
    assert blind.get("livez") == (200, "ok")
    stage.delete("t")
    stage.placed("p", within=SLACK_SECONDS)
    stage.cp.wait(
        "it to hear of that", lambda: in_ledger(stage, blind.url) == in_cluster(stage), 10
    )
