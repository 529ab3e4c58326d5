"""/filter's answers that are kept up to date are those that are found afresh."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import build
from asks import ASKS, asked
from cardwise.controller.gates.surroundings import Surroundings
from cardwise.controller.gates.waiting import Waiting
from cardwise.controller.placing.standings import Standings
from cardwise.engine.decide import Memo, decide
from cardwise.ledger import Ledger, Sighting
from cardwise.model import Decision, NodeView, QuotaBound, Request
from cardwise.names import Reason
from cardwise.noderules import NodeBook, Volumes
from cardwise.noderules.needs import Needs
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.nodenames import NodeNames, set_apart
from cardwise.wire.pods import booking_of, pod_ref

NAMES = [f"n{number}" for number in range(20)]
SOME = frozenset(NAMES[:18])
FEW = frozenset(NAMES[:4])
ALL_BUT_ONE = SOME - {"n3"}

Json = dict[str, Any]
Step = Callable[[Ledger], None]


def reported(node: str, cards: int = 2) -> Step:
    return lambda ledger: ledger.apply_gpunode(gpunode_of(build.gpunode(node, cards)), 0)


def gone(node: str) -> Step:
    return lambda ledger: ledger.remove_gpunode(node, 0)


def closed(node: str) -> Step:
    return lambda ledger: ledger.close_node(node, "kubelet rejects Pods there")


def tenant(node: str, *, ends: bool = False) -> Step:
    pod = build.pod("t", node=node, allocated=build.allocation(f"GPU-{node}-a", mib=8000))
    ref, booking = pod_ref(pod), booking_of(pod)
    seen = Sighting(pod=ref, version=1, node=node, booking=booking, gone=ends)
    return lambda ledger: ledger.see(seen, 0)


def bounded(mib: int | None) -> Step:
    return lambda ledger: ledger.set_bound("default", QuotaBound(memory_mib=mib))


@st.composite
def steps(draw: st.DrawFn) -> Step:
    node = draw(st.sampled_from(NAMES[:6]))
    of_node = [reported(node), reported(node, 1), gone(node), closed(node), tenant(node)]
    return draw(st.sampled_from([*of_node, tenant(node, ends=True), bounded(500), bounded(None)]))


Ask = tuple[int, frozenset[str]]
ASKED = st.tuples(
    st.integers(0, len(ASKS) - 1),
    st.sampled_from([SOME, ALL_BUT_ONE, frozenset(NAMES), FEW, frozenset({"n1"})]),
)


def sent(names: Iterable[str]) -> NodeNames:
    """The names as they come in a body, in an order of their own, and unread."""
    body = orjson.dumps({"Pod": {}, "NodeNames": sorted(names, key=lambda name: name[::-1])})
    apart = set_apart(body, frozenset())
    assert apart is not None
    return apart[1]


def agrees(kept: Standings, ledger: Ledger, ask: Ask) -> None:
    request = asked(**ASKS[ask[0]])
    room = ledger.room(request.pod.namespace)
    found = kept.decision(request, sent(ask[1]))
    fresh = decide(request, ledger.views(ask[1]), Memo(), room)
    assert (found.node, found.booking, found.reason) == (fresh.node, fresh.booking, fresh.reason)
    if found.node is not None and len(found.outcomes) == 1:
        assert found.outcomes[found.node] == fresh.outcomes[found.node]
        assert not found.refusals
    else:
        assert dict(found.outcomes) == dict(fresh.outcomes)
        assert dict(found.refusals) == dict(fresh.refusals)


def ledger_of(*names: str, ledger: Ledger | None = None) -> Ledger:
    ledger = Ledger() if ledger is None else ledger
    for name in names:
        reported(name)(ledger)
    return ledger


@given(st.lists(steps() | ASKED, max_size=30), st.sampled_from([1, 100]))
@settings(deadline=None)
def test_it_says_what_a_decision_over_the_same_nodes_says(
    history: list[Step | Ask], few: int
) -> None:
    # Red: `_of_those_asked` without what came, or without dropping what went, or without what was
    # touched; `_chosen_of_all` without dropping who is gone; `decision` with the room left out.
    ledger = ledger_of(*NAMES[2:])
    kept = Standings(ledger, Memo(), few=few)
    for step in history:
        if isinstance(step, tuple):
            agrees(kept, ledger, step)
            agrees(kept, ledger, step)
        else:
            step(ledger)
    for number in range(len(ASKS)):
        agrees(kept, ledger, (number, SOME))


@pytest.mark.parametrize(
    ("asks", "looked_at"),
    [
        pytest.param([SOME] * 4, [18, 18, 0, 0], id="the same nodes, kept from the second time on"),
        pytest.param([SOME, SOME, ALL_BUT_ONE], [18, 18, 0], id="one node less"),
        pytest.param([SOME, SOME, frozenset(NAMES[:19])], [18, 18, 1], id="one node more"),
        pytest.param([SOME, FEW] * 2 + [SOME], [18, 4, 18, 4, 18], id="now these, now those"),
        pytest.param([frozenset({"n1"})] * 3, [1, 1, 1], id="a single node"),
    ],
)
def test_only_nodes_where_something_happened_are_looked_at_again(
    asks: list[frozenset[str]], looked_at: list[int]
) -> None:
    # Red: `_of_those_asked` gives all that are asked about; `_ALIKE` is 1.
    ledger = Watched()
    kept = Standings(ledger_of(*NAMES, ledger=ledger), Memo())
    for names in asks:
        kept.decision(asked(gpumem=1000), names)

    assert ledger.looks == looked_at


class Watched(Ledger):
    """Counts the nodes that are looked at, by question."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[int] = []

    def views(self, names: Iterable[str]) -> Iterator[NodeView]:
        views = list(super().views(names))
        self.looks.append(len(views))
        return iter(views)


BEST = ["n0", "n1", "n10", "n11", "n12", "n13", "n14", "n15"]
"""Of equal nodes, in the order of their names: as many as are tried."""
CPU_ONLY = [f"cpu-{number}" for number in range(8)]
ALL = frozenset(NAMES)


@pytest.mark.parametrize(
    ("names", "is_read"),
    [
        pytest.param(ALL, False, id="all nodes"),
        pytest.param(ALL - {"n0"}, False, id="all but the best"),
        pytest.param(ALL | {"cpu-1", "cpu-2"}, False, id="all, and two without cards"),
        pytest.param(ALL - {"n0"} | {"cpu-1"}, False, id="one of them for the best"),
        pytest.param(ALL - {"n0", "n1"}, True, id="too few to be nearly all"),
        pytest.param(ALL - {*BEST[:7]} | {*CPU_ONLY}, False, id="the last that is tried is named"),
        pytest.param(ALL - {*BEST} | {*CPU_ONLY}, True, id="none that is tried is named"),
    ],
)
def test_names_are_not_read_where_the_best_node_is_among_them(
    names: frozenset[str], is_read: bool
) -> None:
    # Red: `choice` gives up at the first, or never; or does not put back what it passed.
    ledger = ledger_of(*NAMES)
    kept = Standings(ledger, Memo(), few=1)
    kept.decision(asked(gpumem=1000), ALL)

    texts = sent(names)
    found = kept.decision(asked(gpumem=1000), texts)

    assert texts.is_read is is_read
    assert found.node == min(names & ALL)
    assert kept.decision(asked(gpumem=1000), sent(ALL)).node == "n0"


def test_a_node_that_is_gone_is_not_chosen_though_it_is_asked_about() -> None:
    ledger = ledger_of(*NAMES)
    kept = Standings(ledger, Memo(), few=1)
    for _ in range(2):
        assert kept.decision(asked(gpumem=1000), sent(ALL)).node == "n0"
    gone("n0")(ledger)

    assert kept.decision(asked(gpumem=1000), sent(ALL)).node == "n1"


def test_of_all_nodes_only_those_are_looked_at_where_something_happened() -> None:
    # Red: `_chosen_of_all` does not say as of when its answers are.
    ledger = Watched()
    kept = Standings(ledger_of(*NAMES, ledger=ledger), Memo(), few=1)
    for step in (tenant("n5"), gone("n7"), reported("n7", 1), closed("n3")):
        kept.decision(asked(gpumem=1000), sent(NAMES))
        kept.decision(asked(gpumem=1000), sent(NAMES))
        step(ledger)
    kept.decision(asked(gpumem=1000), sent(NAMES))

    assert ledger.looks == [20, 20, 1, 0, 0, 0, 1, 0, 1]


def test_a_question_that_nobody_fits_is_answered_of_each_node() -> None:
    kept = Standings(ledger_of(*NAMES), Memo(), few=1)
    for _ in range(3):
        found = kept.decision(asked(gpumem=99_000), sent({*NAMES, "cpu-1"}))

        assert found.node is None
        assert found.refusals["n1"] is Reason.MEMORY
        assert found.refusals["cpu-1"] is Reason.NODE_HAS_NO_CARDS


def test_no_question_is_kept_that_is_itself_long() -> None:
    # Red: `decision` asks no `question_weight`. Each of these may have a megabyte.
    kept = Standings(ledger_of(*NAMES), Memo())
    uuids = ",".join(f"GPU-{number}" for number in range(1000))
    for _ in range(2):
        kept.decision(asked(annotations={"nvidia.com/use-gpuuuid": uuids}), SOME)

    assert not kept._kept
    assert not kept._asked


def test_few_questions_are_kept() -> None:
    kept = Standings(ledger_of(*NAMES), Memo())
    for number in range(1000):
        for _ in range(2):
            kept.decision(asked(gpumem=1000 + number), SOME)

    assert len(kept._kept) <= 64
    assert len(kept._asked) <= 256


def all_different() -> Ledger:
    """Nodes of which no two are in the same state."""
    ledger = ledger_of(*NAMES)
    for number, node in enumerate(NAMES):
        text = build.allocation(f"GPU-{node}-a", mib=1 + number)
        pod = build.pod(f"t{number}", node=node, allocated=text)
        ledger.see(Sighting(pod=pod_ref(pod), version=1, node=node, booking=booking_of(pod)), 0)
    return ledger


def by_extender(ledger: Ledger, memo: Memo) -> tuple[Callable[[Request], Decision], Any]:
    kept = Standings(ledger, memo)
    return lambda request: kept.decision(request, SOME), kept


def by_gates(ledger: Ledger, memo: Memo) -> tuple[Callable[[Request], Decision], Any]:
    book = NodeBook()
    for name in SOME:
        book.apply_node(build.node_object(name, gpus=20))
    kept = Surroundings(ledger, book, Volumes(), memo, lambda _: ())
    about: Json = {"needs": Needs(build.pod()), "version": "1", "terms": None, "order": None}
    return lambda request: kept.decision(Waiting(request=request, **about)), kept


@pytest.mark.parametrize("door", [by_extender, by_gates], ids=["extender", "gates"])
def test_what_the_memo_forgets_is_not_kept_in_its_place(door: Any) -> None:
    # Red: nobody looks whether the memo forgot, and answers have no limit where nodes differ.
    ledger, memo = all_different(), Memo(limit=100)
    decision, kept = door(ledger, memo)

    for number in range(30):
        request = asked(gpumem=1000 + number % 10)
        decision(request)
        assert decision(request).node == decide(request, ledger.views(SOME), Memo(), None).node
        assert 0 < sum(len(each.standing._outcomes) for each in kept._kept.values()) <= 100
