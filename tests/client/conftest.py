"""Fixtures for the tests of the client: an app on each engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly import App

ENGINES = ("sqlite", "postgresql")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DULY_URL", "DULY_SCHEMA", "DULY_LISTEN_URL", "DULY_POOL_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, on each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


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
