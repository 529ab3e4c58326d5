"""Whatever comes in a body: an answer within seconds, never a 500, never a traceback."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import build
from cardwise.wire.fields import at as at_path
from hostile import JSON, VALUES, places, replaced, spoilt
from served import NODES, Served, binding, filtering, holds, preempting, whole

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("unbroken")]

Json = dict[str, Any]
bounded = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def dumped(body: Any) -> bytes:
    """JSON as a stranger may write it: half surrogate pairs, NaN and huge numbers included."""
    return json.dumps(body).encode()


def removed(thing: Any, at: int) -> Any:
    """A copy without one field or list element, counted over all of them."""
    other = copy.deepcopy(thing)
    parent, key = places(other)[at]
    del parent[key]
    return other


# One wrong value at a time ------------------------------------------------------------------------

CALLS: dict[str, Json] = {
    "filter": filtering(whole()),
    "preempt": preempting(whole()),
    "bind": binding(),
}
SPOILT = [
    pytest.param(verb, what, id=f"{verb}, {what}")
    for verb in CALLS
    for what in [*VALUES, "nothing"]
]


def test_what_is_spoilt_below_is_answered_as_it_is(served: Served) -> None:
    assert served.ask("filter", CALLS["filter"]).json["NodeNames"] == ["n1"]
    assert [*served.ask("preempt", CALLS["preempt"]).json["NodeNameToMetaVictims"]] == ["n1"]


@pytest.mark.parametrize(("verb", "what"), SPOILT)
def test_a_value_of_every_type_at_every_place(served: Served, verb: str, what: str) -> None:
    """Red when ``fields.at`` or ``wire.extender._object`` takes a value's type on trust."""
    for at in range(len(places(CALLS[verb]))):
        body = removed(CALLS[verb], at) if what == "nothing" else None
        answer = served.post(verb, dumped(body or replaced(CALLS[verb], at, VALUES[what])))

        holds(answer)
        if verb == "filter" and answer.status == 200:
            assert {*(answer.json["NodeNames"] or [])} <= {*NODES, "x"}


BROKEN = {
    "cut off": dumped(CALLS["filter"])[:-1],
    "twice": dumped(CALLS["filter"]) * 2,
    "a mark before it": b"\xef\xbb\xbf" + dumped(CALLS["filter"]),
    "UTF-16": json.dumps(CALLS["filter"]).encode("utf-16"),
    "no UTF-8": dumped(CALLS["filter"]).replace(b"default", b"\xff\xfe"),
    "half a surrogate pair": dumped(CALLS["filter"]).replace(b"default", b"\\ud800"),
    "NaN": dumped(CALLS["filter"]).replace(b'"NodeNames"', b'"x": NaN, "NodeNames"'),
    "infinity": dumped(CALLS["filter"]).replace(b'"NodeNames"', b'"x": 1e999, "NodeNames"'),
    "a number of 5,000 digits": b'{"Pod": {"x": ' + b"9" * 5000 + b'}, "NodeNames": []}',
    "a zero byte": b"\x00" + dumped(CALLS["filter"]),
    "a comment": b"/* */" + dumped(CALLS["filter"]),
    "single quotes": dumped(CALLS["filter"]).replace(b'"', b"'"),
    "a comma too many": dumped(CALLS["filter"])[:-1] + b",}",
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("body", [pytest.param(body, id=what) for what, body in BROKEN.items()])
def test_what_is_no_json(served: Served, verb: str, body: bytes) -> None:
    """Red when ``decoded`` lets the decoder's error through."""
    holds(served.post(verb, body))


def test_of_a_key_that_stands_twice_the_last_counts(served: Served) -> None:
    """Red when ``_fields`` goes through the keys the other way round."""
    body = dumped(filtering(whole(), ["n2"]))

    answer = served.post("filter", body[:-1] + b', "nodenames": ["n2"], "NODENAMES": ["n1"]}')

    assert answer.json["NodeNames"] == ["n1"]


@pytest.mark.parametrize("node", ["a\nb", "\r", "\u2028", "a" * 300, "", "..", "\x00"])
def test_a_refusal_that_names_a_node_is_one_sentence(served: Served, node: str) -> None:
    """Red when the name is not quoted, or ``quoted`` leaves a line end of Unicode's."""
    answer = served.ask("preempt", {"Pod": whole(), "NodeNameToMetaVictims": {node: 7}})

    assert answer.status == 400
    holds(answer)
    assert len(answer.text.splitlines()) == 1


# Anything anywhere --------------------------------------------------------------------------------


@bounded
@given(body=spoilt(st.builds(lambda: filtering(whole()))))
def test_a_spoilt_filter(served: Served, body: Any) -> None:
    answer = served.post("filter", dumped(body))

    holds(answer)
    if answer.status == 200 and not answer.json["Error"]:
        assert {*(answer.json["NodeNames"] or [])} <= {*NODES, *_texts(body)}


@bounded
@given(body=spoilt(st.builds(lambda: preempting(whole()))))
def test_a_spoilt_preempt(served: Served, body: Any) -> None:
    holds(served.post("preempt", dumped(body)))


@bounded
@given(body=spoilt(st.builds(binding)))
def test_a_spoilt_bind(served: Served, body: Any) -> None:
    holds(served.post("bind", dumped(body)))


@bounded
@given(verb=st.sampled_from(["filter", "preempt", "bind"]), body=JSON)
def test_anything_at_all(served: Served, verb: str, body: Any) -> None:
    holds(served.post(verb, dumped(body)))


@bounded
@given(
    verb=st.sampled_from(["filter", "preempt", "bind"]),
    at=st.integers(0, 2000),
    put=st.binary(max_size=8),
)
def test_bytes_in_the_wrong_place(served: Served, verb: str, at: int, put: bytes) -> None:
    whole_body = dumped({"filter": filtering, "preempt": preempting}.get(verb, _bind)(whole()))
    at %= len(whole_body)

    holds(served.post(verb, whole_body[:at] + put + whole_body[at + len(put) :]))
    holds(served.post(verb, whole_body[:at] + put))


@bounded
@given(
    name=st.text(max_size=300),
    namespace=st.text(max_size=300),
    uid=st.text(min_size=1, max_size=300),
    node=st.text(min_size=1, max_size=300),
)
def test_odd_names(served: Served, name: str, namespace: str, uid: str, node: str) -> None:
    pod = build.pod("x", gpumem=1000)
    pod["metadata"] |= {"name": name, "namespace": namespace, "uid": uid}

    answer = served.post("filter", dumped(filtering(pod, [node, "n1"])))

    holds(answer)
    if answer.status == 200:
        assert answer.json["NodeNames"] == ["n1"]
    bind = {"PodName": name, "PodNamespace": namespace, "PodUID": uid + "x", "Node": node}
    holds(served.post("bind", dumped(bind)))


ODD = [
    "",
    ".",
    "..",
    "a/b",
    "../x",
    "a\nb",
    "\x1b[2J",
    "\x00",
    "é" * 127,
    "n" * 253,
    "n" * 70_000,
    "%2e",
]


@pytest.mark.parametrize("name", ODD, ids=lambda name: f"{len(name)}, {name[:10]!a}")
def test_an_odd_name_everywhere(served: Served, name: str) -> None:
    """Nodes, Pods, namespaces, UIDs, containers: whoever reads metrics and events can read on."""
    pod = build.pod("x", gpumem=1000)
    pod["metadata"] |= {"name": name, "namespace": name, "uid": name or "none"}
    pod["spec"]["containers"][0]["name"] = name

    answer = served.ask("filter", filtering(pod, [name, "n1"]))

    assert answer.json["NodeNames"] == ["n1"]
    read = {it.name for it in text_string_to_metric_families(served.metrics())}
    assert "hami_vgpu_memory_allocated_bytes" in read
    holds(served.ask("preempt", preempting(pod)))
    call = {"PodName": name, "PodNamespace": name, "PodUID": name, "Node": "n1"}
    bound = served.ask("bind", call)
    holds(bound)
    if name:
        assert bound.json["Error"]


def test_thousands_of_calls_leave_nothing_behind(served: Served) -> None:
    """Entries go with the next comparison; tasks and files go with the calls.

    Red when ``reconcile`` spares those that wait.
    """
    ledger = served.world.ledger

    def storm(prefix: str) -> None:
        for at in range(len(places(CALLS["filter"]))):
            for value in VALUES.values():
                body = replaced(CALLS["filter"], at, value)
                if isinstance(at_path(body, "Pod", "metadata"), dict):
                    body["Pod"]["metadata"]["uid"] = f"{prefix}-{at}"
                holds(served.post("filter", dumped(body)))
                served.post("filter", dumped(body)[: at * 7])

    def left() -> tuple[int, ...]:
        for entry in list(ledger.entries()):
            ledger.drop_hold(entry.pod.uid, 0.0)  # as fifteen minutes do
        served.compare()
        served.rest()
        ours = ledger._nodes, ledger._quota_use, ledger._bounds, [*ledger.entries()]
        return (served.tasks(), served.files(), *map(len, ours))

    storm("first")
    before = left()
    storm("second")

    assert left() == before


def _bind(_: Json) -> Json:
    return binding()


def _texts(thing: Any) -> Iterator[str]:
    """Every text in it."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from _texts(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from _texts(value)
