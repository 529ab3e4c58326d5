"""What was loaded at the start is not looked at again, and no cycle is among it."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

import build
from asks import asked
from cardwise.controller import heap
from cardwise.controller.clock import Clock
from cardwise.controller.placing.decider import Decider
from cardwise.ledger import Ledger, Sighting
from cardwise.wire.gpunodes import gpunode_of


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class Thing:
    """Something that was loaded."""


def test_what_was_loaded_is_not_looked_at_again() -> None:
    # Red: `set_aside` without `freeze`.
    thing = Thing()
    heap.set_aside()

    assert not any(each is thing for each in gc.get_objects())


def test_garbage_is_not_set_aside() -> None:
    # Red: `set_aside` without `collect`.
    gc.disable()  # else it might be found by chance
    try:
        thing = Thing()
        thing.itself = thing  # type: ignore[attr-defined]
        gone = weakref.ref(thing)
        del thing
        heap.set_aside()
    finally:
        gc.enable()

    assert gone() is None


def test_what_the_ledger_gives_up_is_freed_without_the_collector() -> None:
    """What is a cycle and set aside would stay for ever.

    Red: `NodeAccount` has a reference to itself.
    """
    request = asked(gpumem=1000)
    gc.collect()
    gc.disable()
    try:
        ledger = Ledger()
        for name in ("n1", "n2"):
            ledger.apply_gpunode(gpunode_of(build.gpunode(name, 2)), 0)
        decider = Decider(ledger, Clock())
        for _ in range(3):
            decider.decide_and_hold(request, {"n1", "n2"})
        ledger.see(Sighting(pod=request.pod, version=1, gone=True), 0)
        ledger.remove_gpunode("n1", 0)
        del ledger, decider

        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_what_came_with_the_watches_is_set_aside_a_minute_later() -> None:
    # Red: `set_aside_later` sets nothing aside, or ends: the controller would end with it.
    task = asyncio.create_task(heap.set_aside_later())
    await asyncio.sleep(59)
    thing = Thing()
    assert any(each is thing for each in gc.get_objects())
    await asyncio.sleep(2)

    assert not any(each is thing for each in gc.get_objects())
    assert not task.done()
    task.cancel()
