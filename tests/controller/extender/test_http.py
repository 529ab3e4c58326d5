"""The HTTP surface, on a real socket: bodies of every kind, health, metrics."""

import asyncio
import gzip
import io
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

import build
from cardwise.controller.extender.http import reports, verbs
from cardwise.controller.reports.metrics import Metrics
from cardwise.ledger import Stage
from cardwise.wire.extender import BODY_BYTES
from controllers import OWN, World, background, passing

# Real sockets keep real time.
pytestmark = pytest.mark.looptime(False)

Json = dict[str, Any]
FILTER = {"Pod": build.pod(gpumem=1000), "NodeNames": ["n1", "n2"]}


@pytest.fixture
async def world() -> World:
    return await World(build.gpunode("n1"), build.pod(gpumem=1000)).load()


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    parts = world.controller
    app = verbs(parts.scheduler, parts.metrics, parts.health)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.fixture
async def outside(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    """Who reaches the second port."""
    app = reports(world.controller.metrics, world.controller.health)
    async with TestClient(TestServer(app)) as client:
        yield client


def is_one_sentence(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and "Traceback" not in text


# The verbs ----------------------------------------------------------------------------------------


async def test_a_pod_goes_through_all_verbs(client: TestClient[Any, Any], world: World) -> None:
    answer = await client.post("/filter", json=FILTER)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert await answer.json() == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": "NodeHasNoCards"},
        "Error": "",
    }

    victims = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}
    answer = await client.post(
        "/preempt", json={"Pod": build.pod(gpumem=1000), "NodeNameToMetaVictims": victims}
    )
    assert await answer.json() == {"NodeNameToMetaVictims": victims}

    uid = "uid-default-p"
    bind = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    answer = await client.post("/bind", json=bind)
    assert (answer.status, await answer.json()) == (200, {"Error": ""})
    assert world.used() == {"GPU-n1-a": 1000}


async def test_each_call_is_about_the_nodes_that_it_names(
    client: TestClient[Any, Any], world: World
) -> None:
    # Red: the names of the call before are taken for those of this one.
    world.mirror.see_gpunode(build.gpunode("n2"))
    for number, names in enumerate([["n1", "n2"], ["n2", "n1"], ["n2"], ["n1"], ["n2", "n2"]]):
        asked = {"Pod": build.pod(f"p{number}", gpumem=1000), "NodeNames": names}
        answer = await (await client.post("/filter", json=asked)).json()
        assert set(answer["NodeNames"]) <= set(names)
        assert len(answer["NodeNames"]) == 1


async def test_field_names_are_read_whatever_their_case(client: TestClient[Any, Any]) -> None:
    body = {"pod": build.pod(gpumem=1000), "nodenames": ["n1"]}

    answer = await client.post("/filter", json=body)

    assert (await answer.json())["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""]
)
async def test_the_content_type_does_not_matter(
    client: TestClient[Any, Any], content_type: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}

    answer = await client.post("/filter", data=orjson.dumps(FILTER), headers=headers)

    assert (answer.status, answer.content_type) == (200, "application/json")


BROKEN = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"{", id="half an object"),
    pytest.param(b"\xff\xfe\x00", id="no text"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[]", id="a list"),
    pytest.param(b'"x"', id="a text"),
    pytest.param(b"{}", id="no field at all"),
    pytest.param(b'{"Pod": []}', id="a Pod that is a list"),
    pytest.param(b'{"Pod": {}, "NodeNames": 7}', id="names that are a number"),
    pytest.param(b'{"Pod": {}, "NodeNames": [7]}', id="a name that is a number"),
    pytest.param(b'{"Pod": {}, "Nodes": {"items": [1]}}', id="a node that is a number"),
    pytest.param(b"[" * 100_000, id="a nest without end"),
]


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize("body", BROKEN)
async def test_a_broken_body_gets_400_and_one_sentence(
    client: TestClient[Any, Any], verb: str, body: bytes
) -> None:
    answer = await client.post(f"/{verb}", data=body)

    assert answer.status == 400
    assert is_one_sentence(await answer.text())


async def test_a_body_that_is_no_gzip_gets_400(client: TestClient[Any, Any]) -> None:
    answer = await client.post(
        "/filter", data=orjson.dumps(FILTER), headers={"Content-Encoding": "gzip"}
    )

    assert answer.status == 400
    assert "Traceback" not in await answer.text()


async def test_a_packed_body_is_read(client: TestClient[Any, Any]) -> None:
    answer = await client.post(
        "/filter", data=gzip.compress(orjson.dumps(FILTER)), headers={"Content-Encoding": "gzip"}
    )

    assert (await answer.json())["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("size", "status"),
    [
        pytest.param(BODY_BYTES, 200, id="16 MiB are read"),
        pytest.param(BODY_BYTES + 1, 413, id="more are not"),
    ],
)
async def test_how_large_a_body_may_be(
    client: TestClient[Any, Any], size: int, status: int
) -> None:
    body = orjson.dumps(FILTER)

    answer = await client.post("/filter", data=io.BytesIO(body + b" " * (size - len(body))))

    assert answer.status == status
    if status == 413:
        assert is_one_sentence(await answer.text())
        assert str(BODY_BYTES) in await answer.text()


async def test_a_body_that_unpacks_to_too_much_is_not_read(client: TestClient[Any, Any]) -> None:
    packed = gzip.compress(b" " * (BODY_BYTES + 1))

    answer = await client.post("/filter", data=packed, headers={"Content-Encoding": "gzip"})

    assert answer.status in (400, 413)
    assert "Traceback" not in await answer.text()


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({}, id="empty"),
        pytest.param({"metadata": 1, "spec": 2, "status": 3}, id="numbers everywhere"),
        pytest.param({"spec": {"containers": {"a": 1}}}, id="containers that are no list"),
        pytest.param(
            {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": [1]}}}]}},
            id="a quantity that is a list",
        ),
    ],
)
async def test_no_pod_brings_a_traceback(client: TestClient[Any, Any], pod: Json) -> None:
    for verb, more in [("filter", {"NodeNames": ["n1"]}), ("preempt", {"NodeNameToVictims": {}})]:
        answer = await client.post(f"/{verb}", json={"Pod": pod, **more})
        assert answer.status == 200
        assert (await answer.json()).get("Error", "") == ""


async def test_what_goes_wrong_inside_is_told_without_a_traceback(
    client: TestClient[Any, Any], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("inside")

    world.ledger.view = broken  # type: ignore[method-assign]

    answer = await client.post("/filter", json=FILTER)

    assert answer.status == 500
    text = await answer.text()
    assert "Traceback" not in text
    assert "inside" not in text
    assert "ZeroDivisionError" in caplog.text


async def test_only_post_calls_a_verb(client: TestClient[Any, Any]) -> None:
    assert (await client.get("/filter")).status == 405
    assert (await client.post("/nothing")).status == 404


async def test_a_caller_that_hangs_up_does_not_stop_its_bind(
    client: TestClient[Any, Any], world: World
) -> None:
    world.chosen(build.pod(gpumem=1000), "n1")
    world.cluster.slow("bind", 0.3)
    uid = "uid-default-p"
    bind = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.post("/bind", json=bind)

    await passing(0.5)
    assert world.cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"
    assert world.stage(build.pod()) is Stage.BOOKED


# Health and metrics -------------------------------------------------------------------------------


async def test_probes_and_metrics_are_answered_on_both_ports(
    client: TestClient[Any, Any], outside: TestClient[Any, Any]
) -> None:
    for caller in (client, outside):
        for path in ("/healthz", "/livez", "/readyz"):
            answer = await caller.get(path)
            assert (answer.status, await answer.text()) == (200, "ok\n")
        answer = await caller.get("/metrics")
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        names = {it.name for it in text_string_to_metric_families(await answer.text())}
        assert {"hami_gpu_memory_limit_bytes", "cardwise_holds"} <= names
        assert {"cardwise_decision_seconds", "cardwise_bind_seconds"} <= names


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
async def test_the_open_port_places_nothing(outside: TestClient[Any, Any], verb: str) -> None:
    assert (await outside.post(f"/{verb}", json=FILTER)).status == 404


async def test_readiness_and_liveness_say_why_not(
    outside: TestClient[Any, Any], world: World
) -> None:
    world.controller.duty.loaded = False
    answer = await outside.get("/readyz")
    assert (answer.status, await answer.text()) == (503, "ledger not loaded yet; ask again\n")

    world.controller.health.own_pod = None
    assert (await outside.get("/livez")).status == 200
    assert (await outside.get("/healthz")).status == 200


async def test_a_silent_watch_fails_the_liveness_probe(
    outside: TestClient[Any, Any], world: World
) -> None:
    world.controller.health.own_pod = OWN
    world.controller.health._echo -= 500.0

    answer = await outside.get("/livez")

    assert answer.status == 503
    assert is_one_sentence(await answer.text())


async def test_calls_are_timed_by_how_they_ended(
    client: TestClient[Any, Any], world: World
) -> None:
    await client.post("/filter", json=FILTER)
    await client.post("/filter", data=b"{")
    world.controller.duty.loaded = False
    await client.post("/filter", json=FILTER)

    text = await (await client.get("/metrics")).text()
    for result in ("ok", "bad", "error"):
        assert f'cardwise_decision_seconds_count{{result="{result}",verb="filter"}} 1.0' in text


async def test_others_have_their_turn_between_two_parts_of_the_metrics(world: World) -> None:
    # Red: `show_metrics` without a pause after a part.
    turns, seen = [0], []

    class Parts(Metrics):
        def parts(self) -> Iterator[bytes]:
            for _ in range(20):
                seen.append(turns[0])
                yield b"# a part\n"

    async def take_turns() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    app = reports(Parts(world.ledger), world.controller.health)
    async with TestClient(TestServer(app)) as client, background(take_turns()):
        text = await (await client.get("/metrics")).text()

    assert text == "# a part\n" * 20
    assert len(set(seen)) == 20
