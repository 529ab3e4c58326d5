"""Run a controller, and stop it so that nothing begun is lost."""

import asyncio
import logging
import os
import signal
from dataclasses import dataclass

from aiohttp import web

from cardwise.controller import heap, server, shadow
from cardwise.controller.app import Controller
from cardwise.controller.extender import http as extender
from cardwise.controller.lease.tenure import Election
from cardwise.controller.watching import handlers
from cardwise.kube.client import Client
from cardwise.kube.cluster import KubeCluster
from cardwise.model import PodRef
from cardwise.names import Door
from cardwise.settings import Settings

_log = logging.getLogger(__name__)
_FINISH_SECONDS = 12.0
"""How long answers that have begun may take after SIGTERM: more than the longest /bind, which is
reading the Pod (2 s), the Binding (2 s) and looking for its outcome (6 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the two servers listen."""

    extender: tuple[str, int] = ("127.0.0.1", 8478)
    reports: tuple[str, int] = ("0.0.0.0", 9395)  # noqa: S104 - open to probes and Prometheus


async def serve(
    client: Client,
    settings: Settings,
    addresses: Addresses,
    election: Election | None = None,
    *,
    webhook_certificates: bool = False,
    webhook_self_test: bool = False,
) -> None:
    """Run a controller on a real cluster until SIGTERM or SIGINT.

    Args:
        client: its connection to the cluster.
        settings: of the settings file.
        addresses: where it listens.
        election: None: there is no other replica.
        webhook_certificates: whether it makes and renews the webhook's certificates.
        webhook_self_test: whether it tests that the API server reaches the webhook.

    Raises:
        Exception: a part of it failed that nothing can do without; the process must be restarted.
    """
    controller = Controller(
        KubeCluster(client),
        settings,
        # A shadow writes nothing, not even its own heartbeat.
        own_pod=None if settings.scheduling.shadow else _own_pod(),
        election=election,
        webhook_certificates=webhook_certificates,
        webhook_self_test=webhook_self_test,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runners: list[web.AppRunner] = []
    running: list[asyncio.Task[None]] = []
    kopf_stop = asyncio.Event()
    try:
        await _listen(controller, addresses, runners)
        stopped = asyncio.create_task(stop.wait())
        loading = asyncio.create_task(controller.watchman.load())
        await asyncio.wait({stopped, loading}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            await loading
            heap.set_aside()
            tasks = [*controller.tasks(), heap.set_aside_later()]
            running = [asyncio.create_task(task) for task in tasks]
            watching = handlers.watch(
                mirror=controller.mirror,
                watchman=controller.watchman,
                health=controller.health,
                classes=controller.classes,
                client=client,
                stop=stop,
                kopf_stop=kopf_stop,
            )
            running.append(asyncio.create_task(watching))
            hearing = asyncio.create_task(controller.watchman.hear())
            await asyncio.wait({stopped, hearing, *running}, return_when=asyncio.FIRST_COMPLETED)
            hearing.cancel()
            controller.duty.loaded = True
            controller.health.heard()  # heartbeats begin now
            controller.waker.begin()
            if controller.gates_door is not None:
                controller.gates_door.begin()
            ledger = controller.ledger
            doing = "following the Lease" if election else "answering"
            if controller.shadow is not None:
                doing = "comparing, and placing nothing"
            _log.info("ledger loaded: %d GPUNodes; %s", len(ledger.gpunode_names()), doing)
            await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
        loading.cancel()
        stopped.cancel()
        for task in running:
            if task.done() and not stop.is_set():
                await task  # a part that must not end did: raise what it died of
                raise RuntimeError("a task of the controller ended by itself")
    finally:
        await _stop(controller, runners, running, kopf_stop)
        await client.close()


async def _stop(
    controller: Controller,
    runners: list[web.AppRunner],
    running: list[asyncio.Task[None]],
    kopf_stop: asyncio.Event,
) -> None:
    """Answer what has begun, send nothing any more, and end every task."""
    controller.duty.stopping = True
    _log.info("stopping: what has begun is answered, no Binding and no pin is sent any more")
    for runner in runners:
        await runner.cleanup()
    if controller.gates_door is not None:
        await controller.gates_door.stop(_FINISH_SECONDS)
    await controller.binder.stop()
    if controller.elector is not None:
        await controller.elector.release()
    # Kopf last, and by its own flag: in its end it cancels whatever task began after it.
    kopf_stop.set()
    for task in running[:-1]:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=handlers.KOPF_SECONDS)
        running[-1].cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _listen(
    controller: Controller, addresses: Addresses, runners: list[web.AppRunner]
) -> None:
    """Open the servers, and add them to ``runners``, which must be cleaned up whatever happens."""
    apps = [(extender.reports(controller.metrics, controller.health), addresses.reports)]
    if controller.shadow is not None:
        shadow.add_report(apps[0][0], controller.shadow)
    if Door.EXTENDER in controller.doors:
        verbs = extender.verbs(controller.scheduler, controller.metrics, controller.health)
        apps.insert(0, (verbs, addresses.extender))
    for app, (host, port) in apps:
        runner = server.runner(app, finish_seconds=_FINISH_SECONDS)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()


def _own_pod() -> PodRef | None:
    """The Pod that this runs in, by the downward API; None on a person's machine."""
    namespace, name = os.environ.get("POD_NAMESPACE"), os.environ.get("POD_NAME")
    uid = os.environ.get("POD_UID")
    # Without its UID its heartbeats would come back unknown, and the process be restarted for it.
    if not (namespace and name and uid):
        return None
    return PodRef(namespace, name, uid)
