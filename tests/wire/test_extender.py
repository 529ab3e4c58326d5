"""kube-scheduler's calls: what it sends, what it gets back, and what nobody should send."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import node_object, pod
from cardwise.errors import BadBody
from cardwise.names import Reason
from cardwise.wire import extender
from cardwise.wire.extender import Victims

POD = pod("p")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["Pods", "UID", "items", "metadata", "name", "uid", "n1", ""]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=5,
)
bodies = st.dictionaries(
    st.sampled_from(
        ["Pod", "pod", "Nodes", "NodeNames", "nodenames", "NodeNameToMetaVictims",
         "NodeNameToVictims", "PodName", "PodNamespace", "PodUID", "Node"]
    ),
    json_values,
)  # fmt: skip


# /filter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param({"Pod": POD, "NodeNames": ["n2", "n1"]}, ("n2", "n1"), id="Go's names"),
        pytest.param({"pod": POD, "nodenames": ["n1"]}, ("n1",), id="lower case, as Go reads it"),
        pytest.param({"POD": POD, "NODENAMES": ["n1"]}, ("n1",), id="upper case"),
        pytest.param({"Pod": POD, "Nodes": None, "NodeNames": []}, (), id="no node"),
        pytest.param({"Pod": POD, "NodeNames": ["n1", "n1"]}, ("n1",), id="a name twice"),
        pytest.param(
            {"Pod": POD, "Nodes": {"items": []}, "NodeNames": ["n1"]},
            ("n1",),
            id="names go before nodes",
        ),
    ],
)
def test_a_filter_call_with_names_is_read(body, want) -> None:
    call = extender.filter_call(body)

    assert (call.pod, call.names, call.nodes) == (POD, want, None)


KNOWN = frozenset(["n1", "n2", "n3"])


@pytest.mark.parametrize(
    ("names", "is_known"),
    [
        pytest.param(["n3", "n1", "n2"], True, id="the same in another order"),
        pytest.param(["n1", "n2"], False, id="one less"),
        pytest.param(["n1", "n2", "n3", "n4"], False, id="one more"),
        pytest.param(["n1", "n2", "n4"], False, id="one is another"),
        pytest.param(["n1", "n2", "n2"], False, id="one twice, so one is missing"),
        pytest.param(["n1", "n2", "n3", "n3"], False, id="all, and one twice"),
        pytest.param([], False, id="none"),
    ],
)
def test_names_that_are_known_are_not_made_anew(names, is_known) -> None:
    # Red: names are compared by their number alone, or by whether each is known.
    body = {"Pod": POD, "NodeNames": names}

    call = extender.filter_call(body, KNOWN)

    assert call == extender.filter_call(body)
    assert (call.asked is KNOWN) is is_known


@given(st.lists(st.sampled_from(["n1", "n2", "n3", "n4"])), st.frozensets(st.sampled_from("abn")))
def test_what_is_known_changes_no_answer(names: list[str], known: frozenset[str]) -> None:
    body = {"Pod": POD, "NodeNames": names}

    for last in (known, frozenset(names), frozenset(names[1:]), KNOWN):
        assert extender.filter_call(body, last) == extender.filter_call(body)


@pytest.mark.parametrize("wrong", [["n1", "n2", 3], ["n1", "n2", ["n3"]], ["n1", "n2", None]])
def test_names_that_are_no_texts_are_refused_whatever_is_known(wrong) -> None:
    # Red: an entry that can't be looked up raises TypeError.
    with pytest.raises(BadBody, match="NodeNames has an entry that is not a text"):
        extender.filter_call({"Pod": POD, "NodeNames": wrong}, KNOWN)


def test_a_filter_call_with_nodes_is_read() -> None:
    n1, n2 = node_object("n1"), node_object("n2")

    call = extender.filter_call({"Pod": POD, "Nodes": {"items": [n1, n2]}, "NodeNames": None})

    assert call.names == ("n1", "n2")
    assert call.nodes == (n1, n2)


def test_names_are_answered_by_names_and_every_refusal_is_final() -> None:
    call = extender.filter_call({"Pod": POD, "NodeNames": ["n1", "n2", "n3"]})

    result = extender.filter_result(call, ["n2"], {"n3": Reason.MEMORY, "n1": "ABC", "n9": "XYZ"})

    assert result == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n1": "ABC", "n3": "CardInsufficientMemory"},
        "Error": "",
    }


def test_nodes_are_answered_by_nodes() -> None:
    n1, n2 = node_object("n1"), node_object("n2")
    call = extender.filter_call({"Pod": POD, "Nodes": {"items": [n1, n2]}})

    result = extender.filter_result(call, ["n2"], {"n1": Reason.EXCLUSIVE})

    assert result["Nodes"]["items"] == [n2]
    assert result["NodeNames"] is None
    assert result["FailedAndUnresolvableNodes"] == {"n1": "ExclusiveDeviceAllocateConflict"}


def test_a_node_that_was_not_asked_about_is_never_answered() -> None:
    call = extender.filter_call({"Pod": POD, "NodeNames": ["n1"]})

    assert extender.filter_result(call, ["n9"], {})["NodeNames"] == []


def test_an_error_keeps_no_node() -> None:
    result = extender.filter_error("ledger not loaded yet")

    assert result["Error"] == "ledger not loaded yet"
    assert not any((result["NodeNames"], result["Nodes"], result["FailedAndUnresolvableNodes"]))


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param([], "The body is not an object.", id="a list"),
        pytest.param(None, "The body is not an object.", id="a null body"),
        pytest.param({"NodeNames": []}, "The body has no Pod.", id="no Pod"),
        pytest.param({"Pod": None, "NodeNames": []}, "The body has no Pod.", id="a null Pod"),
        pytest.param({"Pod": "p", "NodeNames": []}, "Pod is not an object.", id="a Pod of text"),
        pytest.param({"Pod": POD}, "The body has neither NodeNames nor Nodes.", id="no nodes"),
        pytest.param({"Pod": POD, "NodeNames": "n1"}, "NodeNames is not a list.", id="one name"),
        pytest.param(
            {"Pod": POD, "NodeNames": [1]},
            "NodeNames has an entry that is not a text.",
            id="a number among the names",
        ),
        pytest.param({"Pod": POD, "Nodes": []}, "Nodes is not an object.", id="a list of nodes"),
        pytest.param(
            {"Pod": POD, "Nodes": {"items": {}}},
            "Nodes.items is not a list.",
            id="an object for the items",
        ),
        pytest.param(
            {"Pod": POD, "Nodes": {"items": [None]}},
            "Nodes.items[] is not an object.",
            id="a null node",
        ),
        pytest.param(
            {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": 5}}]}},
            "Nodes.items[].metadata.name is not a name.",
            id="a node without a name",
        ),
    ],
)
def test_a_broken_filter_call_gets_one_sentence(body, want) -> None:
    with pytest.raises(BadBody) as caught:
        extender.filter_call(body)

    assert str(caught.value) == want


# /preempt -----------------------------------------------------------------------------------------

META = {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}, "n2": None}


def test_victims_come_back_unchanged_for_the_nodes_kept() -> None:
    call = extender.preempt_call(
        {"Pod": POD, "NodeNameToVictims": {}, "NodeNameToMetaVictims": META}
    )

    assert call.victims == {
        "n1": Victims(uids=("a", "b"), pdb_violations=1),
        "n2": Victims(uids=()),
    }
    assert extender.preempt_result(call, ["n1", "n9"]) == {
        "NodeNameToMetaVictims": {"n1": META["n1"]}
    }


def test_victims_in_full_are_known_by_their_uid() -> None:
    victims = {"n1": {"Pods": [pod("v", uid="a")], "NumPDBViolations": 0}}

    call = extender.preempt_call(
        {"Pod": POD, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None}
    )

    assert call.victims == {"n1": Victims(uids=("a",))}


def test_an_empty_map_of_uids_beside_full_victims_is_no_answer() -> None:
    victims = {"n1": {"Pods": [pod("v", uid="a")]}}

    call = extender.preempt_call(
        {"Pod": POD, "NodeNameToVictims": victims, "NodeNameToMetaVictims": {}}
    )

    assert call.victims == {"n1": Victims(uids=("a",))}


@pytest.mark.parametrize("empty", [{}, None], ids=["an empty map", "no map"])
def test_a_call_without_victims_has_none(empty) -> None:
    call = extender.preempt_call(
        {"Pod": POD, "NodeNameToVictims": {}, "NodeNameToMetaVictims": empty}
    )

    assert extender.preempt_result(call, []) == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize(
    ("victims", "want"),
    [
        pytest.param(
            None,
            "The body has neither NodeNameToMetaVictims nor NodeNameToVictims.",
            id="neither form of victims",
        ),
        pytest.param([1], "NodeNameToMetaVictims is not an object.", id="a list"),
        pytest.param({"n1": 5}, 'NodeNameToMetaVictims["n1"] is not an object.', id="a number"),
        pytest.param(
            {"n1": {"Pods": 5}},
            'NodeNameToMetaVictims["n1"].Pods is not a list.',
            id="a number for the Pods",
        ),
        pytest.param({"n1": {"Pods": [{}]}}, "UID is not given.", id="no UID"),
        pytest.param({"n1": {"Pods": [{"UID": 5}]}}, "UID is not a text.", id="a number as UID"),
        pytest.param(
            {"n1": {"NumPDBViolations": True}},
            'NodeNameToMetaVictims["n1"].NumPDBViolations is not a whole number.',
            id="a truth value for the violations",
        ),
    ],
)
def test_a_broken_preempt_call_gets_one_sentence(victims, want) -> None:
    with pytest.raises(BadBody) as caught:
        extender.preempt_call({"Pod": POD, "NodeNameToMetaVictims": victims})

    assert str(caught.value) == want


# /bind --------------------------------------------------------------------------------------------

BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}


@pytest.mark.parametrize("spelt", [str, str.lower, str.upper])
def test_a_bind_call_is_read_whatever_the_case(spelt) -> None:
    call = extender.bind_call({spelt(key): value for key, value in BIND.items()})

    assert (call.namespace, call.name, call.uid, call.node) == ("default", "p", "u", "n1")


@pytest.mark.parametrize("field", list(BIND))
@pytest.mark.parametrize(
    ("value", "fault"), [(None, "is not given."), ("", "is not given."), (["x"], "is not a text.")]
)
def test_a_bind_call_needs_every_field(field, value, fault) -> None:
    with pytest.raises(BadBody) as caught:
        extender.bind_call({**BIND, field: value})

    assert str(caught.value) == f"{field} {fault}"


def test_a_bind_result_is_its_error() -> None:
    assert extender.bind_result() == {"Error": ""}
    assert extender.bind_result("no room") == {"Error": "no room"}


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="an empty body"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"\xff", id="no UTF-8"),
        pytest.param(b'{"Pod": NaN}', id="no number"),
        pytest.param(b"[" * 100_000, id="nested deep"),
    ],
)
def test_a_body_that_is_no_json_gets_one_sentence(body) -> None:
    with pytest.raises(BadBody, match=r"^The body is not JSON: .*\.$"):
        extender.decoded(body)


def test_a_body_above_sixteen_mebibytes_is_not_read() -> None:
    with pytest.raises(BadBody, match=r"more than the 16777216"):
        extender.decoded(b'"' + b"x" * 16 * 1024 * 1024 + b'"')


def test_a_good_body_is_decoded() -> None:
    assert extender.decoded(orjson.dumps(BIND)) == BIND


@given(bodies | json_values)
def test_any_json_is_read_or_refused_in_one_sentence(body) -> None:
    for read in (extender.filter_call, extender.preempt_call, extender.bind_call):
        sentence = sentence_of(read, body)
        assert sentence is None or sentence.endswith(".")
        assert "\n" not in (sentence or "")


def sentence_of(read, body):
    try:
        read(body)
    except BadBody as error:
        return str(error)
    return None


@given(st.lists(st.text(max_size=4)), st.sets(st.text(max_size=4)))
def test_every_node_kept_was_asked_about_and_none_is_lost(names, kept) -> None:
    call = extender.filter_call({"Pod": POD, "NodeNames": names})

    result = extender.filter_result(call, kept, dict.fromkeys(set(names) - kept, "No"))

    answered = [*result["NodeNames"], *result["FailedAndUnresolvableNodes"]]
    assert sorted(answered) == sorted(set(names))
