"""`duly schedule`: list, show, add, preview, pause, resume, trigger, backfill, remove."""

from __future__ import annotations

import click

from duly.cli.confirming import confirm
from duly.cli.job_view import as_json as job_as_json
from duly.cli.rendering import tell, write_json, write_line
from duly.cli.schedule_add import add
from duly.cli.schedule_preview import preview
from duly.cli.schedule_view import (
    as_json,
    detail_as_json,
    line_as_json,
    next_in_words,
    write_detail,
    write_schedules,
)
from duly.cli.session import Session, connected
from duly.cli.times import past_moment
from duly.policy.ticking import recurrence_of
from duly.service.schedule_views import ScheduleViews, in_words
from duly.service.schedules import Schedules
from duly.service.wording import absolute, counted


@click.group()
def schedule() -> None:
    """Make recurring work, look at it, pause it, run it now, fill in its past."""


schedule.add_command(add)
schedule.add_command(preview)


@schedule.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option("--after", metavar="NAME", help="The next page: only schedules after this one.")
@connected()
def list_schedules(session: Session, limit: int, after: str | None) -> None:
    """List schedules by name: when each fires next, and what became of its last tick."""
    page = session.converse(ScheduleViews(session.app.store).page(limit, after))
    if session.as_json:
        lines = [line_as_json(line) for line in page.lines]
        write_json({"schedules": lines, "next": page.next})
        return
    write_schedules(page)
    if not page.lines:
        tell("There are no schedules." if after is None else "There are no more schedules.")
    if page.next is not None:
        tell(f"There may be more: --after {page.next}")


@schedule.command()
@click.argument("name")
@click.option(
    "--count",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    help="How many of its next fires to show.",
)
@click.option(
    "--ticks",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many of its last ticks to show.",
)
@connected()
def show(session: Session, name: str, count: int, ticks: int) -> None:
    """Show everything about a schedule.

    Its rule in words, its next fires, and its last ticks with the reasons why some did not run.
    """
    detail = session.converse(ScheduleViews(session.app.store).detail(name, count, ticks))
    if session.as_json:
        write_json(detail_as_json(detail))
    else:
        write_detail(detail)


@schedule.command()
@click.argument("name")
@click.option("--note", help="Why; shown wherever the schedule is.")
@connected()
def pause(session: Session, name: str, note: str | None) -> None:
    """Make no more jobs of NAME until it is resumed.

    Jobs that were made go on. The ticks of the paused time are skipped, with the note.
    """
    paused = session.schedules.pause(name, note)
    if session.as_json:
        write_json(as_json(paused))
    else:
        tell(f"Schedule {name} is paused. Let it go on with: duly schedule resume {name}")


@schedule.command()
@click.argument("name")
@connected()
def resume(session: Session, name: str) -> None:
    """Let NAME go on from now."""
    was_paused = session.schedules.get(name).paused
    resumed = session.schedules.resume(name)
    if session.as_json:
        write_json({**as_json(resumed), "was_paused": was_paused})
        return
    coming = next_in_words(resumed, resumed.updated_at)
    tell(f"Schedule {name} {'goes on' if was_paused else 'was not paused'}. Next: {coming}")


@schedule.command()
@click.argument("name")
@connected()
def trigger(session: Session, name: str) -> None:
    """Make one job of NAME now, and print its id.

    Also while the schedule is paused, or a job of it is live.
    """
    job = session.schedules.trigger(name)
    if session.as_json:
        write_json(job_as_json(job.record))
        return
    write_line(str(job.id))
    tell(f"Submitted {job.record.task} to queue {job.record.queue}, due now.")


@schedule.command()
@click.argument("name")
@click.argument("first", metavar="FROM")
@click.argument("last", metavar="TO")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@connected()
def backfill(session: Session, name: str, first: str, last: str, yes: bool) -> None:
    """Make jobs for past times of NAME that got none, from FROM to TO, both included.

    A time is 2026-11-16T09:00Z, 2026-11-16T09:00 or 2026-11-16 in the schedule's time zone, 7d for
    7 days ago, or now. They run one after another, unless the overlap policy is allow. Tells how
    many and asks first, unless --yes is given.
    """
    definition = session.schedules.get(name).definition
    zone = recurrence_of(definition.recurrence).zone
    begin, end = past_moment(first, "FROM", zone), past_moment(last, "TO", zone, last=True)
    if end < begin:
        raise click.UsageError(f"TO ({absolute(end)}) is before FROM ({absolute(begin)})")
    filled = session.converse(Schedules(session.app.store).backfillable(name, begin, end))
    if filled.made:
        already = f" ({filled.already:,} more have one already)" if filled.already else ""
        confirm(
            yes,
            f"Make {counted(filled.made, 'job')} of {definition.task} for times from "
            f"{absolute(begin)} to {absolute(end)}{already}?",
        )
        filled = session.schedules.backfill(name, begin, end)
    if session.as_json:
        write_json({"schedule": name, "made": filled.made, "already": filled.already})
    elif filled.made:
        write_line(f"{counted(filled.made, 'tick')} filled in")
    elif filled.already:
        ticks = counted(filled.already, "tick")
        tell(f"Nothing to fill in: the range has {ticks}, made or waiting already.")
    else:
        tell("Nothing to fill in: the schedule has no past time in that range.")


@schedule.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@connected()
def remove(session: Session, name: str, yes: bool) -> None:
    """Delete the schedule NAME. Jobs that it made go on.

    Asks first, unless --yes is given.
    """
    known = session.schedules.get(name)
    confirm(yes, f"Remove schedule {name} ({in_words(known.definition)})?")
    session.schedules.remove(name)
    if session.as_json:
        write_json({"schedule": name, "removed": True})
    else:
        tell(f"Schedule {name} is removed.")
