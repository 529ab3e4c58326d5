"""``cardwise shadow-report``: what a shadow would have placed otherwise, for people."""

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from cardwise import options
from cardwise.cli.rendering import print_rows
from cardwise.wire.fields import at, items, text

_SECONDS = 10.0
_HINT = (
    "is the way there open? kubectl -n cardwise-shadow port-forward deployment/cardwise-shadow 9395"
)


@click.command("shadow-report", short_help="What Cardwise would have placed otherwise.")
@click.argument("source", metavar="[URL|FILE]", default="http://127.0.0.1:9395/shadow")
@options.output
def shadow_report(source: str, output: str) -> None:
    """Print where Pods that HAMi placed would have gone by Cardwise.

    Reads the report of a controller in shadow mode: from its metrics port, by default
    http://127.0.0.1:9395/shadow (kubectl port-forward leads there), from a file, or from standard
    input ("-"). The exit status is 0 when it was read, whatever it says.
    """
    report = _read(source)
    if output == "json":
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    totals = report.get("totals")
    if not isinstance(totals, Mapping):
        raise options.BadInput(f"{source} holds no report of a shadow")
    counts = ", ".join(f"{number} {result.replace('_', ' ')}" for result, number in totals.items())
    click.echo(f"since {text(report.get('since'))}: {counts}")
    rows = [_row(each) for each in items(report.get("differences"))]
    if rows:
        header = ("POD", "PLACED ON", "CARDS", "CARDWISE", "CARDS", "POLICY", "REASON")
        print_rows(header, rows, Console(highlight=False, emoji=False))


def _read(source: str) -> dict[str, Any]:
    try:
        if source == "-":
            body = sys.stdin.buffer.read()
        elif source.startswith(("http://", "https://")):
            with urllib.request.urlopen(source, timeout=_SECONDS) as answer:  # noqa: S310 - as given
                body = answer.read()
        else:
            body = Path(source).read_bytes()
        report = orjson.loads(body)
    except urllib.error.HTTPError as error:  # somebody answers, who is no shadow
        raise options.BadInput(f"{source} can't be read: {error}") from error
    except urllib.error.URLError as error:
        raise options.BadInput(f"{source} can't be read: {error.reason}; {_HINT}") from error
    except (OSError, ValueError) as error:
        raise options.BadInput(f"{source} can't be read: {error}") from error
    if not isinstance(report, dict):
        raise options.BadInput(f"{source} holds no report of a shadow")
    return report


def _row(line: object) -> tuple[str, ...]:
    return (
        text(at(line, "pod")),
        text(at(line, "placed", "node")),
        _cards(at(line, "placed", "cards")),
        text(at(line, "cardwise", "node")) or "-",
        _cards(at(line, "cardwise", "cards")) or "-",
        text(at(line, "policy")) or "-",
        text(at(line, "reason")) or ("other card" if _same_node(line) else "other node"),
    )


def _same_node(line: object) -> bool:
    return at(line, "placed", "node") == at(line, "cardwise", "node")


def _cards(containers: object) -> str:
    return "\n".join(str(uuid) for cards in items(containers) for uuid in items(cards))
