"""The manifests as kustomize builds them, held against the programs that they start.

What only a real API server can say is in `tests/e2e/test_install.py` and `test_guards.py`.
"""

import functools
import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cardwise import names, ports
from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.main import POD_NAMESPACE
from cardwise.controller.webhook import selftest
from cardwise.names import Door
from cardwise.settings import Migration, Scheduling, Settings, parse
from cardwise_webhook import review
from replicas import PROBE_FAILURES, PROBE_SECONDS

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[1]
SHIPPED: Final = sorted(path.name for path in (ROOT / "manifests/overlays").iterdir())
OVERLAYS: Final = [name for name in SHIPPED if name != "shadow"]
"""Those that install Cardwise."""
WITH_WEBHOOK: Final = [name for name in OVERLAYS if not name.endswith("admission-policy")]
SELF_SIGNED: Final = [name for name in WITH_WEBHOOK if name != "cert-manager"]
GATES: Final = ["both-doors", "gates", "gates-admission-policy", "gates-ha"]
EXTENDER: Final = [name for name in OVERLAYS if name not in GATES or name == "both-doors"]
SYSTEM: Final = names.SYSTEM_NAMESPACE


def kustomized(directory: Path) -> list[Json]:
    """What kubectl makes of a kustomization."""
    kubectl = Path(sys.executable).with_name("kubectl")
    text = subprocess.run(
        [kubectl, "kustomize", directory], capture_output=True, text=True, check=True
    ).stdout
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


@functools.cache
def _built(overlay: str) -> list[Json]:
    return kustomized(ROOT / "manifests/overlays" / overlay)


def built(overlay: str, kind: str = "", name: str = "") -> list[Json]:
    """The documents of an overlay, of one kind and name where they are given."""
    return [
        document
        for document in _built(overlay)
        if kind in ("", document["kind"]) and name in ("", document["metadata"]["name"])
    ]


def workloads(overlay: str) -> list[Json]:
    return [*built(overlay, "Deployment"), *built(overlay, "DaemonSet")]


def pod_of(workload: Json) -> Json:
    pod: Json = workload["spec"]["template"]["spec"]
    return pod


def containers(overlay: str) -> Iterator[Json]:
    for workload in workloads(overlay):
        yield from pod_of(workload)["containers"]


def container(overlay: str, name: str) -> Json:
    (found,) = (each for each in containers(overlay) if each["name"] == name)
    return found


def options(asked: Json) -> dict[str, str]:
    """The options of a container's command line."""
    pairs = (argument.partition("=") for argument in asked["args"])
    return {option: value for option, _, value in pairs}


pytestmark = pytest.mark.timeout(60)  # kubectl and our programs take seconds on a busy machine
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
with_the_extender = pytest.mark.parametrize("overlay", EXTENDER)
with_gates = pytest.mark.parametrize("overlay", GATES)


def test_the_overlays_that_are_promised_are_there() -> None:
    assert SHIPPED == [
        "admission-policy",
        "both-doors",
        "cert-manager",
        "default",
        "gates",
        "gates-admission-policy",
        "gates-ha",
        "ha",
        "migration",
        "shadow",
    ]


@every_overlay
def test_an_overlay_names_each_object_once(overlay: str) -> None:
    objects = Counter(
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in built(overlay)
    )

    assert {key for key, times in objects.items() if times > 1} == set()
    assert len(objects) > 20


@every_overlay
def test_everything_is_ours_by_its_label(overlay: str) -> None:
    unlabelled = [
        each["metadata"]["name"]
        for each in built(overlay)
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") != "cardwise"
    ]

    assert unlabelled == []


# Images -------------------------------------------------------------------------------------------


@every_overlay
def test_the_images_are_ours_and_kube_schedulers_of_the_versions_that_were_tested(
    overlay: str,
) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    go_mod = (ROOT / "tests/controlplane/kubernetes/go.mod").read_text()
    (kubernetes,) = re.findall(r"k8s\.io/kubernetes (v[\d.]+)$", go_mod, re.MULTILINE)

    images = {each["name"]: each["image"] for each in containers(overlay)}

    if overlay in EXTENDER:
        assert images.pop("kube-scheduler") == f"registry.k8s.io/kube-scheduler:{kubernetes}"
    assert set(images.values()) == {f"cardwise:{version}"}


# Programs and their options -----------------------------------------------------------------------


@every_overlay
def test_every_command_line_is_one_that_its_program_takes(overlay: str) -> None:
    programs = {entry.name: entry for entry in entry_points(group="console_scripts")}
    asked = [each for each in containers(overlay) if each["name"] != "kube-scheduler"]

    assert asked
    for each in asked:
        (program,) = each["command"]
        # Parses the arguments as the program does, without running it.
        programs[program].load().make_context(program, list(each["args"]))


@every_overlay
def test_settings_are_read_from_the_file_that_is_mounted(overlay: str) -> None:
    (generated,) = (
        each["metadata"]["name"]
        for each in built(overlay, "ConfigMap")
        if "cardwise.yaml" in each["data"]
    )
    assert re.fullmatch(r"cardwise-settings-\w{10}", generated), "a change must roll out"
    for workload in workloads(overlay):
        pod = pod_of(workload)
        (volume,) = (each for each in pod["volumes"] if each["name"] == "settings")
        assert volume["configMap"]["name"] == generated
        asked = pod["containers"][0]
        (mount,) = (each for each in asked["volumeMounts"] if each["name"] == "settings")
        assert options(asked)["--config"] == f"{mount['mountPath']}/cardwise.yaml"


def test_an_overlay_of_ones_own_holds_settings_and_images(tmp_path: Path) -> None:
    """As docs/installation.md shows it."""
    page = (ROOT / "docs/installation.md").read_text()
    shown = page.partition("    # kustomization.yaml\n")[2].partition("\n\n")[0]
    own = yaml.safe_load(textwrap.dedent(shown))
    own["resources"] = [
        os.path.relpath(ROOT / path.removeprefix("cardwise/"), tmp_path)
        for path in own["resources"]
    ]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "cardwise.yaml").write_text("agent: {slotsPerCard: 4}")

    documents = kustomized(tmp_path)

    settings = [each for each in documents if "cardwise.yaml" in each.get("data", {})]
    assert [each["data"]["cardwise.yaml"] for each in settings] == ["agent: {slotsPerCard: 4}"]
    shipped = built("default", "ConfigMap", settings[0]["metadata"]["name"])
    assert shipped == [], "a change must roll out"
    reading = [
        volume["configMap"]["name"]
        for each in documents
        if each["kind"] in ("Deployment", "DaemonSet")
        for volume in pod_of(each)["volumes"]
        if volume["name"] == "settings"
    ]
    assert reading == [settings[0]["metadata"]["name"]] * 3
    (agent,) = (each for each in documents if each["kind"] == "DaemonSet")
    assert agent["spec"]["template"]["spec"]["containers"][0]["image"] == (
        "registry.example/cardwise:0.1.0"
    )


def test_the_other_combinations_that_the_page_shows_are_what_they_say(tmp_path: Path) -> None:
    page = (ROOT / "docs/installation.md").read_text().partition("### Other combinations")[2]
    made = {}
    for shown in page.partition("\n### ")[0].split("    # kustomization.yaml: ")[1:]:
        title, _, text = shown.partition("\n")
        own = yaml.safe_load(textwrap.dedent(text.partition("\n\n")[0]))
        directory = tmp_path / str(len(made))
        directory.mkdir()
        for key in ("resources", "components"):
            own[key] = [
                os.path.relpath(ROOT / path.removeprefix("cardwise/"), directory)
                for path in own[key]
            ]
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(own))
        made[title] = {
            (each["kind"], each["metadata"]["name"]): each for each in kustomized(directory)
        }

    two, certified = made.values()
    controller = two["Deployment", "cardwise-scheduler"]
    assert controller["spec"]["replicas"] == 2
    assert {each["name"] for each in pod_of(controller)["containers"]} == {
        "controller",
        "kube-scheduler",
    }
    assert pod_of(controller)["containers"][1]["startupProbe"]
    assert ("ClusterRoleBinding", "cardwise-allocations:hami") in two
    assert ("ValidatingAdmissionPolicy", "cardwise-gates") in two
    (alone,) = pod_of(certified["Deployment", "cardwise-scheduler"])["containers"]
    assert alone["image"].startswith("cardwise:")
    assert "--webhook-certificates" not in alone["args"]
    assert ("Certificate", "cardwise-webhook") in certified
    assert ("ValidatingAdmissionPolicy", "cardwise-gates") in certified
    assert ("ClusterRole", "cardwise-controller:webhook-certificates") not in certified


@every_overlay
def test_the_settings_that_are_shipped_are_the_defaults_with_the_doors_installed(
    overlay: str,
) -> None:
    (shipped,) = (
        each["data"]["cardwise.yaml"]
        for each in built(overlay, "ConfigMap")
        if "cardwise.yaml" in each["data"]
    )
    both = {"door": Door.EXTENDER, "bothDoors": True}
    wanted = {"both-doors": both}.get(
        overlay, {"door": Door.GATES if overlay in GATES else Door.EXTENDER}
    )

    migration = Migration(hamiNodes=overlay == "migration")
    assert parse(shipped) == Settings(scheduling=Scheduling(**wanted), migration=migration)


@every_overlay
def test_no_volume_is_mounted_inside_another_read_only_one(overlay: str) -> None:
    for each in containers(overlay):
        paths = [Path(mount["mountPath"]) for mount in each["volumeMounts"]]
        assert [p for p in paths for q in paths if p != q and p.is_relative_to(q)] == []


@with_gates
def test_without_the_extender_nothing_of_a_scheduler_is_there(overlay: str) -> None:
    said = yaml.safe_dump_all(built(overlay))
    listens = "--listen" in options(container(overlay, "controller"))

    assert [
        "kube-scheduler" in {each["name"] for each in containers(overlay)},
        "registry.k8s.io" in said,
        "8478" in said,
        "cardwise-kube-scheduler" in said,
        "system:kube-scheduler" in said,
        "scheduler.config" in said,
        listens,
    ] == [overlay in EXTENDER] * 7


@with_the_extender
def test_kube_scheduler_asks_the_controller_where_it_listens(overlay: str) -> None:
    (shipped,) = (
        each["data"]["scheduler.yaml"]
        for each in built(overlay, "ConfigMap")
        if "scheduler.yaml" in each["data"]
    )
    config = yaml.safe_load(shipped)
    (extender,) = config["extenders"]

    listens = options(container(overlay, "controller"))["--listen"]

    assert extender["urlPrefix"] == f"http://{listens}"
    assert listens.startswith("127.0.0.1:"), "whoever reaches it can place Pods"
    assert [each["name"] for each in extender["managedResources"]] == list(names.RESOURCES)
    assert config["profiles"] == [{"schedulerName": names.SCHEDULER_NAME}]


@every_overlay
def test_probes_ask_where_the_programs_listen(overlay: str) -> None:
    for each in containers(overlay):
        ports_of = {port["name"]: port["containerPort"] for port in each.get("ports", ())}
        if "--metrics-listen" in options(each):
            assert options(each)["--metrics-listen"] == f"0.0.0.0:{ports_of['metrics']}"
        for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            asked = each[probe]["httpGet"]
            if (overlay, each["name"], probe) == ("ha", "kube-scheduler", "livenessProbe"):
                continue  # its controller is asked, below
            assert asked["port"] in ports_of
            assert asked["path"] == path


def test_where_two_replicas_are_the_controller_answers_for_its_kube_scheduler() -> None:
    reports = {"name": "metrics", "containerPort": 9395}
    assert reports in container("ha", "controller")["ports"]
    asked = {"path": "/readyz", "port": 9395, "scheme": "HTTP"}
    scheduler = container("ha", "kube-scheduler")
    # As the end-to-end test of it plays kubelet.
    probe = scheduler["livenessProbe"]
    assert probe["httpGet"] == scheduler["startupProbe"]["httpGet"] == asked
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (PROBE_SECONDS, PROBE_FAILURES)


@every_overlay
def test_the_controller_is_told_which_pod_is_its_own(overlay: str) -> None:
    env = {each["name"]: each["valueFrom"] for each in container(overlay, "controller")["env"]}

    assert {name: value["fieldRef"]["fieldPath"] for name, value in env.items()} == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
    }


# What Pods may do on their nodes ------------------------------------------------------------------


@every_overlay
def test_nobody_has_capabilities_or_writes_into_the_image(overlay: str) -> None:
    for each in containers(overlay):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@every_overlay
def test_only_the_agent_is_root_and_sees_its_node(overlay: str) -> None:
    for workload in workloads(overlay):
        pod, name = pod_of(workload), workload["metadata"]["name"]
        context = pod["securityContext"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        host_paths = {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        if name == "cardwise-agent":
            assert context["runAsUser"] == 0
            files = NodeFiles()
            places = {files.plugins, files.cdi, files.hami_core, files.lock}
            assert host_paths == set(map(str, places))
        else:
            assert context["runAsNonRoot"] is True
            assert context["runAsUser"] == 65532
            assert host_paths == set()


@every_overlay
def test_every_container_asks_for_cpu_and_memory_and_has_no_limit_of_cpu(overlay: str) -> None:
    for each in containers(overlay):
        assert each["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "cpu" not in each["resources"].get("limits", {})


@every_overlay
def test_our_priority_is_below_the_clusters_own(overlay: str) -> None:
    classes = built(overlay, "PriorityClass")

    for each in classes:
        assert each["value"] < 2_000_000_000
        assert not each.get("globalDefault")
    used = {pod_of(workload)["priorityClassName"] for workload in workloads(overlay)}
    assert used == {each["metadata"]["name"] for each in classes}


@every_overlay
def test_a_new_agent_comes_before_the_old_one_goes_and_evicts_nobody(overlay: str) -> None:
    (agent,) = built(overlay, "DaemonSet")

    assert agent["spec"]["updateStrategy"]["rollingUpdate"] == {
        "maxSurge": "10%",
        "maxUnavailable": 0,
    }
    (own,) = built(overlay, "PriorityClass", pod_of(agent)["priorityClassName"])
    assert own["preemptionPolicy"] == "Never"
    (container,) = pod_of(agent)["containers"]
    assert "readinessProbe" in container, "without it the old one goes before kubelet knows the new"
    assert not any("hostPort" in port for port in container["ports"]), "both listen at a time"


# Who is who ---------------------------------------------------------------------------------------


@every_overlay
def test_every_selector_selects_the_pods_of_one_workload(overlay: str) -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in workloads(overlay)
    }

    def selects(selector: Json) -> set[str]:
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    for workload in workloads(overlay):
        name = workload["metadata"]["name"]
        assert selects(workload["spec"]["selector"]["matchLabels"]) == {name}
        pod = pod_of(workload)
        anti = pod.get("affinity", {}).get("podAntiAffinity", {})
        terms = [
            term["podAffinityTerm"]
            for term in anti.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        ]
        for term in [*terms, *pod.get("topologySpreadConstraints", ())]:
            assert selects(term["labelSelector"]["matchLabels"]) == {name}
    for service in built(overlay, "Service"):
        assert selects(service["spec"]["selector"]) == {service["metadata"]["name"]}
    for budget in built(overlay, "PodDisruptionBudget"):
        assert selects(budget["spec"]["selector"]["matchLabels"]) == {budget["metadata"]["name"]}
        assert budget["spec"]["minAvailable"] == 1
        (held,) = built(overlay, "Deployment", budget["metadata"]["name"])
        assert held["spec"]["replicas"] == 2
    for policy in built(overlay, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]
        if policy["metadata"]["name"] == "cardwise-nobody":
            assert selector == {}
        else:
            assert selects(selector["matchLabels"]) == {policy["metadata"]["name"]}


@every_overlay
def test_only_ports_on_which_somebody_listens_are_open(overlay: str) -> None:
    opened = {
        policy["metadata"]["name"]: {
            port["port"] for rule in policy["spec"].get("ingress", ()) for port in rule["ports"]
        }
        for policy in built(overlay, "NetworkPolicy")
    }
    webhook = {"cardwise-webhook": {8443, 9395}} if overlay in WITH_WEBHOOK else {}
    metrics = {"cardwise-scheduler": {9395}, "cardwise-agent": {9395}}
    assert opened == {"cardwise-nobody": set(), **metrics, **webhook}
    for name in opened.keys() - {"cardwise-nobody"}:
        (workload,) = (each for each in workloads(overlay) if each["metadata"]["name"] == name)
        listens = {
            port["containerPort"]
            for each in pod_of(workload)["containers"]
            for port in each["ports"]
        }
        assert opened[name] <= listens


@every_overlay
def test_every_account_and_role_that_is_named_is_there(overlay: str) -> None:
    accounts = {each["metadata"]["name"] for each in built(overlay, "ServiceAccount")}
    assert {pod_of(each)["serviceAccountName"] for each in workloads(overlay)} == accounts

    for binding in [*built(overlay, "ClusterRoleBinding"), *built(overlay, "RoleBinding")]:
        role = binding["roleRef"]
        if binding["metadata"]["name"] not in CLUSTERS_OWN:
            assert built(overlay, role["kind"], role["name"]), role
        for subject in binding["subjects"]:
            if subject["namespace"] == SYSTEM:
                assert subject["name"] in accounts


CLUSTERS_OWN: Final = {
    "cardwise-controller:kube-scheduler",
    "cardwise-controller:volume-scheduler",
    "cardwise-controller:authentication-reader",
}
"""Bindings to roles that every cluster has, for the stock kube-scheduler."""


# Rights -------------------------------------------------------------------------------------------

Right = tuple[str, str, str]

EVERYWHERE: Final[dict[str, set[Right]]] = {
    "unfinished_pods": {("", "pods", "list")},
    "gpunodes": {("cardwise.dev", "gpunodes", "list")},
    "nodes": {("", "nodes", "list")},
    "quotas": {("", "resourcequotas", "list")},
    "device_classes": {("resource.k8s.io", "deviceclasses", "list")},
    "pod": {("", "pods", "get")},
    "lease": set(),
    "write_lease": set(),
    "create_event": {("events.k8s.io", "events", "create")},
    "count_event": {("", "events", "patch")},
    "annotate_pod": set(),
    "apply_gpunode_status": {("cardwise.dev", "gpunodes/status", "patch")},
}
"""What each verb of `ports.Cluster` needs in the whole cluster, whatever the door."""
FOR_EXTENDER: Final[dict[str, set[Right]]] = {
    "bind": {("", "pods/binding", "create")},
    "annotate_node": {("", "nodes", "patch")},
}
"""Likewise, at the door of the extender alone."""
FOR_GATES: Final[dict[str, set[Right]]] = {
    "patch_pod": {("", "pods", "patch")},
    "evict": {("", "pods/eviction", "create")},
    "claims": {("", "persistentvolumeclaims", "list")},
    "volumes": {("", "persistentvolumes", "list")},
    "storage_classes": {("storage.k8s.io", "storageclasses", "list")},
    "pod_group": {("scheduling.x-k8s.io", "podgroups", "get")},
}
"""Likewise, at the door of gates alone."""
FOR_HAMI: Final[dict[str, set[Right]]] = {
    "node": {("", "nodes", "get")},
    "patch_node": {("", "nodes", "patch")},
    "apply_gpunode": {("cardwise.dev", "gpunodes", verb) for verb in ("create", "patch")},
    "delete_gpunode": {("cardwise.dev", "gpunodes", "delete")},
}
"""Likewise, while HAMi's device plugin hands out the cards of nodes."""
GATES_WATCHES: Final = {
    ("", "persistentvolumeclaims", "watch"),
    ("", "persistentvolumes", "watch"),
    ("storage.k8s.io", "storageclasses", "watch"),
}
AT_HOME: Final[dict[str, set[Right]]] = {
    "write_lease": {("coordination.k8s.io", "leases", verb) for verb in ("create", "update")},
    "lease": {("coordination.k8s.io", "leases", "get")},
    "annotate_pod": {("", "pods", "patch")},
}
"""Likewise, in our own namespace."""
WATCHES: Final = {
    ("", "pods", "watch"),
    ("", "nodes", "watch"),
    ("", "resourcequotas", "watch"),
    ("cardwise.dev", "gpunodes", "watch"),
}
"""What Kopf's handlers follow."""
ELECTION: Final = {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
"""What kube-scheduler needs beyond the cluster's own role, and the controller where it elects."""
CERTIFICATES: Final[dict[str, set[Right]]] = {
    "Role": {("", "secrets", verb) for verb in ("get", "update", "create")},
    "ClusterRole": {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verb)
        for verb in ("get", "patch")
    },
}
FOR_CERTIFICATES: Final = {
    "secret",
    "write_secret",
    "webhook_configuration",
    "patch_webhook_configuration",
}
"""The verbs of `ports.Cluster` that these are for."""
SELF_TEST: Final[dict[str, set[Right]]] = {
    "dry_run_pod_template": {("", "podtemplates", "create")},
    "webhook_configuration": {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get")
    },
}
"""What each verb of `ports.Cluster` needs that tests the webhook."""
STORE: Final[dict[str, set[Right]]] = {
    "get": {("cardwise.dev", "gpunodes", "get")},
    "create": {("cardwise.dev", "gpunodes", "create"), ("", "nodes", "get")},
    "apply_status": {("cardwise.dev", "gpunodes/status", "patch")},
    "watch": {("cardwise.dev", "gpunodes", "watch")},
}
"""What each verb of `ports.GPUNodeStore` needs."""
NODE_STATUS: Final[dict[str, set[Right]]] = {
    "get": {("", "nodes", "get")},
    "watch": {("", "nodes", "watch")},
    "advertise": {("", "nodes/status", "patch")},
    "installed": {("apps", "daemonsets", "get")},
}
"""What each verb of `ports.NodeStatus` needs; the last in our own namespace."""
NODE_EVENTS: Final[dict[str, set[Right]]] = {
    "create_event": {("events.k8s.io", "events", "create")},
}
"""What each verb of `ports.NodeEvents` needs, in the namespace of events on Nodes."""
NODE_PODS: Final[dict[str, set[Right]]] = {
    "pods": {("", "pods", "list")},
    "set_phase": {("", "pods/status", "patch")},
    "create_event": {("events.k8s.io", "events", "create")},
}
"""What each verb of `ports.NodePods` needs."""
WRITE_ALLOCATIONS: Final = {("cardwise.dev", "allocations", "write")}


def verbs_of(port: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"}


def rights(overlay: str, kind: str, account: str) -> set[Right]:
    """What an account may do by roles of ours, in the cluster or at home."""
    given: set[Right] = set()
    for binding in built(overlay, f"{kind}Binding"):
        subjects = {each["name"] for each in binding["subjects"] if each["namespace"] == SYSTEM}
        if account not in subjects or binding["metadata"]["name"] in CLUSTERS_OWN:
            continue
        (role,) = built(overlay, kind, binding["roleRef"]["name"])
        for rule in role["rules"]:
            given |= {
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return given


@every_overlay
def test_the_controller_may_do_what_it_does_and_nothing_else(overlay: str) -> None:
    by_part = (
        (FOR_EXTENDER, overlay in EXTENDER),
        (FOR_GATES, overlay in GATES),
        (FOR_HAMI, overlay == "migration"),
    )
    parts = [EVERYWHERE, *(verbs for verbs, _ in by_part)]
    assert verbs_of(ports.Cluster) == set().union(*parts) | FOR_CERTIFICATES | SELF_TEST.keys()
    certificates = CERTIFICATES if overlay in SELF_SIGNED else {"Role": set(), "ClusterRole": set()}
    self_test = SELF_TEST if overlay in WITH_WEBHOOK else {verb: set() for verb in SELF_TEST}

    assert rights(overlay, "ClusterRole", "cardwise-controller") == (
        set().union(*EVERYWHERE.values())
        | {right for verbs, here in by_part if here for right in set().union(*verbs.values())}
        | (GATES_WATCHES if overlay in GATES else set())
        | WATCHES
        | WRITE_ALLOCATIONS
        | certificates["ClusterRole"]
        | self_test["webhook_configuration"]
    )
    assert rights(overlay, "Role", "cardwise-controller") == (
        set().union(*AT_HOME.values())
        | ELECTION
        | certificates["Role"]
        | self_test["dry_run_pod_template"]
    )


@every_overlay
def test_the_agent_may_do_what_it_does_and_nothing_else(overlay: str) -> None:
    assert verbs_of(ports.GPUNodeStore) == STORE.keys()
    assert verbs_of(ports.NodeStatus) == NODE_STATUS.keys()
    assert verbs_of(ports.NodeEvents) == NODE_EVENTS.keys()
    assert verbs_of(ports.NodePods) == NODE_PODS.keys()
    at_home = NODE_STATUS["installed"]
    everywhere = set().union(*STORE.values(), *NODE_STATUS.values(), *NODE_PODS.values())

    assert rights(overlay, "ClusterRole", "cardwise-agent") == (
        everywhere - at_home | WRITE_ALLOCATIONS
    )
    assert rights(overlay, "Role", "cardwise-agent") == at_home | NODE_EVENTS["create_event"]
    (of_events,) = built(overlay, "Role", "cardwise-agent:events")
    assert of_events["metadata"]["namespace"] == "default"
    (role,) = built(overlay, "Role", "cardwise-agent")
    (daemonset,) = built(overlay, "DaemonSet")
    assert [rule["resourceNames"] for rule in role["rules"]] == [[daemonset["metadata"]["name"]]]
    assert daemonset["metadata"]["name"] == names.AGENT_DAEMONSET


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_webhook_has_no_right_at_all_and_no_token(overlay: str) -> None:
    assert rights(overlay, "ClusterRole", "cardwise-webhook") == set()
    assert rights(overlay, "Role", "cardwise-webhook") == set()
    (deployment,) = built(overlay, "Deployment", "cardwise-webhook")
    assert pod_of(deployment)["automountServiceAccountToken"] is False


def test_only_the_secrets_and_the_configuration_that_are_ours_can_be_changed() -> None:
    name = "cardwise-controller:webhook-certificates"
    (role,), (cluster_role,) = built("default", "Role", name), built("default", "ClusterRole", name)

    changing = [
        rule for rule in (*role["rules"], *cluster_role["rules"]) if rule["verbs"] != ["create"]
    ]

    assert [rule["resourceNames"] for rule in changing] == [
        ["cardwise-webhook-ca", "cardwise-webhook-tls"],
        ["cardwise-webhook"],
    ]


# The webhook --------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_api_servers_way_ends_where_the_webhook_listens(overlay: str) -> None:
    (configuration,) = built(overlay, "MutatingWebhookConfiguration", "cardwise-webhook")
    client, *others = (each["clientConfig"]["service"] for each in configuration["webhooks"])
    (service,) = built(overlay, "Service", client["name"])
    (port,) = service["spec"]["ports"]
    asked = container(overlay, "webhook")
    (listens,) = (p for p in asked["ports"] if p["name"] == port["targetPort"])

    assert client["namespace"] == service["metadata"]["namespace"] == SYSTEM
    assert client["port"] == port["port"]
    assert options(asked)["--listen"] == f"0.0.0.0:{listens['containerPort']}"
    assert client["path"] == "/mutate"
    assert others == [client, client]


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_webhook_is_narrow_short_and_strict(overlay: str) -> None:
    (configuration,) = built(overlay, "MutatingWebhookConfiguration")
    webhook, *_ = configuration["webhooks"]

    assert webhook["failurePolicy"] == "Fail"
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert "caBundle" not in webhook["clientConfig"], "applying again would overwrite the real one"
    (rule,) = webhook["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_a_workload_is_only_warned_of(overlay: str) -> None:
    (configuration,) = built(overlay, "MutatingWebhookConfiguration")
    pods, webhook, _ = configuration["webhooks"]

    assert webhook["failurePolicy"] == "Ignore", "nobody waits for a warning"
    assert webhook["timeoutSeconds"] <= 2
    assert "caBundle" not in webhook["clientConfig"], "applying again would overwrite the real one"
    for selector in ("namespaceSelector", "objectSelector"):
        assert webhook[selector] == pods[selector]
    asked = {rule["apiGroups"][0]: rule["resources"] for rule in webhook["rules"]}
    assert asked == {key: list(kinds) for key, kinds in review.WORKLOADS.items()}
    *_, condition = webhook["matchConditions"]
    assert quoted_in(condition["expression"]) == [*names.RESOURCES, *names.RESOURCES]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_controller_tests_the_webhook_where_there_is_one(overlay: str) -> None:
    asks = "--webhook-self-test" in container(overlay, "controller")["args"]
    assert asks == (overlay in WITH_WEBHOOK)


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_test_of_the_webhook_is_asked_about_and_nothing_else_is(overlay: str) -> None:
    (configuration,) = built(overlay, "MutatingWebhookConfiguration")
    *_, webhook = configuration["webhooks"]

    metadata = selftest.TEMPLATE["metadata"]
    assert webhook["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": metadata["namespace"]
    }
    assert webhook["objectSelector"]["matchLabels"] == metadata["labels"]
    assert webhook["failurePolicy"] == "Fail", "without a refusal nobody learns why"
    (rule,) = webhook["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["podtemplates"])


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_webhook_is_never_away_during_a_rollout(overlay: str) -> None:
    (deployment,) = built(overlay, "Deployment", "cardwise-webhook")

    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert pod_of(deployment)["terminationGracePeriodSeconds"] > 5 + 7, "it drains"


@pytest.mark.parametrize("overlay", WITH_WEBHOOK)
def test_the_certificate_is_where_the_webhook_looks(overlay: str) -> None:
    (deployment,) = built(overlay, "Deployment", "cardwise-webhook")
    (volume,) = (each for each in pod_of(deployment)["volumes"] if each["name"] == "tls")
    asked = container(overlay, "webhook")
    (mount,) = (each for each in asked["volumeMounts"] if each["name"] == "tls")

    assert mount["mountPath"] == options(asked)["--tls-dir"]
    assert volume["secret"]["secretName"] == "cardwise-webhook-tls"
    assert volume["secret"]["optional"] is True
    certified = "--webhook-certificates" in container(overlay, "controller")["args"]
    assert certified == (overlay in SELF_SIGNED)


def test_cert_managers_certificate_is_for_our_service() -> None:
    (certificate,) = built("cert-manager", "Certificate", "cardwise-webhook")
    (configuration,) = built("cert-manager", "MutatingWebhookConfiguration")

    assert certificate["spec"]["secretName"] == "cardwise-webhook-tls"
    assert f"cardwise-webhook.{SYSTEM}.svc" in certificate["spec"]["dnsNames"]
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": f"{SYSTEM}/{certificate['metadata']['name']}"
    }
    issuers = {each["metadata"]["name"]: each["spec"] for each in built("cert-manager", "Issuer")}
    issuer = issuers[certificate["spec"]["issuerRef"]["name"]]
    (authority,) = (c for c in built("cert-manager", "Certificate") if c["spec"].get("isCA"))
    assert authority["spec"]["secretName"] == issuer["ca"]["secretName"]
    assert authority["spec"]["secretName"] != "cardwise-webhook-ca", "it is the controller's"


@pytest.mark.parametrize("overlay", ["admission-policy", "gates-admission-policy"])
def test_no_process_of_ours_is_on_the_path_with_admission_policies(overlay: str) -> None:
    assert built(overlay, "MutatingAdmissionPolicy")
    assert built(overlay, "MutatingWebhookConfiguration") == []
    assert built(overlay, "Service") == []
    (only,) = built(overlay, "Deployment")
    assert only["metadata"]["name"] == "cardwise-scheduler"


# Texts that the guards repeat ---------------------------------------------------------------------


def quoted_in(expression: str) -> list[str]:
    return re.findall(r"'([^']*)'", expression)


def expressions(spec: Any) -> Iterator[str]:
    """Every expression of an admission policy or a webhook's conditions."""
    match spec:
        case dict():
            for key, value in spec.items():
                if key in ("expression", "messageExpression"):
                    yield value
                else:
                    yield from expressions(value)
        case list():
            for value in spec:
                yield from expressions(value)


@every_overlay
def test_every_key_resource_and_scheduler_that_a_guard_names_is_spelt_as_ours(overlay: str) -> None:
    known = {
        *names.ALLOCATION_ANNOTATIONS,
        *names.RESOURCES,
        names.DEFAULTED,
        names.WEIGHTS,
        names.GATE,
        names.DOOR,
        names.API_GROUP,
        "kubernetes.io/config.mirror",
        "authentication.kubernetes.io/node-name",
    }
    kinds = ("Policy", "WebhookConfiguration")
    guards = [each for each in built(overlay) if each["kind"].endswith(kinds)]

    spelt = {
        word
        for guard in guards
        for expression in expressions(guard)
        for text in quoted_in(expression)
        for word in re.findall(r"[a-z.]+\.(?:io|com|dev)(?:/[a-z-]+)?", text.replace("~1", "/"))
    }

    assert spelt - known - {"kubernetes.io/hostname", "kubernetes.io/config"} == set()


@every_overlay
def test_every_allocation_key_is_guarded(overlay: str) -> None:
    (guard,) = built(overlay, "ValidatingAdmissionPolicy", "cardwise-allocations")
    (keys,) = (each for each in guard["spec"]["variables"] if each["name"] == "keys")

    assert quoted_in(keys["expression"]) == list(names.ALLOCATION_ANNOTATIONS)
    assert guard["spec"]["failurePolicy"] == "Fail"
    assert guard["spec"]["matchConstraints"].keys() == {"resourceRules"}, "there is no opt-out"


@every_overlay
def test_the_agents_are_guarded_by_their_account_and_kept_to_our_resources(overlay: str) -> None:
    (guard,) = built(overlay, "ValidatingAdmissionPolicy", "cardwise-agents")
    (condition,) = guard["spec"]["matchConditions"]
    (keys,) = (each for each in guard["spec"]["variables"] if each["name"] == "resources")
    (agent,) = built(overlay, "DaemonSet")

    account = f"system:serviceaccount:{SYSTEM}:{pod_of(agent)['serviceAccountName']}"
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    assert sorted(quoted_in(keys["expression"])) == sorted(names.RESOURCES)
    assert guard["spec"]["failurePolicy"] == "Fail"


def test_an_agent_is_told_where_its_daemonset_is() -> None:
    (agent,) = built("default", "DaemonSet")
    (asked,) = pod_of(agent)["containers"]
    told = {each["name"]: each.get("valueFrom") for each in asked["env"]}

    assert told[POD_NAMESPACE] == {"fieldRef": {"fieldPath": "metadata.namespace"}}


@every_overlay
def test_pods_are_chosen_by_every_resource_of_ours(overlay: str) -> None:
    conditions = [
        condition["expression"]
        for each in built(overlay)
        for part in [*each.get("webhooks", ()), each.get("spec", {})]
        for condition in part.get("matchConditions", ())
        if condition["name"] == "names-a-resource-of-ours"
    ]

    assert len(conditions) == (1 if overlay in WITH_WEBHOOK else 2)
    for condition in conditions:
        assert quoted_in(condition) == list(names.RESOURCES)


@every_overlay
def test_a_scheduler_that_was_not_chosen_is_the_same_everywhere(overlay: str) -> None:
    conditions = [
        condition["expression"]
        for each in built(overlay)
        for condition in each.get("spec", {}).get("matchConditions", ())
        if condition["name"] == "chose-no-other-scheduler"
    ]

    assert conditions
    schedulers = {*names.TAKEN_OVER_SCHEDULERS, names.SCHEDULER_NAME}
    chosen_by_annotation = {names.DOOR, "gates"}
    for condition in conditions:
        assert set(quoted_in(condition)) in (schedulers, schedulers | chosen_by_annotation)


@with_gates
def test_our_gate_is_guarded_and_there_is_no_opt_out(overlay: str) -> None:
    (guard,) = built(overlay, "ValidatingAdmissionPolicy", "cardwise-gates")

    assert guard["spec"]["failurePolicy"] == "Fail"
    assert guard["spec"]["matchConstraints"].keys() == {"resourceRules"}
    for expression in expressions(guard):
        assert f"'{names.GATE}'" in expression


def test_where_there_is_no_door_of_gates_there_is_no_guard_of_it() -> None:
    assert {
        overlay: bool(built(overlay, "ValidatingAdmissionPolicy", "cardwise-gates"))
        for overlay in OVERLAYS
    } == {overlay: overlay in GATES for overlay in OVERLAYS}


@pytest.mark.parametrize("overlay", ["ha", "gates-ha"])
def test_two_replicas_are_kept_apart(overlay: str) -> None:
    (deployment,) = built(overlay, "Deployment", "cardwise-scheduler")

    assert deployment["spec"]["replicas"] == 2
    assert pod_of(deployment)["affinity"].keys() == {"podAntiAffinity"}
    assert built(overlay, "PodDisruptionBudget", "cardwise-scheduler")


@every_overlay
def test_every_policy_has_its_binding(overlay: str) -> None:
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        bound = {each["spec"]["policyName"] for each in built(overlay, f"{kind}Binding")}
        assert {each["metadata"]["name"] for each in built(overlay, kind)} == bound


def test_hamis_accounts_may_write_allocations_while_both_run() -> None:
    (binding,) = built("migration", "ClusterRoleBinding", "cardwise-allocations:hami")
    (role,) = built("migration", "ClusterRole", binding["roleRef"]["name"])

    assert {(each["namespace"], each["name"]) for each in binding["subjects"]} == {
        ("kube-system", "hami-scheduler"),
        ("kube-system", "hami-device-plugin"),
    }
    assert role["rules"] == [
        {"apiGroups": ["cardwise.dev"], "resources": ["allocations"], "verbs": ["write"]}
    ]


@every_overlay
def test_the_others_may_run_beside_an_api_server_whatever_the_value_of_its_taint(
    overlay: str,
) -> None:
    # kubeadm's taint has no value, other distributions write "true".
    taint = "node-role.kubernetes.io/control-plane"
    for deployment in built(overlay, "Deployment"):
        assert pod_of(deployment)["tolerations"] == [
            {"key": taint, "operator": "Exists", "effect": "NoSchedule"}
        ]


def test_the_agents_go_where_there_are_cards() -> None:
    (agent,) = built("default", "DaemonSet")
    node = pod_of(agent)["affinity"]["nodeAffinity"]
    terms = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert [term["matchExpressions"][0]["key"] for term in terms] == [
        "gpu",
        "nvidia.com/gpu.present",
        "feature.node.kubernetes.io/pci-10de.present",
    ]
    assert pod_of(agent)["tolerations"] == [{"operator": "Exists"}]


def test_beside_hamis_device_plugin_the_agents_go_only_where_they_are_sent() -> None:
    (agent,) = built("migration", "DaemonSet")

    assert "affinity" not in pod_of(agent)
    assert pod_of(agent)["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        names.AGENT_LABEL: "on",
    }


def test_a_shadow_may_read_and_nothing_else() -> None:
    rules = [rule for role in built("shadow", "ClusterRole") for rule in role["rules"]]

    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}
    assert not built("shadow", "Role")
    assert not built("shadow", "CustomResourceDefinition"), "it would take GPUNodes with it"
    for kind in ("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "DaemonSet"):
        assert not built("shadow", kind)


def test_a_shadow_is_a_controller_that_is_told_to_be_one() -> None:
    (workload,) = workloads("shadow")
    (asked,) = pod_of(workload)["containers"]
    (shipped,) = (each["data"]["cardwise.yaml"] for each in built("shadow", "ConfigMap"))
    (program,) = asked["command"]
    (entry,) = (e for e in entry_points(group="console_scripts") if e.name == program)

    assert parse(shipped) == Settings(
        scheduling=Scheduling(shadow=True), migration=Migration(hamiNodes=True)
    )
    assert "--no-leader-election" in asked["args"], "it has no Lease"
    entry.load().make_context(program, list(asked["args"]))
