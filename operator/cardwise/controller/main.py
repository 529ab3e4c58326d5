"""The command ``cardwise-controller``."""

import asyncio
import logging
import socket
from pathlib import Path

import click
import uvloop

from cardwise import options, settings_file
from cardwise.controller.lease.tenure import Election
from cardwise.controller.serving import Addresses, serve
from cardwise.errors import BadSettings, CardwiseError
from cardwise.kube import connect
from cardwise.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cardwise.settings import Settings

_ADDRESS = options.Address("127.0.0.1:8478")
_LEASE = f"{SYSTEM_NAMESPACE}/{SCHEDULER_NAME}"


class _Lease(click.ParamType[tuple[str, str]]):
    name = "NAMESPACE/NAME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        namespace, slash, name = str(value).partition("/")
        if not (namespace and slash and name) or "/" in name:
            self.fail(f"{value!r} is no Lease; write {_LEASE}, say", param, ctx)
        return namespace, name


@click.command(name="cardwise-controller")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file (YAML).",
)
@click.option("--kubeconfig", help="Cluster to serve; by default the one this runs in.")
@click.option(
    "--listen",
    type=_ADDRESS,
    default="127.0.0.1:8478",
    show_default=True,
    help="For kube-scheduler; whoever reaches it can place Pods.",
)
@click.option(
    "--metrics-listen",
    type=_ADDRESS,
    default="0.0.0.0:9395",
    show_default=True,
    help="For probes and Prometheus.",
)
@click.option(
    "--lease",
    type=_Lease(),
    default=_LEASE,
    show_default=True,
    help="What the kube-schedulers of all replicas compete for.",
)
@click.option(
    "--identity",
    metavar="HOST",
    default=socket.gethostname,
    show_default="the host name",
    help="Host name of the kube-scheduler beside this: active while that holds the Lease.",
)
@click.option(
    "--leader-election/--no-leader-election",
    default=True,
    show_default=True,
    help="No: this is the only replica, and always active.",
)
@click.option(
    "--webhook-certificates/--no-webhook-certificates",
    default=False,
    show_default=True,
    help="Make and renew the webhook's CA and certificate, and fill in its caBundle.",
)
@click.option(
    "--webhook-self-test/--no-webhook-self-test",
    default=False,
    show_default=True,
    help="Test every 30 s, by a dry run, that the API server reaches the webhook.",
)
@options.log_level
def main(  # noqa: PLR0913, PLR0917 - an argument an option
    config: Path | None,
    kubeconfig: str | None,
    listen: tuple[str, int],
    metrics_listen: tuple[str, int],
    lease: tuple[str, str],
    identity: str,
    leader_election: bool,
    webhook_certificates: bool,
    webhook_self_test: bool,
    log_level: str,
) -> None:
    """Decide on which node and which cards GPU Pods run: the scheduler extender of Cardwise."""
    options.start_logging(log_level)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    namespace, name = lease
    election = Election(namespace=namespace, name=name, identity=identity)
    try:
        settings = settings_file.read(config)
    except BadSettings as error:
        click.echo(f"cardwise-controller: {error}", err=True)
        raise SystemExit(2) from error
    try:
        addresses = Addresses(extender=listen, reports=metrics_listen)
        uvloop.run(
            _run(
                settings,
                kubeconfig,
                addresses,
                election if leader_election else None,
                webhook_certificates=webhook_certificates,
                webhook_self_test=webhook_self_test,
            )
        )
    except (CardwiseError, OSError) as error:
        raise SystemExit(f"cardwise-controller: {error}") from error
    except asyncio.CancelledError:
        raise SystemExit(1) from None


async def _run(
    settings: Settings,
    kubeconfig: str | None,
    addresses: Addresses,
    election: Election | None,
    *,
    webhook_certificates: bool,
    webhook_self_test: bool,
) -> None:
    client = await connect(kubeconfig)
    await serve(
        client,
        settings,
        addresses,
        election,
        webhook_certificates=webhook_certificates,
        webhook_self_test=webhook_self_test,
    )


if __name__ == "__main__":
    main()
