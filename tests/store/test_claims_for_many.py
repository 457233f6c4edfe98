"""What is asked of every claim, asked of those that expect many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.postgres import claiming
from duly.store.postgres.choosing import Expected
from duly.store.postgres.store import PostgresStore
from tests.conformance.test_claim import *  # noqa: F403
from tests.conformance.test_claim_among_lanes import *  # noqa: F403
from tests.support.stores import Scene, opened

FOR_MANY = [Expected.MANY, Expected.MANY_BESIDE_OTHERS]


@pytest.fixture(params=FOR_MANY, ids=lambda expected: expected.name)
def store(
    request: pytest.FixtureRequest,
    shared_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PostgresStore]:
    """An empty store that expects many jobs of every claim."""
    monkeypatch.setattr(claiming, "_next_expected", lambda jobs, busy: request.param)
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        it.expected = request.param
        yield it


@pytest.fixture
def scene(store: PostgresStore) -> Scene:
    """An empty store with a clock that stands still."""
    return Scene(store)
