"""Two replicas: who is active, since when, until when, and that never both bind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

import build
from cardwise.controller.lease.tenure import Election
from cardwise.errors import ApiError
from cardwise.ledger import Stage
from controllers import OWN, World, background, passing
from fakes.cluster import FakeCluster, Fault, refused, unanswered

Json = dict[str, Any]
LEASE = ("cardwise-system", "cardwise-scheduler")
SETTLED = 8.0
"""Seconds after which a replica whose scheduler took a Lease that was free is active."""


class Leases:
    """What the kube-schedulers of all replicas do to the Lease, in the cluster's time."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self._transitions = 0
        self._writes = 0

    def held(self, holder: str | None, *, seconds: int = 15, same: bool = False) -> None:
        """Write the Lease: another holder, or (``same``) a renewal."""
        self._writes += 1
        self._transitions += not same
        self.cluster.put(
            {
                "kind": "Lease",
                "metadata": {"namespace": LEASE[0], "name": LEASE[1]},
                "spec": {
                    "holderIdentity": holder,
                    "leaseDurationSeconds": seconds,
                    "leaseTransitions": self._transitions,
                    # Clocks of machines jump; nothing may follow from what they say.
                    "renewTime": f"20{self._writes * 37 % 90 + 10}-01-01T00:00:00.{self._writes}Z",
                },
            }
        )

    def release(self) -> None:
        """As client-go does when it ends."""
        self.held("", seconds=1)

    @contextlib.asynccontextmanager
    async def holding(
        self, holder: str, *, seconds: int = 15, every: float = 2.0
    ) -> AsyncIterator[None]:
        """Take the Lease and renew it every so many seconds."""
        self.held(holder, seconds=seconds)

        async def renew() -> None:
            while True:
                await asyncio.sleep(every)
                self.held(holder, seconds=seconds, same=True)

        async with background(renew()):
            yield


class Eyes:
    """The cluster as one replica sees it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.blind = False
        """Whether the Lease can't be read, by this replica alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def lease(self, namespace: str, name: str) -> Json | None:
        """One Lease as it is, or None."""
        if self.blind:
            raise ApiError(None, "no answer from the API server")
        return await self._cluster.lease(namespace, name)


@pytest.fixture
def cluster() -> FakeCluster:
    pods = [build.pod(name, gpumem=15000) for name in ("p", "q")]
    return FakeCluster(build.node_object("n1"), build.gpunode("n1", 1), *pods)


@pytest.fixture
def leases(cluster: FakeCluster) -> Leases:
    return Leases(cluster)


@contextlib.asynccontextmanager
async def replica(cluster: FakeCluster, host: str) -> AsyncIterator[World]:
    """A controller beside a kube-scheduler on this host, at work."""
    eyes: Any = Eyes(cluster)
    world = await World(cluster=eyes, election=Election(identity=host)).load()
    async with world.running():
        yield world


def refusal(world: World) -> str:
    """Why /filter answers nothing; empty when it answers."""
    return str(world.filter(build.pod("p", gpumem=15000), "n1")["Error"])


def is_active(world: World) -> bool:
    return not world.controller.duty.refusal()


async def first_active(world: World, within: float = 60.0) -> float:
    """Seconds until the replica is active."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within):
        while not is_active(world):
            await passing(0.1)
    return loop.time() - began


# Transitions --------------------------------------------------------------------------------------


async def test_the_replica_whose_scheduler_holds_the_lease_answers_and_the_other_says_who(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with (
        replica(cluster, "a") as a,
        replica(cluster, "b") as b,
        leases.holding("a_uuid-1"),
    ):
        await passing(SETTLED)

        assert is_active(a)
        assert refusal(b) == 'this replica is not active: the Lease is held by "a_uuid-1"'
        assert await b.bind(build.pod("p", gpumem=15000)) == refusal(b)
        assert b.preempt(build.pod("p", gpumem=15000), {"n1": []}) == {}
        assert a.chosen(build.pod("p", gpumem=15000), "n1") == "n1"
        assert await a.bind(build.pod("p", gpumem=15000)) == ""


@pytest.mark.parametrize(
    ("holder", "want"),
    [
        pytest.param("a_0f1e", True, id="the own scheduler"),
        pytest.param("a", False, id="the host without a UUID"),
        pytest.param("ab_0f1e", False, id="a host whose name begins alike"),
        pytest.param("b_a_0f1e", False, id="a host whose name ends alike"),
        pytest.param("", False, id="nobody, as an empty text"),
        pytest.param(None, False, id="nobody, as a null"),
    ],
)
async def test_who_the_holder_is(
    cluster: FakeCluster, leases: Leases, holder: str | None, want: bool
) -> None:
    async with replica(cluster, "a") as a, leases.holding(holder or ""):
        await passing(SETTLED)

        assert is_active(a) == want


async def test_without_a_lease_nobody_is_active(cluster: FakeCluster) -> None:
    world = await World(cluster=cluster, election=Election(identity="a")).load()
    assert refusal(world) == "this replica is not active: it has not seen the Lease yet"
    async with world.running():
        await passing(30.0)

        assert refusal(world) == "this replica is not active: the Lease is held by nobody"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="nothing"),
        pytest.param({"holderIdentity": 7, "leaseDurationSeconds": "15"}, id="other types"),
        pytest.param({"holderIdentity": "a_1"}, id="no duration"),
    ],
)
async def test_a_lease_of_another_shape_makes_nobody_active(
    cluster: FakeCluster, spec: Json | None
) -> None:
    metadata = {"namespace": LEASE[0], "name": LEASE[1]}
    cluster.put({"kind": "Lease", "metadata": metadata, "spec": spec})
    async with replica(cluster, "a") as a:
        await passing(30.0)

        assert not is_active(a)


async def test_a_passive_replica_is_ready_and_live(cluster: FakeCluster, leases: Leases) -> None:
    async with replica(cluster, "b") as b, leases.holding("a_1"):
        await passing(SETTLED)

        assert b.controller.health.not_ready() == ""
        assert b.controller.health.not_live() == ""
        assert b"cardwise_active 0.0" in b.controller.metrics.render()


async def test_an_active_replica_says_so_in_its_metrics(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        await passing(SETTLED)

        assert b"cardwise_active 1.0" in a.controller.metrics.render()


# Taking over --------------------------------------------------------------------------------------


async def test_a_lease_that_was_given_back_is_acted_on_six_seconds_later(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "b") as b:
        async with leases.holding("a_1"):
            await passing(20.0)
        leases.release()
        await passing(2.0)
        async with leases.holding("b_1"):
            assert 4.0 <= await first_active(b) <= 5.5


async def test_a_lease_that_was_given_back_between_two_looks_is_waited_for_as_well(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "b") as b:
        async with leases.holding("a_1"):
            await passing(20.0)
        leases.release()
        async with leases.holding("b_1"):
            assert 6.0 <= await first_active(b) <= 7.5


async def test_a_lease_that_expired_is_acted_on_at_once(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "b") as b:
        async with leases.holding("a_1"):
            await passing(20.0)
        await passing(15.0)
        async with leases.holding("b_1"):
            assert await first_active(b) <= 1.5


async def test_another_scheduler_of_the_same_host_begins_another_term(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(SETTLED)
        listed = cluster.called("unfinished_pods")
        async with leases.holding("a_2"):
            await passing(1.5)
            # Nobody but this replica can have a Binding under way: there is nothing to wait for.
            assert is_active(a)
            assert cluster.called("unfinished_pods") == listed + 1


async def test_a_lease_that_went_away_and_came_back_between_two_looks_begins_another_term(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(SETTLED)
        listed = cluster.called("unfinished_pods")
        leases.held("b_1")
        async with leases.holding("a_1"):
            await passing(1.5)
            assert is_active(a)
            assert cluster.called("unfinished_pods") == listed + 1


async def test_a_term_begins_with_a_list_that_shows_what_the_watch_did_not(
    cluster: FakeCluster, leases: Leases
) -> None:
    # R47: nothing is ever delivered to b's watch.
    async with replica(cluster, "a") as a, replica(cluster, "b") as b:
        async with leases.holding("a_1"):
            await passing(SETTLED)
            a.chosen(build.pod("p", gpumem=15000), "n1")
            assert await a.bind(build.pod("p", gpumem=15000)) == ""
        await passing(15.0)
        async with leases.holding("b_1"):
            await first_active(b)

            answer = b.filter(build.pod("q", gpumem=15000), "n1")
            assert answer["FailedAndUnresolvableNodes"] == {"n1": "CardInsufficientMemory"}
            assert b.controller.mirror.repairs == 0


async def test_a_list_that_fails_is_asked_for_again(cluster: FakeCluster, leases: Leases) -> None:
    async with replica(cluster, "a") as a:
        cluster.fail("unfinished_pods", refused(500), unanswered(after=3.0))
        async with leases.holding("a_1"):
            await passing(8.0)
            assert not is_active(a)
            assert "lists Pods first" in refusal(a)
            await passing(5.0)
            assert is_active(a)


async def test_an_old_list_is_discarded_when_the_lease_went_from_hand_to_hand(
    cluster: FakeCluster, leases: Leases
) -> None:
    # R47, A -> B -> A inside 3 s while a list is running.
    async with replica(cluster, "a") as a:
        cluster.slow("unfinished_pods", 4.0)
        leases.held("a_1")
        await passing(7.5)
        assert cluster.called("unfinished_pods") == 2  # at the start, and of this term
        leases.held("b_1")
        await passing(1.5)
        bound = build.pod("q", gpumem=15000, node="n1", allocated="GPU-n1-a,NVIDIA,15000,0:;")
        cluster.put(bound)  # b bound it; a's watch is late
        async with leases.holding("a_2"):
            await passing(4.0)
            assert not is_active(a)  # the first list would be complete by now

            await first_active(a)
            assert cluster.called("unfinished_pods") == 3
            answer = a.filter(build.pod("p", gpumem=15000), "n1")
            assert answer["FailedAndUnresolvableNodes"] == {"n1": "CardInsufficientMemory"}


async def test_who_becomes_active_wakes_and_writes_all_usage_and_who_is_not_writes_nothing(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "b") as b:
        async with leases.holding("a_1"):
            await passing(10.0)
            b.controller.waker.refused()
            b.controller.waker.begin()
            b.controller.teller.unreadable(OWN, "why")
            b.ledger.touched.add("n1")
            await passing(10.0)
            writes = ("annotate_node", "apply_gpunode_status", "create_event", "bind")
            assert [call for call in cluster.calls if call[0] in writes] == []
        await passing(15.0)
        async with leases.holding("b_1"):
            await first_active(b)
            await passing(3.0)
            assert cluster.called("annotate_node") == 1
            assert cluster.called("apply_gpunode_status") == 1


# Losing it ----------------------------------------------------------------------------------------


async def test_holds_end_with_a_term(cluster: FakeCluster, leases: Leases) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(SETTLED)
            a.chosen(build.pod("p", gpumem=15000), "n1")
            assert a.used()
        async with leases.holding("b_1"):
            await passing(1.5)

            assert a.used() == {}
            assert not is_active(a)


async def test_a_lease_that_can_not_be_read_is_told_of_once(
    cluster: FakeCluster, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(cluster, "a"), leases.holding("b_1"):
        for _ in range(2):
            cluster.fail("lease", *[refused(403, "no right")] * 5)
            await passing(10.0)

    assert sum("can't be read: no right" in text for text in caplog.messages) == 2


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(refused(500), "it can't see its Lease", id="errors"),
        pytest.param(unanswered(after=2.0), "it can't see its Lease", id="no answer"),
    ],
)
async def test_a_replica_that_can_not_see_its_lease_stops_after_four_seconds(
    cluster: FakeCluster, leases: Leases, fault: Fault, want: str
) -> None:
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        await passing(SETTLED)
        cluster.fail("lease", *[fault] * 10)

        await passing(2.5)
        assert is_active(a)
        await passing(2.0)
        assert want in refusal(a)
        assert want in await a.bind(build.pod("p", gpumem=15000))
        assert cluster.called("bind") == 0

        await passing(40.0)
        assert is_active(a)  # nobody else held it meanwhile: no new term


async def test_a_round_of_usage_writes_ends_with_the_right_to_write(
    cluster: FakeCluster, leases: Leases
) -> None:
    for number in range(2, 6):
        cluster.put(build.gpunode(f"n{number}", 1))
    cluster.slow("apply_gpunode_status", 3.0)
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        await first_active(a)
        await passing(2.0)
        a.cluster.blind = True
        await passing(4.5)
        begun = cluster.called("apply_gpunode_status")
        assert 0 < begun < 5

        await passing(30.0)
        assert cluster.called("apply_gpunode_status") == begun


async def test_a_lease_that_is_not_renewed_is_acted_on_no_longer_than_ten_seconds(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(20.5)
        loop = asyncio.get_running_loop()
        renewed = loop.time()  # or up to 2 s earlier
        while is_active(a):
            await passing(0.1)

        assert 6.0 <= loop.time() - renewed <= 10.0
        assert "no renewal of its Lease" in refusal(a)


async def test_a_renewal_that_nobody_saw_being_written_counts_for_nothing(
    cluster: FakeCluster, leases: Leases
) -> None:
    leases.held("a_1")  # and never renewed again: its scheduler is gone
    async with replica(cluster, "a") as a:
        for _ in range(300):
            await passing(0.1)
            assert not is_active(a)


async def test_a_paused_process_does_not_act_when_it_goes_on(
    cluster: FakeCluster, leases: Leases
) -> None:
    world = World(cluster=cluster, election=Election(identity="a"))
    await world.load()
    async with leases.holding("a_1"):
        async with background(*world.controller.tasks()):
            await passing(SETTLED)
            assert is_active(world)
        # Its tasks stand still, as all of it does: what it knows is old, by its own clock.
        await passing(20.0)

        assert not is_active(world)
        assert await world.bind(build.pod("p", gpumem=15000)) == refusal(world)


async def test_after_sigterm_no_binding_is_sent_though_the_lease_is_ours(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        await passing(SETTLED)
        a.chosen(build.pod("p", gpumem=15000), "n1")
        a.controller.duty.stopping = True

        assert "stopping" in await a.bind(build.pod("p", gpumem=15000))
        assert "stopping" in a.controller.health.not_ready()
        assert cluster.called("bind") == 0


async def test_a_lease_that_is_lost_while_the_pod_is_read_stops_its_binding(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(SETTLED)
            cluster.slow("pod", 1.9)
            bound = asyncio.ensure_future(a.bind(build.pod("p", gpumem=15000)))
            await passing(0.1)
        async with leases.holding("b_1"):
            assert "not active" in await bound
            assert cluster.called("bind") == 0


# A Lease that is held in vain ---------------------------------------------------------------------

PATIENCE = 20.0


async def until_not_ready(world: World, within: float = 60.0) -> float:
    """Seconds until the replica says that it is not ready."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within):
        while not world.controller.health.not_ready():
            await passing(0.1)
    return loop.time() - began


@pytest.mark.parametrize(
    ("verb", "fault", "want"),
    [
        pytest.param("lease", refused(403), "can't see its Lease", id="the Lease is refused"),
        pytest.param("lease", unanswered(), "can't see its Lease", id="no answer about the Lease"),
        pytest.param("unfinished_pods", refused(500), "lists Pods first", id="no list of Pods"),
    ],
)
async def test_a_replica_that_can_not_act_for_its_scheduler_is_not_ready(
    cluster: FakeCluster, leases: Leases, verb: str, fault: Fault, want: str
) -> None:
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        if verb == "lease":
            await passing(SETTLED)
        cluster.fail(verb, *[fault] * 200)

        assert PATIENCE - 1 <= await until_not_ready(a) <= PATIENCE + 1
        assert want in a.controller.health.not_ready()
        assert want in refusal(a)


async def test_a_replica_that_never_saw_the_lease_is_not_ready(cluster: FakeCluster) -> None:
    cluster.fail("lease", *[refused(403)] * 200)
    async with replica(cluster, "a") as a:
        assert PATIENCE - 1 <= await until_not_ready(a) <= PATIENCE + 1


async def test_a_replica_that_acts_again_is_ready_again(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a, leases.holding("a_1"):
        await passing(SETTLED)
        a.cluster.blind = True
        await passing(PATIENCE + 5)
        assert a.controller.health.not_ready()

        a.cluster.blind = False
        await passing(3.0)
        assert is_active(a)
        assert a.controller.health.not_ready() == ""


async def test_a_replica_that_is_blind_while_another_acts_stays_ready(
    cluster: FakeCluster, leases: Leases
) -> None:
    # Its scheduler holds nothing: to restart it, while the API server is away say, helps nobody.
    async with replica(cluster, "b") as b, leases.holding("a_1"):
        await passing(SETTLED)
        b.cluster.blind = True
        await passing(120.0)

        assert b.controller.health.not_ready() == ""


async def test_the_beginning_of_a_term_is_no_reason_to_end_it(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("b_1"):
            await passing(100.0)
        leases.release()
        async with leases.holding("a_1"):
            cluster.slow("unfinished_pods", 9.0)
            while not is_active(a):
                assert a.controller.health.not_ready() == ""
                await passing(0.1)


# A Binding without an answer, and another holder --------------------------------------------------


async def test_a_binding_of_an_earlier_term_is_never_sent_again(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with replica(cluster, "a") as a:
        async with leases.holding("a_1"):
            await passing(SETTLED)
            a.chosen(build.pod("p", gpumem=15000), "n1")
            cluster.fail("bind", unanswered())
            cluster.fail("pod", *[refused(500)] * 4)
            bound = asyncio.ensure_future(a.bind(build.pod("p", gpumem=15000)))
            await passing(1.0)
        async with leases.holding("b_1"):
            await passing(2.0)
            other = build.pod("q", gpumem=15000, node="n1", allocated="GPU-n1-a,NVIDIA,15000,0:;")
            cluster.put(other)  # b gives the card to another
            assert "not known yet" in await bound
        leases.release()
        async with leases.holding("a_2"):
            await passing(20.0)
            assert is_active(a)
            assert cluster.called("bind") == 1
            assert a.stage(build.pod("p")) is Stage.BINDING

            await passing(60.0)  # nothing of the first Binding can land any more
            assert a.stage(build.pod("p")) is Stage.WAITING
            assert cluster.called("bind") == 1


# Both at once -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def never_both(*replicas: World) -> AsyncIterator[list[int]]:
    """See that at most one is active, 2 s after the other was; which were, one after the other."""
    loop = asyncio.get_running_loop()
    last = [float("-inf")] * len(replicas)
    acted: list[int] = []

    async def watching() -> None:
        while True:
            active = [number for number, world in enumerate(replicas) if is_active(world)]
            assert len(active) <= 1
            for number in active:
                last[number] = loop.time()
                if acted[-1:] != [number]:
                    # A Binding has 2 s: those of the other replica are over.
                    assert all(last[number] - at >= 2.0 for at in last if at != last[number])
                    acted.append(number)
            await passing(0.2)

    async with background(watching()):
        yield acted


async def test_a_replica_that_sees_nothing_has_ended_before_the_next_begins(
    cluster: FakeCluster, leases: Leases
) -> None:
    async with (
        replica(cluster, "a") as a,
        replica(cluster, "b") as b,
        never_both(a, b) as acted,
    ):
        async with leases.holding("a_1"):
            await passing(20.0)
        a.cluster.blind = True
        leases.release()
        async with leases.holding("b_1"):
            await passing(20.0)
    assert acted == [0, 1]


async def test_a_term_that_was_not_seen_is_waited_for(cluster: FakeCluster, leases: Leases) -> None:
    async with (
        replica(cluster, "a") as a,
        replica(cluster, "b") as b,
        never_both(a, b) as acted,
    ):
        async with leases.holding("a_1"):
            await passing(20.0)
        leases.release()
        a.cluster.blind = True
        async with leases.holding("b_1"):
            await passing(20.0)
            assert is_active(b)
        leases.release()
        a.cluster.blind = False
        async with leases.holding("a_2"):
            assert 6.0 <= await first_active(a) <= 7.5
            await passing(1.0)
    assert acted == [0, 1, 0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("seconds", "every"),
    [pytest.param(15, 2.0, id="kube-scheduler's times"), pytest.param(12, 1.0, id="shipped times")],
)
async def test_never_are_two_replicas_active_whatever_becomes_of_the_lease(
    cluster: FakeCluster, leases: Leases, seed: int, seconds: int, every: float
) -> None:
    jitter = 2.2 * every
    random = Random(seed)
    async with (
        replica(cluster, "a") as a,
        replica(cluster, "b") as b,
        never_both(a, b) as acted,
    ):
        for number in range(10):
            cluster.slow("lease", random.choice((0.0, 0.0, 0.3, 1.0, 1.9)))
            holder = f"{random.choice('ab')}_{number}"
            async with leases.holding(holder, seconds=seconds, every=every):
                await passing(random.choice((0.5, 1.5, 5.0, 9.0, 12.0, 30.0)))
                for world in (a, b):
                    world.cluster.blind = random.random() < 0.3
                await passing(random.choice((0.0, 0.5, 2.0, 4.0)))
            # The next one takes it when it was given back, or when the last renewal that it can
            # have seen is too old.
            if random.random() < 0.5:
                leases.release()
                await passing(random.uniform(0.0, jitter))
            else:
                await passing(seconds + random.uniform(0.0, 2 * jitter))
    assert acted
