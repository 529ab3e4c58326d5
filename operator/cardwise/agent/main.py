"""The command ``cardwise-agent``: wiring and signals."""

import asyncio
import logging
import os
import signal
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import yaml

from cardwise import kube, options, settings_file
from cardwise.agent.advertise import Advertiser
from cardwise.agent.clock import SystemClock
from cardwise.agent.deviceplugin.assembly import device_plugin
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.driver import NO_LIBRARY
from cardwise.agent.health import Change, Health
from cardwise.agent.herald import Herald
from cardwise.agent.metrics import Metrics
from cardwise.agent.nvml import NvidiaLibrary
from cardwise.agent.probe import failed, probe
from cardwise.agent.publish import Publisher
from cardwise.agent.server import listen
from cardwise.agent.simulated import PROFILES, SimulatedNvml
from cardwise.errors import BadDocument, CardwiseError, NvmlUnavailable
from cardwise.kube.gpunodes import KubeGPUNodes
from cardwise.kube.nodepods import KubeNodePods
from cardwise.kube.nodestatus import KubeNodeEvents, KubeNodeStatus
from cardwise.model import NodeOverrides
from cardwise.names import SYSTEM_NAMESPACE, Door
from cardwise.ports import Nvml, Readings
from cardwise.settings import Settings
from cardwise.wire.gpunodes_written import document_of

_log = logging.getLogger(__name__)

SIMULATED = "simulated:"
POD_NAMESPACE = "POD_NAMESPACE"
"""Where the downward API tells the Pod's namespace."""


@click.command()
@click.option(
    "--nvml",
    default="auto",
    show_default=True,
    metavar="auto|simulated:FILE_OR_NAME",
    help="Where cards come from: the driver, or a GPUNode in YAML, from a file or shipped with this"
    f" program ({', '.join(PROFILES)}).",
)
@click.option("--print", "printing", is_flag=True, help="Print the GPUNode as YAML, and exit.")
@click.option("--node-name", envvar="NODE_NAME", help="By default the host's name.")
@click.option("--config", type=click.Path(path_type=Path), help="The settings file.")
@click.option("--kubeconfig", help="By default KUBECONFIG, else the Pod's own account.")
@click.option(
    "--metrics-listen",
    type=options.Address("0.0.0.0:9395"),
    help="For probes and Prometheus, by plain HTTP. By default nowhere.",
)
@options.log_level
def main(
    nvml: str,
    printing: bool,
    node_name: str | None,
    config: Path | None,
    kubeconfig: str | None,
    metrics_listen: tuple[str, int] | None,
    log_level: str,
) -> None:
    """Publish this machine's NVIDIA cards as the GPUNode of its Node."""
    options.start_logging(log_level)
    name = node_name or socket.gethostname()
    try:
        settings = settings_file.read(config)
        source = _source(nvml, node=name)
        if printing:
            _print(source, name, settings)
        elif kubeconfig and not Path(kubeconfig).is_file():
            raise options.BadInput(f"--kubeconfig is {kubeconfig}: there is no such file")
        else:
            asyncio.run(_publish(source, name, settings, kubeconfig, metrics_listen))
    except CardwiseError as error:
        raise options.BadInput(str(error)) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _source(nvml: str, *, node: str) -> Nvml:
    if nvml == "auto":
        return NvidiaLibrary()
    if nvml.startswith(SIMULATED) and nvml != SIMULATED:
        source = SimulatedNvml(nvml.removeprefix(SIMULATED), node=node)
        source.load()
        return source
    raise BadDocument(f"--nvml is {nvml}: write auto, or simulated: and a file or a shipped name")


def _print(source: Nvml, name: str, settings: Settings) -> None:
    try:
        readings = source.read()
    except NvmlUnavailable as error:
        report = failed(name, str(error))
    else:
        if readings is None:
            click.echo(f"no GPUNode: {NO_LIBRARY}", err=True)
            return
        report = probe(name, readings, settings.agent, NodeOverrides())
    document = document_of(
        replace(report.node, reported_at=SystemClock().now()),
        driver_version=report.driver_version,
        conditions=report.conditions,
    )
    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


async def _publish(
    source: Nvml,
    name: str,
    settings: Settings,
    kubeconfig: str | None,
    metrics_listen: tuple[str, int] | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    client = await kube.connect(kubeconfig)
    runner = None
    try:
        _log.info("the agent of node %s starts", name)
        nodes = KubeNodeStatus(client, namespace=_namespace())
        advertiser = Advertiser(
            name=name,
            store=nodes,
            bounded=not settings.scheduling.initShrink,
        )
        herald = Herald(node=name, store=KubeNodeEvents(client), now=lambda: datetime.now(UTC))
        offer = Offer()
        publisher = Publisher(
            name=name,
            read=lambda: asyncio.to_thread(_measured, source, metrics),
            store=KubeGPUNodes(client),
            settings=settings.agent,
            clock=SystemClock(),
            health=Health(settings.agent.ignoredXids),
            published=advertiser.learn,
            changed=lambda change: _changed(change, herald, metrics),
            probed=lambda report, settled: offer.learn(
                report.node.cards, oversold=report.oversold, settled=settled
            ),
        )
        metrics = Metrics(
            name, report=lambda: publisher.report, failures=lambda: publisher.failures
        )
        plugin = device_plugin(
            name,
            KubeNodePods(client),
            offer,
            settings,
            counted=metrics.started,
            node_object=lambda: nodes.get(name),
        )
        if metrics_listen is not None:
            runner = await listen(
                metrics_listen,
                not_ready=lambda: publisher.not_ready() or plugin.not_ready(),
                hopeless=publisher.hopeless,
                metrics=metrics.render,
                content_type=metrics.CONTENT_TYPE,
            )
        through_gates = settings.scheduling.door is Door.GATES or settings.scheduling.bothDoors
        async with asyncio.TaskGroup() as loops:
            events = loops.create_task(herald.run())
            loops.create_task(plugin.run(stop))
            loops.create_task(advertiser.run(stop) if through_gates else advertiser.retire(stop))
            await loops.create_task(publisher.run(stop))
            events.cancel()
        if through_gates and POD_NAMESPACE in os.environ:
            await advertiser.leave()
        _log.info("the agent of node %s ends", name)
    finally:
        if runner is not None:
            await runner.cleanup()
        await client.close()


def _measured(source: Nvml, metrics: Metrics) -> Readings | None:
    with metrics.probing():
        readings = source.read()
    if readings is not None:
        metrics.read(readings)
    return readings


def _changed(change: Change, herald: Herald, metrics: Metrics) -> None:
    _log.info("%s", change)
    metrics.changed(change)
    herald.tell(change)


def _namespace() -> str:
    """Ours, by the downward API; a person who runs an agent by hand has none to be removed from."""
    return os.environ.get(POD_NAMESPACE, SYSTEM_NAMESPACE)
