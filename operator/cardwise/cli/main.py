"""The program ``cardwise``, which is also ``kubectl cardwise``: one command a module."""

import errno
import os
import sys

import click

from cardwise.cli.explain import explain
from cardwise.cli.shadow_report import shadow_report
from cardwise.cli.simulate import simulate
from cardwise.cli.top import top

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@click.group()
@click.version_option(package_name="cardwise", prog_name="cardwise")
def cardwise() -> None:
    """GPU placement for Kubernetes: try it on files, ask a cluster why."""


cardwise.add_command(simulate)
cardwise.add_command(explain)
cardwise.add_command(top)
cardwise.add_command(shadow_report)


def main() -> None:
    """Run the program. An answer that can't be written is one sentence, and status 2."""
    try:
        cardwise()
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        click.echo(f"Error: the answer can't be written: {os.strerror(error.errno)}.", err=True)
        sys.exit(2)
