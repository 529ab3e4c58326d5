"""The node rules that are checked before a Pod is pinned, held against the real kube-scheduler.

A hundred random nodes with random Pods, claims and volumes; hundreds of random newcomers, about
each of which kube-scheduler tells for every node whether it fits.
"""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cardwise.names import NodeReason
from cardwise.noderules import Judged, Needs, NodeBook, Volumes, load_of, unchecked
from cardwise.wire.pods import bound_node, is_finished
from controlplane.launcher import ControlPlane
from random_world import NAMESPACES, RUNTIME_CLASS, STORAGE_CLASS, Json, World
from recording_extender import RecordingExtender

pytestmark = pytest.mark.timeout(120)

SEED = 6
NODES, TENANTS, CLAIMS, NEWCOMERS = 110, 420, 40, 200
ASKING, BINDING = "asking", "binding"
"""The kube-scheduler that is only asked, and the stock one that binds what it finds fitting."""
EACH_WORD = 50
PINNED = 200


@dataclass
class Played:
    """What the API server holds, and what kube-scheduler said of it."""

    cp: ControlPlane
    passed: dict[str, set[str]]
    nodes: dict[str, Json]
    newcomers: list[Json]
    book: NodeBook
    volumes: Volumes

    def judged(self, pod: Json) -> Judged:
        return self.volumes.judge(Needs(pod))

    def refusals(self, pod: Json) -> dict[str, str]:
        """Our word for every node that is refused."""
        judged = self.judged(pod)
        if judged.waits_for:
            return dict.fromkeys(self.nodes, f"waits for {judged.waits_for}")
        refusals = self.book.refusals(Needs(pod), list(self.nodes), judged.reach)
        return {name: word.value for name, word in refusals.items()}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The cluster once kube-scheduler has looked at every newcomer."""
    configuration = tmp_path_factory.mktemp("node-rules")
    with (
        ControlPlane.start(kwok=False, controller_manager=False) as cp,
        RecordingExtender() as extender,
    ):
        world = World(SEED)
        newcomers = populate(cp, world)
        start_scheduler(cp, configuration, ASKING, extender.url)
        start_scheduler(cp, configuration, BINDING, None)
        for pod in newcomers:
            open_gate(cp, pod)
        wait_until_refused(cp, {path(pod) for pod in newcomers})
        yield read(cp, extender.passed, {path(pod) for pod in newcomers})


def test_every_pair_of_pod_and_node_has_the_verdict_of_kube_scheduler(played: Played) -> None:
    pairs, words, differences = 0, Counter[str](), []
    for pod in played.newcomers:
        assert unchecked(pod) == ""
        assert played.judged(pod).unchecked == ""
        refused = played.refusals(pod)
        passed = played.passed.get(pod["metadata"]["uid"], set())
        words.update(refused.values())
        for name, node in played.nodes.items():
            pairs += 1
            if (name in passed) is not (name not in refused):
                said = refused.get(name, "fits")
                differences.append((said, "fits" if name in passed else "refused", pod, node))

    assert not differences, told(differences)
    assert pairs >= 20_000
    # A rule that is too strict shows only where kube-scheduler lets a Pod in.
    assert pairs - words.total() >= 2_000
    seldom = {word: words[word] for word in NodeReason if words[word] < EACH_WORD}
    assert not seldom, f"too few of some words: {words}"


def test_what_fits_is_bound_where_it_is_pinned_and_what_does_not_is_not(played: Played) -> None:
    world = World(SEED)
    pods = [pod for pod in played.newcomers if '"ephemeral":' not in json.dumps(pod["spec"])]
    fitting = []
    for number, pod in enumerate(world.sample(pods * 9, 6 * PINNED)):
        free = sorted(played.nodes.keys() - played.refusals(pod).keys())
        if free and len(fitting) < PINNED:
            (node,) = world.sample(free, 1)
            # The next ones are judged with this one counted, long before it is bound.
            played.book.take(f"pinned-{number}", node, load_of(pod))
            fitting.append(pinned(pod, f"fit-{number}", node))
    unfit = []
    for number, pod in enumerate(world.sample(pods * 9, PINNED)):
        refused = sorted(played.refusals(pod))
        (node,) = world.sample(refused, 1)
        unfit.append(pinned(pod, f"unfit-{number}", node))
    assert len(fitting) == PINNED

    for pod in (*fitting, *unfit):
        create(played.cp, pod)

    wait_until_refused(played.cp, {path(pod) for pod in unfit})
    wanted = {path(pod): node_of(pod) for pod in fitting}
    played.cp.wait(
        "every Pod that fits to be bound",
        lambda: {p: n for p, n in bound(played.cp).items() if p in wanted} == wanted,
        30,
    )
    assert not bound(played.cp).keys() & {path(pod) for pod in unfit}


# The cluster --------------------------------------------------------------------------------------


def populate(cp: ControlPlane, world: World) -> list[Json]:
    """Create everything; the newcomers wait behind a gate until all of it is there."""
    for namespace in NAMESPACES:
        cp.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    cp.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    cp.request("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE_CLASS)
    names = [f"node-{number:03}" for number in range(NODES)]
    for name in names:
        cp.request("POST", "/api/v1/nodes", world.node(name))
    for number in range(TENANTS):
        create_tenant(cp, world, number, names)
    claims = [create_claim(cp, world, number, names) for number in range(CLAIMS)]
    newcomers = []
    for number in range(NEWCOMERS):
        pod = world.newcomer(f"newcomer-{number}", nodes=names, claims=[*claims, "missing"])
        pod["spec"]["schedulerName"] = ASKING
        pod["spec"]["schedulingGates"] = [{"name": "test.example/all-is-there"}]
        if number % 20 == 0:
            volumes = pod["spec"].setdefault("volumes", [])
            volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": TEMPLATE}})
        created = create(cp, pod)
        if number % 20 == 0:
            create_own_claim(cp, world, created, names, stolen=number % 40 == 0)
        newcomers.append(created)
    return newcomers


TEMPLATE = {
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "at-once",
    }
}


def create_tenant(cp: ControlPlane, world: World, number: int, names: list[str]) -> None:
    """Create a Pod that is on a node; some are done, some are being resized."""
    (node,) = world.sample(names, 1)
    tenant = create(cp, world.tenant(f"tenant-{number}", node))
    if number % 10 == 0:
        patch_status(cp, tenant, {"phase": "Succeeded"})
    elif number % 10 == 1:
        patch_status(cp, tenant, {"phase": "Running", "containerStatuses": world.resized()})


def create_claim(cp: ControlPlane, world: World, number: int, names: list[str]) -> str:
    """Create a claim in every namespace, most of them bound; its name."""
    name = f"claim-{number}"
    for namespace in NAMESPACES:
        volume = f"volume-{namespace}-{number}"
        case = number % 10
        if case != 0:
            create_volume(cp, world.volume(volume, namespace, name, names))
        claim = world.claim(
            name, namespace, None if case == 1 else volume, bound=case not in (1, 2)
        )
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        cp.request("POST", claims, claim)
        if case == 3:
            # Its finalizer keeps it, as it is in use.
            cp.request("DELETE", f"{claims}/{name}")
    return name


def create_own_claim(
    cp: ControlPlane, world: World, pod: Json, names: list[str], *, stolen: bool
) -> None:
    """Create the claim of a Pod's own volume; ``stolen``: it is somebody else's."""
    metadata = pod["metadata"]
    namespace, name = metadata["namespace"], f"{metadata['name']}-scratch"
    create_volume(cp, world.volume(f"volume-{name}", namespace, name, names))
    claim = world.claim(name, namespace, f"volume-{name}")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
    claim["metadata"]["ownerReferences"] = [
        {**owner, "uid": "someone-else" if stolen else metadata["uid"]}
    ]
    cp.request("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)


def create_volume(cp: ControlPlane, volume: Json) -> None:
    cp.request("POST", "/api/v1/persistentvolumes", volume)


def create(cp: ControlPlane, pod: Json) -> Json:
    found: Json = cp.request("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
    return found


def patch_status(cp: ControlPlane, pod: Json, status: Json) -> None:
    patch(cp, f"{path(pod)}/status", {"status": status})


def open_gate(cp: ControlPlane, pod: Json) -> None:
    patch(cp, path(pod), {"spec": {"schedulingGates": None}})


def patch(cp: ControlPlane, where: str, change: Json) -> None:
    cp.request("PATCH", where, change, content_type="application/merge-patch+json")


def start_scheduler(
    cp: ControlPlane, directory: Path, profile: str, extender_url: str | None
) -> None:
    """Start a stock kube-scheduler for the Pods that name it, ours in nothing but the name."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": profile}],
        "extenders": [{"filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "30s"}],
    }
    path = directory / f"{profile}.yaml"
    path.write_text(yaml.safe_dump(config))
    cp.start_scheduler(
        extender_url=extender_url,
        name=f"scheduler-{profile}",
        kubeconfig=cp.admin_kubeconfig,
        configuration=path,
    )


def read(cp: ControlPlane, passed: dict[str, set[str]], newcomers: set[str]) -> Played:
    """Read the cluster as a watch would show it."""
    book, volumes = NodeBook(), Volumes()
    nodes = {node["metadata"]["name"]: node for node in items(cp, "/api/v1/nodes")}
    for node in nodes.values():
        book.apply_node(node)
    for claim in items(cp, "/api/v1/persistentvolumeclaims"):
        volumes.apply_claim(claim)
    for volume in items(cp, "/api/v1/persistentvolumes"):
        volumes.apply_volume(volume)
    for storage_class in items(cp, "/apis/storage.k8s.io/v1/storageclasses"):
        volumes.apply_class(storage_class)
    pods = items(cp, "/api/v1/pods")
    for pod in pods:
        if (node_name := bound_node(pod)) and not is_finished(pod):
            book.take(pod["metadata"]["uid"], node_name, load_of(pod))
    asked = [pod for pod in pods if path(pod) in newcomers]
    return Played(cp, passed, nodes, asked, book, volumes)


def wait_until_refused(cp: ControlPlane, pods: set[str]) -> None:
    def refused() -> bool:
        return pods <= {
            path(pod)
            for pod in items(cp, "/api/v1/pods")
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        }

    cp.wait("kube-scheduler to have refused every Pod", refused, 60)


def bound(cp: ControlPlane) -> dict[str, str]:
    return {
        path(pod): pod["spec"]["nodeName"]
        for pod in items(cp, "/api/v1/pods")
        if "nodeName" in pod["spec"]
    }


def items(cp: ControlPlane, path: str) -> list[Json]:
    found: list[Json] = cp.request("GET", path)["items"]
    return found


def path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def pinned(pod: Json, name: str, node: str) -> Json:
    """A copy of a Pod that may go to one node only, for the stock kube-scheduler to bind."""
    spec = copy.deepcopy(pod["spec"])
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        wanted = {"key": "metadata.name", "operator": "In", "values": [node]}
        term["matchFields"] = [*term.get("matchFields", ()), wanted]
    # The API server writes the overhead of the runtime class itself.
    spec.pop("overhead", None)
    labels = pod["metadata"]["labels"]
    metadata = {"name": name, "namespace": pod["metadata"]["namespace"], "labels": labels}
    metadata["annotations"] = {"pinned-to": node}
    return {"metadata": metadata, "spec": {**spec, "schedulerName": BINDING}}


def node_of(pod: Json) -> str:
    return str(pod["metadata"]["annotations"]["pinned-to"])


def told(differences: list[tuple[str, str, Json, Json]]) -> str:
    """The first differences in full, and how many of what there are."""
    counts = Counter((ours, theirs) for ours, theirs, _, _ in differences)
    lines = [f"{len(differences)} differences (ours, kube-scheduler's): {counts}"]
    for ours, theirs, pod, node in differences[:3]:
        lines.append(f"ours: {ours}; kube-scheduler's: {theirs}")
        lines += [json.dumps({k: thing[k] for k in ("spec", "status")}) for thing in (pod, node)]
        lines.append(json.dumps([thing["metadata"].get("labels") for thing in (pod, node)]))
    return "\n".join(lines)
