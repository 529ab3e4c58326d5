"""``cardwise top``: cards, nodes and namespaces, and what is left of them."""

import asyncio
import io
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

import build
import explained
from cardwise.cli import top
from cardwise.cli.main import cardwise
from cardwise.cli.picture import FEW_NODES, Wish, document_of, print_picture, screen_of
from cardwise.errors import ApiError
from controllers import background, passing
from explained import card_node, node, tenant
from fakes.cluster import refused

WIDE = "GPU-0a1b2c3d-4e5f-6789-abcd-ef0123456789"


def used(gpunode, *rows):
    """A GPUNode into which the controller wrote what is used: UUID, slots, MiB, cores, tenants."""
    keys = ("uuid", "slots", "memoryMiB", "cores", "tenants")
    gpunode["status"]["usage"] = [dict(zip(keys, row, strict=True)) for row in rows]
    return gpunode


def reader(*objects):
    """Reads a cluster whose controller has written what is used of every card."""
    for each in objects:
        gpunode = each[-1] if isinstance(each, tuple) else each
        if gpunode["kind"] == "GPUNode" and not gpunode["status"].get("usage"):
            used(gpunode, *((card["uuid"], 0, 0, 0, []) for card in gpunode["status"]["cards"]))
    return explained.reader(*objects)


def condition(word, status="True", message=""):
    """A condition of a GPUNode."""
    return {"type": word, "status": status, "reason": "Word", "message": message}


async def shown(*objects, **wish):
    """The lines that a pipe is told, blanks squeezed."""
    wished, out = Wish(**wish), io.StringIO()
    picture = await top.look(reader(*objects), wished)
    print_picture(picture, wished, Console(file=out, highlight=False, emoji=False))
    return [re.sub(" +", " ", line) for line in out.getvalue().splitlines()]


async def told(*objects, **wish):
    """What a program is told."""
    return document_of(await top.look(reader(*objects), Wish(**wish)))


CARDS = [
    pytest.param(
        {"healthy": False, "unhealthyReason": "Xid 79"}, (), 0, "unhealthy: Xid 79", id="sick"
    ),
    pytest.param({"mode": "mig"}, (), 0, "in MIG mode", id="in MIG mode"),
    pytest.param({}, (1, 1000, 0), 14360, "ok", id="one tenant"),
    pytest.param({}, (10, 1000, 0), 0, "ok", id="no slot left"),
    pytest.param({}, (2, 1000, 100), 0, "ok", id="no cores left"),
    pytest.param({}, (2, 16000, 0), 0, "over-booked", id="more given out than there is"),
    pytest.param({}, (), 15360, "ok", id="empty"),
]


@pytest.mark.parametrize(("fields", "use", "free", "state"), CARDS)
async def test_a_card_is_shown_with_its_room_and_state(fields, use, free, state) -> None:
    gpunode = build.gpunode("n1", [build.card(0, uuid="GPU-a", **fields)])
    if use:
        used(gpunode, ("GPU-a", *use, ["default/t"]))

    [card] = (await told(node("n1"), gpunode))["nodes"][0]["cards"]

    assert (card["freeMiB"], card["state"]) == (free, state)
    assert card["open"] is (state == "ok")


@pytest.mark.parametrize("counted", [False, True], ids=["as written", "counted from the Pods"])
async def test_a_node_that_an_unreadable_allocation_closes_has_no_room(counted) -> None:
    # Red: `_closed_by` is not asked, or takes a condition that holds no more.
    word = "NodeHasUnreadableAllocation"
    gpunode, open_one = build.gpunode("n1", 1), build.gpunode("n2", 1)
    gpunode["status"]["conditions"] = [condition(word, message="Pod default/x: why")]
    open_one["status"]["conditions"] = [condition(word, "False")]
    cluster = [node("n1"), gpunode, node("n2"), open_one]
    broken = build.pod("x", node="n1", allocated="nonsense")

    answer = await told(*cluster, broken, counted=counted)

    found = {each["node"]: each for each in answer["nodes"]}
    assert [found[name]["state"] for name in ("n1", "n2")] == [word, "ok"]
    assert [found[name]["cards"][0]["open"] for name in ("n1", "n2")] == [False, True]
    assert answer["totals"]["freeMiB"] == 15360
    assert answer["notes"] == [f"node n1: {word}: Pod default/x: why"]


async def test_what_the_controller_says_of_a_node_is_told_of_the_nodes_that_are_shown() -> None:
    # Red: `by_condition` tells of all nodes, of every condition, or of all thousand.
    crowd = [(node(f"m{n}"), build.gpunode(f"m{n}", 1)) for n in range(6)]
    for _, each in crowd:
        stray = condition("CordonNamesNoCard", message="a slip")
        each["status"]["conditions"] = [condition("Ready"), stray]

    one = await told(*crowd, nodes=("m3",))
    everybody = await told(*crowd)

    assert one["notes"] == ["node m3: CordonNamesNoCard: a slip"]
    assert everybody["notes"][-1] == (
        "2 more like these: status.conditions of the GPUNodes has the rest"
    )
    assert len(everybody["notes"]) == 5


async def test_the_cards_of_few_nodes_are_shown_one_a_line() -> None:
    gpunode = build.gpunode("n1", [build.card(0, uuid=WIDE)])
    used(gpunode, (WIDE, 4, 4000, 30, ["default/a", "default/b", "default/c", "default/d"]))

    lines = await shown(node("n1"), gpunode)
    wide = await shown(node("n1"), gpunode, wide=True)

    size = "NVIDIA-Tesla T4 4000/15360 11360 30/100 4/10 ok"
    assert lines[2] == f"n1 0 GPU-0a1b2c3d… {size} default/a, default/b, default/c, 1 more"
    assert wide[2] == f"n1 0 {WIDE} {size} default/a, default/b, default/c, default/d"


async def test_what_the_controller_has_not_written_is_not_taken_for_nothing() -> None:
    # Red: `look` without `unwritten`; or nodes that are not shown, or have no card, are named, too.
    silent = [card_node(f"m{number}", 1) for number in range(6)]
    here = explained.reader(*silent, card_node("none", 0), tenant("t", "GPU-m0-a", on="m0"))

    async def notes(**wish):
        return (await top.look(here, Wish(**wish))).notes

    unwritten = "the controller has not written what is used on"
    assert await notes() == (f"{unwritten} m0, m1, m2, m3 and 2 more: --pods counts it",)
    assert await notes(nodes=("m1",)) == (f"{unwritten} m1: --pods counts it",)
    assert await notes(counted=True) == await notes(nodes=("none",)) == ()


async def test_of_many_nodes_each_has_one_line_below_the_totals() -> None:
    crowd = [card_node(f"m{number}", 2) for number in range(FEW_NODES)]
    last = (node("n1"), used(build.gpunode("n1", 2), ("GPU-n1-a", 1, 15360, 0, ["x/y"])))

    lines = await shown(*crowd, last)
    by_card = await shown(*crowd, last, cards=True)

    assert lines[0].startswith("9 nodes, 18 cards (0 closed, 17 empty); 15360/276480 MiB,")
    assert lines[-1] == "n1 NVIDIA-Tesla T4 2 0 1 15360/30720 15360 15360 0/200 1/20 1 ok"
    assert len(lines) == 2 + FEW_NODES + 1
    assert len(by_card) == 2 + 2 * (FEW_NODES + 1)


CLOSED = [
    pytest.param(card_node("n1", 1, cordoned=["GPU-a"]), "ok", "cordoned", id="by the GPUNode"),
    pytest.param(
        (node("n1", cordon="GPU-a"), card_node("n1", 1)[1]), "ok", "cordoned", id="by HAMi's words"
    ),
    pytest.param(
        card_node("n1", 1, reported_at="2026-11-29T11:00:00Z"), "NodeNotReported", "ok",
        id="its agent fell silent",
    ),
    pytest.param(
        (node("n1", unschedulable=True), card_node("n1", 1)[1]), "NodeUnschedulable", "ok",
        id="kubectl cordon",
    ),
]  # fmt: skip


@pytest.mark.parametrize("counted", [False, True], ids=["as written", "counted"])
@pytest.mark.parametrize(("objects", "node_state", "card_state"), CLOSED)
async def test_a_closed_card_has_no_room(objects, node_state, card_state, counted) -> None:
    document = await told(objects, counted=counted)

    [found] = document["nodes"]
    assert (found["state"], found["cards"][0]["state"]) == (node_state, card_state)
    assert document["totals"]["closed"] == 1
    assert document["totals"]["freeMiB"] == 0
    assert document["totals"]["empty"] == 0


async def test_tenants_of_a_card_that_is_gone_are_shown() -> None:
    gpunode = used(build.gpunode("n1", 1), ("GPU-gone", 1, 500, 0, ["default/t"]))

    lines = await shown(node("n1"), gpunode)

    assert lines[-1] == "n1 - GPU-gone - 500/0 0 0/0 1/0 not reported default/t"
    assert lines[0].startswith("1 node, 1 card (0 closed, 1 empty); 0/15360 MiB")


async def test_counted_from_the_pods_it_needs_nobodys_word() -> None:
    pods = [
        tenant("a", "GPU-a"),
        tenant("lock", "GPU-b", exclusive_held=True),
        tenant("ended", "GPU-c", phase="Succeeded"),
    ]

    document = await told(card_node("n1", 3), *pods, counted=True)

    cards = document["nodes"][0]["cards"]
    assert [card["tenants"] for card in cards] == [["default/a"], ["default/lock"], []]
    assert [card["state"] for card in cards] == ["ok", "exclusive", "ok"]
    assert [card["freeMiB"] for card in cards] == [14360, 0, 15360]


async def test_by_namespace_it_counts_pods_cards_and_who_waits() -> None:
    pods = [
        tenant("a", "GPU-a", "GPU-b", "GPU-c"),
        tenant("b", "GPU-a"),
        tenant("c", "GPU-a", namespace="other", mib=5000),
        build.pod("w", namespace="other", gpumem=1000),
        build.pod("plain", gpus=None),
        build.pod("ended", gpumem=1, phase="Failed"),
    ]

    lines = await shown(card_node("n1", 3), *pods, namespaces=True)
    of_node = await shown(card_node("n1", 3), *pods, namespaces=True, nodes=("n1",))

    assert lines[1:] == [
        "NAMESPACE PODS WAITING CARDS MIB CORES SLOTS",
        "default 2 0 3 4000 0 4",
        "other 1 1 1 5000 0 1",
    ]
    assert of_node[-1] == "other 1 0 1 5000 0 1"


async def test_one_node_alone_is_shown_by_its_cards() -> None:
    lines = await shown(card_node("n1", 2), card_node("n2", 3), nodes=("n2",))

    assert [line.split()[:2] for line in lines[2:]] == [["n2", "0"], ["n2", "1"], ["n2", "2"]]


async def test_a_node_that_is_named_twice_counts_once() -> None:
    objects = [card_node("n1", 2), tenant("a", "GPU-a")]

    document = await told(*objects, nodes=("n1", "n1"), namespaces=True)

    assert document["totals"]["cards"] == 2
    assert [space["pods"] for space in document["namespaces"]] == [1]


async def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ApiError, match="there is no node with cards named n7"):
        await top.look(reader(card_node()), Wish(nodes=("n1", "n7")))


async def test_without_the_right_to_read_nodes_their_cordons_are_missing_and_said_so() -> None:
    here = reader(card_node("n1", 1))
    here.cluster.fail("nodes", refused(403, "nodes is forbidden"))

    picture = await top.look(here, Wish())

    [note] = picture.notes
    assert "hami.io/device-cordon" in note
    assert "nodes is forbidden" in note


async def test_a_cluster_without_the_kind_is_one_error() -> None:
    here = reader()
    here.cluster.fail("gpunodes", refused(404, "the server could not find it"))

    with pytest.raises(ApiError, match="Cardwise is not installed there"):
        await top.look(here, Wish())


async def test_a_gpunode_that_cannot_be_read_is_told_of() -> None:
    twins = [build.card(0, uuid="GPU-a"), build.card(1, uuid="GPU-a")]

    lines = await shown(card_node("n2", 1), node("n1"), build.gpunode("n1", twins))

    assert lines[-1].startswith("note: GPUNode n1: ")


async def test_a_screen_holds_as_many_lines_as_it_is_high() -> None:
    picture = await top.look(reader(card_node("n1", 4)), Wish())

    lines = screen_of(picture, Wish(), 5, "nobody answers").plain.splitlines()

    assert len(lines) == 5
    assert lines[1] == "not read anew: nobody answers"
    assert lines[-1] == "… 3 lines more; a taller terminal, or --node NAME"


async def test_live_it_goes_on_when_the_cluster_does_not_answer_for_a_while() -> None:
    here, out = reader(card_node("n1", 1)), io.StringIO()
    console = Console(file=out, force_terminal=True, width=150, height=20)
    here.cluster.fail("gpunodes", None, refused(500, "no leader"), None)

    async with background(top._live(here, Wish(), console, 2.0)):
        await passing(1.0)
        assert "no leader" not in out.getvalue()
        await passing(2.0)
        assert "not read anew: no leader" in out.getvalue()
        here.cluster.put(used(card_node("n1", 1)[1], ("GPU-a", 1, 1234, 0, ["default/new"])))
        out.truncate(0)
        await passing(2.0)
        assert "default/new" in out.getvalue()
        assert "no leader" not in out.getvalue()
        await asyncio.sleep(0)


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "inf"])
def test_the_interval_is_a_number_of_seconds(seconds) -> None:
    result = CliRunner().invoke(cardwise, ["top", "-w", "--interval", seconds])

    assert result.exit_code == 2
    assert "--interval" in result.output


async def test_a_name_cannot_steer_the_terminal() -> None:
    gpunode = build.gpunode("n1", [build.card(0, model="T4\x1b[31m\n")])

    lines = await shown(node("n1"), gpunode)

    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
