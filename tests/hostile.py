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
        places = list(_places(thing))
        if not places:
            return draw(JSON)
        parent, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            parent[key] = draw(JSON)
        else:
            del parent[key]
    return thing


def _places(thing: Any) -> list[tuple[Any, Any]]:
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
        found += [(thing, key), *_places(value)]
    return found
