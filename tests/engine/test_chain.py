"""One container on one node: docs/placement.md sections 2, 5, 6, checks 11 and 12 of section 3."""

import pytest

from cardwise.engine.chain import NO_LINK_DATA, NOT_JOINED, Choice, choose
from cardwise.model import NodeState, Signature
from cardwise.names import Reason, TopologyMode
from states import LinkRow, ask, card, idle, sight, signature, state

EXCLUSIVE, TOPOLOGY, NUMA = Reason.EXCLUSIVE, Reason.TOPOLOGY, Reason.NUMA
PREFERRED = TopologyMode.PREFERRED


def on(shown: NodeState, question: Signature) -> Choice:
    """The choice for the first container of a request on a node."""
    asked = question.asks[0]
    sights = [sight(one, asked, question) for one in shown.cards]
    return choose(sights, asked.count, shown.links)


def indexes(choice: Choice) -> list[int] | None:
    return None if choice.chosen is None else [seen.card.index for seen in choice.chosen]


MIXED = state(
    card(0, tenants=1, numa=0),
    card(1, tenants=2, numa=0),
    card(2, numa=1),
    card(3, tenants=1, numa=1),
)
"""The published example: one, two, no and one tenant."""


@pytest.mark.parametrize(
    ("chain", "count", "want"),
    [
        pytest.param("mutex,binpack", 1, [2], id="mutex: the only card without a tenant"),
        pytest.param("binpack,mutex", 1, [2], id="mutex filters first, whatever its place"),
        pytest.param("mutex", 2, None, id="mutex: two empty cards, and there is one"),
        pytest.param("binpack", 1, [1], id="binpack: the fullest"),
        pytest.param("spread", 1, [2], id="spread: the emptiest"),
        pytest.param("numa,binpack", 1, [1], id="numa first: the fullest of node 0"),
        pytest.param("numa,spread", 1, [0], id="numa first: the emptiest of node 0"),
        pytest.param(
            "binpack", 3, [1, 0, 3], id="cards come in the order in which they were ranked"
        ),
        pytest.param("spread,mutex", 1, [2], id="a chain with a filter and a key"),
        pytest.param("numa", 4, [0, 1, 2, 3], id="all cards"),
        pytest.param("numa", 5, None, id="more cards than there are"),
    ],
)
def test_filters_then_sort_keys(chain: str, count: int, want: list[int] | None) -> None:
    """Section 2."""
    assert indexes(on(MIXED, signature(ask(count), policy=chain))) == want


def test_every_card_says_why_it_was_refused() -> None:
    """Section 3."""
    choice = on(MIXED, signature(ask(2), policy="mutex"))

    assert choice.refusals == [EXCLUSIVE, EXCLUSIVE, None, EXCLUSIVE]
    assert choice.detail == ""


def test_a_choice_keeps_the_refusals_of_the_cards_that_were_passed_over() -> None:
    choice = on(MIXED, signature(policy="mutex"))

    assert indexes(choice) == [2]
    assert choice.refusals == [EXCLUSIVE, EXCLUSIVE, None, EXCLUSIVE]


TWO_NODES = state(
    card(0, tenants=3, numa=None),
    card(1, tenants=1, numa=1),
    card(2, tenants=2, numa=1),
    card(3, numa=0),
    card(4, tenants=4, numa=1),
)
"""One card whose NUMA node is unknown, one on node 0, three on node 1."""


@pytest.mark.parametrize(
    ("chain", "count", "want"),
    [
        pytest.param("spread", 1, [3], id="one card: the emptiest of any node"),
        pytest.param("binpack", 1, [4], id="one card: the fullest of any node"),
        pytest.param("spread", 2, [1, 2], id="two cards: only node 1 has two"),
        pytest.param("binpack", 2, [4, 2], id="two cards: the fullest two of node 1, as ranked"),
        pytest.param("spread", 3, [1, 2, 4], id="all that a node has"),
        pytest.param("spread", 4, None, id="no node has four"),
    ],
)
def test_numa_bind(chain: str, count: int, want: list[int] | None) -> None:
    """Section 6: all cards on one NUMA node, a card whose node is unknown is out."""
    choice = on(TWO_NODES, signature(ask(count), policy=chain, numa_bind=True))

    assert indexes(choice) == want
    assert choice.refusals == [None if want else NUMA] * 5
    assert choice.detail == ""


@pytest.mark.parametrize(
    ("chain", "want"),
    [
        pytest.param("mutex,spread", [4, 5], id="spread: the lowest total"),
        pytest.param("mutex,binpack", [0, 1], id="binpack: the highest total, as ranked"),
        pytest.param("mutex,numa", [2, 3], id="numa: the lowest node"),
        pytest.param("numa,binpack", [3, 2], id="numa, and inside the node binpack"),
    ],
)
def test_the_best_numa_node_is_chosen_as_sets_are_ranked(chain: str, want: list[int]) -> None:
    """Section 6: among the k best of each node, choose as section 5 ranks sets."""
    shown = state(
        card(0, used_mib=900, numa=1),
        card(1, used_mib=800, numa=1),
        card(2, used_mib=300, numa=0),
        card(3, used_mib=700, numa=0),
        card(4, used_mib=100, numa=2),
        card(5, used_mib=200, numa=2),
    )

    assert indexes(on(shown, signature(ask(2), policy=chain, numa_bind=True))) == want


def test_equal_numa_nodes_go_by_index_in_a_chain_and_by_node_alone() -> None:
    """Section 2, rule 6 reaches numa-bind: alone, spread goes on to the lower node."""
    shown = state(card(0, numa=1), card(1, numa=1), card(2, numa=0), card(3, numa=0))

    assert indexes(on(shown, signature(ask(2), policy="mutex,spread", numa_bind=True))) == [0, 1]
    assert indexes(on(shown, signature(ask(2), policy="spread", numa_bind=True))) == [2, 3]


def test_numa_bind_speaks_only_when_enough_cards_passed_the_other_checks() -> None:
    """Section 3, checks 11 and 12: they look at the cards that passed 1 to 10."""
    shown = state(card(0, tenants=1), card(1, numa=1), card(2, numa=2))

    few = on(shown, signature(ask(3), policy="mutex", numa_bind=True))
    enough = on(shown, signature(ask(2), policy="mutex", numa_bind=True))

    assert few.refusals == [EXCLUSIVE, None, None]
    assert enough.refusals == [EXCLUSIVE, NUMA, NUMA]


PAIRS: list[LinkRow] = [(0, 1, 2), (2, 3, 2), (1, 2, 0, "PIX"), (0, 3, 0, "SYS")]
"""Four cards, two pairs of them joined by NVLink."""


@pytest.mark.parametrize(
    ("links", "count", "mode", "want", "want_reason", "want_detail"),
    [
        pytest.param(PAIRS, 2, None, [0, 1], None, "", id="required: a joined pair"),
        pytest.param(PAIRS, 3, None, None, TOPOLOGY, NOT_JOINED, id="required: no joined three"),
        pytest.param(PAIRS, 3, PREFERRED, [0, 1, 2], None, "", id="preferred: the best three"),
        pytest.param(None, 2, None, None, TOPOLOGY, NO_LINK_DATA, id="required: links not known"),
        pytest.param(None, 2, PREFERRED, [0, 1], None, "", id="preferred: links not known"),
        pytest.param([], 2, None, None, TOPOLOGY, NOT_JOINED, id="required: known, none is joined"),
        pytest.param([], 2, PREFERRED, [0, 1], None, "", id="preferred: known, none is joined"),
        pytest.param(None, 1, None, [0], None, "", id="one card: links not known, all cards"),
        pytest.param([], 1, None, [0], None, "", id="one card: no links, all cards"),
        pytest.param([(0, 1, 1)], 1, None, [2], None, "", id="one card: not out of a pair"),
        pytest.param([(0, 1, 1)], 1, PREFERRED, [2], None, "", id="one card: in either mode"),
        pytest.param(PAIRS, 4, PREFERRED, [0, 1, 2, 3], None, "", id="preferred: all cards"),
    ],
)
def test_topology_aware(
    links: list[LinkRow] | None,
    count: int,
    mode: TopologyMode | None,
    want: list[int] | None,
    want_reason: Reason | None,
    want_detail: str,
) -> None:
    """Section 5, and check 11."""
    question = signature(
        ask(count), policy="topology-aware,numa", mode=mode or TopologyMode.REQUIRED
    )

    choice = on(idle(4, links=links), question)

    assert indexes(choice) == want
    assert choice.refusals == [want_reason] * 4
    assert choice.detail == want_detail


def test_without_numa_bind_a_set_may_lie_on_several_numa_nodes() -> None:
    """Section 5: all cards that passed count, also those whose NUMA node is not known."""
    shown = state(
        card(0, numa=0), card(1, numa=1), card(2, numa=None), links=[(0, 1, 1), (1, 2, 2)]
    )

    assert indexes(on(shown, signature(ask(2), policy="topology-aware,numa"))) == [1, 2]
    assert indexes(on(shown, signature(ask(1), policy="topology-aware,numa"))) == [0]


def test_without_topology_aware_links_say_nothing() -> None:
    assert indexes(on(idle(4, links=[(2, 3, 4)]), signature(ask(2), policy="spread"))) == [0, 1]


def test_a_set_comes_in_ranked_order() -> None:
    """The cards of a container are written in the order they were ranked."""
    shown = state(card(0), card(1, tenants=1), card(2, tenants=2), links=[(0, 1, 1), (1, 2, 2)])

    chosen = on(shown, signature(ask(2), policy="topology-aware,binpack"))

    assert indexes(chosen) == [2, 1]


def test_the_loneliest_cards_are_ranked_by_the_sort_keys() -> None:
    """Section 5, k = 1."""
    shown = state(card(0), card(1), card(2, tenants=1), card(3, tenants=2), links=[(0, 1, 1)])

    assert indexes(on(shown, signature(policy="topology-aware,binpack"))) == [3]
    assert indexes(on(shown, signature(policy="topology-aware,spread"))) == [2]


def test_only_cards_that_passed_the_checks_are_in_a_set() -> None:
    """Section 5: over the cards that passed checks 1 to 10."""
    shown = state(
        card(0), card(1, tenants=1), card(2), card(3), links=[(0, 1, 9), (2, 3, 1), (0, 2, 8)]
    )

    chosen = on(shown, signature(ask(2), policy="mutex,topology-aware"))
    alone = on(shown, signature(ask(1), policy="mutex,topology-aware"))

    assert indexes(chosen) == [0, 2]
    assert indexes(alone) == [3]


def test_topology_speaks_only_when_enough_cards_passed_the_other_checks() -> None:
    shown = state(card(0, tenants=1), card(1), card(2), links=[])

    few = on(shown, signature(ask(3), policy="mutex,topology-aware"))
    enough = on(shown, signature(ask(2), policy="mutex,topology-aware"))

    assert (few.refusals, few.detail) == ([EXCLUSIVE, None, None], "")
    assert (enough.refusals, enough.detail) == ([EXCLUSIVE, TOPOLOGY, TOPOLOGY], NOT_JOINED)


SPLIT = state(
    card(0, numa=0),
    card(1, numa=1),
    card(2, numa=1),
    card(3, numa=None),
    links=[(0, 1, 9), (1, 2, 1), (2, 3, 9)],
)
"""The best links go across NUMA nodes, and to a card whose node is unknown."""


@pytest.mark.parametrize(
    ("count", "mode", "want", "want_reason"),
    [
        pytest.param(1, None, [0], None, id="one card: the lowest sum of those with a known node"),
        pytest.param(2, None, [1, 2], None, id="two cards: a joined pair on one node"),
        pytest.param(2, PREFERRED, [1, 2], None, id="two cards, preferred: on one node too"),
        pytest.param(3, None, None, NUMA, id="no node has three: numa, not topology"),
        pytest.param(3, PREFERRED, None, NUMA, id="preferred does not help against numa-bind"),
    ],
)
def test_topology_aware_together_with_numa_bind(
    count: int, mode: TopologyMode | None, want: list[int] | None, want_reason: Reason | None
) -> None:
    """Section 6, its last sentences."""
    question = signature(
        ask(count),
        policy="topology-aware,numa",
        numa_bind=True,
        mode=mode or TopologyMode.REQUIRED,
    )

    choice = on(SPLIT, question)

    assert indexes(choice) == want
    assert choice.refusals == [want_reason] * 4


def test_sums_for_one_card_run_over_all_fitting_cards_even_with_numa_bind() -> None:
    """Section 6: card 3 is out, but its link to card 2 still counts against card 2."""
    shown = state(
        card(1, numa=0), card(2, numa=0), card(3, numa=None), links=[(2, 3, 1), (1, 2, 0, "SYS")]
    )
    bound = signature(policy="topology-aware,binpack", numa_bind=True)

    assert indexes(on(shown, bound)) == [1]


def test_numa_nodes_with_enough_cards_but_no_joined_pair_fail_by_topology() -> None:
    shown = state(card(0), card(1), card(2, numa=1), links=[(1, 2, 4)])

    choice = on(shown, signature(ask(2), policy="topology-aware", numa_bind=True))

    assert choice.refusals == [TOPOLOGY] * 3


def test_for_one_card_numa_nodes_compete_as_cards() -> None:
    """Section 6: the loneliest over all nodes, not one a node."""
    shown = state(
        card(0, numa=0), card(1, numa=0), card(2, numa=1), links=[(0, 1, 1), (0, 2, 0, "SYS")]
    )

    assert indexes(on(shown, signature(policy="topology-aware", numa_bind=True))) == [2]
