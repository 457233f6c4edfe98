"""Stores of the engines that several processes can share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.protocol import Store
from tests.support.postgres import fresh_database
from tests.support.stores import FILES, Scene, opened


@pytest.fixture(scope="session")
def shared_database(postgres_server: str) -> Iterator[str]:
    """One database for the tests of a process that do not change the schema."""
    with fresh_database(postgres_server) as url:
        yield url


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
