"""Every exception Duly raises.

DulyError
├── InvalidInput (ValueError)       what was handed in is wrong; nothing was stored
│   ├── InvalidArguments            a task's arguments do not fit its signature
│   ├── InvalidPayload              JSON outside the strict profile, with the path
│   ├── PayloadTooLarge             arguments, a result or metadata over the limit
│   ├── InvalidOption               priority, queue, duration, run_at, tags, key, ...
│   ├── InvalidSchedule             cron expression, time zone, interval
│   └── InvalidFlow                 a cycle, a node of another flow, results that do not fit
├── ConfigurationError              a setting, a URL, a duplicate task name
├── UnknownTask                     no such task is registered or catalogued
├── UnknownJob                      no such job (or its retention has passed)
├── UnknownSchedule                 no such schedule
├── UnknownFlow                     no such flow (or its retention has passed)
├── FlowNotSucceeded                a flow was waited for, and it failed or was cancelled
├── ScheduleConflict                its name is taken, or its definition is in the code
├── KeyConflict                     a live job holds this key
├── JobNotSucceeded                 a result was asked for and there is none
│   ├── JobFailed                   the job is dead
│   └── JobCancelled                the job was cancelled, or expired
├── ResultTimeout (TimeoutError)    the job has not finished in time; it goes on
├── NotInTask (RuntimeError)        duly.current() outside a running task
├── StepError                       a durable step
│   ├── StepFailed                  its function raised, or its time limit passed
│   ├── StepChanged                 what is recorded does not fit the code that runs now
│   └── StepRefused                 the attempt is no longer the job's: nothing was recorded
├── WaitTimeout (TimeoutError)      the event did not come in time
└── StoreError
    ├── StoreUnavailable            the database cannot be reached, or takes no writes for now
    ├── StoreFull                   no room on the disk; what was accepted is kept
    ├── SchemaBehind                run `duly db migrate`
    ├── SchemaAhead                 this release is too old for the database
    ├── LeaseLost                   the worker's lease has ended; its jobs are not its own
    ├── WrongConnection             a connection of another kind, database or file
    └── TransactionEnded            the connection handed out is no longer valid
"""

from __future__ import annotations

from uuid import UUID


class DulyError(Exception):
    """Base of every error Duly raises."""


class InvalidInput(DulyError, ValueError):
    """What was handed in is wrong; nothing was stored."""


class InvalidArguments(InvalidInput):
    """A task's arguments do not fit its signature."""

    def __init__(self, task: str, problem: str, argument: str | None = None) -> None:
        self.task = task
        self.argument = argument
        where = f", argument {argument!r}" if argument else ""
        super().__init__(f"task {task!r}{where}: {problem}")


class InvalidPayload(InvalidInput):
    """A value lies outside the strict JSON profile. `path` leads to it, `$` being the whole."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class PayloadTooLarge(InvalidInput):
    """Arguments, a result or metadata are larger than the limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(
            f"{what} would take {size:,} bytes, the limit is {limit:,}: store the data elsewhere "
            "and pass a reference, or raise payload_limit"
        )


class InvalidOption(InvalidInput):
    """An option of a submission or a task is wrong."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(f"{option}: {problem}")


class InvalidSchedule(InvalidInput):
    """A recurrence rule is wrong, or can never fire."""


class InvalidFlow(InvalidInput):
    """A flow cannot be run as it is: a cycle, an unknown node, results that do not fit."""


class ConfigurationError(DulyError):
    """A setting, a URL or a registration is wrong."""


class UnknownTask(DulyError):
    """No such task is registered here or catalogued in the store."""

    def __init__(self, task: str, advice: str) -> None:
        self.task = task
        super().__init__(f"unknown task {task!r}: {advice}")


class UnknownJob(DulyError):
    """No such job, or its retention has passed."""

    def __init__(self, job_id: UUID) -> None:
        self.job_id = job_id
        super().__init__(
            f"no job {job_id}: its retention has passed, its transaction was not committed, or it "
            "never existed"
        )


class UnknownSchedule(DulyError):
    """No schedule has this name."""

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule
        super().__init__(f"no schedule {schedule!r}: it was removed, or never existed")


class UnknownFlow(DulyError):
    """No such flow, or its retention has passed."""

    def __init__(self, flow_id: UUID) -> None:
        self.flow_id = flow_id
        super().__init__(
            f"no flow {flow_id}: its retention has passed, its transaction was not committed, or "
            "it never existed"
        )


class FlowNotSucceeded(DulyError):
    """A flow was waited for, and it failed or was cancelled."""

    def __init__(self, flow_id: UUID, name: str, state: str, reason: str | None) -> None:
        self.flow_id = flow_id
        self.state = state
        self.reason = reason
        why = f": {reason}" if reason else ""
        super().__init__(f"flow {name!r} ({flow_id}) {state}{why}; see `duly flow show {flow_id}`")


class ScheduleConflict(DulyError):
    """A schedule cannot be made or changed so: its name is taken, it is declared in code, or
    others change it all the time."""

    def __init__(self, schedule: str, problem: str) -> None:
        self.schedule = schedule
        super().__init__(f"schedule {schedule!r}: {problem}")


class KeyConflict(DulyError):
    """Another job holds this key and the policy is to reject."""

    def __init__(self, task: str, key: str, holder: UUID) -> None:
        self.task = task
        self.key = key
        self.holder = holder
        super().__init__(f"key {key!r} of task {task!r} is held by job {holder}")


class JobNotSucceeded(DulyError):
    """A result was asked for, and the job ended without one."""

    def __init__(self, job_id: UUID, message: str, reason: str | None) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(message)


class JobFailed(JobNotSucceeded):
    """The job is dead. `error_type` and `error_message` tell what its last attempt died of."""

    def __init__(
        self,
        job_id: UUID,
        reason: str | None,
        error_type: str | None,
        error_message: str | None,
        traceback: str | None,
    ) -> None:
        self.error_type = error_type
        self.error_message = error_message
        self.traceback = traceback
        cause = f"{error_type}: {error_message}" if error_type else "no error was recorded"
        super().__init__(job_id, f"job {job_id} is dead ({reason}): {cause}", reason)


class JobCancelled(JobNotSucceeded):
    """The job was cancelled before it could succeed."""

    def __init__(self, job_id: UUID, reason: str | None) -> None:
        super().__init__(job_id, f"job {job_id} was cancelled ({reason or 'on request'})", reason)


class ResultTimeout(DulyError, TimeoutError):
    """The job did not finish in time. It goes on; ask again."""

    def __init__(self, job_id: UUID, timeout: float, status: str) -> None:
        self.job_id = job_id
        self.timeout = timeout
        self.status = status
        super().__init__(f"job {job_id} has not finished after {timeout:g} s: it is {status}")


class NotInTask(DulyError, RuntimeError):
    """`duly.current()` was called outside a running task."""


class StepError(DulyError):
    """Something about a durable step."""


class StepFailed(StepError):
    """A step's function raised. It is the same when the job is run again from where it was.

    `type` and `message` tell what it raised; the first time that is the cause, too.
    """

    def __init__(self, step: str, kind: str, message: str) -> None:
        self.step = step
        self.type = kind
        self.message = message
        super().__init__(f"step {step!r} failed: {kind}: {message}")


class StepChanged(StepError):
    """What is recorded of a step does not fit the code that runs now; the step was not run."""

    def __init__(self, step: str, problem: str) -> None:
        self.step = step
        super().__init__(f"step {step!r}: {problem}")


class StepRefused(StepError):
    """The job is not this attempt's any more: nothing was recorded."""

    def __init__(self, step: str) -> None:
        self.step = step
        super().__init__(
            f"step {step!r} was not recorded: the job was taken from this worker and is run by "
            "another"
        )


class WaitTimeout(DulyError, TimeoutError):
    """An event did not come in the time that the job wanted to wait."""

    def __init__(self, event: str, key: str | None) -> None:
        self.event = event
        self.key = key
        which = f" with key {key!r}" if key is not None else ""
        super().__init__(f"no event {event!r}{which} came in time")


class StoreError(DulyError):
    """The database, its schema or a connection to it is not as it must be."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, takes no writes for now, or the connection broke.

    `unknown` is true when the connection broke after a commit was sent: it may have landed.
    """

    def __init__(self, message: str, unknown: bool = False) -> None:
        self.unknown = unknown
        super().__init__(message)


class StoreFull(StoreError):
    """The disk has no room. Nothing of this call was stored; what was accepted before is kept."""


class SchemaBehind(StoreError):
    """The database's schema is older than this release needs."""


class SchemaAhead(StoreError):
    """The database's schema is newer than this release can use."""


class LeaseLost(StoreError):
    """The worker is not registered, or its lease has ended."""

    def __init__(self, worker: UUID) -> None:
        self.worker = worker
        super().__init__(f"worker {worker} holds no lease: it was reaped or never registered")


class WrongConnection(StoreError):
    """The connection handed in is of another kind, database or file than the app's store."""


class TransactionEnded(StoreError):
    """A connection was used after its transaction had ended, or it was held for too long."""
