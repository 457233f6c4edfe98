"""The PostgreSQL server that the other tests rely on."""

import signal

import psycopg
import pytest

from tests.support.postgres import (
    ENVIRONMENT_VARIABLE,
    PostgresUnavailable,
    find_programs,
    fresh_database,
    given_url,
    own_server,
)


def test_database_is_empty_and_writable(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()
        assert tables == (0,)
        connection.execute("CREATE TABLE thing (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO thing VALUES (1)")
        assert connection.execute("SELECT id FROM thing").fetchall() == [(1,)]


def test_two_databases_are_separate(postgres_server: str, postgres_url: str) -> None:
    with (
        fresh_database(postgres_server) as other_url,
        psycopg.connect(postgres_url) as first,
        psycopg.connect(other_url) as second,
    ):
        first.execute("CREATE TABLE thing (id bigint)")
        first.commit()
        assert second.execute("SELECT to_regclass('thing')").fetchone() == (None,)


def test_database_is_dropped_under_open_connections(postgres_server: str) -> None:
    with fresh_database(postgres_server) as url:
        left_open = psycopg.connect(url)
        name = left_open.info.dbname
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    left_open.close()
    with psycopg.connect(postgres_server) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        assert found.fetchone() is None


def test_commits_wait_for_the_log(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_own_server_keeps_committed_rows_over_a_restart(how: signal.Signals) -> None:
    with own_server({"shared_buffers": "16MB"}) as server:
        url = server.url
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE thing AS SELECT 1 AS id")
        server.stop(how)
        server.start()
        assert server.url == url
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT id FROM thing").fetchall() == [(1,)]


def test_unknown_source_is_refused() -> None:
    with pytest.raises(PostgresUnavailable, match="one of: system, embedded"):
        find_programs("elsewhere")


def test_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(PostgresUnavailable, match=ENVIRONMENT_VARIABLE):
        given_url()
