"""`duly dead`: list, show, replay, purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click

from duly.cli.arguments import object_from
from duly.cli.confirming import confirm
from duly.cli.failures import FAILURE, SUCCESS, WRONG_INPUT, end_with
from duly.cli.job_view import as_json, detail_as_json, summary, write_dead, write_detail
from duly.cli.rendering import Column, progress, tell, write_json, write_line, write_table
from duly.cli.session import Function, Session, connected
from duly.cli.times import length, since
from duly.errors import InvalidOption
from duly.model.job import State
from duly.model.query import Replay
from duly.service.dead import DeadFilter, DeadGroup
from duly.service.wording import counted, relative

FAILED = {
    Replay.NOT_DEAD: FAILURE,
    Replay.KEY_HELD: FAILURE,
    Replay.FLOW_ENDING: FAILURE,
    Replay.UNKNOWN: WRONG_INPUT,
}
REPLAYED_AS = {
    Replay.REPLAYED: "replayed",
    Replay.NOT_DEAD: "not dead (any more)",
    Replay.KEY_HELD: "not replayed, because another job holds their key by now",
    Replay.FLOW_ENDING: "not replayed, because the rest of their flow is still being cancelled",
    Replay.UNKNOWN: "unknown",
}


@click.group()
def dead() -> None:
    """Look at dead jobs, replay them, purge them.

    A job is dead when its attempts are exhausted; it is kept with everything needed to run it
    again.
    """


def _chosen(function: Function) -> Function:
    """The options that choose dead jobs."""
    for option in (
        click.option(
            "--older-than",
            metavar="DURATION",
            help="Only those that have been dead for longer, such as 30d.",
        ),
        click.option(
            "--since",
            "died",
            metavar="TIME",
            help="Only those that died since: 2h (ago), or a time.",
        ),
        click.option("--fingerprint", help="Only those that died of this fault; see --group."),
        click.option("--task", help="Only those of this task."),
        click.option("--queue", help="Only those of this queue."),
    ):
        function = option(function)
    return function


@dead.command("list")
@_chosen
@click.option("--group", is_flag=True, help="Count them by task and fault instead.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option("--before", metavar="ID", help="The next page: only jobs older than this one.")
@connected()
def list_dead(
    session: Session,
    group: bool,
    limit: int,
    before: str | None,
    **filters: str | None,
) -> None:
    """List dead jobs, the last submitted first, or --group them by what they died of."""
    chosen = _filter(**filters)
    if group:
        _write_groups(session, session.dead.groups(chosen)[:limit])
        return
    page = session.dead.page(chosen, limit, None if before is None else session.identify(before))
    if session.as_json:
        write_json({"jobs": [as_json(each) for each in page.jobs], "next": page.next})
        return
    write_dead(page.jobs)
    if not page.jobs:
        tell("No dead jobs match.")
    if page.next is not None:
        tell(f"There are more: --before {page.next}")


@dead.command()
@click.argument("job_id", metavar="ID")
@connected()
def show(session: Session, job_id: str) -> None:
    """Show everything about a dead job."""
    detail = session.jobs.detail(session.identify(job_id))
    if detail.job.state is not State.DEAD:
        raise InvalidOption(
            "job id", f"{detail.job.id} is {detail.job.state.value}, not dead: use duly job show"
        )
    if session.as_json:
        write_json(detail_as_json(detail))
    else:
        write_detail(detail)


@dead.command()
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All dead jobs.")
@_chosen
@click.option(
    "--args",
    "arguments",
    metavar="JSON",
    help="Other arguments for a single job, as a JSON object; - reads stdin.",
)
@click.option("--forget-steps", is_flag=True, help="Run recorded steps again, too.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@connected()
def replay(
    session: Session,
    job_ids: tuple[str, ...],
    everything: bool,
    arguments: str | None,
    forget_steps: bool,
    yes: bool,
    **filters: str | None,
) -> None:
    """Run dead jobs again with fresh attempts: by ID, by filter, or --all.

    Tells how many and asks first, unless --yes is given. Exits with 1 when one could not be
    replayed.
    """
    chosen = _filter(**filters)
    _require_one_way(job_ids, everything, chosen)
    if arguments is not None and len(job_ids) != 1:
        raise click.UsageError("--args needs exactly one ID")
    known: Sequence[UUID] = [session.identify(each) for each in job_ids]
    if not job_ids:
        known = session.dead.choose(chosen)
    if not known:
        tell("No dead jobs match.")
        answers: dict[Replay, int] = {}
    elif arguments is not None:
        edited = object_from(arguments, session.app.config.payload_limit)
        encoded = session.app.client.encode(session.jobs.get(known[0]).task, edited)
        confirm(yes, "Replay 1 job with these arguments?")
        answers = {session.dead.replay_edited(known[0], encoded, not forget_steps): 1}
    else:
        confirm(yes, f"Replay {counted(len(known), 'job')}?")
        with progress(len(known), "Replaying") as done:
            answers = dict(session.dead.replay(known, done, not forget_steps))
    if session.as_json:
        write_json({outcome.value: answers.get(outcome, 0) for outcome in Replay})
    else:
        for outcome, jobs in answers.items():
            write_line(f"{counted(jobs, 'job')} {REPLAYED_AS[outcome]}")
    end_with(max((FAILED.get(answer, SUCCESS) for answer in answers), default=SUCCESS))


@dead.command()
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All dead jobs.")
@_chosen
@click.option("--yes", is_flag=True, help="Do not ask first.")
@connected()
def purge(
    session: Session,
    job_ids: tuple[str, ...],
    everything: bool,
    yes: bool,
    **filters: str | None,
) -> None:
    """Delete dead jobs and their attempts for good: by ID, by filter, or --all.

    Tells how many and asks first, unless --yes is given.
    """
    chosen = _filter(**filters)
    _require_one_way(job_ids, everything, chosen)
    known: Sequence[UUID] = [session.identify(each) for each in job_ids]
    if not job_ids:
        known = session.dead.choose(chosen)
    purged = 0
    if known:
        confirm(yes, f"Delete {counted(len(known), 'dead job')} for good?")
        with progress(len(known), "Deleting") as done:
            purged = session.dead.purge(known, done)
    if session.as_json:
        write_json({"purged": purged})
    elif known:
        write_line(f"{counted(purged, 'job')} deleted")
    else:
        tell("No dead jobs match.")


def _filter(
    queue: str | None,
    task: str | None,
    fingerprint: str | None,
    died: str | None,
    older_than: str | None,
) -> DeadFilter:
    age = length(older_than, "--older-than")
    return DeadFilter(
        queue=queue,
        task=task,
        fingerprint=fingerprint,
        died_from=since(died, "--since"),
        died_before=None if age is None else datetime.now(UTC) - age,
    )


def _require_one_way(job_ids: Sequence[str], everything: bool, chosen: DeadFilter) -> None:
    ways = [bool(job_ids), everything, chosen != DeadFilter()]
    if sum(ways) == 0:
        raise click.UsageError("say which: by ID, by a filter such as --queue, or --all")
    if sum(ways) > 1:
        raise click.UsageError("choose one way to say which: IDs, a filter, or --all")


def _write_groups(session: Session, groups: Sequence[DeadGroup]) -> None:
    if session.as_json:
        write_json({"groups": [_group_as_json(group) for group in groups]})
        return
    now = datetime.now(UTC)
    write_table(
        [
            Column("JOBS", right=True),
            Column("FINGERPRINT"),
            Column("TASK", flexible=True),
            Column("LAST"),
            Column("ERROR", flexible=True),
        ],
        [
            [
                f"{group.jobs:,}",
                group.fingerprint or "-",
                group.task,
                relative(group.last_died_at, now, units=1),
                summary(group.example.error) or group.example.reason or "",
            ]
            for group in groups
        ],
    )
    if not groups:
        tell("No dead jobs match.")


def _group_as_json(group: DeadGroup) -> dict[str, Any]:
    error = group.example.error
    return {
        "fingerprint": group.fingerprint,
        "task": group.task,
        "jobs": group.jobs,
        "first_died_at": group.first_died_at,
        "last_died_at": group.last_died_at,
        "reason": group.example.reason,
        "error": None if error is None else {"type": error.type, "message": error.message},
        "example": group.example.id,
    }
