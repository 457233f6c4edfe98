"""Duly runs work at the right time, once, on as many machines as you have."""

from duly.app import App
from duly.client.flow import Flow
from duly.client.flow_run import FlowRun
from duly.client.job import Job
from duly.client.prepared import Group, Prepared, chain, each, group
from duly.client.task import AsyncTask, NamedTask, Task
from duly.clock import ManualClock
from duly.control import Cancel, Retry, Snooze, TimeLimitExceeded
from duly.errors import (
    ConfigurationError,
    DulyError,
    FlowNotSucceeded,
    InvalidArguments,
    InvalidFlow,
    InvalidInput,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    JobCancelled,
    JobFailed,
    KeyConflict,
    PayloadTooLarge,
    ResultTimeout,
    ScheduleConflict,
    SchemaAhead,
    SchemaBehind,
    StepChanged,
    StepFailed,
    StepRefused,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TransactionEnded,
    UnknownFlow,
    UnknownJob,
    UnknownSchedule,
    UnknownTask,
    WaitTimeout,
    WrongConnection,
)
from duly.model.attempt import Attempt, Failure, Outcome
from duly.model.event import Emitted, Event, Subscription
from duly.model.flow import (
    FailurePolicy,
    FlowChange,
    FlowRecord,
    FlowState,
    NodeState,
    NodeView,
)
from duly.model.flow import Rule as FlowRule
from duly.model.job import Delivery, JobRecord, KeyPolicy, Priority, State, Status
from duly.model.query import Cancellation, Count, Replay
from duly.model.schedule import (
    CatchUp,
    LastSuccess,
    Overlap,
    ScheduleRecord,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.model.step import Step, StepKind, StepState
from duly.policy.recurrence import CalendarInterval, Cron, Every, Moments, Recurrence, every
from duly.policy.retry import exponential, fixed, linear
from duly.runtime.blocking import BlockingContext
from duly.runtime.context import JobContext, current, current_blocking
from duly.version import VERSION

LOW = Priority.LOW
NORMAL = Priority.NORMAL
HIGH = Priority.HIGH
URGENT = Priority.URGENT

__version__ = VERSION

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "URGENT",
    "App",
    "AsyncTask",
    "Attempt",
    "BlockingContext",
    "CalendarInterval",
    "Cancel",
    "Cancellation",
    "CatchUp",
    "ConfigurationError",
    "Count",
    "Cron",
    "Delivery",
    "DulyError",
    "Emitted",
    "Event",
    "Every",
    "Failure",
    "FailurePolicy",
    "Flow",
    "FlowChange",
    "FlowNotSucceeded",
    "FlowRecord",
    "FlowRule",
    "FlowRun",
    "FlowState",
    "Group",
    "InvalidArguments",
    "InvalidFlow",
    "InvalidInput",
    "InvalidOption",
    "InvalidPayload",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobRecord",
    "KeyConflict",
    "KeyPolicy",
    "LastSuccess",
    "ManualClock",
    "Moments",
    "NamedTask",
    "NodeState",
    "NodeView",
    "Outcome",
    "Overlap",
    "PayloadTooLarge",
    "Prepared",
    "Priority",
    "Recurrence",
    "Replay",
    "ResultTimeout",
    "Retry",
    "ScheduleConflict",
    "ScheduleRecord",
    "SchemaAhead",
    "SchemaBehind",
    "Snooze",
    "State",
    "Status",
    "Step",
    "StepChanged",
    "StepFailed",
    "StepKind",
    "StepRefused",
    "StepState",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "Subscription",
    "Task",
    "Tick",
    "TickKind",
    "TickOutcome",
    "TimeLimitExceeded",
    "TransactionEnded",
    "UnknownFlow",
    "UnknownJob",
    "UnknownSchedule",
    "UnknownTask",
    "WaitTimeout",
    "WrongConnection",
    "chain",
    "current",
    "current_blocking",
    "each",
    "every",
    "exponential",
    "fixed",
    "group",
    "linear",
]
