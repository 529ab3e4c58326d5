"""``cardwise explain``: why a Pod of a cluster has its cards, or waits for them.

Thin: it reads the cluster, has the Pod explained, and prints.
"""

from pathlib import Path

import click
import orjson
from rich.console import Console

from cardwise import options, settings_file
from cardwise.cli.connecting import (
    all_of,
    asked,
    gpunodes_of,
    namespace_meant,
    options_of_cluster,
    sentence,
    together,
)
from cardwise.cli.explanation import Explanation, explained
from cardwise.cli.telling import document_of, print_explanation
from cardwise.cli.world import Objects
from cardwise.errors import ApiError, BadSettings
from cardwise.ports import ClusterReader
from cardwise.settings import Settings, parse
from cardwise.wire import pods

_POD_PREFIXES = ("pod/", "pods/", "po/")


@click.command(short_help="Why a Pod of the cluster has its cards, or waits.")
@click.argument("pod", metavar="POD")
@click.option(
    "-n",
    "--namespace",
    metavar="NS",
    help="Else the context's.",
    callback=lambda _context, _option, value: value and options.without_equals(value),
)
@options.output
@click.option("--trace", is_flag=True, help="Tell of every node and card, however many.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The controller's settings; without it, as installed in cardwise-system.",
)
@options_of_cluster
def explain(
    *,
    pod: str,
    namespace: str | None,
    output: str,
    trace: bool,
    config: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Explain where a Pod of the cluster is, or why it waits.

    The Pod is decided anew on the cluster as it is now, by the controller's own engine: which nodes
    refuse it and by which word, who holds the cards that it waits for, and what helps. Of a placed
    Pod it tells the cards that it has, and how they rank today. Nothing is written.

    What the controller itself said last is told beside, as far as its events are still there.

    POD is a name, or NAMESPACE/NAME.

    The exit status is 0 when the Pod was explained, 2 when not.
    """
    space, name = meant(pod)
    if space and namespace and space != namespace:
        raise options.BadInput(f"{pod} is of namespace {space}, and -n says {namespace}")
    try:
        settings = settings_file.read(config) if config is not None else None
    except BadSettings as error:
        raise options.BadInput(str(error)) from error
    where = space or namespace or namespace_meant(kubeconfig, context)
    found = asked(kubeconfig, context, lambda reader: explain_pod(reader, where, name, settings))
    if output == "json":
        text = orjson.dumps(document_of(found, trace=trace), option=orjson.OPT_INDENT_2)
        click.echo(text.decode())
    else:
        print_explanation(found, Console(highlight=False, emoji=False), trace=trace)


def meant(written: str) -> tuple[str, str]:
    """Namespace and name of the Pod that is asked for; the namespace is "" where none is written.

    Events and ``top`` write ``namespace/name``, kubectl also ``pod/name``.

    Raises:
        BadInput: there can't be a Pod of that name.
    """
    short = next((written.removeprefix(p) for p in _POD_PREFIXES if written.startswith(p)), written)
    space, slash, name = short.rpartition("/")
    if not name or "/" in space or (slash and not space):
        raise options.BadInput(f'"{written}" names no Pod: write POD, or NAMESPACE/POD')
    return space, name


async def explain_pod(
    reader: ClusterReader, namespace: str, name: str, settings: Settings | None = None
) -> Explanation:
    """Read what bears on a Pod, and explain it.

    Args:
        reader: of the cluster.
        namespace: the Pod's.
        name: likewise.
        settings: the controller's; None: those of the cluster.

    Raises:
        ApiError: there is no such Pod, or something that is needed can't be read.
    """
    pod = await reader.pod(namespace, name)
    if pod is None:
        raise ApiError(404, f"there is no Pod {namespace}/{name}")
    notes: list[str] = []
    if settings is None:
        settings = await _settings(reader, notes)
    if pods.request_of(pod, settings) is None:
        return explained(pod, Objects(now=reader.now()), settings)
    gpunodes = await gpunodes_of(reader)
    nodes, everyone, quotas = await together(
        all_of(reader.nodes()), all_of(reader.pods()), all_of(reader.quotas(namespace))
    )
    try:
        events = await reader.events(pods.pod_ref(pod))
    except ApiError as error:
        events = []
        notes.append(f"what the controller said can't be read: {sentence(error)}")
    objects = Objects(
        now=reader.now(), gpunodes=gpunodes, nodes=nodes, pods=everyone, quotas=quotas
    )
    return explained(pod, objects, settings, events=events, notes=notes)


async def _settings(reader: ClusterReader, notes: list[str]) -> Settings:
    """The controller's settings; the defaults, with a note, where they can't be had."""
    try:
        written = await reader.settings()
        if written is not None:
            return parse(written)
        why = "cardwise-system has no controller"
    except (ApiError, BadSettings) as error:
        why = sentence(error) if isinstance(error, ApiError) else str(error)
    notes.append(f"the controller's settings are taken for the defaults (--config FILE): {why}")
    return Settings()
