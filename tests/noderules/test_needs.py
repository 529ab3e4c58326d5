"""What is read of a Pod: what only kube-scheduler decides, and which Pods ask the same."""

import pytest

import build
from cardwise.noderules import Needs, NodeBook, load_of, unchecked

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "zone", "labelSelector": {}}


def pod(name="p", labels=None, ports=(), **spec):
    container = {**build.container(requests={"cpu": "1"}), "ports": list(ports)}
    made = build.pod(name, labels=labels, containers=[container])
    made["spec"].update(spec)
    return made


def spread(unsatisfiable):
    return {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": unsatisfiable}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
            "spec.affinity.podAffinity",
            id="required affinity to Pods",
        ),
        pytest.param(
            {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
            "spec.affinity.podAntiAffinity",
            id="required anti-affinity to Pods",
        ),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]
                    },
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}},
                }
            },
            "",
            id="a preference, and affinity to nodes",
        ),
        pytest.param(
            {"topologySpreadConstraints": [spread("ScheduleAnyway"), spread("DoNotSchedule")]},
            "spec.topologySpreadConstraints",
            id="a spread that is a rule",
        ),
        pytest.param(
            {"topologySpreadConstraints": [spread("ScheduleAnyway")]}, "", id="one that is a wish"
        ),
        pytest.param(
            {"resourceClaims": [{"name": "c"}]}, "spec.resourceClaims", id="resource claims"
        ),
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "iscsi": {}}]},
            "spec.volumes[1].iscsi",
            id="a disk without a claim",
        ),
        pytest.param(
            {"hostNetwork": True, "hostUsers": False},
            "spec.hostUsers",
            id="users of its own in the node's network",
        ),
        pytest.param({"hostNetwork": True}, "", id="the node's network"),
        pytest.param(
            {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "spec.containers[0].restartPolicyRules",
            id="all containers restart together",
        ),
        pytest.param(
            {"initContainers": [{"volumeMounts": [{"bindMountOptions": ["noexec"]}]}]},
            "spec.initContainers[0].volumeMounts",
            id="options of a bind mount",
        ),
    ],
)
def test_the_field_that_only_kube_scheduler_decides(spec, want) -> None:
    assert unchecked(pod(**spec)) == want


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(pod("q", labels={"index": "7"}), True, id="another name and labels"),
        pytest.param(pod(priority=7, schedulerName="x"), True, id="what no node looks at"),
        pytest.param(pod(nodeSelector={"a": "b"}), False, id="a selector"),
        pytest.param(pod(tolerations=[{"operator": "Exists"}]), False, id="a toleration"),
        pytest.param(pod(overhead={"cpu": "1"}), False, id="an amount"),
        pytest.param(pod(ports=[{"hostPort": 80}]), False, id="a port of the node"),
    ],
)
def test_pods_that_ask_the_same_are_of_one_kind(other, same) -> None:
    assert (Needs(pod()).kind == Needs(other).kind) is same
    assert (NodeBook().kind(Needs(pod())) == NodeBook().kind(Needs(other))) is same


def test_whom_somebody_wants_away_is_of_another_kind() -> None:
    book = NodeBook()
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    book.apply_node(build.node_object("n1", labels={"zone": "z"}))
    one, other = Needs(pod(labels={"app": "a"})), Needs(pod(labels={"app": "b"}))
    assert book.kind(one) == book.kind(other)

    book.take("u", "n1", load_of(pod(affinity={"podAntiAffinity": {REQUIRED: [term]}})))

    assert book.kind(one) != book.kind(other)
    book.release("u")
    assert book.kind(one) == book.kind(other)
