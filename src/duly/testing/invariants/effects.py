"""I6 Effects: what the code of a job did, against what the store says it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from duly.model.attempt import Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.testing.evidence import Evidence, Finding
from duly.testing.history import Effect

UNREPORTED = frozenset({Outcome.CRASHED, Outcome.LOST})


def effects(evidence: Evidence) -> Iterator[Finding]:
    """Transactional: one effect for a success, none otherwise. Others: at least one for a success,
    at most one for each claim, all under one idempotency key; at most once: one at most."""
    if evidence.history.effects is None:
        return
    noted = {effect.job_id for effect in evidence.history.effects}
    kinds = {evidence.jobs[job_id].task for job_id in noted if job_id in evidence.jobs}
    for job_id in noted:
        if job_id not in evidence.jobs and job_id not in evidence.journal:
            yield Finding("I6", "ran and is not stored", job_id)
    for job in evidence.jobs.values():
        found = evidence.effects.get(job.id, [])
        # A task none of whose jobs noted anything has no effects to be counted.
        if job.task not in kinds:
            continue
        if job.delivery is Delivery.TRANSACTIONAL:
            yield from _transactional(job, found)
        else:
            yield from _ordinary(evidence, job, found)


def _transactional(job: JobRecord, found: list[Effect]) -> Iterator[Finding]:
    wanted = int(job.state is State.SUCCEEDED)
    if len(found) != wanted:
        message = f"is {job.state} with {len(found)} committed effects instead of {wanted}"
        yield Finding("I6", message, job.id)
    elif found and found[0].token != job.token:
        message = f"has an effect under token {found[0].token}, the latest is {job.token}"
        yield Finding("I6", message, job.id)


def _ordinary(evidence: Evidence, job: JobRecord, found: list[Effect]) -> Iterator[Finding]:
    if job.state is State.SUCCEEDED and not any(effect.ended for effect in found):
        yield Finding("I6", "succeeded without an effect", job.id)
    for token, count in Counter(effect.token for effect in found).items():
        if count > 1:
            yield Finding("I6", f"ran {count} times under token {token}", job.id)
    claimed = {claim.token for _, claim in evidence.claims(job.id)}
    for effect in found:
        if claimed and effect.token not in claimed:
            yield Finding("I6", f"ran under token {effect.token}, which no claim gave", job.id)
        if effect.key is not None and effect.key != str(job.id):
            yield Finding("I6", f"ran under the idempotency key {effect.key}", job.id)
    if job.delivery is Delivery.AT_MOST_ONCE:
        yield from _at_most_once(evidence, job, found)


def _at_most_once(evidence: Evidence, job: JobRecord, found: list[Effect]) -> Iterator[Finding]:
    """An exception is a report, after which there may be another attempt; silence is the end."""
    attempts = evidence.attempts.get(job.id, [])
    begun = len(attempts) + int(job.state is State.RUNNING)
    if len(found) > begun:
        message = f"is at most once and ran {len(found)} times, {begun} of them begun"
        yield Finding("I6", message, job.id)
    for first, second in pairwise(attempts):
        if first.outcome in UNREPORTED and first.generation == second.generation:
            message = f"is at most once and ran again after token {first.token} was {first.outcome}"
            yield Finding("I6", message, job.id)
