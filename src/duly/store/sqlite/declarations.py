"""Schedules as the code of running nodes declares them, on SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from duly.model.schedule import Declaration, Definition
from duly.store.operation import Operation, Statement, Steps
from duly.store.sqlite.rows import clock, duration, micros
from duly.store.sqlite.schedule_rows import declaration_record

DECLARE = (
    "INSERT INTO declarations"
    " (application, schedule_id, fingerprint, definition, first_seen, last_seen)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (application, schedule_id, fingerprint)"
    " DO UPDATE SET last_seen = excluded.last_seen WHERE last_seen < excluded.last_seen - ?6"
)
DECLARATIONS = (
    "SELECT declarations.application, schedule_id, declarations.fingerprint,"
    " declarations.definition, first_seen, last_seen,"
    " schedules.id IS NOT NULL, schedules.fingerprint, schedules.application"
    " FROM declarations LEFT JOIN schedules ON schedules.id = schedule_id"
    " ORDER BY schedule_id, declarations.application, declarations.fingerprint"
)
FORGET_UNSEEN = (
    "DELETE FROM declarations WHERE application = ? AND last_seen < ? RETURNING schedule_id"
)


def _declare(
    application: str,
    definitions: Mapping[str, Definition],
    unless_seen: timedelta,
    now: datetime | None,
) -> Steps[None]:
    instant = clock(now)
    yield Statement(
        DECLARE,
        [
            (
                application,
                schedule_id,
                definition.fingerprint(),
                msgspec.json.encode(definition).decode(),
                instant,
                duration(unless_seen),
            )
            for schedule_id, definition in definitions.items()
        ],
        many=True,
    )


def _declarations() -> Steps[list[Declaration]]:
    rows = yield Statement(DECLARATIONS)
    return [declaration_record(row) for row in rows]


def _forget_declarations(application: str, before: datetime) -> Steps[int]:
    rows = yield Statement(FORGET_UNSEEN, (application, micros(before)))
    return len(rows)


class Declarations:
    """The verbs about declared schedules."""

    def declare(
        self,
        application: str,
        definitions: Mapping[str, Definition],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        return Operation(lambda: _declare(application, definitions, unless_seen, now))

    def declarations(self) -> Operation[list[Declaration]]:
        return Operation(_declarations, writes=False)

    def forget_declarations(self, application: str, before: datetime) -> Operation[int]:
        return Operation(lambda: _forget_declarations(application, before))
