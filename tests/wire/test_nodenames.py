"""The nodes of a call are those that its JSON names, however little of it is read."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import pod
from cardwise.errors import BadBody
from cardwise.wire import extender
from cardwise.wire.nodenames import NodeNames, set_apart

POD = orjson.dumps(pod("p")).decode()
KNOWN = frozenset(["n1", "n2"])


def packed(*names: str) -> NodeNames:
    apart = set_apart(orjson.dumps({"Pod": {}, "NodeNames": names}), KNOWN)
    assert apart is not None
    assert not apart[1].is_read
    return apart[1]


@pytest.mark.parametrize(
    ("body", "is_apart"),
    [
        pytest.param('{"Pod":POD,"Nodes":null,"NodeNames":["n1","n2"]}', True, id="as Go writes"),
        pytest.param('{"Pod":POD,"NodeNames":["n2"]}', True, id="one name"),
        pytest.param('{"Pod":POD,"NodeNames":["n1","n1"]}', True, id="a name twice"),
        pytest.param('{"Pod":POD,"NodeNames":["",""]}', True, id="names that are empty"),
        pytest.param('{"Pod":POD,"NodeNames":[]}', True, id="no name"),
        pytest.param('{"NodeNames":["n1"],"Pod":POD}', False, id="the names first"),
        pytest.param('{"Pod":POD,"NodeNames": ["n1", "n2"]}', False, id="with blanks"),
        pytest.param('{"Pod":POD,"NodeNames":["n1"]}\n', False, id="a line's end"),
        pytest.param('{"Pod":POD,"nodenames":["n1"]}', False, id="lower case"),
        pytest.param('{"Pod":POD,"NodeNames":["N1"]}', False, id="no name of a node"),
        pytest.param('{"Pod":POD,"NodeNames":["\\u006e1"]}', False, id="a name with an escape"),
        pytest.param('{"Pod":POD,"NodeNames":["n1",2]}', False, id="a number"),
        pytest.param('{"Pod":POD,"NodeNames":["n1",["n2"]]}', False, id="a list in it"),
        pytest.param('{"Pod":POD,"NodeNames":["n1",]}', False, id="a comma too many"),
        pytest.param('{"Pod":POD,"NodeNames":["n1""n2"]}', False, id="a comma too few"),
        pytest.param('{"Pod":POD,"NodeNames":[n1]}', False, id="no quotes"),
        pytest.param('{"Pod":POD,"NodeNames":["n1"x,"n2"]}', False, id="a letter after a name"),
        pytest.param('{"Pod":POD,"NodeNames":["n1",x"n2"]}', False, id="a letter before a name"),
        pytest.param('{"Pod":POD,"NodeNames":[x"n1"]}', False, id="a letter before all"),
        pytest.param('{"Pod":POD,"NodeNames":["n1"x]}', False, id="a letter after all"),
        pytest.param('{"Pod":POD,"NodeNames":["n1"]]}', False, id="a bracket too many"),
        pytest.param('{"NodeNames":["n1"]}', True, id="no Pod"),
        pytest.param('[{"Pod":POD,"NodeNames":["n1"]}', True, id="the end of something else"),
        pytest.param('{"Pod":{,"NodeNames":["n1"]}', True, id="no JSON before"),
        pytest.param(
            '{"NodeNames":["n1"],"Pod":POD,"NodeNames":["n2"]}', True, id="twice: the last counts"
        ),
        pytest.param(
            '{"NodeNames":["n1"],"nodenames":[],"Pod":POD,"NodeNames":["n2"]}',
            True,
            id="twice, and in another case",
        ),
        pytest.param(
            '{"NodeNames":[],"Pod":POD,"x\\"NodeNames":["n2"]}', False, id="another field's end"
        ),
        pytest.param(
            '{"NodeNames":[],"Pod":POD,"x{\\"NodeNames":["n2"]}', False, id="the same, a brace"
        ),
        pytest.param(
            '{"Pod":{"NodeNames":["n1"]}}', False, id="a field of the Pod's"
        ),
        pytest.param(
            '{"NodeNames":["n1"],"Pod":{"x":1,"NodeNames":["n2"]}', True, id="the same, cut off"
        ),
    ],
)  # fmt: skip
def test_a_body_says_the_same_read_or_unread(body: str, is_apart: bool) -> None:
    # Red: what is before the field's name is not looked at; fields of another case don't count.
    text = body.replace("POD", POD).encode()

    assert (set_apart(text, KNOWN) is not None) is is_apart
    assert read_unread(text) == read(text)


NAMES = st.lists(
    st.sampled_from(["n1", "n2", "n-3.x", "", "n", "N", 'a"b', "a,b", '","', "ä", "\\"]), max_size=4
)
FIELDS = st.lists(
    st.tuples(
        st.sampled_from(["Pod", "NodeNames", "nodenames", "Nodes", '"NodeNames"', 'x,"NodeNames']),
        NAMES | st.none() | st.fixed_dictionaries({"NodeNames": NAMES}),
    ),
    max_size=5,
)


@given(st.text('an"",,.-[]{} ', max_size=12))
def test_any_section_says_the_same_read_or_unread(section: str) -> None:
    # Red: `_count` counts the signs alone.
    text = ('{"Pod":{},"NodeNames":[' + section + "]}").encode()

    assert read_unread(text) == read(text)


@given(FIELDS, NAMES, st.sampled_from([(",", ":"), (", ", ": ")]), st.integers(0, 3))
def test_any_body_says_the_same_read_or_unread(
    fields: list[tuple[str, Any]], names: list[str], signs: tuple[str, str], cut: int
) -> None:
    comma, colon = signs
    pairs = [("Pod", {"metadata": {}}), *fields, ("NodeNames", names)]
    inner = comma.join(json.dumps(k) + colon + json.dumps(v, separators=signs) for k, v in pairs)
    text = ("{" + inner + "}").encode()
    text = text[: len(text) - cut]

    assert read_unread(text) == read(text)


def read(body: bytes) -> extender.FilterCall | str:
    try:
        return extender.filter_call(extender.decoded(body), KNOWN)
    except BadBody as error:
        return str(error)


def read_unread(body: bytes) -> extender.FilterCall | str:
    try:
        return extender.filter_call_in(body, KNOWN)
    except BadBody as error:
        return str(error)


@given(
    st.lists(st.text("abn1.-", max_size=4), min_size=1, max_size=6),
    st.text('abn1.-",\ud800', max_size=5),
)
def test_a_name_is_among_those_that_are_written(names: list[str], name: str) -> None:
    # Red: a name with a comma is looked for.
    for asked in (*names, name):
        texts = packed(*names)
        assert (asked in texts) is (asked in names)
        assert len(texts) == len(names)
        assert not texts.is_read


def test_names_that_are_read_are_the_caller_s() -> None:
    texts = packed("n3", "n1", "n3")

    assert texts.in_order == tuple(texts) == ("n3", "n1")
    assert texts.distinct == {"n1", "n3"}
    assert texts.is_read
    assert "n1" in texts
    assert "n2" not in texts
    assert texts == NodeNames(["n3", "n1"])
    assert texts != NodeNames(["n1", "n3"])


def test_names_that_are_known_are_not_made_anew() -> None:
    assert packed("n2", "n1").distinct is KNOWN
    assert packed("n2", "n2").distinct is not KNOWN
