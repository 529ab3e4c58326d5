"""What holds for every input: docs/placement.md sections 2, 4, 5, 6, 8 and 9."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from cardwise.engine.candidates import Sight
from cardwise.engine.decide import Memo, decide
from cardwise.engine.place import place
from cardwise.engine.sortkeys import Rank, set_rank, set_worths
from cardwise.engine.topology import Links, best_set
from cardwise.model import (
    Ask,
    CardState,
    Decision,
    NodeState,
    NodeView,
    Outcome,
    QuotaRoom,
    Signature,
)
from cardwise.names import TopologyMode
from cardwise.policy import parse
from cardwise.settings import Scheduling
from clusters import Cluster, clusters
from exhaustive import best_of_all_sets, indexes
from oracle_cards import namespace_use
from oracle_reading import nodes_of, quota_bounds, tenant_of
from pipeline import bound, decision_of, ledger_of, tell
from states import LinkRow, ask, card, link, policy, request, sight, signature, state
from strategies import (
    FILTERS,
    asks,
    card_states,
    chain_names,
    chains,
    decorated,
    grouped_links,
    idle_cards,
    link_rows,
    longer_chains,
    node_states,
    signatures,
    views,
)

pytestmark = pytest.mark.timeout(60 + settings().max_examples // 5)
"""A machine that is busy elsewhere makes a search slow, not wrong."""


def chosen(outcome: Outcome, container: int = 0) -> list[int] | None:
    """The positions of a container's cards, in ranked order."""
    if outcome.picks is None:
        return None
    return [pick.position for pick in outcome.picks[container]]


# The winner and its filters -----------------------------------------------------------------------


@given(node_states(), asks(), chains, st.booleans(), st.sampled_from(TopologyMode))
def test_the_winner_passes_every_filter_of_its_chain(
    shown: NodeState, asked: Ask, chain: str, numa_bind: bool, mode: TopologyMode
) -> None:
    """Sections 2, 3, 5 and 6."""
    outcome = place(signature(asked, policy=chain, numa_bind=numa_bind, mode=mode), shown)
    picked = chosen(outcome)
    assert (picked is None) is (outcome.reason is not None)
    if picked is None:
        return

    cards = [shown.cards[position] for position in picked]
    assert len(set(picked)) == len(picked) == asked.count
    assert all(outcome.cards[position].reason is None for position in picked)
    assert all(one.healthy and not one.cordoned and not one.exclusive for one in cards)
    if "mutex" in chain:
        assert all(one.used_slots == 0 for one in cards)
    if numa_bind:
        assert cards[0].numa is not None
        assert len({one.numa for one in cards}) == 1
    if "topology-aware" in chain and mode is TopologyMode.REQUIRED:
        joined = {(one.first, one.second) for one in shown.links or () if one.nvlinks}
        pairs = combinations(sorted(one.index for one in cards), 2)
        assert all(pair in joined for pair in pairs)


@given(card_states(), asks(), st.sampled_from(["mutex", "mutex,binpack", "numa,mutex"]))
def test_one_more_tenant_never_makes_mutex_accept_more(
    shown: CardState, asked: Ask, chain: str
) -> None:
    """Section 2, rule 2."""
    one_more = card(
        shown.index,
        tenants=shown.used_slots + 1,
        used_mib=shown.used_memory_mib + 1,
        used_cores=shown.used_cores,
        memory=shown.memory_mib,
        cores=shown.cores,
        slots=shown.slots,
        healthy=shown.healthy,
        cordoned=shown.cordoned,
        exclusive=shown.exclusive,
    )
    question = signature(ask(1, asked.memory_mib, asked.cores), policy=chain)

    assert not place(question, state(one_more)).fits


# The chain ----------------------------------------------------------------------------------------


@given(st.data(), chain_names)
def test_unknown_names_blanks_and_repeats_change_nothing(
    data: st.DataObject, names: list[str]
) -> None:
    """Section 2, rule 1."""
    text = data.draw(decorated(names))

    assert parse(text, Scheduling()).policy == parse(",".join(names), Scheduling()).policy


@given(st.permutations(FILTERS), signatures(), node_states())
def test_a_chain_of_filters_alone_is_the_same_with_spread_appended(
    names: list[str], question: Signature, shown: NodeState
) -> None:
    """Section 2, rule 5; a single filter is rule 6's."""
    alone, with_spread = (
        signature(*question.asks, policy=text, mode=TopologyMode.PREFERRED)
        for text in (",".join(names), ",".join([*names, "spread"]))
    )

    assert place(alone, shown) == place(with_spread, shown)


def _score(shown: CardState) -> Fraction:
    """Section 4, as exact as it gets."""
    used = (
        (shown.used_slots, shown.slots),
        (shown.used_cores, shown.cores),
        (shown.used_memory_mib, shown.memory_mib),
    )
    # The engine compares millionths; so does this.
    exact = 10 * sum((Fraction(part, whole) for part, whole in used), Fraction(0))
    return Fraction((exact * 1_000_000 + Fraction(1, 2)).__floor__())


def _numa(shown: CardState) -> tuple[bool, int]:
    return (shown.numa is None, shown.numa or 0)


KEYS: dict[str, Callable[[CardState], Any]] = {
    "binpack": lambda shown: -_score(shown),
    "spread": _score,
    "numa": _numa,
}
ALONE = {
    "binpack": ("binpack", "numa"),
    "spread": ("spread", "numa"),
    "mutex": ("spread", "numa"),
    "topology-aware": ("spread", "numa"),
    "numa": ("numa",),
}
"""Rule 6, written out."""


def first_by(
    keys: Sequence[str], shown: NodeState, outcome: Outcome, count: int
) -> list[int] | None:
    """The cards that come first among those that passed, by these keys and the index."""
    passed = [at for at, told in enumerate(outcome.cards) if told.reason is None]
    passed.sort(key=lambda at: [*(KEYS[key](shown.cards[at]) for key in keys), at])
    return passed[:count] if len(passed) >= count else None


@given(st.sampled_from(sorted(ALONE)), node_states(linked=False), asks())
def test_a_chain_of_one_name_is_score_then_numa_then_index(
    name: str, shown: NodeState, asked: Ask
) -> None:
    """Section 2, rule 6."""
    preferred = signature(asked, policy=name, mode=TopologyMode.PREFERRED)

    outcome = place(preferred, shown)

    assert chosen(outcome) == first_by(ALONE[name], shown, outcome, asked.count)


@given(longer_chains, node_states(), asks())
def test_in_a_longer_chain_the_written_keys_and_the_index_count(
    names: list[str], shown: NodeState, asked: Ask
) -> None:
    """Section 2, rules 3 and 4."""
    outcome = place(signature(asked, policy=",".join(names)), shown)

    keys = [name for name in names if name != "mutex"]
    assert chosen(outcome) == first_by(keys, shown, outcome, asked.count)


@given(idle_cards(), st.permutations(["mutex", "binpack", "spread"]), st.integers(2, 3), asks())
def test_on_an_idle_node_the_smallest_indexes_win(
    cards: tuple[CardState, ...], names: list[str], length: int, asked: Ask
) -> None:
    """Section 2, rule 4: unless numa or topology says otherwise."""
    outcome = place(signature(asked, policy=",".join(names[:length])), NodeState(cards=cards))

    assert chosen(outcome) == (list(range(asked.count)) if asked.count <= len(cards) else None)


# Determinism --------------------------------------------------------------------------------------


@given(st.data(), signatures(), views())
def test_the_order_of_the_nodes_changes_nothing(
    data: st.DataObject, question: Signature, nodes: list[NodeView]
) -> None:
    """Section 2: every run gives the same answer."""
    shuffled = data.draw(st.permutations(nodes))

    one = decide(request(question), nodes, Memo())
    other = decide(request(question), shuffled, Memo())

    assert one == other


@given(
    st.lists(
        st.tuples(signatures(), st.sampled_from([None, 3000, 20_000])), min_size=2, max_size=4
    ),
    views(),
    st.sampled_from([1, 4, 200]),
)
def test_a_memo_never_changes_an_answer(
    questions: list[tuple[Signature, int | None]], nodes: list[NodeView], limit: int
) -> None:
    """Whatever it knows already, and however little it keeps."""
    memo = Memo(limit)
    for question, left in [*questions, *questions]:
        room = None if left is None else QuotaRoom(left)

        assert decide(request(question), nodes, memo, room) == decide(
            request(question), nodes, Memo(), room
        )
        assert len(memo) <= limit


# Sets of cards ------------------------------------------------------------------------------------


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[Sight], list[LinkRow], int]:
    """Cards with tied scores, their links, and how many are asked.

    More cards than the search lists at once, so that all of it is at work.
    """
    size = draw(st.integers(2, 11))
    node = [
        sight(card(at, tenants=draw(st.sampled_from([0, 1, 3])), numa=draw(st.integers(0, 2))))
        for at in range(size)
    ]
    rows = draw(st.sampled_from([link_rows, grouped_links]))(range(size))
    return node, draw(rows), draw(st.integers(2, size))


@given(searches(), chains, st.booleans())
def test_the_best_set_is_what_trying_all_sets_finds(
    search: tuple[list[Sight], list[LinkRow], int], chain: str, joined: bool
) -> None:
    """Section 5: exact, not greedy."""
    node, rows, count = search
    links, keys = Links(link(*row) for row in rows), policy(chain).keys

    found = best_set([node], count, links, keys, joined=joined)

    assert indexes(found) == best_of_all_sets(node, count, links, keys, joined=joined)


@given(searches(), chains, st.data())
def test_a_set_is_worth_more_exactly_when_it_ranks_before(
    search: tuple[list[Sight], list[LinkRow], int], chain: str, data: st.DataObject
) -> None:
    """Section 5: the number that the search compares is the rank that the law describes."""
    node, _, count = search
    keys = policy(chain).keys
    worths = set_worths(node, keys, count)
    one, other = (data.draw(st.permutations(range(len(node))))[:count] for _ in "ab")

    def rank(places: list[int]) -> Rank:
        return set_rank([node[place] for place in places], keys)

    def worth(places: list[int]) -> int:
        return sum(worths[place] for place in places)

    assert (rank(one) < rank(other)) == (worth(one) > worth(other))
    assert (rank(one) == rank(other)) == (worth(one) == worth(other))


# What none may do ---------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(clusters(pods=6, legal=True))
def test_no_sequence_of_placements_over_books_or_exceeds_a_quota(cluster: Cluster) -> None:
    """Sections 8 and 9: held against the oracle's own sums, after every Pod."""
    ledger = ledger_of(cluster.gpunodes, cluster.nodes, (), cluster.quotas)
    memo = Memo()
    placed = []
    for pod in cluster.pods:
        decision = decision_of(ledger, pod, cluster.node_names, cluster.settings, memo)
        if not isinstance(decision, Decision) or decision.node is None:
            continue
        placed.append(bound(pod, decision))
        tell(ledger, placed[-1])

        assert oracle.violations(cluster.gpunodes, placed) == []
        for namespace in ("default", "other"):
            bounds = quota_bounds(cluster.quotas, namespace)
            tenants = [tenant_of(one) for one in placed]
            use = namespace_use(namespace, tenants, nodes_of(cluster.gpunodes, cluster.nodes))
            assert all(use[what] <= most for what, most in bounds.items())
