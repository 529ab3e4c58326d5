"""Two replicas: one goes, the other goes on, and no card is given twice.

Each test sends 200 Pods through one change of hands, with the times of the shipped configuration.
"""

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

import build
from replicas import Replica, Replicas

UNSHARE = shutil.which("unshare")
pytestmark = [
    pytest.mark.long,
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


@pytest.fixture(scope="module")
def theatre() -> Iterator[Replicas]:
    with Replicas.raised(audit=True) as raised:
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
    """200 Pods, 20 a second, created beside the test; a third of the room is left."""

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


def everything_is_well(stage: Replicas, hands: list[Replica], since: int) -> None:
    """All that fits is bound, all that is bound is legal, and writes came from one at a time."""
    stage.cp.wait("nothing that fits to wait", lambda: not stage.fitting(), 60)
    assert len(bound(stage)) >= PODS * 0.8
    assert stage.legal() == []
    stage.settled()
    assert stage.writers(since) == [replica.host for replica in hands]


def crash(stage: Replicas, leader: Replica) -> None:
    leader.signal(signal.SIGKILL)
    leader.ended()


def stop(stage: Replicas, leader: Replica) -> None:
    leader.signal(signal.SIGTERM)
    leader.ended()


@pytest.mark.parametrize(
    ("end", "within"),
    [
        pytest.param(crash, 30.0, id="killed"),
        pytest.param(stop, 15.0, id="asked to end"),
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


def test_a_replica_that_was_paused_finds_itself_passive_when_it_goes_on(stage: Replicas) -> None:
    active, passive = stage.leading()
    since = stage.audited()
    with Crowd(stage) as crowd:
        crowd.reaches(AT)
        began = time.monotonic()
        active.signal(signal.SIGSTOP)
        seconds = until_one_more_is_bound(stage, began)
        active.signal(signal.SIGCONT)
        # A kube-scheduler that lost its Lease ends, and kubelet starts it again.
        stage.cp.wait("it to end", lambda: active.scheduler.poll() is not None, 30)
        active.start_scheduler()
    tell("paused", seconds)

    everything_is_well(stage, [active, passive], since)
    assert stage.active() is passive
    assert active.controller.poll() is None


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
