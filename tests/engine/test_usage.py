"""What a Pod uses of a card: docs/placement.md section 7, and cores of 100 in section 1."""

import pytest

from cardwise.engine.usage import Tally, booking_uses, cores_taken
from cardwise.model import Booking, CardUse, ContainerKind, Share
from states import INIT, REGULAR, SIDECAR

Part = tuple[ContainerKind, int, int]
"""A container's kind, MiB and cores."""


def tally(*parts: Part) -> Tally[str]:
    counted: Tally[str] = Tally()
    for kind, memory_mib, cores in parts:
        counted.add("a", kind, memory_mib, cores)
    return counted


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param([], CardUse(0, 0, 0), id="no container uses nothing"),
        pytest.param([(REGULAR, 100, 10)], CardUse(1, 100, 10), id="one regular container"),
        pytest.param(
            [(REGULAR, 100, 10), (REGULAR, 200, 20)],
            CardUse(2, 300, 30),
            id="regular containers run together and add up",
        ),
        pytest.param(
            [(INIT, 500, 50), (INIT, 300, 60)],
            CardUse(1, 500, 60),
            id="init containers run one after the other: the larger of each number, one slot",
        ),
        pytest.param(
            [(INIT, 500, 50), (REGULAR, 100, 10)],
            CardUse(1, 500, 50),
            id="a large init container decides",
        ),
        pytest.param(
            [(INIT, 100, 50), (REGULAR, 200, 10), (REGULAR, 300, 10)],
            CardUse(2, 500, 50),
            id="memory of the regular ones, cores of the init container",
        ),
        pytest.param(
            [(SIDECAR, 100, 10), (REGULAR, 200, 20)],
            CardUse(2, 300, 30),
            id="a sidecar runs beside the regular ones",
        ),
        pytest.param(
            [(SIDECAR, 100, 10), (INIT, 500, 50)],
            CardUse(1, 600, 60),
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            [(INIT, 500, 50), (SIDECAR, 100, 10)],
            CardUse(1, 500, 50),
            id="an init container is over before the sidecar after it starts",
        ),
        pytest.param(
            [
                (SIDECAR, 100, 1),
                (INIT, 500, 5),
                (SIDECAR, 200, 2),
                (INIT, 350, 9),
                (REGULAR, 50, 0),
            ],
            CardUse(3, 650, 12),
            id="each init container with the sidecars before it, against all that run at last",
        ),
    ],
)
def test_use_for_the_pods_whole_life(parts: list[Part], want: CardUse) -> None:
    """Section 7: max over init containers with earlier sidecars, and all that run at last."""
    assert tally(*parts).use("a") == want


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param([], CardUse(0, 0, 0), id="the first container sees nothing"),
        pytest.param([(INIT, 500, 50)], CardUse(0, 0, 0), id="init containers are over"),
        pytest.param([(SIDECAR, 100, 10)], CardUse(1, 100, 10), id="a sidecar is there to stay"),
        pytest.param(
            [(SIDECAR, 100, 10), (INIT, 500, 50), (REGULAR, 200, 20)],
            CardUse(2, 300, 30),
            id="sidecars and regular containers, not the init container",
        ),
    ],
)
def test_what_the_next_container_sees(parts: list[Part], want: CardUse) -> None:
    """Section 7: each sees what the earlier ones that still run took."""
    assert tally(*parts).seen("a") == want


@pytest.mark.parametrize(
    ("parts", "take", "want"),
    [
        pytest.param([], (100, 10), CardUse(0, 100, 10), id="the first part is all growth"),
        pytest.param(
            [(REGULAR, 100, 10)], (50, 5), CardUse(0, 50, 5), id="regular containers add up"
        ),
        pytest.param(
            [(INIT, 500, 50)], (100, 60), CardUse(0, 0, 10), id="room that an init container had"
        ),
        pytest.param(
            [(INIT, 500, 50), (SIDECAR, 450, 0)],
            (100, 50),
            CardUse(0, 50, 0),
            id="beyond the init container's room",
        ),
        pytest.param(
            [(INIT, 500, 50)], (500, 50), CardUse(0, 0, 0), id="exactly the init container's room"
        ),
    ],
)
def test_growth(parts: list[Part], take: tuple[int, int], want: CardUse) -> None:
    """Sections 7 and 8: what a quota has to pay for one more container."""
    assert tally(*parts).growth("a", *take) == want


@pytest.mark.parametrize("kind", [REGULAR, SIDECAR, INIT])
def test_growth_is_what_adding_the_part_really_adds(kind: ContainerKind) -> None:
    counted = tally((INIT, 500, 50), (SIDECAR, 300, 20))
    before, growth = counted.use("a"), counted.growth("a", 400, 40)

    counted.add("a", kind, 400, 40)

    after = counted.use("a")
    assert (after.memory_mib - before.memory_mib, after.cores - before.cores) == (
        growth.memory_mib,
        growth.cores,
    )


def test_cards_are_counted_apart_those_of_init_containers_first() -> None:
    counted: Tally[str] = Tally()
    counted.add("b", INIT, 100, 1)
    counted.add("a", REGULAR, 200, 2)
    counted.add("b", REGULAR, 50, 0)
    counted.add("c", SIDECAR, 300, 3)

    assert list(counted.uses().items()) == [
        ("b", CardUse(1, 100, 1)),
        ("a", CardUse(1, 200, 2)),
        ("c", CardUse(1, 300, 3)),
    ]
    assert counted.seen("d") == counted.use("d") == CardUse()


@pytest.mark.parametrize(
    ("booked", "card_cores", "want"),
    [
        pytest.param(30, 150, 30, id="a part is a part"),
        pytest.param(99, 150, 99, id="99 is still a part"),
        pytest.param(100, 150, 150, id="100 is all that a scaled-up card has"),
        pytest.param(100, 50, 50, id="100 is all that a scaled-down card has"),
        pytest.param(120, 100, 100, id="more than 100 is all, too"),
    ],
)
def test_cores_taken(booked: int, card_cores: int, want: int) -> None:
    """Section 1: a booking of 100 counts as all the card has."""
    assert cores_taken(booked, card_cores) == want


def booking(*containers: tuple[ContainerKind, list[Share]]) -> Booking:
    return Booking(
        node="n1",
        kinds=tuple(kind for kind, _ in containers),
        containers=tuple(tuple(shares) for _, shares in containers),
    )


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param(booking((REGULAR, [])), {}, id="a container without cards"),
        pytest.param(
            booking((REGULAR, [Share("a", 100, 10), Share("b", 100, 10)])),
            {"a": CardUse(1, 100, 10), "b": CardUse(1, 100, 10)},
            id="two cards of one container",
        ),
        pytest.param(
            booking((INIT, [Share("a", 500, 50)]), (REGULAR, [Share("a", 100, 10)])),
            {"a": CardUse(1, 500, 50)},
            id="kinds count as for a Pod being placed",
        ),
        pytest.param(
            booking((REGULAR, [Share("big", 100, 100)]), (REGULAR, [Share("gone", 100, 100)])),
            {"big": CardUse(1, 100, 150), "gone": CardUse(1, 100, 100)},
            id="100 is all of a known card, and 100 of an unknown one",
        ),
        pytest.param(
            booking((REGULAR, [Share("a", 100, 10), Share("b", 1, 1), Share("a", 200, 20)])),
            {"a": CardUse(1, 300, 30), "b": CardUse(1, 1, 1)},
            id="a card named twice for a container: both parts, one slot",
        ),
        pytest.param(
            booking((INIT, [Share("a", 100, 10), Share("a", 200, 20)])),
            {"a": CardUse(1, 300, 30)},
            id="likewise for an init container: both parts at the same time",
        ),
    ],
)
def test_uses_of_a_booking(held: Booking, want: dict[str, CardUse]) -> None:
    """Sections 1 and 7, for a Pod that is bound."""
    assert booking_uses(held, {"big": 150, "a": 100}) == want


def test_a_booking_whose_kinds_are_not_parallel_is_an_error() -> None:
    """A share that is left out of the count would be given away twice."""
    held = Booking(node="n1", kinds=(REGULAR,), containers=((), (Share("a", 100, 0),)))

    with pytest.raises(ValueError, match="longer"):
        booking_uses(held, {})
