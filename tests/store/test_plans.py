"""With a large backlog of what must not be read, the verbs of the hot path read next to nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import psycopg
import pytest

from duly.model.query import Demand
from duly.model.settlement import bury, retry, succeed
from duly.store.operation import Operation, Row, Statement, Steps, drive
from duly.store.postgres.choosing import Expected
from duly.store.postgres.connection import configure
from duly.store.postgres.crowd import Crowd
from duly.store.postgres.exchange import numbered
from duly.store.postgres.marks import Marks
from duly.store.postgres.settlements import RUNNING_OF
from duly.store.postgres.store import PostgresStore
from duly.store.postgres.suspension import ENDED
from duly.store.protocol import Verbs
from duly.store.sqlite.connection import connect, execute
from duly.store.sqlite.schema import bring_up_to_date
from duly.store.sqlite.store import SqliteStore
from tests.support.postgres import fresh_database
from tests.support.stores import draft, failure

BACKLOG = 200_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MICROS = int(NOW.timestamp() * 1_000_000)
WORKER = UUID(int=77)
ANOTHER_WORKER = UUID(int=78)
DUE = [UUID(int=(1 << 100) + number) for number in range(1, 11)]
RUNNING = [UUID(int=(2 << 100) + number) for number in range(1, 11)]
DEMAND = Demand(worker=WORKER, queues=("default",), tasks=("work",), limit=5, longest_waiting=1)

OPERATIONS = {
    "claim": lambda store: store.claim(DEMAND, NOW),
    "claim from every queue": lambda store: store.claim(
        Demand(worker=WORKER, queues=(), tasks=("work",), limit=5), NOW
    ),
    "next_due": lambda store: store.next_due(("default",), ("work",), NOW),
    "longest_waiting": lambda store: store.longest_waiting(NOW),
    "settle": lambda store: store.settle([succeed(job_id, 1, "1") for job_id in RUNNING], NOW),
    "bury": lambda store: store.settle(
        [bury(job_id, 1, "x", failure()) for job_id in RUNNING], NOW
    ),
    "reap": lambda store: store.reap([WORKER], "killed", expired_only=False, now=NOW),
    "get": lambda store: store.get([*DUE, *RUNNING]),
    "cancel": lambda store: store.cancel([*DUE, *RUNNING], None, NOW),
    "cancel_requests": lambda store: store.cancel_requests(WORKER),
    "held": lambda store: store.held(WORKER),
    "expire": lambda store: store.expire(100, NOW),
    "run_now": lambda store: store.run_now(DUE, NOW),
}
EXPECTED_INDEX = {
    "claim": "jobs_lane",
    "claim from every queue": "jobs_lane",
    "next_due": "jobs_lane",
    "longest_waiting": "jobs_lane",
    "reap": "jobs_worker",
    "cancel_requests": "jobs_worker",
    "held": "jobs_worker",
    "expire": "jobs_expiry",
}


def asking(text: str, values: dict[str, Any]) -> Steps[list[Row]]:
    return (yield Statement(text, values))


BESIDE: dict[str, Callable[[PostgresStore], Operation[Any]]] = {
    "begin": lambda store: store.begin(RUNNING[0], 1, NOW),
    "wake": lambda store: Operation(lambda: store._wake(DUE, NOW)),
    "retry": lambda store: store.settle(
        [retry(job_id, 1, timedelta(0), failure()) for job_id in RUNNING], NOW
    ),
    "whose children have ended": lambda store: Operation(
        lambda: asking(store.text(ENDED), {"jobs": DUE, "children": RUNNING})
    ),
    "submit with a key": lambda store: store.enqueue([draft(task="work", key="key")], NOW),
}

FOR_MANY = {f"claim, {each.name}": each for each in Expected if each is not Expected.FEW}


def _plain(name: str) -> str:
    return "claim" if name in FOR_MANY else name


def _operation(name: str, store: Verbs) -> Operation[Any]:
    if isinstance(store, PostgresStore):
        store.expected = FOR_MANY.get(name, Expected.FEW)
    operation: Operation[Any] = (OPERATIONS | BESIDE)[_plain(name)](store)
    return operation


# PostgreSQL

COLUMNS = (
    "id, task, queue, priority, state, run_at, created_at, arguments, token, attempt,"
    " max_attempts, crashes, max_crashes, generation, delivery, alone, worker, started_at,"
    " finished_at"
)


def _filling(
    number: str, job_id: str, moment: str, worker: str, hour: str, false: str
) -> list[str]:
    """The backlog as SQL: far-future urgent jobs, due jobs of an unknown task, and a few more."""

    def jobs(table: str, count: int, what: str) -> str:
        return f"INSERT INTO {table} ({COLUMNS}) SELECT {what} FROM numbers WHERE n <= {count}"

    def values(job_id: str, task: str, priority: int, state: str, run_at: str, final: bool) -> str:
        running = state == "running"
        return (
            f"{job_id}, '{task}', 'default', {priority}, '{state}', {run_at}, {moment}, '{{}}',"
            f" {int(running)}, {int(running)}, 1, 0, 3, 1, 'at_least_once', {false},"
            f" {worker if running else 'NULL'}, {moment if running else 'NULL'},"
            f" {moment if final else 'NULL'}"
        )

    ids = job_id.format
    future = f"{moment} + {number} * {hour} + 1000 * {hour}"
    past = f"{moment} - {number} * {hour}"
    return [
        jobs("jobs", BACKLOG, values(ids(9), "work", 20, "pending", future, False)),
        jobs("jobs", BACKLOG, values(ids(8), "removed", 100, "pending", past, False)),
        jobs("jobs", 10, values(ids(1), "work", 5, "pending", past, False)),
        jobs("jobs", 10, values(ids(2), "work", 5, "running", past, False)),
        jobs("archive", 20_000, values(ids(3), "work", 5, "succeeded", past, True)),
        jobs("dead", 20_000, values(ids(4), "work", 5, "dead", past, True)),
    ]


@pytest.fixture(scope="module")
def postgres(postgres_server: str) -> Iterator[tuple[PostgresStore, psycopg.Connection[Any]]]:
    with fresh_database(postgres_server) as url:
        store = PostgresStore(url)
        store.migrate()
        with psycopg.connect(url) as connection:
            filling = _filling(
                "n",
                "(lpad(to_hex(({}::bigint << 36)), 16, '0') || lpad(to_hex(n), 16, '0'))::uuid",
                f"timestamptz '{NOW.isoformat()}'",
                f"'{WORKER}'::uuid",
                "interval '1 hour'",
                "false",
            )
            for text in filling:
                numbers = f"WITH numbers AS (SELECT generate_series(1, {BACKLOG}) AS n) "
                text = re.sub(r"INSERT INTO (\w+)", r"INSERT INTO duly.\1", text)
                connection.execute((numbers + text).encode())
            connection.execute(
                "INSERT INTO duly.lanes SELECT DISTINCT queue, task, priority FROM duly.jobs"
            )
            connection.execute(
                "INSERT INTO duly.workers VALUES (%s, 'w', 'm', 1, 1, '{}', '{}', '1', %s, %s)",
                (WORKER, NOW, NOW + timedelta(hours=1)),
            )
            connection.commit()
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE")
            connection.autocommit = False
            yield store, connection
            connection.rollback()


@dataclass(frozen=True)
class _Cost:
    """What a statement's plan did to the table of live jobs, and the pages it looked at."""

    indexes: set[str]
    scanned: bool
    rows: float
    pages: int
    from_end_to_end: set[str]
    """The tables that were read by an index, but whole."""


def _explained(connection: psycopg.Connection[Any], statement: Statement) -> _Cost:
    text, names = numbered(statement.text)
    parameters = statement.parameters or {}
    values = [parameters[name] for name in names]
    connection.execute(f"PREPARE duly_plan AS {text}".encode())
    placeholders = ", ".join(["%s"] * len(values))
    call = f"duly_plan({placeholders})" if values else "duly_plan"
    with psycopg.ClientCursor(connection) as cursor:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {call}"
        cursor.execute(explain.encode(), values)
        row = cursor.fetchone()
    connection.execute("DEALLOCATE duly_plan")
    assert row is not None
    plan = row[0][0]["Plan"]
    scans = [node for node in _nodes(plan) if "Scan" in node["Node Type"]]
    on_jobs = [
        node
        for node in scans
        if node.get("Relation Name") == "jobs" or node.get("Index Name", "").startswith("jobs_")
    ]
    return _Cost(
        indexes={node["Index Name"] for node in scans if "Index Name" in node},
        scanned=any(node["Node Type"] == "Seq Scan" for node in on_jobs),
        rows=sum(
            node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            for node in on_jobs
        ),
        pages=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        from_end_to_end={
            node["Relation Name"]
            for node in scans
            if node["Node Type"].startswith("Index") and "Index Cond" not in node
        },
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", [*OPERATIONS, *FOR_MANY])
def test_postgres(
    name: str, mode: str, postgres: tuple[PostgresStore, psycopg.Connection[Any]]
) -> None:
    store, connection = postgres
    connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
    costs = []

    def execute_explained(statement: Statement) -> list[Row]:
        with connection.cursor(binary=True) as cursor:
            connection.execute("SAVEPOINT explained")
            costs.append(_explained(connection, statement))
            connection.execute("ROLLBACK TO explained")
            cursor.execute(statement.text.encode(), statement.parameters)
            return cursor.fetchall() if cursor.description is not None else []

    answer = drive(_operation(name, store).start(), execute_explained)
    connection.rollback()
    assert answer is not None
    assert not any(cost.scanned for cost in costs)
    used = {index for cost in costs for index in cost.indexes if index.startswith("jobs_")}
    expected = EXPECTED_INDEX.get(_plain(name), "jobs_pkey")
    assert expected in used
    assert used <= {expected, "jobs_pkey"}
    assert sum(cost.rows for cost in costs) <= 200
    assert sum(cost.pages for cost in costs) <= 3000


GONE = 20_000
EMPTIED = ("jobs", "keys", "attempts")


@pytest.fixture(scope="module")
def behind_horizon(
    postgres_server: str,
) -> Iterator[tuple[PostgresStore, psycopg.Connection[Any]]]:
    """Many jobs were there, a transaction is open that can still see them, and a vacuum has noted
    that there are none: the planner takes reading all for the cheapest way."""
    with (
        fresh_database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
        psycopg.connect(url) as open_for_long,
    ):
        store = PostgresStore(url)
        store.migrate()
        for table in EMPTIED:
            connection.execute(f"ALTER TABLE duly.{table} SET (autovacuum_enabled = off)".encode())
        open_for_long.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        open_for_long.execute("SELECT count(*) FROM duly.jobs")
        for state in ("pending", "running"):
            _fill(connection, GONE // 2, state)
        connection.execute(
            "INSERT INTO duly.keys (task, key, job_id) SELECT task, id::text, id FROM duly.jobs"
        )
        connection.execute(
            "INSERT INTO duly.attempts (job_id, token, number, generation, started_at, ended_at,"
            " outcome) SELECT id, 1, 1, 1, run_at, run_at, 'failed' FROM duly.jobs"
        )
        for table in EMPTIED:
            connection.execute(f"DELETE FROM duly.{table}".encode())
            connection.execute(f"VACUUM duly.{table}".encode())
        for ids, state in ((DUE, "pending"), (RUNNING, "running")):
            _fill(connection, len(ids), state, WORKER)
            connection.execute(
                "UPDATE duly.jobs SET id = given.id FROM unnest(%s) WITH ORDINALITY given (id, n)"
                " WHERE state = %s AND run_at = %s - n * interval '1 s'",
                (ids, state, NOW),
            )
        connection.execute("INSERT INTO duly.lanes VALUES ('default', 'work', 5)")
        connection.execute(
            "INSERT INTO duly.workers VALUES (%s, 'w', 'm', 1, 1, '{}', '{}', '1', %s, %s)",
            (WORKER, NOW, NOW + timedelta(hours=1)),
        )
        configure(connection)
        connection.autocommit = False
        yield store, connection
        connection.rollback()


@pytest.mark.parametrize("name", [*OPERATIONS, *FOR_MANY, *BESIDE])
@pytest.mark.parametrize("marked", [False, True])
def test_behind_an_open_transaction_no_table_is_read_from_end_to_end(
    name: str,
    marked: bool,
    behind_horizon: tuple[PostgresStore, psycopg.Connection[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, connection = behind_horizon
    if marked:
        now = time.monotonic()
        start = {("default", "work", 5): (NOW - timedelta(seconds=len(DUE)), UUID(int=0))}
        monkeypatch.setattr(store, "_marks", Marks(start, NOW, now, now))
    read: set[str] = set()

    def execute_explained(statement: Statement) -> list[Row]:
        with connection.cursor(binary=True) as cursor:
            connection.execute("SAVEPOINT explained")
            cost = _explained(connection, statement)
            read.update(cost.from_end_to_end)
            assert not cost.scanned
            connection.execute("ROLLBACK TO explained")
            cursor.execute(statement.text.encode(), statement.parameters)
            return cursor.fetchall() if cursor.description is not None else []

    drive(_operation(name, store).start(), execute_explained)
    connection.rollback()
    assert not read & set(EMPTIED)


def test_postgres_claims_what_is_due(
    postgres: tuple[PostgresStore, psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, connection = postgres
    # Other tests on this server may look like a crowd, in which touched jobs are left alone.
    monkeypatch.setattr(Crowd, "is_expected", lambda _: False)
    with connection.transaction(force_rollback=True):
        claimed = store.carry(connection).run(store.claim(DEMAND, NOW))
    assert [job.priority for job in claimed] == [5] * 5


# SQLite


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path: Path = tmp_path_factory.mktemp("plans") / "duly.db"
    connection = connect(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    bring_up_to_date(connection, "here")
    numbers = (
        "WITH RECURSIVE numbers (n) AS"
        f" (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT {BACKLOG}) "
    )
    filling = _filling(
        "n",
        "unhex(printf('%016x%016x', {}<<36, n))",
        str(MICROS),
        f"x'{WORKER.hex}'",
        "3600000000",
        "0",
    )
    connection.execute("BEGIN IMMEDIATE")
    for text in filling:
        connection.execute(numbers + text)
    connection.execute("INSERT INTO lanes SELECT DISTINCT queue, task, priority FROM jobs")
    connection.execute(
        "INSERT INTO workers VALUES (?, 'w', 'm', 1, 1, '[]', '[]', '1', ?, ?)",
        (WORKER.bytes, MICROS, MICROS + 3_600_000_000),
    )
    connection.execute("COMMIT")
    yield connection
    connection.close()


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_sqlite(name: str, analysed: bool, sqlite: apsw.Connection) -> None:
    plans: list[str] = []
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 10
        return False

    def execute_explained(statement: Statement) -> list[Row]:
        first = statement.parameters
        if statement.many:
            first = statement.parameters[0] if statement.parameters else None
        if first is not None or not statement.many:
            plan = sqlite.execute(f"EXPLAIN QUERY PLAN {statement.text}", first)
            plans.extend(row[3] for row in plan)
        sqlite.set_progress_handler(count, 10)
        try:
            return execute(sqlite, statement)
        finally:
            sqlite.set_progress_handler(None)

    sqlite.execute("BEGIN IMMEDIATE")
    try:
        if analysed:
            sqlite.execute("ANALYZE")
        drive(_operation(name, SqliteStore("unused")).start(), execute_explained)
    finally:
        sqlite.execute("ROLLBACK")
    big = [plan for plan in plans if re.search(r"\b(jobs|archive|dead)\b", plan)]
    assert big
    assert not [plan for plan in big if plan.startswith("SCAN")], plans
    index = EXPECTED_INDEX.get(name, "sqlite_autoindex_jobs_1")
    assert any(index in plan for plan in big), big
    assert 0 < steps < 20_000


@pytest.mark.parametrize(
    "name", ["claim", *FOR_MANY, "next_due", "settle", "get", "cancel", "reap"]
)
def test_a_plan_kept_from_an_empty_table_serves_a_backlog(name: str, postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    store.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        configure(connection)
        connection.execute("VACUUM ANALYZE")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(
            "INSERT INTO duly.workers VALUES (%s, 'w', 'm', 1, 1, '{}', '{}', '1', %s, %s)",
            (WORKER, NOW, NOW + timedelta(hours=1)),
        )
        statement = next(_operation(name, store).start())
        if name == "reap":
            statement = Statement(store.text(RUNNING_OF), {"workers": [WORKER]})
        text, names = numbered(statement.text)
        values = [statement.parameters[each] for each in names]
        connection.execute(f"PREPARE kept AS {text}".encode())
        call = f"EXECUTE kept({', '.join(['%s'] * len(values))})"
        with psycopg.ClientCursor(connection) as cursor:
            for _ in range(6):
                cursor.execute(call.encode(), values)
            connection.execute(
                "INSERT INTO duly.lanes VALUES ('default', 'work', 5), ('default', 'work', 20)"
            )
            for state in ("pending", "running"):
                _fill(connection, 20_000, state)
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}".encode(), values)
            row = cursor.fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    read = [node for node in _nodes(plan) if node.get("Relation Name") == "jobs"]
    assert not [node for node in read if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 1000


def _fill(
    connection: psycopg.Connection[Any], count: int, state: str, owner: UUID = ANOTHER_WORKER
) -> None:
    worker = owner if state == "running" else None
    connection.execute(
        (
            f"INSERT INTO duly.jobs ({COLUMNS}) SELECT gen_random_uuid(), 'work', 'default', 5,"
            " %(state)s, %(now)s - n * interval '1 s', %(now)s, '{}', 1, 1, 1, 0, 3, 1,"
            " 'at_least_once', false, %(worker)s, NULL, NULL"
            " FROM generate_series(1, %(count)s) AS n"
        ).encode(),
        {"state": state, "now": NOW, "worker": worker, "count": count},
    )
