"""The account of nodes over time: what came and went must not matter, only what is there."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.journal import Journal
from cardwise.names import NodeReason
from cardwise.noderules import Needs, NodeBook

NAMES = ("n1", "n2", "n3")
UIDS = ("u1", "u2", "u3", "u4")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(*, cpu="1", app="a", port=None, away=(), selector=None, fpga=None):
    requests = {"cpu": cpu} | ({} if fpga is None else {"example.com/fpga": fpga})
    container = build.container(requests=requests)
    if port is not None:
        container["ports"] = [{"hostPort": port}]
    made = build.pod(labels={"app": app}, containers=[container])
    if away:
        terms = [
            {"topologyKey": key, "labelSelector": {"matchLabels": {"app": other}}}
            for key, other in away
        ]
        made["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: terms}}
    if selector is not None:
        made["spec"]["nodeSelector"] = selector
    return Needs(made)


PODS = st.builds(
    pod,
    cpu=st.sampled_from(["1", "3"]),
    app=st.sampled_from("ab"),
    port=st.sampled_from([None, 80]),
    away=st.lists(
        st.tuples(st.sampled_from(["zone", "rack"]), st.sampled_from("ab")), max_size=2, unique=True
    ),
    fpga=st.sampled_from([None, "1"]),
)
NODES = st.builds(
    build.node_object,
    st.sampled_from(NAMES),
    cpu=st.sampled_from(["2", "8"]),
    pods=st.sampled_from(["1", "5"]),
    labels=st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("xy")),
    unschedulable=st.booleans(),
)
EVENTS = st.lists(
    st.tuples(st.just("node"), NODES)
    | st.tuples(st.just("gone"), st.sampled_from(NAMES))
    | st.tuples(st.just("take"), st.sampled_from(UIDS), st.sampled_from(NAMES), PODS)
    | st.tuples(st.just("release"), st.sampled_from(UIDS)),
    max_size=12,
)
NEWCOMERS = (
    pod(app="a", port=80),
    pod(app="b", port=80),
    pod(app="b", cpu="3"),
    pod(selector={"zone": "x"}, fpga="1"),
)


@dataclass
class State:
    """What is there: the last word about each node and each Pod."""

    nodes: dict = field(default_factory=dict)
    taken: dict = field(default_factory=dict)

    def apply(self, event) -> None:
        match event:
            case ("node", node):
                self.nodes[node["metadata"]["name"]] = node
            case ("gone", name):
                self.nodes.pop(name, None)
            case ("take", uid, name, needs):
                self.taken[uid] = (name, needs)
            case ("release", uid):
                self.taken.pop(uid, None)

    def fresh(self) -> NodeBook:
        book = NodeBook()
        for node in self.nodes.values():
            book.apply_node(node)
        for uid, (name, needs) in self.taken.items():
            book.take(uid, name, needs.load)
        return book


def apply(book, event) -> None:
    match event:
        case ("node", node):
            book.apply_node(node)
        case ("gone", name):
            book.remove_node(name)
        case ("take", uid, name, needs):
            book.take(uid, name, needs.load)
        case ("release", uid):
            book.release(uid)


def answers(book):
    return [book.refusals(needs, NAMES) for needs in NEWCOMERS]


def one_by_one(book):
    return [
        {name: word for name in NAMES if (word := book.refusal(needs, name)) is not None}
        for needs in NEWCOMERS
    ]


@given(EVENTS)
def test_only_what_is_there_matters_and_what_changed_is_told(events) -> None:
    book, state = NodeBook(), State()
    before, position = answers(book), 0
    for event in events:
        book.grew = False

        apply(book, event)
        state.apply(event)

        after = answers(book)
        assert after == answers(state.fresh()) == one_by_one(book)
        position, touched = book.touched_since(position)
        changed = {
            name
            for then, now in zip(before, after, strict=True)
            for name in NAMES
            if then.get(name) != now.get(name)
        }
        assert changed <= touched
        gained = any(
            name in then and name not in now
            for then, now in zip(before, after, strict=True)
            for name in NAMES
        )
        assert book.grew or not gained
        before = after


@given(EVENTS, st.permutations(UIDS))
def test_the_order_in_which_pods_came_does_not_matter(events, order) -> None:
    state = State()
    for event in events:
        state.apply(event)
    book = NodeBook()
    for uid in order:
        if uid in state.taken:
            name, needs = state.taken[uid]
            book.take(uid, name, needs.load)
    for node in state.nodes.values():
        book.apply_node(node)

    assert answers(book) == answers(state.fresh())


@given(EVENTS, PODS, st.sampled_from(NAMES))
def test_who_came_and_went_left_nothing(events, needs, name) -> None:
    book, state = NodeBook(), State()
    for event in events:
        apply(book, event)
        state.apply(event)

    book.take("passing", name, needs.load)
    book.release("passing")

    assert answers(book) == answers(state.fresh())
    assert [book.kind(each) for each in NEWCOMERS] == [
        state.fresh().kind(each) for each in NEWCOMERS
    ]


@given(EVENTS)
def test_pods_of_one_kind_get_the_same_answers(events) -> None:
    book = NodeBook()
    for event in events:
        apply(book, event)
    twins = [
        pod(app=app, cpu=cpu, port=port) for app in "abc" for cpu in "13" for port in (None, 80)
    ]

    for one in twins:
        for other in twins:
            if book.kind(one) == book.kind(other):
                assert book.refusals(one, NAMES) == book.refusals(other, NAMES)


# What is told of change ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "grew", "touched"),
    [
        pytest.param(lambda b: b.apply_node(build.node_object("n1")), False, set(), id="no news"),
        pytest.param(
            lambda b: b.apply_node(build.node_object("n1", annotations={"a": "b"})),
            False,
            set(),
            id="news of what no rule reads",
        ),
        pytest.param(
            lambda b: b.apply_node(build.node_object("n1", labels={"a": "b"})),
            True,
            {"n1"},
            id="a label",
        ),
        pytest.param(
            lambda b: b.apply_node(build.node_object("n1", unschedulable=True)),
            True,
            {"n1"},
            id="a cordon: what changes how is not told apart",
        ),
        pytest.param(lambda b: b.apply_node(build.node_object("n9")), True, {"n9"}, id="new"),
        pytest.param(lambda b: b.remove_node("n1"), True, {"n1"}, id="a node less"),
        pytest.param(lambda b: b.remove_node("n9"), False, set(), id="a node that was not there"),
        pytest.param(lambda b: b.take("u9", "n1", pod().load), False, {"n1"}, id="a Pod more"),
        pytest.param(lambda b: b.take("u1", "n1", pod().load), False, set(), id="a Pod seen again"),
        pytest.param(
            lambda b: b.take("u1", "n2", pod().load), True, {"n1", "n2"}, id="it is elsewhere"
        ),
        pytest.param(lambda b: b.release("u1"), True, {"n1"}, id="a Pod less"),
        pytest.param(lambda b: b.release("u9"), False, set(), id="a Pod that was not there"),
    ],
)
def test_what_is_told_of_a_change(change, grew, touched) -> None:
    book = NodeBook()
    for name in ("n1", "n2"):
        book.apply_node(build.node_object(name))
    book.take("u1", "n1", pod().load)
    book.grew = False
    position, _ = book.touched_since(0)

    change(book)

    assert book.grew is grew
    assert book.touched_since(position)[1] == touched


def test_news_of_a_whole_place_touches_all_of_its_nodes() -> None:
    book = NodeBook()
    for name, zone in (("n1", "x"), ("n2", "x"), ("n3", "y")):
        book.apply_node(build.node_object(name, labels={"zone": zone}))
    position, _ = book.touched_since(0)

    book.take("u1", "n1", pod(away=[("zone", "a")]).load)
    position, first = book.touched_since(position)
    book.take("u2", "n2", pod(away=[("zone", "a")]).load)
    _, second = book.touched_since(position)

    assert first == {"n1", "n2"}
    assert second == {"n2"}, "n1 was closed before"


def test_a_node_that_has_moved_is_touched_in_its_new_place() -> None:
    book = NodeBook()
    for name, zone in (("n1", "x"), ("n2", "y"), ("n3", "y")):
        book.apply_node(build.node_object(name, labels={"zone": zone}))
    book.take("u1", "n1", pod(away=[("zone", "a")]).load)
    book.apply_node(build.node_object("n2", labels={"zone": "x"}))
    position, _ = book.touched_since(0)

    book.release("u1")

    assert book.touched_since(position)[1] == {"n1", "n2"}


def test_nodes_that_come_and_go_for_years_are_forgotten_in_the_end() -> None:
    journal = Journal()
    journal.touch("stays")
    position, _ = journal.since(0)
    for number in range(1001):
        journal.touch(f"node-{number}")
        journal.forget({"stays"})

    assert journal.since(position)[1] is not None
    journal.touch("one-more")
    journal.touch("yet-one-more")
    journal.forget({"stays"})
    now, names = journal.since(position)
    assert names is None
    journal.touch("stays")
    assert journal.since(now)[1] == {"stays"}


def test_more_kinds_than_are_kept_are_still_answered_rightly() -> None:
    book = NodeBook()
    book.apply_node(build.node_object("n1", cpu="50"))
    kinds = [pod(cpu=str(number)) for number in range(100)]

    for _ in range(2):
        for number, needs in enumerate(kinds):
            want = {"n1": NodeReason.CPU} if number > 50 else {}
            assert book.refusals(needs, ("n1",)) == want
