"""What the proofs at scale are made of, without a cluster."""

import json
import math
from pathlib import Path

import pytest

from bench.scale import Figures, placed
from bench.scale_bench import document
from cardwise.wire.pods import booking_of


@pytest.mark.parametrize(
    ("figures", "want"),
    [
        pytest.param({"s": 59.9, "MB": 1.0}, [], id="all below"),
        pytest.param({"s": 60.0, "MB": 1.0}, ["s"], id="a bar is not to be reached"),
        pytest.param({"MB": math.nan}, ["s", "MB"], id="what was not measured is no success"),
    ],
)
def test_figures_above_their_bars_are_told(figures: dict, want: list[str]) -> None:
    assert Figures("x", figures, {"s": 60.0, "MB": 600.0}).missed() == want


def test_pods_fill_node_after_node_and_then_the_next_cards() -> None:
    # Red: a Pod's card is not one of its node's, or what is written can't be read as a booking.
    bookings = [booking_of(placed(number, 3)) for number in range(24)]

    cards = [(b.node, b.containers[0][0].uuid) for b in bookings if b is not None]
    assert len(set(cards)) == 24
    assert all(uuid.startswith(f"GPU-{node}-") for node, uuid in cards)
    assert cards[0] == ("node-00000", "GPU-node-00000-0")
    assert cards[4] == ("node-00001", "GPU-node-00001-1")


def test_proofs_that_were_not_run_stay_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    path.write_text(json.dumps({"load": {"what": "old"}, "waves": {"what": "kept"}}))

    written = document(path, {"cores": 2}, {"load": Figures("new", {"s": 1.0, "MB": math.nan})})

    assert written["waves"] == {"what": "kept"}
    assert written["load"]["what"] == "new"
    assert written["load"]["figures"] == {"s": 1.0, "MB": None}
    assert written["load"]["machine"] == {"cores": 2}
