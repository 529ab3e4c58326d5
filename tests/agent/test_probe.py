import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwise.agent.probe import failed, probe
from cardwise.model import Card, Link, NodeOverrides
from cardwise.ports import CardReading, Readings
from cardwise.quantity import LARGEST
from cardwise.settings import Agent
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.gpunodes_written import document_of

T4 = {"name": "Tesla T4", "memory_mib": 15360}


def reading(index: int = 0, **fields: object) -> CardReading:
    return CardReading(**{"uuid": f"GPU-{index}", "index": index, **T4, **fields})  # type: ignore[arg-type]


def offered(
    card: CardReading, agent: Agent | None = None, overrides: NodeOverrides | None = None
) -> Card:
    report = probe("n1", Readings(cards=(card,)), agent or Agent(), overrides or NodeOverrides())
    return report.node.cards[0]


def test_a_card_is_offered_with_the_agents_settings() -> None:
    card = reading(2, numa=1, pci_bus_id="0000:3B:00.0")

    assert offered(card) == Card(
        uuid="GPU-2",
        index=2,
        model="NVIDIA-Tesla T4",
        memory_mib=15360,
        cores=100,
        slots=10,
        numa=1,
        mode="hami-core",
        healthy=True,
        pci_bus_id="0000:3B:00.0",
    )


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("Tesla T4", "NVIDIA-Tesla T4", id="the vendor goes before"),
        pytest.param("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", id="it is there already"),
        pytest.param("NVIDIA-Tesla T4", "NVIDIA-Tesla T4", id="with a hyphen, too"),
        pytest.param("", "", id="no name"),
    ],
)
def test_the_model_begins_with_the_vendor(name: str, model: str) -> None:
    assert offered(reading(name=name)).model == model


@pytest.mark.parametrize(
    ("agent", "overrides", "want"),
    [
        pytest.param({"slotsPerCard": 4}, {}, {"slots": 4}, id="slots of the settings"),
        pytest.param(
            {"slotsPerCard": 4}, {"slots_per_card": 2}, {"slots": 2}, id="slots of the node"
        ),
        pytest.param({"memoryScaling": 1.5}, {}, {"memory_mib": 23040}, id="memory is oversold"),
        pytest.param(
            {"memoryScaling": 1.5}, {"memory_scaling": 1.0}, {"memory_mib": 15360}, id="not on this"
        ),
        pytest.param({}, {"memory_scaling": 0.00006}, {"memory_mib": 0}, id="rounded down to 0"),
        pytest.param(
            {"memoryScaling": 1.15}, {}, {"memory_mib": 17664}, id="a factor is what was written"
        ),
        pytest.param({"coreScaling": 1.29}, {}, {"cores": 129}, id="so it is with cores"),
        pytest.param({"coreScaling": 2.0}, {"core_scaling": 0.5}, {"cores": 50}, id="node's cores"),
        pytest.param({}, {"mode": "mps"}, {"mode": "mps"}, id="mode of the node"),
        pytest.param(
            {"memoryScaling": 2.0, "coreScaling": 2.0},
            {"mode": "mig"},
            {"mode": "mig", "memory_mib": 15360, "cores": 100},
            id="mig is not scaled",
        ),
        pytest.param({}, {"memory_mib": 999}, {"memory_mib": 15360}, id="the driver knows better"),
    ],
)
def test_settings_and_overrides(
    agent: dict[str, float], overrides: dict[str, object], want: dict[str, object]
) -> None:
    card = offered(reading(), Agent(**agent), NodeOverrides(**overrides))  # type: ignore[arg-type]

    assert {key: getattr(card, key) for key in want} == want


@pytest.mark.parametrize(
    ("card", "overrides", "want"),
    [
        pytest.param(reading(slots=4), {}, (4, 100, "hami-core"), id="slots go before the setting"),
        pytest.param(
            reading(slots=4),
            {"slots_per_card": 7},
            (7, 100, "hami-core"),
            id="an override goes before its slots",
        ),
        pytest.param(
            reading(cores=50), {}, (10, 50, "hami-core"), id="cores go before the setting"
        ),
        pytest.param(
            reading(cores=50),
            {"core_scaling": 2.0},
            (10, 200, "hami-core"),
            id="an override goes before its cores",
        ),
        pytest.param(reading(mode="mps"), {}, (10, 100, "mps"), id="a mode of its own"),
        pytest.param(
            reading(mode="mps"),
            {"mode": "hami-core"},
            (10, 100, "hami-core"),
            id="an override goes before its mode",
        ),
    ],
)
def test_a_profile_may_say_more_than_a_driver(
    card: CardReading, overrides: dict[str, object], want: tuple[int, int, str]
) -> None:
    got = offered(card, overrides=NodeOverrides(**overrides))  # type: ignore[arg-type]

    assert (got.slots, got.cores, got.mode) == want


def test_a_card_that_is_split_by_mig_is_never_offered_as_a_whole() -> None:
    card = offered(reading(mig=True), overrides=NodeOverrides(mode="hami-core"))

    assert card.mode == "mig"


def test_a_card_of_unknown_memory_is_closed_and_says_what_to_do() -> None:
    report = probe(
        "n1", Readings(cards=(reading(memory_mib=None), reading(1))), Agent(), NodeOverrides()
    )

    assert [card.healthy for card in report.node.cards] == [False, True]
    assert "set spec.memoryMiB" in report.node.cards[0].unhealthy_reason
    ready = report.conditions[0]
    assert (ready.type, ready.holds, ready.reason) == ("Ready", True, "CardsUnhealthy")
    assert ready.message.startswith("1 of 2 cards can be used; card 0: the driver can't tell its")


def test_an_override_makes_such_a_card_usable() -> None:
    overrides = NodeOverrides(memory_mib=131072, memory_scaling=2.0)

    card = offered(reading(memory_mib=None), overrides=overrides)

    assert (card.healthy, card.memory_mib) == (True, 262144)


def test_a_card_in_trouble_stays_listed_as_unhealthy() -> None:
    card = offered(reading(trouble="NVML says: GPU is lost", memory_mib=None))

    assert (card.healthy, card.unhealthy_reason) == (False, "NVML says: GPU is lost")


def test_links_to_cards_that_are_not_there_are_left_out() -> None:
    readings = Readings(
        cards=(reading(0), reading(2)),
        links=(Link(first=1, second=2, nvlinks=1), Link(first=0, second=2, nvlinks=2)),
    )

    report = probe("n1", readings, Agent(), NodeOverrides())

    assert report.node.links == (Link(first=0, second=2, nvlinks=2),)


@pytest.mark.parametrize(
    ("readings", "want"),
    [
        pytest.param(
            Readings(cards=(reading(),), links=()),
            [("Ready", True, "CardsReported"), ("TopologyKnown", True, "LinksReported")],
            id="all is well",
        ),
        pytest.param(
            Readings(cards=(reading(),)),
            [("Ready", True, "CardsReported"), ("TopologyKnown", False, "NoLinkData")],
            id="no link data",
        ),
        pytest.param(
            Readings(links=()),
            [("Ready", False, "NoCards"), ("TopologyKnown", True, "LinksReported")],
            id="no card",
        ),
        pytest.param(
            Readings(cards=(reading(),), links=(), troubles=("card 1 can't be read: lost",)),
            [("Ready", True, "CardsUnhealthy"), ("TopologyKnown", True, "LinksReported")],
            id="a card that can't be read",
        ),
    ],
)
def test_conditions(readings: Readings, want: list[tuple[str, bool, str]]) -> None:
    report = probe("n1", readings, Agent(), NodeOverrides())

    assert [(each.type, each.holds, each.reason) for each in report.conditions] == want


def test_links_that_two_cards_tell_differently_are_told_of() -> None:
    readings = Readings(cards=(reading(), reading(1)), links=(), doubts=("they differ",))

    topology = probe("n1", readings, Agent(), NodeOverrides()).conditions[1]

    assert (topology.type, topology.holds, topology.reason) == (
        "TopologyKnown",
        True,
        "LinksDoubtful",
    )
    assert topology.message == "0 of 0 pairs are joined by NVLink; they differ"


def test_a_driver_that_fails_offers_no_card_and_says_why() -> None:
    report = failed("n1", "NVML says: Unknown Error")

    assert report.node.cards == ()
    assert [(each.type, each.holds) for each in report.conditions] == [
        ("Ready", False),
        ("TopologyKnown", False),
    ]
    assert report.conditions[0].message == "NVML says: Unknown Error"


readings_of_cards = st.builds(
    CardReading,
    uuid=st.uuids().map(lambda uuid: f"GPU-{uuid}"),
    index=st.integers(0, 63),
    name=st.sampled_from(["", "Tesla T4", "NVIDIA L40S"]),
    memory_mib=st.none() | st.integers(0, LARGEST),
    numa=st.none() | st.integers(0, 7),
    mig=st.booleans(),
    trouble=st.sampled_from(["", "Xid 79", "x" * 5000]),
)
FACTORS = st.floats(0, 100, exclude_min=True)


@given(
    cards=st.lists(readings_of_cards, max_size=4, unique_by=lambda card: card.index),
    agent=st.builds(Agent, memoryScaling=FACTORS, coreScaling=FACTORS),
    overrides=st.builds(
        NodeOverrides,
        memory_scaling=st.none() | FACTORS,
        core_scaling=st.none() | FACTORS,
        memory_mib=st.none() | st.integers(1, LARGEST),
    ),
)
def test_every_report_is_a_gpunode_that_can_be_read_back(
    cards: list[CardReading], agent: Agent, overrides: NodeOverrides
) -> None:
    report = probe("n1", Readings(cards=tuple(cards)), agent, overrides)

    assert gpunode_of(document_of(report.node, conditions=report.conditions)) == report.node
    assert all(len(each.message) <= 1024 for each in report.conditions)
    assert all(len(card.unhealthy_reason) <= 1024 for card in report.node.cards)
