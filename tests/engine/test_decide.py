"""Over nodes: docs/placement.md sections 3 (leading reason), 4 (node score) and 1 (UUIDs)."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from cardwise.engine.decide import Memo, decide, leading_word
from cardwise.model import (
    Booking,
    Decision,
    NodeState,
    NodeView,
    QuotaRoom,
    Share,
    Signature,
)
from cardwise.names import NodePolicy, Reason
from states import (
    INIT,
    NOTHING,
    REGULAR,
    ask,
    card,
    idle,
    request,
    signature,
    state,
    view,
)

EXCLUSIVE, MEMORY, CORES = Reason.EXCLUSIVE, Reason.MEMORY, Reason.CORES
NO_CARDS, NOT_REPORTED, TOO_FEW = (
    Reason.NODE_HAS_NO_CARDS,
    Reason.NODE_NOT_REPORTED,
    Reason.NODE_TOO_FEW_CARDS,
)
HANDING = Reason.NODE_HANDING_OVER
SPREAD = NodePolicy.SPREAD


def answer(
    views: list[NodeView], question: Signature | None = None, room: QuotaRoom | None = None
) -> Decision:
    return decide(request(question), views, Memo(), room)


LIGHT = view("light", state(card(0, tenants=1), card(1)))
HEAVY = view("heavy", state(card(0, tenants=2), card(1, tenants=1)))
IDLE_B, IDLE_A = view("b", idle(2)), view("a", idle(2))
FULL = view("full", state(card(0, used_mib=15360)))


@pytest.mark.parametrize(
    ("views", "node_policy", "want"),
    [
        pytest.param(
            [LIGHT, HEAVY, IDLE_A], NodePolicy.BINPACK, "heavy", id="binpack: the fullest"
        ),
        pytest.param([LIGHT, HEAVY], SPREAD, "light", id="spread: the emptiest"),
        pytest.param([LIGHT, IDLE_B], SPREAD, "b", id="spread: an idle one"),
        pytest.param([IDLE_B, IDLE_A], NodePolicy.BINPACK, "a", id="binpack, a tie: smaller name"),
        pytest.param([IDLE_B, IDLE_A], SPREAD, "a", id="spread, a tie: smaller name"),
        pytest.param(
            [FULL, LIGHT], NodePolicy.BINPACK, "light", id="only nodes where it fits count"
        ),
        pytest.param([FULL], NodePolicy.BINPACK, None, id="none fits"),
        pytest.param([], NodePolicy.BINPACK, None, id="no node at all"),
        pytest.param(
            [view("x10", idle(1)), view("x9", idle(1))],
            SPREAD,
            "x10",
            id="names are compared as text",
        ),
    ],
)
def test_the_node(views: list[NodeView], node_policy: NodePolicy, want: str | None) -> None:
    """Section 4: node policy, tie by name; the order of the nodes does not matter."""
    question = signature(node_policy=node_policy)

    for order in (views, views[::-1]):
        decision = answer(order, question)
        assert decision.node == want
        assert list(decision.outcomes) == [one.name for one in order]


def test_weights_never_touch_the_node_score() -> None:
    """Section 4."""
    slots = view("slots", state(card(0, tenants=5, used_mib=0)))
    memory = view("memory", state(card(0, tenants=1, used_mib=3072)))

    assert answer([slots, memory], signature(weights=(0, 0, 9))).node == "slots"


def test_the_published_example() -> None:
    """Two nodes of two cards of 8000 MiB: every pair of node and card policy."""
    n1 = view(
        "n1",
        state(card(1, tenants=1, used_mib=2000, used_cores=25, memory=8000), card(2, memory=8000)),
    )
    n2 = view(
        "n2",
        state(card(3, memory=8000), card(4, tenants=1, used_mib=6000, used_cores=75, memory=8000)),
    )
    got = {}
    for node_policy in NodePolicy:
        for chain in ("binpack", "spread"):
            asked = signature(ask(cores=20), policy=chain, node_policy=node_policy)
            decision = answer([n1, n2], asked)
            assert decision.booking is not None
            got[node_policy.value, chain] = decision.booking.containers[0][0].uuid

    assert got == {
        ("binpack", "binpack"): "GPU-n2-4",
        ("binpack", "spread"): "GPU-n2-3",
        ("spread", "binpack"): "GPU-n1-1",
        ("spread", "spread"): "GPU-n1-2",
    }


def test_a_booking_names_the_cards_of_the_chosen_node() -> None:
    question = signature(
        ask(2, memory=500, kind=INIT), NOTHING, ask(memory=300, cores=10), policy="spread"
    )

    decision = answer([view("n1", idle(2), uuids=["x", "y"])], question)

    assert decision.request == request(question)
    assert decision.booking == Booking(
        node="n1",
        containers=((Share("x", 500, 0), Share("y", 500, 0)), (), (Share("x", 300, 10),)),
        kinds=(INIT, REGULAR, REGULAR),
        exclusive=False,
    )


def test_a_booking_of_an_exclusive_pod_says_so() -> None:
    booking = answer([IDLE_A], signature(exclusive=True)).booking

    assert booking is not None
    assert booking.exclusive


def test_a_decision_without_a_node_has_no_booking_and_a_reason() -> None:
    decision = answer([FULL])

    assert (decision.node, decision.booking, decision.reason) == (None, None, MEMORY)


def test_a_decision_with_a_node_has_no_reason() -> None:
    assert answer([FULL, IDLE_A]).reason is None


@pytest.mark.parametrize(
    ("reasons", "want"),
    [
        pytest.param([MEMORY, EXCLUSIVE, MEMORY], MEMORY, id="the word of most nodes"),
        pytest.param([MEMORY, EXCLUSIVE], EXCLUSIVE, id="at a tie the later in the table"),
        pytest.param([NO_CARDS, NO_CARDS, MEMORY], MEMORY, id="no cards counts only alone"),
        pytest.param([NOT_REPORTED, NOT_REPORTED, MEMORY], MEMORY, id="so does not reported"),
        pytest.param([TOO_FEW, TOO_FEW, MEMORY], MEMORY, id="so does too few cards"),
        pytest.param(
            [Reason.CARD_NOT_HEALTHY, Reason.CARD_NOT_HEALTHY, MEMORY], MEMORY, id="so does check 1"
        ),
        pytest.param([Reason.CARD_CORDONED] * 2 + [MEMORY], MEMORY, id="so does check 2"),
        pytest.param([Reason.CARD_TYPE] * 2 + [MEMORY], MEMORY, id="so does check 3"),
        pytest.param([Reason.CARD_UUID] * 2 + [MEMORY], MEMORY, id="so does check 4"),
        pytest.param(
            [Reason.NODE_UNREADABLE] * 2 + [MEMORY],
            Reason.NODE_UNREADABLE,
            id="an unreadable allocation is told",
        ),
        pytest.param([Reason.SLOTS] * 2 + [MEMORY], Reason.SLOTS, id="so is check 5"),
        pytest.param([NO_CARDS, NO_CARDS, TOO_FEW], TOO_FEW, id="no cards counts after all others"),
        pytest.param([NO_CARDS, NO_CARDS], NO_CARDS, id="no cards anywhere"),
        pytest.param(
            [NOT_REPORTED, NOT_REPORTED, TOO_FEW],
            NOT_REPORTED,
            id="where there are no others: most",
        ),
        pytest.param(
            [Reason.CARD_TYPE, TOO_FEW, NO_CARDS], TOO_FEW, id="where there are no others: ties"
        ),
        pytest.param([HANDING, MEMORY], MEMORY, id="of a tie, never what is over in a moment"),
        pytest.param([HANDING, HANDING, MEMORY], HANDING, id="which may be the word of most"),
        pytest.param([HANDING, NOT_REPORTED, NO_CARDS], HANDING, id="and is told before absence"),
        pytest.param([None, MEMORY, None], MEMORY, id="nodes without a word"),
        pytest.param([], None, id="no node"),
    ],
)
def test_leading_word(reasons: list[Reason | None], want: Reason | None) -> None:
    """Section 3: over the nodes."""
    assert leading_word(reasons) is want
    assert leading_word(iter(reasons[::-1])) is want


@pytest.mark.parametrize(
    "problem", [NO_CARDS, NOT_REPORTED, Reason.NODE_UNREADABLE, Reason.INVALID_REQUEST]
)
def test_a_problem_stands_before_any_card_is_looked_at(problem: Reason) -> None:
    """Section 3, the rows without a number, and section 9."""
    decision = answer([view("n1", idle(4), problem=problem)])

    outcome = decision.outcomes["n1"]
    assert (decision.node, decision.reason) == (None, problem)
    assert (outcome.fits, outcome.reason, outcome.cards, outcome.detail) == (False, problem, (), "")


def test_a_problem_says_what_it_knows() -> None:
    unreadable = view("n1", problem=Reason.NODE_UNREADABLE, detail="default/p")

    outcome = answer([unreadable]).outcomes["n1"]

    assert (outcome.reason, outcome.detail) == (Reason.NODE_UNREADABLE, "default/p")


# Red: `answer` looks at no card of a node that hands some over.
@pytest.mark.parametrize(
    ("state", "room", "want"),
    [
        pytest.param(idle(4), None, HANDING, id="it would fit: a moment"),
        pytest.param(FULL.state, None, MEMORY, id="it would not fit"),
        pytest.param(idle(4), QuotaRoom(0, None), Reason.QUOTA, id="nor by its quota"),
        pytest.param(idle(0), None, TOO_FEW, id="nor ever"),
    ],
)
def test_that_a_node_hands_cards_over_is_told_only_to_a_pod_that_would_fit(
    state: NodeState, room: QuotaRoom | None, want: Reason
) -> None:
    busy = replace(view("n1", state, problem=HANDING, detail="one at a time"), state_id=7)
    memo = Memo()

    for _ in range(2):  # as the memo has it, too
        decision = decide(request(), [busy], memo, room)
        outcome = decision.outcomes["n1"]
        assert (decision.node, decision.reason) == (None, want)
        assert outcome.detail == ("one at a time" if want is HANDING else "")
    free = replace(busy, problem=None, problem_detail="")
    assert (decide(request(), [free], memo, room).node == "n1") is (want is HANDING)


UUIDS = view("n1", idle(3), uuids=["x", "y", "z"])


@pytest.mark.parametrize(
    ("use", "nouse", "want"),
    [
        pytest.param([], [], "x", id="no list"),
        pytest.param(["y", "z"], [], "y", id="one of the cards named"),
        pytest.param(["q"], [], None, id="none of the cards named is here"),
        pytest.param([], ["x"], "y", id="not the card named"),
        pytest.param(["x", "z"], ["x"], "z", id="nouse wins"),
        pytest.param(["x"], ["x"], None, id="nouse wins, and nothing is left"),
        pytest.param(["X"], [], None, id="names are exact"),
    ],
)
def test_uuid_lists(use: list[str], nouse: list[str], want: str | None) -> None:
    """Section 1, and check 4."""
    decision = answer([UUIDS], signature(use_uuids=use, nouse_uuids=nouse))

    got = decision.booking.containers[0][0].uuid if decision.booking else None
    assert got == want
    assert decision.reason is (None if want else Reason.CARD_UUID)


def test_nodes_in_the_same_state_get_one_answer_unless_uuids_tell_them_apart() -> None:
    """The memo: equal states are the same question, and a UUID list is part of the question."""
    views = [view("a", idle(2), uuids=["p", "q"]), view("b", idle(2), uuids=["r", "s"])]

    plain = answer(views).outcomes
    named = answer(views, signature(use_uuids=["s"])).outcomes

    assert plain["a"] is plain["b"]
    assert named["a"].reason is Reason.CARD_UUID
    assert named["b"].fits


def test_the_quota_reaches_every_node_and_is_part_of_the_question() -> None:
    memo = Memo()

    none_left = decide(request(), [IDLE_A], memo, QuotaRoom(0))
    some_left = decide(request(), [IDLE_A], memo, QuotaRoom(1000))

    assert none_left.reason is Reason.QUOTA
    assert some_left.node == "a"


def test_a_known_answer_is_used_again() -> None:
    memo = Memo()
    first = decide(request(), [LIGHT, HEAVY], memo)
    size = len(memo)

    again = decide(request(), [HEAVY, LIGHT], memo)

    assert len(memo) == size == 3  # one question, two states
    assert all(again.outcomes[name] is first.outcomes[name] for name in ("light", "heavy"))


def test_an_unequal_question_has_its_own_answers() -> None:
    memo = Memo()
    decide(request(signature(policy="mutex")), [LIGHT], memo)

    other = decide(request(signature(policy="binpack,mutex")), [LIGHT], memo)

    assert other.outcomes["light"].fits
    assert len(memo) == 4


def test_a_memo_drops_the_longest_unused_question_first() -> None:
    memo = Memo(limit=6)
    old, used, new = (signature(ask(memory=mib)) for mib in (1, 2, 3))
    first = decide(request(old), [LIGHT, HEAVY], memo)
    kept = decide(request(used), [LIGHT, HEAVY], memo)
    assert len(memo) == 6
    decide(request(used), [LIGHT], memo)
    decide(request(old), [LIGHT], memo)
    decide(request(used), [LIGHT], memo)

    decide(request(new), [LIGHT, HEAVY], memo)

    assert len(memo) == 6
    assert decide(request(used), [LIGHT], memo).outcomes["light"] is kept.outcomes["light"]
    again = decide(request(old), [LIGHT], memo)
    assert again.outcomes["light"] is not first.outcomes["light"]
    assert again.outcomes["light"] == first.outcomes["light"]


def test_a_memo_that_is_just_full_drops_nothing() -> None:
    memo = Memo(limit=3)
    first = decide(request(), [LIGHT, HEAVY], memo)

    again = decide(request(), [LIGHT], memo)

    assert again.outcomes["light"] is first.outcomes["light"]


def test_a_question_larger_than_the_memo_is_answered_and_forgotten() -> None:
    memo = Memo(limit=2)

    decision = decide(request(), [LIGHT, HEAVY, IDLE_A], memo)

    assert decision.node == "heavy"
    assert len(memo) == 0


def test_questions_without_an_answer_do_not_pile_up() -> None:
    memo = Memo(limit=10)
    closed = view("n1", problem=NO_CARDS)

    for mib in range(1, 100):
        decide(request(signature(ask(memory=mib))), [closed], memo)

    assert len(memo) == 10


def test_questions_that_name_many_cards_fill_the_memo_sooner() -> None:
    memo = Memo(limit=100)
    named = [frozenset(f"GPU-{n}-{card}" for card in range(20)) for n in range(10)]

    for uuids in named:
        decide(request(signature(use_uuids=uuids, nouse_uuids=uuids)), [LIGHT], memo)

    assert len(memo) == 2 * (1 + 20 + 20 + 1)


@pytest.mark.timeout(60)  # counting bytes is slow
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(lambda n: signature(ask(memory=n)), id="memory"),
        pytest.param(lambda n: signature(use_types=(f"{n}" * 40_000,)), id="a long model"),
        pytest.param(lambda n: signature(nouse_types=many(n)), id="models"),
        pytest.param(lambda n: signature(use_uuids=frozenset({f"{n}" * 40_000})), id="a long UUID"),
        pytest.param(lambda n: signature(nouse_uuids=frozenset(many(n))), id="UUIDs"),
        pytest.param(lambda n: signature(*[ask(memory=n)] * 40), id="containers"),
        pytest.param(lambda n: signature(*[ask(16, 1 + n)] * 20), id="cards of containers"),
    ],
)
def test_what_users_write_weighs_in_the_memo_as_much_as_it_takes(
    question: Callable[[int], Signature],
) -> None:
    """Red when ``question_weight`` leaves out a word or its length, or ``answer_weight`` is 1."""
    memo = Memo()
    nodes = [
        view(f"n{n}", state(*(card(at, slots=10_000 + n) for at in range(16)))) for n in range(10)
    ]
    decide(request(question(0)), nodes, Memo())  # what is made once, and kept anyway
    tracemalloc.start()
    try:
        decide(request(question(1)), nodes, memo)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept / len(memo) < 4 * 1024, "bytes of what counts as one"


def many(number: int) -> tuple[str, ...]:
    """Thousands of words that no other number has."""
    return tuple(f"{number}-{word}" for word in range(2_000))


def test_a_memo_keeps_two_hundred_thousand_answers_by_default() -> None:
    memo = Memo()
    outcome = answer([FULL]).outcomes["full"]
    memo.answers(signature(), None).update(dict.fromkeys(range(199_999), outcome))

    memo.added(199_999)
    full = len(memo)
    memo.answers(signature(), None)[199_999] = outcome
    memo.added(1)

    assert (full, len(memo)) == (200_000, 0)
