"""What agents advertise on their Nodes, with a real API server and a stock kube-scheduler.

The nodes are KWOK's, so nobody copies capacity to allocatable; the agents are the real program with
simulated cards, under their account and by tokens that are bound to their nodes.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from audit import ACCOUNTS
from callers import MERGE, Caller
from cardwise import names
from cardwise.kube import connect
from cardwise.kube.nodestatus import KubeNodeStatus
from cardwise.names import (
    RESOURCE_CORES,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_PRIORITY,
    SYSTEM_NAMESPACE,
)
from cardwise.wire.nodestatus import advertised, patch_of
from contract.nodestatus import NodeStatusContract
from controlplane.launcher import ROOT, ApiError, ControlPlane, Process
from installation import PROGRAMS, WORKLOADS

Json = dict[str, Any]

DAEMONSET: Final = f"{WORKLOADS}/daemonsets/cardwise-agent"
GATES: Final = {"scheduling": {"door": "gates"}, "agent": {"reportSeconds": 1}}
EXTENDER: Final = {"agent": {"reportSeconds": 1}}
TWO_CARDS: Final[Json] = {
    "kind": "GPUNode",
    "metadata": {"name": "any"},
    "status": {
        "cards": [
            {"uuid": "GPU-a", "index": 0, "memoryMiB": 15360},
            {"uuid": "GPU-b", "index": 1, "memoryMiB": 15360},
        ]
    },
}
OF_TWO: Final = {
    RESOURCE_COUNT: "20",
    RESOURCE_MEMORY: "30720",
    RESOURCE_CORES: "200",
    RESOURCE_MEMORY_PERCENT: "1P",
    RESOURCE_PRIORITY: "1P",
}
KUBELETS: Final = {key: value for key, value in OF_TWO.items() if key != RESOURCE_COUNT}
"""Likewise, where ``nvidia.com/gpu`` is a device plugin's."""
APPLY: Final = "application/apply-patch+yaml"

_numbers = count(1)


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    """A cluster with our manifests, and a stock kube-scheduler that knows no extender of ours."""
    with ControlPlane.start() as plane:
        plane.apply(ROOT / "manifests/overlays/default")
        plane.kubectl("delete", "mutatingwebhookconfiguration", "cardwise-webhook")
        plane.kubectl("scale", f"-n={SYSTEM_NAMESPACE}", "deployment", "--all", "--replicas=0")
        configuration = plane.directory / "stock-scheduler.yaml"
        # The launcher wants an extender: this one is for Pods that nobody creates.
        nobody = {"urlPrefix": "", "managedResources": [{"name": "example.com/nothing"}]}
        configuration.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {},
                    "extenders": [{**nobody, "filterVerb": "filter"}],
                }
            )
        )
        plane.start_scheduler(extender_url="http://127.0.0.1:1", configuration=configuration)
        plane.add_node("guarded")
        path = "/api/v1/nodes/guarded/status?dryRun=All"
        label = {"metadata": {"labels": {"a": "b"}}}
        caller = of_no_node(plane)
        plane.wait(
            "the guard", lambda: not caller.ask("PATCH", path, label, content_type=MERGE).ok, 30
        )
        remove(plane, "/api/v1/nodes/guarded")
        yield plane


@pytest.fixture
def node(cp: ControlPlane) -> Iterator[str]:
    """A node of KWOK's without any resource of ours."""
    name = f"n{next(_numbers)}"
    cp.add_node(name)
    yield name
    remove(cp, f"/api/v1/nodes/{name}")


@pytest.fixture(autouse=True)
def daemonset(cp: ControlPlane) -> Iterator[None]:
    """It is there; a test may delete it."""
    found = cp.request("GET", DAEMONSET)
    yield
    with contextlib.suppress(ApiError):
        cp.request("GET", DAEMONSET)
        return
    kept = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
    cp.request("POST", DAEMONSET.rpartition("/")[0], {**found, "metadata": kept})


class Agents:
    """Agents of nodes, as their DaemonSet would run them."""

    def __init__(self, cp: ControlPlane, directory: Path) -> None:
        self.cp = cp
        self.directory = directory
        self.processes: list[Process] = []
        self._kubeconfigs: dict[str, Path] = {}

    def start(self, node: str, settings: Json = GATES, profile: Json = TWO_CARDS) -> Process:
        """Start one; its cards can be changed by ``publish``."""
        self.publish(node, profile)
        config = self.directory / f"{node}.config.yaml"
        config.write_text(yaml.safe_dump(settings))
        argv = [
            str(PROGRAMS / "cardwise-agent"),
            f"--nvml=simulated:{self._profile(node)}",
            f"--node-name={node}",
            f"--config={config}",
            f"--kubeconfig={self.kubeconfig(node)}",
        ]
        process = self.cp.start_process(
            f"agent-{node}", argv, env={"POD_NAMESPACE": SYSTEM_NAMESPACE}
        )
        self.processes.append(process)
        return process

    def publish(self, node: str, profile: Json) -> None:
        """What the node's driver says."""
        self._profile(node).write_text(yaml.safe_dump(profile))

    def kubeconfig(self, node: str) -> Path:
        """The agents' account, by a token that is bound to this node."""
        if node not in self._kubeconfigs:
            pod = f"agent-{node}"
            container = {"name": "agent", "image": "cardwise"}
            spec = {
                "nodeName": node,
                "serviceAccountName": "cardwise-agent",
                "containers": [container],
            }
            pods = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
            self.cp.request("POST", pods, {"metadata": {"name": pod}, "spec": spec})
            found = self.cp.service_account_kubeconfig("cardwise-agent", pod=pod)
            self._kubeconfigs[node] = found
        return self._kubeconfigs[node]

    def _profile(self, node: str) -> Path:
        return self.directory / f"{node}.profile.yaml"


@pytest.fixture
def agents(cp: ControlPlane, tmp_path: Path) -> Iterator[Agents]:
    agents = Agents(cp, tmp_path)
    yield agents
    for process in agents.processes:
        process.kill()


def remove(cp: ControlPlane, path: str) -> None:
    with contextlib.suppress(ApiError):
        cp.request("DELETE", path, {"gracePeriodSeconds": 0})


def found(cp: ControlPlane, node: str) -> Json:
    got: Json = cp.request("GET", f"/api/v1/nodes/{node}")
    return got


def resources(cp: ControlPlane, node: str) -> Json:
    """Ours on the Node, where both sides agree."""
    status = found(cp, node)["status"]
    ours = [
        {key: value for key, value in status[side].items() if key in names.RESOURCES}
        for side in ("capacity", "allocatable")
    ]
    assert ours[0] == ours[1]
    return ours[0]


def advertises(cp: ControlPlane, node: str, want: Mapping[str, str], within: float = 30) -> float:
    """Wait until the Node has just these of ours; after how many seconds."""
    began = time.monotonic()
    cp.wait(f"{node} to advertise {want}", lambda: settled(cp, node) == want, within)
    return time.monotonic() - began


def settled(cp: ControlPlane, node: str) -> Json | None:
    """Ours on the Node; None while the two sides differ."""
    with contextlib.suppress(AssertionError):
        return resources(cp, node)
    return None


def write(cp: ControlPlane, node: str, amounts: Mapping[str, str | None]) -> None:
    """What kubelet does to a status."""
    change = {"status": {"capacity": amounts, "allocatable": amounts}}
    path = f"/api/v1/nodes/{node}/status?fieldManager=kubelet"
    cp.request("PATCH", path, change, content_type=MERGE)


# What is advertised -------------------------------------------------------------------------------


def test_a_node_advertises_what_its_cards_come_to(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agents.start(node)

    advertises(cp, node, OF_TWO)

    described = cp.kubectl("describe", "node", node)
    assert described.count("nvidia.com/gpumem:             30720") == 2, described


def test_what_kubelet_sets_to_zero_comes_back_within_five_seconds(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agents.start(node)
    advertises(cp, node, OF_TWO)

    write(cp, node, dict.fromkeys(KUBELETS, "0"))

    assert advertises(cp, node, OF_TWO) < 5


def test_a_node_that_is_made_anew_advertises_again(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agents.start(node)
    advertises(cp, node, OF_TWO)
    cp.request("DELETE", f"/api/v1/nodes/{node}")

    cp.add_node(node)

    advertises(cp, node, OF_TWO)


def test_it_follows_a_change_of_the_cards(cp: ControlPlane, node: str, agents: Agents) -> None:
    agents.start(node)
    advertises(cp, node, OF_TWO)

    agents.publish(node, {**TWO_CARDS, "status": {"cards": TWO_CARDS["status"]["cards"][:1]}})

    half = {RESOURCE_COUNT: "10", RESOURCE_MEMORY: "15360", RESOURCE_CORES: "100"}
    advertises(cp, node, {**OF_TWO, **half})


def test_a_device_plugins_count_stays_kubelets(cp: ControlPlane, node: str, agents: Agents) -> None:
    write(cp, node, {RESOURCE_COUNT: "7"})
    agents.start(node)
    advertises(cp, node, {**KUBELETS, RESOURCE_COUNT: "7"})

    write(cp, node, {RESOURCE_COUNT: "0", RESOURCE_MEMORY: "0"})

    advertises(cp, node, {**KUBELETS, RESOURCE_COUNT: "0"})
    assert advertised(found(cp, node)) == KUBELETS.keys()


def test_a_device_plugin_that_comes_later_takes_the_count_over(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agents.start(node)
    advertises(cp, node, OF_TWO)

    write(cp, node, {RESOURCE_COUNT: "7", RESOURCE_MEMORY: "0"})

    advertises(cp, node, {**KUBELETS, RESOURCE_COUNT: "7"})


# Taking it back -----------------------------------------------------------------------------------


def test_a_rollout_leaves_what_is_advertised(cp: ControlPlane, node: str, agents: Agents) -> None:
    agent = agents.start(node)
    advertises(cp, node, OF_TWO)

    agent.terminate()

    assert resources(cp, node) == OF_TWO
    assert " no nvidia.com" not in agent.tail()


def test_it_is_taken_back_when_the_daemonset_goes(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    write(cp, node, {"example.com/other": "3"})
    agent = agents.start(node)
    advertises(cp, node, OF_TWO)
    cp.kubectl("delete", "daemonset", f"-n={SYSTEM_NAMESPACE}", "cardwise-agent")

    agent.terminate()

    assert resources(cp, node) == {}
    assert found(cp, node)["status"]["capacity"]["example.com/other"] == "3"


def test_with_the_extender_alone_what_was_advertised_is_taken_back(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agent = agents.start(node)
    advertises(cp, node, OF_TWO)
    agent.terminate()

    agents.start(node, EXTENDER)

    advertises(cp, node, {})


def test_with_both_doors_it_is_advertised(cp: ControlPlane, node: str, agents: Agents) -> None:
    agents.start(node, {"scheduling": {"bothDoors": True}})

    advertises(cp, node, OF_TWO)


def test_what_a_dead_agent_left_is_removed_by_one_command_of_the_documentation(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    agent = agents.start(node)
    advertises(cp, node, OF_TWO)
    agent.kill()
    (command,) = [
        line.strip()
        for line in (ROOT / "docs/installation.md").read_text().splitlines()
        if line.strip().startswith("kubectl patch node NODE")
    ]
    subcommand = command.removeprefix("kubectl ").replace("NODE", node)
    words, _, patch = subcommand.partition(" -p ")

    cp.kubectl(*words.split(), "-p", patch.strip("'"))

    # The count is a device plugin's, on a node that has a kubelet.
    assert resources(cp, node) == {RESOURCE_COUNT: "20"}


# What kube-scheduler makes of it ------------------------------------------------------------------


def pinned(node: str) -> Json:
    """A Pod with cards as the door of gates leaves it: one node may take it."""
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    limits = {
        RESOURCE_COUNT: "1",
        RESOURCE_MEMORY: "15360",
        RESOURCE_CORES: "100",
        RESOURCE_PRIORITY: "1",
    }
    return {
        "metadata": {"name": f"pinned-to-{node}"},
        "spec": {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            },
            "containers": [{"name": "app", "image": "app", "resources": {"limits": limits}}],
        },
    }


def test_a_stock_kube_scheduler_takes_a_pod_with_cards_once_its_node_advertises_them(
    cp: ControlPlane, node: str, agents: Agents
) -> None:
    pod = pinned(node)
    pods = "/api/v1/namespaces/default/pods"
    cp.wait("the default account", lambda: cp.request("POST", pods, pod), 30)
    path = f"{pods}/{pod['metadata']['name']}"

    def told() -> str:
        conditions = cp.request("GET", path)["status"].get("conditions", ())
        return "".join(str(each.get("message")) for each in conditions)

    cp.wait("a refusal", lambda: f"Insufficient {RESOURCE_MEMORY}" in told(), 30)
    agents.start(node)

    cp.wait("a binding", lambda: cp.request("GET", path)["spec"].get("nodeName") == node, 30)
    remove(cp, path)


# The guard ----------------------------------------------------------------------------------------


@pytest.fixture
def agent(cp: ControlPlane, node: str, agents: Agents) -> Caller:
    """Who has the token of this node's agent."""
    config = yaml.safe_load(agents.kubeconfig(node).read_text())
    return Caller(cp, config["users"][0]["user"]["token"])


def of_no_node(cp: ControlPlane) -> Caller:
    """The agents' account by a token that an administrator made by hand."""
    return Caller.account(cp, "cardwise-agent")


CHANGES: Final = [
    pytest.param(change, id=name)
    for name, change in {
        "a condition": {"status": {"conditions": []}},
        "an address": {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
        "CPU": {"status": {"capacity": {"cpu": "9000"}}},
        "CPU that may be given away": {"status": {"allocatable": {"cpu": "1"}}},
        "another resource": {"status": {"capacity": {"example.com/thing": "1"}}},
        "a resource that goes": {"status": {"allocatable": {"memory": None}}},
        "a label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        "a label that goes": {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
        "an annotation": {"metadata": {"annotations": {"hami.io/device-cordon": "GPU-a"}}},
        "a finalizer": {"metadata": {"finalizers": ["example.com/stays"]}},
        "everything": {"status": None},
    }.items()
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("bound", [True, False], ids=["its own token", "a token of no node"])
def test_an_agent_changes_nothing_else_of_its_node(
    cp: ControlPlane, node: str, agent: Caller, change: Json, bound: bool
) -> None:
    before = found(cp, node)
    caller = agent if bound else of_no_node(cp)

    answer = caller.ask("PATCH", f"/api/v1/nodes/{node}/status", change, content_type=MERGE)

    assert answer.status == 403
    assert "cardwise-agents" in answer.message
    assert "an agent " in answer.message
    assert sides(found(cp, node)) == sides(before)


def sides(node: Json) -> Json:
    """What of a Node does not change by itself."""
    metadata = {key: node["metadata"].get(key) for key in ("labels", "finalizers")}
    return {**metadata, **{key: node["status"][key] for key in ("capacity", "allocatable")}}


def test_an_agent_changes_its_own_node_alone(cp: ControlPlane, node: str, agent: Caller) -> None:
    other = f"{node}-other"
    cp.add_node(other)
    query = f"?fieldManager={names.MANAGER_AGENT}"

    def ask(caller: Caller, to: str) -> tuple[int, str]:
        path = f"/api/v1/nodes/{to}/status{query}"
        answer = caller.ask("PATCH", path, patch_of({RESOURCE_MEMORY: 1}), content_type=MERGE)
        return answer.status, answer.message

    mine, others, of_none = ask(agent, node), ask(agent, other), ask(of_no_node(cp), other)
    remove(cp, f"/api/v1/nodes/{other}")

    assert mine == (200, "")
    assert others[0] == 403
    assert others[1].endswith(
        f"an agent changes its own node alone, and this token is of node {node}"
    )
    assert of_none == (200, "")


def test_an_agent_publishes_the_gpunode_of_its_own_node_alone(
    cp: ControlPlane, node: str, agent: Caller
) -> None:
    kind = {"apiVersion": "cardwise.dev/v1alpha1", "kind": names.GPUNODE_KIND}
    path = "/apis/cardwise.dev/v1alpha1/gpunodes"

    answers = [
        agent.ask("POST", path, {**kind, "metadata": {"name": each}}).status
        for each in (node, f"{node}-other")
    ]
    cp.request("POST", path, {**kind, "metadata": {"name": f"{node}-other"}})
    patches = [
        agent.ask(
            "PATCH",
            f"{path}/{each}/status?fieldManager={names.MANAGER_AGENT}",
            {**kind, "status": {"driverVersion": "1"}},
            content_type=APPLY,
        ).status
        for each in (node, f"{node}-other")
    ]
    for each in (node, f"{node}-other"):
        remove(cp, f"{path}/{each}")

    assert answers == [201, 403]
    assert patches == [200, 403]


@pytest.mark.parametrize("who", ["kubelet", "another account"])
def test_others_change_nodes_as_ever(cp: ControlPlane, node: str, who: str) -> None:
    user = {"kubelet": f"system:node:{node}", "another account": f"{ACCOUNTS}cardwise-webhook"}
    # RBAC is not what is tried here: they may do everything.
    caller = Caller.person(cp, user[who], "system:masters")
    change = {"status": {"capacity": {"example.com/thing": "1"}}}

    answer = caller.ask("PATCH", f"/api/v1/nodes/{node}/status", change, content_type=MERGE)

    assert answer.message == ""


def test_the_guards_expressions_have_no_warning_of_their_types(cp: ControlPlane) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/cardwise-agents"

    status = cp.wait(
        "the types to be checked",
        lambda: (
            cp.request("GET", path).get("status", {}).get("observedGeneration")
            and cp.request("GET", path)["status"]
        ),
        30,
    )

    assert status.get("typeChecking", {}).get("expressionWarnings", []) == [], json.dumps(status)


# The adapter --------------------------------------------------------------------------------------


class RealNodeGround:
    """Nodes of a real API server, and what others do to them."""

    def __init__(self, cp: ControlPlane, status: KubeNodeStatus) -> None:
        self.cp = cp
        self.status = status

    def make(self, name: str) -> None:
        self.remove(name)
        amounts = {side: {"cpu": "8"} for side in ("capacity", "allocatable")}
        # With a label, as every kubelet writes: of an object that nobody owns anything of, the API
        # server keeps no account of who changes what.
        metadata = {"name": name, "labels": {"kubernetes.io/os": "linux"}}
        self.cp.request("POST", "/api/v1/nodes", {"metadata": metadata, "status": amounts})

    def write(self, name: str, resources: Mapping[str, str | None]) -> None:
        write(self.cp, name, resources)

    def remove(self, name: str) -> None:
        remove(self.cp, f"/api/v1/nodes/{name}")

    def remove_daemonset(self) -> None:
        self.cp.request("DELETE", DAEMONSET)


class TestKubeNodeStatus(NodeStatusContract):
    @pytest.fixture
    async def ground(self, cp: ControlPlane) -> AsyncIterator[RealNodeGround]:
        client = await connect(str(cp.service_account_kubeconfig("cardwise-agent")))
        ground = RealNodeGround(cp, KubeNodeStatus(client, namespace=SYSTEM_NAMESPACE))
        yield ground
        for name in ("n1", "n2"):
            ground.remove(name)
        await client.close()
