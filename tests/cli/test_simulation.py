"""What ``cardwise simulate`` answers: its JSON, row by row."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hami
import hostile
from cardwise.cli.documents import documents_of
from cardwise.cli.rendering import document_of
from cardwise.cli.simulation import simulate
from cardwise.cli.workloads import expanded
from cardwise.errors import BadDocument
from cardwise.names import NODE_REGISTER, SCHEDULER_NAME
from cardwise.settings import Settings, parse
from simulated import A1, WORKED, answer, node, simulated, small, tenant, where

# The contract -------------------------------------------------------------------------------------


def test_the_worked_example_in_full() -> None:
    taken = "ExclusiveDeviceAllocateConflict"

    (pod,) = document_of(simulated(*WORKED))["pods"]

    assert pod == {
        "pod": "default/new",
        "node": "n1",
        "containers": [
            {
                "name": "app",
                "cards": [{"uuid": "GPU-c", "index": 2, "memoryMiB": 1000, "cores": 0}],
            }
        ],
        "annotation": "GPU-c,NVIDIA,1000,0:;",
        "reason": None,
        "message": "",
        "warnings": [],
        "nodes": {
            "n1": {
                "fits": True,
                "score": "1.238281",
                "reason": None,
                "cards": [
                    {"uuid": "GPU-a", "index": 0, "score": "3.302083", "reason": taken},
                    {"uuid": "GPU-b", "index": 1, "score": "1.651042", "reason": taken},
                    {"uuid": "GPU-c", "index": 2, "score": "0.000000", "reason": None},
                    {"uuid": "GPU-d", "index": 3, "score": "0.000000", "reason": None},
                ],
            }
        },
    }


def test_a_pod_that_waits_in_full() -> None:
    pods = answer(node(cards=1), tenant("t", A1), build.pod("q", gpumem=1, policy="mutex"))

    pod = pods["default/q"]
    nodes = pod.pop("nodes")
    assert pod == {
        "pod": "default/q",
        "node": None,
        "containers": [],
        "annotation": None,
        "reason": "ExclusiveDeviceAllocateConflict",
        "message": "0/1 nodes can take 1 card with 1 MiB (policy mutex). n1: 1/1"
        " ExclusiveDeviceAllocateConflict (GPU 0: default/t).",
        "warnings": [],
    }
    assert nodes["n1"]["fits"] is False
    assert nodes["n1"]["reason"] == "ExclusiveDeviceAllocateConflict"


def test_every_container_is_listed_in_annotation_order() -> None:
    pod = build.pod(
        "p",
        init=[build.container("prepare"), build.container("proxy", gpu=1, gpumem=5, sidecar=True)],
        containers=[build.container("web"), build.container("train", gpu=2, gpumem=7)],
        policy="binpack",
    )

    got = answer(node(), pod)["default/p"]

    assert [each["name"] for each in got["containers"]] == ["prepare", "proxy", "web", "train"]
    assert where(got) == [[], [0], [], [0, 1]]
    assert got["annotation"] == ";GPU-a,NVIDIA,5,0:;;GPU-a,NVIDIA,7,0:GPU-b,NVIDIA,7,0:;"


# Who is there, and who is placed ------------------------------------------------------------------


TAKEN = "ExclusiveDeviceAllocateConflict"


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([], [[0]], id="an idle card"),
        pytest.param([tenant("t", A1)], TAKEN, id="a bound Pod with an allocation is a tenant"),
        pytest.param([tenant("t", A1, terminating=True)], TAKEN, id="so is a terminating one"),
        pytest.param([tenant("t", A1, phase="Succeeded")], [[0]], id="one that succeeded is not"),
        pytest.param([tenant("t", A1, phase="Failed")], [[0]], id="nor one that failed"),
        pytest.param([build.pod("t", node="n1")], [[0]], id="nor one without an allocation"),
        pytest.param(
            [tenant("t", A1, on="n2")], [[0]], id="a tenant of another node holds nothing here"
        ),
        pytest.param(
            [tenant("t", "GPU-a,NVIDIA,x,0:;")],
            "NodeHasUnreadableAllocation",
            id="an allocation that can't be read closes its node",
        ),
        pytest.param([small("earlier")], TAKEN, id="a Pod that was placed earlier is a tenant"),
    ],
)
def test_who_holds_a_card(objects, want) -> None:
    got = answer(*objects, small("p"), node(cards=1))

    assert where(got["default/p"]) == want


def test_pods_are_placed_in_file_order_whatever_else_stands_between() -> None:
    got = answer(small("b"), node(cards=2), small("a"), tenant("t", A1), small("c"))

    assert list(got) == ["default/b", "default/a", "default/c"]
    assert [where(pod) for pod in got.values()] == [[[1]], TAKEN, TAKEN]


def test_two_pods_with_one_uid_are_two_tenants() -> None:
    got = answer(
        node(cards=2),
        tenant("t1", A1, uid="same"),
        tenant("t2", build.allocation("GPU-b"), uid="same"),
        small("p", uid="same"),
    )

    assert where(got["default/p"]) == TAKEN


def test_no_report_is_stale_however_old() -> None:
    assert where(answer(node(reported_at="1999-01-01T00:00:00Z"), small("p"))["default/p"]) == [[0]]


@pytest.mark.parametrize(
    ("object_", "want"),
    [
        pytest.param(
            {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s"}},
            "f.yaml:1: Service default/s: skipped, its kind is not read",
            id="a kind that is not read",
        ),
        pytest.param(
            {"kind": "gpunode", "apiVersion": "cardwise.dev/v1alpha1", "metadata": {"name": "s"}},
            "f.yaml:1: gpunode default/s: skipped, its kind is not read; GPUNode is",
            id="a kind in small letters",
        ),
        pytest.param(
            {
                "kind": "Deployment",
                "apiVersion": "apps/v1",
                "metadata": {"name": "d"},
                "spec": {"replicas": 0},
            },
            "f.yaml:1: Deployment default/d: it stands for no Pod: it has no replicas, is"
            " suspended, or is a DaemonSet and no node is given",
            id="a workload without Pods",
        ),
        pytest.param(
            build.pod("p", gpus=None),
            "f.yaml:1: Pod default/p: skipped, it asks for no card",
            id="a Pod without cards",
        ),
        pytest.param(
            build.pod("p", gpus=0),
            "f.yaml:1: Pod default/p: skipped, it asks for no card",
            id="a Pod that asks for none",
        ),
        pytest.param(
            build.pod("p", scheduler="volcano"),
            'f.yaml:1: Pod default/p: skipped, its scheduler is "volcano"',
            id="a Pod of another scheduler",
        ),
        pytest.param(
            build.pod("p", node="n1"),
            "f.yaml:1: Pod default/p: bound, but it has no allocation, so it holds no card",
            id="a bound Pod that asks for cards and has none",
        ),
    ],
)
def test_what_has_no_part_is_noted(object_, want) -> None:
    found = simulated(object_)

    assert found.notes == (want,)
    assert found.placements == ()


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param("gpu-0", ["node n1 has no card gpu-0, which it holds"], id="misspelt"),
        pytest.param("{card}", [], id="a card of the node"),
    ],
)
@pytest.mark.parametrize("first", ["the node", "the Pod"])
def test_a_tenant_of_a_card_that_its_node_does_not_have_is_noted(held, want, first) -> None:
    there = node()
    uuid = there["status"]["cards"][0]["uuid"]
    tenant = build.pod("t", node="n1", gpumem=1, allocated=f"{held.format(card=uuid)},NVIDIA,1,0:;")

    found = simulated(*((there, tenant) if first == "the node" else (tenant, there)))

    assert [note.partition("default/t: ")[2] for note in found.notes] == want


_BEYOND = (
    "Somebody wrote allocations past Cardwise, or the card offers less than it did; it is held by"
)


# Red: `_Cluster.complete` without `_complain`, or `of_cards` without the one or the other.
@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [node(cards=1), *(tenant(f"t{n}", build.allocation("GPU-a", mib=9000)) for n in "ab")],
            "CardOverbooked: GPU 0 (GPU-a) is given out beyond its size: 2/10 slots,"
            f" 18000/15360 MiB, 0/100 % cores. {_BEYOND} default/ta, default/tb",
            id="more memory than the card has",
        ),
        pytest.param(
            [node(cards=1), *(tenant(f"t{n}", A1) for n in "abcdefghijk")],
            "CardOverbooked: GPU 0 (GPU-a) is given out beyond its size: 11/10 slots,"
            f" 11000/15360 MiB, 0/100 % cores. {_BEYOND} default/ta, default/tb, default/tc,"
            " default/td and 7 more",
            id="more slots than the card has",
        ),
        pytest.param(
            [node(cards=2, cordoned=["GPU-a", "GPU-z"])],
            'CordonNamesNoCard: spec.cordonedCards of its GPUNode names "GPU-z", which the node'
            " does not report: if that is a slip, write a UUID of its cards (GPU-a, GPU-b)",
            id="a cordon of no card in the GPUNode",
        ),
        pytest.param(
            [node(cards=1), build.node_object("n1", cordon="gpu-a")],
            "CordonNamesNoCard: the annotation hami.io/device-cordon of the Node names"
            ' "gpu-a", which the node does not report: if that is a slip, write a UUID of its'
            " cards (GPU-a)",
            id="a cordon of no card on the Node",
        ),
        pytest.param(
            [node(cards=1), build.node_object("n1", annotations={"hami.io/card-cordon": "GPU-a"})],
            "CordonNamesNoCard: the annotation hami.io/card-cordon of the Node closes no card:"
            " write hami.io/device-cordon",
            id="an annotation of another name",
        ),
    ],
)
@pytest.mark.parametrize("reverse", [False, True], ids=["as written", "the other way round"])
def test_what_is_wrong_with_a_nodes_cards_is_noted_in_the_controllers_words(
    objects, want, reverse
) -> None:
    found = simulated(*(reversed(objects) if reverse else objects))

    [note] = found.notes
    assert re.fullmatch(r"f\.yaml:\d+: GPUNode n1: (.*)", note)[1] == want


def test_full_cards_and_cordons_that_close_one_are_no_news() -> None:
    full = tenant("t", build.allocation("GPU-a", mib=15360))
    more = [build.pod(f"p{number}", gpumem=15360) for number in range(2)]

    assert simulated(node(cards=2, cordoned=["GPU-b"]), full, *more).notes == ()


# Red: `_take_registered` does nothing, or does not ask for a GPUNode.
def test_a_node_of_hamis_has_the_cards_that_its_registration_says() -> None:
    nodes = (hami.node("n1", 2), hami.node("n2", 2), build.gpunode("n2", 1))
    taken = build.pod("t", node="n1", gpumem=1, allocated=build.allocation("GPU-a"))

    found = simulated(*nodes, taken, small("p"), small("q"), small("r"))

    assert [each.node for each in found.placements] == ["n1", "n2", None]
    assert found.notes == (
        "f.yaml:1: Node n1: its cards are read from hami.io/node-nvidia-register, as with the"
        " setting migration.hamiNodes",
    )


@pytest.mark.parametrize(
    ("node_", "trouble"),
    [
        pytest.param(
            hami.node("n1", gpus=0), "the node offers no nvidia.com/gpu", id="no plugin there"
        ),
        pytest.param(
            build.node_object(
                "n1", gpus=10, annotations={NODE_REGISTER: "GPU-a,10,15360,100,NVIDIA,0,true:"}
            ),
            "the form with commas of older releases",
            id="the old form",
        ),
    ],
)
def test_a_registration_that_gives_no_card_is_noted(node_, trouble) -> None:
    found = simulated(node_, small("p"))

    assert [each.node for each in found.placements] == [None]
    [note] = found.notes
    assert note.startswith("f.yaml:1: Node n1: no card is read from HAMi's registration: ")
    assert trouble in note


def daemon_set(**spec):
    pod = small("p")
    template = {
        "metadata": {"annotations": pod["metadata"]["annotations"]},
        "spec": {**pod["spec"], **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }


# Red: `_placed` asks about every node; `_is_made` says yes.
def test_a_daemon_set_has_a_pod_on_each_node_that_selector_and_taints_allow() -> None:
    gpu = {"labels": {"gpu": "on"}}
    taint = {"key": "k", "effect": "NoSchedule"}
    nodes = (
        build.node_object("n1", **gpu, unschedulable=True),
        build.node_object("n2", **gpu),
        build.node_object("n3"),
        build.node_object("n4", **gpu, taints=[taint]),
        *(node(name, cards=1) for name in ("n1", "n2", "n3", "n4")),
        build.pod("t", node="n2", gpumem=1, allocated=build.allocation("GPU-n2-a")),
    )

    got = answer(daemon_set(nodeSelector={"gpu": "on"}), *nodes)

    assert {name: where(pod) for name, pod in got.items()} == {
        "default/d-n1": [[0]],
        "default/d-n2": "ExclusiveDeviceAllocateConflict",
    }
    assert got["default/d-n2"]["message"].startswith("0/1 nodes can take")


# Red: a Pod of the same name counts as one of the DaemonSet's.
@pytest.mark.parametrize("others", [(), (small("d"),)], ids=["alone", "beside a namesake Pod"])
def test_a_daemon_set_that_no_node_wants_is_noted(others) -> None:
    nodes = build.node_object("n1"), node()
    found = simulated(*nodes, daemon_set(nodeSelector={"gpu": "on"}), *others)

    assert len(found.placements) == len(others)
    [note] = found.notes
    assert note.partition(": ")[2] == (
        "DaemonSet default/d: it stands for no Pod: its nodeSelector, affinity or"
        " tolerations keep it from every node"
    )


@pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, "", "default-scheduler", "hami-scheduler"])
@pytest.mark.parametrize("admission", [True, False])
def test_pods_of_the_schedulers_that_are_taken_over_are_placed(scheduler, admission) -> None:
    got = answer(node(), small("p", scheduler=scheduler), admission=admission)

    assert where(got["default/p"]) == [[0]]


# Admission ----------------------------------------------------------------------------------------


def test_admission_adds_the_count_and_without_it_the_pod_is_invalid() -> None:
    pod = build.pod("p", gpus=None, gpumem=1000)

    assert where(answer(node(), pod)["default/p"]) == [[0]]
    bare = answer(node(), pod, admission=False)["default/p"]
    assert (bare["reason"], bare["node"], bare["nodes"]) == ("InvalidGPURequest", None, {})
    assert "nvidia.com/gpumem" in bare["message"]


@pytest.mark.parametrize("admission", [True, False])
def test_an_invalid_value_is_refused_with_what_to_write(admission) -> None:
    got = answer(node(), build.pod("p", gpumem="16Gi"), admission=admission)["default/p"]

    assert got["reason"] == "InvalidGPURequest"
    assert "16Gi" in got["message"]
    assert "16384" in got["message"]


def test_a_denied_pod_takes_nothing() -> None:
    denied = small("denied", containers=[build.container(gpu=1, gpumem=1, privileged=True)])

    got = answer(node(cards=1), denied, small("p"))

    assert where(got["default/denied"]) == "InvalidGPURequest"
    assert where(got["default/p"]) == [[0]]


@pytest.mark.parametrize("admission", [True, False])
def test_an_unknown_policy_is_warned_of(admission) -> None:
    got = answer(node(), small("p", policy="mutex,bimpack"), admission=admission)["default/p"]

    assert where(got) == [[0]]
    assert [warning.count("bimpack") for warning in got["warnings"]] == [1]
    assert got["warnings"][0].endswith("did you mean binpack?")


@pytest.mark.parametrize("admission", [True, False])
def test_a_value_without_effect_is_warned_of_once(admission) -> None:
    pod = small("p", annotations={"nvidia.com/vgpu-mode": "hami"})

    got = answer(node(), pod, admission=admission)["default/p"]

    assert ["nvidia.com/vgpu-mode" in warning for warning in got["warnings"]] == [True]


def test_the_settings_are_those_of_the_file() -> None:
    fullest = parse("scheduling: {cardPolicy: binpack}")
    objects = [node(), tenant("t", build.allocation("GPU-c")), small("p", policy=None)]

    assert where(answer(*objects)["default/p"]) == [[0]]
    assert where(answer(*objects, settings=fullest)["default/p"]) == [[2]]


def test_tenants_of_other_namespaces_are_counted_where_the_settings_say_so() -> None:
    quiet = parse("events: {nameTenants: false}")
    objects = [node(cards=1), tenant("t", A1, namespace="secret"), small("p")]

    assert "secret/t" in answer(*objects)["default/p"]["message"]
    assert "secret" not in answer(*objects, settings=quiet)["default/p"]["message"]


# Nodes and quotas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "pod", "want"),
    [
        pytest.param({}, {}, None, id="a Node that takes it"),
        pytest.param({"unschedulable": True}, {}, "NodeUnschedulable", id="cordoned"),
        pytest.param(
            {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            {},
            "TaintNotTolerated",
            id="tainted",
        ),
        pytest.param({"pods": "0"}, {}, "TooManyPods", id="full of Pods"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, "InsufficientCpu", id="too little CPU"),
        pytest.param({"memory": "1"}, {"memory": "2"}, "InsufficientMemory", id="of memory"),
        pytest.param({"cordon": "GPU-a"}, {}, "CardCordoned", id="HAMi's cordon of a card"),
    ],
)
def test_what_a_node_document_says_is_respected(fields, pod, want) -> None:
    container = build.container(gpu=1, gpumem=1000, requests=pod)

    got = answer(
        build.node_object("n1", **fields), node(cards=1), small("p", containers=[container])
    )["default/p"]

    assert got["reason"] == want
    assert got["nodes"]["n1"]["reason"] == want
    assert got["nodes"]["n1"]["fits"] is (want is None)
    assert want is None or want in got["message"]


def test_bound_and_placed_pods_take_cpu_wherever_they_stand_in_the_files() -> None:
    asks = build.container(gpu=1, gpumem=1, requests={"cpu": "3"})

    got = answer(
        build.pod("busy", node="n1", containers=[build.container(requests={"cpu": "4"})]),
        small("a", containers=[asks]),
        small("b", containers=[asks]),
        node(),
        build.node_object("n1", cpu="8"),
    )

    assert [where(pod) for pod in got.values()] == [[[0]], "InsufficientCpu"]


def test_what_one_pod_tolerates_is_not_taken_for_the_next_one() -> None:
    tainted = build.node_object("n1", taints=[{"key": "k", "effect": "NoSchedule"}])
    tolerant = small("tolerant")
    tolerant["spec"]["tolerations"] = [{"operator": "Exists"}]

    got = answer(node(), tainted, small("a"), tolerant, small("b"))

    assert [pod["reason"] for pod in got.values()] == [
        "TaintNotTolerated",
        None,
        "TaintNotTolerated",
    ]


def test_a_finished_pod_takes_nothing_and_is_not_placed() -> None:
    busy = build.container(gpu=1, gpumem=1, requests={"cpu": "8"})

    found = simulated(
        build.node_object("n1", cpu="8"),
        node(cards=1),
        tenant("done", A1, phase="Succeeded", containers=[busy]),
        small("never-bound", phase="Failed"),
        small("p", containers=[busy]),
    )

    assert found.notes == ()
    assert [(str(each.pod), each.node) for each in found.placements] == [("default/p", "n1")]


def test_the_reason_is_a_card_word_where_any_node_was_a_candidate() -> None:
    got = answer(
        node("n1", cards=1),
        tenant("t", A1),
        *(node(name) for name in ("n2", "n3")),
        *(build.node_object(name, unschedulable=True) for name in ("n2", "n3")),
        small("p"),
    )["default/p"]

    assert got["reason"] == TAKEN
    assert got["message"].startswith("0/3 nodes can take ")


def test_nodes_without_cards_are_neither_counted_nor_blamed() -> None:
    got = answer(
        build.node_object("cpu-1", unschedulable=True),
        build.node_object("cpu-2"),
        node(cards=1),
        tenant("t", A1),
        small("p"),
    )["default/p"]

    assert got["message"].startswith("0/1 nodes can take ")
    assert got["nodes"]["cpu-2"]["reason"] == "NodeHasNoCards"


def test_a_node_that_offers_cards_without_a_gpunode_is_not_reported() -> None:
    got = answer(build.node_object("n1", gpus=4), small("p"))["default/p"]

    assert got["reason"] == "NodeNotReported"


def test_without_any_node_the_pod_waits_with_a_reason() -> None:
    got = answer(small("p"))["default/p"]

    assert (got["node"], got["reason"]) == (None, "NodeHasNoCards")
    assert got["message"].endswith("No node was asked about.")


def test_that_no_gpunode_is_given_is_noted_where_a_pod_would_need_one() -> None:
    [note] = simulated(small("p"), build.node_object("n1", gpus=10)).notes
    assert note.startswith("no GPUNode is given, so no node has a card: ")

    assert simulated(small("p"), node()).notes == ()
    assert simulated(build.node_object("n1")).notes == ()


def test_the_lowest_quota_counts_bookings_and_placements() -> None:
    got = answer(
        node(),
        build.quota(gpumem=9000, name="a"),
        build.quota(gpumem=3000, name="b"),
        tenant("t", A1),
        *(small(name, policy="binpack") for name in ("p1", "p2", "p3")),
    )

    assert [pod["reason"] for pod in got.values()] == [None, None, "ResourceQuotaNotFit"]
    assert (
        "is 3000 MiB gpumem: 3000 in use, this Pod would make it 4000 (ResourceQuota b)."
        in (got["default/p3"]["message"])
    )


def test_a_quota_of_another_namespace_bounds_nothing_here() -> None:
    got = answer(node(), build.quota(namespace="other", gpumem=0), small("p"))

    assert where(got["default/p"]) == [[0]]


def test_a_request_that_no_card_could_take_is_said_first() -> None:
    got = answer(node(), build.pod("p", gpumem=20000))["default/p"]

    assert got["message"].startswith(
        "No card of the cluster has 20000 MiB: the largest has 15360 MiB. 0/1 nodes "
    )


# How many nodes are shown -------------------------------------------------------------------------

MANY = [build.gpunode(f"n{number:02}", 1) for number in range(30)]


@pytest.mark.parametrize(
    ("objects", "trace", "want"),
    [
        pytest.param([*MANY[:20], small("p")], False, 20, id="twenty nodes are all shown"),
        pytest.param([*MANY, small("p")], False, 1, id="of more, the chosen one"),
        pytest.param([*MANY, small("p")], True, 30, id="with trace, all"),
        pytest.param([*MANY, build.pod("p", gpumem=99999)], False, 20, id="none fits: twenty"),
        pytest.param([*MANY, build.pod("p", gpumem=99999)], True, 30, id="none fits, trace: all"),
    ],
)
def test_how_many_nodes_are_shown(objects, trace, want) -> None:
    nodes = answer(*objects, trace=trace)["default/p"]["nodes"]

    assert len(nodes) == want
    assert list(nodes) == sorted(nodes)


def test_the_nodes_shown_are_those_that_say_the_reason() -> None:
    nodes = [build.gpunode(f"a{number:02}", 1, cordoned=[f"GPU-a{number:02}-a"]) for number in
             range(15)]  # fmt: skip

    got = answer(*nodes, *MANY, build.pod("p", gpumem=99999))["default/p"]

    assert [each["reason"] for each in got["nodes"].values()] == ["CardInsufficientMemory"] * 20


WHOLE = documents_of(json.dumps({"kind": "List", "items": WORKED[:3]}), "whole")


# Rules --------------------------------------------------------------------------------------------


@given(
    hostile.spoilt(
        st.sampled_from(
            [*WORKED, build.quota(gpumem=5), build.node_object("n1", gpus=4), small("q", gpus=None)]
        )
    )
)
def test_a_spoilt_object_is_answered_or_refused(object_) -> None:
    documents = outcome(lambda: documents_of(json.dumps(object_), "spoilt"))

    found = outcome(lambda: simulate(expanded([*WHOLE, *documents]), Settings()))

    told = document_of(found) if found else {"pods": []}
    assert json.dumps(told)
    assert [pod for pod in told["pods"] if (pod["node"] is None) is (pod["reason"] is None)] == []


def outcome(act):
    try:
        return act()
    except BadDocument:
        return ()


@given(st.permutations(WORKED[:4]))
def test_the_order_of_nodes_and_tenants_does_not_matter(objects) -> None:
    text = json.dumps({"kind": "List", "items": [*objects, WORKED[4]]})

    found = simulate(expanded(documents_of(text, "f.json")), Settings())

    assert where(document_of(found)["pods"][0]) == [[2]]
