"""Running a task's code once, and judging how that ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from duly.control import Cancel, Retry, Snooze, TimeLimitExceeded
from duly.errors import InvalidArguments, PayloadTooLarge
from duly.model.attempt import Outcome
from duly.model.job import JobRecord
from duly.model.settlement import succeed
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.context import JobContext, running
from duly.runtime.failure import failure_of
from duly.store.protocol import Store

_chance = random.Random()

Transaction = Callable[[], AbstractContextManager[Any]]


class Superseded(Exception):
    """The fencing token of a transactional attempt was stale: its writes were rolled back."""


async def run_async(
    definition: TaskDefinition, job: JobRecord, context: JobContext, limit: int
) -> Verdict:
    """Run an async task on the current event loop. Cancellation is for the caller to judge."""
    running.set(context)
    try:
        args, kwargs = definition.arguments.decode(job.arguments)
        value = await definition.function(*args, **kwargs)
        return returned(definition, value, limit)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return raised(definition, job, error)


def run_blocking(
    definition: TaskDefinition, job: JobRecord, context: JobContext, limit: int
) -> Verdict:
    """Run a task in the current thread."""
    token = running.set(context)
    try:
        args, kwargs = definition.arguments.decode(job.arguments)
        value = definition.function(*args, **kwargs)
        if definition.is_async:
            value = asyncio.run(value)
        return returned(definition, value, limit)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return raised(definition, job, error)
    finally:
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

    None means that this has happened and that nothing is left to settle. The fence comes last,
    so that the job's row is locked for a moment only.
    """
    try:
        with transaction() as connection:
            context.connection = connection
            verdict = run_blocking(definition, job, context, limit)
            if verdict.outcome is not Outcome.SUCCEEDED:
                raise _RollBack
            settlement = succeed(job.id, job.token, verdict.result)
            (landed,) = store.carry(connection).run(store.settle([settlement]))
            if not landed:
                raise Superseded
    except _RollBack:
        return verdict
    return None


class _RollBack(Exception):
    """The task failed: what it wrote goes with it."""


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
            return Verdict(Outcome.CANCELLED, reason=error.reason)
        case Retry(after=after) if after is not None:
            return Verdict(Outcome.FAILED, error=failure_of(error), delay=after.total_seconds())
        case InvalidArguments() if error.task == job.task:
            # Stored arguments that no longer fit the code will not fit it at the next attempt.
            return Verdict(
                Outcome.FAILED, error=failure_of(error), final=True, reason="invalid arguments"
            )
    timed_out = isinstance(error, TimeLimitExceeded)
    gives_up = definition.retry.gives_up_on(error) and not isinstance(error, Retry)
    return Verdict(
        Outcome.TIMED_OUT if timed_out else Outcome.FAILED,
        error=failure_of(error),
        delay=definition.retry.delay_after(max(1, job.attempt), _chance).total_seconds(),
        final=gives_up and not isinstance(error, SystemExit | KeyboardInterrupt),
    )


def timed_out(definition: TaskDefinition, job: JobRecord, seconds: float) -> Verdict:
    """The verdict on a task that was stopped at its hard time limit."""
    return raised(
        definition, job, TimeLimitExceeded(f"the attempt ran for longer than {seconds:g} s")
    )
