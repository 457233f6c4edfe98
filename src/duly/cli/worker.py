"""`duly worker`, `duly up` and `duly scheduler`: processes that run jobs and make them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from duly import __version__
from duly.cli.failures import debug_option, message_of
from duly.cli.session import open_app, url_option
from duly.cli.stopping import leave_at_once_on_sigterm
from duly.errors import ConfigurationError
from duly.policy import options
from duly.policy.duration import parse as parse_duration
from duly.runtime.janitor import Janitor
from duly.runtime.logs import JSON, TEXT, configure_logs
from duly.runtime.reload import Times, changed_file, file_times
from duly.runtime.settings import WorkerSettings
from duly.runtime.supervisor import Supervisor

LOG_LEVELS = ["debug", "info", "warning", "error"]


def _worker_options(command: Any) -> Any:
    """The options about worker processes."""
    for option in reversed(
        [
            click.option(
                "--processes",
                type=click.IntRange(1, 256),
                default=_cores,
                show_default="one for each core",
                help="How many worker processes.",
            ),
            click.option(
                "--concurrency",
                type=click.IntRange(1, 1000),
                default=10,
                show_default=True,
                help="How many jobs each process runs at a time.",
            ),
            click.option(
                "--queues",
                default="",
                metavar="A,B",
                help="The queues to serve; all of them by default.",
            ),
            click.option(
                "--grace",
                metavar="DURATION",
                help="How long jobs may go on after SIGTERM or Ctrl-C.",
            ),
            click.option(
                "--fair-share",
                type=click.FloatRange(0, 1),
                help="The share of claims for the longest-waiting jobs; 0 for strict priorities.",
            ),
            click.option(
                "--max-jobs",
                type=click.IntRange(1),
                metavar="N",
                help="Replace a process after it has run this many jobs.",
            ),
            click.option(
                "--max-memory",
                type=click.IntRange(1),
                metavar="MEGABYTES",
                help="Replace a process that holds more memory than this.",
            ),
            click.option(
                "--no-scheduler",
                is_flag=True,
                help="Leave recurring work to others, such as `duly scheduler`.",
            ),
        ]
    ):
        command = option(command)
    return command


def _shared_options(command: Any) -> Any:
    """The options that all of them take."""
    shared: list[Callable[[Any], Any]] = [
        click.argument("target", metavar="MODULE:APP"),
        url_option,
        click.option(
            "--lease",
            metavar="DURATION",
            help="How soon others take over from a machine that is gone.",
        ),
        click.option(
            "--reload",
            is_flag=True,
            help="Start anew when a Python file below this folder changes.",
        ),
        click.option(
            "--log-format",
            type=click.Choice([TEXT, JSON]),
            default=TEXT,
            show_default=True,
            help="Lines for people, or a JSON object a line.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(LOG_LEVELS),
            default="info",
            show_default=True,
            help="What to log to stderr.",
        ),
        debug_option,
    ]
    for option in reversed(shared):
        command = option(command)
    return command


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@click.command()
@_worker_options
@_shared_options
def worker(**given: Any) -> None:
    """Run jobs of the tasks that MODULE:APP registers.

    SIGTERM or Ctrl-C: no more jobs are started, running ones may finish within the grace period,
    the rest is given back without a charge. The second time: at once.
    """
    _run(**given)


@click.command()
@_worker_options
@_shared_options
def up(**given: Any) -> None:
    """Run everything that MODULE:APP needs in one process tree."""
    _run(**given)


@click.command()
@_shared_options
def scheduler(**given: Any) -> None:
    """Run the recurring work of MODULE:APP, and no jobs.

    Makes the jobs of schedules, takes back those of workers that are gone, and keeps house. Every
    worker does that as well unless told --no-scheduler; any number of both may run.
    """
    _run(**given, processes=0)


def _run(
    target: str,
    url: str | None,
    processes: int,
    lease: str | None,
    reload: bool,
    log_level: str,
    log_format: str,
    concurrency: int = 1,
    queues: str = "",
    grace: str | None = None,
    fair_share: float | None = None,
    max_jobs: int | None = None,
    max_memory: int | None = None,
    no_scheduler: bool = False,
) -> None:
    configure_logs(logging.getLevelNamesMapping()[log_level.upper()], log_format)
    # Before the import: what is saved while that goes on is a change, too.
    files = file_times(Path.cwd()) if reload else None
    try:
        app = open_app(url, target)
    except ConfigurationError as error:
        if files is None:
            raise
        click.echo(f"Error: {message_of(error)}\nWaiting for a change", err=True)
        _start_anew(asyncio.run(changed_file(Path.cwd(), files)))
    config = app.config
    settings = WorkerSettings(
        queues=tuple(options.queue(name.strip()) for name in queues.split(",") if name.strip()),
        concurrency=concurrency,
        lease=config.lease if lease is None else _seconds(lease, "--lease"),
        grace=config.grace if grace is None else _seconds(grace, "--grace"),
        fair_share=config.fair_share if fair_share is None else fair_share,
        payload_limit=config.payload_limit,
        max_jobs=max_jobs,
        max_memory=None if max_memory is None else max_memory * 1_000_000,
    )
    app.publish()
    changed = asyncio.run(
        _supervise(app, target, url, settings, processes, files, log_format, not no_scheduler)
    )
    leave_at_once_on_sigterm()
    app.close()
    if changed:
        _start_anew(changed)


def _start_anew(changed: str) -> NoReturn:
    click.echo(f"{changed} changed: starting anew", err=True)
    os.execv(sys.executable, [sys.executable, "-m", "duly", *sys.argv[1:]])


def _seconds(text: str, option: str) -> float:
    value: float | str = float(text) if text.replace(".", "", 1).isdigit() else text
    return parse_duration(value, option).total_seconds()


async def _supervise(
    app: Any,
    target: str,
    url: str | None,
    settings: WorkerSettings,
    processes: int,
    files: Times | None,
    log_format: str,
    scheduling: bool,
) -> str | None:
    """Supervise until stopped, also by a change to the files if there are any; answers which file
    was the reason."""
    supervisor = Supervisor(
        target,
        app.store,
        app.registry,
        settings,
        processes,
        __version__,
        Janitor(app.store, app.config.retention()),
        log_format,
        scheduling,
        url,
    )
    if files is None:
        await supervisor.run()
        return None
    watching = asyncio.create_task(changed_file(Path.cwd(), files))
    watching.add_done_callback(lambda _: supervisor.stop())
    await supervisor.run()
    if watching.done():
        return watching.result()
    watching.cancel()
    return None
