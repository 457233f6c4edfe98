"""The root of all commands, one module for each noun."""

from __future__ import annotations

import click

from duly import __version__
from duly.cli.database import database
from duly.cli.dead import dead
from duly.cli.event import event
from duly.cli.failures import GuardedGroup
from duly.cli.flow import flow
from duly.cli.job import job
from duly.cli.queue import queue
from duly.cli.schedule import schedule
from duly.cli.settings import config
from duly.cli.worker import scheduler, up, worker


@click.group(
    cls=GuardedGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True
)
@click.version_option(__version__, prog_name="duly", message="%(prog)s %(version)s")
def root() -> None:
    """Run work at the right time, once, on as many machines as you have.

    Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 it failed, 2 wrong usage
    or input, 124 timed out, 130 interrupted.
    """


for command in (
    up,
    worker,
    scheduler,
    job,
    schedule,
    flow,
    event,
    dead,
    queue,
    database,
    config,
):
    root.add_command(command)
