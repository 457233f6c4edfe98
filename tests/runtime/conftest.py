"""Fixtures for the tests of workers: a database of each engine that processes can share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from duly import App
from tests.support.fleet import Fleet, opened

MakeFleet = Callable[..., Fleet]


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """An app on each engine, with a short lease, to be run inside the test."""
    app = App(url, lease=10, grace=10)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[MakeFleet]:
    """Makes a folder with these tasks, on each engine, where workers can be started."""
    with ExitStack() as stack:

        def make(tasks: str, lease: float = 15.0, grace: float = 25.0) -> Fleet:
            return stack.enter_context(opened(tmp_path, url, tasks, lease, grace))

        yield make
