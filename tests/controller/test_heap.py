"""What was loaded at the start is not looked at again, and what is given up of it is freed."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from cardwise.controller import heap


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


def test_what_is_given_up_later_is_freed() -> None:
    thing = Thing()
    gone = weakref.ref(thing)
    heap.set_aside()
    del thing

    assert gone() is None


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
