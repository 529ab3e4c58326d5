"""Section A of the field reports: the policy annotation, and which card is chosen."""

from typing import Any

import pytest

import build
from cardwise.names import Reason
from cardwise.settings import parse
from controllers import World, background, passing
from reports import fixtures
from reports.fixtures import got, load, one

SMALL = {"gpumem": 1000}


@pytest.mark.parametrize(
    ("loads", "policy", "want"),
    [
        pytest.param(
            {"g0": "2/4000/0", "g1": "1/2000/0", "g2": "1/1000/0"},
            "spread",
            "g3",
            id="R01 spread takes the idle card of the other socket",
        ),
        pytest.param(
            {"g0": "1/1000/0", "g1": "1/2000/0", "g2": "1/1000/0"},
            "spread",
            "g3",
            id="R01 spread goes to the other socket though the first has less to do",
        ),
        pytest.param(
            {"g0": "2/4000/0", "g1": "1/2000/0", "g2": "1/1000/0"},
            "binpack",
            "g0",
            id="R01 binpack takes the fullest card",
        ),
        pytest.param(
            {"g0": "1/1000/0", "g1": "1/2000/0", "g2": "1/1000/0", "g3": "2/4000/0"},
            "binpack",
            "g3",
            id="R01 binpack takes the fullest card though it is on the last socket",
        ),
    ],
)
def test_r01_the_score_comes_before_the_numa_node(
    loads: dict[str, str], policy: str, want: str
) -> None:
    """A NUMA node breaks ties and nothing more.

    Red: in policy.py let the keys of a chain of one name begin with ``NUMA``.
    """
    assert got(*fixtures.t4x4(), *load(**loads), build.pod(policy=policy, **SMALL)) == {"p": [want]}


def test_r02_a_misspelt_policy_keeps_the_clusters_default_and_is_told() -> None:
    """The default that an administrator set stands in, not one that is written in the code.

    Red: in policy.py let a chain without a known name be ``spread``.
    """
    settings = parse("scheduling: {cardPolicy: binpack}")
    pod = build.pod(policy="binpak", **SMALL)

    answer = one(*fixtures.t4x2(), *load(g1="1/1000/0"), pod, settings=settings)

    assert fixtures.cards_of(answer) == ["g1"]
    [warning] = [each for each in answer["warnings"] if "policy" in each]
    assert "binpak" in warning
    assert "did you mean binpack?" in warning


async def test_r02_a_misspelt_policy_is_told_where_the_webhook_was_passed_by() -> None:
    """The Pod's own events say it, too.

    Red: in controller/extender/service.py leave out the call of ``unknown_policies``.
    """
    world = await World(*fixtures.t4x2()).load()

    world.chosen(build.pod(policy="pack", **SMALL), "n1")

    [(reason, note)] = await world.events()
    assert reason == "UnknownSchedulingPolicy"
    assert "'pack' is not known" in note


@pytest.mark.parametrize(
    ("loads", "want"),
    [
        pytest.param({"g0": "1/1000/0"}, ["g1"], id="R05 a card whose one slot is taken is passed"),
        pytest.param(
            {"g0": "1/1000/0", "g1": "1/1000/0"},
            Reason.SLOTS.value,
            id="R05 no slot is free anywhere",
        ),
    ],
)
def test_r05_cards_with_one_slot_cannot_be_packed(loads: dict[str, str], want: Any) -> None:
    """The word is about slots, so that nobody looks for the fault in the policy.

    Red: in engine/candidates.py take the check of slots out of ``CHECKS``.
    """
    [node] = fixtures.t4x2()
    pod = build.pod(policy="binpack", **SMALL)

    answer = one(fixtures.changed(node, slots=1), *load(**loads), pod)

    assert fixtures.cards_of(answer) == want
    if isinstance(want, str):
        assert f"2/2 {want}" in answer["message"]


@pytest.mark.parametrize(
    ("policy", "count", "want"),
    [
        ("binpack", 3, ["g0", "g0", "g0"]),
        ("spread", 4, ["g0", "g1", "g0", "g1"]),
    ],
    ids=["R06 binpack fills one card", "R06 spread alternates"],
)
def test_r06_binpack_and_spread_are_opposites(policy: str, count: int, want: list[str]) -> None:
    """Both from the same idle node.

    Red: in engine/sortkeys.py let ``_fullest`` return the score as it is.
    """
    placed = got(*fixtures.t4x2(), *fixtures.pods(count, policy=policy, **SMALL))

    assert [cards for [cards] in placed.values()] == want


def test_r07_an_annotation_beside_the_template_has_no_effect_and_is_told() -> None:
    """The default places the Pods, and whoever applied the file reads where the line belongs.

    Red: in admission.py let ``template_warnings`` return nothing.
    """
    job = fixtures.job(on_workload={"hami.io/gpu-scheduler-policy": "binpack"}, **SMALL)

    answer = one(*fixtures.t4x2(), *load(g1="1/1000/0"), job)

    assert fixtures.cards_of(answer) == ["g0"]
    assert any("spec.template.metadata.annotations" in each for each in answer["warnings"])


def test_r08_spread_uses_every_card_in_the_order_of_indexes() -> None:
    """Equal Pods on equal cards walk along the node.

    Red: in engine/sortkeys.py let ``ranked`` break ties by ``-sight.card.index``.
    """
    placed = got(*fixtures.a8(), *fixtures.pods(8, policy="spread", gpumem=4000))

    assert [cards for [cards] in placed.values()] == [f"a{index}" for index in range(8)]


def test_r09_mutex_is_about_the_moment_of_placement() -> None:
    """Later ordinary Pods may join; another mutex Pod may not (docs/policies.md says both).

    Red: in engine/candidates.py let ``_taken`` ask for more than two tenants.
    """
    mutex = {"policy": "mutex", **SMALL}

    assert got(
        *fixtures.t4x1(),
        build.pod("m1", **mutex),
        build.pod("o1", **SMALL),
        build.pod("m2", **mutex),
    ) == {"m1": ["g0"], "o1": ["g0"], "m2": Reason.EXCLUSIVE.value}


async def test_r09_a_mutex_pod_that_waits_is_called_as_soon_as_the_card_is_free() -> None:
    """Nobody has to touch it: kube-scheduler is woken when the last tenant is gone.

    Red: in ledger/accounts.py don't set ``grew`` where a booking ends.
    """
    tenants = load(g0="2/2000/0")
    world = await World(*fixtures.t4x1(), build.node_object("n1", gpus=10), *tenants).load()
    waiting = world.cluster.put(build.pod("m2", policy="mutex", **SMALL))
    assert world.filter(waiting, "n1")["FailedAndUnresolvableNodes"] == {"n1": Reason.EXCLUSIVE}

    async with background(world.controller.waker.run()):
        for tenant in tenants:
            world.cluster.remove("Pod", tenant["metadata"]["name"], "default")
        world.deliver()
        await passing(2.0)

    assert world.cluster.called("annotate_node") >= 1
    assert world.chosen(waiting, "n1") == "n1"


def test_r09_a_whole_card_and_an_exclusive_one_are_lasting_locks() -> None:
    """What users who mean a lock can write.

    Red: in engine/candidates.py let ``_locked`` not ask about ``card.exclusive``.
    """
    lock = build.pod("lock", exclusive="true", **SMALL)
    later = build.pod("later", **SMALL)

    assert got(*fixtures.t4x1(), lock, later)["later"] == Reason.EXCLUSIVE.value
    assert got(*fixtures.t4x1(), build.pod("w1"), later)["later"] == Reason.MEMORY.value


def test_r10_a_card_with_tenants_is_no_matter_of_numa() -> None:
    """The word names what stands in the way, also where numa-bind was asked for.

    Red: in engine/candidates.py take ``_taken`` out of ``CHECKS``.
    """
    pod = build.pod(policy="mutex,numa", numa_bind="true", **SMALL)

    answer = one(*fixtures.t4x2(), *load(g0="1/1000/0", g1="1/1000/0"), pod)

    assert answer["reason"] == Reason.EXCLUSIVE.value
    assert f"2/2 {Reason.EXCLUSIVE}" in answer["message"]
    assert Reason.NUMA.value not in answer["message"]


@pytest.mark.parametrize(
    ("links", "topology", "policy", "count", "want"),
    [
        pytest.param(
            True,
            "required",
            "topology-aware",
            3,
            ["a0", "a1", "a2"],
            id="R12 cards of one half are joined",
        ),
        pytest.param(
            True,
            "preferred",
            "topology-aware",
            7,
            ["a0", "a1", "a2", "a3", "a4", "a5", "a6"],
            id="R12 more than a half has",
        ),
        pytest.param(
            False,
            "preferred",
            "topology-aware",
            2,
            ["a0", "a1"],
            id="R12 without links the indexes decide",
        ),
        pytest.param(
            False,
            "preferred",
            "topology-aware,binpack",
            4,
            ["a0", "a1", "a2", "a3"],
            id="R12 without links the sort key decides",
        ),
        pytest.param(
            False,
            "required",
            "topology-aware",
            2,
            Reason.TOPOLOGY.value,
            id="R12 links that are insisted on must be known",
        ),
    ],
)
def test_r12_every_card_is_given_once(
    links: bool, topology: str, policy: str, count: int, want: Any
) -> None:
    """With links or without, no card is taken twice.

    Red: in engine/topology.py let ``found`` name one card for each that was found.
    """
    pod = build.pod(policy=policy, gpus=count, gpumem=4000, topology=topology)

    assert got(*fixtures.a8(links=links), pod) == {"p": want}


def test_r12_eight_of_sixteen_cards_are_chosen_in_bounded_time() -> None:
    """In a test's time; `make bench-micro` and tests/engine/test_topology.py have more.

    Red: in engine/topology.py let ``best_set`` walk through all ``permutations`` first.
    """
    node = build.gpunode("n1", 16, links=build.all_links(16, nvlinks=1))
    pod = build.pod(policy="topology-aware", gpus=8, gpumem=1000)

    answer = one(node, pod)

    assert len(set(fixtures.cards_of(answer))) == 8


@pytest.mark.parametrize(
    ("node_policy", "policy", "want"),
    [
        pytest.param("binpack", "spread", "n1/g1", id="R15 the fuller node, its emptier card"),
        pytest.param("spread", "binpack", "n2/g0", id="R15 the emptier node, its first card"),
        pytest.param("binpack", "binpack", "n1/g0", id="R15 the fuller node, its fuller card"),
    ],
)
def test_r15_node_and_card_have_a_policy_each(node_policy: str, policy: str, want: str) -> None:
    """The two annotations do not follow each other.

    Red: in engine/decide.py take ``spread`` from the keys of the card's policy.
    """
    cluster = [*fixtures.two_nodes(2), *load("n1", several=True, g0="1/1000/0")]

    assert got(*cluster, build.pod(node_policy=node_policy, policy=policy, **SMALL)) == {
        "p": [want]
    }


async def test_r15_the_event_of_a_placed_pod_names_node_card_and_policy() -> None:
    """Which chain was in force is said where people look.

    Red: in wire/account.py leave the policy out of ``allocated_message``.
    """
    world = await World(*fixtures.t4x2()).load()
    pod = world.cluster.put(build.pod(policy="mutex,binpack", **SMALL))
    world.chosen(pod, "n1")

    assert await world.bind(pod) == ""

    [(reason, note)] = await world.events()
    assert (reason, note) == (
        "CardsAllocated",
        "n1: GPU 0 (GPU-g0) 1000 MiB; policy mutex,binpack",
    )
