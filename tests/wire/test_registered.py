"""HAMi's annotations on a Node are read as HAMi reads them, and nothing of them can crash."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hami
from cardwise import names
from cardwise.errors import BadGPUNode
from cardwise.model import Card, Link
from cardwise.quantity import LARGEST
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.registered import (
    IN_MIG_MODE,
    gpunode_document,
    is_registered,
    registered_of,
    trouble_of,
)

Json = dict[str, Any]
WHEN = "2026-11-29T12:00:00Z"
EXAMPLE = (
    '[{"id":"GPU-bb","index":1,"count":10,"devmem":15360,"devcore":100,"type":"NVIDIA-Tesla T4",'
    '"numa":1,"mode":"hami-core","health":true},{"id":"GPU-aa","count":10,"devmem":15360,'
    '"devcore":100,"type":"NVIDIA-Tesla T4","mode":"hami-core","health":true,"custominfo":{}}]'
)


def node(register: str, score: str | None = None, *, gpus: int = 20) -> Json:
    annotations = {names.NODE_REGISTER: register}
    if score is not None:
        annotations[names.NODE_SCORE] = score
    return build.node_object("n1", gpus=gpus, annotations=annotations)


def test_the_example_is_read_in_the_order_of_the_indexes_and_what_is_left_out_is_zero() -> None:
    both: Json = {"model": "NVIDIA-Tesla T4", "memory_mib": 15360, "cores": 100, "slots": 10}

    assert registered_of(node(EXAMPLE)).cards == (
        Card(uuid="GPU-aa", index=0, numa=0, **both),
        Card(uuid="GPU-bb", index=1, numa=1, **both),
    )


def test_a_card_that_leaves_out_its_health_is_ill() -> None:
    (card,) = registered_of(node(json.dumps([hami.device(0, health=False)]))).cards

    assert not card.healthy
    assert card.unhealthy_reason


def test_a_card_in_mig_mode_is_shown_and_not_offered() -> None:
    (card,) = registered_of(node(json.dumps([hami.device(0, mode="mig")]))).cards

    assert (card.mode, card.healthy, card.unhealthy_reason) == ("mig", False, IN_MIG_MODE)


@pytest.mark.parametrize(
    ("score", "link"),
    [
        pytest.param(420, Link(first=0, second=1, nvlinks=4, path="NODE"), id="four NVLinks, NODE"),
        pytest.param(10, Link(first=0, second=1, path="SYS"), id="across the machine"),
        pytest.param(60, Link(first=0, second=1, path="BOARD"), id="one board"),
        pytest.param(0, Link(first=0, second=1), id="nothing"),
        pytest.param(1830, Link(first=0, second=1, nvlinks=18, path="PHB"), id="eighteen"),
    ],
)
def test_a_score_tells_nvlinks_and_path(score: int, link: Link) -> None:
    document = hami.node("n1", 2, scores={(0, 1): score, (1, 0): score})

    assert registered_of(document).links == (link,)


def test_of_two_directions_that_differ_the_worse_counts() -> None:
    document = hami.node("n1", 2, scores={(0, 1): 420, (1, 0): 20})

    assert registered_of(document).links == (Link(first=0, second=1, path="NODE"),)


def test_without_scores_the_links_are_not_known_and_with_an_empty_list_there_are_none() -> None:
    assert registered_of(node(EXAMPLE)).links is None
    assert registered_of(node(EXAMPLE, "[]")).links == ()


def test_scores_of_cards_that_are_not_there_are_passed_over() -> None:
    score = '[{"uuid":"GPU-zz","score":{"GPU-aa":420}},{"uuid":"GPU-aa","score":{"GPU-yy":420}}]'

    assert registered_of(node(EXAMPLE, score)).links == ()


@pytest.mark.parametrize(
    ("register", "score", "told"),
    [
        pytest.param("", None, "is not JSON", id="empty"),
        pytest.param(
            "GPU-a,10,15360,100,NVIDIA-Tesla T4,0,true:",
            None,
            "the form with commas of older releases of HAMi, which is not read: bring HAMi's",
            id="the old form",
        ),
        pytest.param(
            "GPU-a,10,15360,100,NVIDIA,0,true,1,hami-core:GPU-b,10,15360,100,NVIDIA,0,true:",
            None,
            "the form with commas",
            id="the old form of two cards, one with more fields",
        ),
        pytest.param("GPU-a,GPU-b", None, "is not JSON", id="a list of UUIDs"),
        pytest.param('{"id":1,2,3,4,5,6,7:', None, "is not JSON", id="JSON that is broken"),
        pytest.param("[" * 100_000, None, "is not JSON", id="nested too deep"),
        pytest.param("[]", None, "lists no card", id="no card"),
        pytest.param("{}", None, "write a list", id="no list"),
        pytest.param("null", None, "lists no card", id="null"),
        pytest.param("[7]", None, "[0] is 7", id="a card that is a number"),
        pytest.param('[{"index":0}]', None, "[0].id is missing", id="no id"),
        pytest.param('[{"id":"a,b"}]', None, "[0].id is", id="an id that no text can carry"),
        pytest.param('[{"id":"a","devmem":"1"}]', None, "[0].devmem", id="memory in quotes"),
        pytest.param('[{"id":"a","devmem":1.5}]', None, "[0].devmem", id="half a MiB"),
        pytest.param('[{"id":"a","count":-1}]', None, "[0].count", id="less than no slot"),
        pytest.param(f'[{{"id":"a","devmem":{2**31}}}]', None, "[0].devmem", id="beyond int32"),
        pytest.param('[{"id":"a","devmem":NaN}]', None, "is not JSON", id="no number"),
        pytest.param('[{"id":"a","health":"true"}]', None, "[0].health", id="health in quotes"),
        pytest.param('[{"id":"a"},{"id":"b"}]', None, "[1] is a card with", id="one index twice"),
        pytest.param(
            '[{"id":"a"},{"id":"a","index":1}]', None, "[1] is a card with", id="one id twice"
        ),
        pytest.param(EXAMPLE, "{", f"{names.NODE_SCORE} is", id="a score that is not JSON"),
        pytest.param(
            EXAMPLE, '[{"uuid":"GPU-aa","score":{"GPU-bb":-1}}]', "[0].score", id="a score below 0"
        ),
    ],
)
def test_what_can_not_be_read_is_one_sentence_and_no_card(
    register: str, score: str | None, told: str
) -> None:
    written = node(register, score)

    with pytest.raises(BadGPUNode) as error:
        registered_of(written)
    assert told in str(error.value)
    document = gpunode_document(written, WHEN)
    assert gpunode_of(document).cards == ()
    assert trouble_of(document) == str(error.value)


@pytest.mark.parametrize("gpus", [0, None], ids=["none", "not said"])
def test_where_the_node_offers_no_card_none_is_given(gpus: int | None) -> None:
    document = gpunode_document(
        build.node_object("n1", gpus=gpus, annotations=hami.annotations(4)), WHEN
    )

    assert gpunode_of(document).cards == ()
    assert "nvidia.com/gpu" in trouble_of(document)


def test_the_gpunode_says_where_it_comes_from_and_goes_with_its_node() -> None:
    document = gpunode_document(hami.node("n1", 2), WHEN)

    read = gpunode_of(document)
    assert read.by_hami
    assert read.reported_at == WHEN
    assert len(read.cards) == 2
    assert document["metadata"]["labels"] == {"cardwise.dev/source": "hami"}
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"


def test_a_gpunode_that_an_agent_reports_is_not_hamis_whatever_its_label() -> None:
    document = gpunode_document(hami.node("n1", 2), WHEN)
    document["metadata"]["managedFields"] = [{"manager": names.MANAGER_AGENT}]

    assert not gpunode_of(document).by_hami


def test_a_node_without_the_annotation_is_not_registered() -> None:
    assert not is_registered(build.node_object("n1"))
    assert is_registered(hami.node("n1"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**33) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "index", "count", "devmem", "type", "mode", "health", "uuid", "score"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
TEXTS = st.text(max_size=30) | VALUES.map(json.dumps)


@given(register=TEXTS, score=st.none() | TEXTS)
def test_whatever_is_written_there_is_a_gpunode_that_reads_back(
    register: str, score: str | None
) -> None:
    document = gpunode_document(node(register, score), WHEN)

    assert bool(gpunode_of(document).cards) is not bool(trouble_of(document))


@given(st.data())
def test_what_hami_writes_is_read_as_it_was_meant(data: st.DataObject) -> None:
    sizes = st.integers(0, LARGEST)
    indexes = data.draw(st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True))
    cards = [
        hami.device(n, devmem=data.draw(sizes), count=data.draw(sizes), numa=data.draw(sizes))
        for n in indexes
    ]

    read = registered_of(node(json.dumps(cards))).cards

    assert [card.index for card in read] == sorted(indexes)
    by_id = {card["id"]: card for card in cards}
    for card in read:
        written = by_id[card.uuid]
        meant = (written.get("devmem", 0), written.get("count", 0), written.get("numa", 0))
        assert (card.memory_mib, card.slots, card.numa) == meant
