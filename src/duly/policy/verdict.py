"""From the way an attempt ended to where its job goes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from duly.model.attempt import Attempt, Failure, Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.model.settlement import Settlement, succeed
from duly.model.step import Step, StepState, Wait

REASON_EXHAUSTED = "attempts exhausted"
REASON_GAVE_UP = "not worth another attempt"
REASON_CRASHED = "crashed"
REASON_LOST = "lost"

MOST_DEATHS_OF_WORKERS = 20
"""How often workers may die while a job runs in a process beside them, which charges nobody, and
none of its steps is recorded."""

_AT_ONCE = timedelta()


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended, as the one who ran it saw it.

    `delay` is the pause before the next attempt of a failed or snoozed one; `final` says that
    none shall follow. A suspended one has `waits`.
    """

    outcome: Outcome
    result: str | None = None
    error: Failure | None = None
    delay: float = 0.0
    final: bool = False
    reason: str | None = None
    waits: tuple[Wait, ...] = ()


def settlement(job: JobRecord, verdict: Verdict) -> Settlement:
    """Where the job goes: on success to the archive, on failure to another attempt or death."""
    if verdict.outcome is Outcome.SUCCEEDED:
        scheduled = job.schedule_id is not None
        return succeed(job.id, job.token, verdict.result, job.flow_id, job.parent_id, scheduled)
    if verdict.outcome is Outcome.CRASHED and job.delivery is Delivery.AT_MOST_ONCE:
        verdict = msgspec.structs.replace(verdict, outcome=Outcome.LOST)
    state, reason = _destination(job, verdict)
    return Settlement(
        job_id=job.id,
        token=job.token,
        outcome=verdict.outcome,
        state=state,
        delay=timedelta(seconds=verdict.delay) if verdict.delay else _AT_ONCE,
        result=verdict.result,
        reason=reason,
        error=verdict.error,
        crashed_alone=verdict.outcome is Outcome.CRASHED,
        scheduled=job.schedule_id is not None,
        flow_id=job.flow_id,
        parent_id=job.parent_id,
        waits=verdict.waits,
    )


def _destination(job: JobRecord, verdict: Verdict) -> tuple[State, str | None]:
    match verdict.outcome:
        case Outcome.CANCELLED:
            return State.CANCELLED, verdict.reason
        case Outcome.RELEASED | Outcome.SNOOZED:
            return State.PENDING, None
        case Outcome.SUSPENDED:
            return State.WAITING, None
        case Outcome.UNDONE:
            return job.undoing or State.DEAD, verdict.reason or job.reason
        case Outcome.CRASHED:
            # The job ran alone: the crash is its own.
            exhausted = verdict.final or job.crashes + 1 >= job.max_crashes
            return (State.DEAD, REASON_CRASHED) if exhausted else (State.PENDING, None)
        case Outcome.LOST:
            return State.DEAD, REASON_LOST
        case _:
            if verdict.final:
                return State.DEAD, verdict.reason or REASON_GAVE_UP
            if job.attempt >= job.max_attempts:
                return State.DEAD, REASON_EXHAUSTED
            return State.PENDING, None


def is_worn_out(
    job: JobRecord, attempts: Sequence[Attempt], steps: Sequence[Step], isolated: bool
) -> bool:
    """Whether a job that is to run alone has seen too many workers die to be tried again.

    What it did in a process beside its worker was charged to it there. Where it runs in the
    worker's own process, with nothing else, each death after the first is its own. Deaths before
    its latest recorded step do not count: it goes on in spite of them.
    """
    progress = max((step.at for step in steps if step.at and _is_progress(step)), default=None)
    deaths = sum(
        attempt.outcome is Outcome.CRASHED
        and attempt.generation == job.generation
        and (progress is None or attempt.ended_at > progress)
        for attempt in attempts
    )
    return deaths > (MOST_DEATHS_OF_WORKERS + job.crashes if isolated else job.max_crashes)


def _is_progress(step: Step) -> bool:
    return step.state not in (StepState.RETRYING, StepState.FAILED)
