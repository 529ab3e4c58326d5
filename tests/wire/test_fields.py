from typing import Any

import pytest

from cardwise.wire.fields import annotation, annotations_of


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param({"a": "b"}, "b", id="as it is written"),
        pytest.param({"a": ""}, "", id="empty"),
        pytest.param({"a": None}, "", id="a null is an empty text"),
        pytest.param({"a": 1}, None, id="a number is no text"),
        pytest.param({"b": "a"}, None, id="not written"),
        pytest.param(None, None, id="no annotations"),
        pytest.param(["a"], None, id="a list of them"),
    ],
)
def test_one_annotation(written: Any, text: str | None) -> None:
    pod = {"metadata": {"annotations": written}}
    assert annotation(pod, "a") == text
    assert annotations_of(pod).get("a") == text
