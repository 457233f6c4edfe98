"""A job under way in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.model.attempt import Failure, Outcome
from duly.model.job import Delivery, JobRecord
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import raised, timed_out
from duly.runtime.context import JobContext
from duly.runtime.threads import Errand

REASON_STOPPED = "cancelled on request while it ran"
REASON_KILLED = "cancelled on request by force"


class Slot:
    """One job, how it is run, and why it is being stopped if it is."""

    # What few jobs need is not set for each.
    task: asyncio.Task[None] | None = None
    errand: Errand | None = None
    kill: Callable[[], None] | None = None
    timers: tuple[asyncio.TimerHandle, ...] = ()
    code_starts: Callable[[], None] = staticmethod(lambda: None)
    """Called when a process beside this one is about to run the code."""
    moment: float | None = None
    """When it is to start, by the event loop's clock, if it was claimed ahead."""
    deadline: float | None = None
    """The event loop's moment of the hard time limit."""
    has_place = False
    """Whether it is one of those that may run at a time. A place can be passed on by a thread."""
    entered = False
    """Whether its moment has come; until then its code has not started."""
    begun = False
    """Whether it is an at-most-once job whose code may have done something."""
    overdue: float | None = None
    """The time limit, in seconds, that it was stopped for."""
    stopping = False
    releasing = False
    closed = False
    """Nobody waits for its outcome any more."""

    def __init__(
        self, job: JobRecord, definition: TaskDefinition, context: JobContext, elsewhere: bool
    ) -> None:
        """`elsewhere` says whether its code runs in a process beside this one."""
        self.job = job
        self.definition = definition
        self.context = context
        self.elsewhere = elsewhere

    @property
    def is_plain_call(self) -> bool:
        """Whether nothing but its code's start is left to do, in a thread, whichever that is."""
        job = self.job
        return not (
            self.definition.is_async
            or self.elsewhere
            or job.alone
            or job.delivery is not Delivery.AT_LEAST_ONCE
            or job.undoing is not None
            or job.timeout is not None
            or self.definition.execution.soft_timeout is not None
            or self.told_to_stop
        )

    @property
    def told_to_stop(self) -> bool:
        """Whether it is not to go on, whatever the reason."""
        return self.releasing or self.stopping or self.overdue is not None

    def interrupt(self) -> None:
        """Make the code stop: by force, by CancelledError, or by asking."""
        self.context.cancel()
        if self.kill is not None:
            self.kill()
        elif self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        """No more timers, and no more interest in the outcome."""
        self.closed = True
        for timer in self.timers:
            timer.cancel()

    def judged(self, verdict: Verdict) -> Verdict:
        """The verdict, unless the code returned because it was told to stop."""
        if verdict.outcome is Outcome.SUCCEEDED and self.context.noticed:
            return self.verdict_when_stopped(asyncio.CancelledError("told to stop"))
        return verdict

    def verdict_when_stopped(self, error: BaseException) -> Verdict:
        """What it means that the code ended because it was stopped."""
        if self.releasing:
            return self.released()
        if self.stopping:
            by_force = self.kill is not None
            return Verdict(Outcome.CANCELLED, reason=REASON_KILLED if by_force else REASON_STOPPED)
        if self.overdue is not None:
            if self.kill is not None:
                return self.given_up(self.overdue)
            return timed_out(self.definition, self.job, self.overdue)
        return raised(self.definition, self.job, error)

    def released(self) -> Verdict:
        """Back to where it was; but what must not run twice does not run again."""
        if self.begun:
            return _lost("its worker stopped while it ran")
        return Verdict(Outcome.RELEASED)

    def given_up(self, limit: float) -> Verdict:
        """The time limit has passed and the code did not end by itself."""
        if self.begun:
            return _lost(f"it was stopped after {limit:g} s and did not report")
        return timed_out(self.definition, self.job, limit)


def _lost(why: str) -> Verdict:
    return Verdict(Outcome.LOST, error=Failure("Lost", why, fingerprint="Lost"))
