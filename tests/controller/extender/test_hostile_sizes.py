"""Deep, many, large: an answer within seconds, in work that grows with the size alone."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import build
from cardwise import names
from cardwise.ledger import Stage
from cardwise.ledger.ledger import HOLD_SECONDS
from controllers import World, passing
from served import Served, filtering, holds, preempting

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("unbroken")]

Json = dict[str, Any]
MIB = 1024 * 1024
KIB_250 = 250 * 1024


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize("depth", [100, 1000, 1020, 1024, 5000, 200_000])
@pytest.mark.parametrize(
    ("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"]
)
def test_a_deep_nest(served: Served, verb: str, depth: int, left: bytes, right: bytes) -> None:
    """Red when ``_handler`` lets an ``orjson.JSONEncodeError`` through."""
    nest = left * depth + b"1" + right * depth
    for body in (
        nest,
        b'{"Pod":{"metadata":{"annotations":{"a":' + nest + b'}}},"NodeNames":["n1"]}',
        b'{"Pod":{"spec":' + nest + b'},"NodeNames":["n1"],"NodeNameToVictims":{}}',
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"n1","labels":' + nest + b"}}]}}",
        b'{"PodName":' + nest + b"}",
    ):
        holds(served.post(verb, body))


@pytest.mark.parametrize("containers", [1, 300])
@pytest.mark.parametrize("cards", [1, 64, 65, 2**31])
def test_many_containers_and_cards(served: Served, containers: int, cards: int) -> None:
    pod = build.pod(
        "many",
        containers=[
            build.container(f"c{number}", gpu=cards, gpumem=1) for number in range(containers)
        ],
        policy="binpack,numa",
    )

    answer = served.ask("filter", filtering(pod))
    holds(answer)
    assert answer.status == 200
    assert bool(answer.json["NodeNames"]) == (cards <= 64)
    holds(served.ask("preempt", preempting(pod)))


LARGE = {
    "one word": "x" * KIB_250,
    "many words": ",".join(f"w{number}" for number in range(KIB_250 // 8)),
    "many near words": ",".join(f"binpac{number}" for number in range(KIB_250 // 12)),
    "commas": "," * KIB_250,
    "semicolons": ";" * KIB_250,
    "colons": ":" * KIB_250,
    "shares": "GPU-n1-a,NVIDIA,1,1:" * (KIB_250 // 20),
    "digits": "9" * KIB_250,
    "spaces": " " * KIB_250,
    "equals": "slots=1," * (KIB_250 // 8),
    "dots": "1." * (KIB_250 // 2),
    "beyond ASCII": "\u00e9\u4e2d\U0001f600" * (KIB_250 // 9),
}
KEYS = sorted(
    {
        value
        for key, value in vars(names).items()
        if key.isupper() and isinstance(value, str) and "/" in value
    }
)


@pytest.mark.parametrize("text", [pytest.param(text, id=what) for what, text in LARGE.items()])
def test_an_annotation_of_250_kib(served: Served, text: str) -> None:
    for key in KEYS:
        pod = build.pod("large", gpumem=1000)
        pod["metadata"]["annotations"] = {key: text}

        holds(served.ask("filter", filtering(pod)))
        holds(served.ask("preempt", preempting(pod)))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda text: build.container(text, gpu=1), id="a container's name"),
        pytest.param(lambda text: build.container("a", gpu=text), id="a count"),
        pytest.param(lambda text: build.container("a", gpu=1, gpumem=text), id="a memory"),
        pytest.param(
            lambda text: build.container("a", gpu=1, limits={text: "1"}), id="a resource's name"
        ),
    ],
)
@pytest.mark.parametrize("text", ["x", "9", "1e", ".", "-", "0", "\u0669", "\u00b2"])
def test_a_long_word_in_a_container(served: Served, make: Callable[[str], Json], text: str) -> None:
    pod = build.pod("long", containers=[make(text * KIB_250)])

    answer = served.ask("filter", filtering(pod))

    holds(answer)
    assert len(answer.text) < 10_000


def test_a_body_of_20_mib_is_refused_and_the_next_is_read(served: Served) -> None:
    """Red when ``verbs`` sets another ``client_max_size``."""
    for _ in range(3):
        try:
            answer = served.post("filter", b" " * (20 * MIB))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused before all of it was sent
        else:
            assert answer.status == 413
            holds(answer)
        assert served.ask("filter", filtering(build.pod("after"))).status == 200


def test_twenty_times_the_largest_cluster_is_read(served: Served) -> None:
    asked = [f"node-{number:06}" for number in range(100_000)]

    answer = served.ask("filter", filtering(build.pod("wide", gpumem=1000), [*asked, "n1"]))

    holds(answer)
    assert answer.json["NodeNames"] == ["n1"]


def test_memory_does_not_grow(served: Served) -> None:
    """Once a Pod is gone, next to nothing is kept of it, nor of what was said of it."""

    def storm(first: int, count: int) -> None:
        for number in range(first, first + count):
            policy = ",".join(f"w{number}{word}" for word in range(5_000))
            pod = build.pod(f"m{number}", gpus=73, gpumem=1000, policy=policy)
            cards = ",".join(f"GPU-{number}-{card}" for card in range(10_000))
            pod["metadata"]["annotations"] |= {names.USE_UUID: cards, "other": "x" * 100_000}
            holds(served.ask("filter", filtering(pod)))
            holds(served.ask("preempt", preempting(pod)))
        served.compare()
        gc.collect()

    tracemalloc.start()
    try:
        storm(0, 25)  # 10,000 UUIDs a Pod: now the memo is full
        before, _ = tracemalloc.get_traced_memory()
        storm(25, 10)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (after - before) / 10 < 20 * 1024, "bytes kept of each Pod that was asked about"


async def test_a_pod_that_never_existed_is_forgotten_in_twenty_minutes() -> None:
    """Held: 15 minutes, then as one that waits. Waiting: until the next list, every 5 minutes.

    Red when ``expire_holds`` gives nothing up, or ``reconcile`` spares those that wait.
    """
    world = await World(build.gpunode("n1"), build.node_object("n1")).load()
    world.filter(build.pod("held", gpumem=1000), "n1")
    world.filter(build.pod("waits", gpus=5), "n1")
    world.filter(build.pod("odd", gpus="many"), "n1")
    world.filter(build.pod("by-hand", gpumem=1000) | {"metadata": {"name": "x"}}, "n1")
    assert {entry.stage for entry in world.ledger.entries()} == {Stage.HELD, Stage.WAITING}

    async with world.running():
        await passing(310.0)
        assert {entry.stage for entry in world.ledger.entries()} == {Stage.HELD}
        await passing(HOLD_SECONDS)

    assert [*world.ledger.entries()] == []
    assert world.used() == {}


async def test_of_many_modes_that_nobody_knows_a_few_are_told() -> None:
    """Red when ``members`` warns of each: a Pod that waits would keep megabytes of sentences."""
    modes = ",".join(f"m{number}" for number in range(30_000))
    world = await World(build.gpunode("n1"), build.node_object("n1")).load()

    world.filter(build.pod("p", gpus=5, annotations={names.VGPU_MODE: modes}), "n1")

    entry = world.ledger.entry("uid-default-p")
    assert entry is not None
    assert entry.request is not None
    assert len(entry.request.warnings) == 20
