"""Claims on PostgreSQL that wait for a place, while many claim."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from uuid import UUID

import psycopg
import pytest

from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.store.postgres import turns as turns_module
from duly.store.postgres.choosing import Expected
from duly.store.postgres.claiming import MANY
from duly.store.postgres.crowd import MANY as CROWD
from duly.store.postgres.crowd import Crowd, View
from duly.store.postgres.store import PostgresStore
from duly.store.postgres.turns import PLACES, first_place
from tests.support.stores import LEASE, TASK, draft, until, worker

PATIENCE = 30.0
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event = 'advisory' AND datname = current_database()
"""
PLACES_TAKEN = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND database = (
    SELECT oid FROM pg_database WHERE datname = current_database()
)
"""


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    """One with plenty of jobs, which has seen that many are at work."""
    postgres_store.run(postgres_store.enqueue([draft() for _ in range(20 * MANY)]))
    assert postgres_store._crowd.is_expected()
    postgres_store._crowd.claimed(1, False, View(running=CROWD, oldest=1, next=1))
    return postgres_store


def hire(store: PostgresStore) -> UUID:
    hired = worker()
    store.run(store.register_worker(hired, LEASE))
    return hired.id


def claim(store: PostgresStore, holder: UUID, limit: int = MANY) -> list[JobRecord]:
    demand = Demand(worker=holder, queues=(), tasks=(TASK,), limit=limit)
    return store.run(store.claim(demand))


@pytest.fixture
def in_vain(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How many claims have waited for a place and got none, soon."""
    waited: list[bool] = []
    monkeypatch.setattr(turns_module, "PATIENCE", 0.05)
    monkeypatch.setattr(store._turns, "give_up", lambda: waited.append(True))
    return waited


@pytest.fixture
def all_taken(store: PostgresStore, shared_database: str) -> Iterator[psycopg.Connection]:
    """Somebody else has all places until a commit."""
    with psycopg.connect(shared_database) as other:
        first = first_place(store.schema, (), (TASK,))
        for place in range(first, first + PLACES):
            other.execute("SELECT pg_advisory_xact_lock(%s)", (place,))
        yield other


def count(connection: psycopg.Connection, what: str) -> int:
    ((number,),) = connection.execute(what.encode()).fetchall()
    return int(number)


@contextmanager
def claiming(store: PostgresStore, holder: UUID) -> Iterator[list[JobRecord]]:
    """A claim beside the block; what it brought is there when both have ended."""
    brought: list[JobRecord] = []
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(claim, store, holder)
        yield brought
        brought += under_way.result(PATIENCE)


def test_a_claim_for_many_waits_for_a_place_and_sees_what_was_taken_until_then(
    store: PostgresStore, connection: psycopg.Connection, all_taken: psycopg.Connection
) -> None:
    holder = hire(store)
    early = claim(store, holder)
    with claiming(store, holder) as brought:
        until(lambda: count(connection, WAITING) == 1)
        store.expected = Expected.FEW
        early += claim(store, hire(store))
        all_taken.commit()
    assert len(early) == 2 * MANY
    assert len(brought) == MANY
    assert not {job.id for job in brought} & {job.id for job in early}
    assert max(job.id for job in early) < min(job.id for job in brought)


def test_claims_take_any_place_that_is_free(
    store: PostgresStore, all_taken: psycopg.Connection, in_vain: list[bool]
) -> None:
    first = first_place(store.schema, (), (TASK,))
    for free in range(PLACES):
        all_taken.rollback()
        for place in range(PLACES):
            if place != free:
                all_taken.execute("SELECT pg_advisory_xact_lock(%s)", (first + place,))
        for _ in range(2):
            assert len(claim(store, hire(store))) == MANY
    assert not in_vain


def test_claims_for_few_wait_for_nobody(
    store: PostgresStore, all_taken: psycopg.Connection, in_vain: list[bool]
) -> None:
    holder = hire(store)
    for _ in range(3):
        assert len(claim(store, holder, MANY - 1)) == MANY - 1
    assert not in_vain


def test_who_is_alone_waits_for_nobody(
    store: PostgresStore,
    all_taken: psycopg.Connection,
    in_vain: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "_crowd", Crowd())
    holder = hire(store)
    for _ in range(3):
        assert len(claim(store, holder)) == MANY
    assert not in_vain


def test_who_keeps_a_place_for_ever_holds_up_each_worker_once(
    store: PostgresStore,
    connection: psycopg.Connection,
    all_taken: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "PATIENCE", 0.05)
    holder = hire(store)
    for _ in range(2):
        assert len(claim(store, holder)) == MANY
    # Nothing is left that would end this one: it does not wait.
    monkeypatch.setattr(turns_module, "PATIENCE", 3600.0)
    assert len(claim(store, holder)) == MANY
    after = time.monotonic() + turns_module.WITHOUT
    monkeypatch.setattr(turns_module, "time", SimpleNamespace(monotonic=lambda: after))
    with claiming(store, holder) as brought:
        until(lambda: count(connection, WAITING) == 1)
        all_taken.commit()
    assert len(brought) == MANY


def test_nothing_of_a_turn_is_left_behind(
    store: PostgresStore, connection: psycopg.Connection
) -> None:
    holder = hire(store)
    for _ in range(2):
        assert len(claim(store, holder)) == MANY
    assert count(connection, PLACES_TAKEN) == 0
    with store.transaction() as own:
        assert own.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_places_are_for_those_who_want_the_same() -> None:
    first = first_place("duly", ("a", "b"), ("t", "u"))
    assert first == first_place("duly", ("b", "a"), ("u", "t"))
    others = [
        first_place("other", ("a", "b"), ("t", "u")),
        first_place("duly", ("a",), ("t", "u")),
        first_place("duly", ("a", "b"), ("t",)),
    ]
    assert len({first, *others}) == 4
    assert all(place % PLACES == 0 for place in [first, *others])
    assert all(place >= -(2**63) and place + PLACES <= 2**63 for place in [first, *others])
