"""Duly runs work at the right time, once, on as many machines as you have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duly.app import App
from duly.client.job import Job
from duly.client.jobs import Jobs
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
from duly.model.job import Delivery, JobRecord, KeyPolicy, Priority, State, Status
from duly.model.query import Cancellation, Count, Replay
from duly.policy.retry import exponential, fixed, linear
from duly.version import VERSION

if TYPE_CHECKING:
    from duly.client.flow import Flow
    from duly.client.flow_run import FlowRun
    from duly.model.flow import (
        FailurePolicy,
        FlowChange,
        FlowRecord,
        FlowState,
        NodeState,
        NodeView,
    )
    from duly.model.flow import Rule as FlowRule
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
    from duly.runtime.blocking import BlockingContext
    from duly.runtime.context import JobContext, current, current_blocking

_ON_FIRST_USE = {
    "Flow": "duly.client.flow.Flow",
    "FlowRun": "duly.client.flow_run.FlowRun",
    "FailurePolicy": "duly.model.flow.FailurePolicy",
    "FlowChange": "duly.model.flow.FlowChange",
    "FlowRecord": "duly.model.flow.FlowRecord",
    "FlowState": "duly.model.flow.FlowState",
    "NodeState": "duly.model.flow.NodeState",
    "NodeView": "duly.model.flow.NodeView",
    "FlowRule": "duly.model.flow.Rule",
    "CatchUp": "duly.model.schedule.CatchUp",
    "LastSuccess": "duly.model.schedule.LastSuccess",
    "Overlap": "duly.model.schedule.Overlap",
    "ScheduleRecord": "duly.model.schedule.ScheduleRecord",
    "Tick": "duly.model.schedule.Tick",
    "TickKind": "duly.model.schedule.TickKind",
    "TickOutcome": "duly.model.schedule.TickOutcome",
    "Step": "duly.model.step.Step",
    "StepKind": "duly.model.step.StepKind",
    "StepState": "duly.model.step.StepState",
    "CalendarInterval": "duly.policy.recurrence.CalendarInterval",
    "Cron": "duly.policy.recurrence.Cron",
    "Every": "duly.policy.recurrence.Every",
    "Moments": "duly.policy.recurrence.Moments",
    "Recurrence": "duly.policy.recurrence.Recurrence",
    "every": "duly.policy.recurrence.every",
    "BlockingContext": "duly.runtime.blocking.BlockingContext",
    "JobContext": "duly.runtime.context.JobContext",
    "current": "duly.runtime.context.current",
    "current_blocking": "duly.runtime.context.current_blocking",
}
"""What not every program uses, and takes as long to import as all the rest: flows, schedules and
what only running tasks see."""

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
    "Jobs",
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


if not TYPE_CHECKING:  # or else any name would do for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _ON_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _ON_FIRST_USE[name].rpartition(".")
        value = globals()[name] = getattr(import_module(module), attribute)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
