"""``cardwise simulate``: place the Pods of some files without a cluster.

Thin: it reads, has the simulation answer, prints, and decides on the exit status.
"""

import sys
from pathlib import Path

import click
import orjson
from rich.console import Console

from cardwise import options, settings_file
from cardwise.cli import documents
from cardwise.cli.placements import Simulation
from cardwise.cli.rendering import document_of, print_tables
from cardwise.cli.simulation import simulate as simulation_of
from cardwise.cli.workloads import expanded
from cardwise.errors import BadDocument, BadSettings


@click.command(short_help="Place the Pods of some files without a cluster.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@options.output
@click.option("--trace", is_flag=True, help="Tell of every node and card, however many.")
@click.option(
    "--no-admission",
    is_flag=True,
    help="Take the Pods as written, as if the webhook were away.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if a Pod stays Pending.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings file of the controller and the webhook; without it, the defaults.",
)
def simulate(
    *,
    files: tuple[str, ...],
    output: str,
    trace: bool,
    no_admission: bool,
    strict: bool,
    config: Path | None,
) -> None:
    """Place the Pods of some files without a cluster, as the cluster would.

    Each FILE holds YAML or JSON documents; "-" is standard input. Each GPUNode is a node; where a
    Node is given, its cordon, taints, labels, CPU and memory are respected, and so is a
    ResourceQuota. Pods with a nodeName and an allocation annotation are tenants; Pods without a
    nodeName are placed in file order. Deployments, StatefulSets and Jobs stand for their Pods, a
    CronJob for those of one run, and a DaemonSet for one on each node that its selector and
    tolerations allow. A Node that HAMi's device plugin registered, and that has no GPUNode, has the
    cards that the registration says.

    What is not read, and why, is told on standard error.

    A node that kube-scheduler itself would refuse says NodeUnschedulable, TaintNotTolerated,
    NodeAffinityMismatch, TooManyPods, InsufficientCpu or InsufficientMemory.

    The exit status is 0 when the files were read, 2 when not.
    """
    try:
        settings = settings_file.read(config)
        objects = expanded(documents.read(files))
        found = simulation_of(objects, settings, admission=not no_admission, trace=trace)
    except (BadDocument, BadSettings) as error:
        raise options.BadInput(str(error)) from error
    for note in found.notes:
        click.echo(note, err=True)
    _print(found, output, trace=trace)
    if strict and any(placement.node is None for placement in found.placements):
        sys.exit(1)


def _print(found: Simulation, output: str, *, trace: bool) -> None:
    if output == "json":
        text = orjson.dumps(document_of(found), option=orjson.OPT_INDENT_2)
        click.echo(text.decode())
    else:
        print_tables(found, Console(highlight=False, emoji=False), trace=trace)
