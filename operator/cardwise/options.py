"""Command-line options, and their mistakes, that more than one process has."""

import logging
import sys

import click


class BadInput(click.ClickException):
    """Input that can't be used: one sentence on standard error, exit status 2."""

    exit_code = 2


def without_equals(value: str) -> str:
    """The value of a short option: kubectl's users write ``-o=json`` for ``-o json``, too."""
    return value.removeprefix("=")


class _Form(click.Choice[str]):
    """How a command prints, as kubectl reads it."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take one of the forms."""
        return super().convert(without_equals(value), param, ctx)


output = click.option(
    "-o",
    "--output",
    type=_Form(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
"""How a command prints."""

log_level = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
"""The option whose value `start_logging` takes."""


class EveryLine(logging.Formatter):
    """Begins every line of a message as the first: several are one record, which costs as one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Write the text of a record, what was raised left out."""
        text = super().formatMessage(record)
        if "\n" not in record.message:
            return text
        beginning = text.removesuffix(record.message)
        return beginning + record.message.replace("\n", f"\n{beginning}")


def start_logging(level: str) -> None:
    """Log to standard error from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EveryLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class Address(click.ParamType[tuple[str, int]]):
    """Where to listen: ``HOST:PORT``; an IPv6 address may stand in brackets."""

    name = "HOST:PORT"

    def __init__(self, example: str) -> None:
        """Make the type; ``example`` is what a mistake is answered with."""
        self._example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Take the text of the command line apart."""
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is not an address; write e.g. {self._example}", param, ctx)
        return host.strip("[]"), int(port)
