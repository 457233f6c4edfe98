"""Claims on PostgreSQL that see jobs as they were: others who have taken these do not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import psycopg
import pytest

from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.model.settlement import release, succeed
from duly.store.postgres import crowd as crowd_module
from duly.store.postgres import marks as marks_module
from duly.store.postgres.marks import Marks
from duly.store.postgres.store import PostgresStore
from tests.support.stores import LEASE, TASK, draft, until, worker

PATIENCE = 30.0
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = %s"


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    return postgres_store


def hire(store: PostgresStore) -> UUID:
    hired = worker()
    store.run(store.register_worker(hired, LEASE))
    return hired.id


def demand(holder: UUID, limit: int) -> Demand:
    return Demand(worker=holder, queues=(), tasks=(TASK,), limit=limit)


def claim(store: PostgresStore, holder: UUID, limit: int) -> list[JobRecord]:
    return store.run(store.claim(demand(holder, limit)))


def test_a_claim_leaves_alone_what_was_taken_after_it_began(
    store: PostgresStore, connection: psycopg.Connection
) -> None:
    slow, quick = hire(store), hire(store)
    store.run(store.enqueue([draft() for _ in range(30)]))
    taken: list[JobRecord] = []
    claimed, done = threading.Event(), threading.Event()

    def claim_slowly() -> list[JobRecord]:
        with store.transaction() as own:
            pids.append(own.info.backend_pid)
            jobs = store.carry(own).run(store.claim(demand(slow, 30)))
            claimed.set()
            assert done.wait(PATIENCE)
            return jobs

    pids: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        with connection.transaction():
            # The claim has begun, and waits for its worker's row.
            connection.execute("SELECT FROM duly.workers WHERE id = %s FOR UPDATE", (slow,))
            slowly = threads.submit(claim_slowly)
            until(lambda: bool(pids))
            until(lambda: connection.execute(BLOCKED, (pids[0],)).fetchone() == (1,))
            taken += claim(store, quick, 20)
        assert claimed.wait(PATIENCE)
        settling = threads.submit(
            store.run, store.settle([succeed(job.id, job.token, None) for job in taken])
        )
        try:
            # The claim's transaction is still open.
            landed = settling.result(PATIENCE)
        finally:
            done.set()
        left = slowly.result(PATIENCE)
    assert len(taken) == 20
    assert all(landed)
    assert len(left) == 10
    assert not {job.id for job in left} & {job.id for job in taken}


@pytest.fixture
def open_transaction(store: PostgresStore, shared_database: str) -> Iterator[psycopg.Connection]:
    """One that has written something, and began before whatever the test does."""
    with psycopg.connect(shared_database) as it:
        it.execute("SELECT pg_current_xact_id()")
        yield it


def lock_and_change_in_vain(connection: psycopg.Connection, job_id: UUID) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("UPDATE duly.jobs SET priority = 6 WHERE id = %s", (job_id,))
    with connection.transaction():
        connection.execute("SELECT FROM duly.jobs WHERE id = %s FOR UPDATE", (job_id,))


def wait_for_all_that_runs(connection: psycopg.Connection) -> None:
    """Transactions of other tests, too, which share the server."""
    asking = "SELECT pg_snapshot_{}(pg_current_snapshot())::text::bigint"
    ((following,),) = connection.execute(asking.format("xmax").encode()).fetchall()
    until(lambda: connection.execute(asking.format("xmin").encode()).fetchall() >= [(following,)])


def test_what_was_only_touched_is_claimed_once_that_has_ended(
    store: PostgresStore, connection: psycopg.Connection
) -> None:
    holder = hire(store)
    first, *_ = store.run(store.enqueue([draft() for _ in range(4)]))
    lock_and_change_in_vain(connection, first.job.id)
    wait_for_all_that_runs(connection)
    assert [job.id for job in claim(store, holder, 1)] == [first.job.id]


def test_what_was_only_touched_is_claimed_after_a_claim_in_vain(
    store: PostgresStore, connection: psycopg.Connection, open_transaction: psycopg.Connection
) -> None:
    holder = hire(store)
    (job,) = store.run(store.enqueue([draft()]))
    lock_and_change_in_vain(connection, job.job.id)
    assert claim(store, holder, 10) == []
    assert [each.id for each in claim(store, holder, 10)] == [job.job.id]


def test_what_was_only_touched_waits_for_an_open_transaction_no_longer_than_patience(
    store: PostgresStore,
    connection: psycopg.Connection,
    open_transaction: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holder = hire(store)
    first, *_ = store.run(store.enqueue([draft() for _ in range(4)]))
    lock_and_change_in_vain(connection, first.job.id)
    assert first.job.id not in {job.id for job in claim(store, holder, 1)}
    later = time.monotonic() + crowd_module.PATIENCE
    monkeypatch.setattr(crowd_module, "time", SimpleNamespace(monotonic=lambda: later))
    assert [job.id for job in claim(store, holder, 1)] == [first.job.id]


def test_what_came_back_is_claimed_also_beside_an_open_transaction(
    store: PostgresStore, open_transaction: psycopg.Connection
) -> None:
    holder = hire(store)
    store.run(store.enqueue([draft() for _ in range(2)]))
    (job,) = claim(store, holder, 1)
    store.run(store.settle([release(job.id, job.token)]))
    assert [each.id for each in claim(store, holder, 1)] == [job.id]


def test_what_several_have_locked_together_is_claimed(
    store: PostgresStore, connection: psycopg.Connection, shared_database: str
) -> None:
    holder = hire(store)
    first, *_ = store.run(store.enqueue([draft() for _ in range(2)]))
    locking = "SELECT FROM duly.jobs WHERE id = %s FOR SHARE"
    with psycopg.connect(shared_database) as other, connection.transaction():
        connection.execute(locking, (first.job.id,))
        other.execute(locking, (first.job.id,))
        marked = other.execute("SELECT xmax FROM duly.jobs WHERE id = %s", (first.job.id,))
        assert marked.fetchone() != (0,)
    assert [each.id for each in claim(store, holder, 1)] == [first.job.id]


def test_marks_do_not_hide_what_was_left_alone(
    store: PostgresStore,
    connection: psycopg.Connection,
    open_transaction: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks_module, "PERIOD", 60.0)
    holder = hire(store)
    now, tick = datetime.now(UTC), time.monotonic()
    past = [now - timedelta(seconds=seconds) for seconds in (40, 30, 20, 10)]
    first, *_ = (each.job for each in store.run(store.enqueue([draft(run_at=at) for at in past])))
    with connection.transaction():
        connection.execute("SELECT FROM duly.jobs WHERE id = %s FOR UPDATE", (first.id,))
    lane = (first.queue, first.task, first.priority)
    store._marks = Marks({lane: (first.run_at, first.id)}, now, tick, tick)
    assert first.id not in {job.id for job in claim(store, holder, 3)}
    due = store.run(store.next_due((), (TASK,), exact=False))
    assert due is not None
    assert due.at == first.run_at
    assert [job.id for _ in range(2) for job in claim(store, holder, 3)] == [first.id]
