"""What a Pod asks, what it got, and the lines of the log."""

from dataclasses import replace

import pytest

from cardwise.model import Booking, CardVerdict, ContainerKind, Decision, Outcome, Share, Signature
from cardwise.names import Reason
from cardwise.wire.account import allocated_message, ask_text, card_lines, score_text
from cardwise.wire.phrases import fitted
from told import MUTEX_BINPACK, ask, card, request, view

# What is asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asks", "want"),
    [
        pytest.param([ask(mib=1000)], "1 card with 1000 MiB", id="MiB of one card"),
        pytest.param([ask(count=2, mib=1000)], "2 cards with 1000 MiB each", id="MiB of each"),
        pytest.param(
            [ask(count=2, percent=50, cores=30)],
            "2 cards with 50 % of their memory and 30 % cores",
            id="a percentage, and cores",
        ),
        pytest.param([ask(percent=50)], "1 card with 50 % of its memory", id="of one card"),
        pytest.param(
            [ask(cores=100)], "1 card with all its memory and all its cores", id="a whole card"
        ),
        pytest.param([ask(mib=1000), ask(count=0)], "1 card with 1000 MiB", id="one of two asks"),
        pytest.param(
            [ask(mib=1000), ask(count=2, mib=500)],
            "a: 1 card with 1000 MiB, b: 2 cards with 500 MiB each",
            id="several containers, by name",
        ),
        pytest.param([ask(count=0)], "no card", id="no container asks"),
    ],
)
def test_what_a_pod_asks_is_one_phrase(asks, want) -> None:
    assert ask_text(Signature(asks=tuple(asks)), ("a", "b")) == want


def test_containers_are_counted_where_their_names_are_not_known_and_many_are_cut_short() -> None:
    told = ask_text(Signature(asks=(ask(mib=1),) * 7))

    assert told.startswith("container 1: 1 card with 1 MiB, container 2: ")
    assert told.endswith("container 4: 1 card with 1 MiB, 3 more containers")


@pytest.mark.parametrize(
    ("millionths", "want"),
    [
        pytest.param(0, "0.000000", id="an idle card"),
        pytest.param(1651042, "1.651042", id="one tenant of the worked example"),
        pytest.param(3302083, "3.302083", id="two tenants"),
        pytest.param(30_000_001, "30.000001", id="zeros are kept"),
    ],
)
def test_a_score_is_printed_with_six_digits(millionths, want) -> None:
    assert score_text(millionths) == want


# Length -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tail", "want"),
    [
        pytest.param("x" * 10, "", "x" * 10, id="just as long as may be"),
        pytest.param("x" * 11, "", "x" * 7 + "…", id="one byte too long"),
        pytest.param("x" * 7, "end", "xxxxxxxend", id="with a tail, just as long"),
        pytest.param("x" * 8, "end", "xxxx…end", id="with a tail, one byte too long"),
        pytest.param("ééééé", "", "ééééé", id="bytes count, not characters"),
        pytest.param("xéééééé", "", "xééé…", id="never half a character"),
        pytest.param("a\ud800", "", "a?", id="half a surrogate pair"),
    ],
)
def test_a_text_is_cut_to_its_limit_and_the_tail_stays(text, tail, want) -> None:
    assert fitted(text, tail, limit=10) == want


# What a Pod got -----------------------------------------------------------------------------------


def booking(*containers):
    return Booking(
        node="node-a",
        containers=containers,
        kinds=(ContainerKind.REGULAR,) * len(containers),
    )


NODE_A = view("node-a", card(0), card(2))


@pytest.mark.parametrize(
    ("got", "of", "node", "want"),
    [
        pytest.param(
            booking((Share("GPU-c", 1000, 0),)),
            request(policy=MUTEX_BINPACK),
            NODE_A,
            "node-a: GPU 2 (GPU-c) 1000 MiB; policy mutex,binpack",
            id="one card, as the contract has it",
        ),
        pytest.param(
            booking((Share("GPU-c", 1000, 30), Share("GPU-a", 1000, 30))),
            request(),
            NODE_A,
            "node-a: GPU 2 (GPU-c) 1000 MiB 30 % cores, GPU 0 (GPU-a) 1000 MiB 30 % cores;"
            " policy spread",
            id="two cards in the order in which they were ranked",
        ),
        pytest.param(
            booking((Share("GPU-a", 1, 0),), (), (Share("GPU-c", 2, 0),)),
            request(ask(mib=1), ask(count=0), ask(mib=2), names=("web", "log", "train")),
            NODE_A,
            "node-a: web: GPU 0 (GPU-a) 1 MiB; train: GPU 2 (GPU-c) 2 MiB; policy spread",
            id="containers by name, without those that have no card",
        ),
        pytest.param(
            booking((Share("GPU-z", 1000, 0),)),
            request(),
            NODE_A,
            "node-a: GPU-z 1000 MiB; policy spread",
            id="a card that is not reported any more, by UUID",
        ),
        pytest.param(
            booking((Share("GPU-c", 1000, 0),)),
            request(),
            None,
            "node-a: GPU-c 1000 MiB; policy spread",
            id="a node that is not known any more",
        ),
    ],
)
def test_a_bound_pod_is_told_its_cards(got, of, node, want) -> None:
    assert allocated_message(of, got, node) == want


def test_a_long_list_of_cards_is_cut_and_the_policy_stays() -> None:
    got = booking(tuple(Share(f"GPU-{number:032}", 1000, 0) for number in range(64)))

    told = allocated_message(request(), got, None)

    assert told.endswith("…; policy spread")
    assert len(told.encode()) <= 1024


# The log ------------------------------------------------------------------------------------------


def test_the_log_has_one_line_a_card_with_the_words_that_scripts_look_for() -> None:
    outcome = Outcome(
        picks=((),),
        cards=(CardVerdict(0, 3302083, Reason.EXCLUSIVE), CardVerdict(2, 0, None)),
    )
    decision = Decision(
        request=request(),
        node="node-a",
        booking=None,
        outcomes={"node-a": outcome},
        reason=None,
        refusals={},
    )

    assert card_lines(decision, NODE_A) == [
        "pod=default/p node=node-a gpu=0 uuid=GPU-a computer score is 3.302083"
        " ExclusiveDeviceAllocateConflict",
        "pod=default/p node=node-a gpu=2 uuid=GPU-c computer score is 0.000000 kept",
    ]
    assert card_lines(replace(decision, outcomes={}), NODE_A) == []
