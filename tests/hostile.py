"""Kubernetes JSON with anything anywhere, for the promise that no input gives a traceback."""

import copy
from typing import Any

from hypothesis import strategies as st

_TEXTS = st.sampled_from(
    [
        "",
        " ",
        ",",
        ";",
        ":",
        "x",
        "-1",
        "1",
        "true",
        "16Gi",
        "Always",
        "GPU-a,NVIDIA,1,1:;",
        "\ud800",
    ]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | _TEXTS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_TEXTS | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn, wholes: st.SearchStrategy[dict[str, Any]]) -> Any:
    """An object in which up to three fields, at any depth, hold anything or are gone."""
    thing: dict[str, Any] = copy.deepcopy(draw(wholes))
    for _ in range(draw(st.integers(1, 3))):
        found = places(thing)
        if not found:
            return draw(JSON)
        parent, key = draw(st.sampled_from(found))
        if draw(st.booleans()):
            parent[key] = draw(JSON)
        else:
            del parent[key]
    return thing


VALUES: dict[str, Any] = {
    "null": None,
    "a number": 7,
    "a negative fraction": -1.5,
    "a huge number": 2**70,
    "a text": "x",
    "an empty text": "",
    "true": True,
    "an empty list": [],
    "a list": [{"a": [1]}, "b", None],
    "an empty object": {},
    "an object": {"name": {"a": 1}, "x": [2]},
}
"""One value of every type: what may stand where another was meant."""


def replaced(thing: Any, at: int, value: Any) -> Any:
    """A copy in which one field or list element, counted over all of them, holds another value."""
    other = copy.deepcopy(thing)
    parent, key = places(other)[at]
    parent[key] = value
    return other


def places(thing: Any) -> list[tuple[Any, Any]]:
    """Every field and list element, with what holds it."""
    held = (
        thing.items()
        if isinstance(thing, dict)
        else enumerate(thing)
        if isinstance(thing, list)
        else ()
    )
    found: list[tuple[Any, Any]] = []
    for key, value in held:
        found += [(thing, key), *places(value)]
    return found
