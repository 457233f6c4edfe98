"""I10 Dead letters: one for each dead job, with all that is needed to judge and replay it."""

from __future__ import annotations

from collections.abc import Iterator

from duly.model.job import State
from duly.testing.evidence import Evidence, Finding


def dead_letters(evidence: Evidence) -> Iterator[Finding]:
    """A dead job has a reason, arguments, an error and attempts; a job that died has such a row."""
    for job in evidence.jobs.values():
        if job.state is not State.DEAD:
            continue
        if job.reason is None:
            yield Finding("I10", "is dead without a reason", job.id)
        if not job.arguments:
            yield Finding("I10", "is dead without its arguments", job.id)
        if job.token == 0:
            continue
        if job.error is None:
            yield Finding("I10", "is dead without an error", job.id)
        own = [
            attempt
            for attempt in evidence.attempts.get(job.id, [])
            if attempt.generation == job.generation
        ]
        if not own:
            yield Finding("I10", "is dead without an attempt", job.id)
    for job_id, entries in evidence.journal.items():
        kept = evidence.jobs.get(job_id)
        died = entries[-1].after is State.DEAD
        if died and kept is not None and kept.state is not State.DEAD:
            yield Finding("I10", f"died and is kept as {kept.state}", job_id)
