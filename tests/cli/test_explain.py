"""``cardwise explain``: the account of a Pod from a cluster's objects."""

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as running
from msgspec.structs import replace

import build
from cardwise import names
from cardwise.cli.explain import explain, explain_pod, meant
from cardwise.cli.explanation import State
from cardwise.cli.helps import HELPS, NEVER_FITS
from cardwise.cli.main import cardwise
from cardwise.cli.telling import duration
from cardwise.doors import needs_extender
from cardwise.errors import ApiError
from cardwise.names import Door, EventReason, NodeReason, Reason
from cardwise.settings import Scheduling, Settings
from clusters import clusters
from controllers import World, at_work
from explained import NOW, card_node, document, event, explained, node, printed, reader, tenant
from fakes.cluster import refused, unanswered

TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
GATES = Settings(scheduling=Scheduling(door=Door.GATES))
WAITING_EVENTS = {
    EventReason.GANG_INCOMPLETE,
    EventReason.VOLUME_NOT_READY,
    EventReason.NEEDS_EXTENDER_DOOR,
}


def waiting(name="p", **fields):
    return build.pod(name, **{"gpumem": 1000, "policy": "mutex", **fields})


def gated(name="p", **fields):
    return waiting(name, gates=[names.GATE], scheduler="default-scheduler", **fields)


def full(name="n1"):
    """A node of one card that has a tenant."""
    uuid = "GPU-a" if name == "n1" else f"GPU-{name}-a"
    return (*card_node(name, 1), tenant(f"t-{name}", uuid, on=name))


ALLOCATING = {names.BIND_PHASE: names.BIND_PHASE_ALLOCATING}


def of_hami():
    """A GPUNode of a node whose cards HAMi's device plugin hands out."""
    gpunode = build.gpunode("n1", 2, prefix="GPU-")
    gpunode["metadata"]["labels"] = {names.SOURCE: names.SOURCE_HAMI}
    return gpunode


# A Pod that waits ---------------------------------------------------------------------------------

REFUSALS = [
    pytest.param(waiting(), [full()], Reason.EXCLUSIVE, id="the card has a tenant"),
    pytest.param(
        waiting(gpumem=15000, policy=None), [full()], Reason.MEMORY, id="too little memory"
    ),
    pytest.param(
        waiting(), [card_node(cordoned=["GPU-a", "GPU-b", "GPU-c", "GPU-d"])], Reason.CARD_CORDONED,
        id="an administrator closed the cards",
    ),
    pytest.param(
        waiting(),
        [(node("n1", cordon="GPU-a"), card_node("n1", 1)[1])],
        Reason.CARD_CORDONED,
        id="HAMi's annotation closed the card",
    ),
    pytest.param(
        waiting(), [card_node(reported_at="2026-11-29T11:00:00Z")], Reason.NODE_NOT_REPORTED,
        id="its agent fell silent",
    ),
    pytest.param(waiting(), [node("n1")], Reason.NODE_NOT_REPORTED, id="no agent ever reported"),
    pytest.param(
        waiting(), [node("n1", gpus=None)], Reason.NODE_HAS_NO_CARDS, id="no node has cards"
    ),
    pytest.param(
        waiting(), [card_node(), build.quota(gpumem=500)], Reason.QUOTA, id="the quota is too small"
    ),
    pytest.param(
        waiting(namespace="other"), [full(), build.quota(gpumem=0)], Reason.EXCLUSIVE,
        id="another namespace's quota",
    ),
    pytest.param(
        waiting(),
        [card_node(), build.pod("odd", node="n1", allocated="GPU-a,NVIDIA,many,0:;")],
        Reason.NODE_UNREADABLE,
        id="an allocation there can't be read",
    ),
    pytest.param(
        waiting(), [(node("n1", taints=[TAINT]), card_node()[1])], NodeReason.TAINT,
        id="the one node is tainted",
    ),
    pytest.param(
        waiting(), [(node("n1", pods="1"), card_node()[1]), build.pod("x", gpus=None, node="n1")],
        NodeReason.PODS,
        id="the one node has as many Pods as it takes",
    ),
    pytest.param(
        gated(), [(node("n1", gpus=0), card_node()[1])], NodeReason.RESOURCE,
        id="at the gate: the node advertises nothing",
    ),
    pytest.param(
        gated(spec={"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
        [card_node()],
        EventReason.NEEDS_EXTENDER_DOOR,
        id="at the gate: what only kube-scheduler judges",
    ),
    pytest.param(
        gated(), [(node("n1", gpus=0), card_node(reported_at="2026-11-29T11:00:00Z")[1])],
        Reason.NODE_NOT_REPORTED,
        id="at the gate: it advertises nothing, because its agent fell silent",
    ),
    pytest.param(
        waiting(),
        [node("n1"), of_hami(), tenant("t", "GPU-a", phase="Pending", annotations=ALLOCATING)],
        Reason.NODE_HANDING_OVER,
        id="HAMi hands the node's cards to another Pod",
    ),
    pytest.param(
        waiting(gpumem="16Gi"), [card_node()], Reason.INVALID_REQUEST, id="a value can't be read"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "objects", "word"), REFUSALS)
async def test_a_waiting_pod_is_told_the_word_that_refuses_it(pod, objects, word) -> None:
    found = await explained(pod, *objects)

    assert (found.state, found.reason) == (State.WAITING, word.value)
    assert f"\n{word.value}: " in printed(found)
    assert document(found)["reason"] == word.value


async def test_the_account_groups_the_nodes_and_names_who_holds_the_card() -> None:
    tainted = (node("n3", taints=[TAINT]), card_node("n3", 1)[1])
    bare = [node(f"bare-{number}", gpus=None) for number in range(7)]
    lines = [
        " ".join(line.split())
        for line in printed(
            await explained(waiting(), full("n1"), full("n2"), tainted, *bare)
        ).splitlines()
    ]

    at = lines.index("NODES WORD NAMES")
    assert lines[at + 1 : at + 4] == [
        "2 ExclusiveDeviceAllocateConflict n1, n2",
        "1 TaintNotTolerated n3",
        "7 NodeHasNoCards bare-0, bare-1, bare-2, bare-3, bare-4, … 2 more",
    ]
    assert not any(line.startswith("bare-") for line in lines), "they have no cards to tell of"
    assert "What helps: the card's tenants leave." in lines
    card = "GPU 0 (GPU-a) 1.651042 ExclusiveDeviceAllocateConflict"
    assert f"{card} 14360 MiB, 100 % cores, 9 slots default/t-n1" in lines


async def test_of_many_nodes_few_are_told_unless_all_are_asked_for() -> None:
    found = await explained(waiting(), *(full(f"m{number:02}") for number in range(25)))

    assert printed(found).count("GPU 0 (") == 3
    assert printed(found, trace=True).count("GPU 0 (") == 25
    assert len(document(found)["nodes"]) == 20
    assert len(document(found, trace=True)["nodes"]) == 25


NEVER = [
    pytest.param(waiting(gpumem=99000, policy=None), "the largest has 15360 MiB", id="too large"),
    pytest.param(waiting(gpus=9, policy=None), "No node of the cluster has 9 cards", id="too many"),
]


@pytest.mark.parametrize(("pod", "told"), NEVER)
async def test_where_nothing_that_ends_makes_room_no_tenant_is_to_leave(pod, told) -> None:
    found = await explained(pod, card_node())

    assert told in printed(found)
    assert document(found)["help"] == NEVER_FITS
    assert f"What helps: {NEVER_FITS}." in printed(found)


async def test_a_pod_that_fits_now_is_told_where() -> None:
    found = await explained(waiting(), card_node())

    assert found.reason is None
    assert "As the cluster is now it fits: n1: GPU 0 (GPU-a) 1000 MiB" in printed(found)


async def test_over_booked_cards_and_cordons_of_none_are_noted_in_the_controllers_words() -> None:
    # Red: `_decided` without `complaints`; or they are asked of the views without the Pod; or, for
    # a placed Pod, of all nodes.
    wrong = card_node("n1", 1, cordoned=["GPU-z"])
    both = [tenant(name, "GPU-a", mib=9000) for name in ("t", "u")]
    elsewhere = card_node("n2", 1, cordoned=["GPU-z"])
    pod = waiting(gpumem=16000, policy=None)

    found = await explained(pod, wrong, *both, elsewhere, node("bare"))
    of_placed = await explained(both[0], wrong, both[1], elsewhere)

    stray = 'CordonNamesNoCard: spec.cordonedCards of its GPUNode names "GPU-z", which the node'
    beyond = "CardOverbooked: GPU 0 (GPU-a) is given out beyond its size: 2/10 slots, 18000/15360"
    for notes, nodes in ((found.notes, ("n1", "n1", "n2")), (of_placed.notes, ("n1", "n1"))):
        starts = [f"node {name}: " for name in nodes]
        assert [note[: len(start)] for note, start in zip(notes, starts, strict=True)] == starts
        assert stray in notes[0]
        assert beyond in notes[1]
        assert notes[1].endswith("it is held by default/t, default/u")
    assert "default/t, default/u (over-booked)" in printed(found)


async def test_finished_pods_hold_nothing() -> None:
    ended = tenant("t", "GPU-a", phase="Succeeded")

    found = await explained(waiting(), card_node("n1", 1), ended)

    assert found.reason is None


async def test_the_place_in_the_queue_counts_who_is_before_at_the_gate() -> None:
    crowd = [
        gated("older", created="2026-11-29T11:00:00Z"),
        gated("younger", created="2026-11-29T11:59:00Z"),
        gated("urgent", created="2026-11-29T11:59:00Z", pod_priority=5),
        waiting("no-gate", created="2026-11-29T10:00:00Z"),
    ]
    pod = gated(created="2026-11-29T11:30:00Z")

    found = await explained(pod, full(), *crowd)

    assert "It is number 3 of 4 Pods at the gate" in printed(found)
    assert "at the door gates" in printed(found)


async def test_gates_of_others_are_named() -> None:
    pod = waiting(gates=[names.GATE, "kueue.x-k8s.io/admission"])

    text = printed(await explained(pod, full()))

    assert "by their scheduling gates, and go first: kueue.x-k8s.io/admission." in text
    assert "at the gate," not in text


def of_gang(name="p", size="2", **fields):
    said = {names.GANG: "train"} | ({names.GANG_SIZE: size} if size else {})
    return gated(name, annotations=said, **fields)


def of_group(name="p"):
    return gated(name, labels={names.POD_GROUP_LABEL: "train"})


WRONG_SIZE = 'Gang train: cardwise.dev/gang-size is "0", which is no whole number'
GANGS = [
    pytest.param(
        of_gang(size="3"),
        [of_gang("other")],
        "GangIncomplete: Gang train: 2 of its 3 Pods are here",
        id="one Pod is missing",
    ),
    pytest.param(
        of_gang(size="0"), [], f"GangIncomplete: {WRONG_SIZE}", id="its size can't be read"
    ),
    pytest.param(
        of_gang(),
        [of_gang("other")],
        "; but gang train is placed together, all Pods or none: not looked at.",
        id="all are here",
    ),
    pytest.param(
        of_group(), [], "but gang train is placed together", id="its PodGroup has the size"
    ),
    pytest.param(
        of_gang(size="3"),
        [of_gang("placed", node="n1")],
        "As the cluster is now it fits",
        id="it has begun: the rest joins one by one",
    ),
]


@pytest.mark.parametrize(("pod", "others", "told"), GANGS)
async def test_a_pod_of_a_gang_fits_only_with_the_others(pod, others, told) -> None:
    text = printed(await explained(pod, card_node(), *others))

    assert told in text
    assert "It is one of gang train" in text
    assert ("As the cluster is now it fits" in text) == ("it fits" in told)


OF_CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


async def test_what_explain_cannot_see_is_left_to_the_controllers_latest_word() -> None:
    pod = gated(spec=OF_CLAIM)
    said = event(pod, "VolumeNotReady", "It waits for claim c")

    found = await explained(pod, card_node(), events=(said,))

    assert found.reason == "VolumeNotReady"
    assert "but its volumes have to be there, and usable on that node: not" in printed(found)
    assert "it fits" not in printed(found)


async def test_at_the_gate_a_field_of_kube_schedulers_is_told_in_the_controllers_words() -> None:
    spread = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}

    found = await explained(gated(spec=spread), card_node())

    assert found.reason == "NeedsExtenderDoor"
    assert found.message == needs_extender("spec.topologySpreadConstraints")


async def test_an_event_that_is_no_word_of_waiting_is_no_reason() -> None:
    pod = gated(spec=OF_CLAIM)

    found = await explained(pod, card_node(), events=(event(pod, "UnknownSchedulingPolicy", "x"),))

    assert found.reason is None


NOTES = [
    pytest.param(
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        "spec.topologySpreadConstraints is kube-scheduler's to judge",
        id="a spread constraint",
    ),
    pytest.param(
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "the Pod's volumes were not looked at",
        id="a claim",
    ),
]


@pytest.mark.parametrize(("spec", "told"), NOTES)
async def test_what_only_kube_scheduler_judges_is_noted(spec, told) -> None:
    text = printed(await explained(waiting(spec=spec), card_node()))

    assert f"note: {told}" in text


# A Pod that is placed -----------------------------------------------------------------------------


async def test_a_placed_pod_is_told_its_cards_and_that_today_they_would_be_the_same() -> None:
    pod = tenant(
        "p",
        "GPU-a",
        policy="mutex",
        annotations={names.BIND_PHASE: "success", names.BIND_TIME: "1780000000"},
    )

    text = printed(await explained(pod, card_node()))

    assert "is on n1 since 2026-05-28T20:26:40Z (handed over: success)." in text
    assert "It has n1: GPU 0 (GPU-a) 1000 MiB" in text
    assert "without this Pod, it would get the same cards." in text


async def test_a_placed_pod_is_told_of_cards_that_its_node_does_not_report() -> None:
    pod = tenant("p", "GPU-ghost", "GPU-a")

    assert "\nn1 reports no card GPU-ghost now.\n" in printed(await explained(pod, card_node()))


async def test_a_placed_pod_is_told_that_today_it_would_get_others() -> None:
    pod = tenant("p", "GPU-a", policy="mutex")

    found = await explained(pod, card_node(), tenant("later", "GPU-a"))

    assert "it would get n1: GPU 1 (GPU-b) 1000 MiB" in printed(found)
    told = document(found)
    assert (told["state"], told["node"], told["annotation"]) == (
        "placed",
        "n1",
        "GPU-a,NVIDIA,1000,0:;",
    )
    assert told["containers"][0]["cards"][0] == {
        "uuid": "GPU-a",
        "index": 0,
        "memoryMiB": 1000,
        "cores": 0,
    }
    assert told["today"]["annotation"] == "GPU-b,NVIDIA,1000,0:;"


async def test_its_own_use_of_quota_and_node_is_left_out() -> None:
    pod = tenant("p", "GPU-a")
    narrow = (node("n1", pods="1"), card_node()[1])

    found = await explained(pod, narrow, build.quota(gpumem=1000))

    assert found.today is not None
    assert found.today.node == "n1"


async def test_a_pod_that_was_pinned_is_decided_anew_over_all_nodes() -> None:
    pin = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    affinity = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    pod = build.pod(
        "p",
        gpumem=1000,
        allocated=build.allocation("GPU-n2-a"),
        scheduler="default-scheduler",
        annotations={names.VGPU_NODE: "n2"},
        spec={
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
            }
        },
    )

    found = await explained(pod, card_node("n1"), card_node("n2"))

    assert found.state is State.PLACED
    assert "It is pinned to n2, and default-scheduler has yet to bind it." in printed(found)
    assert "Pod default/p has its cards on n2" in printed(found)
    assert found.today is not None
    assert found.today.node == "n1"


BOOKINGS = [
    pytest.param(None, "on n1 without an allocation", id="no allocation"),
    pytest.param("GPU-a,NVIDIA,many,0:;", "takes no new Pod until", id="an unreadable one"),
]


@pytest.mark.parametrize(("allocated", "told"), BOOKINGS)
async def test_a_placed_pod_without_a_booking_is_told_so(allocated, told) -> None:
    found = await explained(build.pod("p", node="n1", allocated=allocated), card_node())

    assert found.booking is None
    assert told in printed(found)


# Pods that are not Cardwise's to place ------------------------------------------------------------

OTHERS = [
    pytest.param(build.pod("p", gpus=None), State.NO_CARDS, "asks for no card", id="no cards"),
    pytest.param(build.pod("p", gpus=0), State.NO_CARDS, "asks for no card", id="zero cards"),
    pytest.param(
        tenant("p", "GPU-a", phase="Failed"), State.FINISHED, "holds no card any more", id="ended"
    ),
    pytest.param(
        waiting(scheduler="volcano"), State.LEFT_ALONE, '"volcano"', id="another scheduler"
    ),
    pytest.param(
        waiting(scheduler="default-scheduler"), State.LEFT_ALONE, "did not pass", id="bypassed"
    ),
]


@pytest.mark.parametrize(("pod", "state", "told"), OTHERS)
async def test_a_pod_that_is_not_ours_to_place_is_told_so(pod, state, told) -> None:
    found = await explained(pod, card_node())

    assert found.state is state
    assert told in printed(found)


async def test_where_only_gates_are_installed_our_schedulers_name_leads_nowhere() -> None:
    found = await explained(waiting(), card_node(), settings=GATES)

    assert found.state is State.LEFT_ALONE


# What the controller said, and what can't be read -------------------------------------------------


async def test_what_the_controller_said_last_is_told_with_its_age() -> None:
    pod = waiting()
    said = (
        event(pod, "ExclusiveDeviceAllocateConflict", "old news", ago=400),
        event(pod, "ExclusiveDeviceAllocateConflict", "new news", ago=90, count=7),
        event(pod, "KeptBack", "by another", ago=200),
        {**event(pod, "FailedScheduling", "not ours"), "reportingComponent": "kube-scheduler"},
    )

    text = printed(await explained(pod, full(), events=said))

    assert "  90 s ago, 7 times: ExclusiveDeviceAllocateConflict: new news" in text
    assert text.index("new news") < text.index("3 min ago: KeptBack: by another")
    assert "old news" not in text
    assert "not ours" not in text


async def test_the_installed_settings_decide_what_a_pod_does_not_say() -> None:
    pod = build.pod("p", gpumem=1000)

    found = await explained(pod, full(), settings=None, events=())
    mutex = await explain_pod(
        reader(full(), pod, settings="scheduling: {cardPolicy: mutex}"), "default", "p"
    )

    assert found.reason is None
    assert mutex.reason == Reason.EXCLUSIVE


OPTIONAL = [
    pytest.param("events", "what the controller said can't be read: no permission", id="events"),
    pytest.param("settings", "settings are taken for the defaults", id="settings"),
]


@pytest.mark.parametrize(("verb", "note"), OPTIONAL)
async def test_what_is_not_needed_may_be_forbidden(verb, note) -> None:
    here = reader(card_node(), waiting())
    here.cluster.fail(verb, refused(403, "forbidden"))

    found = await explain_pod(here, "default", "p")

    assert found.state is State.WAITING
    assert f"note: {note}" in " ".join(printed(found).split("\n")).replace("the controller's ", "")


FAILURES = [
    pytest.param("pod", refused(403, "no get on pods"), "no get on pods", id="the Pod"),
    pytest.param("gpunodes", refused(404, "not found"), "not installed", id="no such kind"),
    pytest.param("nodes", refused(403, "no list on nodes"), "no list on nodes", id="nodes"),
    pytest.param("unfinished_pods", unanswered(), "no answer", id="nobody answers"),
]


@pytest.mark.parametrize(("verb", "fault", "told"), FAILURES)
async def test_what_is_needed_and_fails_is_one_error(verb, fault, told) -> None:
    here = reader(card_node(), waiting())
    here.cluster.fail(verb, fault)

    with pytest.raises(ApiError, match=told):
        await explain_pod(here, "default", "p")


async def test_a_pod_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ApiError, match="there is no Pod default/p"):
        await explain_pod(reader(card_node()), "default", "p")


@pytest.mark.timeout(20)
def test_the_command_says_in_one_sentence_that_nobody_answers(tmp_path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: it,"
        " clusters: [{name: it, cluster: {server: 'http://127.0.0.1:1'}}],"
        " users: [{name: it, user: {token: x}}],"
        " contexts: [{name: it, context: {cluster: it, user: it}}]}"
    )

    result = CliRunner().invoke(cardwise, ["explain", "p", "--kubeconfig", str(path)])

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no answer from the API server")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.timeout(20)
def test_the_command_says_in_one_sentence_that_there_is_no_kubeconfig(tmp_path) -> None:
    arguments = ["explain", "p", "--kubeconfig", str(tmp_path / "none")]

    result = CliRunner().invoke(cardwise, arguments)

    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: no cluster to talk to: there is no kubeconfig {tmp_path / 'none'}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param([""], '"" names no Pod: write POD, or NAMESPACE/POD', id="nothing"),
        pytest.param(["pod/"], '"pod/" names no Pod', id="a kind alone"),
        pytest.param(["/p"], '"/p" names no Pod', id="no namespace before the slash"),
        pytest.param(["a/b/c"], '"a/b/c" names no Pod', id="three parts"),
        pytest.param(
            ["-n", "b", "a/p"], "a/p is of namespace a, and -n says b", id="two namespaces"
        ),
    ],
)
def test_what_is_no_pods_name_is_refused_before_a_cluster_is_asked(arguments, told) -> None:
    result = CliRunner().invoke(cardwise, ["explain", *arguments])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {told}")


@pytest.mark.parametrize(
    ("written", "want"),
    [("p", ("", "p")), ("a/p", ("a", "p")), ("pod/p", ("", "p")), ("po/p", ("", "p"))],
)
def test_a_pod_may_be_named_as_events_and_top_name_it(written, want) -> None:
    assert meant(written) == want


@pytest.mark.parametrize("written", [["-n", "ns"], ["-n=ns"], ["--namespace=ns"]])
def test_options_may_be_written_as_for_kubectl(written) -> None:
    context = explain.make_context("explain", ["p", *written, "-o=json"])

    assert (context.params["namespace"], context.params["output"]) == ("ns", "json")


def test_every_word_has_a_line_of_what_helps() -> None:
    assert HELPS.keys() == {*Reason, *NodeReason, *WAITING_EVENTS}


DURATIONS = [
    pytest.param(0.4, "0 s", id="now"),
    pytest.param(119, "119 s", id="seconds"),
    pytest.param(120, "2 min", id="minutes"),
    pytest.param(7200, "2 h", id="hours"),
    pytest.param(200_000, "2 d", id="days"),
]


@pytest.mark.parametrize(("seconds", "told"), DURATIONS)
def test_a_duration_is_told_in_one_unit(seconds, told) -> None:
    assert duration(seconds) == told


# The controller's own word ------------------------------------------------------------------------


@pytest.mark.timeout(120)
@running(deadline=None, max_examples=60)
@given(cluster=clusters())
async def test_the_verdict_is_the_controllers(cluster) -> None:
    """Whatever the cluster: the same node and cards, or the same word, as /filter answers."""
    told = {each["metadata"]["name"] for each in cluster.nodes}
    nodes = [*cluster.nodes, *(node(name) for name in cluster.node_names if name not in told)]
    [pod] = cluster.pods
    objects = [*cluster.gpunodes, *nodes, *cluster.tenants, *cluster.quotas, pod]
    world = await World(*objects, settings=cluster.settings).load()

    world.filter(pod, *(each["metadata"]["name"] for each in nodes))
    found = await explained(pod, *objects[:-1], settings=cluster.settings, now=NOW)

    entry = world.entry(pod)
    booking = found.today.decision.booking if found.today and found.today.decision else None
    if entry is None:
        assert found.state is State.NO_CARDS
    else:
        assert (entry.reason, entry.booking) == (found.reason, booking)


@pytest.mark.timeout(120)
@running(deadline=None, max_examples=40)
@given(cluster=clusters())
async def test_the_verdict_is_the_controllers_at_the_gate(cluster) -> None:
    """As above, by the other door; and where the Pod waits, the very message of its event."""
    told = {each["metadata"]["name"] for each in cluster.nodes}
    nodes = [*cluster.nodes, *(node(name) for name in cluster.node_names if name not in told)]
    pod = cluster.pods[0]
    pod["spec"] |= {"schedulerName": "default-scheduler", "schedulingGates": [{"name": names.GATE}]}
    objects = [*cluster.gpunodes, *nodes, *cluster.tenants, *cluster.quotas]
    scheduling = replace(cluster.settings.scheduling, door=Door.GATES)
    chosen = replace(cluster.settings, scheduling=scheduling)

    found = await explained(pod, *objects, settings=chosen)
    async with at_work(*objects, pod, settings=chosen) as world:
        entry, said = world.entry(pod), await world.events()

    booking = found.today.decision.booking if found.today and found.today.decision else None
    if entry is None:
        assert found.state is State.NO_CARDS
    else:
        assert (entry.reason, entry.booking) == (found.reason, booking)
    if found.reason is not None:
        assert (found.reason, found.message) in said
