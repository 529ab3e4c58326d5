"""What kube-scheduler would refuse a node for: one table a rule."""

import pytest

import build
from cardwise.names import NodeReason
from cardwise.noderules import Needs, NodeBook


def taint(key="gpu", value="yes", effect="NoSchedule"):
    return {"key": key, "value": value, "effect": effect}


def tolerating(*tolerations):
    return pod(tolerations=list(tolerations))


def pod(*, requests=None, limits=None, init=(), **spec):
    container = build.container(requests=requests, limits=limits)
    made = build.pod(containers=[container], init=list(init))
    made["spec"].update(spec)
    return made


def affinity(*terms):
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return pod(affinity={"nodeAffinity": node_affinity})


def where(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def refusal(pod_json, **node):
    book = NodeBook()
    book.apply_node(build.node_object("n1", **node))
    return book.refusal(Needs(pod_json), "n1")


# Cordon and taints --------------------------------------------------------------------------------

CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("pod_json", "node", "want"),
    [
        pytest.param(pod(), {}, None, id="nothing against it"),
        pytest.param(pod(), {"unschedulable": True}, NodeReason.UNSCHEDULABLE, id="cordoned"),
        pytest.param(
            tolerating({"key": CORDON, "operator": "Exists"}),
            {"unschedulable": True},
            None,
            id="a cordon can be tolerated",
        ),
        pytest.param(pod(), {"taints": [taint()]}, NodeReason.TAINT, id="NoSchedule"),
        pytest.param(
            pod(), {"taints": [taint(effect="NoExecute")]}, NodeReason.TAINT, id="NoExecute"
        ),
        pytest.param(
            pod(), {"taints": [taint(effect="PreferNoSchedule")]}, None, id="a wish is no rule"
        ),
        pytest.param(
            tolerating({"key": "gpu", "value": "yes", "effect": "NoSchedule"}),
            {"taints": [taint()]},
            None,
            id="no operator means Equal",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Equal", "value": "no"}),
            {"taints": [taint()]},
            NodeReason.TAINT,
            id="another value",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Exists"}),
            {"taints": [taint()]},
            None,
            id="Exists takes any value, no effect any effect",
        ),
        pytest.param(
            tolerating({"key": "cpu", "operator": "Exists"}),
            {"taints": [taint()]},
            NodeReason.TAINT,
            id="another key",
        ),
        pytest.param(
            tolerating({"operator": "Exists"}),
            {"taints": [taint(), taint("x", "y", "NoExecute")], "unschedulable": True},
            None,
            id="Exists without a key takes all",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
            {"taints": [taint()]},
            NodeReason.TAINT,
            id="another effect",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Exists"}),
            {"taints": [taint(), taint("x")]},
            NodeReason.TAINT,
            id="every taint must be tolerated",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Gt", "value": "4"}),
            {"taints": [taint(value="5")]},
            None,
            id="Gt: the taint's number is above",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Lt", "value": "5"}),
            {"taints": [taint(value="5")]},
            NodeReason.TAINT,
            id="Lt: an equal number is not below",
        ),
        pytest.param(
            tolerating({"key": "gpu", "operator": "Like", "value": "yes"}),
            {"taints": [taint()]},
            NodeReason.TAINT,
            id="an unknown operator tolerates nothing",
        ),
    ],
)
def test_cordon_and_taints(pod_json, node, want) -> None:
    assert refusal(pod_json, **node) is want


# Selectors ----------------------------------------------------------------------------------------

LABELS = {"zone": "a", "cards": "8", "empty": ""}
NO = NodeReason.AFFINITY


@pytest.mark.parametrize(
    ("pod_json", "want"),
    [
        pytest.param(pod(nodeSelector={"zone": "a"}), None, id="nodeSelector matches"),
        pytest.param(pod(nodeSelector={"zone": "b"}), NO, id="nodeSelector: another value"),
        pytest.param(pod(nodeSelector={"zone": "a", "x": "y"}), NO, id="nodeSelector: all keys"),
        pytest.param(affinity(where("zone", "In", "b", "a")), None, id="In"),
        pytest.param(affinity(where("zone", "In", "b")), NO, id="In: none of them"),
        pytest.param(affinity(where("x", "In", "a")), NO, id="In: no such label"),
        pytest.param(affinity(where("zone", "NotIn", "b")), None, id="NotIn"),
        pytest.param(affinity(where("zone", "NotIn", "a")), NO, id="NotIn: one of them"),
        pytest.param(affinity(where("x", "NotIn", "a")), None, id="NotIn: no such label"),
        pytest.param(affinity(where("empty", "Exists")), None, id="Exists"),
        pytest.param(affinity(where("x", "Exists")), NO, id="Exists: no such label"),
        pytest.param(affinity(where("x", "DoesNotExist")), None, id="DoesNotExist"),
        pytest.param(affinity(where("zone", "DoesNotExist")), NO, id="DoesNotExist: it does"),
        pytest.param(affinity(where("cards", "Gt", "4")), None, id="Gt"),
        pytest.param(affinity(where("cards", "Gt", "8")), NO, id="Gt: an equal number"),
        pytest.param(affinity(where("cards", "Lt", "10")), None, id="Lt, as numbers, not as text"),
        pytest.param(affinity(where("cards", "Lt", "8")), NO, id="Lt: an equal number"),
        pytest.param(affinity(where("zone", "Lt", "8")), NO, id="Lt: a label that is no number"),
        pytest.param(affinity(where("zone", "Is", "a")), NO, id="an unknown operator"),
        pytest.param(
            affinity(where("zone", "In", "b"), where("cards", "Exists")),
            None,
            id="terms are alternatives",
        ),
        pytest.param(
            affinity(
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "Exists"},
                        {"key": "x", "operator": "Exists"},
                    ]
                }
            ),
            NO,
            id="expressions of one term are not",
        ),
        pytest.param(affinity(), NO, id="no term matches nothing"),
        pytest.param(affinity({}), NO, id="an empty term matches nothing"),
        pytest.param(
            affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ),
            None,
            id="the node's name",
        ),
        pytest.param(
            affinity(
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
            ),
            NO,
            id="any node but this",
        ),
    ],
)
def test_node_selector_and_required_affinity(pod_json, want) -> None:
    assert refusal(pod_json, labels=LABELS) is want


# Room ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "asked", "want"),
    [
        pytest.param([], {"cpu": "8", "memory": "32Gi"}, None, id="exactly all there is"),
        pytest.param([], {"cpu": "8001m"}, NodeReason.CPU, id="a thousandth of a CPU too much"),
        pytest.param([], {"memory": "34359738369"}, NodeReason.MEMORY, id="a byte too much"),
        pytest.param([{"cpu": "7500m"}], {"cpu": "1"}, NodeReason.CPU, id="beside a tenant"),
        pytest.param([{"cpu": "20"}], {}, None, id="nothing fits even where too much is taken"),
        pytest.param([{}, {}], {}, NodeReason.PODS, id="one Pod too many"),
        pytest.param([{}, {}], {"cpu": "100"}, NodeReason.PODS, id="Pods are counted first"),
    ],
)
def test_room_is_what_is_allocatable_less_what_is_taken(taken, asked, want) -> None:
    book = NodeBook()
    book.apply_node(build.node_object("n1", cpu="8", memory="32Gi", pods="2"))
    for number, requests in enumerate(taken):
        book.take(f"uid-{number}", "n1", Needs(pod(requests=requests)))

    assert book.refusal(Needs(pod(requests=asked)), "n1") is want
