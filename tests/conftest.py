"""Fixtures that every test may use."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import PostgresUnavailable, Run, fresh_database, given_url

_RUN = pytest.StashKey[Run]()
_WORKER_KEY = "postgres_run"

ENGINES = ("sqlite", "postgresql")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the run in the main process; join it in a worker process of pytest-xdist."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        config.stash[_RUN] = Run(Path(workerinput[_WORKER_KEY]))
        return
    context = ExitStack()
    config.add_cleanup(context.close)
    config.stash[_RUN] = context.enter_context(Run.begin())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker process of pytest-xdist which run it belongs to."""
    node.workerinput[_WORKER_KEY] = str(node.config.stash[_RUN].directory)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> str:
    """The URL of the run's PostgreSQL server, started when the first test asks for it.

    The server is shared by all tests of the run: do not stop it or change its settings.
    """
    try:
        return given_url() or pytestconfig.stash[_RUN].server_url()
    except PostgresUnavailable as problem:
        message = str(problem)
    pytest.fail(message, pytrace=False)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database, dropped after the test."""
    with fresh_database(postgres_server) as url:
        yield url


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


@pytest.fixture(scope="session")
def shared_database(postgres_server: str) -> Iterator[str]:
    """One database for the tests of a process that do not change the schema, emptied by them."""
    with fresh_database(postgres_server) as url:
        yield url
