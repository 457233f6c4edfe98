"""The journal on SQLite: triggers that write it, and the verbs that read and forget it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import apsw

from duly.model.identifiers import id_of
from duly.model.job import State
from duly.model.journal import Journal, JournalEntry
from duly.store.operation import Operation, Row, Statement, Steps
from duly.store.records import JOURNAL_COLUMNS
from duly.store.sqlite.rows import array, micros, moment

_CLOCK = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
# A job that goes from one table to another has no row that knows both states.
_LATEST = "(SELECT after FROM journal WHERE job_id = NEW.id ORDER BY number DESC LIMIT 1)"
# What an attempt ended with is on its job, unless it was given back as it was.
_REASON = (
    "coalesce(NEW.reason, iif(OLD.state = 'running' AND NEW.state <> 'running'"
    " AND (NEW.attempt = OLD.attempt OR NEW.error_type IS NOT OLD.error_type),"
    " NEW.error_type, NULL))"
)


def _write(before: str, reason: str) -> str:
    return (
        f"BEGIN INSERT INTO journal ({', '.join(JOURNAL_COLUMNS[1:])}) VALUES"
        f" (NEW.id, NEW.generation, NEW.token, NEW.attempt, {before}, NEW.state, NEW.run_at,"
        f" NEW.cancel_requested_at IS NOT NULL, NEW.worker, {reason}, {_CLOCK}); END"
    )


TRIGGERS = {
    "journal_stored": f"AFTER INSERT ON jobs {_write(_LATEST, 'NEW.reason')}",
    "journal_changed": (
        "AFTER UPDATE OF state, token, generation, run_at, cancel_requested_at ON jobs"
        " WHEN (OLD.state, OLD.token, OLD.generation, OLD.run_at, OLD.cancel_requested_at) IS NOT"
        " (NEW.state, NEW.token, NEW.generation, NEW.run_at, NEW.cancel_requested_at)"
        f" {_write('OLD.state', _REASON)}"
    ),
    "journal_archived": f"AFTER INSERT ON archive {_write(_LATEST, 'NEW.reason')}",
    "journal_buried": f"AFTER INSERT ON dead {_write(_LATEST, 'NEW.reason')}",
}
_INSTALLED = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name = 'journal_stored'"

READ = (
    f"SELECT {', '.join(JOURNAL_COLUMNS)} FROM journal WHERE number > ?1 ORDER BY number LIMIT ?2"
)
READ_OF = (
    f"SELECT {', '.join(JOURNAL_COLUMNS)} FROM journal"
    " WHERE job_id IN (SELECT unhex(value) FROM json_each(?3)) AND number > ?1"
    " ORDER BY number LIMIT ?2"
)
PURGE = (
    "DELETE FROM journal WHERE number IN (SELECT number FROM journal"
    " WHERE at < ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = job_id)"
    " AND NOT EXISTS (SELECT 1 FROM archive WHERE id = job_id)"
    " AND NOT EXISTS (SELECT 1 FROM dead WHERE id = job_id) LIMIT ?) RETURNING number"
)


def keep_journal(connection: apsw.Connection, wanted: Journal) -> None:
    """Begin to keep the journal, or stop; what is written stays."""
    if _is_kept(connection) == (wanted is Journal.FULL):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for name, text in TRIGGERS.items():
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
            if wanted is Journal.FULL:
                connection.execute(f"CREATE TRIGGER {name} {text}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_kept(connection: apsw.Connection) -> bool:
    ((count,),) = connection.execute(_INSTALLED)
    return bool(count)


def _journal(limit: int, after: int, job_ids: Sequence[UUID] | None) -> Steps[list[JournalEntry]]:
    if job_ids is None:
        rows = yield Statement(READ, (after, limit))
    else:
        rows = yield Statement(READ_OF, (after, limit, array([each.hex for each in job_ids])))
    return [_entry(row) for row in rows]


def _entry(row: Row) -> JournalEntry:
    values = dict(zip(JOURNAL_COLUMNS, row, strict=True))
    values["job_id"] = id_of(values["job_id"])
    values["worker"] = None if values["worker"] is None else id_of(values["worker"])
    values["before"] = None if values["before"] is None else State(values["before"])
    values["after"] = State(values["after"])
    values["due"] = moment(values["due"])
    values["at"] = moment(values["at"])
    values["cancelling"] = bool(values["cancelling"])
    return JournalEntry(**values)


def _purge(before: datetime, limit: int) -> Steps[int]:
    rows = yield Statement(PURGE, (micros(before), limit))
    return len(rows)


class JournalLog:
    """The verbs about the journal."""

    def journal(
        self, limit: int, after: int = 0, job_ids: Sequence[UUID] | None = None
    ) -> Operation[list[JournalEntry]]:
        return Operation(lambda: _journal(limit, after, job_ids), writes=False)

    def purge_journal(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: _purge(before, limit))
