"""Everything at once, by seeds: no card is given twice, and the ledger finds back to the truth.

Pods come and go, are asked about and bound while the API server refuses, loses and delays, the
watch drops and repeats, lists run, and the controller is restarted. The truth is what the bound
Pods in the cluster say.
"""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

import build
from cardwise.errors import ApiError
from cardwise.ledger import Stage
from cardwise.names import EXCLUSIVE_HELD
from cardwise.wire import pods
from controllers import World, passing
from fakes.cluster import Change, FakeCluster, Fault, refused, unanswered

Json = dict[str, Any]
NODES = ("n1", "n2")
MEMORY, SLOTS = 4000, 3
FAULTS: tuple[Fault | None, ...] = (
    None,
    None,
    unanswered(),
    unanswered(lands=0.0),
    unanswered(after=2.0, lands=1.0),
    unanswered(after=2.0, lands=2.7),
    refused(500),
    Fault(500, "broken", lands=0.0),
    refused(403),
    refused(429),
    refused(409),
)
STEPS = (
    *("create", "place", "watch", "end") * 2,
    *("create", "place", "place", "end", "compare", "time", "fault"),
)


class Storm:
    """One run by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        nodes = [build.gpunode(name, 3, memory=MEMORY, slots=SLOTS) for name in NODES]
        self.cluster = FakeCluster(*nodes, *(build.node_object(name) for name in NODES))
        self.world = World(cluster=self.cluster)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.shown: list[Change] = []
        self.made = 0

    async def run(self, steps: int) -> None:
        await self.world.load()
        for number in range(steps):
            if number % 40 == 39:
                await self.restart()
            await getattr(self, self.random.choice(STEPS))()
            self.check()
        await self.settle()

    # Steps ----------------------------------------------------------------------------------------

    async def create(self) -> None:
        pick = self.random.choice
        self.made += 1
        self.cluster.put(
            build.pod(
                f"p{self.random.randrange(30)}",
                uid=f"uid-{self.made}",
                gpus=pick((1, 1, 1, 2)),
                gpumem=pick((500, 1000, 3000)),
                gpucores=pick((None, None, 30, 30, 30, 100)),
                policy=pick((None, "binpack", "mutex,binpack", "spread")),
                exclusive=pick((*[None] * 7, "true")),
            )
        )

    async def place(self) -> None:
        pending = [it for it in self.cluster.objects["Pod"].values() if not pods.bound_node(it)]
        if pending:
            self.start(self.place_one(self.random.choice(pending)))
        await passing(self.random.choice((0.0, 0.1)))

    async def place_one(self, pod: Json) -> None:
        """As kube-scheduler does: /filter, a while, /bind, whatever happened meanwhile."""
        world = self.world
        answer = world.filter(pod, *NODES)
        names = answer["NodeNames"] or []
        await passing(self.random.choice((0.0, 0.0, 0.5)))
        if names and self.random.random() < 0.95:
            await world.bind(pod, self.random.choice((*names * 4, *NODES)))

    async def watch(self) -> None:
        for _ in range(self.random.randrange(6)):
            if not self.cluster.changes:
                return
            change = self.cluster.changes.popleft()
            if change.kind == "Event" or self.random.random() < 0.1:
                continue
            self.world.show(change)
            self.shown.append(change)
            if self.random.random() < 0.2:
                self.world.show(self.random.choice(self.shown))

    async def end(self) -> None:
        held = list(self.cluster.objects["Pod"].values())
        if not held:
            return
        pod = self.random.choice(held)
        how = self.random.choice(("remove", "finish", "terminate"))
        if how == "remove":
            self.cluster.remove("Pod", pod["metadata"]["name"], "default")
        elif how == "finish" and pods.bound_node(pod):
            self.cluster.put({**pod, "status": {"phase": "Succeeded"}})
        elif how == "terminate":
            self.cluster.put(
                {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": build.REPORTED_AT}}
            )

    async def compare(self) -> None:
        self.cluster.slow("unfinished_pods", self.random.choice((0.0, 0.3)))
        if not any(task.get_name() == "compare" for task in self.tasks):
            self.start(self.world.mirror.reconcile(self.cluster), "compare")

    async def time(self) -> None:
        await passing(self.random.choice((0.1, 1.0, 3.0)))

    async def fault(self) -> None:
        self.cluster.fail("bind", self.random.choice(FAULTS))
        self.cluster.fail("pod", self.random.choice((None, None, refused(403), unanswered())))
        self.cluster.fail("gpunodes", self.random.choice((None, None, None, refused(410))))

    async def restart(self) -> None:
        """The old one stops; the new one loads when nothing of the old can land any more."""
        self.world.controller.gate.stopping = True
        await passing(12.0)
        await self.world.controller.binder.stop()
        self.world = await World(cluster=self.cluster).load()
        self.shown.clear()

    def start(self, work: Any, name: str = "") -> None:
        task = asyncio.ensure_future(work)
        task.set_name(name)
        self.tasks.add(task)

    # What must hold -------------------------------------------------------------------------------

    def truth(self) -> dict[str, list[Json]]:
        """The Pods on each card, by UUID, as the cluster has them."""
        cards: dict[str, list[Json]] = {}
        for pod in self.cluster.objects["Pod"].values():
            booking = pods.booking_of(pod)
            for uuid in (
                {share.uuid for each in booking.containers for share in each} if booking else ()
            ):
                cards.setdefault(uuid, []).append(pod)
        return cards

    def check(self) -> None:
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            error = task.exception()
            assert error is None or isinstance(error, ApiError), error
        for uuid, tenants in self.truth().items():
            memory = sum(_memory(pod) for pod in tenants)
            assert memory <= MEMORY, f"{uuid} is over-booked: {memory} MiB"
            assert len(tenants) <= SLOTS
            locked = [pod for pod in tenants if EXCLUSIVE_HELD in pod["metadata"]["annotations"]]
            assert not locked or len(tenants) == 1, f"{uuid} is shared with an exclusive Pod"
            cores = Counter(_cores(pod) for pod in tenants)
            assert not cores[100] or len(tenants) == 1, f"{uuid} is whole, and shared"

    async def settle(self) -> None:
        """Quiet: the faults are over, everything is answered, a list is compared."""
        for faults in self.cluster._faults.values():
            faults.clear()
        await passing(30.0)
        self.check()
        await self.world.mirror.reconcile(self.cluster)
        assert await self.world.mirror.reconcile(self.cluster) == 0
        stages = {entry.pod.uid: entry.stage for entry in self.world.ledger.entries()}
        assert Stage.BINDING not in stages.values()
        booked = {uid for uid, stage in stages.items() if stage is Stage.BOOKED}
        on_cards = {pod["metadata"]["uid"] for each in self.truth().values() for pod in each}
        assert booked == on_cards
        for uid, stage in stages.items():
            if stage is Stage.HELD:
                self.world.ledger.drop_hold(uid, 0.0)
        want = {uuid: sum(map(_memory, tenants)) for uuid, tenants in self.truth().items()}
        assert {**self.world.used("n1"), **self.world.used("n2")} == want


def _memory(pod: Json) -> int:
    booking = pods.booking_of(pod)
    assert booking is not None
    return booking.containers[0][0].memory_mib


def _cores(pod: Json) -> int:
    booking = pods.booking_of(pod)
    assert booking is not None
    return booking.containers[0][0].cores


@pytest.mark.timeout(20)
@pytest.mark.parametrize("seed", range(12))
async def test_no_card_is_given_twice_and_the_ledger_finds_back(seed: int) -> None:
    await Storm(seed).run(steps=240)


async def test_a_storm_binds_pods_at_all() -> None:
    storm = Storm(1)
    await storm.run(steps=200)

    assert storm.cluster.called("bind") > 20
    assert sum(call[0] == "pod" for call in storm.cluster.calls) > 5, "and some outcomes are lost"
