"""A whole Pod on one node: docs/placement.md sections 3 (reasons), 7 (containers) and 8 (quota)."""

import pytest

from cardwise.engine.chain import NO_LINK_DATA
from cardwise.engine.place import MIG_DETAIL, leading_reason, place
from cardwise.model import (
    CardVerdict,
    NodeState,
    Outcome,
    Pick,
    QuotaRoom,
    Signature,
)
from cardwise.names import Reason, TopologyMode
from states import INIT, NOTHING, SIDECAR, ask, card, idle, signature, state

UNHEALTHY, CORDONED = Reason.CARD_NOT_HEALTHY, Reason.CARD_CORDONED
SLOTS, MEMORY, CORES, EXCLUSIVE = Reason.SLOTS, Reason.MEMORY, Reason.CORES, Reason.EXCLUSIVE


def positions(outcome: Outcome) -> list[list[int]] | None:
    """The cards of each container."""
    if outcome.picks is None:
        return None
    return [[pick.position for pick in picks] for picks in outcome.picks]


@pytest.mark.parametrize(
    ("refusals", "want"),
    [
        pytest.param([MEMORY, MEMORY, CORES], MEMORY, id="the most frequent"),
        pytest.param([MEMORY, CORES], CORES, id="at a tie the later in the table"),
        pytest.param([EXCLUSIVE, CORES], EXCLUSIVE, id="the exclusive word stands at row 9"),
        pytest.param([EXCLUSIVE, Reason.COMPUTE], Reason.COMPUTE, id="row 10 is later still"),
        pytest.param([None, MEMORY, None], MEMORY, id="cards that passed have no word"),
        pytest.param(
            [UNHEALTHY, UNHEALTHY, MEMORY], MEMORY, id="past checks 1 to 4 only later words count"
        ),
        pytest.param([UNHEALTHY, CORDONED, CORDONED], CORDONED, id="else all of them count"),
        pytest.param(
            [Reason.CARD_TYPE, Reason.CARD_UUID, SLOTS],
            SLOTS,
            id="checks 3 and 4 are early, 5 is not",
        ),
        pytest.param(
            [UNHEALTHY, None], UNHEALTHY, id="all that got past could take it, and are too few"
        ),
        pytest.param([None, None], None, id="no refusal, no word"),
        pytest.param([], None, id="no card, no word"),
    ],
)
def test_leading_reason(refusals: list[Reason | None], want: Reason | None) -> None:
    """Section 3: the word of a node. Words are counted, not rows."""
    assert leading_reason(refusals) is want
    assert leading_reason(iter(refusals[::-1])) is want


def test_both_rows_of_a_word_are_counted_together() -> None:
    """Section 3: count words, not rows: rows 6 and 9 share one."""
    shown = state(
        card(0, tenants=1),
        card(1, exclusive=True),
        card(2, used_mib=15000),
        card(3, tenants=1),
        card(4, used_mib=15000),
    )

    outcome = place(signature(policy="mutex"), shown)

    assert outcome.reason is EXCLUSIVE
    assert [told.reason for told in outcome.cards] == [
        EXCLUSIVE, EXCLUSIVE, MEMORY, EXCLUSIVE, MEMORY,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "shown", "want"),
    [
        pytest.param(signature(ask(2)), idle(2), None, id="as many cards as there are"),
        pytest.param(signature(ask(3)), idle(2), Reason.NODE_TOO_FEW_CARDS, id="one card too few"),
        pytest.param(signature(), state(), Reason.NODE_TOO_FEW_CARDS, id="a node without cards"),
        pytest.param(
            signature(ask(1), NOTHING, ask(3)),
            idle(2),
            Reason.NODE_TOO_FEW_CARDS,
            id="a later container asks for more than there are",
        ),
        pytest.param(
            signature(ask(2), ask(2)), idle(2), None, id="containers may reuse the Pod's cards"
        ),
        pytest.param(
            signature(ask(2)),
            state(card(0, healthy=False), card(1)),
            UNHEALTHY,
            id="enough cards, but too few that pass",
        ),
    ],
)
def test_a_node_with_too_few_cards(
    question: Signature, shown: NodeState, want: Reason | None
) -> None:
    """Section 3, table: fewer cards than one container asks."""
    outcome = place(question, shown)

    assert outcome.reason is want
    assert outcome.fits is (want is None)
    assert bool(outcome.cards) is (want is not Reason.NODE_TOO_FEW_CARDS)


@pytest.mark.parametrize(
    ("question", "shown", "want"),
    [
        pytest.param(
            signature(ask(memory=1000, cores=30)), card(), Pick(0, 1000, 30), id="what was asked"
        ),
        pytest.param(
            signature(ask(memory=0, percent=50)), card(memory=15361), Pick(0, 7680, 0),
            id="a percentage of the card, rounded down",
        ),
        pytest.param(
            signature(ask(memory=0)), card(), Pick(0, 15360, 0), id="the whole card's memory"
        ),
        pytest.param(
            signature(ask(cores=100)), card(cores=150), Pick(0, 1000, 100),
            id="all cores are written as 100, whatever coreScaling made of them",
        ),
    ],
)  # fmt: skip
def test_what_a_pick_takes(question: Signature, shown: object, want: Pick) -> None:
    """Section 1."""
    assert place(question, NodeState(cards=(shown,))).picks == ((want,),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "shown", "want"),
    [
        pytest.param(signature(ask(), NOTHING), idle(1), [[0], []], id="the second asks for none"),
        pytest.param(signature(NOTHING, ask()), idle(1), [[], [0]], id="the first asks for none"),
        pytest.param(
            signature(ask(), ask(), policy="spread"),
            idle(2),
            [[0], [1]],
            id="spread: the second sees what the first took",
        ),
        pytest.param(
            signature(ask(), ask(), policy="binpack"),
            idle(2),
            [[0], [0]],
            id="binpack: the second joins the first",
        ),
        pytest.param(
            signature(ask(memory=8000), ask(memory=8000), policy="binpack"),
            idle(2),
            [[0], [1]],
            id="a card is reused only where the next part fits",
        ),
        pytest.param(
            signature(ask(), ask(), policy="mutex,binpack"),
            idle(2),
            [[0], [1]],
            id="mutex: the Pod's own container is a tenant too",
        ),
        pytest.param(
            signature(ask(), ask(), policy="binpack", exclusive=True),
            idle(2),
            [[0], [0]],
            id="containers of an exclusive Pod may share",
        ),
        pytest.param(
            signature(ask(cores=100), ask(), policy="binpack"),
            idle(2),
            [[0], [1]],
            id="nothing fits beside a container with all cores",
        ),
        pytest.param(
            signature(ask(cores=100), ask(cores=60), policy="binpack"),
            state(card(0, cores=150), card(1, cores=150)),
            [[0], [1]],
            id="all cores are 150 of a scaled card",
        ),
        pytest.param(
            signature(ask(2, kind=INIT), ask(), policy="mutex"),
            idle(2),
            [[0, 1], [0]],
            id="an init container is over when the regular ones start",
        ),
        pytest.param(
            signature(ask(memory=9000, kind=INIT), ask(memory=9000), policy="numa"),
            idle(2),
            [[0], [0]],
            id="init and regular container do not add up",
        ),
        pytest.param(
            signature(ask(memory=9000, kind=SIDECAR), ask(memory=9000), policy="numa"),
            idle(2),
            [[0], [1]],
            id="a sidecar and a regular container do",
        ),
        pytest.param(
            signature(ask(memory=9000, kind=SIDECAR), ask(memory=9000, kind=INIT), policy="numa"),
            idle(2),
            [[0], [1]],
            id="a sidecar and the init container after it do",
        ),
        pytest.param(
            signature(ask(memory=9000, kind=INIT), ask(memory=9000, kind=SIDECAR), policy="numa"),
            idle(2),
            [[0], [0]],
            id="an init container and the sidecar after it do not",
        ),
        pytest.param(
            signature(ask(memory=9000, kind=INIT), ask(memory=9000, kind=INIT), policy="numa"),
            idle(2),
            [[0], [0]],
            id="two init containers do not",
        ),
        pytest.param(
            signature(ask(kind=INIT), ask(), policy="mutex"),
            state(card(0, slots=1), card(1)),
            [[0], [0]],
            id="one slot is enough for an init and a regular container",
        ),
        pytest.param(
            signature(ask(), ask(), policy="numa"),
            state(card(0, slots=1), card(1)),
            [[0], [1]],
            id="two regular containers on one card take two slots",
        ),
    ],
)
def test_containers(question: Signature, shown: NodeState, want: list[list[int]]) -> None:
    """Section 7."""
    assert positions(place(question, shown)) == want


def test_an_outcome_tells_of_the_first_container_that_asks() -> None:
    """Scores are those before this container."""
    outcome = place(signature(NOTHING, ask(), ask(), policy="binpack"), state(card(3, tenants=1)))

    assert (outcome.container, outcome.reason, outcome.detail) == (1, None, "")
    assert outcome.cards == (CardVerdict(3, 1_651_042, None),)


def test_an_outcome_tells_of_the_container_that_did_not_fit() -> None:
    question = signature(ask(memory=9000), NOTHING, ask(memory=9000))

    outcome = place(question, state(card(0), card(1, healthy=False)))

    assert not outcome.fits
    assert (outcome.container, outcome.reason) == (2, MEMORY)
    assert outcome.cards == (CardVerdict(0, 6_859_375, MEMORY), CardVerdict(1, 0, UNHEALTHY))


def test_weights_reach_the_scores() -> None:
    """Section 4."""
    outcome = place(signature(weights=(0, 0, 3)), state(card(0, used_mib=1536)))

    assert outcome.cards == (CardVerdict(0, 3_000_000, None),)


def test_weights_reach_the_choice() -> None:
    shown = state(
        card(0, tenants=1, used_mib=10, used_cores=90, memory=100),
        card(1, tenants=7, used_mib=20, used_cores=10, memory=100),
    )
    asked = ask(memory=40)

    assert positions(place(signature(asked, policy="binpack"), shown)) == [[0]]
    heavy = signature(asked, policy="binpack", weights=(1, 1, 3))
    assert positions(place(heavy, shown)) == [[1]]


@pytest.mark.parametrize(
    ("allowed", "want", "want_reasons"),
    [
        pytest.param(None, [[0]], [None, None], id="no list: all cards"),
        pytest.param([False, True], [[1]], [Reason.CARD_UUID, None], id="the second card alone"),
        pytest.param([False, False], None, [Reason.CARD_UUID] * 2, id="none of them"),
    ],
)
def test_cards_that_the_pods_lists_allow(
    allowed: list[bool] | None, want: list[list[int]] | None, want_reasons: list[Reason | None]
) -> None:
    """Section 3, check 4."""
    outcome = place(signature(), idle(2), allowed=allowed)

    assert positions(outcome) == want
    assert [told.reason for told in outcome.cards] == want_reasons


@pytest.mark.parametrize(
    ("question", "shown", "want"),
    [
        pytest.param(
            signature(),
            state(card(mode="mig")),
            MIG_DETAIL,
            id="a card in mig mode: not placed yet",
        ),
        pytest.param(
            signature(),
            state(card(0, healthy=False), card(1, mode="mig")),
            MIG_DETAIL,
            id="any card",
        ),
        pytest.param(
            signature(use_types=["a100"]),
            state(card()),
            "",
            id="another mismatch needs no more words",
        ),
        pytest.param(
            signature(),
            state(card(mode="mig", healthy=False)),
            "",
            id="mig is not why it was refused",
        ),
        pytest.param(
            signature(ask(2), policy="topology-aware"),
            state(card(0), card(1), card(2, mode="mig")),
            NO_LINK_DATA,
            id="what the chain says goes first",
        ),
    ],
)
def test_what_the_word_alone_does_not_say(question: Signature, shown: NodeState, want: str) -> None:
    """Section 3, check 3, and section 5."""
    assert place(question, shown).detail == want


def test_links_reach_the_choice() -> None:
    """Section 5."""
    question = signature(ask(2), policy="topology-aware")

    assert positions(place(question, idle(3, links=[(1, 2, 1)]))) == [[1, 2]]


def test_a_pod_that_asks_for_no_card_fits_and_tells_of_none() -> None:
    outcome = place(signature(NOTHING), idle(1))

    assert outcome == Outcome(picks=((),), container=0, cards=())


def test_topology_mode_reaches_the_choice() -> None:
    question = signature(ask(2), policy="topology-aware", mode=TopologyMode.PREFERRED)

    assert positions(place(question, idle(2))) == [[0, 1]]


def room(memory_mib: int | None = None, cores: int | None = None) -> QuotaRoom:
    return QuotaRoom(memory_mib, cores)


@pytest.mark.parametrize(
    ("question", "left", "want"),
    [
        pytest.param(signature(), None, True, id="no quota"),
        pytest.param(signature(ask(cores=100)), room(), True, id="a quota without a bound of ours"),
        pytest.param(signature(), room(1000), True, id="memory: exactly what is left"),
        pytest.param(signature(), room(999), False, id="memory: one MiB is missing"),
        pytest.param(signature(), room(0), False, id="memory: 0 blocks"),
        pytest.param(signature(), room(-5), False, id="memory: the namespace is over its bound"),
        pytest.param(signature(), room(None, 0), True, id="cores: 0 does not block who asks none"),
        pytest.param(signature(ask(cores=30)), room(None, 30), True, id="cores: exactly"),
        pytest.param(signature(ask(cores=30)), room(None, 29), False, id="cores: one is missing"),
        pytest.param(signature(ask(cores=30)), room(999, 30), False, id="both bounds must hold"),
        pytest.param(signature(ask(2)), room(2000), True, id="per card asked: twice"),
        pytest.param(signature(ask(2)), room(1999), False, id="per card asked: not once"),
        pytest.param(signature(ask(2, cores=30)), room(None, 60), True, id="cores per card asked"),
        pytest.param(signature(ask(2, cores=30)), room(None, 59), False, id="cores: not once"),
        pytest.param(
            signature(ask(memory=0, percent=50)), room(7680), True, id="a percentage: its MiB"
        ),
        pytest.param(
            signature(ask(memory=0, percent=50)), room(7679), False, id="a percentage: not its MiB"
        ),
        pytest.param(signature(ask(), ask()), room(2000), True, id="containers add up"),
        pytest.param(signature(ask(), ask()), room(1999), False, id="the second finds too little"),
        pytest.param(
            signature(ask(cores=30), ask(cores=30)), room(None, 59), False, id="cores add up too"
        ),
        pytest.param(
            signature(ask(memory=3000, kind=INIT), ask(), ask(), policy="binpack"),
            room(3000),
            True,
            id="an init container's card is paid for once",
        ),
        pytest.param(
            signature(ask(memory=1500, kind=INIT), ask(), ask(), policy="binpack"),
            room(1999),
            False,
            id="what goes beyond the init container's part is not",
        ),
        pytest.param(
            signature(ask(memory=1500, kind=INIT), ask(), ask(), policy="binpack"),
            room(2000),
            True,
            id="the larger of init and regular counts",
        ),
        pytest.param(
            signature(exclusive=True), room(15360, 100), True, id="exclusive: the whole card"
        ),
        pytest.param(signature(exclusive=True), room(15359), False, id="exclusive: not the part"),
        pytest.param(signature(exclusive=True), room(None, 99), False, id="exclusive: all cores"),
        pytest.param(
            signature(ask(2), exclusive=True), room(30719), False, id="exclusive: each of two cards"
        ),
        pytest.param(
            signature(ask(), ask(), policy="binpack", exclusive=True),
            room(15360, 100),
            True,
            id="exclusive: a card that two containers share counts once",
        ),
        pytest.param(
            signature(ask(kind=INIT), ask(), policy="spread", exclusive=True),
            room(15360, 100),
            True,
            id="exclusive: also after an init container",
        ),
        pytest.param(
            signature(ask(), ask(), policy="spread,numa", exclusive=True),
            room(30720, 200),
            True,
            id="exclusive: two cards",
        ),
    ],
)
def test_quota(question: Signature, left: QuotaRoom | None, want: bool) -> None:
    """Section 8."""
    outcome = place(question, idle(2), room=left)

    assert outcome.fits is want
    assert outcome.reason is (None if want else Reason.QUOTA)


def test_a_quota_refuses_card_by_card() -> None:
    """Section 8: a percentage of a large card is more."""
    shown = state(card(0, memory=2000), card(1, memory=8000), card(2, memory=4000))
    whole = signature(ask(memory=0), policy="binpack,mutex")

    outcome = place(whole, shown, room=room(4000))

    assert positions(outcome) == [[0]]
    assert [told.reason for told in outcome.cards] == [None, Reason.QUOTA, None]
    assert place(whole, shown, room=room(1999)).reason is Reason.QUOTA


@pytest.mark.parametrize(
    ("left", "want"), [pytest.param(2500, True, id="enough"), pytest.param(2499, False, id="less")]
)
def test_a_quota_pays_for_both_where_init_and_regular_part_lie_on_two_cards(
    left: int, want: bool
) -> None:
    """Section 8, rule of section 7: they are bookings of two cards to the Pod's end."""
    question = signature(ask(memory=1000, kind=INIT), ask(memory=1500), policy="numa")

    assert place(question, state(card(0, memory=1000), card(1)), room=room(left)).fits is want


def test_a_quota_counts_what_was_asked_of_a_scaled_card() -> None:
    """Section 8 per card asked: 100, whatever coreScaling made of it."""
    scaled = state(card(0, cores=150))

    assert place(signature(ask(cores=100)), scaled, room=room(None, 100)).fits
    assert not place(signature(ask(cores=100)), scaled, room=room(None, 99)).fits


def test_an_exclusive_pod_pays_for_a_second_card_where_it_cannot_share() -> None:
    question = signature(ask(), ask(), policy="spread", exclusive=True)

    outcome = place(question, idle(2), room=room(15360))

    # Spread would take card 1, which the quota does not pay for; card 0 is paid for already.
    assert positions(outcome) == [[0], [0]]
