"""Two replicas: one goes, the other goes on, and no card is given twice.

Each test sends 200 Pods through one change of hands, with the times of the shipped configuration.
What is written beside each is the smallest change to the product after which it failed.
"""

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from random import Random

import pytest

import build
from replicas import Replica, Replicas, Write

UNSHARE = shutil.which("unshare")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        UNSHARE is None or subprocess.run([UNSHARE, "--uts", "true"], check=False).returncode != 0,
        reason="unshare may not give a process a host name of its own; root may",
    ),
]

NODES = 8
PODS = 200
A_SECOND = 20
AT = 60
"""The Pod at which the change comes."""
WRITES = {"create pods/binding", "create events", "patch nodes", "patch gpunodes/status"}
"""All that is written: Bindings, events, the wake, and usage."""
WRITES_BY_GATES = {"patch pods", "create events", "patch gpunodes/status"}
"""Pins, events, and usage."""
GIVES = {"create pods/binding", "patch pods"}


@pytest.fixture(scope="module")
def theatre(request: pytest.FixtureRequest) -> Iterator[Replicas]:
    with Replicas.raised(audit=True, door=request.param) as raised:
        yield raised


@pytest.fixture
def stage(theatre: Replicas) -> Iterator[Replicas]:
    theatre.clear()
    for number in range(NODES):
        name = f"node-{number}"
        theatre.bare_node(name, gpus=40)
        theatre.report(build.gpunode(name, 4))
    yield theatre
    assert theatre.legal() == []


def bound(stage: Replicas) -> set[str]:
    return {name for name, pod in stage.pods().items() if "nodeName" in pod["spec"]}


def tell(change: str, seconds: float) -> None:
    """What the change cost, for whoever runs this with -s."""
    print(f"\n{change}: the next Pod is bound after {seconds:.1f} s")  # noqa: T201


class Crowd:
    """200 Pods, 20 a second, created beside the test."""

    def __init__(self, stage: Replicas) -> None:
        self._stage = stage
        self._random = Random(47)
        self.created = 0
        self._thread = threading.Thread(target=self._create)

    def __enter__(self) -> "Crowd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _create(self) -> None:
        for number in range(PODS):
            self._stage.pod(
                f"p{number:03}",
                gpumem=self._random.choice((500, 1000, 2000, 4000)),
                policy=self._random.choice((None, "binpack", "spread", "mutex,binpack")),
                # All nodes at once, so that there is always something to write of each.
                node_policy="spread",
            )
            self.created += 1
            time.sleep(1 / A_SECOND)

    def reaches(self, number: int) -> None:
        self._stage.cp.wait(f"{number} Pods", lambda: self.created >= number, 60)


def until_one_more_is_bound(stage: Replicas, began: float, within: float = 60) -> float:
    """Seconds from the change until a Pod is bound that was not a second after the change."""
    time.sleep(1)  # what was on its way has landed
    before = bound(stage)
    stage.cp.wait("one more Pod to be bound", lambda: bound(stage) - before, within)
    return time.monotonic() - began


# Red where UsageWriter.write_some does not ask the duty: both write.
def without_what_was_on_its_way(writes: list[Write], host: str) -> list[Write]:
    """Leave out what a replica was just sending when it was stopped, and sent when it went on.

    One write for each that writes by itself (events, news first; usage; wakes), and one Binding or
    pin at most: it may be stopped between its last look at the clock and the sending, which nobody
    is proof against (decision 7). What it is asked for afterwards it refuses.
    """
    began = min(write.received for write in writes if write.host != host)
    late = [write for write in writes if write.host == host and write.received > began]
    assert len(late) <= 4, late
    assert sum(write.what in GIVES for write in late) <= 1, late
    return [write for write in writes if write not in late]


def everything_is_well(
    stage: Replicas, hands: list[Replica], since: int, *, halted: Replica | None = None
) -> None:
    """All that fits is bound, all that is bound is legal, and writes came from one at a time.

    Args:
        stage: the cluster.
        hands: who was active, in this order.
        since: of the audit log.
        halted: one that was stopped, perhaps in the middle of a write.
    """
    stage.cp.wait("nothing that fits to wait", lambda: not stage.fitting(), 60)
    assert len(bound(stage)) >= PODS * 0.6  # a mutex Pod waits where each card has a tenant
    assert stage.legal() == []
    stage.settled()
    writes = stage.writes(since)
    if halted is not None:
        writes = without_what_was_on_its_way(writes, halted.host)
    turns = [next(turn) for _, turn in groupby(writes, lambda write: write.host)]
    assert [turn.host for turn in turns] == [replica.host for replica in hands], turns
    # That says something of a kind of write only if it was seen.
    wanted = WRITES_BY_GATES if stage.gates else WRITES
    assert {write.what for write in writes} - {"patch events"} == wanted
    for replica in hands:
        assert GIVES & {w.what for w in writes if w.host == replica.host}


def crash(stage: Replicas, leader: Replica) -> None:
    leader.signal(signal.SIGKILL)
    leader.ended()


def stop(stage: Replicas, leader: Replica) -> None:
    leader.signal(signal.SIGTERM)
    leader.ended()


@pytest.mark.both_doors
@pytest.mark.parametrize(
    ("end", "within"),
    [
        pytest.param(crash, 20.0, id="killed"),
        pytest.param(stop, 12.0, id="asked to end"),
    ],
)
def test_the_other_goes_on_when_the_active_replica_goes(
    stage: Replicas, end: Callable[[Replicas, Replica], None], within: float
) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        stage.cp.wait("the first to be bound", lambda: bound(stage), 20)
        began = time.monotonic()
        end(stage, active)
        seconds = until_one_more_is_bound(stage, began)
    tell(end.__name__, seconds)

    everything_is_well(stage, [active, passive], since)
    assert stage.active() is passive
    assert seconds < within


def filtered(stage: Replicas, replica: Replica, name: str) -> dict[str, str]:
    """Ask for a Pod in kube-scheduler's place, and return what it would ask of /bind."""
    # Nobody schedules it, so that nobody else asks for it.
    stage.pod(name, gpumem=500, spec={"schedulerName": "nobody"})
    nodes = [f"node-{number}" for number in range(NODES)]
    answer = replica.ask("filter", {"Pod": stage.get(name), "NodeNames": nodes})
    assert not answer["Error"], answer
    return {
        "PodName": name,
        "PodNamespace": stage.namespace,
        "PodUID": stage.get(name)["metadata"]["uid"],
        "Node": answer["NodeNames"][0],
    }


# Red where Scheduler.bind asks duty.not_ready() instead of duty.refusal(): a card is given twice.
def test_a_replica_that_was_paused_finds_itself_passive_when_it_goes_on(stage: Replicas) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd, ThreadPoolExecutor(1) as beside:
        crowd.reaches(AT)
        held = filtered(stage, active, "held")
        began = time.monotonic()
        active.signal(signal.SIGSTOP)
        # Between /filter and /bind: what it reads first when it goes on, before it sees the Lease.
        asked = beside.submit(active.ask, "bind", held)
        seconds = until_one_more_is_bound(stage, began)
        active.signal(signal.SIGCONT)
        refused = asked.result()["Error"]
        # A kube-scheduler that lost its Lease ends, and kubelet starts it again.
        stage.cp.wait("it to end", lambda: active.scheduler.poll() is not None, 30)
        active.start_scheduler()
    tell("paused", seconds)

    assert "this replica is not active" in refused
    assert "nodeName" not in stage.get("held")["spec"]
    stage.delete("held")
    everything_is_well(stage, [active, passive], since, halted=active)
    assert stage.active() is passive
    assert active.controller.poll() is None
    assert seconds < 20


# Red where Tenure.refusal goes by the holder's name alone.
@pytest.mark.gates_alone
def test_a_replica_that_was_paused_in_the_middle_of_pins_pins_nothing_when_it_goes_on(
    stage: Replicas,
) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.signal(signal.SIGSTOP)
        seconds = until_one_more_is_bound(stage, began)
        active.signal(signal.SIGCONT)
    tell("paused", seconds)

    everything_is_well(stage, [active, passive], since, halted=active)
    assert stage.active() is passive
    assert active.controller.poll() is None
    assert seconds < 20


# Cut off ------------------------------------------------------------------------------------------


# Red where UsageWriter.write_some asks the duty once a round: it ends its round afterwards.
@pytest.mark.both_doors
def test_a_replica_that_is_cut_off_is_followed_and_writes_nothing_when_it_is_back(
    stage: Replicas,
) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.cut_off()
        seconds = until_one_more_is_bound(stage, began)
        if not stage.gates:
            stage.cp.wait("its scheduler to end", lambda: active.scheduler.poll() is not None, 30)
        active.connect()
        if not stage.gates:
            active.start_scheduler()
    tell("cut off", seconds)

    everything_is_well(stage, [active, passive], since)
    assert stage.active() is passive
    assert active.controller.poll() is None
    assert seconds < 20


@pytest.mark.long
def test_a_scheduler_that_is_cut_off_alone_takes_its_controller_with_it(stage: Replicas) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.schedulers_cable.cut()
        stage.cp.wait("it to end", lambda: active.scheduler.poll() is not None, 30)
        active.connect()
        active.start_scheduler()
        seconds = until_one_more_is_bound(stage, began)
    tell("scheduler cut off", seconds)

    everything_is_well(stage, [active, passive], since)


# Red where Health.not_ready does not ask duty.stuck(): it waits in vain.
@pytest.mark.long
def test_a_controller_that_is_cut_off_alone_costs_its_scheduler_the_lease(stage: Replicas) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.controllers_cable.cut()
        time.sleep(1)  # what was on its way has landed
        before = bound(stage)
        crowd.reaches(PODS)
        # Its scheduler goes on renewing the Lease, and says in each Pod why nothing comes of it.
        stage.pending(f"p{PODS - 1:03}", "this replica is not active: it can't see its Lease")
        restarts = active.probed(lambda: bool(bound(stage) - before), within=120)
        seconds = time.monotonic() - began
        active.connect()
    tell(f"controller cut off, {restarts} restarts", seconds)

    everything_is_well(stage, [active, passive], since)
    assert stage.active() is passive
    assert active.controller.poll() is None
    assert seconds < 120


# One of its two containers ------------------------------------------------------------------------


def test_a_scheduler_that_is_started_again_alone_is_followed(stage: Replicas) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.scheduler.terminate(20)
        seconds = until_one_more_is_bound(stage, began)
        active.start_scheduler()
    tell("scheduler alone", seconds)

    everything_is_well(stage, [active, passive], since)


def test_a_controller_that_is_started_again_alone_goes_on(stage: Replicas) -> None:
    active, _ = stage.leading()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.controller.kill()
        active.start_controller()
        seconds = until_one_more_is_bound(stage, began)
    tell("controller alone", seconds)

    stage.cp.wait("nothing that fits to wait", lambda: not stage.fitting(), 60)
    assert stage.legal() == []
    assert stage.active() is active
