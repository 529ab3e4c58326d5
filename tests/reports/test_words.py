"""Reports of sections G and H that are about what people read, and how soon."""

import asyncio
from collections import Counter

import pytest

import build
from cardwise.names import Reason
from controllers import World, background, passing
from reports import fixtures
from reports.fixtures import load

EIGHTY = 80


async def test_r69_a_job_of_eighty_is_placed_at_once_with_few_writes() -> None:
    """No lock on the node: all are bound at the same time, and each costs two writes.

    Seconds on a real control plane: tests/e2e/test_crowd.py.

    Red: in controller/placing/binder.py hold one lock around every Binding.
    """
    [node] = fixtures.a8()
    pods = fixtures.pods(EIGHTY, gpumem=4000)
    world = await World(node, build.node_object("n1", gpus=80), *pods).load()
    world.cluster.slow("bind", 0.1)
    began = asyncio.get_running_loop().time()

    async def place(pod: fixtures.Json) -> None:
        assert await world.bind(pod, world.chosen(pod, "n1")) == ""

    async with background(world.controller.recorder.run()):
        await asyncio.gather(*map(place, pods))
        assert asyncio.get_running_loop().time() - began < 1.0
        await passing(5.0)

    writes = Counter(call[0] for call in world.cluster.calls)
    for listed in ("unfinished_pods", "gpunodes", "nodes", "quotas", "device_classes"):
        del writes[listed]  # by the start
    assert writes == {"bind": EIGHTY, "create_event": EIGHTY}
    assert set(world.used().values()) == {40000}


@pytest.mark.timeout(60)
async def test_r72_events_are_few_and_in_nobodys_way() -> None:
    """Five hundred Pods that wait ten minutes, asked about once a minute.

    Red: in controller/telling/recorder.py let a thousand events a second be written.
    """
    waiting = fixtures.pods(500, gpumem=15000)
    world = await World(
        *fixtures.two_nodes(), *load("n1", several=True, g0="10/10000/0"), *waiting
    ).load()
    minutes = []
    async with background(world.controller.recorder.run()):
        for minute in range(10):
            before = len(world.cluster.calls)
            for pod in waiting:
                world.filter(pod, "n1")
            # Whoever comes now is answered at once, and its own event does not queue behind.
            small = world.cluster.put(build.pod(f"small-{minute}", gpumem=100))
            assert await world.bind(small, world.chosen(small, "n2")) == ""
            await passing(1.0)
            told = [event["regarding"]["name"] for event in world.cluster.events()]
            assert f"small-{minute}" in told
            await passing(59.0)
            minutes.append(sum(call[0].endswith("_event") for call in world.cluster.calls[before:]))

    assert max(minutes) <= 70, "sixty a minute, a burst of five, and CardsAllocated"
    names = Counter(
        event["regarding"]["name"]
        for event in world.cluster.events()
        if event["reason"] != "CardsAllocated"
    )
    assert set(names.values()) == {1}


async def test_r74_one_event_says_why_node_by_node() -> None:
    """Stable words with counts, the numbers and the holders; a node without GPU is no news.

    Red: in wire/account.py tell of nodes with ``NodeHasNoCards``, too.
    """
    cards = [build.card(0, uuid=f"GPU-n{number}", healthy=number != 2) for number in (1, 2, 3)]
    nodes = [build.gpunode(f"n{number}", [card]) for number, card in enumerate(cards, start=1)]
    tenants = [
        build.pod("full", node="n1", allocated=build.allocation("GPU-n1", mib=15360)),
        build.pod("one", node="n3", allocated=build.allocation("GPU-n3")),
    ]
    world = await World(*nodes, build.node_object("n4"), *tenants).load()
    pod = build.pod(policy="mutex", gpumem=2000)

    for _ in range(3):
        answer = world.filter(pod, "n1", "n2", "n3", "n4")

    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": Reason.EXCLUSIVE,
        "n2": Reason.CARD_NOT_HEALTHY,
        "n3": Reason.EXCLUSIVE,
        "n4": Reason.NODE_HAS_NO_CARDS,
    }
    [(reason, note)] = await world.events()
    assert reason == Reason.EXCLUSIVE
    assert note == (
        "0/3 candidate nodes can take 1 card with 2000 MiB (policy mutex). "
        "n1: 1/1 ExclusiveDeviceAllocateConflict (GPU 0: default/full); "
        "n3: 1/1 ExclusiveDeviceAllocateConflict (GPU 0: default/one); "
        "n2: 1/1 CardNotHealth (GPU 0)."
    )


@pytest.mark.parametrize(
    ("priority", "told"),
    [(1000, True), (None, False)],
    ids=["R76 a Pod with a priority", "R76 a Pod without"],
)
async def test_r76_who_may_preempt_is_told_that_a_shortage_of_cards_never_does(
    priority: int | None, told: bool
) -> None:
    """And kube-scheduler is left no node where preemption of others would not help.

    Red: in controller/telling/teller.py leave out ``preemption_note``.
    """
    world = await World(*fixtures.t4x2(), *load(g0="1/15000/0", g1="1/2000/0")).load()
    pod = build.pod(gpumem=14000, pod_priority=priority)

    answer = world.filter(pod, "n1")

    assert answer["FailedNodes"] == {}
    assert world.preempt(pod, {"n1": ["uid-default-other"]}) == {}
    [(reason, note)] = await world.events()
    assert reason == Reason.MEMORY
    assert note.endswith("Preemption of GPU tenants is not supported.") == told


async def test_r81_scattered_memory_is_told_in_numbers() -> None:
    """The largest free block and the sum, with who holds the cards.

    Red: in wire/cards_told.py leave the total out of ``_memory``.
    """
    world = await World(*fixtures.t4x2(), *load(g0="1/8000/0", g1="1/8000/0")).load()

    world.filter(build.pod(gpumem=10000), "n1")

    [(reason, note)] = await world.events()
    assert reason == Reason.MEMORY
    assert "largest free 7360 MiB, total free 14720 MiB" in note
    assert "GPU 0: default/g0-0; GPU 1: default/g1-0" in note


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        pytest.param(
            build.pod(gpumem=20000),
            "No card of the cluster has 20000 MiB: the largest has 15360 MiB.",
            id="more memory than any card has",
        ),
        pytest.param(
            build.pod(gpus=3, gpumem=1),
            "No node of the cluster has 3 cards: the most is 2.",
            id="more cards than any node has",
        ),
        pytest.param(
            build.pod(gpumem=1, annotations={"nvidia.com/use-gputype": "H100"}),
            "No node of the cluster could take this Pod even without tenants (CardTypeMismatch).",
            id="a model that is not there",
        ),
        pytest.param(
            build.pod(
                containers=[build.container(name, gpu=1, gpumem=15000) for name in ("a", "b", "c")]
            ),
            "No node of the cluster could take this Pod even without tenants "
            "(CardInsufficientMemory).",
            id="containers that together are too large",
        ),
        pytest.param(
            build.pod(gpus=2, gpumem=1, numa_bind="true"),
            "No node of the cluster could take this Pod even without tenants (NumaNotFit).",
            id="two cards of one NUMA node where each has one",
        ),
    ],
)
async def test_r74_a_pod_that_can_never_fit_is_told_so_first(
    pod: fixtures.Json, sentence: str
) -> None:
    """At once, and not after the tenants have gone: waiting is in vain.

    Red: in controller/telling/teller.py leave out ``hopeless``.
    """
    full = load(g0="10/15360/100", g1="10/15360/100")
    world = await World(*fixtures.t4x2(), *full).load()

    world.filter(pod, "n1")

    [(_, note)] = await world.events()
    assert note.startswith(f"{sentence} 0/1 candidate nodes can take ")


async def test_r74_a_pod_that_may_fit_later_is_not_told_that_it_never_will() -> None:
    """Tenants may leave, a card may get well, and a new node may come.

    Red: in engine/idle.py look at the cards as they are used.
    """
    [node] = fixtures.t4x2()
    ill = fixtures.changed(node, card=1, healthy=False)
    world = await World(ill, *load(g0="10/15360/100")).load()
    h100 = build.pod("h", gpumem=1, annotations={"nvidia.com/use-gputype": "H100"})

    def note(name: str) -> str:
        [event] = [it for it in world.cluster.events() if it["regarding"]["name"] == name]
        return str(event["note"])

    async with background(world.controller.recorder.run()):
        world.filter(build.pod(gpus=2, gpumem=1000), "n1")
        world.filter(h100, "n1")
        await passing(61.0)
        assert "No node of the cluster" not in note("p")
        assert "No node of the cluster" in note("h")

        world.cluster.put(
            build.gpunode("n2", [build.card(0, uuid="GPU-h", model="NVIDIA H100", healthy=False)])
        )
        world.deliver()
        world.filter(h100, "n1", "n2")
        await passing(61.0)

    assert "No node of the cluster" not in note("h")
