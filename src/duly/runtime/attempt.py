"""Running a task's code once, and judging how that ended."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from duly.control import Cancel, Retry, Snooze, TimeLimitExceeded
from duly.errors import (
    InvalidArguments,
    PayloadTooLarge,
    StepFailed,
    StoreFull,
    StoreUnavailable,
)
from duly.model.attempt import Outcome
from duly.model.job import JobRecord
from duly.model.settlement import succeed
from duly.policy.retry import RetryPolicy
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.chance import chance
from duly.runtime.context import JobContext, running
from duly.runtime.failure import failure_of
from duly.runtime.logs import about
from duly.runtime.steps.children import undo
from duly.runtime.steps.commands import Unstorable
from duly.runtime.text import storable
from duly.store.protocol import Store

SILENCE_WITHOUT_LIMIT = timedelta(hours=1)
SILENCE_AFTER_LIMIT = timedelta(minutes=1)
COMPENSATION_PAUSE = 5.0

logger = logging.getLogger("duly.worker")

Transaction = Callable[[], AbstractContextManager[Any]]

_copies = 0
"""How many forks lie between the first process and this one. A task may fork and come back in the
copy: that must end, or there would be two workers of one name, and two verdicts on one job."""


def _count_copy() -> None:
    global _copies
    _copies += 1


os.register_at_fork(after_in_child=_count_copy)


class Superseded(Exception):
    """The fencing token of a transactional attempt was stale: its writes were rolled back."""


async def run_async(
    definition: TaskDefinition, job: JobRecord, context: JobContext, limit: int
) -> Verdict:
    """Run an async task on the current event loop. Cancellation is for the caller to judge."""
    running.set(context)
    copy = _copies
    try:
        if job.stepped:
            await context.carry_out(context.durable.load())
        args, kwargs = definition.arguments.decode(job.arguments)
        value = await definition.function(*args, **kwargs)
        return concluded(context) or returned(definition, value, limit)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return concluded(context) or raised(definition, job, error)
    finally:
        if _copies != copy:
            os._exit(0)


def run_blocking(
    definition: TaskDefinition, job: JobRecord, context: JobContext, limit: int
) -> Verdict:
    """Run a task in the current thread."""
    token = running.set(context)
    copy = _copies
    try:
        if definition.is_async:
            value = asyncio.run(_loaded(definition, job, context))
        else:
            if job.stepped:
                context.carry_out(context.durable.load())
            args, kwargs = definition.arguments.decode(job.arguments)
            value = definition.function(*args, **kwargs)
        return concluded(context) or returned(definition, value, limit)
    except BaseException as error:
        return concluded(context) or raised(definition, job, error)
    finally:
        if _copies != copy:
            os._exit(0)
        running.reset(token)


def run_transactional(
    definition: TaskDefinition,
    job: JobRecord,
    context: JobContext,
    limit: int,
    store: Store,
    transaction: Transaction,
) -> Verdict | None:
    """Run a task whose writes and completion commit together.

    None means that this has happened and that nothing is left to settle. What a task returns
    that was told to stop is rolled back. The fence comes last, so that the job's row is locked
    for a moment only. Where the store is to blame, because there was no connection or it broke
    off at the commit, the job is given back without a charge: if the commit landed after all,
    the token of that is stale.
    """
    code_started = code_ended = False
    try:
        with transaction() as connection:
            store.carry(connection).run(store.allow_silence(_longest_silence(job)))
            context.connection = connection
            code_started = True
            verdict = run_blocking(definition, job, context, limit)
            if verdict.outcome is not Outcome.SUCCEEDED or context.noticed:
                raise _RollBack
            code_ended = True
            settlement = succeed(job.id, job.token, verdict.result, job.flow_id, job.parent_id)
            (landed,) = store.carry(connection).run(store.settle([settlement]))
            if not landed:
                raise Superseded
    except _RollBack:
        return verdict
    except (StoreUnavailable, StoreFull) as error:
        if code_started and not code_ended:
            raise
        logger.warning(
            "the transaction of job %s could not be %s, it is given back: %s",
            job.id,
            "committed" if code_ended else "begun",
            error,
            extra=about(job.id, job.task, job.attempt),
        )
        return Verdict(Outcome.RELEASED)
    return None


def _longest_silence(job: JobRecord) -> timedelta:
    """For how long the task may leave its transaction alone, before the server ends it: a
    process that is stopped must not hold its locks for ever."""
    if job.timeout is None:
        return SILENCE_WITHOUT_LIMIT
    return timedelta(seconds=job.timeout) + SILENCE_AFTER_LIMIT


class _RollBack(Exception):
    """The task failed: what it wrote goes with it."""


async def _loaded(definition: TaskDefinition, job: JobRecord, context: JobContext) -> Any:
    if job.stepped:
        await context.carry_out(context.durable.load())
    args, kwargs = definition.arguments.decode(job.arguments)
    return await definition.function(*args, **kwargs)


async def run_compensations(job: JobRecord, context: JobContext) -> Verdict:
    """Undo what a job has done that is about to end, one compensation after another."""
    running.set(context)
    try:
        await context.carry_out(context.durable.load())
        failed = await context.carry_out(undo(context.durable))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        suspended = concluded(context)
        if suspended is None:
            logger.warning("compensations of job %s go on later: %s", job.id, error)
        return suspended or Verdict(Outcome.SNOOZED, delay=COMPENSATION_PAUSE)
    if not failed:
        return Verdict(Outcome.UNDONE)
    reason = f"{job.reason}; compensation failed: {', '.join(failed)}"
    return Verdict(Outcome.UNDONE, reason=reason)


def concluded(context: JobContext) -> Verdict | None:
    """The verdict on an attempt that ended because the job waits, whatever its code made of that;
    None when it does not wait. Steps that were passed over are told."""
    if context.job.stepped and context.job.undoing is None:
        context.durable.report_passed_over()
    if not context.suspended:
        return None
    return Verdict(Outcome.SUSPENDED, waits=context.durable.waits)


def returned(definition: TaskDefinition, value: Any, limit: int) -> Verdict:
    """The verdict on a task that returned; a result that cannot be stored is a failure."""
    result = definition.result.encode(value)
    if len(result) > limit:
        raise PayloadTooLarge(f"the result of task {definition.name!r}", len(result), limit)
    return Verdict(Outcome.SUCCEEDED, result=result.decode())


def raised(definition: TaskDefinition, job: JobRecord, error: BaseException) -> Verdict:
    """The verdict on a task that raised."""
    match error:
        case Snooze():
            return Verdict(Outcome.SNOOZED, delay=error.delay.total_seconds())
        case Cancel():
            return Verdict(Outcome.CANCELLED, reason=storable(error.reason))
        case Retry(after=after) if after is not None:
            return Verdict(Outcome.FAILED, error=failure_of(error), delay=after.total_seconds())
        case InvalidArguments() if error.task == job.task:
            # Stored arguments that no longer fit the code will not fit it at the next attempt.
            return Verdict(
                Outcome.FAILED, error=failure_of(error), final=True, reason="invalid arguments"
            )
    if isinstance(error, StepFailed) and isinstance(error.__cause__, Unstorable):
        return Verdict(Outcome.FAILED, error=failure_of(error), final=True)
    if isinstance(error, StepFailed) and error.__cause__ is not None:
        # What the task says about exceptions is about those of its steps, too.
        return _judged(definition, job, error, error.__cause__)
    return _judged(definition, job, error, error)


def _judged(
    definition: TaskDefinition, job: JobRecord, error: BaseException, cause: BaseException
) -> Verdict:
    timed_out = isinstance(cause, TimeLimitExceeded)
    return Verdict(
        Outcome.TIMED_OUT if timed_out else Outcome.FAILED,
        error=failure_of(error),
        delay=_delay(definition, job),
        final=_gives_up(definition.retry, cause),
    )


def _gives_up(policy: RetryPolicy, error: BaseException) -> bool:
    """Whether none shall follow; SystemExit and its like are failures as others are."""
    if isinstance(error, Retry):
        return False
    if isinstance(error, Exception):
        return policy.gives_up_on(error)
    return isinstance(error, policy.give_up_on)


def _delay(definition: TaskDefinition, job: JobRecord) -> float:
    """Seconds before the next attempt; the default ones when the task's own function fails."""
    attempt = max(1, job.attempt)
    try:
        return definition.retry.delay_after(attempt, chance).total_seconds()
    except Exception:
        logger.exception("the backoff of task %s failed; the default applies", definition.name)
        return RetryPolicy().delay_after(attempt, chance).total_seconds()


def timed_out(definition: TaskDefinition, job: JobRecord, seconds: float) -> Verdict:
    """The verdict on a task that was stopped at a time limit."""
    return raised(
        definition, job, TimeLimitExceeded(f"the attempt ran for longer than {seconds:g} s")
    )
