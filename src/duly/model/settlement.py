"""Settlements: how an attempt ended and where that takes its job."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec

from duly.model.attempt import Failure, Outcome
from duly.model.job import State
from duly.model.step import Wait


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt's end, decided by policy, to be written under the attempt's fencing token.

    `state` is where the job goes; a pending one is due `delay` after the store's clock. A crash
    is charged to the job when it `crashed_alone`: nobody else can have caused it. `scheduled`
    says that a schedule may wait for the job's end, `parent_id` which job may; the success of a job
    of a flow names `flow_id`, else it is not taken. A job that goes to waiting is due at the first
    end of its `waits`.
    """

    job_id: UUID
    token: int
    outcome: Outcome
    state: State
    delay: timedelta = timedelta(0)
    result: str | None = None
    reason: str | None = None
    error: Failure | None = None
    crashed_alone: bool = False
    scheduled: bool = False
    flow_id: UUID | None = None
    parent_id: UUID | None = None
    waits: tuple[Wait, ...] = ()


def succeed(
    job_id: UUID,
    token: int,
    result: str | None,
    flow_id: UUID | None = None,
    parent_id: UUID | None = None,
    scheduled: bool = False,
) -> Settlement:
    """The job is done."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=Outcome.SUCCEEDED,
        state=State.SUCCEEDED,
        result=result,
        scheduled=scheduled,
        flow_id=flow_id,
        parent_id=parent_id,
    )


def retry(
    job_id: UUID,
    token: int,
    delay: timedelta,
    error: Failure | None,
    outcome: Outcome = Outcome.FAILED,
) -> Settlement:
    """The attempt failed and another follows after `delay`."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=outcome,
        state=State.PENDING,
        delay=delay,
        error=error,
    )


def bury(
    job_id: UUID,
    token: int,
    reason: str,
    error: Failure | None,
    outcome: Outcome = Outcome.FAILED,
    parent_id: UUID | None = None,
) -> Settlement:
    """The attempt failed and none follows: the job is dead."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=outcome,
        state=State.DEAD,
        reason=reason,
        error=error,
        parent_id=parent_id,
    )


def cancel(job_id: UUID, token: int, reason: str) -> Settlement:
    """The attempt was cut short because the job is cancelled."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=Outcome.CANCELLED,
        state=State.CANCELLED,
        reason=reason,
    )


def release(job_id: UUID, token: int) -> Settlement:
    """The worker gives the job back, as it was, without a charge."""
    return Settlement(job_id=job_id, token=token, outcome=Outcome.RELEASED, state=State.PENDING)


def snooze(job_id: UUID, token: int, delay: timedelta) -> Settlement:
    """The task asked to be run again later, without a charge."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=Outcome.SNOOZED,
        state=State.PENDING,
        delay=delay,
    )


def suspend(job_id: UUID, token: int, *waits: Wait) -> Settlement:
    """The task waits: the job is a row until the first of these ends, without a charge."""
    return Settlement(
        job_id=job_id,
        token=token,
        outcome=Outcome.SUSPENDED,
        state=State.WAITING,
        waits=waits,
    )
