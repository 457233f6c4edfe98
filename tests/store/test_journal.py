"""The journal on PostgreSQL while partitions of the archive come and go."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg

from duly.clock import ManualClock
from duly.model.journal import Journal
from duly.store.postgres.store import PostgresStore
from tests.support.stores import Scene


def test_partitions_that_are_made_later_are_in_it(postgres_url: str) -> None:
    """An end is written once, whether its job goes to the default partition, is moved from there
    to that of its day, or goes to that one."""
    store = PostgresStore(postgres_url, journal=Journal.FULL)
    store.migrate()
    now = datetime.now(UTC)
    scene = Scene(store, ManualClock(now))
    day = f"{now:%Y%m%d}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("archive", "archived_attempts"):
            connection.execute(f"DROP TABLE duly.{table}_{day}".encode())
        in_default = scene.finished()
        assert f"archive_{day} made" in store.tend(now)
        in_partition = scene.finished()
        places = connection.execute("SELECT tableoid::regclass::text FROM duly.archive").fetchall()
    assert {place for (place,) in places} == {f"duly.archive_{day}"}
    for job in (in_default, in_partition):
        entries = store.run(store.journal(10, job_ids=[job.id]))
        assert [entry.after for entry in entries] == ["pending", "running", "succeeded"]
    store.close()
