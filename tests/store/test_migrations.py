"""The schema: many at once, killed in the middle, behind and ahead; partitions come and go."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import apsw
import psycopg
import pytest

from duly.errors import SchemaAhead, SchemaBehind
from duly.model.job import State
from duly.model.report import LogLine, Progress
from duly.store.migrate import Migration, SchemaVersion, outstanding, require_current
from duly.store.postgres import schema as postgres_schema
from duly.store.postgres.schema import drop_partitions, prepare_partitions
from duly.store.postgres.store import PostgresStore
from duly.store.sqlite import schema as sqlite_schema
from duly.store.sqlite.store import SqliteStore
from tests.support.hammer import open_store
from tests.support.stores import FILES, Scene, draft, failure

_MIGRATE = """
import json, sys
from tests.support.hammer import open_store
store = open_store(sys.argv[1])
print("migrating", flush=True)
applied = store.migrate()
store.run(store.counts())
print(json.dumps(applied))
store.close()
"""


@pytest.fixture(params=FILES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store is to be: a file that does not exist, or an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "duly.db")
    return str(request.getfixturevalue("postgres_url"))


def _start(where: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _MIGRATE, where]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _names(where: str) -> list[str]:
    module = postgres_schema if where.startswith("postgres") else sqlite_schema
    return [migration.name for migration in module.MIGRATIONS]


def test_several_processes_migrate_at_once(where: str) -> None:
    processes = [_start(where) for _ in range(6)]
    applied: list[str] = []
    for process in processes:
        output, problems = process.communicate(timeout=100)
        assert (process.returncode, problems) == (0, "")
        applied += [name for name in _names(where) if name in output]
    assert sorted(applied) == _names(where)


@pytest.mark.timeout(200)
def test_killed_in_the_middle_it_resumes(where: str) -> None:
    """Killed at moments spread over its whole course; the next start always goes on."""
    first = _start(where)
    started = _begun(first)
    first.communicate(timeout=100)
    course = time.monotonic() - started
    _forget_everything(where)
    chance = random.Random(7)
    for _ in range(6):
        process = _start(where)
        _begun(process)
        try:
            process.wait(course * chance.random())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
    last = _start(where)
    output, problems = last.communicate(timeout=100)
    assert (last.returncode, problems) == (0, ""), output
    store = open_store(where)
    scene = Scene(store)
    scene.dead()
    assert scene.counts() == {("default", State.DEAD): 1}
    store.close()
    assert store.migrate() == []
    store.close()


def _begun(process: subprocess.Popen[str]) -> float:
    """Wait until it is about to migrate; answers when that was."""
    assert process.stdout is not None
    assert process.stdout.readline() == "migrating\n"
    return time.monotonic()


def _forget_everything(where: str) -> None:
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("DROP SCHEMA duly CASCADE")
    else:
        for file in Path(where).parent.glob("duly.db*"):
            file.unlink()


def test_migrating_again_does_nothing(where: str) -> None:
    store = open_store(where)
    assert store.migrate() == _names(where)
    store.run(store.enqueue([draft()]))
    store.close()
    again = open_store(where)
    assert again.migrate() == []
    assert len(again.run(again.counts())) == 1
    again.close()


# Behind and ahead


def test_a_schema_that_is_behind() -> None:
    migrations = [Migration(number, f"{number:04}_x", "", 0) for number in (1, 2, 3)]
    assert outstanding(migrations, SchemaVersion(1, 0)) == migrations[1:]
    with pytest.raises(SchemaBehind, match=r"at migration 1, .* needs 3.*duly db migrate"):
        require_current(migrations, SchemaVersion(1, 0), "here")
    require_current(migrations, SchemaVersion(3, 0), "here")


def test_a_newer_schema_that_older_code_can_live_with() -> None:
    migrations = [Migration(1, "0001_x", "", 0)]
    require_current(migrations, SchemaVersion(5, 1), "here")
    with pytest.raises(SchemaAhead, match=r"knows migration 4; this one knows 1: upgrade duly"):
        require_current(migrations, SchemaVersion(5, 4), "here")


def test_postgres_says_when_it_was_not_migrated(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    with pytest.raises(SchemaBehind, match="duly db migrate"):
        store.run(store.counts())
    store.migrate()
    assert store.run(store.counts()) == []
    store.close()


@pytest.mark.parametrize("oldest_release", [0, 900])
def test_a_database_of_a_later_release(where: str, oldest_release: int) -> None:
    store = open_store(where)
    store.migrate()
    store.run(store.enqueue([draft()]))
    store.close()
    _pretend_later_migration(where, oldest_release)
    again = open_store(where)
    if oldest_release:
        with pytest.raises(SchemaAhead, match="upgrade duly"):
            again.run(again.counts())
    else:
        assert len(again.run(again.counts())) == 1
    again.close()


def _pretend_later_migration(where: str, oldest_release: int) -> None:
    insert = "INSERT INTO {} (number, name, oldest_release, applied_at) VALUES (901, 'x', {}, {})"
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(insert.format("duly.migrations", oldest_release, "now()").encode())
    else:
        file = apsw.Connection(where)
        file.execute(insert.format("migrations", oldest_release, "0"))
        file.close()


def test_migrations_are_numbered_without_a_hole() -> None:
    for module in (postgres_schema, sqlite_schema):
        numbers = [migration.number for migration in module.MIGRATIONS]
        assert numbers == list(range(1, len(numbers) + 1))
    names = [
        [each.name for each in module.MIGRATIONS] for module in (postgres_schema, sqlite_schema)
    ]
    assert names[0] == names[1]


def test_a_migration_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(
        len(sqlite_schema.MIGRATIONS) + 1, "9999_x", "CREATE TABLE half (x); SELECT nonsense", 0
    )
    store = SqliteStore(str(tmp_path / "duly.db"))
    store.migrate()
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "MIGRATIONS", [*sqlite_schema.MIGRATIONS, broken])
        with pytest.raises(Exception, match="nonsense"):
            store.run(store.counts())
    with store.transaction() as connection:
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'") == []
    store.close()


# PostgreSQL: its schema and its partitions


def test_two_schemas_in_one_database_do_not_meet(postgres_url: str) -> None:
    scenes = []
    for name in ("jobs_eu", "duly"):
        store = PostgresStore(postgres_url, name)
        store.migrate()
        scenes.append(Scene(store))
    one, two = scenes
    job = one.submit(key="k")
    assert two.enqueue(draft(key="k"))[0].created
    assert two.store.run(two.store.get([job.id])) == [None]
    assert one.counts() == {("default", State.PENDING): 1}
    assert one.take().id == job.id
    assert one.store.run(one.store.queues()) == two.store.run(two.store.queues())
    for scene in scenes:
        scene.store.close()


@pytest.fixture
def migrated(postgres_url: str) -> Iterator[tuple[Scene, psycopg.Connection[tuple[object, ...]]]]:
    store = PostgresStore(postgres_url)
    store.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield Scene(store), connection
    store.close()


def _partitions(connection: psycopg.Connection[tuple[object, ...]], table: str) -> set[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid"
        " WHERE inhparent = %s::regclass",
        (f"duly.{table}",),
    ).fetchall()
    return {str(row[0]) for row in rows}


def _rows(connection: psycopg.Connection[tuple[object, ...]], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM duly.{table}".encode()).fetchone()
    return int(str(row[0])) if row else 0


def test_partitions_for_the_days_to_come(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]],
) -> None:
    _, connection = migrated
    today = datetime.now(UTC).date()
    days = [today + timedelta(days=ahead) for ahead in range(8)]
    for table in ("archive", "archived_attempts"):
        expected = {f"{table}_{day:%Y%m%d}" for day in days} | {f"{table}_default"}
        assert _partitions(connection, table) >= expected
    assert prepare_partitions(connection, "duly", today) == []
    made = prepare_partitions(connection, "duly", today + timedelta(days=1))
    assert sorted(made) == sorted(
        f"{table}_{today + timedelta(days=8):%Y%m%d}" for table in ("archive", "archived_attempts")
    )


def test_a_finished_job_goes_to_the_partition_of_its_day(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]],
) -> None:
    scene, connection = migrated
    noon = datetime.now(UTC).replace(hour=12)
    scene.clock.advance(noon - scene.now)
    scene.submit(max_attempts=5)
    scene.fail(scene.take())
    scene.advance(3600)
    scene.succeed(scene.take())
    assert _rows(connection, "archive_default") == 0
    assert _rows(connection, f"archive_{scene.now:%Y%m%d}") == 1
    assert _rows(connection, f"archived_attempts_{scene.now:%Y%m%d}") == 1


def test_rows_of_the_default_partition_move_into_a_new_one(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]],
) -> None:
    scene, connection = migrated
    job = scene.submit(max_attempts=5)
    scene.fail(scene.take())
    done = scene.succeed(scene.take())
    other = scene.submit()
    scene.advance(86400)
    scene.cancel(other.id)
    assert _rows(connection, "archive_default") == 2
    made = prepare_partitions(connection, "duly", date(2030, 1, 1) - timedelta(days=7))
    assert "archive_20300101" in made
    assert _rows(connection, "archive_default") == 1
    assert _rows(connection, "archive_20300101") == 1
    assert _rows(connection, "archived_attempts_20300101") == 1
    assert scene.get(job.id) == done
    assert len(scene.attempts(job.id)) == 2
    assert scene.state(other.id) is State.CANCELLED


def test_old_partitions_are_dropped_and_nothing_else(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]],
) -> None:
    scene, connection = migrated
    prepare_partitions(connection, "duly", date(2030, 1, 1) - timedelta(days=7))
    old = scene.finished()
    dead = scene.dead()
    scene.advance(86400)
    prepare_partitions(connection, "duly", date(2030, 1, 2) - timedelta(days=7))
    new = scene.finished()
    scene.advance(86400)
    late = scene.finished()
    dropped = drop_partitions(connection, "duly", date(2030, 1, 2))
    assert {"archive_20300101", "archived_attempts_20300101"} <= set(dropped)
    assert not [name for name in dropped if name.endswith(("20300102", "default"))]
    assert scene.store.run(scene.store.get([old.id])) == [None]
    assert scene.attempts(old.id) == []
    assert scene.get(new.id) == new
    assert scene.get(late.id) == late
    assert scene.get(dead.id).error == failure()


def test_a_partition_in_use_is_dropped_another_time(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]], postgres_url: str
) -> None:
    """Outcomes, which go to the archive, do not wait for a reader of an old day."""
    _, connection = migrated
    prepare_partitions(connection, "duly", date(2030, 1, 1) - timedelta(days=7))
    with psycopg.connect(postgres_url) as reader:
        reader.execute("SELECT count(*) FROM duly.archive_20300101")
        assert "archive_20300101" not in drop_partitions(connection, "duly", date(2030, 1, 2))
    assert "archive_20300101" in drop_partitions(connection, "duly", date(2030, 1, 2))


def test_what_jobs_said_goes_when_their_day_is_dropped(
    migrated: tuple[Scene, psycopg.Connection[tuple[object, ...]]],
) -> None:
    scene, connection = migrated
    store = scene.store
    prepare_partitions(connection, "duly", date(2030, 1, 1) - timedelta(days=7))
    old, dead, live = scene.finished(), scene.dead(), scene.submit()
    for job in (old, dead, live):
        line = LogLine(job.id, 1, scene.now, "INFO", "shop", "here")
        store.run(store.report([Progress(job.id, 1, 0.5, "", scene.now)], [line] * 3))
    store.tend(datetime(2030, 1, 2, tzinfo=UTC))
    assert [len(store.run(store.log_lines(job.id))) for job in (old, dead, live)] == [0, 3, 3]
    assert store.run(store.progress(old.id)) is None
    assert store.run(store.progress(dead.id)) is not None
