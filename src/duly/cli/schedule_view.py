"""How schedules look: as JSON, as rows of a table, and one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.cli.job_view import value_lines
from duly.cli.rendering import Column, write_fields, write_heading, write_table
from duly.model.schedule import CatchUp, ScheduleRecord, plain
from duly.policy.duration import format as format_duration
from duly.policy.recurrence import PreviewedFire
from duly.policy.recurrence.english import WEEKDAYS
from duly.policy.ticking import recurrence_of
from duly.service.schedule_views import (
    ScheduleDetail,
    ScheduleLine,
    ScheduleList,
    Standing,
    ToldTick,
    in_words,
    standing,
)
from duly.service.wording import absolute, relative, span

LATE = timedelta(seconds=10)
"""A tick that is due for longer than this, and has not been seen to, is worth a word."""


def as_json(schedule: ScheduleRecord) -> dict[str, Any]:
    """The schedule under its stable keys: those of its record, its standing and its rule."""
    return {
        **plain(schedule),
        "status": standing(schedule).value,
        "description": in_words(schedule.definition),
    }


def line_as_json(line: ScheduleLine) -> dict[str, Any]:
    """The schedule with the latest of its ticks."""
    last = None if line.last_tick is None else tick_as_json(line.last_tick)
    return {**as_json(line.schedule), "last_tick": last}


def detail_as_json(detail: ScheduleDetail) -> dict[str, Any]:
    """The schedule with its next fires and the latest of its ticks."""
    return {
        **as_json(detail.schedule),
        "live": detail.live,
        "fires": [fire_as_json(fire) for fire in detail.fires],
        "ticks": [tick_as_json(told) for told in detail.ticks],
    }


def fire_as_json(fire: PreviewedFire) -> dict[str, Any]:
    """A fire to come; distances are seconds."""
    distance = fire.since_previous
    return {
        "utc": fire.utc,
        "local": fire.local,
        "since_previous": None if distance is None else round(distance.total_seconds()),
        "notes": fire.notes,
    }


def tick_as_json(told: ToldTick) -> dict[str, Any]:
    """A tick, and the state of its job."""
    return {**msgspec.to_builtins(told.tick), "job_state": told.job_state}


def write_schedules(page: ScheduleList) -> None:
    """A table of schedules, one a line."""
    notes = any(line.schedule.note for line in page.lines)
    write_table(
        [
            Column("NAME", flexible=True),
            Column("STATUS", statuses=True),
            Column("NEXT"),
            Column("LAST"),
            Column("OUTCOME", statuses=True),
            Column("TASK", flexible=True),
            Column("RULE", flexible=True),
            *([Column("NOTE", flexible=True)] if notes else []),
        ],
        [_row(line, page.now, notes) for line in page.lines],
    )


def write_detail(detail: ScheduleDetail) -> None:
    """One schedule in full."""
    schedule, now = detail.schedule, detail.now
    definition = schedule.definition
    template = definition.template
    write_fields(
        [
            ("Schedule", schedule.id),
            ("Status", standing(schedule).value),
            *([("Note", schedule.note)] if schedule.note else []),
            ("Rule", in_words(definition)),
            ("Next", next_in_words(schedule, now)),
            ("Task", definition.task),
            ("Queue", f"{template.queue}, priority {template.priority}"),
            *_policies(schedule),
            *_optional(schedule, now),
            ("Arguments", value_lines(definition.arguments)),
            *([("Metadata", value_lines(template.metadata))] if template.metadata else []),
        ]
    )
    if detail.fires:
        write_heading("Next fires" + (", once it is resumed" if schedule.paused else ""))
        write_fires(detail.fires, recurrence_of(definition.recurrence).zone)
    if detail.ticks:
        write_heading("Last ticks")
        _write_ticks(detail.ticks)


def write_fires(fires: Sequence[PreviewedFire], zone: str) -> None:
    """A table of fires to come: on the clocks of the zone and in UTC, with what is to be noted."""
    seconds = any(fire.utc.second for fire in fires)
    local = zone != "UTC"
    notes = any(fire.notes for fire in fires)
    write_table(
        [
            *([Column(zone)] if local else []),
            Column("UTC"),
            Column("DISTANCE", right=True),
            *([Column("NOTES", flexible=True, wraps=True)] if notes else []),
        ],
        [
            [
                *([f"{_clock(fire.local, seconds)} {_offset(fire.local)}"] if local else []),
                _clock(fire.utc, seconds, weekday=not local),
                "-" if fire.since_previous is None else span(fire.since_previous, units=4),
                *(["; ".join(fire.notes)] if notes else []),
            ]
            for fire in fires
        ],
    )


def next_in_words(schedule: ScheduleRecord, now: datetime) -> str:
    """When the schedule fires next, or why it does not."""
    if schedule.paused:
        return "not before it is resumed"
    if schedule.next_at is None:
        if standing(schedule) is Standing.ENDED:
            return "never again"
        return "after the end of the job that is live"
    shown = f"{absolute(schedule.next_at)} ({relative(schedule.next_at, now)})"
    recurrence = recurrence_of(schedule.definition.recurrence)
    if now - recurrence.due_at(schedule.id, schedule.next_at) > LATE:
        shown += "; it is late: does a worker or `duly scheduler` run?"
    return shown


def _row(line: ScheduleLine, now: datetime, notes: bool) -> list[str]:
    schedule, told = line.schedule, line.last_tick
    coming = "-"
    if schedule.next_at is not None and not schedule.paused:
        coming = relative(schedule.next_at, now, units=1)
    return [
        schedule.id,
        standing(schedule).value,
        coming,
        "-" if told is None else relative(told.tick.until or told.tick.nominal, now, units=1),
        "-" if told is None else _outcome(told),
        schedule.definition.task,
        in_words(schedule.definition),
        *([schedule.note or ""] if notes else []),
    ]


def _policies(schedule: ScheduleRecord) -> list[tuple[str, str]]:
    definition = schedule.definition
    if definition.after_finish is not None:
        return []
    catch_up = definition.catch_up.value
    if definition.catch_up is CatchUp.ALL:
        catch_up += f" within {_length(definition.catch_up_window)}"
    return [("Overlap", definition.overlap.value), ("Catch-up", catch_up)]


def _optional(schedule: ScheduleRecord, now: datetime) -> list[tuple[str, str]]:
    definition, template = schedule.definition, schedule.definition.template
    success, failures = schedule.last_success_for, schedule.failures_in_a_row
    limit = definition.pause_after_failures
    in_a_row = f"{failures} in a row" if failures else None
    if limit is not None:
        in_a_row = f"{failures} in a row; it is paused after {limit}"
    shown = [
        ("Retries", str(template.max_attempts - 1) if template.max_attempts > 1 else None),
        ("Time limit", None if template.timeout is None else _length(template.timeout)),
        ("Expires", None if template.expires_after is None else _length(template.expires_after)),
        ("Owner", template.owner),
        ("Tenant", template.tenant),
        ("Tags", ", ".join(template.tags) or None),
        ("Failures", in_a_row),
        (
            "Last success",
            None if success is None else f"{absolute(success)} ({relative(success, now)})",
        ),
        ("Made", _origin(schedule)),
    ]
    return [(name, value) for name, value in shown if value is not None]


def _origin(schedule: ScheduleRecord) -> str:
    if not schedule.declared:
        return "at run time"
    return f"declared in the code of the application {schedule.application}"


def _write_ticks(ticks: Sequence[ToldTick]) -> None:
    runs = any(told.tick.count != 1 for told in ticks)
    write_table(
        [
            Column("NOMINAL TIME (UTC)"),
            *([Column("TICKS", right=True)] if runs else []),
            Column("KIND"),
            Column("OUTCOME", statuses=True),
            Column("DETAIL", flexible=True, wraps=True),
        ],
        [
            [
                absolute(told.tick.nominal).removesuffix(" UTC"),
                *([f"{told.tick.count:,}"] if runs else []),
                told.tick.kind.value,
                _outcome(told),
                _detail_of(told),
            ]
            for told in ticks
        ],
    )


def _outcome(told: ToldTick) -> str:
    """What became of the tick's job, or of the tick itself."""
    return (told.job_state or told.tick.outcome).value


def _detail_of(told: ToldTick) -> str:
    tick = told.tick
    parts = [
        "" if tick.until is None else f"up to {absolute(tick.until)}",
        tick.reason or "",
        "" if tick.job_id is None else str(tick.job_id),
    ]
    return "; ".join(part for part in parts if part)


def _clock(moment: datetime, seconds: bool, weekday: bool = True) -> str:
    shown = moment.isoformat(" ", "seconds" if seconds else "minutes")
    shown = shown.removesuffix(_offset(moment))
    return f"{WEEKDAYS[moment.isoweekday() % 7][:3]} {shown}" if weekday else shown


def _offset(moment: datetime) -> str:
    return moment.isoformat()[19:]


def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
