from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.errors import BadGPUNode
from cardwise.model import Card, CardUse, Condition, GPUNode, Link, NodeOverrides
from cardwise.names import LINK_PATHS, MODES
from cardwise.quantity import LARGEST
from cardwise.wire.gpunodes import (
    MOST_LINKS,
    conditions_of,
    cordoned_by_annotation,
    gpunode_of,
    offers_cards,
    overrides_of,
)
from cardwise.wire.gpunodes_written import document_of, report_of, usage_of

UUIDS = st.text(st.sampled_from("GPU-abc0/._"), min_size=1, max_size=8)
SIZES = st.integers(0, LARGEST)


@st.composite
def gpunodes(draw: st.DrawFn) -> GPUNode:
    """A GPUNode value as gpunode_of makes them: cards and links sorted."""
    indexes = sorted(draw(st.sets(st.integers(0, 20), max_size=5)))
    uuids = draw(st.lists(UUIDS, min_size=len(indexes), max_size=len(indexes), unique=True))
    cards = tuple(
        Card(
            uuid=uuid,
            index=index,
            model=draw(st.sampled_from(["", "NVIDIA L40S"])),
            memory_mib=draw(SIZES),
            cores=draw(SIZES),
            slots=draw(SIZES),
            numa=draw(st.none() | st.integers(0, 3)),
            mode=draw(st.sampled_from(MODES)),
            healthy=draw(st.booleans()),
            unhealthy_reason=draw(st.sampled_from(["", "Xid 79: fallen off the bus"])),
            pci_bus_id=draw(st.sampled_from(["", "0000:00:04.0"])),
        )
        for index, uuid in zip(indexes, uuids, strict=True)
    )
    pairs = draw(
        st.none()
        | st.sets(
            st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(lambda pair: pair[0] < pair[1])
        )
    )
    links = pairs and tuple(
        Link(
            first=first,
            second=second,
            nvlinks=draw(st.integers(0, 64)),
            path=draw(st.sampled_from(["", *LINK_PATHS])),
        )
        for first, second in sorted(pairs)
    )
    return GPUNode(
        name="n1",
        cards=cards,
        links=() if pairs == set() else links,
        cordoned=frozenset(draw(st.sets(UUIDS))),
        reported_at=draw(st.sampled_from(["", build.REPORTED_AT])),
    )


# Reading ------------------------------------------------------------------------------------------


def test_a_card_of_three_fields_gets_the_defaults() -> None:
    node = gpunode_of(
        {
            "metadata": {"name": "n1"},
            "status": {"cards": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 15360}]},
        }
    )

    assert node == GPUNode(
        name="n1",
        cards=(
            Card(
                uuid="GPU-a",
                index=0,
                model="",
                memory_mib=15360,
                cores=100,
                slots=10,
                numa=None,
                mode="hami-core",
                healthy=True,
            ),
        ),
        links=None,
    )


def test_every_field_is_read() -> None:
    document = {
        "metadata": {"name": "n1"},
        "spec": {"cordonedCards": ["GPU-b"]},
        "status": {
            "reportedAt": "2026-11-29T12:00:00Z",
            "cards": [
                {
                    "uuid": "GPU-a",
                    "index": 3,
                    "model": "NVIDIA-Tesla T4",
                    "memoryMiB": 23040,
                    "cores": 150,
                    "slots": 4,
                    "numaNode": 1,
                    "mode": "mps",
                    "healthy": False,
                    "unhealthyReason": "Xid 79: fallen off the bus",
                    "pciBusId": "0000:00:04.0",
                }
            ],
            "links": [{"between": [4, 3], "nvlinks": 2, "path": "PIX"}],
        },
    }

    assert gpunode_of(document) == GPUNode(
        name="n1",
        cards=(
            Card(
                uuid="GPU-a",
                index=3,
                model="NVIDIA-Tesla T4",
                memory_mib=23040,
                cores=150,
                slots=4,
                numa=1,
                mode="mps",
                healthy=False,
                unhealthy_reason="Xid 79: fallen off the bus",
                pci_bus_id="0000:00:04.0",
            ),
        ),
        links=(Link(first=3, second=4, nvlinks=2, path="PIX"),),
        cordoned=frozenset({"GPU-b"}),
        reported_at="2026-11-29T12:00:00Z",
    )


def test_cards_and_links_are_sorted_whatever_their_order() -> None:
    node = gpunode_of(
        build.gpunode(
            cards=[build.card(2), build.card(0), build.card(1)],
            links=[(2, 1), (1, 0), (0, 2)],
        )
    )

    assert [card.index for card in node.cards] == [0, 1, 2]
    assert [(link.first, link.second) for link in node.links or ()] == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("links", "read"),
    [
        pytest.param(None, None, id="no list is not known"),
        pytest.param([], (), id="an empty list is known"),
        pytest.param(
            [{"between": [0, 1]}], (Link(first=0, second=1),), id="no NVLink, path not known"
        ),
    ],
)
def test_links_may_be_unknown(links: Any, read: Any) -> None:
    assert gpunode_of(build.gpunode(status={"links": links})).links == read


def test_a_node_without_a_report_has_no_cards() -> None:
    assert gpunode_of({"metadata": {"name": "n1"}}) == GPUNode(name="n1")


def test_a_time_that_yaml_took_for_a_date_is_only_text() -> None:
    at = datetime(2026, 11, 29, 12, tzinfo=UTC)

    assert gpunode_of(build.gpunode(status={"reportedAt": at})).reported_at == str(at)


def of_card(**fields: Any) -> dict[str, Any]:
    return build.gpunode(cards=[{"uuid": "GPU-a", "index": 0, "memoryMiB": 1, **fields}])


def of_link(**fields: Any) -> dict[str, Any]:
    return build.gpunode(links=[{"between": [0, 1], **fields}])


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        pytest.param({}, "a GPUNode has no metadata.name", id="no name"),
        pytest.param([], "a GPUNode has no metadata.name", id="a list for the object"),
        pytest.param(
            {"metadata": {"name": 1}}, "a GPUNode has no metadata.name", id="numeric name"
        ),
        pytest.param(
            {"metadata": {"name": "n 1"}},
            'metadata.name is "n 1": write the name of its Node',
            id="a name that no Node can have",
        ),
        pytest.param(
            build.gpunode(status={"cards": {}}),
            "status.cards is an object",
            id="an object for the cards",
        ),
        pytest.param(build.gpunode(cards=["x"]), 'status.cards[0] is "x"', id="a text for a card"),
        pytest.param(of_card(uuid=None), "status.cards[0].uuid is missing", id="no uuid"),
        pytest.param(of_card(uuid=""), 'status.cards[0].uuid is ""', id="empty uuid"),
        pytest.param(of_card(uuid=7), "status.cards[0].uuid is 7", id="numeric uuid"),
        pytest.param(of_card(uuid="GPU-a:b"), '"GPU-a:b": write a card', id="a colon in the uuid"),
        pytest.param(of_card(uuid="GPU-a,b"), '"GPU-a,b": write a card', id="a comma in the uuid"),
        pytest.param(
            of_card(uuid="GPU-a;"), '"GPU-a;": write a card', id="a semicolon in the uuid"
        ),
        pytest.param(
            of_card(uuid="GPU-a\n"), '"GPU-a\\n": write a card', id="a line end in the uuid"
        ),
        pytest.param(of_card(index=None), "status.cards[0].index is missing", id="no index"),
        pytest.param(of_card(index=-1), "status.cards[0].index is -1: write", id="negative index"),
        pytest.param(of_card(index=True), "status.cards[0].index is true: write", id="true index"),
        pytest.param(of_card(memoryMiB=None), "memoryMiB is missing: write", id="no memory"),
        pytest.param(of_card(memoryMiB=-1), "memoryMiB is -1: write", id="negative memory"),
        pytest.param(of_card(memoryMiB="1k"), 'memoryMiB is "1k": write', id="memory as text"),
        pytest.param(of_card(memoryMiB=1.5), "memoryMiB is 1.5: write", id="half a MiB"),
        pytest.param(of_card(memoryMiB=2**31), "2147483648: write", id="memory beyond 31 bits"),
        pytest.param(
            of_card(memoryMiB=1 << 20_000), "is a number of many digits", id="huge memory"
        ),
        pytest.param(of_card(cores=-1), "cores is -1: write", id="negative cores"),
        pytest.param(of_card(slots=-1), "slots is -1: write", id="negative slots"),
        pytest.param(of_card(numaNode=-1), "numaNode is -1: write", id="negative NUMA node"),
        pytest.param(of_card(mode="vgpu"), "write one of hami-core, mig, mps", id="unknown mode"),
        pytest.param(
            of_card(healthy="no"), 'healthy is "no": write true or false', id="a text for healthy"
        ),
        pytest.param(of_card(model=["T4"]), "model is a list: write text", id="list of models"),
        pytest.param(
            build.gpunode(cards=[build.card(0), build.card(1, uuid="GPU-a")]),
            "status.cards[1].uuid is GPU-a again",
            id="the same uuid twice",
        ),
        pytest.param(
            build.gpunode(cards=[build.card(0), {**build.card(1), "index": 0}]),
            "status.cards[1].index is 0 again",
            id="the same index twice",
        ),
        pytest.param(
            build.gpunode(cards=65), "status.cards lists 65 cards: write at most 64", id="65 cards"
        ),
        pytest.param(of_link(between=None), "between has 0 members: write", id="between nothing"),
        pytest.param(of_link(between=[0]), "between has 1 members: write", id="one end"),
        pytest.param(of_link(between=[0, 1, 2]), "between has 3 members: write", id="three ends"),
        pytest.param(of_link(between=[1, 1]), "names the card 1 twice", id="a card with itself"),
        pytest.param(of_link(between=[0, "1"]), 'between[1] is "1": write', id="an end as text"),
        pytest.param(of_link(nvlinks=65), "nvlinks is 65: write", id="65 NVLinks"),
        pytest.param(of_link(nvlinks=-1), "nvlinks is -1: write", id="negative NVLinks"),
        pytest.param(of_link(path="pix"), 'path is "pix": write one of SYS', id="unknown path"),
        pytest.param(
            build.gpunode(links=[(0, 1), (1, 0)]),
            "status.links[1].between names the cards 0 and 1 again",
            id="the same pair in both orders",
        ),
        pytest.param(
            build.gpunode(links=build.all_links(65)),
            f"write at most {MOST_LINKS}",
            id="more pairs than 64 cards have",
        ),
        pytest.param(
            build.gpunode(spec={"cordonedCards": "GPU-a"}),
            "write a list",
            id="a text for the cordon",
        ),
        pytest.param(
            build.gpunode(spec={"cordonedCards": [1]}), "cordonedCards[0] is 1", id="cordoned 1"
        ),
        pytest.param(build.gpunode(status={"reportedAt": 5}), "reportedAt is 5", id="numeric time"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(document: Any, sentence: str) -> None:
    with pytest.raises(BadGPUNode) as refused:
        gpunode_of(document)

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refusal_names_the_node() -> None:
    with pytest.raises(BadGPUNode, match=r"^GPUNode n7: status\.cards\[0\]\.index is missing"):
        gpunode_of(build.gpunode("n7", cards=[{"uuid": "GPU-a", "memoryMiB": 1}]))


@given(hostile.spoilt(st.just(build.gpunode(links=[(0, 1, 2, "PIX")], cordoned=["GPU-x"]))))
def test_anything_gives_a_gpunode_or_a_sentence(document: Any) -> None:
    sentences = []
    for read in (gpunode_of, overrides_of):
        try:
            read(document)
        except BadGPUNode as error:
            sentences.append(str(error))
    conditions_of(document)

    assert [each for each in sentences if len(each) > 300 or "\n" in each] == []


# What an administrator sets -----------------------------------------------------------------------


def test_overrides_are_read_from_the_spec() -> None:
    spec = {
        "slotsPerCard": 4,
        "memoryScaling": 1.5,
        "coreScaling": 2,
        "memoryMiB": 24576,
        "mode": "mps",
    }

    assert overrides_of(build.gpunode(spec=spec)) == NodeOverrides(
        slots_per_card=4, memory_scaling=1.5, core_scaling=2.0, memory_mib=24576, mode="mps"
    )


def test_what_the_spec_leaves_out_is_not_overridden() -> None:
    assert overrides_of({"metadata": {"name": "n1"}}) == NodeOverrides()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param({"slotsPerCard": 0}, "slotsPerCard is 0: write", id="no slot"),
        pytest.param({"memoryScaling": 0}, "memoryScaling is 0: write", id="factor 0"),
        pytest.param(
            {"memoryScaling": float("nan")}, "memoryScaling is NaN: write", id="no number"
        ),
        pytest.param({"coreScaling": 101}, "coreScaling is 101: write", id="factor 101"),
        pytest.param({"coreScaling": "2"}, 'coreScaling is "2": write', id="factor as text"),
        pytest.param({"coreScaling": True}, "coreScaling is true: write", id="factor true"),
        pytest.param({"memoryMiB": 0}, "memoryMiB is 0: write", id="no memory"),
        pytest.param({"mode": "MIG"}, 'mode is "MIG": write one of', id="unknown mode"),
        pytest.param("x", 'spec is "x": write an object', id="text for the spec"),
    ],
)
def test_overrides_without_sense_are_refused(spec: Any, sentence: str) -> None:
    document = {"metadata": {"name": "n1"}, "spec": spec}

    with pytest.raises(BadGPUNode) as refused:
        overrides_of(document)

    assert str(refused.value).startswith("GPUNode n1: spec")
    assert sentence in str(refused.value)


# Writing ------------------------------------------------------------------------------------------


def test_the_report_has_the_published_form() -> None:
    node = GPUNode(
        name="n1",
        cards=(
            Card(uuid="GPU-a", index=0, memory_mib=15360, model="NVIDIA-Tesla T4", numa=0),
            Card(
                uuid="GPU-b",
                index=1,
                memory_mib=15360,
                healthy=False,
                unhealthy_reason="Xid 79",
                pci_bus_id="0000:00:05.0",
            ),
        ),
        links=(Link(first=0, second=1, nvlinks=4, path="PHB"),),
        reported_at="2026-11-29T12:00:00Z",
    )
    ready = Condition(type="Ready", holds=False, reason="NoCards", message="none", since="then")

    assert report_of(node, driver_version="580.65.06", conditions=[ready]) == {
        "reportedAt": "2026-11-29T12:00:00Z",
        "driverVersion": "580.65.06",
        "cards": [
            {
                "uuid": "GPU-a",
                "index": 0,
                "model": "NVIDIA-Tesla T4",
                "memoryMiB": 15360,
                "cores": 100,
                "slots": 10,
                "numaNode": 0,
                "mode": "hami-core",
                "healthy": True,
            },
            {
                "uuid": "GPU-b",
                "index": 1,
                "memoryMiB": 15360,
                "cores": 100,
                "slots": 10,
                "mode": "hami-core",
                "healthy": False,
                "unhealthyReason": "Xid 79",
                "pciBusId": "0000:00:05.0",
            },
        ],
        "links": [{"between": [0, 1], "nvlinks": 4, "path": "PHB"}],
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "NoCards",
                "message": "none",
                "lastTransitionTime": "then",
            }
        ],
    }


def test_links_that_are_not_known_are_not_written() -> None:
    assert "links" not in report_of(GPUNode(name="n1"), driver_version="")
    assert report_of(GPUNode(name="n1", links=()), driver_version="")["links"] == []


@given(gpunodes())
def test_what_is_written_is_read_back(node: GPUNode) -> None:
    assert gpunode_of(document_of(node, driver_version="1")) == node


@given(gpunodes(), st.randoms(use_true_random=False))
def test_the_report_does_not_depend_on_the_order_of_cards_and_links(
    node: GPUNode, random: Any
) -> None:
    cards, links = list(node.cards), list(node.links or ())
    random.shuffle(cards)
    random.shuffle(links)
    shuffled = GPUNode(
        name="n1",
        cards=tuple(cards),
        links=None if node.links is None else tuple(links),
        reported_at=node.reported_at,
    )

    assert report_of(shuffled, driver_version="1") == report_of(node, driver_version="1")


conditions = st.builds(
    Condition,
    type=st.sampled_from(["Ready", "TopologyKnown"]),
    holds=st.booleans(),
    reason=st.just("Why"),
    message=st.sampled_from(["", "because"]),
    since=st.sampled_from(["", build.REPORTED_AT]),
)


@given(st.lists(conditions, unique_by=lambda condition: condition.type))
def test_conditions_are_read_back_in_the_order_of_their_types(written: list[Condition]) -> None:
    document = document_of(GPUNode(name="n1"), conditions=written)

    assert conditions_of(document) == tuple(sorted(written, key=lambda condition: condition.type))


# The controller's part ----------------------------------------------------------------------------


def test_usage_tells_of_every_card_and_sums_up() -> None:
    node = gpunode_of(build.gpunode(cards=[build.card(1, healthy=False), build.card(0)]))
    uses = {"GPU-a": CardUse(slots=2, memory_mib=2000, cores=30)}
    tenants = {"GPU-a": ["default/b", "default/a"]}

    assert usage_of(node, uses, tenants) == {
        "usage": [
            {
                "uuid": "GPU-a",
                "slots": 2,
                "memoryMiB": 2000,
                "cores": 30,
                "tenants": ["default/a", "default/b"],
            },
            {"uuid": "GPU-b", "slots": 0, "memoryMiB": 0, "cores": 0, "tenants": []},
        ],
        "summary": {
            "cards": 2,
            "healthy": 1,
            "model": "NVIDIA-Tesla T4",
            "slots": "2/20",
            "memory": "2000/30720",
        },
    }


def test_a_used_card_that_is_no_longer_reported_is_listed_but_not_summed() -> None:
    node = gpunode_of(build.gpunode(cards=1, prefix="GPU-"))
    uses = {"GPU-z": CardUse(slots=1, memory_mib=1000)}

    told = usage_of(node, uses, {"GPU-z": ["default/z"]})

    assert [each["uuid"] for each in told["usage"]] == ["GPU-a", "GPU-z"]
    assert told["usage"][1]["tenants"] == ["default/z"]
    assert told["summary"]["slots"] == "0/10"
    assert told["summary"]["memory"] == "0/15360"


@pytest.mark.parametrize(
    ("models", "model"),
    [
        pytest.param([], "", id="no card"),
        pytest.param(["L40S", "L40S"], "L40S", id="equal cards"),
        pytest.param(["T4", "L40S", "T4"], "T4, L40S", id="mixed cards, in the order of indexes"),
    ],
)
def test_the_summary_names_each_model_once(models: list[str], model: str) -> None:
    cards = [build.card(index, model=name) for index, name in enumerate(models)]

    told = usage_of(gpunode_of(build.gpunode(cards=cards)), {}, {})

    assert told["summary"]["model"] == model


# Nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "uuids"),
    [
        pytest.param(build.node_object(), set(), id="no annotation"),
        pytest.param(build.node_object(cordon=""), set(), id="an empty one"),
        pytest.param(build.node_object(cordon="GPU-a"), {"GPU-a"}, id="one card"),
        pytest.param(
            build.node_object(cordon=" GPU-a ,,GPU-b, "),
            {"GPU-a", "GPU-b"},
            id="blanks are dropped",
        ),
        pytest.param({"metadata": {"annotations": []}}, set(), id="a list of annotations"),
        pytest.param(build.node_object(annotations={"hami.io/device-cordon": 1}), set(), id="a 1"),
        pytest.param(None, set(), id="no object"),
    ],
)
def test_hamis_annotation_closes_cards(node: Any, uuids: set[str]) -> None:
    assert cordoned_by_annotation(node) == uuids


@pytest.mark.parametrize(
    ("node", "offers"),
    [
        pytest.param(build.node_object(gpus=4), True, id="four cards"),
        pytest.param(build.node_object(gpus=1000), True, id="a thousand, written 1k"),
        pytest.param(build.node_object(gpus=0), False, id="none any more"),
        pytest.param(build.node_object(), False, id="none ever"),
        pytest.param(build.node_object(gpus="x"), False, id="no number"),
        pytest.param({"status": {"allocatable": {"nvidia.com/gpu": []}}}, False, id="a list"),
        pytest.param({"status": 5}, False, id="a number for the status"),
        pytest.param(None, False, id="no object"),
    ],
)
def test_a_node_offers_cards_by_its_allocatable(node: Any, offers: bool) -> None:
    assert offers_cards(node) is offers


@given(hostile.spoilt(st.just(build.node_object(gpus=4, cordon="GPU-a"))))
def test_any_node_is_answered(node: Any) -> None:
    assert isinstance(offers_cards(node), bool)
    assert isinstance(cordoned_by_annotation(node), frozenset)
