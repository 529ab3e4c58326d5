"""Electors of our own: who takes the Lease and when, and that never two replicas act by it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

import build
from cardwise.controller.clock import Clock
from cardwise.controller.lease.elector import LEASE_SECONDS, Elector
from cardwise.controller.lease.tenure import Election
from cardwise.errors import ApiError
from controllers import UNIX, World, background, passing
from fakes.cluster import FakeCluster, Fault, refused, unanswered

Json = dict[str, Any]
LEASE = ("cardwise-system", "cardwise-scheduler")
SETTLED = 10.0
"""Seconds after which the candidate that took a Lease that was free is active."""
LOOK_SECONDS = 2.2
"""The longest between two looks of one who waits."""


class Line:
    """The cluster as one replica reaches it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.cut = False
        """No request arrives."""
        self.deaf = False
        """Writes arrive, and their answers do not."""
        self.no_lists = False
        self.late = 0.0
        """Seconds after which a write arrives that was given up by then."""
        self._runs = asyncio.Event()
        self._runs.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def pause(self) -> None:
        """The process is stopped: it neither asks nor hears."""
        self._runs.clear()

    def resume(self) -> None:
        self._runs.set()

    async def lease(self, namespace: str, name: str) -> Json | None:
        return await self._reach(lambda: self._cluster.lease(namespace, name))

    async def write_lease(self, lease: Json) -> Json:
        if self.late:
            self._cluster.fail("write_lease", unanswered(lands=self.late, after=2.0))
        written: Json = await self._reach(lambda: self._cluster.write_lease(lease))
        if self.deaf:
            raise ApiError(None, "no answer from the API server")
        return written

    def unfinished_pods(self) -> AsyncIterator[list[Json]]:
        if self.no_lists:
            self._cluster.fail("unfinished_pods", refused(500, "no lists"))
        return self._cluster.unfinished_pods()

    async def _reach(self, call: Callable[[], Any]) -> Any:
        await self._runs.wait()
        if self.cut:
            await passing(2.0)
            raise ApiError(None, "no answer from the API server")
        try:
            return await call()
        finally:
            await self._runs.wait()


class Replica:
    """A controller with an elector, as one process."""

    def __init__(self, cluster: FakeCluster, host: str, *, skew: float, seed: int) -> None:
        loop, self.line = asyncio.get_running_loop(), Line(cluster)
        line: Any = self.line
        clock = Clock(
            monotonic=lambda: loop.time() + 1000.0 * seed,
            unix=lambda: UNIX + skew + loop.time(),
        )
        self.world = World(cluster=line, election=Election(identity=host), clock=clock)
        self.elector = Elector(
            cluster=line,
            lease=LEASE,
            host=host,
            clock=clock,
            stuck=self.world.controller.duty.stuck,
            dice=Random(seed).random,
        )

    @property
    def active(self) -> bool:
        return not self.world.controller.duty.refusal()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Replica"]:
        """At work until the block ends, as if it were killed then."""
        await self.world.load()
        async with self.world.running(), background(self.elector.run()):
            yield self


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(build.node_object("n1"), build.gpunode("n1", 1))


@contextlib.asynccontextmanager
async def replica(
    cluster: FakeCluster, host: str, *, skew: float = 0.0, seed: int = 0
) -> AsyncIterator[Replica]:
    async with Replica(cluster, host, skew=skew, seed=seed).running() as it:
        yield it


def elector(cluster: Any, host: str = "a", dice: float = 0.5) -> Elector:
    loop = asyncio.get_running_loop()
    clock = Clock(monotonic=loop.time, unix=lambda: UNIX + loop.time())
    return Elector(cluster=cluster, lease=LEASE, host=host, clock=clock, dice=lambda: dice)


def put(cluster: FakeCluster, spec: Json | None) -> None:
    """Write the Lease, as somebody else would."""
    metadata = {"namespace": LEASE[0], "name": LEASE[1], "labels": {"own": "kept"}}
    cluster.put({"kind": "Lease", "metadata": metadata, "spec": spec})


def spec_of(holder: str | None, seconds: int = 15, transitions: int = 4, year: int = 2026) -> Json:
    when = f"{year}-01-01T00:00:00.000000Z"
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "leaseTransitions": transitions,
        "acquireTime": when,
        "renewTime": when,
    }


def spec(cluster: FakeCluster) -> Json:
    found: Json = cluster.get("Lease", LEASE[1], LEASE[0])["spec"]
    return found


def holder(cluster: FakeCluster) -> str:
    return str(spec(cluster)["holderIdentity"])


async def until(true: Callable[[], bool], within: float = 60.0) -> float:
    """Seconds until something is so."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within):
        while not true():
            await passing(0.05)
    return loop.time() - began


# Taking and renewing ------------------------------------------------------------------------------


async def test_a_lease_that_is_not_there_is_made_and_its_maker_is_active(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "a") as a:
        await passing(SETTLED)

        assert a.active
        assert holder(cluster) == a.elector.identity
        assert a.elector.identity.startswith("a_")
        assert spec(cluster)["leaseDurationSeconds"] == 12
        assert spec(cluster)["leaseTransitions"] == 0


async def test_two_of_one_host_are_two_candidates(cluster: FakeCluster) -> None:
    assert elector(cluster).identity != elector(cluster).identity


async def test_the_holder_renews_every_second_with_one_write_and_no_look(
    cluster: FakeCluster,
) -> None:
    async with background(elector(cluster).run()):
        await passing(0.5)
        first = spec(cluster)
        cluster.calls.clear()
        await passing(10.0)

    assert cluster.called("write_lease") == 10
    assert cluster.called("lease") == 0
    assert spec(cluster) == {**first, "renewTime": "2026-05-28T20:26:50.000000Z"}


async def test_one_who_waits_looks_every_one_to_two_seconds_and_writes_nothing(
    cluster: FakeCluster,
) -> None:
    for dice, looks in ((0.0, 21), (1.0, 10)):
        async with background(elector(cluster, "a").run()):
            await passing(0.1)
            cluster.calls.clear()
            async with background(elector(cluster, "b", dice).run()):
                await passing(20.5)
        assert cluster.called("lease") == looks
        assert holder(cluster).startswith("a_")
        cluster.remove("Lease", LEASE[1], LEASE[0])


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param(spec_of("x_1"), LEASE_SECONDS + 3, id="after its duration"),
        pytest.param(spec_of("x_1", year=1971), LEASE_SECONDS + 3, id="whatever its times: old"),
        pytest.param(spec_of("x_1", year=2971), LEASE_SECONDS + 3, id="whatever its times: new"),
        pytest.param(spec_of("x_1", seconds=30), 30, id="after the duration that it names"),
        pytest.param(spec_of("a_1"), LEASE_SECONDS + 3, id="as well from another of this host"),
        pytest.param(spec_of("", seconds=1), 0, id="at once where it was given back"),
        pytest.param(spec_of(None), 0, id="at once where nobody holds it"),
        pytest.param(None, 0, id="at once where nothing stands"),
        pytest.param(
            {"holderIdentity": 7, "leaseTransitions": "x"}, 0, id="at once where it holds rubbish"
        ),
        pytest.param({"holderIdentity": "x_1"}, 0, id="at once where it names no duration"),
    ],
)
async def test_when_a_lease_is_taken(cluster: FakeCluster, before: Json | None, want: int) -> None:
    put(cluster, before)
    it = elector(cluster)
    async with background(it.run()):
        took = await until(lambda: it.holds)

    assert want <= took <= want + LOOK_SECONDS
    count = (before or {}).get("leaseTransitions", 0)
    assert spec(cluster)["leaseTransitions"] == (count if isinstance(count, int) else 0) + 1
    assert cluster.get("Lease", LEASE[1], LEASE[0])["metadata"]["labels"] == {"own": "kept"}


async def test_a_lease_that_is_renewed_is_never_taken_though_its_clock_stands_still(
    cluster: FakeCluster,
) -> None:
    it = elector(cluster, "b")
    async with background(it.run()):
        for number in range(60):
            put(cluster, {**spec_of("x_1"), "renewTime": f"2001-01-01T00:00:00.{number:06}Z"})
            await passing(1.0)
            assert not it.holds


async def test_a_label_on_the_lease_is_no_renewal(cluster: FakeCluster) -> None:
    put(cluster, spec_of("x_1", seconds=12))
    it = elector(cluster, "b")
    async with background(it.run()):
        for _ in range(11):
            put(cluster, spec_of("x_1", seconds=12))
            await passing(1.0)
        assert await until(lambda: it.holds) <= 1.0 + LOOK_SECONDS


async def test_of_many_that_take_it_at_the_same_moment_one_holds_it(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    put(cluster, spec_of("x_1", seconds=12))
    cluster.slow("write_lease", 0.3)
    candidates = [elector(cluster, f"h{number}") for number in range(5)]
    async with background(*(each.run() for each in candidates)):
        await passing(20.0)

    [one] = [each for each in candidates if each.holds]
    assert holder(cluster) == one.identity
    assert spec(cluster)["leaseTransitions"] == 5
    assert "can't be read or written" not in caplog.text, "a race that is lost is no trouble"


async def test_of_many_that_make_it_at_the_same_moment_one_holds_it(cluster: FakeCluster) -> None:
    cluster.slow("write_lease", 0.3)
    candidates = [elector(cluster, f"h{number}") for number in range(5)]
    async with background(*(each.run() for each in candidates)):
        await passing(5.0)

    assert [each.identity for each in candidates if each.holds] == [holder(cluster)]


# Trouble ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(unanswered(lands=0.0, after=2.0), id="an answer is lost"),
        pytest.param(unanswered(after=1.0), id="a write is lost"),
        pytest.param(refused(500), id="an error"),
        pytest.param(refused(409), id="somebody labelled it"),
        pytest.param(Fault(409, lands=0.0), id="it was sent twice"),
    ],
)
async def test_a_holder_gets_over_renewals_that_fail(cluster: FakeCluster, fault: Any) -> None:
    async with replica(cluster, "a") as a:
        await passing(SETTLED)
        first = spec(cluster)
        cluster.fail("write_lease", fault, fault)
        for _ in range(30):
            await passing(0.5)
            assert a.active

        last = spec(cluster)
        assert {**last, "renewTime": ""} == {**first, "renewTime": ""}


@pytest.mark.parametrize("fault", [unanswered(lands=0.0, after=2.0), Fault(409, lands=0.0)])
async def test_taking_whose_answer_is_lost_is_taking(cluster: FakeCluster, fault: Fault) -> None:
    cluster.fail("write_lease", fault)
    async with replica(cluster, "a") as a:
        await passing(SETTLED + 5.0)

        assert a.active
        assert spec(cluster)["leaseTransitions"] == 0


async def test_a_holder_that_is_cut_off_loses_the_lease_and_does_not_write_over_the_next(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "a") as a:
        await passing(SETTLED)
        async with replica(cluster, "b", seed=1) as b:
            await passing(3.0)
            a.line.cut = True
            await passing(8.0)
            assert holder(cluster) == a.elector.identity
            took = await until(lambda: holder(cluster) == b.elector.identity)
            assert took <= 4.0 + 2 * LOOK_SECONDS
            assert not a.elector.holds
            await until(lambda: b.active)

            a.line.cut = False
            for _ in range(30):
                await passing(1.0)
                assert holder(cluster) == b.elector.identity
                assert b.active
                assert not a.active


async def test_nine_seconds_without_an_answer_and_it_holds_nothing(cluster: FakeCluster) -> None:
    it: Any = Line(cluster)
    candidate = elector(it)
    async with background(candidate.run()):
        await passing(5.5)
        it.cut = True
        assert 8.0 <= await until(lambda: not candidate.holds) <= 12.0
        it.cut = False

        await passing(2.0 + LOOK_SECONDS)
        assert candidate.holds, "nobody took it meanwhile"
        assert spec(cluster)["leaseTransitions"] == 0


async def test_a_paused_process_does_not_write_over_the_next(cluster: FakeCluster) -> None:
    async with replica(cluster, "a") as a, replica(cluster, "b", seed=1) as b:
        await until(lambda: a.active or b.active)
        first, other = (a, b) if a.active else (b, a)
        first.line.pause()
        await until(lambda: other.active)
        first.line.resume()
        for _ in range(200):
            await passing(0.1)
            assert holder(cluster) == other.elector.identity
            assert other.active
            assert not first.active


async def test_a_renewal_that_arrives_half_a_minute_late_changes_nothing(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "a") as a:
        await passing(SETTLED)
        async with replica(cluster, "b", seed=1) as b:
            await passing(3.0)
            a.line.late = 30.0
            await passing(1.5)
            a.line.late, a.line.cut = 0.0, True
            await until(lambda: b.active)
            term = spec(cluster)["leaseTransitions"]
            await passing(40.0)

            assert b.active
            assert spec(cluster)["leaseTransitions"] == term


async def test_trouble_is_told_of_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.fail("lease", *[refused(403, "no right")] * 5, None, None, refused(500, "broken"))
    put(cluster, spec_of("x_1", seconds=600))
    async with background(elector(cluster).run()):
        await passing(60.0)

    told = [text for text in caplog.messages if "can't be read or written" in text]
    assert [text.rpartition(": ")[2] for text in told] == ["no right", "broken"]


async def test_a_replica_that_holds_the_lease_in_vain_gives_it_to_another(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "a") as a:
        a.line.no_lists = True
        await passing(3.0)
        assert holder(cluster) == a.elector.identity
        async with replica(cluster, "b", seed=1) as b:
            assert await until(lambda: b.active) <= 20.0 + 1.0 + LOOK_SECONDS + 7.0
            await passing(60.0)
            assert b.active


@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0, 1.5, 2.0])
async def test_who_held_the_lease_in_vain_leaves_it_to_the_slowest_of_the_others(
    cluster: FakeCluster, phase: float
) -> None:
    vain, other = elector(cluster, "a", 0.0), elector(cluster, "b", 1.0)
    loop = asyncio.get_running_loop()
    began, why = loop.time(), ["it can't list"]
    # Said once: a Lease that is taken anew is given 20 s again.
    vain._stuck = lambda: why.pop() if why and loop.time() > began + 20.0 else ""
    async with background(vain.run()):
        await passing(1.0 + phase)
        async with background(other.run()):
            await passing(25.0)
            assert holder(cluster) == other.identity


async def test_a_replica_alone_that_held_the_lease_in_vain_takes_it_again(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "a") as a:
        a.line.no_lists = True
        await passing(90.0)
        assert not a.active
        a.line.no_lists = False

        await until(lambda: a.active, 20.0)


# The end ------------------------------------------------------------------------------------------


async def test_after_a_kill_the_other_replica_acts_within_twenty_seconds(
    cluster: FakeCluster,
) -> None:
    async with replica(cluster, "b", seed=1) as b:
        b.line.cut = True
        async with replica(cluster, "a") as a:
            await until(lambda: a.active)
            b.line.cut = False
            await passing(10.0)
            assert not b.active

        assert LEASE_SECONDS - 1 <= await until(lambda: b.active) <= 20.0


async def test_a_lease_that_is_given_back_is_taken_at_the_next_look(cluster: FakeCluster) -> None:
    async with replica(cluster, "a") as a:
        await passing(SETTLED)
        async with replica(cluster, "b", seed=1) as b:
            await passing(5.0)
            await a.elector.release()
            assert {**spec(cluster), "acquireTime": "", "renewTime": ""} == {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "leaseTransitions": 0,
                "acquireTime": "",
                "renewTime": "",
            }

            assert await until(lambda: holder(cluster) == b.elector.identity) <= LOOK_SECONDS
            assert spec(cluster)["leaseTransitions"] == 1
            assert await until(lambda: b.active) <= 8.0


async def test_who_gave_the_lease_back_does_not_take_it_again(cluster: FakeCluster) -> None:
    it = elector(cluster)
    async with background(it.run()):
        await passing(2.0)
        await it.release()
        cluster.calls.clear()
        await passing(60.0)

    assert holder(cluster) == ""
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("verb", "faults"),
    [
        pytest.param("write_lease", [unanswered(lands=0.0, after=1.0)], id="its answer is lost"),
        pytest.param("write_lease", [unanswered(after=1.0)], id="it is lost"),
        pytest.param("write_lease", [Fault(409, lands=0.0)], id="it is sent twice"),
        pytest.param("write_lease", [refused(409), refused(500)], id="it is refused"),
        pytest.param("lease", [refused(500), unanswered(after=1.0)], id="no look succeeds"),
    ],
)
async def test_the_lease_is_given_back_though(
    cluster: FakeCluster, verb: str, faults: list[Any]
) -> None:
    it = elector(cluster)
    async with background(it.run()):
        await passing(1.5)
        cluster.fail(verb, *faults)
        await it.release()

    assert holder(cluster) == ""


@pytest.mark.parametrize("taken", [False, True], ids=["a taking", "a renewal"])
async def test_the_lease_is_given_back_after_a_write_that_was_under_way(
    cluster: FakeCluster, taken: bool
) -> None:
    it = elector(cluster)
    async with background(it.run()):
        if taken:
            await passing(1.5)
        cluster.slow("write_lease", 1.0)
        await passing(0.7)
        assert cluster.calls[-1][0] == "write_lease"
        await it.release()

        assert holder(cluster) == ""
        await passing(20.0)
        assert holder(cluster) == ""


async def test_a_look_that_was_under_way_at_the_end_is_not_followed_by_a_taking(
    cluster: FakeCluster,
) -> None:
    put(cluster, spec_of("", seconds=1))
    cluster.slow("lease", 1.0)
    it = elector(cluster)
    async with background(it.run()):
        await passing(0.5)
        await it.release()
        await passing(20.0)

    assert cluster.called("write_lease") == 0


async def test_the_lease_of_another_is_not_given_back(cluster: FakeCluster) -> None:
    put(cluster, spec_of("x_1", seconds=600))
    it = elector(cluster)
    async with background(it.run()):
        await passing(5.0)
        await it.release()

    assert spec(cluster) == spec_of("x_1", seconds=600)


async def test_giving_back_ends_when_the_api_server_is_away(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    it: Any = Line(cluster)
    candidate = elector(it)
    async with background(candidate.run()):
        await passing(1.5)
        it.cut = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        await candidate.release(within=3.0)

        assert loop.time() - began == pytest.approx(3.0)
    assert "could not be given back" in caplog.text


# Both at once -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def never_both(replicas: list[Replica]) -> AsyncIterator[list[str]]:
    """See that at most one is active, 2 s after another was: a write has 2 s.

    Red when a write names no version, and when `Tenure` trusts the holder's times.
    """
    loop = asyncio.get_running_loop()
    last: dict[str, float] = {}
    acted: list[str] = []

    async def watching() -> None:
        while True:
            active = [each.elector.identity for each in replicas if each.active]
            assert len(active) <= 1
            for identity in active:
                last[identity] = loop.time()
                if acted[-1:] != [identity]:
                    others = [at for name, at in last.items() if name != identity]
                    assert all(last[identity] - at >= 2.0 for at in others)
                    acted.append(identity)
            await passing(0.2)

    async with background(watching()):
        yield acted


class Fate:
    """What befalls replicas, by a seed."""

    def __init__(self, cluster: FakeCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = Random(seed)
        self.replicas: list[Replica] = []
        """Those that run."""
        self._lives: list[contextlib.AsyncExitStack] = []

    async def start(self, host: str) -> None:
        skew = self.chance.choice((0.0, -3600.0, 86400.0 * 900))
        it = Replica(self.cluster, host, skew=skew, seed=self.chance.randrange(1000))
        life = contextlib.AsyncExitStack()
        await life.enter_async_context(it.running())
        self.replicas.append(it)
        self._lives.append(life)

    async def end(self, it: Replica, *, released: bool) -> None:
        """SIGTERM, or a kill; and the next process of that host, soon or late."""
        if released:
            it.world.controller.duty.stopping = True
            await it.elector.release()
        number = self.replicas.index(it)
        del self.replicas[number]
        await self._lives.pop(number).aclose()
        await passing(self.chance.choice((0.0, 2.0, 15.0)))
        await self.start(it.elector.identity.partition("_")[0])

    async def befall(self) -> None:
        """One misfortune, from its beginning to its end."""
        choice, it = self.chance.choice, self.chance.choice(self.replicas)
        for verb in ("lease", "write_lease"):
            self.cluster.slow(verb, choice((0.0, 0.0, 0.4, 1.9)))
        match choice(("kill", "release", "cut", "deaf", "pause", "late", "race")):
            case "kill":
                await self.end(it, released=False)
            case "release":
                await self.end(it, released=True)
            case "cut" | "deaf" as how:
                setattr(it.line, how, True)
            case "pause":
                it.line.pause()
            case "late":
                it.line.late = choice((0.5, 3.0, 13.0))
            case "race":
                self.cluster.fail("write_lease", refused(409), refused(409))
        await passing(choice((3.0, 6.0, 9.0, 11.5, 14.0, 30.0)))
        self.mend()

    def mend(self) -> None:
        for verb in ("lease", "write_lease"):
            self.cluster.slow(verb, 0.0)
        for each in self.replicas:
            each.line.cut = each.line.deaf = False
            each.line.late = 0.0
            each.line.resume()

    async def end_all(self) -> None:
        for life in self._lives:
            await life.aclose()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("seed", range(8))
async def test_never_do_two_replicas_act_whatever_befalls_their_electors(
    cluster: FakeCluster, seed: int
) -> None:
    fate = Fate(cluster, seed)
    async with never_both(fate.replicas) as acted:
        for host in "ab":
            await fate.start(host)
        for _ in range(12):
            await passing(fate.chance.choice((1.0, 3.0, 12.0, 25.0)))
            await fate.befall()
        await passing(60.0)
        assert any(each.active for each in fate.replicas), "when all is well again, one acts"
    await fate.end_all()
    assert acted
