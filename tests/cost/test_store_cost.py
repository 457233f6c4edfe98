"""What a plain job costs the database, counted: not how long anything takes on this machine.

A figure that goes up beyond its margin is a regression of every user's throughput. When it goes
down for good, lower the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from duly.model.settlement import succeed
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres import settling
from duly.store.postgres.settlements import SUCCEED
from tests.cost import postgres_counts, sqlite_counts
from tests.cost.bounds import Cost, exceeded
from tests.cost.lives import BATCH, JOBS, PHASES, Lives, opened
from tests.cost.plan_counts import rows_handled

ON_POSTGRESQL: dict[str, Cost] = {
    "submit in bulk": {
        "statements": 1 / JOBS,
        "pages": 5.1,
        "log records": 3.0,
        "log bytes": 345,
    },
    "submit one by one": {
        "statements": 1,
        "pages": 7.1,
        "log records": 3.1,
        "log bytes": 345,
    },
    "claim": {
        "statements": 1 / BATCH,
        "pages": 10.2,
        "log records": 4.8,
        "log bytes": 468,
    },
    "settle": {
        "statements": 1 / BATCH,
        "pages": 9.5,
        "log records": 3.0,
        "log bytes": 361,
    },
}
ROWS_READ = 2.3
"""Rows of tables that an index leads to: one of a claim, one to remove it."""

# A write that takes several is a transaction: two statements beside those that do something.
ON_SQLITE: dict[str, Cost] = {
    "submit in bulk": {"statements": 5 / JOBS, "steps": 138, "log bytes": 227},
    "submit one by one": {"statements": 1, "steps": 166, "log bytes": 14_700},
    "claim": {"statements": 7 / BATCH, "steps": 165, "log bytes": 408},
    "settle": {"statements": 4 / BATCH, "steps": 184, "log bytes": 693},
}

ROWS_HANDLED = {"claim": 10.2, "settle": 13.1}
"""Rows that pass through the nodes of the statements' plans."""

Spoil = Callable[[Lives], None]
"""Makes something worse, when everything is open and warm."""


def costs_on_postgresql(url: str, spoil: Spoil = lambda lives: None) -> dict[str, Cost]:
    with opened(url) as lives:
        # A vacuum of the server's own in the middle has plans made anew, and moves rows.
        postgres_counts.execute(url, "ALTER TABLE duly.jobs SET (autovacuum_enabled = off)")
        # Twice: statements are prepared after some uses. What is gone since would be walked over,
        # and perhaps be worth a survey.
        lives.whole()
        postgres_counts.execute(url, "VACUUM duly.jobs")
        lives.whole()
        spoil(lives)
        return postgres_counts.phase_costs(lives, url)


def costs_on_sqlite(path: Path, spoil: Spoil = lambda lives: None) -> dict[str, Cost]:
    with sqlite_counts.counting(path) as counter, opened(f"sqlite:///{path}") as lives:
        lives.whole()
        spoil(lives)
        return sqlite_counts.phase_costs(lives, counter)


def excess(measured: dict[str, Cost], bounds: dict[str, Cost]) -> dict[str, dict[str, str]]:
    """By phase, the units in which a job costs too much."""
    found = {phase: exceeded(measured[phase], bounds[phase]) for phase in PHASES}
    return {phase: units for phase, units in found.items() if units}


def rows_read_a_job(url: str, spoil: Callable[[], None] = lambda: None) -> float:
    with opened(url) as lives:
        lives.whole()
    spoil()
    before = postgres_counts.rows_read(url)
    with opened(url) as lives:
        lives.whole()
    return (postgres_counts.rows_read(url) - before) / JOBS


def rows_handled_a_job(
    url: str, *settings: str, before: Callable[[], None] = lambda: None
) -> dict[str, float]:
    with opened(url) as lives:
        store = lives.app.store
        lives.whole()
        before()
        lives.submit_in_bulk()
        claim = store.claim(lives.demand)
        handled = {"claim": rows_handled(url, claim, settings)}
        settlements = [succeed(job.id, job.token, "1") for job in store.run(claim)]
        handled["settle"] = rows_handled(url, store.settle(settlements), settings)
    return {verb: rows / BATCH for verb, rows in handled.items()}


def asking_once_more(lives: Lives) -> None:
    """Let every claim ask a small question first."""
    store: Any = lives.app.store
    claim = store.claim

    def asking(demand: Any) -> Operation[Any]:
        operation = claim(demand)

        def steps() -> Steps[Any]:
            yield Statement("SELECT 1")
            return (yield from operation.start())

        return msgspec.structs.replace(operation, start=steps, atomic=False, early=None)

    store.claim = asking


def test_on_postgresql(postgres_url: str) -> None:
    assert excess(costs_on_postgresql(postgres_url), ON_POSTGRESQL) == {}


def test_on_sqlite(tmp_path: Path) -> None:
    assert excess(costs_on_sqlite(tmp_path / "jobs.db"), ON_SQLITE) == {}


def test_rows_read_on_postgresql(postgres_url: str) -> None:
    assert exceeded({"rows": rows_read_a_job(postgres_url)}, {"rows": ROWS_READ}) == {}


def test_rows_handled_on_postgresql(postgres_url: str) -> None:
    assert exceeded(rows_handled_a_job(postgres_url), ROWS_HANDLED) == {}


def test_rows_handled_where_the_planner_believes_that_there_are_none(postgres_url: str) -> None:
    def note_that_there_are_none() -> None:
        for text in ("DELETE FROM duly.jobs", "VACUUM duly.jobs"):
            postgres_counts.execute(postgres_url, text)

    with opened(postgres_url):
        postgres_counts.execute(
            postgres_url, "ALTER TABLE duly.jobs SET (autovacuum_enabled = off)"
        )
    with psycopg.connect(postgres_url) as open_for_long:
        open_for_long.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        open_for_long.execute("SELECT count(*) FROM duly.jobs")
        handled = rows_handled_a_job(postgres_url, before=note_that_there_are_none)
    assert exceeded({"settle": handled["settle"]}, ROWS_HANDLED) == {}


def test_one_more_index_is_noticed_on_postgresql(postgres_url: str) -> None:
    def add_index(lives: Lives) -> None:
        postgres_counts.execute(postgres_url, "CREATE INDEX worse ON duly.jobs (created_at)")

    found = excess(costs_on_postgresql(postgres_url, add_index), ON_POSTGRESQL)
    assert {"pages", "log records"} <= found["submit in bulk"].keys()
    assert {"pages", "log records"} <= found["claim"].keys()
    assert "settle" not in found


def test_one_more_index_is_noticed_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    def add_index(lives: Lives) -> None:
        connection = apsw.Connection(str(path))
        connection.execute("CREATE INDEX worse ON jobs (created_at, id)")
        connection.close()
        # Statements are compiled anew.
        lives.whole()

    found = excess(costs_on_sqlite(path, add_index), ON_SQLITE)
    assert found["submit in bulk"].keys() == {"log bytes"}
    assert found["submit one by one"].keys() == {"log bytes"}


def test_one_more_statement_is_noticed(postgres_url: str, tmp_path: Path) -> None:
    on_postgresql = excess(costs_on_postgresql(postgres_url, asking_once_more), ON_POSTGRESQL)
    assert on_postgresql["claim"].keys() == {"statements"}
    on_sqlite = excess(costs_on_sqlite(tmp_path / "jobs.db", asking_once_more), ON_SQLITE)
    assert on_sqlite["claim"].keys() == {"statements"}


def test_rows_read_in_vain_are_noticed(postgres_url: str) -> None:
    def lose_index() -> None:
        postgres_counts.execute(postgres_url, "DROP INDEX duly.jobs_lane")

    measured = {"rows": rows_read_a_job(postgres_url, lose_index)}
    assert exceeded(measured, {"rows": ROWS_READ}).keys() == {"rows"}


def test_a_loop_over_all_pairs_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "SUCCEED", SUCCEED.replace(" FULL JOIN ", " JOIN "))
    handled = rows_handled_a_job(
        postgres_url, "enable_hashjoin = off", "enable_mergejoin = off", "enable_material = off"
    )
    assert "settle" in exceeded(handled, ROWS_HANDLED)
