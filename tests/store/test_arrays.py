"""Lists that come back from PostgreSQL in the forms that are taken apart here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from duly.model.identifiers import new_id
from duly.store.operation import Statement
from duly.store.postgres.connection import configure
from duly.store.postgres.exchange import execute


@pytest.fixture
def connection(shared_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the store has them, in a time zone of its own."""
    with psycopg.connect(shared_database, autocommit=True) as it:
        configure(it)
        it.execute("SET timezone = 'Asia/Kathmandu'")
        yield it


def echo(connection: psycopg.Connection[Any], kind: str, values: list[Any]) -> Any:
    ((answer,),) = execute(connection, Statement(f"SELECT %(it)s::{kind}[]", {"it": values}))
    return answer


@pytest.mark.parametrize(
    "ids", [[], [new_id()], [UUID(int=0), UUID(int=2**128 - 1)], [new_id(), None, new_id()]]
)
def test_ids(connection: psycopg.Connection[Any], ids: list[UUID | None]) -> None:
    assert echo(connection, "uuid", ids) == ids


MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "moments",
    [
        [],
        [MOMENT],
        [MOMENT, MOMENT + timedelta(microseconds=1), MOMENT],
        [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)],
        [MOMENT, None],
    ],
)
def test_moments(connection: psycopg.Connection[Any], moments: list[datetime | None]) -> None:
    assert echo(connection, "timestamptz", moments) == moments


def test_moments_are_in_utc(connection: psycopg.Connection[Any]) -> None:
    assert [each.tzinfo for each in echo(connection, "timestamptz", [MOMENT])] == [UTC]


def test_a_statement_without_an_answer(connection: psycopg.Connection[Any]) -> None:
    assert execute(connection, Statement("SET jit = off")) == []
    assert execute(connection, Statement("SELECT 1 WHERE false")) == []
