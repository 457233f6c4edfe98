"""Fixtures that every test may use."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import PostgresUnavailable, Run, fresh_database, given_url

_RUN = pytest.StashKey[Run]()
_WORKER_KEY = "postgres_run"


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
