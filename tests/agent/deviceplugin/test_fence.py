"""The fence: in what order bookings count, and which is one too many."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.agent.deviceplugin.fence import Tenant, overbooked
from cardwise.engine.usage import booking_uses
from cardwise.model import Card, ContainerKind, Share
from plugin import MIB, card, share, tenant, uid

INIT, REGULAR = ContainerKind.INIT, ContainerKind.REGULAR


def refused(*tenants: Tenant, cards: list[Card] | None = None) -> list[str]:
    """The names of the Pods that must not start."""
    cards = cards or [card(0), card(1)]
    return [
        each.pod.name for each in tenants if overbooked(each.pod.uid, tenants, cards) is not None
    ]


FULL, HALF = share(0, MIB), share(0, MIB // 2)

ROWS = [
    pytest.param([tenant("a", FULL)], [], id="alone"),
    pytest.param([tenant("a", HALF), tenant("b", HALF)], [], id="just-fits"),
    pytest.param([tenant("a", FULL), tenant("b", share(0, 1))], ["b"], id="by-uid"),
    pytest.param(
        [tenant("a", FULL, bound_at=2), tenant("b", share(0, 1), bound_at=1)],
        ["a"],
        id="by-bind-time",
    ),
    pytest.param(
        [tenant("a", FULL, bound_at=1), tenant("b", FULL, bound_at=2, started=True)],
        ["a"],
        id="started-first",
    ),
    pytest.param(
        [tenant("a", FULL), tenant("b", FULL, share(1, MIB)), tenant("c", share(1, MIB))],
        ["b"],
        id="what-is-refused-takes-no-room",
    ),
    pytest.param(
        [
            tenant("a", FULL, started=True),
            tenant("b", FULL, started=True, bound_at=2),
            tenant("c", share(0, 0), share(1, 1)),
        ],
        ["b"],
        id="what-started-takes-its-room-though-too-much",
    ),
    pytest.param([tenant("a", share(0, MIB + 1))], ["a"], id="larger-than-the-card"),
    pytest.param(
        [tenant("a", share(0, 1, 60)), tenant("b", share(0, 1, 60), bound_at=2)], ["b"], id="cores"
    ),
    pytest.param(
        [tenant("a", share(0, 1, 100)), tenant("b", share(0, 1, 1), bound_at=2)],
        ["b"],
        id="whole-card",
    ),
    pytest.param(
        [tenant("a", HALF, exclusive=True), tenant("b", share(0, 1), bound_at=2)],
        ["b"],
        id="held-exclusively",
    ),
    pytest.param(
        [tenant("a", HALF), tenant("b", share(0, 1), exclusive=True, bound_at=2)],
        ["b"],
        id="exclusive-comes-second",
    ),
    pytest.param(
        [tenant("a", HALF, exclusive=True), tenant("b", share(1, 1), bound_at=2)],
        [],
        id="exclusive-on-another-card",
    ),
    pytest.param(
        [tenant("a", FULL, FULL, kinds=(INIT, REGULAR))], [], id="init-and-regular-in-turn"
    ),
    pytest.param([tenant("a", FULL, FULL)], ["a"], id="two-regular-at-once"),
    pytest.param(
        [tenant("a", Share("GPU-gone", MIB * 9, 0))],
        [],
        id="a-card-that-is-not-there-is-not-judged",
    ),
]


@pytest.mark.parametrize(("tenants", "expected"), ROWS)
def test_which_pods_must_not_start(tenants: list[Tenant], expected: list[str]) -> None:
    for order in permutations(tenants):
        assert sorted(refused(*order)) == expected


def test_slots_count() -> None:
    rows = [tenant(f"p{number}", share(0, 1), bound_at=number) for number in range(3)]

    assert refused(*rows, cards=[card(0, slots=2)]) == ["p2"]


def test_a_whole_scaled_card_is_all_of_its_cores() -> None:
    rows = [tenant("a", share(0, 1, 100)), tenant("b", share(0, 1, 50), bound_at=2)]

    assert refused(*rows, cards=[card(0, cores=150)]) == ["b"]


def test_the_sentence_names_card_amounts_and_who_is_before() -> None:
    rows = [tenant("a", share(1, 10000), started=True), tenant("b", share(1, 10000))]

    assert overbooked(uid("b"), rows, [card(1)]) == (
        "GPU 1 (GPU-b): 10000 + 10000 MiB are booked of 15360; before it: default/a"
    )


shares = st.builds(
    share, st.integers(0, 1), st.sampled_from([0, 1, 5000, 15360]), st.sampled_from([0, 30, 100])
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Tenant]:
    """Pods that may over-book two cards, some of which started."""
    return [
        tenant(
            f"p{number}",
            *draw(st.lists(shares, min_size=1, max_size=2)),
            started=draw(st.booleans()),
            bound_at=draw(st.integers(0, 3)),
            exclusive=draw(st.sampled_from([False, False, True])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@given(crowds(), st.randoms())
def test_the_order_of_the_list_plays_no_part(crowd: list[Tenant], random: object) -> None:
    before = refused(*crowd)
    shuffled = list(crowd)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert sorted(refused(*shuffled)) == sorted(before)


@given(crowds())
def test_what_is_let_start_never_over_books_a_card(crowd: list[Tenant]) -> None:
    """Started Pods aside, which nothing can stop any more."""
    crowd = [each for each in crowd if not each.started]
    cards = [card(0, slots=3), card(1, slots=3)]
    gone = refused(*crowd, cards=cards)
    stays = [each for each in crowd if each.pod.name not in gone]

    for one in cards:
        uses = [booking_uses(each.booking, {}).get(one.uuid) for each in stays]
        there = [use for use in uses if use is not None]
        assert sum(use.slots for use in there) <= one.slots
        assert sum(use.memory_mib for use in there) <= one.memory_mib
        assert sum(use.cores for use in there) <= one.cores
        holders = [
            each for each, use in zip(stays, uses, strict=True) if use and each.booking.exclusive
        ]
        assert not holders or len(there) == 1


@given(crowds())
def test_a_pod_that_fits_beside_all_others_starts(crowd: list[Tenant]) -> None:
    """The fence refuses nobody whom the controller could have placed rightly."""
    if refused(*[Tenant(pod=t.pod, booking=t.booking, started=False, bound_at=0) for t in crowd]):
        return

    assert refused(*crowd) == []
