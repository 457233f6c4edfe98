"""Every scenario of the benchmark works, on small numbers. How fast anything is, is not judged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bench.draining import bare_client
from bench.engines.postgres import PostgresEngine
from bench.engines.protocol import Engine
from bench.engines.sqlite import SqliteEngine
from bench.scenarios import SCENARIOS
from bench.sizes import TINY

# Scenarios do not know their engine: each runs on one here, all that engines offer on both.
ON_SQLITE = [
    "submit",
    "drain",
    "steady",
    "latency",
    "results",
    "backlog",
    "start",
    "disk",
    "writes",
    "soak",
    "held",
    "lanes",
]
ON_POSTGRESQL = [
    "bulk",
    "batch",
    "crowd",
    "lanes",
    "horizon",
    "held",
    "rate",
    "lateness",
    "recovery",
    "memory",
    "disk",
    "writes",
]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder whose path is short enough for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="duly-bench-") as name:
        yield Path(name)


def check(scenario: str, engine: Engine) -> None:
    figures = SCENARIOS[scenario](engine, TINY)
    assert figures
    for figure in figures:
        assert figure.scenario == scenario
        assert figure.engine == engine.name
        assert figure.duly > 0, figure
        assert figure.limit is None or figure.limit > 0, figure


@pytest.mark.parametrize("scenario", ON_SQLITE)
def test_on_sqlite(scenario: str, directory: Path) -> None:
    check(scenario, SqliteEngine(directory))


@pytest.mark.parametrize("scenario", ON_POSTGRESQL)
def test_on_postgresql(scenario: str, directory: Path, postgres_server: str) -> None:
    check(scenario, PostgresEngine(postgres_server, directory))


def test_idle_workers_are_counted_on_postgresql_only(directory: Path, postgres_server: str) -> None:
    measure = SCENARIOS["idle"]
    assert measure(SqliteEngine(directory), TINY) == []
    counted = measure(PostgresEngine(postgres_server, directory), TINY)
    assert [figure.unit for figure in counted] == ["statements/s"] * 2


def test_a_held_horizon_on_sqlite_keeps_the_log(directory: Path) -> None:
    with SqliteEngine(directory).fresh() as database, bare_client(database) as bare:
        bare.insert_one("{}")
        with database.horizon_held():
            bare.insert_one("{}")
            observer = apsw.Connection(str(next(database.folder.glob("*.db"))))
            _, in_log, in_file = next(observer.execute("PRAGMA wal_checkpoint(PASSIVE)"))
            observer.close()
    assert in_file < in_log


def test_no_scenario_is_left_out() -> None:
    assert {*ON_SQLITE, *ON_POSTGRESQL, "idle"} == set(SCENARIOS)
