"""Which cards can take a request, and what is said when none can: HAMi's cases.

HAMi says per node how many cards failed which check; here every card has its own word, and the node
the one that is told most often. "n/m Word" of HAMi's is "n of these words" here.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import build
from cardwise.engine.place import place
from cardwise.model import Ask, QuotaRoom, Signature
from cardwise.names import Reason
from controllers import World
from simulated import answer, node, tenant, where
from states import NOTHING, ask, card, signature, state

Words = dict[Reason, int]


def words(outcome: Any) -> Words:
    """How many cards were refused by which word."""
    return Counter(verdict.reason for verdict in outcome.cards if verdict.reason is not None)


def taken(outcome: Any) -> list[list[int]]:
    """The positions of each container's cards."""
    return [[pick.position for pick in picks] for picks in outcome.picks]


def asking(*, asks: Sequence[Ask] = (), **question: Any) -> Signature:
    """A request, of one card with 1000 MiB unless ``asks`` says otherwise."""
    return signature(*asks, **question)


V100 = {"model": "NVIDIA-Tesla V100"}
A100 = {"model": "NVIDIA A100-SXM4-40GB"}
A10 = {"model": "NVIDIA A10"}


def used(**fields: Any) -> Any:
    """A card with one tenant of 0 MiB, unless the fields say otherwise."""
    return card(**{"tenants": 1, "used_mib": 0, **fields})


# The checks, one by one ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "question", "word"),
    [
        pytest.param(
            card(healthy=False), {}, Reason.CARD_NOT_HEALTHY, id="check 1, F13: it is ill"
        ),
        pytest.param(card(cordoned=True), {}, Reason.CARD_CORDONED, id="check 2: it is cordoned"),
        pytest.param(
            card(), {"use_types": ["other"]}, Reason.CARD_TYPE, id="check 3, F4: the type"
        ),
        pytest.param(
            card(), {"modes": ["mps"]}, Reason.CARD_TYPE, id="check 3, F22: mps on a hami-core card"
        ),
        pytest.param(card(), {"modes": ["hami-core"]}, None, id="F22: hami-core on such a card"),
        pytest.param(
            card(numa=None), {"numa_bind": True}, Reason.NUMA, id="check 4: no NUMA node has enough"
        ),
        pytest.param(
            used(tenants=100, slots=100), {}, Reason.SLOTS, id="check 6, F6: 100 of 100 slots"
        ),
        pytest.param(used(tenants=5, slots=4), {}, Reason.SLOTS, id="F6: 5 of 4 slots"),
        pytest.param(
            used(), {"policy": "mutex"}, Reason.EXCLUSIVE, id="check 7, F16: mutex on a used card"
        ),
        pytest.param(
            card(memory=128), {"asks": [ask(1, 512)]}, Reason.MEMORY, id="check 10, F2: 512 of 128"
        ),
        pytest.param(
            card(memory=128), {"asks": [ask(1, 64, 50)]}, None, id="check 8: what is asked is free"
        ),
        pytest.param(
            used(used_cores=100),
            {"asks": [ask(cores=50)]},
            Reason.CORES,
            id="check 11, F3: no cores are free",
        ),
        pytest.param(
            used(slots=20),
            {"asks": [ask(cores=100)]},
            Reason.EXCLUSIVE,
            id="check 12, F8: the whole card beside a tenant without cores",
        ),
        pytest.param(
            used(used_cores=100, slots=20),
            {},
            Reason.COMPUTE,
            id="check 13, F9: no cores asked where all are given out",
        ),
        pytest.param(card(mode="mig"), {}, Reason.CARD_TYPE, id="check 14, M4: a card in mig mode"),
        pytest.param(
            card(memory=11264, tenants=1, used_mib=11260),
            {"asks": [ask(memory=0)]},
            Reason.MEMORY,
            id="F14: a percentage of 0 asks the whole memory, of which 4 MiB are free",
        ),
        pytest.param(card(**A100), {"use_types": ["a10"]}, None, id="F23: A10 is a part of A100"),
        pytest.param(
            card(**A100),
            {"use_types": ["a10"], "nouse_types": ["a100"]},
            Reason.CARD_TYPE,
            id="F23: unless A100 is ruled out",
        ),
        pytest.param(
            card(**A10), {"use_types": ["a10"], "nouse_types": ["a100"]}, None, id="F23: A10 itself"
        ),
        pytest.param(
            card(cores=4),
            {"asks": [ask(cores=100)]},
            None,
            id="F25: the whole card, whatever scaling made of its cores",
        ),
        pytest.param(
            card(cores=4), {"asks": [ask(cores=50)]}, Reason.CORES, id="F25: 50 of 4 cores"
        ),
    ],
)
def test_a_card_is_refused_by_the_same_check(
    shown: Any, question: dict[str, Any], word: Reason | None
) -> None:
    outcome = place(asking(**question), state(shown))

    assert outcome.reason is word
    assert outcome.fits is (word is None)


@pytest.mark.parametrize(
    ("room", "asks", "word"),
    [
        pytest.param(
            QuotaRoom(999), [ask()], Reason.QUOTA, id="check 9: over the namespace's quota"
        ),
        pytest.param(
            QuotaRoom(1500),
            [ask(), ask()],
            Reason.QUOTA,
            id="check 9: what the Pod took already counts",
        ),
        pytest.param(QuotaRoom(2000), [ask(), ask()], None, id="check 9: just within"),
    ],
)
def test_the_quota_is_a_check_of_a_card(room: QuotaRoom, asks: Any, word: Reason | None) -> None:
    assert place(signature(*asks), state(card()), room=room).reason is word


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param(
            {"nvidia.com/use-gpuuuid": "GPU-x"}, "CardUuidMismatch", id="check 5, F5: use"
        ),
        pytest.param(
            {"nvidia.com/use-gpuuuid": "GPU-a", "nvidia.com/nouse-gpuuuid": "GPU-a"},
            "CardUuidMismatch",
            id="F5: nouse wins over use",
        ),
        pytest.param(
            {"nvidia.com/use-gpuuuid": " , "}, [[0]], id="F5: blank members are no constraint"
        ),
        pytest.param({"nvidia.com/use-gputype": "V100,"}, "CardTypeMismatch", id="F24: use V100,"),
        pytest.param({"nvidia.com/nouse-gputype": "V100,"}, [[0]], id="F24: nouse V100,"),
        pytest.param({"nvidia.com/vgpu-mode": "hami-core,mig"}, [[0]], id="F22: one of two modes"),
        pytest.param({"nvidia.com/numa-bind": "T"}, [[0]], id="F18: numa-bind for one card"),
    ],
)
def test_a_pods_annotations_choose_among_cards_as_in_hami(
    annotations: dict[str, str], want: Any
) -> None:
    pod = build.pod("p", gpumem=1000, annotations=annotations)

    got = answer(node(cards=1, model="NVIDIA A100-SXM4-40GB"), pod)["default/p"]

    assert where(got) == want


@pytest.mark.parametrize(
    ("cordon", "want"),
    [
        pytest.param("GPU-b, ", [[0]], id="F15: one card; blanks and blank members are dropped"),
        pytest.param("GPU-a,GPU-b", "CardCordoned", id="F15: both"),
        pytest.param("", [[0]], id="F15: none"),
    ],
)
def test_the_annotation_of_a_node_cordons_its_cards(cordon: str, want: Any) -> None:
    objects = [node(cards=2), build.node_object("n1", gpus=20, cordon=cordon)]

    assert where(answer(*objects, build.pod("p", gpumem=1000))["default/p"]) == want


async def test_a_cordon_is_seen_at_once_and_takes_no_card_from_who_has_it() -> None:
    """F15: HAMi sees it at the next registration, if ever."""
    has = tenant("t", build.allocation("GPU-a"))
    world = await World(node(cards=1), build.node_object("n1", gpus=10), has).load()

    world.mirror.see_node(build.node_object("n1", gpus=10, cordon="GPU-a", resource_version="2"))

    refused = world.filter(build.pod(gpumem=1000), "n1")["FailedAndUnresolvableNodes"]
    assert refused == {"n1": Reason.CARD_CORDONED}
    assert world.used() == {"GPU-a": 1000}


# What fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cards", "question", "want"),
    [
        pytest.param(
            [card(0, memory=128), card(1, memory=128)],
            {"asks": [ask(1, 64, 50)]},
            [[0]],
            id="F1: of two idle cards the smaller index, where HAMi takes the larger",
        ),
        pytest.param(
            [used(index=0), card(1)],
            {"policy": "mutex"},
            [[1]],
            id="F16: mutex takes the idle card",
        ),
        pytest.param(
            [card(0, numa=1), card(1, numa=1), card(2, numa=0)],
            {"asks": [ask(2)], "numa_bind": True},
            [[0, 1]],
            id="F17: the NUMA node with two cards, the smaller index first",
        ),
        pytest.param(
            [card(0, used_mib=500, tenants=1), card(1, used_mib=100, tenants=1), card(2, numa=1)],
            {"asks": [ask(2)], "numa_bind": True, "policy": "spread"},
            [[1, 0]],
            id="F19: two of one NUMA node, however the cards are sorted",
        ),
        pytest.param(
            [
                card(0, numa=0, tenants=1, used_mib=100),
                card(1, numa=1, tenants=1, used_mib=800),
                card(2, numa=1, tenants=1, used_mib=500),
            ],
            {"policy": "spread"},
            [[0]],
            id="F20: the score goes before the NUMA node",
        ),
        pytest.param(
            [card(0, **V100), card(1, **A100)],
            {"use_types": ["a100"]},
            [[1]],
            id="check 3: the card of the type that is asked",
        ),
    ],
)
def test_the_cards_that_are_taken(cards: Any, question: dict[str, Any], want: Any) -> None:
    assert taken(place(asking(**question), state(*cards))) == want


@pytest.mark.parametrize(
    ("asked", "memory", "cores"),
    [
        pytest.param(ask(1, 1000, 100), 1000, 100, id="F7: cores of 120 are booked as 100"),
        pytest.param(ask(1, 0, percent=10), 128, 0, id="F12: 10 % of 1280 MiB are 128"),
        pytest.param(ask(1, 0), 1280, 0, id="F14: a percentage of 0 books the whole memory"),
    ],
)
def test_what_is_booked(asked: Any, memory: int, cores: int) -> None:
    outcome = place(signature(asked), state(card(memory=1280)))

    assert outcome.picks is not None
    ((pick,),) = outcome.picks
    assert (pick.memory_mib, pick.cores) == (memory, cores)


# What is said -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cards", "question", "reason", "each"),
    [
        pytest.param(
            [card()],
            {"asks": [ask(2)]},
            Reason.NODE_TOO_FEW_CARDS,
            {},
            id="F10, node words: more cards asked than the node has",
        ),
        pytest.param(
            [card(0), card(1)],
            {"asks": [ask(3)]},
            Reason.NODE_TOO_FEW_CARDS,
            {},
            id="F11: three of two",
        ),
        pytest.param(
            [used(index=0), card(1)],
            {"asks": [ask(2)], "policy": "mutex"},
            Reason.EXCLUSIVE,
            {Reason.EXCLUSIVE: 1},
            id="F16, check end: too few are left; those that were refused say why",
        ),
        pytest.param(
            [card(0, numa=0), card(1, numa=1)],
            {"asks": [ask(2)], "numa_bind": True},
            Reason.NUMA,
            {Reason.NUMA: 2},
            id="F18: no NUMA node has both; each card says so",
        ),
        pytest.param(
            [
                *(used(index=index, tenants=10) for index in range(3, 7)),
                *(card(index, tenants=1, used_mib=15000) for index in range(7, 9)),
                used(index=9, used_cores=90),
            ],
            {"asks": [ask(2, 1024, 20)]},
            Reason.SLOTS,
            {Reason.SLOTS: 4, Reason.MEMORY: 2, Reason.CORES: 1},
            id="F21, reason text: every card has its word, the node the most frequent",
        ),
    ],
)
def test_the_words_of_a_node(
    cards: Any, question: dict[str, Any], reason: Reason, each: Words
) -> None:
    outcome = place(asking(**question), state(*cards))

    assert outcome.reason is reason
    assert words(outcome) == each


def test_every_card_has_its_word_in_what_people_read() -> None:
    """F21: 3 cards not in the list, 4 without slots, 2 without memory, 1 without cores."""
    letters = [build.letter(index) for index in range(10)]
    lists = ",".join(f"GPU-{letter}" for letter in letters[3:])
    tenants = [
        *(
            tenant(f"slot-{letter}-{slot}", f"GPU-{letter},NVIDIA,1,0:;")
            for letter in letters[3:7]
            for slot in range(10)
        ),
        *(tenant(f"memory-{letter}", f"GPU-{letter},NVIDIA,15000,0:;") for letter in letters[7:9]),
        tenant("cores", f"GPU-{letters[9]},NVIDIA,1,90:;"),
    ]
    pod = build.pod(
        "p", gpus=2, gpumem=1024, gpucores=20, annotations={"nvidia.com/use-gpuuuid": lists}
    )

    got = answer(node(cards=10), *tenants, pod)["default/p"]

    each = Counter(shown["reason"] for shown in got["nodes"]["n1"]["cards"])
    assert each == {
        "CardUuidMismatch": 3,
        "CardTimeSlicingExhausted": 4,
        "CardInsufficientMemory": 2,
        "CardInsufficientCore": 1,
    }
    assert got["reason"] == "CardTimeSlicingExhausted"
    assert "n1: 4/10 CardTimeSlicingExhausted" in got["message"]


async def test_one_event_has_the_word_of_most_nodes_and_the_account() -> None:
    """events: HAMi writes one for each word, here the word is the reason."""
    world = await World(build.gpunode("n1", 1), build.gpunode("n2", 1)).load()

    answered = world.filter(build.pod(gpumem=20000), "n1", "n2", "n3")

    assert answered["FailedNodes"] == {}
    assert answered["FailedAndUnresolvableNodes"] == {
        "n1": Reason.MEMORY,
        "n2": Reason.MEMORY,
        "n3": Reason.NODE_HAS_NO_CARDS,
    }
    ((reason, note),) = await world.events()
    assert reason == "CardInsufficientMemory"
    assert "0/2 candidate nodes can take" in note


async def test_a_success_is_told_once_the_pod_is_bound() -> None:
    """events: FilteringSucceed and BindingSucceed are one event here, with the cards."""
    pod = build.pod(gpumem=1000)
    world = await World(build.gpunode("n1", 1), pod).load()
    world.chosen(pod, "n1")

    assert await world.bind(pod) == ""

    ((reason, note),) = await world.events()
    assert reason == "CardsAllocated"
    assert note.startswith("n1: GPU 0 (GPU-n1-a) 1000 MiB")


@pytest.mark.parametrize(
    ("document", "word"),
    [
        pytest.param(
            build.node_object("n1"),
            Reason.NODE_HAS_NO_CARDS,
            id="node words: no cards; HAMi's node unregistered",
        ),
        pytest.param(
            build.node_object("n1", gpus=1),
            Reason.NODE_NOT_REPORTED,
            id="node words: it offers cards of which nobody reports",
        ),
        pytest.param(
            tenant("t", "GPU-a,NVIDIA,many,0:;"),
            Reason.NODE_UNREADABLE,
            id="node words: a tenant's allocation can't be read",
        ),
    ],
)
async def test_the_words_of_nodes_without_an_account(document: Any, word: Reason) -> None:
    cards = [build.gpunode("n1", 1)] if document["kind"] == "Pod" else []
    world = await World(document, *cards).load()

    refused = world.filter(build.pod(gpumem=1), "n1")["FailedAndUnresolvableNodes"]

    assert refused == {"n1": word}


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        pytest.param(
            ask(1, 4000), Reason.MEMORY, id="C17: an init container of 4000 MiB, 500 free"
        ),
        pytest.param(ask(1, 1, 30), Reason.CORES, id="C17: one of 30 cores, 20 free"),
    ],
)
def test_the_first_container_that_does_not_fit_decides(asked: Any, word: Reason) -> None:
    full = {"tenants": 1, "memory": 8000, "used_mib": 7500, "used_cores": 80}

    outcome = place(signature(asked, NOTHING), state(card(0, **full), card(1, **full)))

    assert words(outcome) == {word: 2}
    assert outcome.container == 0


def test_nodes_that_are_all_too_small_have_a_word_each() -> None:
    """C18."""
    got = answer(node(cards=1), node("n2", 1), build.pod("p", gpumem=20000))["default/p"]

    assert {name: each["reason"] for name, each in got["nodes"].items()} == {
        "n1": "CardInsufficientMemory",
        "n2": "CardInsufficientMemory",
    }
