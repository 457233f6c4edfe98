"""Questions before something that cannot be taken back."""

from __future__ import annotations

import click

from duly.cli.failures import FAILURE, end_with
from duly.cli.inert import inert
from duly.cli.rendering import tell


def confirm(yes: bool, question: str) -> None:
    """Ask on stderr, unless `yes` answers in advance; the command ends here if the answer is no."""
    if yes:
        return
    try:
        agreed = click.confirm(inert(question), err=True)
    except click.Abort:
        agreed = False
        click.echo(err=True)
    if not agreed:
        tell("Nothing was changed. (--yes answers in advance.)")
        end_with(FAILURE)
