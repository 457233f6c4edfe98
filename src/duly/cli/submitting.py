"""`duly job submit`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from duly.cli import waiting
from duly.cli.arguments import given_arguments, priority, with_hint
from duly.cli.failures import end_with
from duly.cli.job_view import as_json, summary
from duly.cli.rendering import patience, tell, write_json, write_line
from duly.cli.session import Session, connected
from duly.client.job import Job
from duly.errors import InvalidArguments, InvalidOption, UnknownTask
from duly.model.job import JobRecord, KeyPolicy, State
from duly.policy import duration, options
from duly.service.wording import relative


@click.command()
@click.argument("task")
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--args", "arguments", metavar="JSON", help="All arguments as a JSON object; - reads stdin."
)
@click.option("--queue", help="The queue, instead of the task's own.")
@click.option("--priority", help="0 to 100, or low, normal, high, urgent.")
@click.option("--delay", metavar="DURATION", help="Run it this much later, such as 90s or 24h.")
@click.option("--at", metavar="TIME", help="Run it at this time, such as 2026-11-16T09:00Z.")
@click.option("--key", help="At most one live job of the task has this key.")
@click.option(
    "--key-policy",
    type=click.Choice([policy.value for policy in KeyPolicy]),
    help="When the key is held: return that job (the default), replace or reject.",
)
@click.option(
    "--key-window", metavar="DURATION", help="Hold the key this long after the job ended."
)
@click.option("--retries", type=int, help="How many attempts may follow a failed one.")
@click.option("--timeout", metavar="DURATION", help="The time limit of an attempt.")
@click.option("--expires", metavar="TIME", help="Give up if not started: after 1h, or at a time.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
@click.option("--tenant", help="The tenant it runs for.")
@click.option("--owner", help="Who it belongs to.")
@click.option("--unchecked", is_flag=True, help="Submit it although no worker knows the task.")
@click.option(
    "--wait",
    "patient",
    metavar="[DURATION]",
    is_flag=False,
    flag_value="",
    help="Wait until it has finished, at most so long; write --wait=30s, or --wait at the end.",
)
@connected(creates=True)
def submit(
    session: Session,
    task: str,
    pairs: tuple[str, ...],
    arguments: str | None,
    patient: str | None,
    unchecked: bool,
    **given: Any,
) -> None:
    """Submit a job of TASK and print its id.

    Arguments are given as NAME=VALUE or with --args. A VALUE that is JSON is taken as such:
    count=3 is a number, on=true a truth value, ids=[1,2] a list. Anything else is text, as in
    to=ada@example.com; text that looks like JSON needs quotes of its own: code='"007"'.

    Names and types are checked against the task's declaration, which a worker publishes at its
    start and --app MODULE:APP takes from the code.

    With --wait, the result is printed on a second line, as JSON, and the command exits with 0
    when the job succeeded, 1 when it is dead or cancelled, 124 on timeout.
    """
    limit = _wait_limit(patient)
    if not unchecked and session.app.registry.get(task) is None:
        # Without a database there is no catalogue either: this must not make an empty one.
        session.database.require()
    values = given_arguments(pairs, arguments, session.app.config.payload_limit)
    job = _submitted(session, task, values, _options(given), unchecked)
    if patient is None:
        _tell(session, job)
        return
    if not session.as_json:
        _tell(session, job)
    finished: list[JobRecord] = []
    with patience(f"Waiting for {job.id}"):
        finished.extend(waiting.finished(session.app, [job.id], limit))
    last = finished[0] if finished else session.jobs.get(job.id)
    if session.as_json:
        write_json({**as_json(last), "created": job.created})
    elif last.state is State.SUCCEEDED:
        write_line(last.result or "null")
    if last.state is not State.SUCCEEDED:
        tell(_bad_news(session, last))
    end_with(waiting.exit_code(1, finished))


def _submitted(
    session: Session, name: str, arguments: dict[str, Any], given: dict[str, Any], unchecked: bool
) -> Job[Any]:
    task = session.app.named(name, unchecked=unchecked)
    try:
        return task.using(**given).enqueue(**arguments)
    except InvalidArguments as error:
        raise with_hint(error, arguments) from error
    except UnknownTask:
        store = session.app.store
        known = ", ".join(entry.name for entry in store.run(store.catalogue()))
        raise UnknownTask(
            name,
            f"no worker has published it (known: {known or 'none yet'}); take it from the code "
            "with --app MODULE:APP, or submit it all the same with --unchecked",
        ) from None


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options under the names and in the types that a submission takes them."""
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "at" in chosen and "delay" in chosen:
        raise click.UsageError("give either --delay or --at, not both")
    if "at" in chosen:
        chosen["run_at"] = options.instant(chosen.pop("at"), "--at")
    if "priority" in chosen:
        chosen["priority"] = priority(chosen["priority"])
    for name in ("delay", "timeout", "key_window"):
        if name in chosen:
            chosen[name] = duration.parse(chosen[name], f"--{name.replace('_', '-')}")
    return chosen


def _wait_limit(patient: str | None) -> timedelta | None:
    if not patient:
        return None
    try:
        return duration.parse(patient, "--wait")
    except InvalidOption as error:
        raise click.UsageError(
            f"{error}; with arguments after it, write --wait=30s or put --wait at the end"
        ) from error


def _tell(session: Session, job: Job[Any]) -> None:
    if session.as_json:
        write_json({**as_json(job.record), "created": job.created})
        return
    write_line(str(job.id))
    record = job.record
    if not job.created:
        tell(f"Job {job.id} holds key {record.key!r} already: nothing was added.")
        return
    due = (
        "due now"
        if record.run_at <= record.created_at
        else (f"due {relative(record.run_at, record.created_at)}")
    )
    tell(f"Submitted {record.task} to queue {record.queue}, {due}.")


def _bad_news(session: Session, job: JobRecord) -> str:
    if job.state is State.DEAD:
        return f"It is dead: {summary(job.error) or job.reason}"
    if job.state is State.CANCELLED:
        return f"It was cancelled: {job.reason or 'on request'}"
    return f"It has not finished: {session.jobs.explain(job.id).sentence}"
