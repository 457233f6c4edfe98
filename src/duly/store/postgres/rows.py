"""Between records and PostgreSQL rows, and the fragments of SQL that follow from the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from msgspec.structs import astuple

from duly.model.attempt import Attempt, Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.model.worker import Worker
from duly.policy.states import LIVE
from duly.store.operation import Row
from duly.store.records import ATTEMPT_COLUMNS, JOB_COLUMNS, failure_of

_STATES = {state.value: state for state in State}
_DELIVERIES = {delivery.value: delivery for delivery in Delivery}

# By position: this is the hot path, and a type checker cannot count through slices.
_record: Callable[..., JobRecord] = JobRecord

COLUMNS = ", ".join(JOB_COLUMNS)

# What jobs of a batch usually have for themselves is sent as arrays, all else once for those that
# have it in common. An array of nothing but NULL is none.
_OWN = ("id", "run_at", "created_at", "arguments")
_AT_TIMES = ("key", "owner", "tenant", "expires_at", "metadata", "parent_id", "scheduled_for")
_ARRAYS = [JOB_COLUMNS.index(name) for name in _OWN + _AT_TIMES]
_ONCE = [at for at in range(len(JOB_COLUMNS)) if at not in _ARRAYS]
SHARED = ", ".join(JOB_COLUMNS[at] for at in _ONCE)
ALIKE = ", ".join(
    [
        *(f"array_agg({name})" for name in _OWN),
        *(f"CASE WHEN count({name}) > 0 THEN array_agg({name}) END" for name in _AT_TIMES),
        SHARED,
    ]
)

# `now()` is the start of the transaction; in a subselect clock_timestamp() is read once and does
# not keep an index from being used.
CLOCK = "clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)"
NOW = "(SELECT now FROM clock)"


def columns(prefix: str, **replaced: str) -> str:
    """The job columns of `prefix`, some of them replaced by expressions, in order."""
    return ", ".join(replaced.get(name, f"{prefix}.{name}") for name in JOB_COLUMNS)


def attempt_columns(prefix: str = "", **replaced: str) -> str:
    """The attempt columns, some of them replaced by expressions, in order."""
    dot = f"{prefix}." if prefix else ""
    return ", ".join(replaced.get(name, f"{dot}{name}") for name in ATTEMPT_COLUMNS)


def texts(values: Iterable[Any]) -> list[str]:
    """The values of an enumeration, sorted."""
    return sorted(value.value for value in values)


def listed(values: Iterable[Any]) -> str:
    """The values of an enumeration as the inside of an SQL list."""
    return ", ".join(f"'{value}'" for value in texts(values))


def now_in(state: State) -> str:
    """The condition of a live job that is looked up by its id to be in a state.

    `state = ...` would let the planner read the index of all that are in it instead, where it
    believes that there are none. As an expression it has no statistics, which are as a rule of
    another moment.
    """
    return f"jobs.state || '' NOT IN ({listed(LIVE - {state})})"


def utc(value: datetime) -> datetime:
    """The moment in UTC, whatever the session's time zone is."""
    return value.astimezone(UTC)


def _optional_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


def job_record(row: Row) -> JobRecord:
    """The row, in the order of JOB_COLUMNS, as a record."""
    return _record(
        *row[:4],
        _STATES[row[4]],
        row[5].astimezone(UTC),
        row[6].astimezone(UTC),
        *row[7:14],
        _DELIVERIES[row[14]],
        *row[15:21],
        _optional_utc(row[21]),
        () if row[22] is None else tuple(row[22]),
        *row[23:27],
        _optional_utc(row[27]),
        row[28],
        _optional_utc(row[29]),
        _optional_utc(row[30]),
        _optional_utc(row[31]),
        row[32],
        *row[33:36],
        None if row[36] is None else _STATES[row[36]],
        None if row[37] is None else failure_of(row[37:41]),
    )


def alike_records(row: Row) -> Iterator[JobRecord]:
    """The jobs of a row of ALIKE."""
    arrays = dict(zip(_ARRAYS, row, strict=False))
    once = dict(zip(_ONCE, row[len(_ARRAYS) :], strict=True))
    firsts = {at: array and array[0] for at, array in arrays.items()} | once
    first = job_record(tuple(firsts[at] for at in range(len(JOB_COLUMNS))))
    columns: list[Iterable[Any]] = [repeat(value) for value in astuple(first)]
    for at, array in arrays.items():
        if array is not None:
            columns[at] = array
    return map(_record, *columns)


def attempt_record(row: Row) -> Attempt:
    """The row, in the order of ATTEMPT_COLUMNS, as a record."""
    return Attempt(
        job_id=row[0],
        token=row[1],
        number=row[2],
        generation=row[3],
        worker=row[4],
        started_at=utc(row[5]),
        ended_at=utc(row[6]),
        outcome=Outcome(row[7]),
        error=failure_of(row[8:12]),
    )


def worker_record(row: Row) -> Worker:
    """The row of the workers table as a record."""
    return Worker(
        id=row[0],
        name=row[1],
        machine=row[2],
        pid=row[3],
        process_started=row[4],
        queues=tuple(row[5]),
        tasks=tuple(row[6]),
        version=row[7],
        started_at=utc(row[8]),
        lease_left=row[9],
    )


class InSchema:
    """Statements of one schema: templates name it `{schema}`."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._texts: dict[str, str] = {}

    def text(self, template: str) -> str:
        """The template for this schema."""
        made = self._texts.get(template)
        if made is None:
            made = self._texts[template] = template.replace("{schema}", f'"{self.schema}"')
        return made
