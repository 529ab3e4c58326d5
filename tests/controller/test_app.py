"""The whole process against an API server on a loopback port: its start, its work, its stop."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import build
from cardwise.controller import serving
from cardwise.controller.app import Controller
from cardwise.controller.lease.tenure import Election
from cardwise.controller.serving import Addresses, serve
from cardwise.controller.watching import handlers, watch
from cardwise.controller.watching.mirror import Mirror
from cardwise.controller.watching.watch import Watchman
from cardwise.kube import connect
from cardwise.ledger import PodEntry
from cardwise.settings import Settings
from controllers import OWN
from fakes.apiserver import ClusterServer
from fakes.cluster import FakeCluster, refused, unanswered

# Real sockets, real signals, real time.
pytestmark = [pytest.mark.looptime(False), pytest.mark.timeout(30)]

Json = dict[str, Any]
BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "n1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A controller that serves a fake cluster over HTTP."""

    def __init__(self, server: ClusterServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.cluster = server.cluster
        self.session = session
        self.verbs = f"http://127.0.0.1:{free_port()}"
        self.reports = f"http://127.0.0.1:{free_port()}"
        self.task: asyncio.Task[None] | None = None

    async def start(
        self, directory: Path, *, ready: bool = True, election: Election | None = None
    ) -> None:
        client = await connect(self.server.kubeconfig(directory))
        addresses = Addresses(
            extender=("127.0.0.1", int(self.verbs.rpartition(":")[2])),
            reports=("127.0.0.1", int(self.reports.rpartition(":")[2])),
        )
        self.task = asyncio.create_task(serve(client, Settings(), addresses, election))
        await self.until_ready(200 if ready else 503)

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
        """Ask until the answer is yes."""
        async with asyncio.timeout(seconds):
            for _ in range(10_000):
                if await holds():
                    return
                await asyncio.sleep(0.02)

    async def until_ready(self, status: int = 200, seconds: float = 10.0) -> None:
        """Wait for an answer of /readyz."""

        async def answered() -> bool:
            return await self.status(f"{self.reports}/readyz") == status

        await self.until(answered, seconds)

    async def until_watching(self) -> None:
        """Wait until all four kinds are watched."""

        async def watching() -> bool:
            return len({it.path for it in self.server.seen if "watch" in it.query}) == 4

        await self.until(watching)

    async def until_metrics(self, holds: Callable[[str], bool]) -> None:
        """Show the watches what was written until the metrics say so."""

        async def told() -> bool:
            await self.server.show()
            return holds(await self.metrics())

        await self.until(told)

    async def status(self, url: str) -> int | None:
        try:
            async with self.session.get(url) as answer:
                return answer.status
        except aiohttp.ClientError:
            return None

    async def metrics(self) -> str:
        async with self.session.get(f"{self.reports}/metrics") as answer:
            return await answer.text()

    async def post(self, verb: str, body: Json) -> Json:
        async with self.session.post(f"{self.verbs}/{verb}", json=body) as answer:
            said: Json = await answer.json()
            return said

    async def filter(self, *names: str) -> Json:
        return await self.post("filter", {"Pod": build.pod(gpumem=1000), "NodeNames": list(names)})

    def terminate(self, seconds: float) -> None:
        """SIGTERM, so many seconds from now."""
        asyncio.get_running_loop().call_later(seconds, os.kill, os.getpid(), signal.SIGTERM)

    async def ended(self) -> None:
        """Wait for the end; an error of the process is raised."""
        assert self.task is not None
        async with asyncio.timeout(10.0):
            await self.task

    async def stop(self) -> None:
        """SIGTERM, and the end."""
        self.terminate(0.0)
        await self.ended()


@pytest.fixture
async def process(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    # Kopf takes the tasks of the server beside it for its own, and waits for their end.
    monkeypatch.setattr(handlers, "KOPF_SECONDS", 0.5)
    cluster = FakeCluster(build.gpunode("n1"), build.node_object("n1"), build.pod(gpumem=1000))
    async with (
        ClusterServer(cluster).running() as server,
        aiohttp.ClientSession() as session,
    ):
        assert isinstance(server, ClusterServer)
        process = Process(server, session)
        yield process
        if process.task is not None and not process.task.done():
            process.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await process.task


async def test_a_pod_is_placed_watched_and_forgotten(
    process: Process, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await process.start(tmp_path)

    assert (await process.filter("n1"))["NodeNames"] == ["n1"]
    assert await process.post("bind", BIND) == {"Error": ""}
    assert process.cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"

    await process.until_watching()
    process.cluster.put(build.gpunode("n2"))
    await process.until_metrics(lambda text: 'node="n2"' in text)
    assert 'pod="p"' in await process.metrics()
    process.cluster.remove("Pod", "p", "default")
    await process.until_metrics(lambda text: 'pod="p"' not in text)

    await process.stop()
    assert "ledger loaded: 1 GPUNodes; answering" in caplog.text
    assert await process.status(f"{process.verbs}/healthz") is None
    assert "Cleanup activity is not executed" not in caplog.text
    assert "Unclosed" not in caplog.text


async def test_what_was_loaded_is_set_aside_from_the_collector_of_cycles(
    process: Process, tmp_path: Path
) -> None:
    # Red: `serve` does not call `heap.set_aside`, or calls it before it has loaded.
    placed = build.pod("old", node="n1", gpumem=1000, allocated=build.allocation("GPU-n1-a"))
    process.cluster.put(placed)
    gc.unfreeze()
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, PodEntry)}
    try:
        await process.start(tmp_path)
        loaded = [each for each in gc.get_objects() if isinstance(each, PodEntry)]
        assert [each.pod.name for each in loaded if id(each) not in before] == []
        gc.unfreeze()
        now = [each for each in gc.get_objects() if isinstance(each, PodEntry)]
        assert "old" in [each.pod.name for each in now if id(each) not in before]
        await process.stop()
    finally:
        gc.unfreeze()


# Red: no doubt after an exception (`handlers._handler`).
@pytest.mark.parametrize("what", ["it came", "it went"])
async def test_an_event_that_could_not_be_taken_is_made_up_for_soon(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    take, failed = Mirror.see_pod, []

    def fails_once(self: Mirror, pod: Json, *, deleted: bool = False) -> None:
        if pod["metadata"]["name"] == "t" and deleted == (what == "it went") and not failed:
            failed.append(pod)
            raise ZeroDivisionError("inside")
        take(self, pod, deleted=deleted)

    monkeypatch.setattr(Mirror, "see_pod", fails_once)
    await process.start(tmp_path)

    async def calm() -> bool:
        lists = [it for it in process.server.seen if it.path == "/api/v1/pods"]
        return len([it for it in lists if "watch" not in it.query]) >= 3

    await process.until(calm)  # the first list, Kopf's, and the one that comes after Kopf's
    loop = asyncio.get_running_loop()

    process.cluster.put(build.pod("t", node="n1", allocated=build.allocation("GPU-n1-a")))
    await process.until_metrics(lambda text: 'pod="t"' in text)
    if what == "it went":
        process.cluster.remove("Pod", "t", "default")
        began = loop.time()
        await process.until_metrics(lambda text: 'pod="t"' not in text)
        assert loop.time() - began < 4.0

    assert len(failed) == 1
    assert "cardwise_ledger_repairs_total 1.0" in await process.metrics()
    await process.stop()


async def test_kopf_writes_nothing(process: Process, tmp_path: Path) -> None:
    await process.start(tmp_path)
    await process.until_watching()
    await process.stop()

    writes = {it.path for it in process.server.seen if it.method != "GET"}
    ours = {"/apis/cardwise.dev/v1alpha1/gpunodes/n1/status", "/api/v1/nodes/n1"}
    assert writes <= ours


async def test_it_answers_an_error_until_the_ledger_is_loaded(
    process: Process, tmp_path: Path
) -> None:
    process.server.cluster.objects["Pod"]["default", "late"] = build.pod("late")
    held = process.server._list

    def broken(kind: str) -> Json:
        raise RuntimeError("not yet")

    process.server._list = broken  # type: ignore[method-assign]
    await process.start(tmp_path, ready=False)
    assert (await process.filter("n1"))["Error"] == "ledger not loaded yet; ask again"
    assert (await process.post("bind", BIND))["Error"] == "ledger not loaded yet; ask again"
    assert await process.status(f"{process.reports}/livez") == 200

    process.server._list = held  # type: ignore[method-assign]
    await process.until_ready()
    await process.stop()


async def test_what_came_to_be_after_the_first_list_is_known_before_the_first_answer(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Red: `serve` does not wait for `hear`.
    load = Watchman.load

    async def loads_and_then_a_node_comes(self: Watchman) -> None:
        await load(self)
        nodes = dict(process.cluster.objects["Node"])
        process.cluster.objects["Node"].clear()
        process.cluster.put(build.node_object("n0", gpus=10))  # first of a list, as by its name
        process.cluster.objects["Node"] |= nodes

    monkeypatch.setattr(Watchman, "load", loads_and_then_a_node_comes)
    await process.start(tmp_path)

    refused = (await process.filter("n0"))["FailedAndUnresolvableNodes"]

    assert refused == {"n0": "NodeNotReported"}
    await process.stop()


async def test_a_long_load_is_no_silence_of_the_watch(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in [("NAMESPACE", OWN.namespace), ("NAME", OWN.name), ("UID", OWN.uid)]:
        monkeypatch.setenv(f"POD_{name}", value)
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 1.0)
    held = process.server._list

    def broken(kind: str) -> Json:
        raise RuntimeError("not yet")

    process.server._list = broken  # type: ignore[method-assign]
    await process.start(tmp_path, ready=False)

    async def given_up() -> bool:
        return await process.status(f"{process.reports}/livez") == 503

    await process.until(given_up)
    process.server._list = held  # type: ignore[method-assign]
    await process.until_ready()
    assert await process.status(f"{process.reports}/livez") == 200
    await process.stop()


async def test_a_replica_whose_scheduler_does_not_lead_is_ready_answers_errors_and_writes_nothing(
    process: Process, tmp_path: Path
) -> None:
    process.cluster.put(
        {
            "kind": "Lease",
            "metadata": {"namespace": "cardwise-system", "name": "cardwise-scheduler"},
            "spec": {"holderIdentity": "other_uuid", "leaseDurationSeconds": 15},
        }
    )
    await process.start(tmp_path, election=Election(identity="this"))

    async def knows() -> bool:
        said = await process.filter("n1")
        return said["Error"].endswith('the Lease is held by "other_uuid"')

    await process.until(knows)
    assert await process.post("bind", BIND) == {"Error": (await process.filter("n1"))["Error"]}
    assert await process.status(f"{process.reports}/readyz") == 200
    assert await process.status(f"{process.reports}/livez") == 200
    assert "cardwise_active 0.0" in await process.metrics()
    await process.until_watching()

    await process.stop()
    assert [it.path for it in process.server.seen if it.method != "GET"] == []


async def test_sigterm_while_it_loads_is_obeyed(process: Process, tmp_path: Path) -> None:
    def broken(kind: str) -> Json:
        raise RuntimeError("not yet")

    process.server._list = broken  # type: ignore[method-assign]
    await process.start(tmp_path, ready=False)

    await process.stop()

    assert process.task is not None
    assert process.task.done()
    assert [it.path for it in process.server.seen if it.method != "GET"] == []


async def test_what_has_begun_is_answered_and_nothing_is_begun(
    process: Process, tmp_path: Path
) -> None:
    await process.start(tmp_path)
    await process.filter("n1")
    process.cluster.slow("bind", 0.5)
    # No task of the test's own: Kopf, in its end, cancels every task that began after it.
    process.terminate(0.2)

    assert await process.post("bind", BIND) == {"Error": ""}

    await process.ended()
    assert process.cluster.called("bind") == 1
    assert process.cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"


async def test_an_idle_connection_does_not_delay_the_stop(process: Process, tmp_path: Path) -> None:
    await process.start(tmp_path)
    await process.filter("n1")  # its connection is kept open
    loop = asyncio.get_running_loop()
    began = loop.time()

    await process.stop()

    assert loop.time() - began < 5.0


async def test_a_binding_without_an_outcome_does_not_outlive_the_stop(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_FINISH_SECONDS", 0.3)
    await process.start(tmp_path)
    await process.filter("n1")
    process.cluster.fail("bind", unanswered(), *[refused(500)] * 100)
    process.terminate(0.2)

    with pytest.raises(aiohttp.ClientError):
        await process.post("bind", BIND)

    sent = process.cluster.called("bind")
    await process.ended()
    await asyncio.sleep(0.7)
    assert process.cluster.called("bind") == sent == 2


@pytest.mark.parametrize(
    ("end", "message"),
    [
        pytest.param(ZeroDivisionError("inside"), "inside", id="of an error"),
        pytest.param(None, "ended by itself", id="without one"),
    ],
)
async def test_a_part_that_ends_ends_the_process(
    process: Process,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Exception | None,
    message: str,
) -> None:
    async def tick(_: Watchman) -> None:
        await asyncio.sleep(0.5)
        if end is not None:
            raise end

    monkeypatch.setattr(Watchman, "tick", tick)
    await process.start(tmp_path)
    assert process.task is not None

    with pytest.raises((ZeroDivisionError, RuntimeError), match=message):
        await process.task


async def test_a_port_that_is_taken_is_an_error(process: Process, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process.reports = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = await connect(process.server.kubeconfig(tmp_path))
        addresses = Addresses(
            extender=("127.0.0.1", free_port()), reports=("127.0.0.1", taken.getsockname()[1])
        )

        with pytest.raises(OSError, match="address already in use"):
            await serve(client, Settings(), addresses)


@pytest.mark.timeout(60)
async def test_the_installed_command_stops_by_sigterm_without_a_complaint(
    process: Process, tmp_path: Path
) -> None:
    command = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("cardwise-controller"),
        *("--kubeconfig", process.server.kubeconfig(tmp_path)),
        *("--listen", process.verbs.removeprefix("http://")),
        *("--metrics-listen", process.reports.removeprefix("http://")),
        stderr=asyncio.subprocess.PIPE,
    )
    await process.until_ready(seconds=30.0)
    await process.until_watching()
    began = asyncio.get_running_loop().time()
    command.send_signal(signal.SIGTERM)
    _, said = await command.communicate()

    assert command.returncode == 0
    lines = said.decode().splitlines()
    assert [line for line in lines if " INFO cardwise." not in line] == []
    assert "stopping: what has begun is answered" in lines[-1]
    assert asyncio.get_running_loop().time() - began < 3.0


# The wiring ---------------------------------------------------------------------------------------


async def test_which_parts_run() -> None:
    for parts, want in [
        ({}, 9),
        ({"own_pod": OWN}, 10),
        ({"webhook_certificates": True}, 10),
        ({"webhook_self_test": True}, 10),
    ]:
        tasks = Controller(FakeCluster(), Settings(), **parts).tasks()
        assert len(tasks) == want
        for task in tasks:
            task.close()


@pytest.mark.parametrize(
    ("variables", "want"),
    [
        pytest.param(
            {"POD_NAMESPACE": OWN.namespace, "POD_NAME": OWN.name, "POD_UID": OWN.uid},
            OWN,
            id="in a Pod",
        ),
        pytest.param({}, None, id="on a person's machine"),
        pytest.param(
            {"POD_NAMESPACE": OWN.namespace, "POD_NAME": OWN.name}, None, id="without its UID"
        ),
    ],
)
def test_which_pod_is_its_own(
    variables: dict[str, str], want: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POD_NAMESPACE", "POD_NAME", "POD_UID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert serving._own_pod() == want
