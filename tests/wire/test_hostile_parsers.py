"""What users and other programs write, read twice: by the product, and by another reading.

The other readings are the oracle's, or stand here; nothing of them comes from the product. Texts
are drawn from what looks right and is not: blanks of every kind, signs, zeros in front, digits of
other scripts, separators alone.
"""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import build
import oracle_reading
from cardwise import policy
from cardwise.errors import BadAllocation, BadGPUNode, BadQuantity
from cardwise.model import InvalidRequest, QuotaBound, Share, Weights
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY, PolicyName
from cardwise.quantity import LARGEST, mebibytes, whole, worth
from cardwise.settings import Scheduling, Settings, TopologyAware
from cardwise.wire import allocation, gpunodes, quotas
from cardwise.wire.containers import containers_of
from cardwise.wire.requests import request_of
from hostile import VALUES, places, replaced

Json = dict[str, Any]
BLANKS = ["", " ", "\t", "\n", "\r\n", "\x0b", "\x1c", "\x85", "\u00a0", "\u2003", "\u3000"]
NO_BLANKS = ["\u200b", "\ufeff", "\x00", "\u2060"]
"""They look like blanks, and are none to anybody."""
DIGITS = ["0", "1", "9", "10", "007", "\u0661", "\u00b2", "\uff11", "1_0", "+1", "-1", "1.0", "1e3"]
blanks = st.sampled_from(BLANKS)


def strewn(*words: str) -> st.SearchStrategy[str]:
    """Texts of these words, separators, blanks, and what is neither."""
    separators = [",", ",,", ";", ":", "=", "==", "/"]
    pieces = st.sampled_from([*words, *separators, *BLANKS, *NO_BLANKS, *DIGITS])
    return st.lists(pieces | st.text(max_size=2), max_size=14).map("".join)


# A policy chain -----------------------------------------------------------------------------------

NAMES = [name.value for name in PolicyName]
NEAR = [
    "Mutex",
    "binpack2",
    "spread ing",
    "numa\u200b",
    "topology_aware",
    "topology-",
    "\u0441pread",
]
members = st.sampled_from([*NAMES, *NAMES, *NEAR]) | st.sampled_from(BLANKS)
chains = st.lists(st.tuples(blanks, members, blanks).map("".join), max_size=9).map(",".join)


@given(
    text=chains | strewn(*NAMES) | st.none(),
    cluster=chains,
    enabled=st.booleans(),
)
def test_a_chain_is_what_the_oracle_reads(text: str | None, cluster: str, enabled: bool) -> None:
    """Red when ``_known`` does not strip a member, keeps the last of equals, or lowers its case."""
    scheduling = Scheduling(cardPolicy=cluster, topologyAware=TopologyAware(enabled=enabled))
    want = oracle_reading.chain(text, {"topologyEnabled": enabled, "cardPolicy": cluster})

    parsed = policy.parse(text, scheduling)

    assert tuple(parsed.policy.names) == want
    assert tuple(parsed.policy.keys) == oracle_reading.sort_keys(want)
    assert parsed.policy.mutex == ("mutex" in want)
    assert parsed.policy.topology_aware == ("topology-aware" in want)
    assert policy.parse(",".join(want), scheduling).policy == parsed.policy


@given(text=chains | strewn(*NAMES))
def test_every_member_of_a_chain_is_in_force_or_told(text: str) -> None:
    """Red when ``parse`` drops an unknown name without a word."""
    off = Scheduling(topologyAware=TopologyAware(enabled=False))

    parsed = policy.parse(text, off)

    written = set(oracle_reading.members(text))
    in_force = written & {*parsed.policy.names}
    assert written == in_force | {*parsed.unknown} | {*parsed.disabled}
    assert not in_force & {*parsed.unknown, *parsed.disabled}


@given(st.text(max_size=30) | st.sampled_from(NEAR))
def test_the_nearest_name_is_a_known_one(name: str) -> None:
    near = policy.nearest(name)
    assert near is None or {*near.split(",")} <= {*NAMES}


# Weights ------------------------------------------------------------------------------------------

weight_parts = st.tuples(
    blanks,
    st.sampled_from(["slot", "core", "memory", "slot", "core", "memory", "Slot", "slots", ""]),
    blanks,
    st.sampled_from(["=", "=", "=", "=", "==", "", ":"]),
    blanks,
    st.sampled_from(DIGITS) | st.integers(0, 10**18 - 1).map(str),
    blanks,
).map("".join)
whole_weights = st.permutations(["slot", "core", "memory"]).flatmap(
    lambda keys: st.tuples(
        *(
            st.tuples(
                blanks,
                st.just(key),
                blanks,
                st.just("="),
                blanks,
                st.sampled_from([*DIGITS[:5] * 4, *DIGITS]),
            ).map("".join)
            for key in keys
        )
    ).map(",".join)
)


@given(
    whole_weights
    | st.tuples(whole_weights, weight_parts).map(",".join)
    | st.lists(weight_parts, max_size=4).map(",".join)
)
@example("slot=1,core=1,memory=1,slot=1")
@example("slot=\u0661,core=1,memory=1")
def test_weights_are_what_the_oracle_reads(text: str) -> None:
    """Red when a part's ``strip`` goes, or ``isascii`` does, or a key may stand twice."""
    request = request_of(build.pod(weights=text), Settings())

    try:
        want = oracle_reading.weights(text)
    except oracle_reading.InvalidRequestError:
        assert isinstance(request, InvalidRequest)
        assert len(request.message.splitlines()) == 1
    else:
        assert request is not None
        assert not isinstance(request, InvalidRequest), request.message
        assert request.signature.weights == Weights(**want)


# Quantities ---------------------------------------------------------------------------------------

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", 1)}
LONG = "9" * 64
good_quantities = st.tuples(
    st.sampled_from(["", "", "", "+", "-"]),
    st.sampled_from(["0", "007", "1", "10", "1000", "2147483647", "2147483648", LONG, LONG]),
    st.sampled_from(["", "", "", ".", ".0", ".5", ".0001", "." + "0" * 63 + "1"]),
    st.sampled_from(["", "", *DECIMAL, *BINARY, "e3", "E3", "e-3", "E+9", "e0", "e99"]),
).map("".join)
SPOILERS = [*DIGITS[5:], *BLANKS[1:], *NO_BLANKS, ".", "e", "e1000", "K", "ki", "%", "--", "9" * 65]


@st.composite
def spoilt_quantities(draw: st.DrawFn) -> str:
    """A quantity with something in it that may not be there."""
    text = draw(good_quantities)
    at = draw(st.integers(0, min(3, len(text))) | st.just(len(text)))
    return text[:at] + draw(st.sampled_from(SPOILERS)) + text[at:]


quantities = good_quantities | spoilt_quantities()


def exact(text: str) -> tuple[Fraction, bool] | None:
    """What a quantity is worth, and whether by a binary suffix; None: it is none."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("+", text)
    length = 0
    while length < len(rest) and rest[length] in "0123456789.":
        length += 1
    number, suffix = rest[:length], rest[length:]
    before, _, after = number.partition(".")
    if not before + after or "." in after or max(len(before), len(after)) > 64:
        return None
    amount = Fraction(int(before + after), 10 ** len(after)) * (-1 if sign == "-" else 1)
    if suffix in BINARY:
        return amount * 2 ** BINARY[suffix], True
    if suffix in DECIMAL:
        return amount * Fraction(10) ** DECIMAL[suffix], False
    power = suffix[1:].removeprefix("-") if suffix[1:2] == "-" else suffix[1:].removeprefix("+")
    if suffix[:1] not in ("e", "E") or not 1 <= len(power) <= 3:
        return None
    if not all(digit in "0123456789" for digit in power):
        return None
    return amount * Fraction(10) ** (int(power) * (-1 if suffix[1] == "-" else 1)), False


@example("1\u0663")
@example(LONG + "k")
@given(quantities)
def test_a_quantity_is_worth_what_exact_reckoning_says(text: str) -> None:
    """Red when a suffix's power is another, or the context that multiplies has 28 digits."""
    read = exact(text)

    found = worth(text)

    assert (None if found is None else Fraction(found)) == (None if read is None else read[0])
    wanted = None
    if read is not None and not read[1] and read[0].denominator == 1 and 0 <= read[0] <= LARGEST:
        wanted = int(read[0])
    if wanted is None:
        with pytest.raises(BadQuantity):
            whole(text)
    else:
        assert whole(text) == wanted


@given(st.floats() | st.integers() | st.integers(-(10**30), 10**30))
def test_a_number_of_json_is_worth_itself(value: float) -> None:
    """Red when a float goes by way of ``int``."""
    try:
        found = whole(value)
    except BadQuantity:
        assert not (value == value // 1 and 0 <= value <= LARGEST)
    else:
        assert found == value


@given(quantities)
def test_advice_in_mebibytes_is_rounded_down(text: str) -> None:
    found = mebibytes(text)

    if found is not None:
        read = exact(text)
        assert read is not None
        assert found <= read[0] / 2**20 < found + 1
        assert 1 <= found <= LARGEST


@given(st.integers(0, LARGEST), st.sampled_from(["", "k", "M"]), st.integers(0, 3))
def test_a_whole_number_is_read_back_however_it_is_spelt(
    number: int, suffix: str, zeros: int
) -> None:
    power = DECIMAL[suffix]
    assume(number * 10**power <= LARGEST)

    for text in (
        f"{number}{suffix}",
        f"+{'0' * zeros}{number}{suffix}",
        f"{number}.{'0' * zeros}{suffix}",
        f"{number}e{power}",
        f"{number}{'0' * 3}E{power - 3:+d}",
    ):
        assert whole(text) == number * 10**power, text


# An allocation text -------------------------------------------------------------------------------

shares = st.builds(
    Share,
    st.from_regex(allocation.UUID, fullmatch=True),
    st.integers(0, LARGEST),
    st.integers(0, LARGEST),
)
placements = st.lists(st.lists(shares, max_size=3).map(tuple), max_size=4).map(tuple)


amounts = st.sampled_from([*DIGITS[:5] * 3, *DIGITS, str(LARGEST), str(LARGEST + 1), "", " 1"])
pieces = st.tuples(
    st.sampled_from(["GPU-a", "GPU-b", "GPU-a", " ", "", "\u00a0", "GPU a", " GPU-a"]),
    st.sampled_from(["NVIDIA", "", "DCU"]),
    amounts,
    amounts,
    st.sampled_from(["", "", "x", "x,y"]),
).map(lambda fields: ",".join(fields).rstrip(","))
segments = st.lists(pieces | blanks, max_size=3).map(":".join)
texts = st.lists(segments, max_size=4).map(";".join)


@given(texts | strewn("GPU-a", "NVIDIA", "GPU-a,NVIDIA,1,1", "GPU-b,NVIDIA,1000,0:;", ":;"))
@example("GPU-a,NVIDIA,\u0661,1:;")
@example("\u00a0,NVIDIA,1,1:;")
@example("GPU-a,NVIDIA,1,1:;\u3000")
def test_an_allocation_is_what_the_oracle_reads(text: str) -> None:
    """Red when ``_share`` takes three fields, or ``_number`` goes without ``isascii``."""
    try:
        want = oracle_reading.segments(text)
    except oracle_reading.UnreadableAllocationError:
        with pytest.raises(BadAllocation) as caught:
            allocation.decode(text)
        assert len(str(caught.value).splitlines()) == 1
    else:
        assert allocation.decode(text) == tuple(
            tuple(Share(*card) for card in segment) for segment in want
        )


@given(st.text())
def test_any_text_is_an_allocation_or_a_sentence(text: str) -> None:
    try:
        found = allocation.decode(text)
    except BadAllocation as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is right
    else:
        assert allocation.decode(allocation.encode(found)) == found


@given(
    placed=placements,
    fields=st.lists(st.text(max_size=3).filter(lambda it: not set(it) & set(":;")), max_size=3),
    empty=st.sampled_from(["", ":", " :", ": :", "\u00a0:"]),
    end=st.sampled_from(["", " ", "\n"]),
)
def test_hamis_leniency_changes_nothing(
    placed: tuple[tuple[Share, ...], ...], fields: list[str], empty: str, end: str
) -> None:
    """More fields in a piece, empty pieces, blanks at the end."""
    text = "".join(
        "".join(
            ",".join([share.uuid, "NVIDIA", str(share.memory_mib), str(share.cores), *fields])
            + ":"
            + empty
            for share in segment
        )
        + ";"
        for segment in placed
    )

    assert allocation.decode(text + end) == placed


# Containers, GPUNodes, quotas ---------------------------------------------------------------------

container_lists = st.none() | st.lists(
    st.fixed_dictionaries(
        {},
        optional={"name": st.text(max_size=3), "restartPolicy": st.sampled_from(["Always", "x"])},
    ),
    max_size=5,
)


@given(container_lists, container_lists)
def test_containers_stand_in_the_order_of_the_text(init: Any, regular: Any) -> None:
    """Red when ``containers_of`` puts sidecars first, or regular containers before the others."""
    pod = {"spec": {"initContainers": init, "containers": regular}}

    found = [(container.kind.value, container.json) for container in containers_of(pod)]

    assert found == oracle_reading.kinds(pod)


GPUNODE = build.gpunode(
    "n1",
    [build.card(0, numaNode=0, mode="mps", pciBusId="0000:00:04.0"), build.card(1)],
    links=[build.link(0, 1, 2, "PIX")],
    cordoned=["GPU-x"],
)
GPUNODE["spec"] |= {"slotsPerCard": 4, "memoryScaling": 1.5, "coreScaling": 1.0, "mode": "mps"}
GPUNODE["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Ok"}]


@pytest.mark.parametrize("what", VALUES)
def test_a_gpunode_with_a_value_of_every_type_at_every_place(what: str) -> None:
    """Red when a ``checked`` reader lets another type through to the arithmetic behind it."""
    for at in range(len(places(GPUNODE))):
        document = replaced(GPUNODE, at, VALUES[what])
        for read in (gpunodes.gpunode_of, gpunodes.overrides_of):
            try:
                found = read(document)
            except BadGPUNode as error:
                assert len(str(error).splitlines()) == 1  # noqa: PT017 - a sentence is as good
            else:
                assert hash(found) is not None
        assert all(isinstance(each.type, str) for each in gpunodes.conditions_of(document))


QUOTA = build.quota(gpumem=4096, gpucores=200)


@pytest.mark.parametrize("what", VALUES)
def test_a_quota_with_a_value_of_every_type_at_every_place(what: str) -> None:
    for at in range(len(places(QUOTA))):
        document = replaced(QUOTA, at, VALUES[what])

        bound = quotas.bound_of(document)

        assert {type(bound.memory_mib), type(bound.cores)} <= {int, type(None)}
        for sentence in quotas.warnings_of(document):
            assert len(sentence.splitlines()) == 1


@given(quantities, quantities)
def test_a_quota_bounds_what_its_quantities_are_worth_or_says_why_not(
    memory: str, cores: str
) -> None:
    """Red when ``_bound`` makes 0 of what it can't read."""
    document = build.quota("ns")
    document["spec"]["hard"] = {QUOTA_MEMORY: memory, QUOTA_CORES: cores}
    want: list[int | None] = []
    for text in (memory, cores):
        read = exact(text)
        fits = read is not None and not read[1] and read[0].denominator == 1
        want.append(int(read[0]) if read and fits and 0 <= read[0] <= LARGEST else None)

    assert quotas.bound_of(document) == QuotaBound(memory_mib=want[0], cores=want[1])
    told = quotas.warnings_of(document)
    assert len(told) == want.count(None)
    assert json.dumps(told).isascii()
