"""``cardwise top``: cards, tenants and free room, once or live."""

import asyncio
import math
from typing import Any

import click
import orjson
from rich.console import Console
from rich.live import Live

from cardwise import options
from cardwise.cli import complaints
from cardwise.cli.connecting import (
    all_of,
    asked,
    gpunodes_of,
    options_of_cluster,
    sentence,
    together,
)
from cardwise.cli.picture import FEW_NODES, Picture, Wish, document_of, print_picture, screen_of
from cardwise.cli.room import namespaces_of, nodes_of
from cardwise.cli.world import Objects, World
from cardwise.errors import ApiError
from cardwise.ports import ClusterReader
from cardwise.settings import Settings
from cardwise.wire.fields import at, text

Json = dict[str, Any]


@click.command(short_help="Cards, tenants and free room of the cluster.")
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="Only this; may be repeated.")
@click.option(
    "--cards/--nodes",
    "cards",
    default=None,
    help=f"One line a card, or one a node. Else cards of up to {FEW_NODES} nodes.",
)
@click.option(
    "-A", "--namespaces", is_flag=True, help="By namespace: Pods with cards, and Pods that wait."
)
@click.option(
    "--pods",
    "counted",
    is_flag=True,
    help="Count from the Pods: exact to the moment, and slower in a large cluster.",
)
@click.option("--wide", is_flag=True, help="Whole UUIDs, and all tenants.")
@click.option("-w", "--watch", is_flag=True, help="Show it live, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2, max=3600),
    callback=lambda _context, _option, seconds: _a_number(seconds),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often it is read anew with --watch.",
)
@options.output
@options_of_cluster
def top(  # noqa: PLR0913 - one an option
    *,
    nodes: tuple[str, ...],
    cards: bool | None,
    namespaces: bool,
    counted: bool,
    wide: bool,
    watch: bool,
    interval: float,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show the cluster's cards: who is on them, and what is free.

    What is used is what the controller wrote into the GPUNodes, some seconds old where much
    happens; --pods and --namespaces count it from the Pods themselves. FREE is what one new Pod
    could have: nothing on a card that is closed, has no slot or no cores left, or whose node takes
    no Pod.

    Where standard output is no terminal, --watch prints once.
    """
    wish = Wish(cards=cards, nodes=nodes, namespaces=namespaces, counted=counted, wide=wide)
    console = Console(highlight=False, emoji=False)
    if watch and output == "table" and console.is_terminal:
        try:
            asked(kubeconfig, context, lambda reader: _live(reader, wish, console, interval))
        except KeyboardInterrupt:
            return
    picture = asked(kubeconfig, context, lambda reader: look(reader, wish))
    if output == "json":
        click.echo(orjson.dumps(document_of(picture), option=orjson.OPT_INDENT_2).decode())
    else:
        print_picture(picture, wish, console)


def _a_number(seconds: float) -> float:
    if math.isnan(seconds):  # no range refuses it
        raise click.BadParameter("nan is no number of seconds")
    return seconds


async def look(reader: ClusterReader, wish: Wish) -> Picture:
    """Read the cluster once.

    Raises:
        ApiError: something that is needed can't be read, or there is no such node.
    """
    counted = wish.counted or wish.namespaces
    notes: list[str] = []
    documents = await gpunodes_of(reader)
    nodes: list[Json]
    cordoned: list[Json]
    pods: list[Json] = []
    if counted:
        nodes, pods = await together(all_of(reader.nodes()), all_of(reader.pods()))
        cordoned = [node for node in nodes if at(node, "spec", "unschedulable") is True]
    else:
        try:
            nodes, cordoned = await together(
                all_of(reader.node_metadata()), all_of(reader.cordoned_nodes())
            )
        except ApiError as error:
            if error.status != 403:
                raise
            nodes, cordoned = [], []
            notes.append(
                "what Nodes say is not shown, kubectl cordon and hami.io/device-cordon: "
                f"{sentence(error)}"
            )
    now, only = reader.now(), tuple(dict.fromkeys(wish.nodes))
    world = World(Objects(now=now, gpunodes=documents, nodes=nodes, pods=pods), Settings())
    found = nodes_of(
        world,
        documents,
        counted=counted,
        only=only,
        cordoned={text(at(node, "metadata", "name")) for node in cordoned},
    )
    if missing := sorted(set(only).difference(node.name for node in found)):
        raise ApiError(404, f"there is no node with cards named {', '.join(missing)}")
    shown = {node.name for node in found}
    if not counted:
        notes += complaints.unwritten(documents, shown)
    return Picture(
        now=now,
        nodes=found,
        namespaces=namespaces_of(world, pods, only=only) if wish.namespaces else None,
        notes=(*notes, *world.notes, *complaints.by_condition(documents, shown)),
    )


async def _live(reader: ClusterReader, wish: Wish, console: Console, interval: float) -> None:
    """Show it again and again; what can't be read for a while leaves the last picture there."""
    picture = await look(reader, wish)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        trouble = ""
        while True:
            live.update(screen_of(picture, wish, console.height, trouble), refresh=True)
            await asyncio.sleep(interval)
            try:
                picture, trouble = await look(reader, wish), ""
            except ApiError as error:
                trouble = sentence(error)
