"""I1 No loss: what was acknowledged is done. I2 No invention: what is done was asked for, once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from duly.model.job import JobRecord, State
from duly.model.step import FOREVER
from duly.policy.states import FINAL
from duly.testing.evidence import Evidence, Finding
from duly.testing.history import Told

Held = tuple[datetime, datetime | None, UUID]
_NEVER = datetime.max.replace(tzinfo=UTC)


def no_loss(evidence: Evidence) -> Iterator[Finding]:
    """Every acknowledged job is stored, and if it is due it has ended."""
    history = evidence.history
    for submission in history.submissions or ():
        if submission.told is Told.OK and not _is_known(evidence, submission.job_id):
            yield Finding("I1", "was acknowledged and is gone", submission.job_id)
    emitted = {event.id for event in history.events}
    for emission in history.emissions:
        if emission.told is Told.OK and emission.event_id not in emitted:
            yield Finding("I1", f"event {emission.event_id} was acknowledged and is gone")
    if not history.settled:
        return
    for job in evidence.jobs.values():
        if job.state in FINAL or job.state is State.BLOCKED:
            continue
        if job.run_at <= history.now and job.run_at < FOREVER:
            message = f"is due since {job.run_at.isoformat()} and still {job.state}"
            yield Finding("I1", message, job.id)


def _is_known(evidence: Evidence, job_id: UUID) -> bool:
    """Whether the job is stored, or has ended and was forgotten since."""
    if job_id in evidence.jobs:
        return True
    entries = evidence.journal.get(job_id, [])
    return bool(entries) and entries[-1].after in FINAL


def no_invention(evidence: Evidence) -> Iterator[Finding]:
    """Every job has a submission, a tick, an event or a parent; at most one live job has a key."""
    yield from _origins(evidence)
    yield from _keys(evidence)


def _origins(evidence: Evidence) -> Iterator[Finding]:
    history = evidence.history
    started: dict[tuple[str, str], UUID] = {}
    events = {event.id for event in history.events}
    for job in evidence.jobs.values():
        event = _event_of(job)
        if event is None:
            continue
        if event not in events:
            yield Finding("I2", f"was started for event {event}, which is not stored", job.id)
        other = started.setdefault((event, job.task), job.id)
        if other != job.id:
            yield Finding("I2", f"was started for event {event}, as {other} was", job.id)
    if history.submissions is None:
        return
    submitted = {each.job_id for each in history.submissions if each.told is not Told.FAILED}
    for job in evidence.jobs.values():
        made = (job.schedule_id, job.flow_id, job.parent_id, _event_of(job))
        if job.id not in submitted and not any(made):
            yield Finding("I2", "has no submission, tick, event, flow or parent", job.id)


def _event_of(job: JobRecord) -> str | None:
    if job.metadata is None or '"event_name"' not in job.metadata:
        return None
    event: str | None = msgspec.json.decode(job.metadata).get("event")
    return event


def _keys(evidence: Evidence) -> Iterator[Finding]:
    holders: dict[tuple[str, str], list[JobRecord]] = {}
    for job in evidence.jobs.values():
        if job.key is not None:
            holders.setdefault((job.task, job.key), []).append(job)
    for (task, key), jobs in holders.items():
        # Of two that were stored in one instant, one may have ended in it, before the other came.
        held = sorted(
            (span for job in jobs for span in _held(evidence, job)),
            key=lambda span: (span[0], span[1] or _NEVER),
        )
        reach: Held | None = None
        for span in held:
            start, end, job_id = span
            if reach is not None and reach[2] != job_id and (reach[1] is None or start < reach[1]):
                message = f"was stored with key {key!r} of {task} while {reach[2]} held it"
                yield Finding("I2", message, job_id)
            if reach is None or (reach[1] is not None and (end is None or end > reach[1])):
                reach = span
        live = [job for job in jobs if job.state not in FINAL]
        for job in live[1:]:
            yield Finding("I2", f"has key {key!r} of {task}, as {live[0].id} has", job.id)


def _held(evidence: Evidence, job: JobRecord) -> Iterator[Held]:
    """When a job held its key: while it was live, and for its window after its end."""
    spans = evidence.live(job.id)
    for number, (start, end) in enumerate(spans, 1):
        if number == len(spans) and job.finished_at is not None and job.key_window is not None:
            end = job.finished_at + timedelta(seconds=job.key_window)
        yield start, end, job.id
