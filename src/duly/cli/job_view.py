"""How jobs look: as JSON, as rows of a table, and one in full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duly.cli.rendering import (
    Column,
    write_block,
    write_fields,
    write_heading,
    write_table,
)
from duly.model.attempt import Attempt, Failure
from duly.model.job import JobRecord, plain
from duly.model.step import FOREVER, Step, StepState
from duly.policy.duration import format as format_duration
from duly.policy.stepping import GIVEN
from duly.service.jobs import JobDetail
from duly.service.timeline import Happening
from duly.service.wording import absolute, relative, span

LONGEST_LINE = 60
LONGEST_VALUE = 4_000
MOST_LINES = 60


def as_json(job: JobRecord) -> dict[str, Any]:
    """The job under its stable keys: those of its record, and its status."""
    return {**plain(job), "status": job.status(datetime.now(UTC)).value}


def detail_as_json(detail: JobDetail) -> dict[str, Any]:
    """The job with its attempts, its explanation and its progress."""
    return {
        **as_json(detail.job),
        "explanation": msgspec.to_builtins(detail.explanation),
        "progress": msgspec.to_builtins(detail.progress),
        "steps": [_step_as_json(step) for step in detail.steps],
        "attempts": msgspec.to_builtins(detail.attempts),
    }


def write_jobs(jobs: Sequence[JobRecord]) -> None:
    """A table of jobs, one a line."""
    now = datetime.now(UTC)
    write_table(
        [
            Column("ID"),
            Column("STATUS", statuses=True),
            Column("TASK", flexible=True),
            Column("QUEUE", flexible=True),
            Column("TRY", right=True),
            Column("WHEN"),
        ],
        [
            [
                str(job.id),
                job.status(now).value,
                job.task,
                job.queue,
                f"{job.attempt}/{job.max_attempts}",
                relative(job.finished_at or job.started_at or job.run_at, now, units=1),
            ]
            for job in jobs
        ],
    )


def write_dead(jobs: Sequence[JobRecord]) -> None:
    """A table of dead jobs, one a line."""
    now = datetime.now(UTC)
    write_table(
        [
            Column("ID"),
            Column("TASK", flexible=True),
            Column("QUEUE", flexible=True),
            Column("DIED"),
            Column("ERROR", flexible=True),
        ],
        [
            [
                str(job.id),
                job.task,
                job.queue,
                relative(job.finished_at or job.created_at, now, units=1),
                summary(job.error) or job.reason or "",
            ]
            for job in jobs
        ],
    )


def write_detail(detail: JobDetail) -> None:
    """One job in full."""
    job, now = detail.job, detail.now
    write_fields(
        [
            ("Job", str(job.id)),
            ("Task", job.task),
            ("Status", job.status(now).value),
            ("Now", detail.explanation.sentence),
            ("Queue", f"{job.queue}, priority {job.priority}"),
            ("Submitted", _moment(job.created_at, now)),
            ("Due", "when it is woken" if job.run_at >= FOREVER else _moment(job.run_at, now)),
            *_optional(detail),
            ("Arguments", value_lines(job.arguments)),
            *([("Metadata", value_lines(job.metadata))] if job.metadata is not None else []),
            *([("Result", value_lines(job.result))] if job.result is not None else []),
        ]
    )
    if detail.steps:
        write_heading("Steps")
        _write_steps(detail.steps, now)
    if detail.attempts:
        write_heading("Attempts")
        _write_attempts(detail.attempts, now)
        _write_tracebacks(detail.attempts)


def write_timeline(happened: Sequence[Happening]) -> None:
    """What happened to a job, a line each, to the millisecond."""
    write_table(
        [
            Column("AT"),
            Column("TOKEN", right=True),
            Column("WHAT", flexible=True),
            Column("DETAIL", flexible=True),
        ],
        [
            [
                each.at.astimezone(UTC).isoformat(timespec="milliseconds"),
                str(each.token or ""),
                each.what,
                each.detail or "",
            ]
            for each in happened
        ],
    )


def summary(error: Failure | None) -> str:
    """An error in one line."""
    if error is None:
        return ""
    return f"{error.type}: {error.message}" if error.message else error.type


def _optional(detail: JobDetail) -> list[tuple[str, str]]:
    job, now = detail.job, detail.now
    worker = None if job.worker is None else str(job.worker)
    if detail.worker is not None:
        worker = detail.worker.name
    shown = [
        ("Started", None if job.started_at is None else _moment(job.started_at, now)),
        ("Finished", None if job.finished_at is None else _moment(job.finished_at, now)),
        ("Expires", None if job.expires_at is None else _moment(job.expires_at, now)),
        ("Worker", worker),
        ("Attempts", f"{job.attempt} of {job.max_attempts}" if job.attempt else None),
        ("Crashes", f"{job.crashes} of {job.max_crashes}" if job.crashes else None),
        ("Replays", str(job.generation - 1) if job.generation > 1 else None),
        ("Time limit", None if job.timeout is None else _seconds(job.timeout)),
        ("Key", job.key),
        ("Owner", job.owner),
        ("Tenant", job.tenant),
        ("Tags", ", ".join(job.tags) or None),
        ("Parent", None if job.parent_id is None else str(job.parent_id)),
        ("Flow", None if job.flow_id is None else str(job.flow_id)),
        ("Schedule", job.schedule_id),
        ("Nominal time", None if job.scheduled_for is None else _moment(job.scheduled_for, now)),
    ]
    progress = detail.progress
    if progress is not None:
        shown.append(("Progress", f"{progress.fraction:.0%} {progress.message}".rstrip()))
    return [(name, value) for name, value in shown if value is not None]


def _step_as_json(step: Step) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(step)
    values["result"] = None if step.result is None else msgspec.json.decode(step.result)
    return values


def _write_steps(steps: Sequence[Step], now: datetime) -> None:
    write_table(
        [
            Column("STEP", flexible=True),
            Column("KEY", flexible=True),
            Column("STATE", statuses=True),
            Column("TRIES", right=True),
            Column("AT"),
            Column("NOTE", flexible=True),
        ],
        [
            [
                step.name,
                step.key.removeprefix(GIVEN) if step.key.startswith(GIVEN) else "",
                step.state.value,
                str(step.tries or ""),
                "" if step.at is None else _moment(step.at, now),
                _step_note(step, now),
            ]
            for step in steps
        ],
    )


def _step_note(step: Step, now: datetime) -> str:
    if step.error_type is not None:
        return f"{step.error_type}: {step.error_message or ''}"
    if step.until is not None and step.state is not StepState.DONE:
        return f"until {_moment(step.until, now)}"
    return "" if step.child_id is None else f"job {step.child_id}"


def _write_attempts(attempts: Sequence[Attempt], now: datetime) -> None:
    write_table(
        [
            Column("NO", right=True),
            Column("OUTCOME", statuses=True),
            Column("STARTED"),
            Column("TOOK"),
            Column("ERROR", flexible=True),
        ],
        [
            [
                _number(attempt, attempts),
                attempt.outcome.value,
                _moment(attempt.started_at, now),
                span(attempt.ended_at - attempt.started_at),
                summary(attempt.error),
            ]
            for attempt in attempts
        ],
    )


def _write_tracebacks(attempts: Sequence[Attempt]) -> None:
    """Each traceback once, under the attempts it belongs to."""
    belonging: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.error is not None and attempt.error.traceback:
            name = _number(attempt, attempts)
            belonging.setdefault(attempt.error.traceback, []).append(name)
    for trace, names in belonging.items():
        which = "attempt" if len(names) == 1 else "attempts"
        write_heading(f"Traceback of {which} {', '.join(names)}")
        write_block(trace)


def _number(attempt: Attempt, attempts: Sequence[Attempt]) -> str:
    """The attempt's number; after a replay with its generation in front."""
    if attempts[-1].generation == 1:
        return str(attempt.number)
    return f"{attempt.generation}.{attempt.number}"


def _moment(moment: datetime, now: datetime) -> str:
    return f"{absolute(moment)} ({relative(moment, now)})"


def _seconds(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def value_lines(text: str) -> list[str]:
    """A JSON text, laid out in lines where it is long, and cut where it is very long."""
    if len(text) <= LONGEST_LINE:
        return [text]
    lines = json.dumps(msgspec.json.decode(text), indent=2, ensure_ascii=False).split("\n")
    if len(lines) <= MOST_LINES and len(text) <= LONGEST_VALUE:
        return lines
    cut = [f"{line[:LONGEST_LINE]}..." if len(line) > LONGEST_LINE else line for line in lines]
    return [*cut[:MOST_LINES], f"... {len(text):,} characters in all; --json shows them"]
