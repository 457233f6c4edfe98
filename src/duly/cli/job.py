"""`duly job`: submit, list, show, explain, timeline, logs, wait, cancel, retry."""

from __future__ import annotations

from typing import Any, cast

import click

from duly.cli import waiting
from duly.cli.failures import FAILURE, SUCCESS, WRONG_INPUT, end_with
from duly.cli.job_view import (
    as_json,
    detail_as_json,
    summary,
    write_detail,
    write_jobs,
    write_timeline,
)
from duly.cli.rendering import patience, tell, write_json, write_line
from duly.cli.session import Session, connected
from duly.cli.submitting import submit
from duly.cli.times import length, since
from duly.client.filtering import Conditions, criteria
from duly.model.job import JobRecord, State, Status
from duly.model.query import Cancellation
from duly.service.jobs import Retried, statuses_of
from duly.service.wording import counted

STATUSES = [State.PENDING.value, *(status.value for status in Status)]

CANCELLED_AS = {
    Cancellation.CANCELLED: "cancelled",
    Cancellation.REQUESTED: "runs; it was asked to stop",
    Cancellation.FINISHED: "not cancelled: it has finished",
    Cancellation.UNKNOWN: "no such job",
}
RETRIED_AS = {
    Retried.REPLAYED: "was dead; replayed with fresh attempts",
    Retried.HURRIED: "runs now instead of later",
    Retried.READY: "is ready already; `duly job explain` tells what it waits for",
    Retried.RUNNING: "is running already",
    Retried.HELD_BACK: "not hurried: it waits for other jobs or an event",
    Retried.KEY_HELD: "not replayed: another job holds its key by now",
    Retried.FLOW_ENDING: "not replayed: the rest of its flow is still being cancelled",
    Retried.FINISHED: "not retried: it has finished; submit it again instead",
    Retried.CHANGED: "changed at this very moment: look again",
    Retried.UNKNOWN: "no such job",
}
_FAILED = {
    Cancellation.FINISHED: FAILURE,
    Cancellation.UNKNOWN: WRONG_INPUT,
    Retried.HELD_BACK: FAILURE,
    Retried.KEY_HELD: FAILURE,
    Retried.FLOW_ENDING: FAILURE,
    Retried.FINISHED: FAILURE,
    Retried.CHANGED: FAILURE,
    Retried.UNKNOWN: WRONG_INPUT,
}


@click.group()
def job() -> None:
    """Submit jobs, look at them, wait for them, cancel and retry them.

    An ID may be shortened to its beginning, 8 digits or more, where that names one job.
    """


job.add_command(submit)


@job.command("list")
@click.option(
    "--status",
    "--state",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only jobs in this status; several are allowed. "
    "`pending` stands for scheduled, ready and retrying.",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--tag", "tags", multiple=True, help="Only jobs with this tag; several: with all.")
@click.option("--tenant", help="Only jobs of this tenant.")
@click.option("--owner", help="Only jobs of this owner.")
@click.option("--key", help="Only jobs with this key.")
@click.option("--schedule", help="Only jobs that this schedule has made.")
@click.option(
    "--since",
    "submitted",
    metavar="TIME",
    help="Only jobs submitted since: 2h (ago), or 2026-11-16T09:00Z.",
)
@click.option(
    "--finished-since",
    "finished",
    metavar="TIME",
    help="Only jobs that have finished since: 2h (ago), or a time.",
)
@click.option("--limit", type=int, default=50, show_default=True, help="How many at most.")
@click.option("--before", metavar="ID", help="The next page: only jobs older than this one.")
@connected()
def list_jobs(
    session: Session,
    statuses: tuple[str, ...],
    submitted: str | None,
    finished: str | None,
    limit: int,
    before: str | None,
    **conditions: Any,
) -> None:
    """List jobs, the newest first."""
    conditions["created_from"] = since(submitted, "--since")
    conditions["finished_from"] = since(finished, "--finished-since")
    page = session.jobs.page(
        criteria(cast(Conditions, conditions)),
        statuses_of(statuses) if statuses else None,
        limit,
        None if before is None else session.identify(before),
    )
    if session.as_json:
        write_json({"jobs": [as_json(each) for each in page.jobs], "next": page.next})
        return
    write_jobs(page.jobs)
    if not page.jobs:
        tell("No jobs match." if page.next is None else "No jobs match among the newest ones.")
    if page.next is not None:
        tell(f"There may be more: --before {page.next}")


@job.command()
@click.argument("job_id", metavar="ID")
@connected()
def show(session: Session, job_id: str) -> None:
    """Show everything about a job.

    Its arguments and result, its attempts with errors and tracebacks, and what it waits for.
    """
    detail = session.jobs.detail(session.identify(job_id))
    if session.as_json:
        write_json(detail_as_json(detail))
    else:
        write_detail(detail)


@job.command()
@click.argument("job_id", metavar="ID")
@connected()
def explain(session: Session, job_id: str) -> None:
    """Say in one sentence what a job waits for, or what became of it."""
    known = session.identify(job_id)
    explanation = session.jobs.explain(known)
    if session.as_json:
        write_json({"id": known, "cause": explanation.cause, "sentence": explanation.sentence})
    else:
        write_line(explanation.sentence)


@job.command()
@click.argument("job_id", metavar="ID")
@connected()
def timeline(session: Session, job_id: str) -> None:
    """Show what happened to a job, in order.

    Where the database keeps a journal, every change is shown; else what its attempts tell.
    """
    happened = session.jobs.timeline(session.identify(job_id))
    if session.as_json:
        write_json({"happened": happened})
    else:
        write_timeline(happened)


@job.command()
@click.argument("job_id", metavar="ID")
@connected()
def logs(session: Session, job_id: str) -> None:
    """Print what a job has logged so far."""
    lines = session.jobs.logs(session.identify(job_id))
    if session.as_json:
        write_json({"lines": lines})
        return
    for line in lines:
        write_line(f"{line.at.isoformat()} {line.level} {line.logger}: {line.message}")
    if not lines:
        tell("It has logged nothing.")


@job.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", metavar="DURATION", help="Give up after this long, such as 30s or 5m.")
@connected()
def wait(session: Session, job_ids: tuple[str, ...], timeout: str | None) -> None:
    """Wait until jobs have finished.

    Prints one line for each as it finishes: id, status, and the result or what went wrong.
    Exits with 0 when all succeeded, 1 when one is dead or cancelled, 124 on timeout.
    """
    limit = length(timeout, "--timeout")
    known = list(dict.fromkeys(session.identify(each) for each in job_ids))
    for job_id in known:
        session.jobs.get(job_id)
    finished: list[JobRecord] = []
    with patience(f"Waiting for {counted(len(known), 'job')}"):
        for record in waiting.finished(session.app, known, limit):
            finished.append(record)
            if not session.as_json:
                write_line(f"{record.id} {record.state.value} {outcome(record)}".rstrip())
    unfinished = [each for each in known if each not in {record.id for record in finished}]
    if session.as_json:
        write_json({"jobs": [as_json(each) for each in finished], "unfinished": unfinished})
    for job_id in unfinished:
        tell(f"{job_id} has not finished: {session.jobs.explain(job_id).sentence}")
    end_with(waiting.exit_code(len(known), finished))


@job.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", help="Why; kept with the job.")
@connected()
def cancel(session: Session, job_ids: tuple[str, ...], reason: str | None) -> None:
    """Cancel jobs.

    Those that have not started are cancelled at once, those that run are asked to stop.
    Exits with 1 when one had finished already.
    """
    known = [session.identify(each) for each in job_ids]
    answers = session.jobs.cancel(known, reason)
    _report(session, known, answers, CANCELLED_AS)


@job.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@connected()
def retry(session: Session, job_ids: tuple[str, ...]) -> None:
    """Run dead, scheduled or retrying jobs now.

    Dead ones are replayed with fresh attempts, the others need not wait any longer.
    Exits with 1 when that was not possible for one of them.
    """
    known = [session.identify(each) for each in job_ids]
    _report(session, known, session.jobs.retry(known), RETRIED_AS)


def outcome(record: JobRecord) -> str:
    """What a finished job came to: its result, or what went wrong."""
    if record.state is State.SUCCEEDED:
        return record.result or "null"
    return summary(record.error) if record.state is State.DEAD else record.reason or ""


def _report(session: Session, job_ids: list[Any], answers: list[Any], words: Any) -> None:
    if session.as_json:
        pairs = zip(job_ids, answers, strict=True)
        write_json({"jobs": [{"id": each, "outcome": answer} for each, answer in pairs]})
    else:
        for job_id, answer in zip(job_ids, answers, strict=True):
            write_line(f"{job_id} {words[answer]}")
    end_with(max((_FAILED.get(answer, SUCCESS) for answer in answers), default=SUCCESS))
