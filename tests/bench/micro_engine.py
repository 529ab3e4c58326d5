"""How fast the engine decides: warm and cold, over many nodes; and sets of joined cards."""

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cardwise.engine.decide import Memo, decide
from cardwise.engine.place import place
from cardwise.engine.standing import Standing
from cardwise.model import CardState, NodeState, NodeView
from cardwise.names import LINK_PATHS, TopologyMode
from states import LinkRow, ask, card, request, signature, state, view

CARDS = 8
NODES = pytest.mark.parametrize("nodes", [1_000, 5_000])
QUESTION = signature(policy="mutex,binpack,numa")


def equal(nodes: int) -> list[NodeView]:
    return [view(f"n{number:05}", busy_node(0)) for number in range(nodes)]


def different(nodes: int) -> list[NodeView]:
    return [view(f"n{number:05}", busy_node(number)) for number in range(nodes)]


def busy_node(number: int) -> NodeState:
    """A node like no other: half of its cards have a tenant, whose memory is the node's number."""
    cards = [
        card(at, numa=at // 4, memory=40_960, tenants=at % 2, used_mib=(at % 2) * (1 + number))
        for at in range(CARDS)
    ]
    return state(*cards)


@NODES
@pytest.mark.parametrize("views_of", [equal, different])
def test_decide_cold(
    benchmark: BenchmarkFixture, nodes: int, views_of: Callable[[int], list[NodeView]]
) -> None:
    """Nothing of the question is known; equal nodes are idle ones, say."""
    views = views_of(nodes)

    decision = benchmark(lambda: decide(request(QUESTION), views, Memo()))

    assert decision.node is not None


@NODES
def test_decide_warm(benchmark: BenchmarkFixture, nodes: int) -> None:
    """Every node's answer is known, and all are looked at."""
    views, memo = different(nodes), Memo()
    decide(request(QUESTION), views, memo)

    decision = benchmark(lambda: decide(request(QUESTION), views, memo))

    assert decision.node is not None


@NODES
def test_decide_standing(benchmark: BenchmarkFixture, nodes: int) -> None:
    """The answers are kept, and one node changed: the usual case."""
    views, memo = different(nodes), Memo()
    standing = Standing(QUESTION, None, memo)
    standing.put(views)

    def again() -> str | None:
        standing.put(views[:1])
        return standing.decision(request(QUESTION)).node

    assert benchmark(again) is not None


@NODES
def test_standing_made(benchmark: BenchmarkFixture, nodes: int) -> None:
    """The answers are put together, once a question."""
    views, memo = different(nodes), Memo()
    decide(request(QUESTION), views, memo)

    benchmark(lambda: Standing(QUESTION, None, memo).put(views))


# Sets of cards ------------------------------------------------------------------------------------


def link_tables(cards: int) -> dict[str, list[LinkRow]]:
    """Ways in which cards are joined; the last ones are made to be hard."""
    random = Random(16)
    pairs = list(combinations(range(cards), 2))
    half = cards // 2
    return {
        "switch": [(a, b, 18) for a, b in pairs],
        "islands": [(a, b, 18 if a // half == b // half else 0, "SYS") for a, b in pairs],
        "mesh": [(a, b, 2 if a // 4 == b // 4 else 1) for a, b in pairs],
        "ring": [(a, b, int((b - a) % (cards - 2) == 1), far(b - a, cards)) for a, b in pairs],
        "ring-far-is-good": [(a, b, min(b - a, cards - b + a)) for a, b in pairs],
        "cube-far-is-good": [(a, b, (a ^ b).bit_count()) for a, b in pairs],
        "random": [(a, b, random.randrange(3), random.choice(LINK_PATHS)) for a, b in pairs],
    }


def far(apart: int, cards: int) -> str:
    """A path that gets worse with the distance on the ring."""
    return LINK_PATHS[max(0, 5 - min(apart, cards - apart))]


def busy_card(at: int) -> CardState:
    """Cards whose scores differ, so that the sort keys have work."""
    return card(at, numa=at // 8, tenants=at % 3)


@pytest.mark.parametrize("mode", list(TopologyMode))
@pytest.mark.parametrize("links", list(link_tables(16)))
@pytest.mark.parametrize(("wanted", "cards"), [(8, 16), (4, 8)], ids=["8-of-16", "4-of-8"])
def test_joined_cards(
    benchmark: BenchmarkFixture, wanted: int, cards: int, links: str, mode: TopologyMode
) -> None:
    """One search over sets of cards, nothing known yet."""
    asked = signature(ask(wanted), policy="topology-aware,binpack,numa", mode=mode)
    node = state(*map(busy_card, range(cards)), links=link_tables(cards)[links])

    benchmark(lambda: place(asked, node))
