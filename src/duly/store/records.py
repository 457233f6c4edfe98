"""From drafts to records, and the order of columns that both engines share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.errors import KeyConflict
from duly.model.attempt import Attempt, Failure, Outcome
from duly.model.event import EventRecord
from duly.model.flow import (
    Edge,
    FlowNode,
    FlowRecord,
    NodeKind,
    NodeState,
    NodeView,
    Rule,
)
from duly.model.job import Alike, Draft, JobRecord, KeyPolicy, State
from duly.model.journal import JournalEntry
from duly.model.schedule import ScheduleRecord, Tick
from duly.model.schedule import Step as ScheduleStep
from duly.model.settlement import Settlement
from duly.model.step import FOREVER, Recorded, Step, StepWrite, Wait
from duly.store.operation import Wake

ERROR_COLUMNS = ("error_type", "error_message", "error_traceback", "error_fingerprint")
JOB_COLUMNS = (*JobRecord.__struct_fields__[:-1], *ERROR_COLUMNS)
ATTEMPT_COLUMNS = (*Attempt.__struct_fields__[:-1], *ERROR_COLUMNS)
ATTEMPT_OF_ARCHIVED = {
    "job_id": "id",
    "number": "attempt",
    "ended_at": "finished_at",
    "outcome": f"'{Outcome.SUCCEEDED}'",
} | dict.fromkeys(ERROR_COLUMNS, "NULL")
"""The attempt that succeeded, in terms of its archived job, where the names are not the same."""
SCHEDULE_COLUMNS = (*ScheduleRecord.__struct_fields__, "pause_after_failures")
TICK_COLUMNS = Tick.__struct_fields__
FLOW_COLUMNS = FlowRecord.__struct_fields__
NODE_COLUMNS = FlowNode.__struct_fields__
STEP_COLUMNS = Step.__struct_fields__
STEP_IDENTITY = STEP_COLUMNS[:3]
EVENT_COLUMNS = EventRecord.__struct_fields__
JOURNAL_COLUMNS = JournalEntry.__struct_fields__

OWN = frozenset({"id", "arguments"})
"""What each draft of a batch has for itself in any case."""

REASON_CANCELLED = "cancelled on request"
REASON_EXPIRED = "expired"
FEW = 100
FAILURES_IN_A_ROW = " failures in a row"


def shareable(drafts: Sequence[Draft], now: datetime | None, repeated: bool) -> Sequence[Draft]:
    """The drafts, if they may be stored together with those of others: few, on the store's own
    clock, and with nothing that another submission could refuse or answer for. Else none."""
    if repeated or now is not None or len(drafts) > FEW:
        return ()
    return () if any_keyed(drafts) else drafts


def any_keyed(drafts: Sequence[Draft]) -> bool:
    """Whether one of the drafts has a key."""
    return not isinstance(drafts, Alike) and any(draft.key is not None for draft in drafts)


def by_field(drafts: Sequence[Draft]) -> tuple[frozenset[str], dict[str, Sequence[Any]]]:
    """In which fields the drafts differ, ids and arguments in any case, and of each field all
    values, or only the first where they are the same. Ids are in 16 bytes each."""
    if isinstance(drafts, Alike):
        first = msgspec.structs.asdict(drafts.template)
        same: dict[str, Sequence[Any]] = {name: (value,) for name, value in first.items()}
        return OWN, same | {"id": drafts.ids, "arguments": drafts.arguments}
    columns = zip(*map(msgspec.structs.astuple, drafts), strict=True)
    values: dict[str, Sequence[Any]] = dict(zip(Draft.__struct_fields__, columns, strict=True))
    values["id"] = [job_id.bytes for job_id in values["id"]]
    number = len(drafts)
    differing = {name for name, column in values.items() if column.count(column[0]) < number}
    return OWN | differing, values


def replacement(existing: JobRecord, draft: Draft, now: datetime) -> JobRecord:
    """What a job that has not started becomes when a draft replaces it: the draft's contents
    under the job's own identity."""
    return msgspec.structs.replace(
        draft.stored(now),
        id=existing.id,
        created_at=existing.created_at,
        state=existing.state,
        token=existing.token,
        generation=existing.generation,
        alone=existing.alone,
    )


def failure_of(columns: Sequence[str | None]) -> Failure | None:
    """The failure in the four error columns, if there is one."""
    kind, message, traceback, fingerprint = columns
    if kind is None:
        return None
    return Failure(kind, message or "", traceback, fingerprint)


def columns_of(failure: Failure | None) -> tuple[str | None, str | None, str | None, str | None]:
    """The four error columns of a failure."""
    if failure is None:
        return (None, None, None, None)
    return (failure.type, failure.message, failure.traceback, failure.fingerprint)


class KeyedBatch:
    """The drafts of one submission that carry keys, with repeats inside the batch settled.

    `contenders` has one draft for each (task, key), in sorted order, so that concurrent
    submissions lock keys in the same order. A repeat stands for the contender: the first draft
    of a key, or the last that asks to replace.
    """

    def __init__(self, drafts: Sequence[Draft]) -> None:
        self._contender: dict[tuple[str, str], Draft] = {}
        for draft in drafts if any_keyed(drafts) else ():
            if draft.key is None:
                continue
            slot = (draft.task, draft.key)
            earlier = self._contender.get(slot)
            if earlier is None or draft.key_policy is KeyPolicy.REPLACE:
                self._contender[slot] = draft
            elif draft.key_policy is KeyPolicy.REJECT:
                raise KeyConflict(draft.task, draft.key, earlier.id)
        self.contenders = [self._contender[slot] for slot in sorted(self._contender)]

    def contender(self, draft: Draft) -> Draft:
        """The draft that is submitted in place of this one: itself, or its repeat."""
        return draft if draft.key is None else self._contender[draft.task, draft.key]


def drafts_of_landed(steps: Sequence[ScheduleStep], landed: Collection[UUID]) -> list[Draft]:
    """The drafts of the steps whose ticks have landed, by the ticks' jobs."""
    return [draft for step in steps for draft in step.drafts if draft.id in landed]


def wakes_of(settlements: Sequence[Settlement]) -> frozenset[Wake]:
    """Who may want to look again after these have been written."""
    wakes = {Wake.WAITERS}
    if any(
        each.state is not State.SUCCEEDED or each.flow_id or each.parent_id for each in settlements
    ):
        # Also the last failure of a job may leave work: its compensations.
        wakes.add(Wake.WORKERS)
    if any(each.scheduled or each.state in (State.DEAD, State.CANCELLED) for each in settlements):
        # Only a success says whether a schedule awaits it.
        wakes.add(Wake.SCHEDULERS)
    return frozenset(wakes)


def by_job(job_ids: Sequence[UUID], steps: Iterable[Step], now: datetime) -> list[Recorded]:
    """The steps of several jobs, apart, in the order of the ids."""
    found: dict[UUID, list[Step]] = {job_id: [] for job_id in job_ids}
    for step in steps:
        found[step.job_id].append(step)
    return [Recorded(now, found[job_id]) for job_id in job_ids]


def until_of(write: StepWrite, now: datetime) -> Step:
    """The step to be written, with its end counted from `now` if it has a delay."""
    if write.delay is None:
        return write.step
    return msgspec.structs.replace(write.step, until=now + write.delay)


def with_until(wait: Wait, now: datetime) -> Wait:
    """The wait, with its step as it is to be written at `now`."""
    step = until_of(wait.write, now)
    write = msgspec.structs.replace(wait.write, step=step, delay=None)
    return msgspec.structs.replace(wait, write=write)


def due_after(waits: Sequence[Wait]) -> datetime:
    """When a job with these waits is due, whatever else may wake it earlier."""
    ends = [wait.write.step.until for wait in waits]
    return min((end for end in ends if end is not None), default=FOREVER)


def reason_of_cancellation(settled: Settlement, asked_for: str | None, undone: bool) -> str | None:
    """Why a job that ran is cancelled; `asked_for` is what was said when that was requested.

    A job that was `undone` first has had its reason since then.
    """
    if settled.state is not State.CANCELLED:
        return asked_for or REASON_CANCELLED
    on_request = (settled.reason or "").startswith(REASON_CANCELLED)
    if asked_for is None or undone or not on_request:
        return settled.reason
    return f"{settled.reason}: {asked_for}"


def refuse_if_rejecting(draft: Draft, holder: UUID) -> None:
    """Raise KeyConflict when the draft's policy asks for it."""
    if draft.key_policy is KeyPolicy.REJECT and draft.key is not None:
        raise KeyConflict(draft.task, draft.key, holder)


def node_views(rows: Sequence[Sequence[Any]], edges: Sequence[Edge]) -> list[NodeView]:
    """Nodes as they are shown. A row: id, name, kind, rule, state, reason, and of a map how many
    items there are, have succeeded and have failed."""
    names = {row[0]: row[1] for row in rows}
    parents: dict[UUID, list[str]] = {}
    for edge in edges:
        parents.setdefault(edge.child, []).append(names[edge.parent])
    return [
        NodeView(
            node_id,
            name,
            NodeKind(kind),
            Rule(rule),
            NodeState(state),
            tuple(sorted(parents.get(node_id, ()))),
            reason,
            *items,
        )
        for node_id, name, kind, rule, state, reason, *items in rows
    ]
