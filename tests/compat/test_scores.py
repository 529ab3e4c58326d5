"""Scores, the order of cards, nodes, and the containers of a Pod: HAMi's cases.

Where HAMi's code takes the highest NUMA node or the largest index, its published rules take the
lowest, and so do these rows: they show what happens here.
"""

from typing import Any

import pytest

import build
from cardwise.engine.candidates import Sight
from cardwise.engine.chain import choose
from cardwise.engine.place import place
from cardwise.engine.score import card_score, node_score
from cardwise.engine.sortkeys import ranked
from cardwise.engine.usage import booking_uses
from cardwise.model import Booking, CardUse, InvalidRequest, QuotaRoom, Request, Share
from cardwise.names import Reason
from cardwise.settings import Settings
from cardwise.wire import extender
from cardwise.wire.pods import booking_of
from cardwise.wire.requests import request_of
from controllers import World
from simulated import answer, tenant, where
from states import INIT, NOTHING, REGULAR, ask, card, policy, sight, signature, state

Shown = tuple[int, int | None, int]
"""A card: its index, NUMA node and score."""


def seen(index: int, numa: int | None, score: int, **fields: Any) -> Sight:
    """A card with that score, as a container of a Pod with a policy sees it."""
    question = fields.pop("question", None)
    shown = sight(card(index, numa=numa, **fields), question=question)
    shown.score = score
    return shown


def first(chain: str | None, cards: list[Shown], *, bind: bool = False) -> int:
    """The index of the card that one container with this policy takes."""
    question = signature(policy=chain, numa_bind=bind)
    sights = [seen(*shown, question=question) for shown in cards]
    choice = choose(sights, 1, None)
    assert choice.chosen is not None
    return choice.chosen[0].card.index


# The order of cards -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chain", "a", "b", "picked"),
    [
        pytest.param("binpack", (0, 0, 10), (1, 0, 20), 1, id="S1: binpack, the fuller"),
        pytest.param("binpack", (0, 1, 10), (1, 0, 20), 1, id="S2: binpack, the fuller, NUMA 0"),
        pytest.param("binpack", (0, 0, 15), (1, 1, 15), 0, id="S3: binpack, equally full: NUMA 0"),
        pytest.param("binpack", (0, 1, 20), (1, 0, 10), 0, id="S4: binpack, the score goes first"),
        pytest.param("spread", (0, 0, 10), (1, 0, 20), 0, id="S5: spread, the emptier"),
        pytest.param("spread", (0, 1, 20), (1, 0, 10), 1, id="S6: spread, the emptier, NUMA 0"),
        pytest.param("spread", (0, 0, 15), (1, 1, 15), 0, id="S7: spread, equally full: NUMA 0"),
        pytest.param("numa", (0, 0, 99), (1, 1, 5), 0, id="S13: numa alone, NUMA 0"),
        pytest.param("numa", (3, 0, 0), (1, 0, 0), 1, id="S14: numa alone, the smaller index"),
        pytest.param("binpack,numa", (0, 0, 15), (1, 1, 15), 0, id="S15: binpack, then numa"),
        pytest.param("spread,numa", (0, 0, 15), (1, 1, 15), 0, id="S15: spread, then numa"),
        pytest.param("numa,spread", (0, 1, 5), (1, 0, 99), 1, id="S16: numa goes first"),
        pytest.param("numa,spread", (0, 0, 20), (1, 0, 10), 1, id="S17: numa, then spread"),
        pytest.param(
            "mutex,topology-aware", (0, 0, 10), (1, 0, 20), 0, id="S19: no sort key is spread"
        ),
        pytest.param(
            "binpack,numa", (5, 0, 0), (2, 0, 0), 2, id="S20: the rest equal, the smaller index"
        ),
        pytest.param("", (0, 0, 10), (1, 0, 20), 0, id="policy spread: an empty text is spread"),
        pytest.param("Binpack", (0, 0, 10), (1, 0, 20), 0, id="policy spread: another case, too"),
        pytest.param(
            " binpack ", (0, 0, 10), (1, 0, 20), 1, id="policy binpack: blanks around it are cut"
        ),
        pytest.param(
            "binpack", (7, 1, 15), (3, 0, 15), 3, id="policy binpack: a tie by NUMA, then index"
        ),
        pytest.param(
            "spread", (7, 0, 15), (3, 0, 15), 3, id="policy spread: a tie by NUMA, then index"
        ),
        pytest.param(
            "topology-aware", (0, 1, 9), (1, 0, 9), 1, id="policy spread: topology-aware alone"
        ),
        pytest.param("numa", (0, 1, 0), (1, 0, 99), 1, id="policy numa: the lowest NUMA node"),
        pytest.param(
            "binpack,spread", (0, 0, 10), (1, 0, 20), 1, id="policy chain: the first key dominates"
        ),
        pytest.param(
            "nonsense,binpack", (0, 0, 10), (1, 0, 20), 1, id="policy chain: unknown names drop out"
        ),
        pytest.param(
            "binpack,spread", (0, 1, 9), (1, 0, 9), 0, id="policy chain: no numa, then the index"
        ),
    ],
)
def test_the_card_that_is_picked_first(chain: str, a: Shown, b: Shown, picked: int) -> None:
    assert first(chain, [a, b]) == picked
    assert first(chain, [b, a]) == picked


@pytest.mark.parametrize(
    ("chain", "a", "b", "picked"),
    [
        pytest.param("binpack", (0, 1, 5), (1, 0, 99), 1, id="S8, policy binpack: NUMA 0"),
        pytest.param("spread", (0, 0, 5), (1, 1, 99), 0, id="S9, policy spread: NUMA 0"),
        pytest.param("spread", (0, 0, 20), (1, 0, 10), 1, id="S10: in a NUMA node, the emptier"),
        pytest.param("binpack,spread", (0, 0, 99), (1, 1, 5), 0, id="S21: binpack goes first"),
        pytest.param("mutex", (0, 1, 5), (1, 0, 5), 1, id="policy mutex: NUMA 0"),
        pytest.param("numa", (0, 1, 5), (1, 0, 5), 1, id="policy numa: NUMA 0"),
    ],
)
def test_the_card_that_is_picked_first_with_numa_bind(
    chain: str, a: Shown, b: Shown, picked: int
) -> None:
    assert first(chain, [a, b], bind=True) == picked


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        pytest.param(
            [card(0, tenants=2), card(1)], [1], id="S11, policy mutex: never a card with tenants"
        ),
        pytest.param(
            [card(0, numa=0), card(1, numa=1)], [0], id="S12, policy mutex: of idle cards, NUMA 0"
        ),
    ],
)
def test_mutex_alone(cards: Any, want: list[int]) -> None:
    outcome = place(signature(policy="mutex"), state(*cards))

    assert outcome.picks is not None
    assert [pick.position for pick in outcome.picks[0]] == want


def test_mutex_is_a_filter_and_no_sort_key() -> None:
    """S18: by the sort key alone, the card with tenants would be picked first."""
    sights = [seen(0, 0, 10, tenants=5), seen(1, 0, 20)]

    order = [shown.card.index for shown in ranked(sights, policy("mutex,spread").keys)]

    assert order == [0, 1]


@pytest.mark.parametrize(
    ("chain", "names"),
    [
        pytest.param("mutex, spread, numa", "mutex,spread,numa", id="S22: blanks are cut"),
        pytest.param("", "spread", id="S22: an empty text names none, so the cluster's holds"),
        pytest.param("numa,numa", "numa", id="policy chain: the first of equals stays"),
    ],
)
def test_the_names_of_a_chain(chain: str, names: str) -> None:
    assert str(policy(chain)) == names


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        pytest.param(
            [card(0, numa=0), card(1, numa=1), card(2, numa=0), card(3, numa=1)],
            [0, 2],
            id="numa-bind groups: a group need not stand together in the list",
        ),
        pytest.param(
            [card(0, numa=0), card(1, numa=1), card(2, numa=1)],
            [1, 2],
            id="numa-bind groups: a NUMA node with too few is passed over",
        ),
    ],
)
def test_numa_bind_takes_all_of_one_numa_node(cards: Any, want: list[int]) -> None:
    outcome = place(signature(ask(2), numa_bind=True), state(*cards))

    assert outcome.picks is not None
    assert [pick.position for pick in outcome.picks[0]] == want


# Scores -------------------------------------------------------------------------------------------

HALF = {"tenants": 5, "used_mib": 4000, "memory": 8000, "used_cores": 50}
A = card(0, tenants=1, used_cores=90, used_mib=10, memory=100)
B = card(1, tenants=7, used_cores=10, used_mib=20, memory=100)


@pytest.mark.parametrize(
    ("shown", "weights", "millionths"),
    [
        pytest.param(card(tenants=1), (1, 1, 1), 1_651_042, id="score: a T4 with 1000 MiB given"),
        pytest.param(
            card(tenants=2, cores=4, used_cores=1, memory=8192, used_mib=2048),
            (1, 1, 1),
            7_000_000,
            id="C1: 2 of 10 slots, 1 of 4 cores, a quarter of the memory",
        ),
        pytest.param(card(slots=0, memory=0, cores=0), (1, 1, 1), 0, id="C1: no capacity is 0"),
        pytest.param(
            card(tenants=2, cores=4, used_cores=1, memory=8192, used_mib=2048),
            (1, 1, 1),
            7_000_000,
            id="C2: what is asked does not count",
        ),
        pytest.param(card(memory=10000), (1, 1, 1), 0, id="C3: an idle card, whatever is asked"),
        pytest.param(A, (1, 1, 1), 11_000_000, id="C4: A by default"),
        pytest.param(B, (1, 1, 1), 10_000_000, id="C4: B by default"),
        pytest.param(A, (1, 1, 3), 13_000_000, id="C4: A by memory=3"),
        pytest.param(B, (1, 1, 3), 14_000_000, id="C4: B by memory=3"),
        pytest.param(A, (1, 3, 1), 29_000_000, id="C4: A by core=3"),
        pytest.param(B, (1, 3, 1), 12_000_000, id="C4: B by core=3"),
    ],
)
def test_the_score_of_a_card(shown: Any, weights: Any, millionths: int) -> None:
    question = signature(weights=weights)

    got = card_score(
        shown, question.weights, shown.used_slots, shown.used_memory_mib, shown.used_cores
    )

    assert got == millionths


@pytest.mark.parametrize(
    ("chain", "weights", "kind", "want"),
    [
        pytest.param("binpack", (1, 1, 1), REGULAR, 0, id="C5: binpack by default takes A"),
        pytest.param("binpack", (1, 1, 3), REGULAR, 1, id="C5: binpack by memory=3 takes B"),
        pytest.param("spread", (1, 1, 3), REGULAR, 0, id="C5: spread by memory=3 takes A"),
        pytest.param("binpack", (1, 1, 3), INIT, 1, id="C5: for an init container, too"),
        pytest.param("topology-aware", (1, 1, 1), REGULAR, 1, id="T6: equal links, by default B"),
        pytest.param("topology-aware", (1, 1, 3), REGULAR, 0, id="T6: equal links, by memory=3 A"),
    ],
)
def test_weights_decide_between_cards(chain: str, weights: Any, kind: Any, want: int) -> None:
    question = signature(ask(1, 40, kind=kind), policy=chain, weights=weights)

    outcome = place(question, state(A, B, links=[(0, 1, 1)]))

    assert outcome.picks is not None
    assert outcome.picks[0][0].position == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(None, (1, 1, 1), id="C6, weights: absent"),
        pytest.param("slot=1,core=1,memory=3", (1, 1, 3), id="C6, weights: all three"),
        pytest.param("memory=3,core=2,slot=0", (0, 2, 3), id="C6, weights: any order"),
        pytest.param(" memory = 3, slot = 1, core = 0 ", (1, 0, 3), id="C6, weights: blanks"),
        pytest.param("", None, id="C6, weights: an empty text is an error"),
        pytest.param("slot=1,core=1", None, id="C6, weights: one is left out"),
        pytest.param("slot=1,core=1,memory", None, id="C6, weights: no value"),
        pytest.param("slot=1,slot=1,memory=1", None, id="C6, weights: one twice"),
        pytest.param("slot=1,core=x,memory=1", None, id="C6, weights: no number"),
        pytest.param("slot=1,core=-1,memory=1", None, id="C6, weights: a negative one"),
        pytest.param("slot=1,core=1,disk=1", None, id="C6, weights: one that nobody knows"),
        pytest.param("slot=0,core=0,memory=0", None, id="C6, weights: all of them 0"),
    ],
)
def test_the_text_of_weights(text: str | None, want: Any) -> None:
    """Refused at admission already; HAMi's users hear of it when the Pod is scheduled."""
    request = request_of(build.pod(gpumem=1000, weights=text), Settings())

    if want is None:
        assert isinstance(request, InvalidRequest)
        assert "device-scoring-weights" in request.message
    else:
        assert isinstance(request, Request)
        weights = request.signature.weights
        assert (weights.slot, weights.core, weights.memory) == want


@pytest.mark.parametrize(
    ("cards", "millionths"),
    [
        pytest.param([card()], 0, id="C7: an idle node"),
        pytest.param([card(**HALF)], 15_000_000, id="C7, node score: half used in all three"),
        pytest.param([card(**HALF), card(1, memory=8000)], 7_500_000, id="C7: beside an idle card"),
        pytest.param(
            [card(**HALF, cores=0)], 10_000_000, id="node score: what has no capacity is left out"
        ),
    ],
)
def test_the_score_of_a_node(cards: Any, millionths: int) -> None:
    assert node_score(cards) == millionths


# Nodes --------------------------------------------------------------------------------------------


def two_nodes() -> list[build.Json]:
    """n1 with d1 a quarter used, n2 with d4 three quarters used."""
    return [
        build.gpunode("n1", 2, memory=8000),
        build.gpunode("n2", 2, memory=8000),
        tenant("t1", "GPU-n1-a,NVIDIA,2000,25:;"),
        tenant("t2", "GPU-n2-b,NVIDIA,6000,75:;", on="n2"),
    ]


@pytest.mark.parametrize(
    ("node_policy", "chain", "want"),
    [
        pytest.param("binpack", "binpack", ("n2", [[1]]), id="C8: full node, full card"),
        pytest.param("binpack", "spread", ("n2", [[0]]), id="C8: full node, empty card"),
        pytest.param("spread", "binpack", ("n1", [[0]]), id="C8: empty node, full card"),
        pytest.param("spread", "spread", ("n1", [[1]]), id="C8: empty node, empty card"),
    ],
)
def test_node_policy_and_card_policy(node_policy: str, chain: str, want: Any) -> None:
    pod = build.pod("p", gpumem=1000, gpucores=20, policy=chain, node_policy=node_policy)

    got = answer(*two_nodes(), pod)["default/p"]

    assert (got["node"], where(got)) == want
    assert {name: each["score"] for name, each in got["nodes"].items()} == {
        "n1": "3.000000",
        "n2": "8.000000",
    }


def test_an_init_container_and_a_regular_one_share_a_card_in_turn() -> None:
    """C9: 5000 and 4000 MiB, both on the idle card of 8000."""
    pod = build.pod(
        "p",
        policy="binpack",
        init=[build.container("i", gpu=1, gpumem=5000)],
        containers=[build.container("a", gpu=1, gpumem=4000)],
    )

    got = answer(*two_nodes(), pod)["default/p"]

    assert (got["node"], where(got)) == ("n2", [[0], [0]])


def test_equally_full_nodes_go_by_name() -> None:
    """node score: HAMi's answer differs from run to run."""
    got = answer(build.gpunode("n2", 1), build.gpunode("n1", 1), build.pod("p", gpumem=1))

    assert got["default/p"]["node"] == "n1"


# Containers ---------------------------------------------------------------------------------------

IDLE = [card(0), card(1)]
SMALL = [card(0, memory=8000), card(1, memory=8000)]


@pytest.mark.parametrize(
    ("cards", "asks", "chain", "want"),
    [
        pytest.param(IDLE, [ask()], None, [[0]], id="C10: two idle cards, the smaller index"),
        pytest.param(IDLE, [ask(2)], None, [[0, 1]], id="C11: both, in the order of the index"),
        pytest.param(
            [card(0), card(1, tenants=5)], [ask()], "spread", [[0]], id="C12: spread, the idle one"
        ),
        pytest.param(
            SMALL, [ask(1, 8000), ask()], "spread", [[0], [1]], id="C13: two containers, two cards"
        ),
        pytest.param(IDLE, [ask(), NOTHING], None, [[0], []], id="C14: the second asks none"),
        pytest.param(IDLE, [NOTHING, ask()], None, [[], [0]], id="C14: the first asks none"),
        pytest.param(
            IDLE, [NOTHING, ask(), NOTHING], None, [[], [0], []], id="C14: only the second"
        ),
        pytest.param(
            IDLE,
            [NOTHING, ask(kind=INIT), ask()],
            "binpack",
            [[], [0], [0]],
            id="C15: of two init containers the second asks",
        ),
        pytest.param(
            SMALL,
            [ask(2, 8000, kind=INIT), ask(1, 8000)],
            None,
            [[0, 1], [0]],
            id="C16: what an init container has is free for the regular ones",
        ),
    ],
)
def test_the_cards_of_each_container(
    cards: Any, asks: Any, chain: str | None, want: list[list[int]]
) -> None:
    outcome = place(signature(*asks, policy=chain), state(*cards))

    assert outcome.picks is not None
    assert [[pick.position for pick in picks] for picks in outcome.picks] == want


Part = tuple[Any, str, int, int]


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param(
            [(INIT, "a", 500, 50), (REGULAR, "a", 100, 10)],
            {"a": CardUse(1, 500, 50)},
            id="C19: a large init container decides",
        ),
        pytest.param(
            [(INIT, "a", 100, 0), (REGULAR, "a", 200, 0), (REGULAR, "a", 300, 0)],
            {"a": CardUse(2, 500, 0)},
            id="C19: regular ones add up",
        ),
        pytest.param(
            [(INIT, "a", 100, 0), (INIT, "a", 300, 0), (INIT, "a", 200, 0)],
            {"a": CardUse(1, 300, 0)},
            id="C19: of three init containers the largest",
        ),
        pytest.param(
            [(REGULAR, "a", 1, 0)] * 3, {"a": CardUse(3, 3, 0)}, id="C19: three take three slots"
        ),
        pytest.param(
            [(INIT, "a", 500, 0), (REGULAR, "b", 100, 0)],
            {"a": CardUse(1, 500, 0), "b": CardUse(1, 100, 0)},
            id="C19: cards are counted apart",
        ),
    ],
)
def test_what_a_pod_uses_of_a_card(parts: list[Part], want: dict[str, CardUse]) -> None:
    booking = Booking(
        node="n1",
        containers=tuple((Share(uuid, memory, cores),) for _, uuid, memory, cores in parts),
        kinds=tuple(kind for kind, *_ in parts),
    )

    assert booking_uses(booking, {}) == want


@pytest.mark.parametrize(
    ("init_shrink", "code", "want"),
    [
        pytest.param(False, 0, CardUse(1, 20000, 10), id="C20: here it stays so by default"),
        pytest.param(True, None, CardUse(1, 20000, 10), id="C20: while the init container runs"),
        pytest.param(True, 1, CardUse(1, 20000, 10), id="C20: when it failed"),
        pytest.param(True, 0, CardUse(1, 10000, 5), id="C20: once it ended well, HAMi's way"),
    ],
)
def test_use_shrinks_when_the_init_containers_ended_well(
    init_shrink: bool, code: int | None, want: CardUse
) -> None:
    pod = build.pod(
        node="n1",
        init=[build.container("i", gpu=1)],
        containers=[build.container("a", gpu=1)],
        allocated="GPU-a,NVIDIA,20000,10:;GPU-a,NVIDIA,10000,5:;",
        init_exits={"i": code},
    )

    booking = booking_of(pod, init_shrink=init_shrink)

    assert booking is not None
    assert booking_uses(booking, {}) == {"GPU-a": want}


@pytest.mark.parametrize(
    ("asked", "cards", "room", "word"),
    [
        pytest.param(
            ask(2, 2000, 100), 4, QuotaRoom(4000, 200), None, id="C21: 2 x 2000 of 4000 MiB fit"
        ),
        pytest.param(
            ask(2, 3000, 60), 4, QuotaRoom(4000, 200), Reason.QUOTA, id="C21: 2 x 3000 do not"
        ),
    ],
)
def test_the_quota_over_the_cards_of_a_container(
    asked: Any, cards: int, room: QuotaRoom, word: Reason | None
) -> None:
    shown = state(*(card(index) for index in range(cards)))

    assert place(signature(asked), shown, room=room).reason is word


@pytest.mark.parametrize(
    ("bound", "want"),
    [
        pytest.param(2000, [[0]], id="C22: the card of 2000 MiB is within the quota"),
        pytest.param(1500, "ResourceQuotaNotFit", id="C22: none is"),
    ],
)
def test_a_whole_card_counts_its_own_memory_in_the_quota(bound: int, want: Any) -> None:
    sizes = (2000, 8000, 4000, 6000)
    cards = [build.card(index, memoryMiB=size) for index, size in enumerate(sizes)]

    got = answer(build.gpunode("n1", cards), build.quota(gpumem=bound), build.pod("p"))

    assert where(got["default/p"]) == want


async def test_a_pod_that_is_asked_about_again_first_gives_back_what_it_held() -> None:
    """C23."""
    pod = build.pod(gpus=1, gpumem=10000)
    world = await World(build.gpunode("n1", 1), build.quota(gpumem=10000)).load()

    assert world.chosen(pod, "n1") == "n1"
    assert world.chosen(pod, "n1") == "n1"

    assert world.used() == {"GPU-n1-a": 10000}
    assert world.ledger.quota_use("default").memory_mib == 10000


async def test_nodes_are_known_by_their_reports_and_not_by_the_objects_that_are_sent() -> None:
    """C24: the autoscaler's template of a node has no report, so no Pod with cards fits on it."""
    world = await World(build.gpunode("n1", 1)).load()
    sent = {"items": [build.node_object("n1", gpus=1), build.node_object("template", gpus=1)]}

    answered = world.controller.scheduler.filter(
        extender.filter_call({"Pod": build.pod(gpumem=1), "Nodes": sent})
    )

    assert [each["metadata"]["name"] for each in answered["Nodes"]["items"]] == ["n1"]
    assert answered["NodeNames"] is None
    assert answered["FailedAndUnresolvableNodes"] == {"template": Reason.NODE_HAS_NO_CARDS}
