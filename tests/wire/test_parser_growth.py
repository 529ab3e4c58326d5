"""Sixteen times the text is about sixteen times the work: no annotation makes anybody wait.

CPU time of one run against another in the same process, the best of several: a ratio, so that a
slow machine fails nothing. What grows with the square comes to 256; caches that a long text does
not fit into, and others at work on the machine, cost a factor of two or three.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

import build
from cardwise import names, policy
from cardwise.controller.clock import Clock
from cardwise.controller.watching.mirror import Mirror
from cardwise.errors import CardwiseError
from cardwise.ledger import Ledger
from cardwise.quantity import whole
from cardwise.settings import Scheduling, Settings
from cardwise.wire import allocation, gpunodes
from cardwise.wire.requests import USER_ANNOTATIONS, request_of

pytestmark = pytest.mark.timeout(60)

KIB_250 = 250 * 1024
_TIMES = 16
_MOST = 80.0
_TOO_SHORT = 0.004
"""Seconds of CPU that are no measure; as a whole answer they are next to nothing."""

SHAPES: dict[str, Callable[[int], str]] = {
    "one word": lambda size: "x" * size,
    "words": lambda size: ",".join(f"w{at}" for at in range(size // 8)),
    "near words": lambda size: ",".join(f"binpac{at}" for at in range(size // 12)),
    "commas": lambda size: "," * size,
    "semicolons": lambda size: ";" * size,
    "colons": lambda size: ":" * size,
    "blanks": lambda size: " " * size,
    "blanks around a word": lambda size: " " * (size // 2) + "x" + " " * (size // 2),
    "digits": lambda size: "9" * size,
    "points": lambda size: "1." * (size // 2),
    "weights": lambda size: "slot=1," * (size // 7),
    "shares": lambda size: "".join(f"GPU-{at},NVIDIA,1,1:" for at in range(size // 22)),
    "containers": lambda size: "GPU-a,NVIDIA,1,1:;" * (size // 18),
    "commas in a share": lambda size: "GPU-a,NVIDIA,1,1" + "," * size,
}


def booked(text: str) -> None:
    """A bound Pod with this allocation is seen, and goes."""
    ledger = Ledger()
    ledger.apply_gpunode(gpunodes.gpunode_of(build.gpunode("n1", 64)), 0.0)
    mirror = Mirror(ledger, Settings(), Clock())
    pod = build.pod(node="n1", allocated=text)
    mirror.see_pod(pod)
    ledger.view("n1")
    mirror.see_pod(pod, deleted=True)


def asked(key: str) -> Callable[[str], Any]:
    def ask(text: str) -> Any:
        return request_of(build.pod(gpumem=1, annotations={key: text}), Settings())

    return ask


def nearest(text: str) -> Any:
    return [policy.nearest(name) for name in policy.parse(text, Scheduling()).unknown[:20]]


READERS: dict[str, Callable[[str], Any]] = {
    **{key: asked(key) for key in USER_ANNOTATIONS},
    "the nearest names": nearest,
    "an allocation": allocation.decode,
    "a booking": booked,
    "a quantity": whole,
    "a Node's cordon": lambda text: gpunodes.cordoned_by_annotation(
        build.node_object(annotations={names.NODE_CORDON: text})
    ),
}


def cost(read: Callable[[str], Any], text: str) -> float:
    """Seconds of CPU, the best of three."""
    best = float("inf")
    gc.disable()  # its rounds come with what other tests left behind
    try:
        for _ in range(3):
            began = time.thread_time()
            try:
                read(text)
            except CardwiseError as error:
                assert len(str(error)) < 1000  # noqa: PT017 - a sentence is an answer
            best = min(best, time.thread_time() - began)
    finally:
        gc.enable()
    return best


@pytest.mark.parametrize("reader", READERS)
def test_work_grows_with_the_text(reader: str) -> None:
    """Red when ``policy._known`` gathers words in a list, or ``decode`` cuts pieces off a rest."""
    read = READERS[reader]
    for what, shape in SHAPES.items():
        part, full = cost(read, shape(KIB_250 // _TIMES)), cost(read, shape(KIB_250))
        if full > _TOO_SHORT:
            assert full < _MOST * part, (what, part, full)
