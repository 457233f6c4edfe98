"""Databases in SQLite files."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psutil

from bench.engines.protocol import Span
from bench.limits.sqlite import BareSqlite

_YEAR = 365 * 86_400_000_000
_MICROSECONDS = 1e6

# Each row of `others` is one job: its number, task, priority and due time. Ids begin with a
# millisecond of the hour before, as those of jobs that were submitted then: none is of the future.
_LOAD = """
WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < :count - 1
),
others AS (
    SELECT number, CASE number % 3 WHEN 2 THEN 'unknown' ELSE :task END AS task,
        CASE number % 3 WHEN 1 THEN 20 ELSE 5 END AS priority,
        CASE number % 3 WHEN 2 THEN :now ELSE :now + :year + number END AS run_at
    FROM numbers
)
INSERT INTO jobs (id, task, queue, priority, state, run_at, created_at, arguments, token, attempt,
    max_attempts, crashes, max_crashes, generation, delivery, alone)
SELECT unhex(printf('%012x', :now / 1000 - 3600000 + number * 3599999 / :count)
        || hex(randomblob(10))),
    task, 'default', priority, 'pending', run_at, :now, '{}', 0, 0,
    4, 0, 3, 1, 'at_least_once', 0
FROM others
"""
_MEASURED = "task <> 'warm_up'"
_SPAN = f"""
SELECT min(created_at), min(started_at), max(finished_at) FROM archive
WHERE {_MEASURED} AND started_at >= ?
"""
_LANES = """
INSERT OR IGNORE INTO lanes (queue, task, priority)
VALUES ('default', :task, 5), ('default', :task, 20), ('default', 'unknown', 5)
"""


class SqliteDatabase:
    """See bench.engines.protocol.Database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = str(folder / "bench.db")

    @property
    def url(self) -> str:
        """Where Duly finds it."""
        return f"sqlite:///{self._path}"

    def bare(self) -> BareSqlite:
        """A new bare client."""
        return BareSqlite(self._path)

    def load_pending(self, count: int, task: str) -> None:
        """Add jobs that no worker of the benchmark can run now."""
        now = time.time_ns() // 1000
        with closing(self._connect()) as connection, connection:
            connection.execute(_LANES, {"task": task})
            values = {"count": count, "task": task, "now": now, "year": _YEAR}
            connection.execute(_LOAD, values)
        # The log goes to the file now, not within what is measured.
        self._ask("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def horizon_held(self) -> Iterator[None]:
        """A reader stays where it is."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN")
            list(connection.execute("SELECT count(*) FROM sqlite_schema"))
            yield

    def finished(self) -> int:
        """How many jobs are in the archive."""
        ((count,),) = self._ask(f"SELECT count(*) FROM archive WHERE {_MEASURED}")
        return int(count)

    def span(self, since: float = 0.0) -> Span:
        """The times of the jobs in the archive that started after `since`."""
        (row,) = self._ask(_SPAN, (int(since * _MICROSECONDS),))
        created, started, finished = (value / _MICROSECONDS for value in row)
        return Span(created, started, finished)

    def stamps(self) -> list[tuple[int, int]]:
        """When archived jobs were submitted, or due, and when their code ran."""
        rows = self._ask("SELECT arguments, result FROM archive WHERE result GLOB '[0-9]*'")
        return [(_digits(given), int(result)) for given, result in rows]

    def live_bytes(self) -> int:
        """What the live jobs take on the disk: here, the whole file once its log is in it."""
        ((pages,),) = self._ask("PRAGMA page_count")
        ((size,),) = self._ask("PRAGMA page_size")
        return int(pages) * int(size)

    def table_bytes(self) -> int:
        """What all tables take on the disk: the whole file once its log is in it."""
        return self.live_bytes()

    def written_bytes(self, processes: Iterable[int]) -> int:
        """What these processes have handed to the kernel for writing, temporary files too."""
        return sum(psutil.Process(each).io_counters().write_chars for each in processes)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self._path)
        connection.set_busy_timeout(60_000)
        return connection

    def _ask(self, text: str, values: tuple[int, ...] = ()) -> list[Any]:
        with closing(self._connect()) as connection:
            return list(connection.execute(text, values))


class SqliteEngine:
    """See bench.engines.protocol.Engine."""

    name = "sqlite"
    writers = 1

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def fresh(self) -> Iterator[SqliteDatabase]:
        """A new file in a folder of its own."""
        folder = Path(tempfile.mkdtemp(prefix="s", dir=self._directory))
        try:
            yield SqliteDatabase(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def description(self) -> Mapping[str, str]:
        """The versions and settings that figures depend on."""
        return {"version": apsw.sqlite_lib_version(), "synchronous": "FULL", "journal": "WAL"}


def _digits(text: str) -> int:
    return int("".join(filter(str.isdigit, text)))
