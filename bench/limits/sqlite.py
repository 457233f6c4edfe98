"""The bare loop on SQLite: apsw, WAL, synchronous=FULL, one transaction a call."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress

import apsw

from bench.limits.identifiers import new_id

QUEUE, TASK, PRIORITY = "default", "noop", 5

_COLUMNS = (
    "id, task, queue, priority, state, run_at, created_at, arguments, token, attempt,"
    " worker, started_at"
)
_TABLES = """
CREATE TABLE jobs (
    id BLOB PRIMARY KEY, task TEXT NOT NULL, queue TEXT NOT NULL, priority INTEGER NOT NULL,
    state TEXT NOT NULL, run_at INTEGER NOT NULL, created_at INTEGER NOT NULL,
    arguments TEXT NOT NULL, token INTEGER NOT NULL, attempt INTEGER NOT NULL,
    worker BLOB, started_at INTEGER
) STRICT;
CREATE INDEX jobs_lane ON jobs (queue, task, priority, run_at, id) WHERE state = 'pending';
CREATE TABLE archive (
    id BLOB PRIMARY KEY, task TEXT NOT NULL, queue TEXT NOT NULL, priority INTEGER NOT NULL,
    state TEXT NOT NULL, run_at INTEGER NOT NULL, created_at INTEGER NOT NULL,
    arguments TEXT NOT NULL, token INTEGER NOT NULL, attempt INTEGER NOT NULL,
    worker BLOB, started_at INTEGER, finished_at INTEGER NOT NULL, result TEXT
) STRICT;
CREATE INDEX archive_finished ON archive (state, finished_at);
"""
_INSERT = f"INSERT INTO jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, 0, 0, NULL, NULL)"
_CLAIM = """
UPDATE jobs SET state = 'running', token = token + 1, attempt = attempt + 1, worker = ?,
    started_at = ?
WHERE id IN (
    SELECT id FROM jobs WHERE state = 'pending' AND queue = ? AND task = ? AND priority = ?
    AND run_at <= ? ORDER BY run_at, id LIMIT ?
) RETURNING id, token
"""
_ARCHIVE = f"""
INSERT INTO archive ({_COLUMNS}, finished_at, result)
SELECT {_COLUMNS.replace("state", "'succeeded'")}, ?, ? FROM jobs
WHERE id = ? AND token = ? AND state = 'running'
"""
_DELETE = "DELETE FROM jobs WHERE id = ? AND token = ?"


class BareSqlite:
    """See bench.engines.protocol.Bare. Wake-ups are datagrams on a socket beside the file."""

    def __init__(self, path: str) -> None:
        self._address = f"{path}.wake"
        self._worker = os.urandom(16)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._connection = apsw.Connection(path)
        self._connection.set_busy_handler(_nap)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 4000")

    def create(self) -> None:
        """Make the tables."""
        self._connection.execute(_TABLES)

    def insert(self, arguments: Iterable[str]) -> None:
        """Insert one due job for each text, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, (_row(each) for each in arguments))
        self._connection.execute("COMMIT")

    def insert_one(self, arguments: str) -> None:
        """Insert one due job."""
        self._connection.execute(_INSERT, _row(arguments))

    def notify(self) -> None:
        """Wake whoever waits."""
        with suppress(FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            self._socket.sendto(b"!", socket.MSG_DONTWAIT, self._address)

    def listen(self) -> None:
        """Be woken from now on."""
        self._socket.bind(self._address)

    def wait(self, timeout: float) -> None:
        """Wait for a notification; several that lie there count as one."""
        select.select([self._socket], [], [], timeout)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1, socket.MSG_DONTWAIT)

    def claim(self, limit: int) -> list[tuple[object, int]]:
        """Make up to `limit` due jobs running."""
        now = time.time_ns() // 1000
        self._connection.execute("BEGIN IMMEDIATE")
        jobs = list(
            self._connection.execute(_CLAIM, (self._worker, now, QUEUE, TASK, PRIORITY, now, limit))
        )
        self._connection.execute("COMMIT")
        return jobs

    def finish(self, jobs: list[tuple[object, int]], result: str) -> None:
        """Move these jobs to the archive."""
        now = time.time_ns() // 1000
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_ARCHIVE, ((now, result, *job) for job in jobs))
        connection.executemany(_DELETE, jobs)
        connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file and the socket."""
        self._connection.close()
        self._socket.close()


def _nap(tries: int) -> bool:
    """Wait for another writer; the engine's own timeout sleeps far longer than a commit takes."""
    time.sleep(0.0003)
    return True


def _row(arguments: str) -> tuple[object, ...]:
    now = time.time_ns() // 1000
    return (new_id().bytes, TASK, QUEUE, PRIORITY, now, now, arguments)
