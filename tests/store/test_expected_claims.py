"""What a claim is expected to bring, by what the last one has brought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.postgres.choosing import Expected
from duly.store.postgres.claiming import MANY
from duly.store.postgres.store import PostgresStore
from tests.support.stores import Scene, opened

FEW, MANY_OF_ONE, MANY_OF_SEVERAL = Expected


@pytest.fixture
def store(shared_database: str, tmp_path: Path) -> Iterator[PostgresStore]:
    """An empty store."""
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        yield it


def expected_after_claims(store: PostgresStore, claims: int) -> list[Expected]:
    scene = Scene(store)
    holder = scene.hire()
    expected = []
    for _ in range(claims):
        scene.claim(holder, MANY, queues=())
        expected.append(store.expected)
    return expected


def test_of_one_lane(store: PostgresStore) -> None:
    Scene(store).submit_many(3 * MANY + 1)
    assert expected_after_claims(store, 4) == [MANY_OF_ONE, MANY_OF_ONE, MANY_OF_ONE, FEW]


def test_of_several_lanes(store: PostgresStore) -> None:
    """It takes one claim to notice."""
    scene = Scene(store)
    for _ in range(MANY):
        scene.submit_many(2, priority=20)
        scene.submit(queue="other", priority=20)
    scene.submit_many(MANY + 1)
    several = [MANY_OF_SEVERAL] * 2
    assert expected_after_claims(store, 5) == [MANY_OF_ONE, *several, MANY_OF_ONE, FEW]


def test_nothing(store: PostgresStore) -> None:
    assert expected_after_claims(store, 1) == [FEW]
