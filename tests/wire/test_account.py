"""Why a Pod waits, as its event tells it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.model import CardUse, ContainerKind, Outcome, Policy, QuotaBound
from cardwise.names import Reason
from cardwise.wire.account import ClusterSize, QuotaAccount
from told import FULL, MUTEX_BINPACK, SPREAD, TAKEN, ask, card, message, refused, request, view

# Why a Pod waits ----------------------------------------------------------------------------------


def test_the_message_of_the_law_is_word_for_word() -> None:
    told = message(
        {"node-a": refused(TAKEN, TAKEN, TAKEN)},
        view("node-a", card(0), card(1), tenants=(("default/a", "default/b"), ("default/c",))),
        of=request(ask(mib=1000), policy=MUTEX_BINPACK),
    )

    assert told == (
        "0/1 candidate nodes can take 1 card with 1000 MiB (policy mutex,binpack). node-a: 2/2"
        " ExclusiveDeviceAllocateConflict (GPU 0: default/a, default/b; GPU 1: default/c)."
    )


@pytest.mark.parametrize(
    ("outcome", "node", "want"),
    [
        pytest.param(
            refused(FULL, FULL, FULL),
            view("n", card(0, used=8000), card(1, used=8000)),
            "n: 2/2 CardInsufficientMemory (largest free 7360 MiB, total free 14720 MiB).",
            id="memory: the largest free and the total free",
        ),
        pytest.param(
            refused(FULL, FULL),
            view("n", card(0, used=20000)),
            "n: 1/1 CardInsufficientMemory (largest free 0 MiB, total free 0 MiB).",
            id="an over-booked card has nothing free, never less",
        ),
        pytest.param(
            refused(Reason.CORES, Reason.CORES, Reason.CORES),
            view("n", card(0, used_cores=80), card(1, used_cores=70)),
            "n: 2/2 CardInsufficientCore (most free cores 30 %).",
            id="cores: the most that is free",
        ),
        pytest.param(
            refused(Reason.SLOTS, Reason.SLOTS),
            view("n", card(0, slots_used=10)),
            "n: 1/1 CardTimeSlicingExhausted (GPU 0: 10/10 slots).",
            id="slots: used and offered",
        ),
        pytest.param(
            refused(FULL, FULL, FULL, FULL, FULL, FULL),
            view(
                "n",
                card(0, used=15000),
                card(1, used=14000),
                card(2, used=15360),
                card(3, used=15100),
                card(4, used=15100),
                tenants=(("x/a",), ("x/b", "x/c"), ("x/d",), ("x/e",), ()),
            ),
            "n: 5/5 CardInsufficientMemory (largest free 1360 MiB, total free 2240 MiB;"
            " GPU 1: x/b, x/c; GPU 0: x/a; GPU 3: x/e; …).",
            id="memory: who holds the cards that come nearest",
        ),
        pytest.param(
            refused(Reason.CORES, Reason.CORES),
            view("n", card(0, used_cores=80), tenants=(("x/a",),)),
            "n: 1/1 CardInsufficientCore (most free cores 20 %; GPU 0: x/a).",
            id="cores: who holds them",
        ),
        pytest.param(
            refused(Reason.COMPUTE, Reason.COMPUTE),
            view("n", card(0, used_cores=100), tenants=(("x/a",),)),
            "n: 1/1 CardComputeUnitsExhausted (GPU 0: x/a).",
            id="no core left: who holds them",
        ),
        pytest.param(
            refused(Reason.CARD_TYPE, Reason.CARD_TYPE, detail="cards in mig mode wait"),
            view("n", card(0, mode="mig")),
            "n: 1/1 CardTypeMismatch (cards in mig mode wait; GPU 0: NVIDIA-Tesla T4 in mode mig).",
            id="type: the model and the mode, and what the engine said",
        ),
        pytest.param(
            refused(FULL, Reason.CARD_TYPE, FULL, FULL, detail="cards in mig mode wait"),
            view("n", card(0, mode="mig"), card(1), card(2)),
            "n: 2/3 CardInsufficientMemory (largest free 15360 MiB, total free 30720 MiB on these 2"
            " cards), 1/3 CardTypeMismatch (cards in mig mode wait; GPU 0: NVIDIA-Tesla T4 in mode"
            " mig).",
            id="what the engine said of modes stands with the cards it is about",
        ),
        pytest.param(
            refused(Reason.TOPOLOGY, Reason.TOPOLOGY, Reason.CARD_TYPE, detail="no links"),
            view("n", card(0), card(1)),
            "n: 1/2 CardTopologyNotSatisfied (no links), 1/2 CardTypeMismatch"
            " (GPU 1: NVIDIA-Tesla T4 in mode hami-core).",
            id="what the engine said of links stands with the links",
        ),
        pytest.param(
            refused(Reason.CARD_NOT_HEALTHY, Reason.CARD_NOT_HEALTHY),
            view("n", card(0, healthy=False)),
            "n: 1/1 CardNotHealth (GPU 0).",
            id="health: which cards, where the agent does not say why",
        ),
        pytest.param(
            refused(Reason.CARD_NOT_HEALTHY, Reason.CARD_NOT_HEALTHY),
            view("n", card(0, healthy=False), troubles=("Xid 79: fallen off the bus",)),
            "n: 1/1 CardNotHealth (GPU 0: Xid 79: fallen off the bus).",
            id="health: why, as the agent says",
        ),
        pytest.param(
            refused(Reason.CARD_CORDONED, Reason.CARD_CORDONED),
            view("n", card(0)),
            "n: 1/1 CardCordoned (GPU 0).",
            id="other words: which cards",
        ),
        pytest.param(
            refused(FULL, FULL, None),
            view("n", card(0, used=15000), card(1)),
            "n: 1/2 CardInsufficientMemory (largest free 360 MiB, total free 360 MiB on this"
            " card), 1/2 could take it.",
            id="a card that could take it is told of: one too few",
        ),
        pytest.param(
            refused(TAKEN, FULL, TAKEN, FULL),
            view("n", card(0), card(1), card(2), tenants=((), ("x/y",), ())),
            "n: 1/3 ExclusiveDeviceAllocateConflict (GPU 1: x/y), 2/3 CardInsufficientMemory"
            " (largest free 15360 MiB, total free 30720 MiB on these 2 cards).",
            id="the node's leading word comes first, even where it is not the most frequent",
        ),
        pytest.param(
            refused(TAKEN, TAKEN, Reason.CARD_CORDONED, FULL, FULL),
            view("n", *(card(index) for index in range(4))),
            "n: 1/4 ExclusiveDeviceAllocateConflict (GPU 0), 2/4 CardInsufficientMemory"
            " (largest free 15360 MiB, total free 30720 MiB on these 2 cards), 1/4 CardCordoned"
            " (GPU 1).",
            id="after the leading word the more frequent ones",
        ),
        pytest.param(
            refused(Reason.CARD_UUID, *[Reason.CARD_UUID] * 9),
            view("n", *(card(index) for index in range(9))),
            "n: 9/9 CardUuidMismatch (GPU 0; GPU 1; GPU 2; GPU 3; GPU 4; GPU 5; GPU 6; GPU 7; …).",
            id="of many cards the first eight are listed",
        ),
        pytest.param(
            refused(Reason.CARD_UUID, *[Reason.CARD_UUID] * 8),
            view("n", *(card(index) for index in range(8))),
            "n: 8/8 CardUuidMismatch (GPU 0; GPU 1; GPU 2; GPU 3; GPU 4; GPU 5; GPU 6; GPU 7).",
            id="eight cards are all listed",
        ),
        pytest.param(
            refused(TAKEN, TAKEN),
            view("n", card(0, exclusive=True), tenants=(("x/y",),)),
            "n: 1/1 ExclusiveDeviceAllocateConflict (GPU 0: x/y (exclusive)).",
            id="a card that an exclusive Pod holds says so",
        ),
        pytest.param(
            refused(TAKEN, TAKEN),
            view("n", card(0), tenants=(tuple(f"x/{number}" for number in range(6)),)),
            "n: 1/1 ExclusiveDeviceAllocateConflict (GPU 0: x/0, x/1, x/2, x/3, 2 more).",
            id="of many tenants the first four are named",
        ),
        pytest.param(
            Outcome(reason=Reason.NODE_TOO_FEW_CARDS),
            view("n", card(0), card(1)),
            "n: NodeInsufficientDevice (it has 2 cards).",
            id="a node with too few cards says how many it has",
        ),
        pytest.param(
            Outcome(reason=Reason.NODE_UNREADABLE, detail="Pod x/y: no number"),
            view("n", card(0), problem=Reason.NODE_UNREADABLE, detail="Pod x/y: no number"),
            "n: NodeHasUnreadableAllocation (Pod x/y: no number).",
            id="a node's own detail is told once",
        ),
        pytest.param(
            refused(Reason.NUMA, Reason.NUMA, Reason.NUMA),
            view("n", card(0, numa=1), card(1)),
            "n: 2/2 NumaNotFit (GPU 0: NUMA node 1; GPU 1: NUMA node unknown).",
            id="numa: where each card is",
        ),
        pytest.param(
            refused(Reason.NUMA, Reason.NUMA),
            None,
            "n: NumaNotFit.",
            id="a node whose view is gone is told by its word",
        ),
    ],
)
def test_a_node_tells_its_words_with_counts_and_details(outcome, node, want) -> None:
    told = message({"n": outcome}, *([node] if node else []))

    assert told.partition("). ")[2] == want


@pytest.mark.parametrize(
    ("reason", "policy", "want"),
    [
        pytest.param(
            TAKEN, MUTEX_BINPACK, "GPU 0: an earlier container of this Pod", id="under mutex"
        ),
        pytest.param(
            TAKEN, SPREAD, "GPU 0: an earlier container of this Pod", id="for a whole card's cores"
        ),
        pytest.param(
            Reason.COMPUTE, SPREAD, "GPU 0: an earlier container of this Pod", id="no core left"
        ),
        pytest.param(Reason.SLOTS, SPREAD, "GPU 0: 0/10 slots before this Pod", id="no slot left"),
    ],
)
def test_an_empty_card_that_is_refused_was_taken_by_the_pod_itself(reason, policy, want) -> None:
    told = message(
        {"n": refused(reason, reason, container=1)},
        view("n", card(0)),
        of=request(ask(mib=1), ask(mib=1), policy=policy),
    )

    assert told.endswith(f"n: c1: 1/1 {reason} ({want}).")


def test_a_later_container_sees_less_than_the_view_and_the_message_says_so() -> None:
    told = message(
        {"n": refused(FULL, FULL, container=1)},
        view("n", card(0)),
        of=request(ask(mib=9000), ask(mib=9000), names=("first", "second")),
    )

    assert "n: second: 1/1 CardInsufficientMemory (largest free 15360 MiB" in told
    assert "total free 15360 MiB before this Pod)" in told


@pytest.mark.parametrize(
    ("name_tenants", "want"),
    [
        pytest.param(True, "GPU 0: default/a, other/b, third/c", id="named by default"),
        pytest.param(False, "GPU 0: default/a, 2 of other namespaces", id="counted when off"),
    ],
)
def test_tenants_of_other_namespaces(name_tenants, want) -> None:
    told = message(
        {"n": refused(TAKEN, TAKEN)},
        view("n", card(0), tenants=(("default/a", "other/b", "third/c"),)),
        name_tenants=name_tenants,
    )

    assert f"({want})." in told
    assert ("other/b" in told) is name_tenants


def test_a_namespace_that_only_begins_alike_is_another_one() -> None:
    told = message(
        {"n": refused(TAKEN, TAKEN)},
        view("n", card(0), tenants=(("default-2/a",),)),
        name_tenants=False,
    )

    assert "default-2" not in told


# Which nodes are told -----------------------------------------------------------------------------


def test_nodes_without_cards_are_not_counted() -> None:
    none = Outcome(reason=Reason.NODE_HAS_NO_CARDS)
    told = message({"cpu": none, "n": refused(FULL, FULL)}, view("n", card(0)), reason=FULL)

    assert told.startswith("0/1 candidate nodes can take ")
    assert "cpu" not in told


@pytest.mark.parametrize(
    ("count", "want"),
    [
        pytest.param(0, "No node was asked about.", id="nobody asked"),
        pytest.param(1, "The one node asked about has no GPU (NodeHasNoCards).", id="one node"),
        pytest.param(
            3, "None of the 3 nodes asked about has a GPU (NodeHasNoCards).", id="several nodes"
        ),
    ],
)
def test_where_no_node_has_cards_the_message_says_that(count, want) -> None:
    none = Outcome(reason=Reason.NODE_HAS_NO_CARDS)

    told = message({f"n{number}": none for number in range(count)})

    assert told == f"0/0 candidate nodes can take 1 card with 1000 MiB (policy spread). {want}"


def test_nodes_with_the_leading_reason_come_first_and_then_by_name() -> None:
    told = message(
        {"a": refused(FULL, FULL), "c": refused(TAKEN, TAKEN), "b": refused(TAKEN, TAKEN)},
        *(view(name, card(0)) for name in "abc"),
        reason=TAKEN,
    )

    assert told.index("b: ") < told.index("c: ") < told.index("a: ")


def test_the_leading_reason_goes_before_a_word_of_more_nodes() -> None:
    few = Outcome(reason=Reason.NODE_TOO_FEW_CARDS)

    told = message({"a": few, "b": few, "c": refused(FULL, FULL)}, view("c", card(0)), reason=FULL)

    assert told.index("c: ") < told.index("a: ") < told.index("b: ")


def test_of_many_nodes_the_words_are_counted_before_any_node_is_told() -> None:
    outcomes = {f"n{number:04}": refused(FULL, FULL) for number in range(990)}
    outcomes |= {f"x{number:04}": refused(TAKEN, TAKEN) for number in range(10)}

    told = message(outcomes, view("n0000", card(0)), reason=FULL)

    assert told.startswith(
        "0/1000 candidate nodes can take 1 card with 1000 MiB (policy spread)."
        " 990 CardInsufficientMemory, 10 ExclusiveDeviceAllocateConflict. n0000: "
    )
    assert len(told.encode()) == 1024


def test_nodes_that_were_no_candidates_are_counted_and_named() -> None:
    told = message(
        {"n": refused(FULL, FULL)},
        view("n", card(0)),
        what="nodes",
        others={"t": "TaintNotTolerated"},
    )

    assert told.startswith("0/2 nodes can take ")
    assert told.endswith("; t: TaintNotTolerated.")


# What is said before any node ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            ask(mib=20000),
            "No card of the cluster has 20000 MiB: the largest has 15360 MiB. 0/1 ",
            id="more memory than the largest card",
        ),
        pytest.param(
            ask(count=9, mib=1),
            "No node of the cluster has 9 cards: the most is 8. 0/1 ",
            id="more cards than any node",
        ),
        pytest.param(
            ask(count=9, mib=15361),
            "No card of the cluster has 15361 MiB: the largest has 15360 MiB."
            " No node of the cluster has 9 cards: the most is 8. 0/1 ",
            id="both",
        ),
        pytest.param(ask(count=8, mib=15360), "0/1 ", id="exactly as much as there is"),
        pytest.param(ask(percent=100), "0/1 ", id="a whole card, however large"),
    ],
)
def test_a_request_that_no_card_could_ever_take_is_said_first(asked, want) -> None:
    told = message(
        {"n": refused(FULL, FULL)},
        view("n", card(0)),
        of=request(asked),
        cluster=ClusterSize(largest_card_mib=15360, most_cards=8),
    )

    assert told.startswith(want)


QUOTA = QuotaAccount(
    namespace="default",
    bound=QuotaBound(memory_mib=8192, cores=100),
    used=CardUse(0, 6144, 60),
)


@pytest.mark.parametrize(
    ("asks", "options", "want"),
    [
        pytest.param(
            [ask(count=2, mib=4096)],
            {},
            [
                "The quota of namespace default is 8192 MiB gpumem: 6144 in use, this Pod would"
                " make it 14336."
            ],
            id="memory counts per card",
        ),
        pytest.param(
            [ask(mib=1, cores=50)],
            {},
            [
                "The quota of namespace default is 100 % gpucores: 60 in use, this Pod would"
                " make it 110."
            ],
            id="cores alone",
        ),
        pytest.param(
            [ask(percent=50)],
            {},
            ["6144 in use, this Pod would make it 13824."],
            id="a percentage counts its MiB",
        ),
        pytest.param(
            [ask(mib=5000, kind=ContainerKind.INIT), ask(mib=3000)],
            {},
            ["6144 in use, this Pod would make it 11144."],
            id="an init container and a regular one: the larger",
        ),
        pytest.param(
            [
                ask(mib=1000, kind=ContainerKind.SIDECAR),
                ask(mib=5000, kind=ContainerKind.INIT),
                ask(mib=3000),
            ],
            {},
            ["6144 in use, this Pod would make it 12144."],
            id="a sidecar runs beside both",
        ),
        pytest.param(
            [ask(mib=1000)],
            {"exclusive": True},
            [
                "8192 MiB gpumem: 6144 in use, this Pod would make it 21504.",
                "100 % gpucores: 60 in use, this Pod would make it 160.",
            ],
            id="an exclusive Pod counts the whole card",
        ),
        pytest.param(
            [ask(mib=1000), ask(count=2, mib=1000)],
            {"exclusive": True},
            ["this Pod would make it 36864.", "this Pod would make it 260."],
            id="and no less than its largest container holds, for its containers may share",
        ),
        pytest.param(
            [ask(mib=4096, cores=40)],
            {},
            ["6144 in use, this Pod would make it 10240."],
            id="a bound that is just reached is not told",
        ),
    ],
)
def test_a_quota_is_told_with_bound_use_and_what_the_pod_would_make_it(asks, options, want) -> None:
    told = message(
        {"n": refused(Reason.QUOTA, Reason.QUOTA)},
        view("n", card(0)),
        of=request(*asks, **options),
        quota=QUOTA,
    )

    before_the_node = told.partition(" n: ")[0]
    assert [sentence in before_the_node for sentence in want] == [True] * len(want)
    assert before_the_node.count("The quota") == len(want)


@pytest.mark.parametrize(
    ("asks", "verdicts", "want"),
    [
        pytest.param(
            [ask(percent=50)],
            (Reason.QUOTA, None),
            "6144 in use, this Pod would make it 13824.",
            id="a percentage counts the card that was refused, not a smaller one",
        ),
        pytest.param(
            [ask(percent=50)],
            (FULL, Reason.QUOTA),
            "is 8192 MiB gpumem: 6144 in use.",
            id="where the smallest refused card does not tell, the bounds are told",
        ),
    ],
)
def test_a_quota_that_refused_some_cards_is_told(asks, verdicts, want) -> None:
    told = message(
        {"n": refused(Reason.QUOTA, *verdicts)},
        view("n", card(0), card(1, mib=1000)),
        of=request(*asks),
        quota=QUOTA,
    )

    assert want in told.partition(" n: ")[0]


IN_VAIN = "no Pod that ends makes room for it"


@pytest.mark.parametrize(
    ("asks", "options", "in_vain"),
    [
        pytest.param([ask(mib=8193)], {}, True, id="more memory than the bound"),
        pytest.param([ask(count=2, mib=4097)], {}, True, id="its cards together"),
        pytest.param([ask(mib=1, cores=101)], {}, True, id="more cores than the bound"),
        pytest.param([ask(mib=8192, cores=100)], {}, False, id="just the bound"),
        pytest.param([ask(percent=100)], {}, False, id="a percentage: a smaller card might do"),
        pytest.param([ask(mib=1)], {"exclusive": True}, False, id="a whole card: a smaller one"),
    ],
)
def test_a_pod_that_is_above_its_quota_alone_is_told_that_it_waits_in_vain(
    asks, options, in_vain
) -> None:
    told = message(
        {"n": refused(Reason.QUOTA, Reason.QUOTA)},
        view("n", card(0)),
        of=request(*asks, **options),
        quota=QUOTA,
    )

    assert (IN_VAIN in told) is in_vain


def test_a_quota_is_told_by_the_nodes_whose_word_it_is() -> None:
    # Red: the cards that would go over it are taken from all nodes.
    told = message(
        {"m": refused(FULL, FULL, Reason.QUOTA), "n": refused(Reason.QUOTA, Reason.QUOTA)},
        view("m", card(0), card(1, mib=1000)),
        view("n", card(0), card(1)),
        of=request(ask(percent=50)),
        quota=QUOTA,
    )

    assert "6144 in use, this Pod would make it 13824." in told


def test_a_quota_is_not_told_where_it_refused_nothing() -> None:
    told = message({"n": refused(FULL, FULL)}, view("n", card(0)), quota=QUOTA)

    assert "quota" not in told


def test_the_note_on_preemption_is_never_cut_off() -> None:
    outcomes = {f"node-{number}": refused(FULL, FULL) for number in range(100)}

    told = message(outcomes, preemption_note=True)

    assert told.endswith("… Preemption of GPU tenants is not supported.")
    assert len(told.encode()) <= 1024


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param({"policy": MUTEX_BINPACK}, "(policy mutex,binpack)", id="the chain in force"),
        pytest.param({"exclusive": True}, "(policy spread, exclusive)", id="an exclusive Pod"),
        pytest.param({"numa_bind": True}, "(policy spread, numa-bind)", id="bound to a NUMA node"),
        pytest.param({"policy": Policy()}, "(policy spread)", id="a chain without a name"),
        pytest.param(
            {"use_types": ("a100", "l40"), "nouse_types": ("t4",)},
            "(policy spread, use-gputype a100|l40, nouse-gputype t4)",
            id="the models it asks for, and those it does not want",
        ),
        pytest.param(
            {"use_uuids": frozenset({"c", "a", "b"}), "nouse_uuids": frozenset({"d"})},
            "(policy spread, use-gpuuuid a|b|1 more, nouse-gpuuuid d)",
            id="the cards that it names, the first two",
        ),
        pytest.param(
            {"modes": frozenset({"mps"})}, "(policy spread, vgpu-mode mps)", id="the mode it asks"
        ),
    ],
)
def test_the_terms_of_the_placement_are_told(options, want) -> None:
    told = message({"n": refused(FULL, FULL)}, of=request(**options))

    assert f" {want}. " in told


# Rules --------------------------------------------------------------------------------------------

reasons = st.sampled_from(Reason)
names = st.text(min_size=1, max_size=60)


@given(
    st.dictionaries(
        names,
        st.tuples(
            reasons,
            st.lists(st.none() | reasons, max_size=4),
            st.sampled_from(["", "x" * 700, "é" * 600]),
        ),
        max_size=3,
    ),
    st.lists(names, max_size=6),
    st.booleans(),
)
def test_a_message_is_never_too_long_and_always_text(nodes, tenants, note) -> None:
    outcomes = {
        name: refused(reason, *verdicts, detail=detail)
        for name, (reason, verdicts, detail) in nodes.items()
    }
    views = [
        view(name, *(card(index) for index in range(4)), tenants=(tuple(tenants),) * 4)
        for name in nodes
    ]

    told = message(outcomes, *views, preemption_note=note)

    assert 0 < len(told.encode()) <= 1024


@given(st.text(alphabet="é…😀\ud800x", min_size=1, max_size=8))
def test_a_long_name_is_cut_between_two_characters(name) -> None:
    told = message({name * 1000: refused(FULL, FULL)})

    # A character cut in two, or half a surrogate pair, could not be encoded or would be "\ufffd".
    assert len(told.encode()) <= 1024
    assert "\ufffd" not in told
