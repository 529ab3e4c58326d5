"""A cordon that closes no card is told with what to write instead."""

import pytest

import build
from cardwise.wire.cordons import misspelt_cordon, trouble_of

CARDS = ["GPU-a", "GPU-b"]
SPEC = "spec.cordonedCards of its GPUNode names "
ANNOTATION = "the annotation hami.io/device-cordon of the Node names "
WRITE = "if that is a slip, write a UUID of its cards (GPU-a, GPU-b)"


# Red: `trouble_of` leaves out a source, or tells of a UUID that the node has.
@pytest.mark.parametrize(
    ("by_spec", "by_annotation", "misspelt", "want"),
    [
        pytest.param({"GPU-a"}, {"GPU-b"}, "", "", id="each closes a card"),
        pytest.param(
            {"gpu-a", "GPU-b"},
            set(),
            "",
            f'{SPEC}"gpu-a", which the node does not report: {WRITE}',
            id="another case in the spec",
        ),
        pytest.param(
            set(),
            {"0"},
            "",
            f'{ANNOTATION}"0", which the node does not report: {WRITE}',
            id="an index in the annotation",
        ),
        pytest.param(
            {f"x{number}" for number in range(5)},
            set(),
            "",
            f'{SPEC}"x0", "x1", "x2" and 2 more, which the node does not report: {WRITE}',
            id="many",
        ),
        pytest.param(
            set(),
            set(),
            "hami.io/devices-cordon",
            "the annotation hami.io/devices-cordon of the Node closes no card: write"
            " hami.io/device-cordon",
            id="the annotation's name",
        ),
        pytest.param(
            {"x"},
            {"y"},
            "hami.io/cordon",
            f'{SPEC}"x", which the node does not report;'
            f' {ANNOTATION}"y", which the node does not report: {WRITE};'
            " the annotation hami.io/cordon of the Node closes no card: write"
            " hami.io/device-cordon",
            id="all three",
        ),
    ],
)
def test_what_closes_no_card_is_told(
    by_spec: set[str], by_annotation: set[str], misspelt: str, want: str
) -> None:
    told = trouble_of(CARDS, by_spec=by_spec, by_annotation=by_annotation, misspelt=misspelt)

    assert told == want


def test_the_longest_trouble_fits_into_an_event() -> None:
    absent = {f"{number}{'x' * 128}" for number in range(64)}
    cards = [f"GPU-{number:036}" for number in range(64)]

    told = trouble_of(cards, by_spec=absent, by_annotation=absent, misspelt="cordon/" + "x" * 300)

    assert len(told) <= 1024
    assert "GPU-" + "0" * 35 + "3, …)" in told


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        pytest.param("hami.io/devices-cordon", True, id="a letter more"),
        pytest.param("hami.io/device-cordn", True, id="a letter less"),
        pytest.param("hami.io/Device-Cordon", True, id="another case"),
        pytest.param("hami.io/cordon", True, id="half of it"),
        pytest.param("cardwise.dev/cordonedCards", True, id="the field of the spec"),
        pytest.param("nvidia.com/device-cordon", True, id="another domain of HAMi's"),
        pytest.param("hamii.io/device-cordon", True, id="a misspelt domain"),
        pytest.param("hami.io/device-cordon", False, id="itself"),
        pytest.param("hami.io/node-nvidia-register", False, id="another of HAMi's"),
        pytest.param("hami.io/mutex.lock", False, id="HAMi's lock"),
        pytest.param("example.com/cordoned-by", False, id="somebody else's cordon"),
        pytest.param("hami.io/" + "device-" * 5000, False, id="a long one"),
    ],
)
def test_an_annotation_that_was_meant_for_the_cordon(key: str, meant: bool) -> None:
    node = build.node_object("n1", annotations={key: "GPU-a", "a": "b"})

    assert misspelt_cordon(node) == (key if meant else "")
