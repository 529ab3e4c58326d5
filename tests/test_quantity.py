from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.errors import BadQuantity
from cardwise.quantity import LARGEST, mebibytes, whole

POWERS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("1000", 1000, id="plain text"),
        pytest.param("1k", 1000, id="the server's form of 1000"),
        pytest.param("1M", 1_000_000, id="the server's form of 1000000"),
        pytest.param("2G", 2_000_000_000, id="giga is decimal"),
        pytest.param("1e3", 1000, id="an exponent"),
        pytest.param("1E3", 1000, id="a capital exponent is not the suffix E"),
        pytest.param("1e+3", 1000, id="a signed exponent"),
        pytest.param("5000e-3", 5, id="a negative exponent that comes out whole"),
        pytest.param("3000m", 3, id="milli that comes out whole"),
        pytest.param("1.5k", 1500, id="a fraction of a thousand that comes out whole"),
        pytest.param("1.", 1, id="a point without digits after it"),
        pytest.param(".5k", 500, id="a point without digits before it"),
        pytest.param("+7", 7, id="a plus sign"),
        pytest.param("-0", 0, id="minus nothing"),
        pytest.param("0.0", 0, id="zero with a point"),
        pytest.param("007", 7, id="leading zeros"),
        pytest.param(12, 12, id="an integer"),
        pytest.param(3.0, 3, id="a float that is whole"),
        pytest.param(str(LARGEST), LARGEST, id="the largest"),
        pytest.param(LARGEST, LARGEST, id="the largest as an integer"),
    ],
)
def test_a_quantity_is_read_by_what_it_is_worth(value: object, number: int) -> None:
    read = whole(value)

    assert read == number
    assert type(read) is int


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        pytest.param("16Gi", "has the binary suffix Gi", id="a binary suffix"),
        pytest.param("0Ki", "has the binary suffix Ki", id="nothing with a binary suffix"),
        pytest.param("1500m", "is not a whole number", id="a fraction in milli"),
        pytest.param("0.5", "is not a whole number", id="a fraction"),
        pytest.param(1.5, "is not a whole number", id="a fractional float"),
        pytest.param("1n", "is not a whole number", id="a nano"),
        pytest.param("1e-999", "is not a whole number", id="next to nothing"),
        pytest.param(
            "1." + "0" * 40 + "1", "is not a whole number", id="a fraction too small for 28 digits"
        ),
        pytest.param("-1", "is negative", id="negative"),
        pytest.param(-1, "is negative", id="a negative integer"),
        pytest.param("-0.5", "is negative", id="a negative fraction"),
        pytest.param("-1e999", "is negative", id="a huge negative"),
        pytest.param(str(LARGEST + 1), "is above 2147483647", id="one above the largest"),
        pytest.param(LARGEST + 1, "is above 2147483647", id="one above, as an integer"),
        pytest.param(
            f"{LARGEST}." + "0" * 40 + "1", "is above 2147483647", id="a hair above the largest"
        ),
        pytest.param("1e999", "is above 2147483647", id="an exponent of hundreds"),
        pytest.param(1 << 100_000, "is above 2147483647", id="an integer of thousands of digits"),
        pytest.param("9E", "is above 2147483647", id="exa"),
        pytest.param("", "is not a number", id="nothing at all"),
        pytest.param("abc", "is not a number", id="a word"),
        pytest.param("1 ", "is not a number", id="a trailing blank"),
        pytest.param("1\n", "is not a number", id="a trailing line end"),
        pytest.param("1K", "is not a number", id="a capital K, which Kubernetes does not know"),
        pytest.param("1Mb", "is not a number", id="a made-up suffix"),
        pytest.param("0x10", "is not a number", id="hexadecimal"),
        pytest.param("1_000", "is not a number", id="an underscore"),
        pytest.param("١", "is not a number", id="a digit of another script"),  # noqa: RUF001
        pytest.param("1e1000", "is not a number", id="an exponent of thousands"),
        pytest.param("9" * 65, "is not a number", id="more digits than a quantity has"),
        pytest.param(".", "is not a number", id="a point alone"),
        pytest.param(float("nan"), "is not a number", id="not a number, literally"),
        pytest.param(float("inf"), "is not a number", id="infinity"),
        pytest.param(True, "is not a number", id="a truth value"),
        pytest.param(None, "is not a number", id="null"),
        pytest.param([1], "is not a number", id="a list"),
        pytest.param({}, "is not a number", id="an object"),
    ],
)
def test_what_is_no_whole_number_is_refused(value: object, fault: str) -> None:
    with pytest.raises(BadQuantity) as caught:
        whole(value)

    assert str(caught.value) == fault


@given(st.integers(0, LARGEST))
def test_every_number_survives_the_servers_form(number: int) -> None:
    assert whole(build.quantity(number)) == number
    assert whole(number) == number


@given(
    st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,40})?", fullmatch=True), st.sampled_from(sorted(POWERS))
)
def test_a_quantity_is_exact(number: str, suffix: str) -> None:
    exact = Fraction(Decimal(number)) * Fraction(10) ** POWERS[suffix]

    if exact.denominator == 1 and exact <= LARGEST:
        assert whole(number + suffix) == exact
    else:
        with pytest.raises(BadQuantity):
            whole(number + suffix)


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        pytest.param("16Gi", 16384, id="gibibytes"),
        pytest.param("1.5Gi", 1536, id="a fraction of a gibibyte"),
        pytest.param("512Mi", 512, id="mebibytes"),
        pytest.param("1536Ki", 1, id="rounded down"),
        pytest.param("16G", 15258, id="gigabytes"),
        pytest.param("17179869184", 16384, id="bytes"),
        pytest.param("1Ki", None, id="less than a MiB"),
        pytest.param("-1Gi", None, id="negative"),
        pytest.param("9999Ei", None, id="more than a card can have"),
        pytest.param("1e999", None, id="an exponent of hundreds"),
        pytest.param("many", None, id="a word"),
        pytest.param(17179869184, None, id="no text"),
    ],
)
def test_what_somebody_meant_who_wrote_bytes(value: object, mib: int | None) -> None:
    assert mebibytes(value) == mib
