"""Claims of workers that find plenty wait for each other; those that look for little do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duly.model.job import JobRecord
from duly.store.postgres import claiming
from duly.store.postgres.connection import TURN
from duly.store.postgres.store import PostgresStore
from tests.support.fleet import until
from tests.support.stores import Scene, opened

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def store(
    shared_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """An empty store in which there is one row for all."""
    monkeypatch.setattr(claiming, "TURNS", 1)
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        yield it


@pytest.fixture
def scene(store: PostgresStore) -> Scene:
    """An empty store with a clock that stands still."""
    return Scene(store)


@pytest.fixture
def rival(shared_database: str) -> Iterator[psycopg.Connection[tuple[int]]]:
    """Somebody else's connection."""
    with psycopg.connect(shared_database) as connection:
        yield connection


def test_who_got_all_it_asked_for_goes_in_turn_next_time(scene: Scene) -> None:
    store = scene.store
    assert isinstance(store, PostgresStore)
    scene.submit_many(5)
    holder = scene.hire()
    plenty = []
    for _ in range(3):
        scene.claim(holder, 3)
        plenty.append(store.finds_plenty)
    assert plenty == [True, False, False]


def test_a_turn_is_waited_for(
    scene: Scene, rival: psycopg.Connection[tuple[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "_turn", lambda store, demand: 12345)
    scene.submit_many(5)
    holder = scene.hire()
    psycopg.RawCursor(rival).execute(TURN, [12345])
    first = scene.claim(holder, 2)
    rest: list[list[JobRecord]] = []
    claiming_again = threading.Thread(target=lambda: rest.append(scene.claim(holder, 4)))
    claiming_again.start()
    with psycopg.connect(rival.info.dsn, autocommit=True) as looking:
        until(lambda: (looking.execute(WAITING).fetchone() or (0,))[0] == 1)
    assert (len(first), rest) == (2, [])
    rival.commit()
    claiming_again.join(60)
    assert [len(jobs) for jobs in rest] == [3]
    psycopg.RawCursor(rival).execute(TURN, [12345])
    assert scene.claim(holder, 4) == []


def test_a_turn_ends_with_its_claim(
    scene: Scene, rival: psycopg.Connection[tuple[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "_turn", lambda store, demand: 54321)
    scene.submit_many(4)
    holder = scene.hire()
    assert [len(scene.claim(holder, 2)) for _ in range(2)] == [2, 2]
    free = rival.execute("SELECT pg_try_advisory_xact_lock(54321)").fetchone()
    assert free == (True,)
