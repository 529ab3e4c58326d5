"""What kube-scheduler would refuse a node for: one table a rule."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.cli.amounts import Amounts, amount, asked_by
from cardwise.cli.nodefit import Needs, NodeReason, NodeRoom


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
    return NodeRoom(build.node_object("n1", **node)).refusal(Needs(pod_json))


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
    room = NodeRoom(build.node_object(cpu="8", memory="32Gi", pods="2"))
    for requests in taken:
        room.take(Needs(pod(requests=requests)))

    assert room.refusal(Needs(pod(requests=asked))) is want


def test_what_a_node_does_not_tell_is_no_bound() -> None:
    room = NodeRoom({"metadata": {"name": "n1"}})

    assert room.refusal(Needs(pod(requests={"cpu": "1000", "memory": "1Pi"}))) is None


def cpu(value, sidecar=False):
    return build.container("i", requests={"cpu": value}, sidecar=sidecar)


@pytest.mark.parametrize(
    ("pod_json", "want"),
    [
        pytest.param(pod(requests={"cpu": "1", "memory": "1Ki"}), (1, 1024), id="requests"),
        pytest.param(pod(limits={"cpu": "2"}), (2, 0), id="a limit alone is a request"),
        pytest.param(pod(requests={"cpu": "1"}, limits={"cpu": "2"}), (1, 0), id="requests win"),
        pytest.param(pod(requests={"cpu": "1"}, init=[cpu("3")]), (3, 0), id="an init container"),
        pytest.param(pod(requests={"cpu": "3"}, init=[cpu("1")]), (3, 0), id="a smaller one"),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[cpu("2", sidecar=True), cpu("4")]),
            (6, 0),
            id="an init container beside a sidecar",
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, init=[cpu("4"), cpu("2", sidecar=True)]),
            (4, 0),
            id="an init container before a sidecar",
        ),
        pytest.param(
            pod(requests={"cpu": "1"}, overhead={"cpu": "500m"}),
            (Decimal("1.5"), 0),
            id="the overhead of its runtime class",
        ),
        pytest.param(
            pod(requests={"cpu": "1", "memory": "1"}, resources={"requests": {"cpu": "5"}}),
            (5, 1),
            id="resources of the Pod as a whole",
        ),
        pytest.param(pod(requests={"cpu": "much"}), (0, 0), id="what is no quantity"),
    ],
)
def test_what_a_pod_asks_of_its_node(pod_json, want) -> None:
    assert asked_by(pod_json) == Amounts(*map(Decimal, want))


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("1", 1), ("100m", "0.1"), ("1.5", "1.5"), ("2Gi", 2**31), ("1k", 1000), ("1e3", 1000),
        ("1E3", 1000), ("1E", 10**18), (2, 2), (0.5, "0.5"), (".5", "0.5"), ("0", 0),
        ("-1", None), ("", None), ("Gi", None), ("1KiB", None), (True, None), (None, None),
        ([], None), (float("nan"), None), ("1e999", "1e999"), ("1e1000", None), (" 1", None),
    ],
)  # fmt: skip
def test_quantities_of_cpu_and_memory(value, want) -> None:
    assert amount(value) == (None if want is None else Decimal(want))


# Rules --------------------------------------------------------------------------------------------

WHOLE_POD = affinity(where("zone", "In", "b"))
WHOLE_POD["spec"] |= {"tolerations": [taint()], "nodeSelector": {"a": "b"}, "overhead": {"cpu": 1}}
WHOLE_NODE = build.node_object(taints=[taint()], labels=LABELS, unschedulable=True)


@given(
    hostile.spoilt(st.just(WHOLE_POD)).filter(lambda value: isinstance(value, dict)),
    hostile.spoilt(st.just(WHOLE_NODE)).filter(lambda value: isinstance(value, dict)),
)
def test_spoilt_objects_are_judged_without_a_traceback(pod_json, node) -> None:
    room, needs = NodeRoom(node), Needs(pod_json)
    room.take(needs)

    assert room.refusal(needs) in (None, *NodeReason)
