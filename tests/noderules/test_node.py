"""What kube-scheduler would refuse a node for: one table a rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.names import NodeReason
from cardwise.noderules import Needs, NodeBook, Volumes, load_of, unchecked
from cardwise.noderules.needs import ANY_ADDRESS


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
        pytest.param(affinity(where("zone", "NotIn")), NO, id="none to choose from is bad"),
        pytest.param(affinity(where("zone", "Gt", "a")), NO, id="a bound that is no number"),
        pytest.param(affinity(where("cards", "Gt", "9" * 19)), NO, id="nor one beyond 64 bits"),
        pytest.param(affinity(where("zone", "Exists", "a")), NO, id="Exists takes no value"),
        pytest.param(
            affinity(
                {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]},
                where("zone", "Exists"),
            ),
            None,
            id="a bad term is no alternative, the others are",
        ),
        pytest.param(
            affinity(
                {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]},
            ),
            NO,
            id="a field that no node has",
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
        book.take(f"uid-{number}", "n1", load_of(pod(requests=requests)))

    assert book.refusal(Needs(pod(requests=asked)), "n1") is want


@pytest.mark.parametrize(
    ("room", "taken", "asked", "want"),
    [
        pytest.param("1Gi", "500Mi", "600Mi", NodeReason.STORAGE, id="too little"),
        pytest.param("1Gi", "500Mi", "524Mi", None, id="exactly all there is"),
        pytest.param(None, "0", "1", NodeReason.STORAGE, id="what is not told is nothing"),
        pytest.param(None, "5", "0", None, id="what asks for nothing"),
    ],
)
def test_ephemeral_storage(room, taken, asked, want) -> None:
    book = a_book(**{} if room is None else {"ephemeral-storage": room})
    book.take("uid", "n1", load_of(pod(requests={"ephemeral-storage": taken})))

    assert book.refusal(Needs(pod(requests={"ephemeral-storage": asked})), "n1") is want


HUGE = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("room", "taken", "asked", "want"),
    [
        pytest.param({"example.com/a": "2"}, {"example.com/a": "1"}, {"example.com/a": "1"}, None),
        pytest.param({"example.com/a": "2"}, {"example.com/a": "1"}, {"example.com/a": "2"}, ...),
        pytest.param({"example.com/a": "2"}, {}, {"example.com/b": "1"}, ...),
        pytest.param({HUGE: "4Mi"}, {HUGE: "2Mi"}, {HUGE: "4Mi"}, ...),
        pytest.param({HUGE: "4Mi"}, {}, {HUGE: "4Mi"}, None),
        pytest.param({"nvidia.com/gpu": "8"}, {}, {"nvidia.com/gpumem": "1k"}, ...),
        pytest.param(
            {"nvidia.com/gpumem": "1k"}, {"nvidia.com/gpumem": "1k"}, {"nvidia.com/gpumem": "1k"},
            None,
        ),
    ],
    ids=[
        "the last piece", "a piece too many", "not there", "too few huge pages",
        "all huge pages", "ours, where the node does not advertise it",
        "ours, where others have it all: that is told card by card",
    ],
)  # fmt: skip
def test_other_resources(room, taken, asked, want) -> None:
    book = a_book(**room)
    book.take("uid", "n1", load_of(pod(requests=taken)))

    refusal = book.refusal(Needs(pod(requests=asked)), "n1")

    assert refusal is (NodeReason.RESOURCE if want is ... else None)


def test_what_kube_scheduler_is_told_to_ignore_is_not_counted() -> None:
    book = NodeBook(ignored=["nvidia.com/gpumem"])
    book.apply_node(build.node_object("n1"))
    asked = Needs(pod(requests={"nvidia.com/gpumem": "1k"}))

    assert book.refusal(asked, "n1") is None


def a_book(**room):
    node = build.node_object("n1")
    node["status"]["allocatable"] |= room
    book = NodeBook()
    book.apply_node(node)
    return book


# Ports --------------------------------------------------------------------------------------------


def listening(*ports, sidecar=False, init=()):
    container = {**build.container("c", sidecar=sidecar), "ports": list(ports)}
    if sidecar or init:
        return build.pod(containers=[build.container()], init=[container, *init])
    return build.pod(containers=[container])


def port(number=80, address=None, protocol=None):
    given = {"hostPort": number, "hostIP": address, "protocol": protocol}
    return {key: value for key, value in given.items() if value is not None}


TAKEN = NodeReason.PORTS


@pytest.mark.parametrize(
    ("there", "asked", "want"),
    [
        pytest.param(port(), port(), TAKEN, id="the same port"),
        pytest.param(port(), port(81), None, id="another port"),
        pytest.param(port(), port(protocol="UDP"), None, id="another protocol"),
        pytest.param(port(), port(protocol="TCP"), TAKEN, id="no protocol is TCP"),
        pytest.param(port(address="10.0.0.1"), port(address="10.0.0.2"), None, id="elsewhere"),
        pytest.param(port(address="10.0.0.1"), port(address="10.0.0.1"), TAKEN, id="same address"),
        pytest.param(port(address="10.0.0.1"), port(), TAKEN, id="all addresses against one"),
        pytest.param(port(), port(address="10.0.0.1"), TAKEN, id="one address against all"),
        pytest.param(port(address=ANY_ADDRESS), port(), TAKEN, id="all addresses by name"),
        pytest.param({"containerPort": 80}, {"containerPort": 80}, None, id="not of the node"),
        pytest.param(port(0), port(0), None, id="port 0 is none"),
    ],
)
def test_host_ports(there, asked, want) -> None:
    book = a_book()
    book.take("uid", "n1", load_of(listening(there)))

    assert book.refusal(Needs(listening(asked)), "n1") is want


@pytest.mark.parametrize(
    ("tenant", "want"),
    [
        pytest.param(listening(port(), sidecar=True), TAKEN, id="of a sidecar"),
        pytest.param(
            listening(port(), init=[build.container("i")]), None, id="of an init container"
        ),
    ],
)
def test_host_ports_of_containers_that_run_to_the_end(tenant, want) -> None:
    book = a_book()
    book.take("uid", "n1", load_of(tenant))

    assert book.refusal(Needs(listening(port())), "n1") is want


# What is not told ---------------------------------------------------------------------------------


def test_a_node_that_tells_nothing_has_nothing() -> None:
    book = NodeBook()
    book.apply_node({"metadata": {"name": "n1"}})

    assert book.refusal(Needs(pod()), "n1") is NodeReason.PODS


def test_a_node_that_nobody_told_of_is_refused_by_its_name() -> None:
    book = a_book()

    assert book.refusal(Needs(pod()), "n2") is NodeReason.AFFINITY
    assert book.refusals(Needs(pod()), ("n1", "n2")) == {"n2": NodeReason.AFFINITY}


def test_where_nodes_are_told_of_in_part_the_rest_is_no_bound() -> None:
    book = NodeBook(untold_is_no_bound=True)
    book.apply_node({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}})
    big = Needs(pod(requests={"memory": "1Pi", "example.com/a": "7"}))

    assert book.refusals(big, ("n1", "n2")) == {}
    assert book.refusal(big, "n2") is None
    assert book.refusal(Needs(pod(requests={"cpu": "2"})), "n1") is NodeReason.CPU


# Spoilt objects -----------------------------------------------------------------------------------

WHOLE_POD = listening(port(), sidecar=True)
WHOLE_POD["spec"] |= affinity(where("zone", "In", "b"))["spec"] | {
    "tolerations": [taint()],
    "nodeSelector": {"a": "b"},
    "overhead": {"cpu": 1},
    "resources": {"requests": {"cpu": "1"}},
    "volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "e", "ephemeral": {}},
    ],
    "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
}
WHOLE_POD["spec"]["affinity"]["podAntiAffinity"] = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "namespaces": ["n"], "labelSelector": {"matchLabels": {"a": "b"}}}
    ]
}
WHOLE_POD["status"] |= {
    "resources": {"requests": {"cpu": "1"}},
    "allocatedResources": {"cpu": "1"},
    "containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "1"}}],
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
}
WHOLE_NODE = build.node_object(taints=[taint()], labels=LABELS, unschedulable=True)
WHOLE_CLAIM = {
    "metadata": {
        "name": "c",
        "namespace": "default",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        "ownerReferences": [{"uid": "u", "controller": True}],
    },
    "spec": {"volumeName": "v", "storageClassName": "s", "accessModes": ["ReadWriteMany"]},
    "status": {"phase": "Bound"},
}
WHOLE_VOLUME = {
    "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "a"}},
    "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [where("zone", "In", "b")]}}},
}
CLASS = {"metadata": {"name": "s"}, "volumeBindingMode": "Immediate"}


def objects(whole):
    return hostile.spoilt(st.just(whole)).filter(lambda value: isinstance(value, dict))


@given(
    objects(WHOLE_POD) | st.just(WHOLE_POD),
    objects(WHOLE_NODE) | st.just(WHOLE_NODE),
    objects(WHOLE_CLAIM) | st.just(WHOLE_CLAIM),
    objects(WHOLE_VOLUME) | st.just(WHOLE_VOLUME),
    objects(CLASS) | st.just(CLASS),
)
def test_spoilt_objects_are_judged_without_a_traceback(
    pod_json, node, claim, volume, storage_class
) -> None:
    book, volumes, needs = NodeBook(), Volumes(), Needs(pod_json)
    volumes.apply_claim(claim)
    volumes.apply_volume(volume)
    volumes.apply_class(storage_class)
    book.apply_node(node)
    book.take("uid", "n1", needs.load)

    assert isinstance(unchecked(pod_json), str)
    judged = volumes.judge(needs)
    assert book.refusal(needs, "n1", judged.reach) in (None, *NodeReason)
    book.release("uid")
