"""SIGTERM: what has begun is answered, no Binding or pin is sent any more, and nothing is lost.

The tests ask in kube-scheduler's place, for Pods that nobody else asks for; by the door of gates
nobody has to ask. A proxy holds what the controller says to the API server. What is written beside
each test is the smallest change to the product after which it failed.
"""

import http.client
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import fault_proxy
from cardwise.controller.lease.tenure import WRITE_SECONDS
from fault_proxy import FaultProxy
from stage import Json, Stage

pytestmark = pytest.mark.timeout(90)

STOPPING = "the controller is stopping; ask again"
PODS, ROOM = 60, 40


class Proxied(Stage):
    """A cluster whose controller goes by a proxy, which does nothing by itself."""

    proxy: FaultProxy


@pytest.fixture(scope="module")
def theatre(request: pytest.FixtureRequest) -> Iterator[Proxied]:
    door = request.param
    with Proxied.raised(audit=True, door=door) as raised, FaultProxy(raised.cp) as proxy:
        raised.proxy = proxy
        raised.account = proxy.through(raised.account)
        raised.controller.terminate()
        raised.start_controller()
        yield raised


@pytest.fixture
def proxy(stage: Proxied) -> FaultProxy:
    """The proxy; on the stage are a node with one card, and a Pod that fits, which nobody asks for.

    By the door of gates the Pod comes when the test begins.
    """
    stage.node("node-a", 1)
    if not stage.gates:
        stage.pod("p", gpumem=1000, spec={"schedulerName": "nobody"})
    return stage.proxy


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def ask(stage: Stage, verb: str, body: Json) -> Json:
    """Ask the controller, however long its answer takes."""
    request = urllib.request.Request(  # noqa: S310 - http
        f"{stage.extender_url}/{verb}", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
        said: Json = json.load(answer)
        return said


def spoken(connection: http.client.HTTPConnection, body: Json) -> bytes:
    """Ask /filter on a connection that is open."""
    connection.request("POST", "/filter", json.dumps(body))
    return connection.getresponse().read()


def to_filter(stage: Stage) -> Json:
    return {"Pod": stage.get("p"), "NodeNames": ["node-a"]}


def filtered(stage: Stage) -> None:
    """Ask for the Pod in kube-scheduler's place, where somebody has to."""
    if not stage.gates:
        assert ask(stage, "filter", to_filter(stage))["NodeNames"] == ["node-a"]


def to_bind(stage: Stage) -> Json:
    return {
        "PodName": "p",
        "PodNamespace": stage.namespace,
        "PodUID": stage.get("p")["metadata"]["uid"],
        "Node": "node-a",
    }


def begun(stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor) -> "Future[Json]":
    """A /bind, or a pin, under way, as far as what the proxy was told to hold.

    What the controller answers to /bind; a pin has nobody to answer.
    """
    if stage.gates:
        stage.pod("p", gpumem=1000)
        asked: Future[Json] = Future()
        asked.set_result({"Error": ""})
    else:
        asked = beside.submit(ask, stage, "bind", to_bind(stage))
    stage.cp.wait("the proxy to hold it", lambda: proxy.held() is not None, 20)
    return asked


def terminated(stage: Stage) -> datetime:
    """SIGTERM; when it was taken."""
    lines = stage.controller.tail(200).count("stopping: what has begun")
    stage.controller.signal(signal.SIGTERM)
    stage.cp.wait(
        "it to be taken",
        lambda: stage.controller.tail(200).count("stopping: what has begun") > lines,
        10,
    )
    return datetime.now(UTC)


def given(stage: Stage, *, since: datetime | None = None) -> list[str]:
    """The Pods of this test whose Binding, or pin, reached the API server, by its audit log."""
    verb, subresource = ("patch", "") if stage.gates else ("create", "binding")
    requests = [json.loads(line) for line in stage.audit_log() if b'"pods"' in line]
    return [
        request["objectRef"]["name"]
        for request in requests
        if request["objectRef"].get("namespace") == stage.namespace
        and (request["verb"], request["objectRef"].get("subresource", "")) == (verb, subresource)
        and (since is None or datetime.fromisoformat(request["requestReceivedTimestamp"]) > since)
    ]


# Red with shutdown_timeout=0.1 in serving._listen.
@pytest.mark.both_doors
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault_proxy.HOLD, id="on its way"),
        pytest.param(fault_proxy.KEEP, id="done, its answer on the way back"),
    ],
)
def test_what_has_begun_is_brought_to_its_end(
    stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor, fault: str
) -> None:
    filtered(stage)
    proxy.next(**stage.write_of("p"), fault=fault)
    asked = begun(stage, proxy, beside)

    terminated(stage)
    time.sleep(0.5)
    assert stage.controller.poll() is None
    assert asked.done() == stage.gates
    proxy.release(on=True)

    assert asked.result() == {"Error": ""}
    assert stage.controller.wait(10) == 0
    assert stage.placed("p") == 0
    assert given(stage) == ["p"]


# Red with runner.shutdown() for runner.cleanup() in serving.serve.
def test_who_asks_afterwards_is_refused(
    stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor
) -> None:
    host, _, port = stage.extender_url.removeprefix("http://").partition(":")
    open_before = http.client.HTTPConnection(host, int(port), timeout=5)
    open_before.request("GET", "/healthz")
    open_before.getresponse().read()
    ask(stage, "filter", to_filter(stage))
    proxy.next("/binding", fault_proxy.HOLD)
    asked = begun(stage, proxy, beside)

    terminated(stage)

    with pytest.raises(urllib.error.URLError, match="refused"):
        ask(stage, "filter", to_filter(stage))
    with pytest.raises(ConnectionError):
        spoken(open_before, to_filter(stage))
    open_before.close()
    proxy.release(on=True)
    assert asked.result() == {"Error": ""}
    assert stage.controller.wait(10) == 0


# Red where Binder._look_and_send asks the term alone, not the duty.
@pytest.mark.both_doors
def test_a_write_whose_outcome_is_not_known_is_not_sent_again(
    stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor
) -> None:
    filtered(stage)
    proxy.next(**stage.write_of("p"), fault=fault_proxy.HOLD)
    asked = begun(stage, proxy, beside)

    terminated(stage)
    proxy.release(on=False)

    if not stage.gates:
        assert "the outcome of the Binding is not known yet" in asked.result()["Error"]
    assert stage.controller.wait(20) == 0
    assert given(stage) == []


# Red where Scheduler._ask_for does not ask the duty again after reading.
def test_a_bind_that_only_read_the_pod_sends_no_binding(
    stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor
) -> None:
    proxy.next("/pods/p", fault_proxy.HOLD)  # no /filter came before, so the Pod must be read
    asked = begun(stage, proxy, beside)

    terminated(stage)
    proxy.release(on=True)

    assert asked.result() == {"Error": STOPPING}
    assert stage.controller.wait(10) == 0
    assert given(stage) == []


# Red where neither Dispatcher._decide_all nor Pinner._run asks the duty.
@pytest.mark.gates_alone
def test_a_pod_that_comes_while_it_stops_stays_behind_its_gate(
    stage: Stage, proxy: FaultProxy, beside: ThreadPoolExecutor
) -> None:
    stage.node("node-b", 1)
    proxy.next(**stage.write_of("p"), fault=fault_proxy.HOLD)
    begun(stage, proxy, beside)

    terminated(stage)
    stage.pod("q", gpumem=1000)
    time.sleep(0.5)
    assert stage.controller.poll() is None
    proxy.release(on=True)

    assert stage.controller.wait(10) == 0
    assert given(stage) == ["p"]
    stage.start_controller()
    stage.placed("q")


# Red where Mirror.reconcile drops the Pods it listed: the oracle sees cards given twice.
@pytest.mark.both_doors
def test_in_a_storm_nothing_is_lost(stage: Stage) -> None:
    stage.node("node-a", 4)
    # 15360 MiB hold ten, as many as a card has slots.

    def create() -> None:
        for number in range(PODS):
            stage.pod(f"p{number:02}", gpumem=1500)
            time.sleep(0.05)  # else all are bound before SIGTERM is taken

    creating = threading.Thread(target=create)
    creating.start()
    stage.cp.wait("some to be bound", lambda: len(bound(stage)) >= ROOM // 4, 30)

    since = terminated(stage)

    assert stage.controller.wait(15) == 0
    creating.join()
    time.sleep(WRITE_SECONDS + 0.5)
    # What was under way when SIGTERM came lands within its deadline; nothing comes later.
    assert given(stage, since=since + timedelta(seconds=WRITE_SECONDS)) == []
    before = bound(stage)
    assert len(before) < ROOM, "it went on to the end"
    stage.start_controller()
    stage.cp.wait("the cards to be full", lambda: len(bound(stage)) == ROOM, 60)
    assert sorted(given(stage)) == sorted(bound(stage)), "one write a Pod"
    assert {name: text for name, text in bound(stage).items() if name in before} == before
    stage.settled()
    assert stage.legal() == []
    assert stage.fitting() == []


def bound(stage: Stage) -> dict[str, str]:
    """The node and cards of every bound Pod."""
    return {
        name: f"{pod['spec']['nodeName']} {sorted(pod['metadata']['annotations'].items())}"
        for name, pod in stage.pods().items()
        if "nodeName" in pod["spec"]
    }
