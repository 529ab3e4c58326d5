"""The command ``cardwise-webhook``: wiring and signals."""

import asyncio
import logging
import signal
from pathlib import Path

import click
import uvloop
from aiohttp import web

from cardwise import callers, options, settings_file
from cardwise.errors import BadSettings
from cardwise.settings import Settings
from cardwise_webhook.certs import Certificate
from cardwise_webhook.metrics import Metrics
from cardwise_webhook.server import Health, mutating, reports

_log = logging.getLogger(__name__)
_KEEPALIVE_SECONDS = 120.0
"""Longer than the API server keeps an idle connection (90 s), so that it is the one to end it: a
server that ends one just when a request comes loses that request."""
_CLOSE_SECONDS = 1.0
"""How long connections may take to close once every request is answered."""
_LINGER_SECONDS = 1.0
"""How long the rest of a body that was refused is read, so that the refusal can be read."""


@click.command(name="cardwise-webhook")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file (YAML).")
@click.option(
    "--listen",
    type=options.Address("0.0.0.0:8443"),
    default="0.0.0.0:8443",
    show_default=True,
    help="For the API server, by TLS.",
)
@click.option(
    "--metrics-listen",
    type=options.Address("0.0.0.0:9395"),
    default="0.0.0.0:9395",
    show_default=True,
    help="For probes and Prometheus, by plain HTTP.",
)
@click.option(
    "--tls-dir",
    type=click.Path(path_type=Path),
    default=Path("/etc/cardwise/tls"),
    show_default=True,
    help="Directory with tls.crt and tls.key; looked at every second.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="How long requests are still taken after SIGTERM, while callers hear that it stops.",
)
@options.log_level
def main(
    config: Path | None,
    listen: tuple[str, int],
    metrics_listen: tuple[str, int],
    tls_dir: Path,
    drain_seconds: float,
    log_level: str,
) -> None:
    """Complete and check Pods with cards as they are created: the admission webhook of Cardwise."""
    options.start_logging(log_level)
    try:
        settings = settings_file.read(config)
    except BadSettings as error:
        click.echo(f"cardwise-webhook: {error}", err=True)
        raise SystemExit(2) from error
    try:
        uvloop.run(serve(settings, tls_dir, listen, metrics_listen, drain_seconds))
    except OSError as error:
        raise SystemExit(f"cardwise-webhook: {error}") from error


async def serve(
    settings: Settings,
    tls_dir: Path,
    listen: tuple[str, int],
    metrics_listen: tuple[str, int],
    drain_seconds: float,
) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends the drain.

    Args:
        settings: of the settings file.
        tls_dir: where the certificate is, or will be.
        listen: host and port for the API server.
        metrics_listen: host and port for probes and Prometheus.
        drain_seconds: how long requests are still taken after the signal.

    Raises:
        OSError: an address can't be listened on.
    """
    metrics = Metrics()
    certificate = Certificate(tls_dir, metrics)
    health = Health(certificate)
    stop, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    server = _runner(mutating(settings, metrics, health))
    reporter = _runner(reports(metrics, health))
    stopped = asyncio.create_task(stop.wait())
    following = asyncio.create_task(certificate.follow())
    try:
        await reporter.setup()
        await web.TCPSite(reporter, *metrics_listen).start()
        found = asyncio.create_task(certificate.found())
        await asyncio.wait({stopped, following, found}, return_when=asyncio.FIRST_COMPLETED)
        found.cancel()
        if not certificate.missing:
            await server.setup()
            site = web.TCPSite(server, *listen, ssl_context=certificate.context)
            await site.start()
            _log.info("listening on %s:%d", *listen)
            await asyncio.wait({stopped, following}, return_when=asyncio.FIRST_COMPLETED)
            health.stopping = True
            if stop.is_set():
                _log.info("stopping: requests are still taken for %g s", drain_seconds)
                await asyncio.wait({asyncio.create_task(hurry.wait())}, timeout=drain_seconds)
            await site.stop()
            # Before the cleanup, which stops reading at once: the rest of a body would be lost.
            await health.idle()
        if not stop.is_set():
            await following  # it never ends by itself: raise what it died of
    finally:
        health.stopping = True
        stopped.cancel()
        following.cancel()
        await server.cleanup()
        await reporter.cleanup()


def _runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(
        app,
        access_log=None,
        logger=callers.log,
        shutdown_timeout=_CLOSE_SECONDS,
        keepalive_timeout=_KEEPALIVE_SECONDS,
        lingering_time=_LINGER_SECONDS,
    )


if __name__ == "__main__":
    main()
