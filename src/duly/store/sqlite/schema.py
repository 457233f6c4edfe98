"""The schema of the embedded store, brought up to date whenever it is opened."""

from __future__ import annotations

import re
import time

import apsw

from duly.errors import ConfigurationError
from duly.store import migrate

MIGRATIONS = migrate.load("duly.store.sqlite")
_RECORD = """
CREATE TABLE IF NOT EXISTS migrations (
    number         INTEGER PRIMARY KEY,
    name           TEXT NOT NULL,
    oldest_release INTEGER NOT NULL,
    applied_at     INTEGER NOT NULL
) STRICT
"""
_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_VERSION = "SELECT coalesce(max(number), 0), coalesce(max(oldest_release), 0) FROM migrations"


def bring_up_to_date(connection: apsw.Connection, where: str) -> list[str]:
    """Apply what is outstanding, one transaction each; answers the names.

    Safe with several processes at once: the loser of the race finds nothing left to do.
    """
    applied = []
    if version_of(connection).number < MIGRATIONS[-1].number:
        for migration in MIGRATIONS:
            if _apply(connection, migration):
                applied.append(migration.name)
    migrate.require_current(MIGRATIONS, version_of(connection), where)
    return applied


def version_of(connection: apsw.Connection) -> migrate.SchemaVersion:
    """Where the database stands; 0 when it is new."""
    if not connection.table_exists("main", "migrations"):
        return migrate.SchemaVersion(0, 0)
    ((number, oldest_release),) = connection.execute(_VERSION)
    return migrate.SchemaVersion(number, oldest_release)


def _refuse_strangers(connection: apsw.Connection, text: str) -> None:
    """Refuse a file in which somebody else has a table of a name that ours have."""
    for name in _TABLE.findall(text):
        if connection.table_exists("main", name):
            raise ConfigurationError(
                f"the file has a table {name!r} that is not Duly's: give Duly a file of its own"
            )


def _apply(connection: apsw.Connection, migration: migrate.Migration) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_RECORD)
        if version_of(connection).number >= migration.number:
            connection.execute("ROLLBACK")
            return False
        _refuse_strangers(connection, migration.text)
        connection.execute(migration.text)
        connection.execute(
            "INSERT INTO migrations (number, name, oldest_release, applied_at) VALUES (?, ?, ?, ?)",
            (
                migration.number,
                migration.name,
                migration.oldest_release,
                time.time_ns() // 1000,
            ),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True
