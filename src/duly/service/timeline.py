"""What happened to a job, in order: from its journal if there is one, else from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State
from duly.model.journal import JournalEntry
from duly.model.step import Step


class Happening(msgspec.Struct, frozen=True):
    """One thing that happened to a job. `token` tells claims apart; 0 before the first."""

    at: datetime
    what: str
    token: int
    detail: str | None = None


def timeline(
    job: JobRecord,
    attempts: Sequence[Attempt],
    steps: Sequence[Step],
    journal: Sequence[JournalEntry],
) -> list[Happening]:
    """Everything that is known to have happened, the earliest first."""
    recorded = [
        Happening(step.at, f"step {step.name}: {step.state.value}", 0, step.error_type)
        for step in steps
        if step.at is not None
    ]
    known = _from_journal(journal) if journal else _from_rows(job, attempts)
    return sorted([*known, *recorded], key=lambda each: each.at)


def _from_journal(journal: Sequence[JournalEntry]) -> list[Happening]:
    return [Happening(each.at, _change(each), each.token, _detail(each)) for each in journal]


def _change(entry: JournalEntry) -> str:
    if entry.before is None:
        return entry.after.value
    if entry.before is not entry.after:
        return f"{entry.before.value} to {entry.after.value}"
    return "asked to cancel" if entry.after is State.RUNNING else "given another time"


def _detail(entry: JournalEntry) -> str | None:
    if entry.before is not State.RUNNING and entry.after is State.RUNNING:
        return f"attempt {entry.attempt}, worker {entry.worker}"
    return entry.reason


def _from_rows(job: JobRecord, attempts: Sequence[Attempt]) -> list[Happening]:
    found = [Happening(job.created_at, "submitted", 0)]
    for attempt in attempts:
        detail = f"attempt {attempt.number}, worker {attempt.worker}"
        found.append(Happening(attempt.started_at, "started", attempt.token, detail))
        error = None if attempt.error is None else f"{attempt.error.type}: {attempt.error.message}"
        found.append(Happening(attempt.ended_at, attempt.outcome.value, attempt.token, error))
    if job.state is State.RUNNING and job.started_at is not None:
        detail = f"attempt {job.attempt}, worker {job.worker}"
        found.append(Happening(job.started_at, "started", job.token, detail))
    if job.cancel_requested_at is not None:
        found.append(Happening(job.cancel_requested_at, "asked to cancel", job.token))
    if job.finished_at is not None:
        found.append(Happening(job.finished_at, job.state.value, job.token, job.reason))
    return found
