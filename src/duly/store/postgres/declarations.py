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
    (schedule_id, fingerprint, definition, first_seen, last_seen)
SELECT id, fingerprint, definition, {NOW}, {NOW}
FROM unnest(%(ids)s::text[], %(fingerprints)s::text[], %(definitions)s::text[])
    AS declared (id, fingerprint, definition)
ORDER BY id
ON CONFLICT (schedule_id, fingerprint) DO UPDATE SET last_seen = excluded.last_seen
WHERE known.last_seen < excluded.last_seen - %(unless_seen)s::interval
"""
DECLARATIONS = """
SELECT schedule_id, declarations.fingerprint, declarations.definition, first_seen, last_seen,
    schedules.id IS NOT NULL, schedules.fingerprint
FROM {schema}.declarations LEFT JOIN {schema}.schedules ON schedules.id = schedule_id
ORDER BY schedule_id, declarations.fingerprint
"""
FORGET_UNSEEN = """
DELETE FROM {schema}.declarations WHERE last_seen < %(before)s RETURNING schedule_id
"""


class Declarations(InSchema):
    """The verbs about declared schedules."""

    def declare(
        self,
        definitions: Mapping[str, Definition],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        return Operation(
            lambda: self._declare(definitions, unless_seen, now),
            again=lambda: self._declare(definitions, unless_seen, now),
            atomic=False,
        )

    def declarations(self) -> Operation[list[Declaration]]:
        return Operation(self._declarations, writes=False, atomic=False)

    def forget_declarations(self, before: datetime) -> Operation[int]:
        return Operation(lambda: self._forget_declarations(before), atomic=False)

    def _declare(
        self, definitions: Mapping[str, Definition], unless_seen: timedelta, now: datetime | None
    ) -> Steps[None]:
        yield Statement(
            self.text(DECLARE),
            {
                "ids": list(definitions),
                "fingerprints": [each.fingerprint() for each in definitions.values()],
                "definitions": [
                    msgspec.json.encode(each).decode() for each in definitions.values()
                ],
                "unless_seen": unless_seen,
                "now": now,
            },
        )

    def _forget_declarations(self, before: datetime) -> Steps[int]:
        rows = yield Statement(self.text(FORGET_UNSEEN), {"before": before})
        return len(rows)

    def _declarations(self) -> Steps[list[Declaration]]:
        rows = yield Statement(self.text(DECLARATIONS))
        return [declaration_record(row) for row in rows]
