"""How fast the engine decides: a program that prints milliseconds of CPU time and their ratios.

Run it with ``PYTHONPATH=tests python tests/bench/engine_bench.py``. Processor time, not the
clock's, so that a busy machine tells nearly the same as an idle one; the best of several tries.
"""

from collections.abc import Callable
from itertools import combinations
from random import Random
from time import process_time

from cardwise.engine.decide import Memo, decide
from cardwise.engine.place import place
from cardwise.model import CardState, NodeState, NodeView, Signature
from cardwise.names import LINK_PATHS, TopologyMode
from states import LinkRow, ask, card, request, signature, state, view

NODES = 5_000
CARDS = 8


def main() -> None:
    """Print everything."""
    print(f"one Pod over {NODES} nodes of {CARDS} cards")
    over_nodes()
    print("\n8 of 16 cards, topology-aware, nothing known yet")
    for name, rows in link_tables().items():
        for mode in TopologyMode:
            of_sixteen(name, rows, mode)


def over_nodes() -> None:
    """Distinct nodes against equal ones, cold against known."""
    question = signature(policy="mutex,binpack,numa")
    equal = [view(f"n{number:05}", busy_node(0)) for number in range(NODES)]
    distinct = [view(f"n{number:05}", busy_node(number)) for number in range(NODES)]
    known = Memo()
    decide(request(question), distinct, known)

    cold_distinct = milliseconds(lambda: run(question, distinct, Memo()))
    tell("all different, cold", cold_distinct)
    cold_equal = milliseconds(lambda: run(question, equal, Memo()))
    tell("all equal, cold", cold_equal)
    tell("all different, known", milliseconds(lambda: run(question, distinct, known)))
    print(f"  different / equal nodes: {cold_distinct / cold_equal:.1f}")


def run(question: Signature, views: list[NodeView], memo: Memo) -> None:
    """Decide once."""
    assert decide(request(question), views, memo).node is not None


def busy_node(number: int) -> NodeState:
    """A node like no other: half of its cards have a tenant, whose memory is the node's number."""
    cards = [
        card(at, numa=at // 4, memory=40_960, tenants=at % 2, used_mib=(at % 2) * (1 + number))
        for at in range(CARDS)
    ]
    return state(*cards)


def link_tables() -> dict[str, list[LinkRow]]:
    """Ways in which 16 cards are joined."""
    random = Random(16)
    pairs = list(combinations(range(16), 2))
    return {
        "switch": [(a, b, 18) for a, b in pairs],
        "two islands": [(a, b, 18 if a // 8 == b // 8 else 0, "SYS") for a, b in pairs],
        "mesh of four": [(a, b, 2 if a // 4 == b // 4 else 1) for a, b in pairs],
        "ring": [(a, b, int((b - a) % 14 == 1), _far(b - a)) for a, b in pairs],
        "ring, far is good": [(a, b, min(b - a, 16 - b + a)) for a, b in pairs],
        "cube, far is good": [(a, b, (a ^ b).bit_count()) for a, b in pairs],
        "random paths": [(a, b, 0, random.choice(LINK_PATHS)) for a, b in pairs],
        "random links": [(a, b, random.randrange(3), random.choice(LINK_PATHS)) for a, b in pairs],
        "random, all joined": [(a, b, random.randrange(1, 4)) for a, b in pairs],
    }


def _far(apart: int) -> str:
    """A path that gets worse with the distance on the ring."""
    return LINK_PATHS[max(0, 5 - min(apart, 16 - apart))]


def of_sixteen(name: str, rows: list[LinkRow], mode: TopologyMode) -> None:
    """One search over sets of cards."""
    asked = signature(ask(8), policy="topology-aware,binpack,numa", mode=mode)
    cards = tuple(busy_card(at) for at in range(16))
    node = state(*cards, links=rows)
    outcome = place(asked, node)
    word = "fits" if outcome.fits else "refused"
    tell(f"{name}, {mode.value}: {word}", milliseconds(lambda: place(asked, node)))


def busy_card(at: int) -> CardState:
    """Cards whose scores differ, so that the sort keys have work."""
    return card(at, numa=at // 8, tenants=at % 3)


def milliseconds(work: Callable[[], object], tries: int = 5) -> float:
    """The least CPU time that the work took."""
    best = float("inf")
    for _ in range(tries):
        began = process_time()
        work()
        best = min(best, process_time() - began)
    return best * 1000


def tell(what: str, took: float) -> None:
    """One line."""
    print(f"  {what:<40} {took:9.2f} ms")


if __name__ == "__main__":
    main()
