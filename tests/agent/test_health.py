from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.agent.health import GOOD_LOOKS, Change, Health
from cardwise.ports import CardReading, Readings, Xid
from cardwise.settings import Agent

LOST = "NVML says: GPU is lost"
APPLICATION = Agent().ignoredXids


def look(*troubles: str, xids: Sequence[tuple[str, int]] = ()) -> Readings:
    """What a driver with these cards says; a trouble is the reason of one, empty is none."""
    return Readings(
        cards=tuple(
            CardReading(uuid=f"GPU-{index}", index=index, trouble=trouble)
            for index, trouble in enumerate(troubles)
        ),
        xids=tuple(Xid(uuid=uuid, number=number) for uuid, number in xids),
    )


def judged(*looks: Readings | str, ignored: Sequence[int] = ()) -> tuple[list[str], list[Change]]:
    """The verdict on each card after the last of these looks, and all that was news.

    A text is a look at which the driver failed as a whole.
    """
    health = Health(ignored)
    changes: list[Change] = []
    verdicts: list[str] = []
    for each in looks:
        if isinstance(each, str):
            changes += health.fail(each)
        else:
            readings, news = health.judge(each)
            changes += news
            verdicts = [card.trouble for card in readings.cards]
    return verdicts, changes


WELL = look("")
XID_79 = look("", xids=[("GPU-0", 79)])


@pytest.mark.parametrize(
    ("looks", "verdict"),
    [
        pytest.param([WELL], "", id="well from the start"),
        pytest.param([look(LOST)], LOST, id="ill from the start"),
        pytest.param([WELL, look(LOST)], LOST, id="ill at the first sign"),
        pytest.param([look(LOST), WELL], LOST, id="one good look is not enough"),
        pytest.param([look(LOST), WELL, WELL], "", id="two are"),
        pytest.param([look(LOST), WELL, look(LOST), WELL], LOST, id="two after the last bad one"),
        pytest.param([XID_79], "Xid 79: fallen off the bus", id="an Xid"),
        pytest.param([XID_79, WELL], "Xid 79: fallen off the bus", id="an Xid stays a look"),
        pytest.param([XID_79, WELL, WELL], "", id="and goes by itself"),
        pytest.param([XID_79, WELL, XID_79, WELL], "Xid 79: fallen off the bus", id="again"),
        pytest.param(
            [XID_79, look(LOST), look(LOST)],
            "Xid 79: fallen off the bus",
            id="an Xid says more than the answers after it",
        ),
        pytest.param([look(LOST), XID_79], "Xid 79: fallen off the bus", id="or than those before"),
        pytest.param(
            [look("NVML says: Unknown Error"), look(LOST)], LOST, id="the last trouble is told"
        ),
        pytest.param([look("", xids=[("GPU-0", 999)])], "Xid 999", id="an Xid nobody knows"),
        pytest.param(
            [look("", xids=[("GPU-0", 95), ("GPU-0", 48), ("GPU-0", 95)])],
            "Xid 48: uncorrectable memory error, Xid 95: uncontained memory error",
            id="several at once",
        ),
        pytest.param(
            [WELL, "no", WELL], "the driver failed: no", id="a driver that failed leaves doubt"
        ),
        pytest.param([WELL, "no", WELL, WELL], "", id="for one look"),
        pytest.param(["no", WELL], "", id="but not about cards that were not known before"),
        pytest.param([WELL, "no", look(LOST)], LOST, id="a trouble is told in place of the doubt"),
        pytest.param([look(LOST), WELL, "no", WELL], LOST, id="a failure ends a good row"),
        pytest.param([look(LOST), Readings(), WELL], "", id="a card that was away begins anew"),
    ],
)
def test_the_verdict_on_a_card(looks: list[Readings | str], verdict: str) -> None:
    verdicts, _ = judged(*looks)

    assert verdicts == [verdict]


@pytest.mark.parametrize("number", APPLICATION)
def test_errors_of_programs_are_no_illness_by_default(number: int) -> None:
    verdicts, changes = judged(look("", xids=[("GPU-0", number)]), ignored=APPLICATION)

    assert (verdicts, changes) == ([""], [])


def test_the_default_is_what_nvidias_plugin_ignores() -> None:
    assert APPLICATION == (13, 31, 43, 45, 68, 109)


def test_an_ignored_error_does_not_hide_another() -> None:
    both = look("", xids=[("GPU-0", 13), ("GPU-0", 74)])

    assert judged(both, ignored=[13])[0] == ["Xid 74: NVLink error"]


def test_an_error_that_nobody_owns_may_be_any_cards() -> None:
    assert judged(look("", "", xids=[("", 74)]))[0] == ["Xid 74: NVLink error"] * 2


def test_an_error_is_the_illness_of_its_card_alone() -> None:
    assert judged(look("", "", xids=[("GPU-1", 74)]))[0] == ["", "Xid 74: NVLink error"]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        pytest.param([WELL, WELL], [], id="no news"),
        pytest.param(
            [WELL, XID_79, look(LOST), look(LOST), WELL, WELL, WELL],
            [
                "GPU 0 (GPU-0) takes no new Pod: Xid 79: fallen off the bus",
                "GPU 0 (GPU-0) is well again: it had Xid 79: fallen off the bus",
            ],
            id="an illness is told of when it comes and when it goes",
        ),
        pytest.param(
            [look("", ""), look("")],
            ["GPU 1 (GPU-1) is listed no more; its tenants stay counted until they end"],
            id="a card goes",
        ),
        pytest.param([look(""), look("", "")], [], id="a card comes"),
        pytest.param(
            [look("", ""), "no", "no", look("", ""), look("", "")],
            [
                "the driver fails, and the node's cards are not offered: no",
                "the driver answers again",
            ],
            id="a driver that failed is told of once, not once a card",
        ),
        pytest.param(
            [WELL, "no", look(LOST)],
            [
                "the driver fails, and the node's cards are not offered: no",
                "the driver answers again",
                f"GPU 0 (GPU-0) takes no new Pod: {LOST}",
            ],
            id="a driver came back without a card",
        ),
    ],
)
def test_what_is_told(looks: list[Readings | str], told: list[str]) -> None:
    assert [str(change) for change in judged(*looks)[1]] == told


BAD = st.sampled_from([look(LOST), XID_79, "the driver"])


@given(st.lists(st.just(WELL) | BAD, max_size=12))
def test_a_card_is_well_after_two_good_looks_and_told_of_in_turns(
    looks: list[Readings | str],
) -> None:
    known = [WELL, *looks, WELL]
    rest = [each is WELL for each in known]
    bad = [number for number, good in enumerate(rest) if not good]

    verdicts, changes = judged(*known)

    assert (verdicts == [""]) == (not bad or bad[-1] < len(known) - GOOD_LOOKS)
    of_the_card = [change.event for change in changes if change.card is not None]
    assert all(one != other for one, other in pairwise(of_the_card))
