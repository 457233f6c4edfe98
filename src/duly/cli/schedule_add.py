"""`duly schedule add`."""

from __future__ import annotations

from typing import Any, cast

import click

from duly.cli.arguments import given_arguments, priority, with_hint
from duly.cli.rendering import tell, write_json
from duly.cli.schedule_timing import Timing, timing, timing_options
from duly.cli.schedule_view import as_json, next_in_words
from duly.cli.session import Session, connected
from duly.client.task import NamedTask
from duly.errors import InvalidArguments, UnknownTask
from duly.model.schedule import CatchUp, Overlap, ScheduleRecord
from duly.policy import duration, options
from duly.registry.scheduling import ScheduleOptions
from duly.service.schedule_views import in_words


@click.command()
@click.argument("name")
@click.argument("task")
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--cron",
    "expressions",
    metavar="EXPRESSION",
    multiple=True,
    help='By a cron expression, such as "0 9 * * mon-fri"; several are allowed.',
)
@timing_options
@click.option("--after-finish", is_flag=True, help="--every counts from the end of the job before.")
@click.option(
    "--overlap",
    type=click.Choice([each.value for each in Overlap]),
    help="What happens to a tick while a job of the schedule is live (default: skip).",
)
@click.option(
    "--catch-up",
    type=click.Choice([each.value for each in CatchUp]),
    help="Which ticks are owed after downtime (default: latest).",
)
@click.option(
    "--window",
    "catch_up_window",
    metavar="DURATION",
    help="How far back `--catch-up all` goes (default: 7d).",
)
@click.option(
    "--pause-after",
    "pause_after_failures",
    type=click.IntRange(1),
    metavar="N",
    help="Pause it after this many dead jobs in a row.",
)
@click.option(
    "--args", "arguments", metavar="JSON", help="All arguments as a JSON object; - reads stdin."
)
@click.option("--queue", help="The queue, instead of the task's own.")
@click.option("--priority", help="0 to 100, or low, normal, high, urgent.")
@click.option("--retries", type=int, help="How many attempts may follow a failed one.")
@click.option("--timeout", metavar="DURATION", help="The time limit of an attempt.")
@click.option("--expires", metavar="DURATION", help="Give a job up if not started within this.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
@click.option("--unchecked", is_flag=True, help="Make it although no worker knows the task.")
@click.option("--tenant", help="The tenant its jobs run for.")
@click.option("--owner", help="Who its jobs belong to.")
@connected(creates=True)
def add(
    session: Session,
    name: str,
    task: str,
    pairs: tuple[str, ...],
    expressions: tuple[str, ...],
    arguments: str | None,
    unchecked: bool,
    **given: Any,
) -> None:
    """Make a schedule NAME that runs TASK.

    Say when with --cron, --every, --calendar or --at; several make one schedule. Arguments of the
    task are given as for `duly job submit`, and are checked in the same way.
    """
    jobs = _job_options(given)
    if "after_finish" in jobs:
        _refuse_beside_after_finish(expressions, given, jobs)
    when = timing(expressions, **given)
    if not unchecked and session.app.registry.get(task) is None:
        # Without a database there is no catalogue either: this must not make an empty one.
        session.database.require()
    values = given_arguments(pairs, arguments, session.app.config.payload_limit)
    wanted = session.app.named(task, unchecked=unchecked)
    made = _added(session, name, wanted, when, {**jobs, "arguments": values})
    if session.as_json:
        write_json(as_json(made))
        return
    tell(f"Added {made.id}: {in_words(made.definition)}.")
    tell(f"Next: {next_in_words(made, made.created_at)}")


def _added(
    session: Session, name: str, task: NamedTask, when: Timing, jobs: dict[str, Any]
) -> ScheduleRecord:
    chosen = cast(ScheduleOptions, {**when.options, **jobs})
    try:
        return session.schedules.add(name, task, when.rules, **chosen)
    except InvalidArguments as error:
        raise with_hint(error, jobs["arguments"]) from error
    except UnknownTask:
        store = session.app.store
        known = ", ".join(entry.name for entry in store.run(store.catalogue()))
        raise UnknownTask(
            task.name,
            f"no worker has published it (known: {known or 'none yet'}); take it from the code "
            "with --app MODULE:APP, or make the schedule all the same with --unchecked",
        ) from None


def _refuse_beside_after_finish(
    expressions: tuple[str, ...], timing: dict[str, Any], jobs: dict[str, Any]
) -> None:
    """A fixed delay is one interval, and never has more than one tick to decide about."""
    if timing["every"] is None or expressions or timing["moments"] or timing["calendar"]:
        raise click.UsageError("--after-finish needs --every, and no other rule beside it")
    given = {**timing, **jobs}
    for name, option in _NOT_WITH_AFTER_FINISH.items():
        if given.get(name):
            raise click.UsageError(f"--after-finish leaves nothing to choose: give no {option}")


def _job_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that are not about time, taken out of the given ones and checked."""
    taken = {name: given.pop(name) for name in _NOT_ABOUT_TIME}
    chosen = {name: value for name, value in taken.items() if value not in (None, (), False)}
    fixed_rate = "after_finish" not in chosen
    if fixed_rate and "catch_up_window" in chosen and chosen.get("catch_up") != CatchUp.ALL:
        raise click.UsageError("--window is for --catch-up all")
    for name, option in _DURATIONS.items():
        if name in chosen:
            chosen[name] = duration.parse(chosen[name], option)
    if "timeout" in chosen:
        chosen["timeout"] = options.timeout(chosen["timeout"], "--timeout")
    if "priority" in chosen:
        chosen["priority"] = priority(chosen["priority"])
    return chosen


_NOT_WITH_AFTER_FINISH = {
    "overlap": "--overlap",
    "catch_up": "--catch-up",
    "catch_up_window": "--window",
    "max_fires": "--max-fires",
    "excluded": "--exclude",
    "exclude_cron": "--exclude-cron",
}
_DURATIONS = {"catch_up_window": "--window", "timeout": "--timeout", "expires": "--expires"}
_NOT_ABOUT_TIME = (
    "after_finish",
    "overlap",
    "catch_up",
    "catch_up_window",
    "pause_after_failures",
    "queue",
    "priority",
    "retries",
    "timeout",
    "expires",
    "tags",
    "tenant",
    "owner",
)
