"""Whatever comes over a real socket: an answer within seconds, never a 500, never a traceback.

The server runs on a thread with a loop of its own, so that Hypothesis may ask it again and again
as kube-scheduler would: over HTTP, and with a client that knows nothing of it.
"""

import asyncio
import gc
import http.client
import json
import logging
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build
from cardwise import names
from cardwise.controller.extender import verbs
from controllers import World
from hostile import JSON, spoilt

pytestmark = pytest.mark.timeout(120)

Json = dict[str, Any]
NODES = ["n1", "n2", "unknown"]
MIB = 1024 * 1024
bounded = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.text)


class Served:
    """A controller's verbs on a port."""

    def __init__(self, port: int, world: World, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self._loop = loop
        self._port = port
        self._connection = self._new()

    def _new(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)

    def post(self, verb: str, body: bytes) -> Answer:
        """Ask; no answer within ten seconds fails the test."""
        try:
            self._connection.request("POST", f"/{verb}", body=body)
            answer = self._connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        except (http.client.HTTPException, OSError):
            self._connection.close()
            self._connection = self._new()
            raise

    def close(self) -> None:
        self._connection.close()

    def compare(self) -> None:
        """The ledger is compared with the cluster: no Pod that was asked about is there."""
        work = self.world.mirror.reconcile(self.world.cluster)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def ask(self, verb: str, body: Any) -> Answer:
        return self.post(verb, orjson.dumps(body, default=str))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    found: list[Served] = []

    async def serve() -> None:
        world = await World(
            build.gpunode("n1", 64, slots=1000),
            build.gpunode("n2", 4),
            *(build.node_object(name) for name in ("n1", "n2")),
            build.pod("known", gpumem=1000),
        ).load()
        parts = world.controller
        runner = web.AppRunner(verbs(parts.scheduler, parts.metrics, parts.health))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.append(Served(runner.addresses[0][1], world, loop))
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    found[0].close()
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    loop.close()


@pytest.fixture(autouse=True)
def _nothing_broke(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No handler may have died, whatever was answered for it; and no card stays held."""
    yield
    ledger = served.world.ledger
    for entry in list(ledger.entries()):
        ledger.drop_hold(entry.pod.uid, 0.0)
    died = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert died == []


def holds(answer: Answer) -> None:
    """The promise: an answer of the verb's, or one sentence why there is none."""
    assert answer.status in (200, 400, 413), answer
    assert "Traceback" not in answer.text
    if answer.status == 200:
        assert isinstance(answer.json, dict)
    else:
        assert answer.text.count("\n") == 1
        assert answer.text.endswith("\n")
        assert len(answer.text) < 1000


def filtering(pod: Any, nodes: Any = NODES) -> Json:
    return {"Pod": pod, "NodeNames": nodes}


def preempting(pod: Any) -> Json:
    victims = {"Pods": [{"UID": "uid-1"}, {"UID": "uid-2"}], "NumPDBViolations": 1}
    return {"Pod": pod, "NodeNameToMetaVictims": {"n1": victims, "unknown": victims}}


def binding(uid: str = "uid-default-known", node: str = "n1") -> Json:
    return {"PodName": "known", "PodNamespace": "default", "PodUID": uid, "Node": node}


def whole() -> Json:
    """A Pod in which there is much to spoil."""
    return build.pod(
        "w",
        containers=[
            build.container("a", gpu=1, gpumem=1000, gpucores=10, priority=1),
            build.container("b", gpu=2, percent=50),
        ],
        init=[build.container("i", gpu=1, sidecar=True)],
        policy="mutex,binpack,numa",
        node_policy="spread",
        weights="slots=1",
        exclusive="true",
        topology="true",
        numa_bind="true",
        annotations={"nvidia.com/use-gpuuuid": "GPU-a", "nvidia.com/nouse-gpuuuid": "GPU-b"},
        allocated="GPU-n1-a,NVIDIA,1000,0:;",
    )


# Anything anywhere --------------------------------------------------------------------------------


@bounded
@given(body=spoilt(st.builds(lambda: filtering(whole()))))
def test_a_spoilt_filter(served: Served, body: Any) -> None:
    answer = served.post("filter", dumped(body))

    holds(answer)
    if answer.status == 200 and not answer.json["Error"]:
        assert {*(answer.json["NodeNames"] or [])} <= {*NODES, *_texts(body)}


@bounded
@given(body=spoilt(st.builds(lambda: preempting(whole()))))
def test_a_spoilt_preempt(served: Served, body: Any) -> None:
    holds(served.post("preempt", dumped(body)))


@bounded
@given(body=spoilt(st.builds(binding)))
def test_a_spoilt_bind(served: Served, body: Any) -> None:
    holds(served.post("bind", dumped(body)))


@bounded
@given(verb=st.sampled_from(["filter", "preempt", "bind"]), body=JSON)
def test_anything_at_all(served: Served, verb: str, body: Any) -> None:
    holds(served.post(verb, dumped(body)))


@bounded
@given(
    verb=st.sampled_from(["filter", "preempt", "bind"]),
    at=st.integers(0, 2000),
    put=st.binary(max_size=8),
)
def test_bytes_in_the_wrong_place(served: Served, verb: str, at: int, put: bytes) -> None:
    whole_body = dumped({"filter": filtering, "preempt": preempting}.get(verb, _bind)(whole()))
    at %= len(whole_body)

    holds(served.post(verb, whole_body[:at] + put + whole_body[at + len(put) :]))
    holds(served.post(verb, whole_body[:at] + put))


@bounded
@given(
    name=st.text(max_size=300),
    namespace=st.text(max_size=300),
    uid=st.text(min_size=1, max_size=300),
    node=st.text(min_size=1, max_size=300),
)
def test_odd_names(served: Served, name: str, namespace: str, uid: str, node: str) -> None:
    pod = build.pod("x", gpumem=1000)
    pod["metadata"] |= {"name": name, "namespace": namespace, "uid": uid}

    answer = served.post("filter", dumped(filtering(pod, [node, "n1"])))

    holds(answer)
    if answer.status == 200:
        assert answer.json["NodeNames"] == ["n1"]
    bind = {"PodName": name, "PodNamespace": namespace, "PodUID": uid + "x", "Node": node}
    holds(served.post("bind", dumped(bind)))


# Deep, many, large --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize("depth", [100, 1000, 1020, 1024, 5000, 200_000])
@pytest.mark.parametrize(
    ("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"]
)
def test_a_deep_nest(served: Served, verb: str, depth: int, left: bytes, right: bytes) -> None:
    nest = left * depth + b"1" + right * depth
    for body in (
        nest,
        b'{"Pod":{"metadata":{"annotations":{"a":' + nest + b'}}},"NodeNames":["n1"]}',
        b'{"Pod":{"spec":' + nest + b'},"NodeNames":["n1"],"NodeNameToVictims":{}}',
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"n1","labels":' + nest + b"}}]}}",
        b'{"PodName":' + nest + b"}",
    ):
        holds(served.post(verb, body))


@pytest.mark.parametrize("containers", [1, 300])
@pytest.mark.parametrize("cards", [1, 64, 65, 2**31])
def test_many_containers_and_cards(served: Served, containers: int, cards: int) -> None:
    pod = build.pod(
        "many",
        containers=[
            build.container(f"c{number}", gpu=cards, gpumem=1) for number in range(containers)
        ],
        policy="binpack,numa",
    )

    answer = served.ask("filter", filtering(pod))
    holds(answer)
    assert answer.status == 200
    assert bool(answer.json["NodeNames"]) == (cards <= 64)
    holds(served.ask("preempt", preempting(pod)))


KIB_250 = 250 * 1024
LARGE = {
    "one word": "x" * KIB_250,
    "many words": ",".join(f"w{number}" for number in range(KIB_250 // 8)),
    "many near words": ",".join(f"binpac{number}" for number in range(KIB_250 // 12)),
    "commas": "," * KIB_250,
    "semicolons": ";" * KIB_250,
    "colons": ":" * KIB_250,
    "shares": "GPU-n1-a,NVIDIA,1,1:" * (KIB_250 // 20),
    "digits": "9" * KIB_250,
    "spaces": " " * KIB_250,
    "equals": "slots=1," * (KIB_250 // 8),
    "dots": "1." * (KIB_250 // 2),
    "beyond ASCII": "\u00e9\u4e2d\U0001f600" * (KIB_250 // 9),
}
KEYS = sorted(
    {
        value
        for key, value in vars(names).items()
        if key.isupper() and isinstance(value, str) and "/" in value
    }
)


@pytest.mark.parametrize("text", [pytest.param(text, id=what) for what, text in LARGE.items()])
def test_an_annotation_of_250_kib(served: Served, text: str) -> None:
    for key in KEYS:
        pod = build.pod("large", gpumem=1000)
        pod["metadata"]["annotations"] = {key: text}

        holds(served.ask("filter", filtering(pod)))
        holds(served.ask("preempt", preempting(pod)))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda text: build.container(text, gpu=1), id="a container's name"),
        pytest.param(lambda text: build.container("a", gpu=text), id="a count"),
        pytest.param(lambda text: build.container("a", gpu=1, gpumem=text), id="a memory"),
        pytest.param(
            lambda text: build.container("a", gpu=1, limits={text: "1"}), id="a resource's name"
        ),
    ],
)
@pytest.mark.parametrize("text", ["x", "9", "1e", ".", "-", "0", "\u0669", "\u00b2"])
def test_a_long_word_in_a_container(served: Served, make: Callable[[str], Json], text: str) -> None:
    pod = build.pod("long", containers=[make(text * KIB_250)])

    answer = served.ask("filter", filtering(pod))

    holds(answer)
    assert len(answer.text) < 10_000


def test_a_body_of_20_mib_is_refused_and_the_next_is_read(served: Served) -> None:
    for _ in range(3):
        try:
            answer = served.post("filter", b" " * (20 * MIB))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused before all of it was sent
        else:
            assert answer.status == 413
            holds(answer)
        assert served.ask("filter", filtering(build.pod("after"))).status == 200


def test_twenty_times_the_largest_cluster_is_read(served: Served) -> None:
    asked = [f"node-{number:06}" for number in range(100_000)]

    answer = served.ask("filter", filtering(build.pod("wide", gpumem=1000), [*asked, "n1"]))

    holds(answer)
    assert answer.json["NodeNames"] == ["n1"]


def test_memory_does_not_grow(served: Served) -> None:
    """Once a Pod is gone, next to nothing is kept of it, nor of what was said of it."""

    def storm(first: int, count: int) -> None:
        for number in range(first, first + count):
            policy = ",".join(f"w{number}{word}" for word in range(5_000))
            pod = build.pod(f"m{number}", gpus=73, gpumem=1000, policy=policy)
            cards = ",".join(f"GPU-{number}-{card}" for card in range(10_000))
            pod["metadata"]["annotations"] |= {names.USE_UUID: cards, "other": "x" * 100_000}
            holds(served.ask("filter", filtering(pod)))
            holds(served.ask("preempt", preempting(pod)))
        served.compare()
        gc.collect()

    tracemalloc.start()
    try:
        storm(0, 25)  # 10,000 UUIDs a Pod: now the memo is full
        before, _ = tracemalloc.get_traced_memory()
        storm(25, 10)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (after - before) / 10 < 20 * 1024, "bytes kept of each Pod that was asked about"


def dumped(body: Any) -> bytes:
    """JSON as a stranger may write it: half surrogate pairs, NaN and huge numbers included."""
    return json.dumps(body).encode()


def _bind(_: Json) -> Json:
    return binding()


def _texts(thing: Any) -> Iterator[str]:
    """Every text in it."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from _texts(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from _texts(value)
