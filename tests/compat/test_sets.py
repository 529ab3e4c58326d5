"""Links and cards in mig mode: HAMi's cases.

HAMi's scores of pairs are written as links here: 100 for an NVLink, and a path for what is less.
"""

from typing import Any

import pytest

import build
from cardwise.agent.joins import SWITCH, Joins
from cardwise.engine.place import place
from cardwise.engine.topology import Links
from cardwise.model import Link
from cardwise.names import TopologyMode
from cardwise.ports import CardReading
from simulated import answer, node, where
from states import LinkRow, ask, card, link, sight, signature, state

PREFERRED = TopologyMode.PREFERRED
BUSES = ("0000:00:04.0", "0000:00:05.0")


def linked(count: int, rows: list[LinkRow], asked: int) -> list[int]:
    """The cards that topology-aware takes of so many, in the order of the index."""
    question = signature(ask(asked), policy="topology-aware", mode=PREFERRED)
    outcome = place(question, state(*(card(index) for index in range(count)), links=rows))
    assert outcome.picks is not None
    return sorted(pick.position for pick in outcome.picks[0])


def pair(nvlinks: int, path: str = "") -> int:
    """The score of two cards that are joined so."""
    return Links([link(0, 1, nvlinks, path)]).pair(sight(card(0)), sight(card(1))).score


@pytest.mark.parametrize(
    ("nvlinks", "path", "score"),
    [
        pytest.param(1, "", 100, id="T1: one NVLink"),
        pytest.param(2, "", 200, id="T1: two"),
        pytest.param(0, "SYS", 10, id="link score: across sockets"),
        pytest.param(0, "NODE", 20, id="link score: in one socket"),
        pytest.param(0, "PHB", 30, id="link score: one host bridge"),
        pytest.param(0, "PXB", 40, id="link score: several switches"),
        pytest.param(0, "PIX", 50, id="link score: one switch"),
        pytest.param(0, "BOARD", 60, id="link score: one board"),
        pytest.param(4, "NODE", 420, id="link score: in one socket, and four NVLinks"),
        pytest.param(18, "", 1800, id="link score: eighteen NVLinks"),
    ],
)
def test_the_score_of_a_pair(nvlinks: int, path: str, score: int) -> None:
    assert pair(nvlinks, path) == score


def nvlinks(first: list[str], second: list[str]) -> tuple[int, int]:
    """What two cards that tell of such ends are joined by, and how many doubts there are."""
    cards = [
        CardReading(index=index, uuid=f"GPU-{index}", pci_bus_id=bus)
        for index, bus in enumerate(BUSES)
    ]
    links, doubts = Joins().links(cards, {0: first, 1: second}, lambda _a, _b: "SYS")
    assert links is not None
    (joined,) = links
    assert isinstance(joined, Link)
    return joined.nvlinks, len(doubts)


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param([BUSES[1]] * 4, [BUSES[0]] * 4, (4, 0), id="T2: four straight ones"),
        pytest.param([BUSES[1]] * 18, [BUSES[0]] * 18, (18, 0), id="T2: eighteen straight ones"),
        pytest.param([BUSES[1]], [], (0, 1), id="T1: only one side tells of it"),
        pytest.param([SWITCH] * 18, [SWITCH] * 18, (18, 0), id="T2: behind a switch, 18 and 18"),
        pytest.param([SWITCH] * 18, [SWITCH] * 4, (4, 0), id="T2: 18 and 4"),
        pytest.param([SWITCH] * 4, [SWITCH] * 18, (4, 0), id="T2: 4 and 18"),
        pytest.param([SWITCH] * 18, [], (0, 0), id="T2: 18 and none"),
        pytest.param([], [], (0, 0), id="T2: none"),
    ],
)
def test_how_two_cards_are_joined(first: list[str], second: list[str], want: Any) -> None:
    assert nvlinks(first, second) == want


THREE: list[LinkRow] = [(0, 1, 1), (0, 2, 2), (1, 2, 1, "PIX")]
"""100, 200 and 150."""
SIX: list[LinkRow] = [
    (a, b, 1 if (a, b) in {(0, 5), (2, 5)} else 0, "" if (a, b) in {(0, 5), (2, 5)} else "SYS")
    for a in range(6)
    for b in range(a + 1, 6)
]
"""The last one well joined to the first and the third."""
FIFTH_ALONE: list[LinkRow] = [
    (a, b, 0, "SYS") if b == 5 else (a, b, 1) for a in range(6) for b in range(a + 1, 6)
]


@pytest.mark.parametrize(
    ("count", "rows", "asked", "want"),
    [
        pytest.param(3, THREE, 1, [1], id="T3, link choice: one card, the loosest"),
        pytest.param(3, THREE, 2, [0, 2], id="T3, link choice: two cards, the best pair"),
        pytest.param(3, THREE, 3, [0, 1, 2], id="link choice: all there are"),
        pytest.param(6, SIX, 3, [0, 2, 5], id="T4: the best three of six"),
        pytest.param(6, FIFTH_ALONE, 1, [5], id="T4: of six the loosest one"),
        pytest.param(3, [], 2, [0, 1], id="T5: no scores, the smallest indexes"),
        pytest.param(
            3,
            [(0, 1, 0, "SYS"), (0, 2, 0, "NODE"), (1, 2, 0, "PHB")],
            1,
            [0],
            id="T5: the order of scores decides, one card",
        ),
        pytest.param(
            3,
            [(0, 1, 0, "SYS"), (0, 2, 0, "NODE"), (1, 2, 0, "PHB")],
            2,
            [1, 2],
            id="T5: the order of scores decides, two cards",
        ),
    ],
)
def test_the_cards_that_links_choose(
    count: int, rows: list[LinkRow], asked: int, want: list[int]
) -> None:
    assert linked(count, rows, asked) == want


def test_topology_aware_insists_on_nvlink_unless_a_pod_or_the_cluster_prefers_it() -> None:
    """link choice: HAMi takes the best set whatever its links; here that is a setting."""
    pods = [
        build.pod(name, gpus=2, gpumem=1, policy="topology-aware", topology=mode)
        for name, mode in (("insists", None), ("prefers", "preferred"))
    ]

    got = answer(node(cards=2, links=[(0, 1, 0, "PIX")]), *pods)

    assert where(got["default/insists"]) == "CardTopologyNotSatisfied"
    assert where(got["default/prefers"]) == [[0, 1]]


@pytest.mark.parametrize(
    ("pod", "cards"),
    [
        pytest.param({"gpumem": 10000}, 1, id="M1: 10000 MiB"),
        pytest.param({"gpumem": 5000}, 1, id="M2: 5000 MiB"),
        pytest.param({"percent": 25}, 1, id="M3: a quarter of its memory"),
        pytest.param({"gpus": 2, "gpumem": 5000}, 2, id="M4: two of them"),
        pytest.param(
            {"gpumem": 1, "annotations": {"nvidia.com/vgpu-mode": "mig"}},
            1,
            id="M5: asked for by its mode",
        ),
    ],
)
def test_cards_in_mig_mode_are_not_placed_and_the_pod_is_told(
    pod: dict[str, Any], cards: int
) -> None:
    shown = [build.card(index, model="NVIDIA A100", mode="mig") for index in range(cards)]

    got = answer(build.gpunode("n1", shown), build.pod("p", **pod))["default/p"]

    assert got["reason"] == "CardTypeMismatch"
    assert "mig mode are not placed yet" in got["message"]


def test_more_cards_than_the_node_has_in_mig_mode() -> None:
    """M4: HAMi may take one card of that mode twice; here each card is another one."""
    shown = [build.card(0, mode="mig")]

    got = answer(build.gpunode("n1", shown), build.pod("p", gpus=2, gpumem=1))["default/p"]

    assert got["reason"] == "NodeInsufficientDevice"
