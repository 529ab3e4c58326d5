import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.errors import BadAllocation
from cardwise.model import Share
from cardwise.quantity import LARGEST
from cardwise.wire.allocation import UUID, decode, encode

A = Share("GPU-a", 3000, 30)
B = Share("GPU-b", 1000, 0)

amounts = st.integers(0, LARGEST)
uuids = st.from_regex(UUID, fullmatch=True)
containers = st.lists(
    st.lists(st.builds(Share, uuids, amounts, amounts), max_size=4).map(tuple), max_size=5
).map(tuple)


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        pytest.param([], "", id="no container"),
        pytest.param([[B]], "GPU-b,NVIDIA,1000,0:;", id="one card"),
        pytest.param([[B, A]], "GPU-b,NVIDIA,1000,0:GPU-a,NVIDIA,3000,30:;", id="ranked order"),
        pytest.param([[A], []], "GPU-a,NVIDIA,3000,30:;;", id="the second without"),
        pytest.param([[], [B]], ";GPU-b,NVIDIA,1000,0:;", id="the first without"),
        pytest.param([[], []], ";;", id="two without"),
    ],
)
def test_the_text_is_the_contracts(shares: list[list[Share]], text: str) -> None:
    assert encode(shares) == text
    assert decode(text) == tuple(tuple(segment) for segment in shares)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        pytest.param(" ", (), id="a blank text is empty"),
        pytest.param("GPU-a,NVIDIA,3000,30:", ((A,),), id="no final semicolon"),
        pytest.param("GPU-a,NVIDIA,3000,30", ((A,),), id="no final colon either"),
        pytest.param("GPU-a,NVIDIA,3000,30:;;;", ((A,), (), ()), id="more empty segments"),
        pytest.param("GPU-a,NVIDIA,3000,30:; ;", ((A,), ()), id="a blank segment"),
        pytest.param("GPU-a,NVIDIA,3000,30:; ", ((A,),), id="a blank after the end"),
        pytest.param("GPU-a,NVIDIA,3000,30: :;", ((A,),), id="a blank piece"),
        pytest.param("GPU-a,NVIDIA,3000,30,x,y:;", ((A,),), id="more fields"),
        pytest.param("GPU-a,,3000,30:;", ((A,),), id="no word of a device"),
        pytest.param("GPU-a,NVIDIA,03000,030:;", ((A,),), id="leading zeros"),
        pytest.param(
            f"GPU-a,NVIDIA,{LARGEST},{LARGEST}:;",
            ((Share("GPU-a", LARGEST, LARGEST),),),
            id="the largest numbers",
        ),
    ],
)
def test_reading_is_lenient_where_hamis_is(text: str, shares: object) -> None:
    assert decode(text) == shares


@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        pytest.param("GPU-a", "fewer than 4 fields", id="a UUID alone"),
        pytest.param("GPU-a,NVIDIA,3000", "fewer than 4 fields", id="three fields"),
        pytest.param(",NVIDIA,3000,30", "names no card", id="no UUID"),
        pytest.param(" ,NVIDIA,3000,30", "names no card", id="a blank UUID"),
        pytest.param(" GPU-b,NVIDIA,3000,30", "a card's UUID", id="a blank before the UUID"),
        pytest.param("GPU-b ,NVIDIA,3000,30", "a card's UUID", id="a blank after it"),
        pytest.param("\uff27PU-b,NVIDIA,3000,30", "a card's UUID", id="a wide letter"),
        pytest.param(f"{'G' * 129},NVIDIA,3000,30", "a card's UUID", id="longer than any UUID"),
        pytest.param("GPU-a,NVIDIA,3Gi,30", "has MiB", id="a suffix"),
        pytest.param("GPU-a,NVIDIA,,30", "has MiB", id="no memory"),
        pytest.param("GPU-a,NVIDIA,-1,30", "has MiB", id="negative memory"),
        pytest.param("GPU-a,NVIDIA,+1,30", "has MiB", id="a sign"),
        pytest.param("GPU-a,NVIDIA, 1,30", "has MiB", id="a blank before the number"),
        pytest.param("GPU-a,NVIDIA,1.0,30", "has MiB", id="a point"),
        pytest.param("GPU-a,NVIDIA,²,30", "has MiB", id="a digit that is no number"),
        pytest.param(f"GPU-a,NVIDIA,{LARGEST + 1},30", "has MiB", id="above 32 bits"),
        pytest.param(f"GPU-a,NVIDIA,{'9' * 5000},30", "has MiB", id="thousands of digits"),
        pytest.param("GPU-a,NVIDIA,3000,many", "has cores", id="a word for cores"),
        pytest.param(f"GPU-a,NVIDIA,3000,{LARGEST + 1}", "has cores", id="cores above 32 bits"),
    ],
)
@pytest.mark.parametrize("frame", ["{}:;", "{}", "GPU-b,NVIDIA,1000,0:{}:;;", ";{}:;"])
def test_what_cannot_be_read_is_named(piece: str, fault: str, frame: str) -> None:
    with pytest.raises(BadAllocation) as caught:
        decode(frame.format(piece))

    sentence = str(caught.value)
    assert fault in sentence
    assert sentence.startswith(f'"{piece}"'[:79])
    assert len(sentence) < 240


@given(containers)
def test_what_is_written_is_read_back(shares: tuple[tuple[Share, ...], ...]) -> None:
    assert decode(encode(shares)) == shares


@given(containers, st.integers(0, 3))
def test_more_empty_segments_are_empty_containers(
    shares: tuple[tuple[Share, ...], ...], more: int
) -> None:
    assert decode(encode(shares) + ";" * more) == shares + ((),) * more


@given(st.text(st.sampled_from("GPU-a,:; 019\u00b2")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        shares = decode(text)
    except BadAllocation as error:
        assert str(error)  # noqa: PT017 - either outcome is right, a traceback is not
    else:
        assert decode(encode(shares)) == shares
