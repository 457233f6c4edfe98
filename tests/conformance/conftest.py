"""Every test here runs on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.protocol import Store
from tests.support.stores import ENGINES, Scene, opened


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each engine."""
    with opened(
        request.param, tmp_path, lambda: str(request.getfixturevalue("shared_database"))
    ) as it:
        yield it


@pytest.fixture
def scene(store: Store) -> Scene:
    """An empty store with a clock that stands still."""
    return Scene(store)
