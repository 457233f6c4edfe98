"""Stores of the engines that several processes can share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from tests.support.stores import FILES, Scene, opened


@pytest.fixture(params=FILES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each engine that processes can share."""
    with opened(
        request.param, tmp_path, lambda: str(request.getfixturevalue("shared_database"))
    ) as it:
        yield it


@pytest.fixture
def scene(store: Store) -> Scene:
    """An empty store with a clock that stands still."""
    return Scene(store)


@pytest.fixture
def postgres_store(shared_database: str, tmp_path: Path) -> Iterator[PostgresStore]:
    """An empty store on PostgreSQL."""
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        yield it


@pytest.fixture
def connection(postgres_store: PostgresStore, shared_database: str) -> Iterator[psycopg.Connection]:
    """A connection of the test's own to the database of that store."""
    with psycopg.connect(shared_database, autocommit=True) as it:
        yield it
