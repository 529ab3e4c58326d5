"""What the ledger and the reading of JSON cost: a Pod's life, a heartbeat, a list, a body."""

from collections.abc import Callable
from itertools import count
from typing import Any

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import build
from asks import asked
from cardwise.engine.decide import Memo, decide
from cardwise.ledger import Ledger, Sighting
from cardwise.model import Request
from cardwise.settings import Settings
from cardwise.wire import extender
from cardwise.wire.gpunodes import gpunode_of
from cardwise.wire.pods import booking_of, pod_ref, request_of

NODES = pytest.mark.parametrize("nodes", [1_000, 5_000])
TENANTS = 60
"""Of the node that is looked at."""
MESH = build.all_links(8, nvlinks=2, path="PHB")


def small(number: int = 0) -> Request:
    return asked(f"p{number}", gpumem=1000, policy="binpack")


def report(node: str, at: int = 0) -> build.Json:
    minutes, seconds = divmod(at, 60)
    when = f"2026-11-29T12:{minutes % 60:02}:{seconds:02}Z"
    return build.gpunode(node, 8, memory=81920, links=MESH, reported_at=when)


def tenant(number: int, node: str) -> Sighting:
    text = build.allocation(f"GPU-{node}-{build.letter(number % 8)}")
    pod = build.pod(f"t{number}", node=node, allocated=text)
    return Sighting(pod=pod_ref(pod), version=1, node=node, booking=booking_of(pod))


def ledger_of(nodes: int) -> Ledger:
    ledger = Ledger()
    for number in range(nodes):
        ledger.apply_gpunode(gpunode_of(report(f"n{number}")), 0)
    for number in range(TENANTS):
        ledger.see(tenant(number, "n0"), 0)
    return ledger


@NODES
def test_life_of_a_pod(benchmark: BenchmarkFixture, nodes: int) -> None:
    """Held, bound, seen bound, gone; on a node with tenants."""
    ledger, numbers = ledger_of(nodes), count()
    booking = decide(small(), [ledger.view("n0")], Memo()).booking
    assert booking is not None

    def live() -> None:
        request = small(next(numbers))
        ledger.hold(request, booking, 0)
        ledger.begin_binding(request.pod.uid, 0)
        ledger.end_binding(request.pod.uid, 0, bound=True)
        ledger.see(Sighting(pod=request.pod, version=1, node="n0", booking=booking), 0)
        ledger.view("n0")
        ledger.see(Sighting(pod=request.pod, version=2, node="n0", gone=True), 0)
        ledger.view("n0")

    benchmark(live)


@pytest.mark.parametrize("without", [False, True], ids=["all", "without-one"])
def test_view_of_a_node(benchmark: BenchmarkFixture, without: bool) -> None:
    """Made anew from its tenants: after each change, and for each /bind."""
    ledger = ledger_of(1)
    account = ledger.account("n0")
    assert account is not None
    left_out = {tenant(0, "n0").pod.uid} if without else set()

    def look() -> object:
        account.made = None
        return ledger.view("n0", without=left_out)

    benchmark(look)


def test_heartbeat(benchmark: BenchmarkFixture) -> None:
    """A GPUNode of eight joined cards, reported again, from its JSON on."""
    ledger, at = ledger_of(10), count()
    reports = [report("n1", at) for at in range(60)]

    benchmark(lambda: ledger.apply_gpunode(gpunode_of(reports[next(at) % 60]), 0))


def test_list_compared(benchmark: BenchmarkFixture) -> None:
    """5,000 placed Pods in a list, as they are known."""
    ledger = ledger_of(100)
    listed = [tenant(number, f"n{number % 100}") for number in range(5_000)]
    for sighting in listed:
        ledger.see(sighting, 0)

    assert benchmark(lambda: ledger.reconcile(listed, 1, 1)) == []


# JSON ---------------------------------------------------------------------------------------------


def bodies(nodes: int) -> bytes:
    names = [f"node-{number:05}" for number in range(nodes)]
    return orjson.dumps({"Pod": build.pod(gpumem=1000, policy="binpack"), "NodeNames": names})


@NODES
def test_body_of_filter(benchmark: BenchmarkFixture, nodes: int) -> None:
    body = bodies(nodes)

    benchmark(lambda: extender.filter_call(extender.decoded(body)))


@NODES
@pytest.mark.parametrize("told", [False, True], ids=["made anew", "those known"])
def test_body_of_filter_about_the_same_nodes(
    benchmark: BenchmarkFixture, nodes: int, told: bool
) -> None:
    """Read, and found to be about the nodes of the call before."""
    body = bodies(nodes)
    known = frozenset(reversed(extender.filter_call(extender.decoded(body)).names))

    def read() -> bool:
        call = extender.filter_call(extender.decoded(body), known if told else frozenset())
        return call.asked is known or call.asked == known

    assert benchmark(read)


@NODES
@pytest.mark.parametrize("best", ["the last", "not named"])
def test_body_of_filter_unread(benchmark: BenchmarkFixture, nodes: int, best: str) -> None:
    """Read without its names, and one looked for."""
    body = bodies(nodes)
    name = f"node-{nodes - (best == 'the last'):05}"

    assert benchmark(lambda: name in extender.filter_call_in(body).about) is (best == "the last")


@NODES
def test_refusal_written(benchmark: BenchmarkFixture, nodes: int) -> None:
    """Every node refused."""
    call = extender.filter_call(extender.decoded(bodies(nodes)))
    refused = dict.fromkeys(call.names, "CardInsufficientMemory")

    benchmark(lambda: orjson.dumps(extender.filter_result(call, [], refused)))


READERS: dict[str, Callable[[], Any]] = {
    "request": lambda: request_of(POD, Settings()),
    "booking": lambda: booking_of(PLACED),
    "gpunode": lambda: gpunode_of(REPORT),
}
POD = build.pod(gpumem=1000, policy="mutex,binpack,numa")
PLACED = build.pod(node="n1", allocated=build.allocation("GPU-n1-a"))
REPORT = report("n1")


@pytest.mark.parametrize("what", list(READERS))
def test_reading(benchmark: BenchmarkFixture, what: str) -> None:
    benchmark(READERS[what])
