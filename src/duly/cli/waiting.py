"""Waiting for jobs to finish, as `duly job wait` and `duly job submit --wait` do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from time import monotonic
from uuid import UUID

from duly.app import App
from duly.cli.failures import FAILURE, SUCCESS, TIMED_OUT
from duly.client.waiting import answers, next_of
from duly.errors import UnknownJob
from duly.model.job import JobRecord, State


def finished(app: App, job_ids: Sequence[UUID], timeout: timedelta | None) -> Iterator[JobRecord]:
    """The jobs as they finish; those that do not within `timeout` are left out.

    UnknownJob when there is no such job, or it vanished meanwhile.
    """
    deadline = None if timeout is None else monotonic() + timeout.total_seconds()
    told = answers()
    waiting = dict.fromkeys(job_ids)
    try:
        for job_id in waiting:
            app.client.waiting.enter(job_id, told.put)
        while waiting:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            answer = next_of(told, left)
            if answer is None:
                return
            job_id, found = answer
            del waiting[job_id]
            if isinstance(found, Exception):
                raise found
            if found is None:
                raise UnknownJob(job_id)
            yield found
    finally:
        for job_id in waiting:
            app.client.waiting.leave(job_id, told.put)


def exit_code(expected: int, jobs: Sequence[JobRecord]) -> int:
    """0 when all succeeded, 1 when one is dead or cancelled, 124 when one has not finished."""
    if any(job.state is not State.SUCCEEDED for job in jobs):
        return FAILURE
    return SUCCESS if len(jobs) == expected else TIMED_OUT
