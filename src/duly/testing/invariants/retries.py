"""I8 Retries: what is charged, when the next attempt starts, and that a cancel is the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from duly.model.job import Delivery, JobRecord, State
from duly.policy.states import CHARGED
from duly.runtime.ahead import LONGEST
from duly.testing.evidence import Evidence, Finding

COARSE = timedelta(milliseconds=5)
"""How coarse the clock of a journal may be."""
CLAIMED_AHEAD = timedelta(seconds=LONGEST)
"""How long before it is due a worker may hold a job whose code it starts when it is."""


def retries(evidence: Evidence) -> Iterator[Finding]:
    """Charged attempts count 1..n, n no more than the maximum; crashes have a budget of their own;
    nothing starts before it is due, or after a cancel."""
    for job_id, attempts in evidence.attempts.items():
        for generation in {attempt.generation for attempt in attempts}:
            numbers = [
                attempt.number
                for attempt in attempts
                if attempt.generation == generation and attempt.outcome in CHARGED
            ]
            if numbers != list(range(1, len(numbers) + 1)):
                message = f"generation {generation} charged the attempts {numbers}, not 1, 2, 3"
                yield Finding("I8", message, job_id)
    for job in evidence.jobs.values():
        yield from _charges(evidence, job)
        if job.crashes > job.max_crashes:
            message = f"crashed {job.crashes} times, {job.max_crashes} are allowed"
            yield Finding("I8", message, job.id)
    for job_id in evidence.journal:
        yield from _starts(evidence, job_id)


def _charges(evidence: Evidence, job: JobRecord) -> Iterator[Finding]:
    charged = sum(
        attempt.generation == job.generation and attempt.outcome in CHARGED
        for attempt in evidence.attempts.get(job.id, [])
    )
    # What fails while compensations run is charged beyond the maximum.
    if charged > job.max_attempts and job.undoing is None:
        message = f"was charged {charged} attempts, {job.max_attempts} are allowed"
        yield Finding("I8", message, job.id)
    # An at-most-once job that fails before it began leaves no row of an attempt.
    expected = charged + int(job.state is State.RUNNING)
    if job.attempt != expected and job.delivery is not Delivery.AT_MOST_ONCE:
        yield Finding("I8", f"counts {job.attempt} attempts, {expected} were charged", job.id)


def _starts(evidence: Evidence, job_id: UUID) -> Iterator[Finding]:
    for before, claim in evidence.claims(job_id):
        if before.cancelling:
            yield Finding("I8", f"was claimed (token {claim.token}) after its cancel", job_id)
        if not evidence.history.timed:
            continue
        early = (before.due - claim.at).total_seconds()
        if early > (COARSE + CLAIMED_AHEAD).total_seconds():
            message = f"was claimed (token {claim.token}) {early:.3f} s before it was due"
            yield Finding("I8", message, job_id)
        for effect in evidence.effects.get(job_id, ()):
            if effect.token == claim.token and effect.started is not None:
                early = (before.due - effect.started).total_seconds()
                if early > COARSE.total_seconds():
                    message = f"ran (token {claim.token}) {early:.3f} s before it was due"
                    yield Finding("I8", message, job_id)
