"""Databases for the commands to work on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.clock import ManualClock
from tests.cli.driving import Place
from tests.support.postgres import fresh_database
from tests.support.stores import FILES, Scene, opened


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in a folder of their own, with no settings around them."""
    monkeypatch.chdir(tmp_path)
    for name in ("DULY_URL", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def shared_database(postgres_server: str) -> Iterator[str]:
    """One database for all tests of a process, emptied before each."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty SQLite database."""
    with opened("sqlite", tmp_path, lambda: "") as store:
        store.migrate()
        yield Place(f"sqlite:///{tmp_path}/duly.db", Scene(store, ManualClock(datetime.now(UTC))))


@pytest.fixture(params=FILES)
def anyplace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty database of each engine."""

    def url() -> str:
        return str(request.getfixturevalue("shared_database"))

    with opened(request.param, tmp_path, url) as store:
        store.migrate()
        where = url() if request.param == "postgres" else f"sqlite:///{tmp_path}/duly.db"
        yield Place(where, Scene(store, ManualClock(datetime.now(UTC))))
