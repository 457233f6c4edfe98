"""A history, looked up by job; and what speaks against an invariant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

import msgspec

from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State
from duly.model.journal import JournalEntry
from duly.policy.states import FINAL
from duly.testing.history import Effect, History

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
MOST_AROUND = 60


class Finding(msgspec.Struct, frozen=True):
    """What one invariant has to say against a job, or against all of them."""

    invariant: str
    message: str
    job_id: UUID | None = None


T = TypeVar("T", JournalEntry, Attempt, Effect)


class Evidence:
    """The history, with what belongs to each job at hand."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def jobs(self) -> dict[UUID, JobRecord]:
        """Every stored job; of one that is in two places, one."""
        return {job.id: job for job in self.history.jobs}

    @cached_property
    def journal(self) -> dict[UUID, list[JournalEntry]]:
        """The entries of each job, in order."""
        return _by_job(sorted(self.history.journal, key=lambda entry: entry.number))

    @cached_property
    def attempts(self) -> dict[UUID, list[Attempt]]:
        """The attempts of each job, in the order of their tokens."""
        return _by_job(sorted(self.history.attempts, key=lambda attempt: attempt.token))

    @cached_property
    def effects(self) -> dict[UUID, list[Effect]]:
        """What the code of each job did, in order; without steps."""
        return _by_job([each for each in self.history.effects or () if each.step is None])

    def claims(self, job_id: UUID) -> Iterator[tuple[JournalEntry, JournalEntry]]:
        """Each claim of a job in the journal, after the entry before it."""
        for earlier, later in pairwise(self.journal.get(job_id, [])):
            if later.after is State.RUNNING and later.token != earlier.token:
                yield earlier, later

    def live(self, job_id: UUID) -> list[tuple[datetime, datetime | None]]:
        """When a job was live, by the journal: from and to, or since."""
        spans: list[tuple[datetime, datetime | None]] = []
        since: datetime | None = None
        for entry in self.journal.get(job_id, []):
            if entry.after in FINAL and since is not None:
                spans.append((since, entry.at))
                since = None
            elif entry.after not in FINAL and since is None:
                since = entry.at
        if since is not None:
            spans.append((since, None))
        return spans

    def around(self, job_id: UUID) -> list[str]:
        """All that is known of a job, a line each, in the order of time."""
        found: list[tuple[datetime, str]] = []
        for submission in self.history.submissions or ():
            if submission.job_id == job_id:
                key = "" if submission.key is None else f", key {submission.key!r}"
                line = f"client was told {submission.told}{key}"
                found.append((submission.at or _LONG_AGO, line))
        for entry in self.journal.get(job_id, []):
            found.append((entry.at, _told_by(entry)))
        for attempt in self.attempts.get(job_id, []):
            line = f"attempt {attempt.number} under token {attempt.token}: {attempt.outcome}"
            found.append((attempt.ended_at, line))
        for effect in self.history.effects or ():
            if effect.job_id == job_id:
                found.append((effect.started or _LONG_AGO, _told_by_code(effect)))
        job = self.jobs.get(job_id)
        row = "no row" if job is None else f"row: {job.state}, token {job.token}, {job.task}"
        ordered = sorted(found, key=lambda each: each[0])[-MOST_AROUND:]
        return [*(f"{at.isoformat()} {line}" for at, line in ordered), f"now: {row}"]


def _by_job(records: list[T]) -> dict[UUID, list[T]]:
    found: dict[UUID, list[T]] = {}
    for record in records:
        found.setdefault(record.job_id, []).append(record)
    return found


def _told_by(entry: JournalEntry) -> str:
    before = "new" if entry.before is None else entry.before.value
    why = "" if entry.reason is None else f" ({entry.reason})"
    return (
        f"journal {entry.number}: {before} -> {entry.after.value}, token {entry.token}, "
        f"attempt {entry.attempt}, generation {entry.generation}, worker {entry.worker}{why}"
    )


def _told_by_code(effect: Effect) -> str:
    what = "its code" if effect.step is None else f"its step {effect.step}"
    end = "did not end" if effect.ended is None else f"ended {effect.ended.isoformat()}"
    return f"{what} ran on {effect.node or 'some node'} under token {effect.token}, {end}"
