"""A schedule: a rule that makes jobs, its ticks, and how one step of it is written."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec

from duly.model.job import Delivery, Draft, Priority

LAST_SUCCESS = "duly.last_success"
"""The key in a job's metadata under which it finds the last success of its schedule."""

LONGEST_RESULT_KEPT = 64 * 1024
"""A longer result (as JSON text) is not handed on to the next job of the schedule."""

MOST_BUFFERED_SHOWN = 200
"""How many of a schedule's buffered ticks a look at it shows."""


class Overlap(StrEnum):
    """What happens to a tick that is owed while a job of its schedule is live."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which ticks are owed when nobody was there to run them in time."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class TickKind(StrEnum):
    """What a tick comes from: the rule, a later request for a past range, or a person."""

    TICK = "tick"
    BACKFILL = "backfill"
    MANUAL = "manual"


class TickOutcome(StrEnum):
    """What became of a tick; a buffered one waits for the live jobs of its schedule to end."""

    FIRED = "fired"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    BUFFERED = "buffered"


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs of a schedule get; durations are seconds, `metadata` is a JSON text."""

    queue: str = "default"
    priority: int = Priority.NORMAL
    max_attempts: int = 1
    max_crashes: int = 3
    timeout: float | None = None
    expires_after: float | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    owner: str | None = None
    metadata: str | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule does, as a person or a program defined it.

    `arguments` and `recurrence` are JSON texts. With `after_finish` (seconds) a tick follows the
    previous job's end by that much; of the recurrence only start, end and jitter count then.
    `pause_after_failures` dead jobs in a row pause the schedule.
    """

    task: str
    arguments: str
    recurrence: str
    template: JobTemplate = JobTemplate()
    after_finish: float | None = None
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window: float = 7 * 86_400.0
    pause_after_failures: int | None = None

    def fingerprint(self) -> str:
        """The same for equal definitions, on every node."""
        return blake2b(msgspec.json.encode(self), digest_size=16).hexdigest()

    def keeps_time_of(self, other: Definition) -> bool:
        """Whether both have the same nominal times."""
        return (self.recurrence, self.after_finish) == (other.recurrence, other.after_finish)


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored, at one moment. Its id is its name.

    `accounted_until`: what became of every tick up to this instant is recorded.
    `next_at`: the next nominal time, None when there is none (any more, or while a fixed delay
        waits for a job's end).
    `due_at`: when a scheduler has to look at it; None: not before something happens.
    `awaits_end`: whether the end of one of its jobs is a reason to look.
    `skipping_since`: the nominal time of the row that the next skipped tick extends.
    `fingerprint`: of the declaration in force; None for a schedule made at run time.
    `application`: whose code declares it; None for a schedule made at run time.
    `last_success_for`, `last_result`: the latest nominal time whose job succeeded, and its result.
    `revision` grows with every change.
    """

    id: str
    definition: Definition
    fingerprint: str | None = None
    paused: bool = False
    note: str | None = None
    accounted_until: datetime
    next_at: datetime | None = None
    due_at: datetime | None = None
    awaits_end: bool = False
    skipping_since: datetime | None = None
    failures_in_a_row: int = 0
    last_finished_at: datetime | None = None
    last_success_for: datetime | None = None
    last_result: str | None = None
    revision: int = 1
    created_at: datetime
    updated_at: datetime
    application: str | None = None

    @property
    def declared(self) -> bool:
        """Whether it is declared in code."""
        return self.fingerprint is not None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one nominal time, or of a run of them up to `until`, `count` in all."""

    schedule_id: str
    nominal: datetime
    kind: TickKind = TickKind.TICK
    outcome: TickOutcome
    reason: str | None = None
    until: datetime | None = None
    count: int = 1
    job_id: UUID | None = None
    at: datetime

    @property
    def key(self) -> tuple[str, datetime, TickKind]:
        """What makes it unique."""
        return self.schedule_id, self.nominal, self.kind


class Look(msgspec.Struct, frozen=True):
    """A schedule with what its next step depends on: whether jobs of it are live, the first of
    its buffered ticks in order, and the store's clock."""

    schedule: ScheduleRecord
    live: bool
    buffered: tuple[Tick, ...]
    now: datetime


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a schedule, written only if the schedule's revision is still the one given.

    `ticks` are new rows, `resolved` rows that were buffered until now, `extended` a run of skipped
    ticks that grows by its count up to its `until`. `drafts` are the jobs of fired ticks, by the
    ticks' `job_id`. With `cancels`, live jobs of the schedule are cancelled for that reason.
    """

    schedule_id: str
    revision: int
    accounted_until: datetime
    next_at: datetime | None
    due_at: datetime | None
    awaits_end: bool
    skipping_since: datetime | None
    ticks: tuple[Tick, ...] = ()
    resolved: tuple[Tick, ...] = ()
    extended: Tick | None = None
    drafts: tuple[Draft, ...] = ()
    cancels: str | None = None


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as some nodes of an application have it in their code, and when such a node was
    seen.

    `exists`, `in_force` and `owner` tell of the stored schedule of this name: whether there is
    one, the fingerprint of the declaration it follows, and the application of that (None: it was
    made at run time).
    """

    application: str
    schedule_id: str
    fingerprint: str
    definition: Definition
    first_seen: datetime
    last_seen: datetime
    exists: bool
    in_force: str | None
    owner: str | None


class LastSuccess(msgspec.Struct, frozen=True):
    """The last successful tick of a schedule: its nominal time, and what its job returned (None
    when that was too long to be handed on)."""

    scheduled_for: datetime
    result: Any = None


def draft_of(schedule: ScheduleRecord, nominal: datetime, job_id: UUID) -> Draft:
    """The job of one tick of a schedule."""
    definition = schedule.definition
    template = definition.template
    expires_after = template.expires_after
    return Draft(
        id=job_id,
        task=definition.task,
        arguments=definition.arguments,
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        max_crashes=template.max_crashes,
        timeout=template.timeout,
        expires_after=None if expires_after is None else timedelta(seconds=expires_after),
        delivery=template.delivery,
        tags=template.tags,
        tenant=template.tenant,
        owner=template.owner,
        metadata=_metadata(schedule),
        schedule_id=schedule.id,
        scheduled_for=nominal,
    )


def last_success_in(metadata: str | None) -> LastSuccess | None:
    """What `draft_of` told the job of the last success of its schedule."""
    if metadata is None or LAST_SUCCESS not in metadata:
        return None
    told = msgspec.json.decode(metadata).get(LAST_SUCCESS)
    return None if told is None else msgspec.convert(told, LastSuccess)


def _metadata(schedule: ScheduleRecord) -> str | None:
    given = schedule.definition.template.metadata
    if schedule.last_success_for is None:
        return given
    values = {} if given is None else msgspec.json.decode(given)
    result = None if schedule.last_result is None else msgspec.json.decode(schedule.last_result)
    values[LAST_SUCCESS] = LastSuccess(schedule.last_success_for, result)
    return msgspec.json.encode(values).decode()


def plain(record: ScheduleRecord) -> dict[str, Any]:
    """The record as JSON-ready values, for people and programs alike."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    definition = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(record.definition)))
    template = msgspec.to_builtins(msgspec.structs.asdict(record.definition.template))
    for place, names in ((definition, ("arguments", "recurrence")), (template, ("metadata",))):
        for name in names:
            text = place[name]
            place[name] = None if text is None else msgspec.json.decode(text)
    definition["template"] = template
    values["definition"] = definition
    text = values["last_result"]
    values["last_result"] = None if text is None else msgspec.json.decode(text)
    values["declared"] = record.declared
    return values
