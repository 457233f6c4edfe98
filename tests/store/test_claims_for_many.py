"""What is asked of every claim, asked of one that follows a claim that brought many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.postgres import claiming
from duly.store.postgres.store import PostgresStore
from tests.conformance.test_claim import *  # noqa: F403
from tests.support.stores import QUEUE, TASK, Scene, opened


@pytest.fixture
def store(
    shared_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """An empty store that expects many jobs of every claim."""
    monkeypatch.setattr(claiming, "MANY", 0)
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        it.expects_many = True
        yield it


@pytest.fixture
def scene(store: PostgresStore) -> Scene:
    """An empty store with a clock that stands still."""
    return Scene(store)


def test_when_many_are_expected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "MANY", 3)
    store = scene.store
    assert isinstance(store, PostgresStore)
    scene.submit_many(5, queue=QUEUE, task=TASK)
    holder = scene.hire()
    expected = []
    for _ in range(3):
        scene.claim(holder, 3)
        expected.append(store.expects_many)
    assert expected == [True, False, False]
