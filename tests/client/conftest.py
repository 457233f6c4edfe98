"""Fixtures for the tests of the client: an app on each engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly import App


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """An app on each engine, ready to take jobs."""
    app = App(url)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def postgres_app(postgres_url: str) -> Iterator[App]:
    """An app on PostgreSQL, ready to take jobs."""
    app = App(postgres_url)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def sqlite_app(tmp_path: Path) -> Iterator[App]:
    """An app on an SQLite file."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield app
    app.close()
