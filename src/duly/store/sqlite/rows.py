"""Between records and SQLite rows: ids as 16 bytes, times as microseconds since 1970 in UTC."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from duly.model.attempt import Attempt, Outcome
from duly.model.identifiers import id_of
from duly.model.job import Delivery, JobRecord, State
from duly.model.worker import Worker
from duly.store.operation import Row
from duly.store.records import JOB_COLUMNS, columns_of, failure_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {state.value: state for state in State}
_DELIVERIES = {delivery.value: delivery for delivery in Delivery}

# By position: this is the hot path, and a type checker cannot count through slices.
_record: Callable[..., JobRecord] = JobRecord

COLUMN = {name: position for position, name in enumerate(JOB_COLUMNS)}
_EXTRAS = slice(COLUMN["key"], COLUMN["worker"])
_EMPTY = (None,) * (COLUMN["worker"] - COLUMN["key"])


def micros(moment: datetime) -> int:
    """The moment as an integer column holds it."""
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=1024)
def moment(value: int) -> datetime:
    """The integer column as a moment. Jobs that come together have most of theirs in common."""
    return _EPOCH + timedelta(microseconds=value)


def clock(now: datetime | None) -> int:
    """The given moment, else the machine's clock, which is the clock of an embedded store."""
    return time.time_ns() // 1000 if now is None else micros(now)


def duration(delay: timedelta) -> int:
    """The delay in microseconds."""
    return delay // _MICROSECOND


def array(values: Sequence[object]) -> str:
    """Several values, or rows of them, as one parameter, to be read by json_each."""
    return msgspec.json.encode(values).decode()


# Jobs that are claimed together have their worker in common.
_worker_id = lru_cache(maxsize=64)(id_of)


def _optional_micros(value: datetime | None) -> int | None:
    return None if value is None else (value - _EPOCH) // _MICROSECOND


def _optional_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def _optional_id(value: bytes | None) -> UUID | None:
    return None if value is None else id_of(value)


def job_row(job: JobRecord) -> Row:
    """The record as a row, in the order of JOB_COLUMNS."""
    return (
        job.id.bytes,
        job.task,
        job.queue,
        job.priority,
        job.state.value,
        micros(job.run_at),
        micros(job.created_at),
        job.arguments,
        job.token,
        job.attempt,
        job.max_attempts,
        job.crashes,
        job.max_crashes,
        job.generation,
        job.delivery.value,
        int(job.alone),
        job.key,
        job.key_window,
        job.owner,
        job.tenant,
        job.timeout,
        _optional_micros(job.expires_at),
        json.dumps(job.tags) if job.tags else None,
        job.metadata,
        None if job.parent_id is None else job.parent_id.bytes,
        None if job.flow_id is None else job.flow_id.bytes,
        job.schedule_id,
        _optional_micros(job.scheduled_for),
        None if job.worker is None else job.worker.bytes,
        _optional_micros(job.cancel_requested_at),
        _optional_micros(job.started_at),
        _optional_micros(job.finished_at),
        job.result,
        job.reason,
        int(job.stepped),
        job.undos,
        None if job.undoing is None else job.undoing.value,
        *columns_of(job.error),
    )


def job_record(row: Row) -> JobRecord:
    """The row, in the order of JOB_COLUMNS, as a record."""
    return _record(
        id_of(row[0]),
        row[1],
        row[2],
        row[3],
        _STATES[row[4]],
        moment(row[5]),
        moment(row[6]),
        *row[7:14],
        _DELIVERIES[row[14]],
        bool(row[15]),
        *(_NO_EXTRAS if row[_EXTRAS] == _EMPTY else _extras(row)),
        None if row[28] is None else _worker_id(row[28]),
        _optional_moment(row[29]),
        _optional_moment(row[30]),
        _optional_moment(row[31]),
        row[32],
        row[33],
        bool(row[34]),
        row[35],
        None if row[36] is None else _STATES[row[36]],
        None if row[37] is None else failure_of(row[37:41]),
    )


def _extras(row: Row) -> Sequence[object]:
    """From `key` to `scheduled_for`: what most jobs have nothing of."""
    return (
        *row[16:21],
        _optional_moment(row[21]),
        () if row[22] is None else tuple(json.loads(row[22])),
        row[23],
        _optional_id(row[24]),
        _optional_id(row[25]),
        row[26],
        _optional_moment(row[27]),
    )


_NO_EXTRAS = _extras((None,) * len(JOB_COLUMNS))


def changed(row: Row, **values: Any) -> Row:
    """The job row with some columns replaced."""
    columns = list(row)
    for name, value in values.items():
        columns[COLUMN[name]] = value
    return tuple(columns)


def attempt_record(row: Row) -> Attempt:
    """The row, in the order of ATTEMPT_COLUMNS, as a record."""
    return Attempt(
        job_id=id_of(row[0]),
        token=row[1],
        number=row[2],
        generation=row[3],
        worker=_optional_id(row[4]),
        started_at=moment(row[5]),
        ended_at=moment(row[6]),
        outcome=Outcome(row[7]),
        error=failure_of(row[8:12]),
    )


def worker_record(row: Row) -> Worker:
    """The row of the workers table as a record."""
    return Worker(
        id=id_of(row[0]),
        name=row[1],
        machine=row[2],
        pid=row[3],
        process_started=row[4],
        queues=msgspec.json.decode(row[5], type=tuple[str, ...]),
        tasks=msgspec.json.decode(row[6], type=tuple[str, ...]),
        version=row[7],
        started_at=moment(row[8]),
        lease_left=row[9] / 1e6,
    )
