"""Schedules as the code of running nodes declares them, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from duly.model.schedule import Declaration, Definition
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.rows import CLOCK, NOW, InSchema
from duly.store.postgres.schedule_rows import declaration_record

DECLARE = f"""
WITH {CLOCK}
INSERT INTO {{schema}}.declarations AS known
    (application, schedule_id, fingerprint, definition, first_seen, last_seen)
SELECT %(application)s, id, fingerprint, definition, {NOW}, {NOW}
FROM unnest(%(ids)s::text[], %(fingerprints)s::text[], %(definitions)s::text[])
    AS declared (id, fingerprint, definition)
ORDER BY id
ON CONFLICT (application, schedule_id, fingerprint) DO UPDATE SET last_seen = excluded.last_seen
WHERE known.last_seen < excluded.last_seen - %(unless_seen)s::interval
"""
DECLARATIONS = """
SELECT declarations.application, schedule_id, declarations.fingerprint, declarations.definition,
    first_seen, last_seen, schedules.id IS NOT NULL, schedules.fingerprint, schedules.application
FROM {schema}.declarations LEFT JOIN {schema}.schedules ON schedules.id = schedule_id
ORDER BY schedule_id, declarations.application, declarations.fingerprint
"""
FORGET_UNSEEN = """
DELETE FROM {schema}.declarations
WHERE application = %(application)s AND last_seen < %(before)s RETURNING schedule_id
"""


class Declarations(InSchema):
    """The verbs about declared schedules."""

    def declare(
        self,
        application: str,
        definitions: Mapping[str, Definition],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        return Operation(
            lambda: self._declare(application, definitions, unless_seen, now),
            again=lambda: self._declare(application, definitions, unless_seen, now),
            atomic=False,
        )

    def declarations(self) -> Operation[list[Declaration]]:
        return Operation(self._declarations, writes=False, atomic=False)

    def forget_declarations(self, application: str, before: datetime) -> Operation[int]:
        return Operation(lambda: self._forget_declarations(application, before), atomic=False)

    def _declare(
        self,
        application: str,
        definitions: Mapping[str, Definition],
        unless_seen: timedelta,
        now: datetime | None,
    ) -> Steps[None]:
        yield Statement(
            self.text(DECLARE),
            {
                "application": application,
                "ids": list(definitions),
                "fingerprints": [each.fingerprint() for each in definitions.values()],
                "definitions": [
                    msgspec.json.encode(each).decode() for each in definitions.values()
                ],
                "unless_seen": unless_seen,
                "now": now,
            },
        )

    def _forget_declarations(self, application: str, before: datetime) -> Steps[int]:
        rows = yield Statement(
            self.text(FORGET_UNSEEN), {"application": application, "before": before}
        )
        return len(rows)

    def _declarations(self) -> Steps[list[Declaration]]:
        rows = yield Statement(self.text(DECLARATIONS))
        return [declaration_record(row) for row in rows]
