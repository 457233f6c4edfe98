"""The journal on PostgreSQL: triggers that write it, and the verbs that read and forget it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from duly.errors import SchemaBehind
from duly.model.job import State
from duly.model.journal import Journal, JournalEntry
from duly.store.operation import Operation, Row, Statement, Steps
from duly.store.postgres.rows import InSchema, utc
from duly.store.records import JOURNAL_COLUMNS

_LIST = ", ".join(JOURNAL_COLUMNS)
_WRITTEN = ", ".join(JOURNAL_COLUMNS[1:])
# A job that goes from one table to another has no row that knows both states. What an attempt
# ended with is on its job, unless it was given back as it was.
FUNCTION = f"""
CREATE OR REPLACE FUNCTION {{schema}}.write_journal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    earlier text;
    why text := NEW.reason;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        earlier := OLD.state;
        IF why IS NULL AND OLD.state = 'running' AND NEW.state <> 'running'
            AND (NEW.attempt = OLD.attempt OR NEW.error_type IS DISTINCT FROM OLD.error_type)
        THEN
            why := NEW.error_type;
        END IF;
    ELSE
        SELECT journal.after INTO earlier FROM {{schema}}.journal
        WHERE journal.job_id = NEW.id ORDER BY number DESC LIMIT 1;
    END IF;
    INSERT INTO {{schema}}.journal ({_WRITTEN})
    VALUES (NEW.id, NEW.generation, NEW.token, NEW.attempt, earlier, NEW.state, NEW.run_at,
        NEW.cancel_requested_at IS NOT NULL, NEW.worker, why, clock_timestamp());
    RETURN NULL;
END
$$
"""
TRIGGERS = {
    "journal_stored": ("jobs", "AFTER INSERT ON {schema}.jobs FOR EACH ROW"),
    "journal_changed": (
        "jobs",
        "AFTER UPDATE OF state, token, generation, run_at, cancel_requested_at ON {schema}.jobs"
        " FOR EACH ROW"
        " WHEN ((OLD.state, OLD.token, OLD.generation, OLD.run_at, OLD.cancel_requested_at)"
        " IS DISTINCT FROM"
        " (NEW.state, NEW.token, NEW.generation, NEW.run_at, NEW.cancel_requested_at))",
    ),
    "journal_archived": ("archive", "AFTER INSERT ON {schema}.archive FOR EACH ROW"),
    "journal_buried": ("dead", "AFTER INSERT ON {schema}.dead FOR EACH ROW"),
}
_INSTALLED = (
    "SELECT count(*) FROM pg_trigger WHERE tgname = 'journal_stored' AND tgrelid = to_regclass(%s)"
)

READ = (
    f"SELECT {_LIST} FROM {{schema}}.journal WHERE number > %(after)s"
    " ORDER BY number LIMIT %(limit)s"
)
READ_OF = READ.replace("WHERE", "WHERE job_id = ANY(%(jobs)s::uuid[]) AND")
_GONE = " AND ".join(
    f"NOT EXISTS (SELECT FROM {{schema}}.{place} WHERE {place}.id = entry.job_id)"
    for place in ("jobs", "dead", "archive")
)
PURGE = (
    "DELETE FROM {schema}.journal WHERE number = ANY (ARRAY(SELECT number FROM"
    f" {{schema}}.journal entry WHERE at < %(before)s AND {_GONE} LIMIT %(limit)s))"
    " RETURNING number"
)


def keep_journal(connection: psycopg.Connection[Any], schema: str, wanted: Journal) -> None:
    """Begin to keep the journal, or stop; what is written stays. In a transaction of its own."""
    if is_kept(connection, schema) == (wanted is Journal.FULL):
        return
    texts = [FUNCTION]
    for name, (table, text) in TRIGGERS.items():
        texts.append(f"DROP TRIGGER IF EXISTS {name} ON {{schema}}.{table}")
        if wanted is Journal.FULL:
            execute = "EXECUTE FUNCTION {schema}.write_journal()"
            texts.append(f"CREATE TRIGGER {name} {text} {execute}")
    with connection.transaction():
        for text in texts:
            connection.execute(text.replace("{schema}", f'"{schema}"').encode())


def is_kept(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Whether this database keeps the journal."""
    row = connection.execute(_INSTALLED, (f'"{schema}".jobs',)).fetchone()
    return row is not None and bool(row[0])


def require_journal(connection: psycopg.Connection[Any], schema: str, wanted: Journal) -> None:
    """Raise when a journal is wanted here and none is kept."""
    if wanted is Journal.FULL and not is_kept(connection, schema):
        raise SchemaBehind(
            f"the setting journal is 'full', but the schema {schema} keeps no journal: run "
            "`duly db migrate` (or app.migrate()) with this setting"
        )


class JournalLog(InSchema):
    """The verbs about the journal."""

    def journal(
        self, limit: int, after: int = 0, job_ids: Sequence[UUID] | None = None
    ) -> Operation[list[JournalEntry]]:
        return Operation(lambda: self._journal(limit, after, job_ids), writes=False, atomic=False)

    def purge_journal(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: self._purge_journal(before, limit), atomic=False)

    def _journal(
        self, limit: int, after: int, job_ids: Sequence[UUID] | None
    ) -> Steps[list[JournalEntry]]:
        values: dict[str, Any] = {"after": after, "limit": limit}
        if job_ids is None:
            rows = yield Statement(self.text(READ), values)
        else:
            rows = yield Statement(self.text(READ_OF), {**values, "jobs": list(job_ids)})
        return [_entry(row) for row in rows]

    def _purge_journal(self, before: datetime, limit: int) -> Steps[int]:
        rows = yield Statement(self.text(PURGE), {"before": before, "limit": limit})
        return len(rows)


def _entry(row: Row) -> JournalEntry:
    values = dict(zip(JOURNAL_COLUMNS, row, strict=True))
    values["before"] = None if values["before"] is None else State(values["before"])
    values["after"] = State(values["after"])
    values["due"] = utc(values["due"])
    values["at"] = utc(values["at"])
    return JournalEntry(**values)
