"""A transaction that somebody leaves open on PostgreSQL: claims start where pending jobs begin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.model.settlement import release, succeed
from duly.store.postgres import marks as marks_module
from duly.store.postgres.crowd import Crowd
from duly.store.postgres.exchange import execute
from duly.store.postgres.marks import FEW, LAG, MANY, PERIOD, TRUSTED_FOR, Marking, Marks
from duly.store.postgres.store import PostgresStore
from tests.support.stores import QUEUE, TASK, draft, opened, until, worker

BATCH = 500
LEASE = timedelta(minutes=10)


@pytest.fixture
def store(
    shared_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """An empty store that surveys often, expects no crowd, and has nothing of other tests' left."""
    monkeypatch.setattr(marks_module, "PERIOD", 0.05)
    monkeypatch.setattr(Crowd, "is_expected", lambda _: False)
    with opened("postgres", tmp_path, lambda: shared_database) as it:
        assert isinstance(it, PostgresStore)
        with psycopg.connect(shared_database, autocommit=True) as connection:
            connection.execute("VACUUM (INDEX_CLEANUP ON) duly.jobs")
        yield it


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the server has read from the index for each claim."""
    noted: list[int] = []
    note = Marking._walked

    def walked(self: Marking, read: int, jobs: int, crowded: bool) -> None:
        noted.append(read)
        note(self, read, jobs, crowded)

    monkeypatch.setattr(Marking, "_walked", walked)
    return noted


@pytest.fixture
def connection(store: PostgresStore, shared_database: str) -> Iterator[psycopg.Connection]:
    """A connection of the test's own."""
    with psycopg.connect(shared_database, autocommit=True) as it:
        yield it


@pytest.fixture
def held_horizon(store: PostgresStore, shared_database: str) -> Iterator[psycopg.Connection]:
    """A transaction with a snapshot that is left open."""
    with psycopg.connect(shared_database) as it:
        it.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        it.execute("SELECT count(*) FROM duly.jobs")
        yield it


def submit(store: PostgresStore, count: int) -> None:
    store.run(store.enqueue([draft() for _ in range(count)]))


def demand_of(store: PostgresStore) -> Demand:
    hired = worker()
    store.run(store.register_worker(hired, LEASE))
    return Demand(worker=hired.id, queues=(QUEUE,), tasks=(TASK,), limit=BATCH)


def drain(store: PostgresStore, demand: Demand) -> int:
    """Claim and finish all that claims find; answers how many."""
    done = 0
    while jobs := claim(store, demand):
        store.run(store.settle([succeed(job.id, job.token, None) for job in jobs]))
        done += len(jobs)
    return done


def claim(store: PostgresStore, demand: Demand) -> list[JobRecord]:
    return store.run(store.claim(demand))


def walk_far(store: PostgresStore, demand: Demand) -> None:
    """Run so many jobs that claims notice what they walk over."""
    submit(store, 2 * MANY)
    assert drain(store, demand) == 2 * MANY


def start_behind(store: PostgresStore, demand: Demand, walks: list[int]) -> None:
    """Wait until claims start behind all that is gone."""

    def nearly_nothing_is_walked_over() -> bool:
        claim(store, demand)
        return walks[-1] < FEW

    until(nearly_nothing_is_walked_over)


def test_claims_walk_over_all_that_is_gone_without_marks(
    store: PostgresStore, held_horizon: psycopg.Connection, walks: list[int]
) -> None:
    """What the marks are for."""
    demand = demand_of(store)
    submit(store, BATCH)
    assert drain(store, demand) == BATCH
    assert store.marks is None
    assert claim(store, demand) == []
    assert walks[-1] >= BATCH


def test_claims_start_at_marks_once_they_walk_far(
    store: PostgresStore, held_horizon: psycopg.Connection, walks: list[int]
) -> None:
    demand = demand_of(store)
    walk_far(store, demand)
    start_behind(store, demand, walks)

    def ten_are_claimed_from_there() -> bool:
        """On a slow machine the marks may have grown old in between."""
        submit(store, 10)
        assert len(claim(store, demand)) == 10
        return walks[-1] < FEW + 2 * 10

    until(ten_are_claimed_from_there)
    submit(store, 3 * BATCH)
    assert drain(store, demand) == 3 * BATCH


def test_other_lanes_and_earlier_jobs_are_found_by_the_next_survey(
    store: PostgresStore, held_horizon: psycopg.Connection, walks: list[int]
) -> None:
    """Given back with a due time before the mark, and submitted with one."""
    demand = demand_of(store)
    submit(store, 2)
    kept = claim(store, demand)
    walk_far(store, demand)
    start_behind(store, demand, walks)
    store.run(store.settle([release(job.id, job.token) for job in kept]))
    past = kept[0].run_at - timedelta(hours=1)
    submitted = store.run(store.enqueue([draft(run_at=past), draft(run_at=past, priority=9)]))
    late = {job.id for job in kept} | {each.job.id for each in submitted}
    exact = store.run(store.next_due((QUEUE,), (TASK,)))
    assert exact is not None
    assert exact.at == past
    found: set[UUID] = set()

    def all_are_found() -> bool:
        found.update(job.id for job in claim(store, demand))
        return found >= late

    until(all_are_found)
    assert found == late


def test_a_claim_on_its_way_during_a_survey_does_not_pass_over_what_that_finds(
    store: PostgresStore,
    held_horizon: psycopg.Connection,
    walks: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a busy lane there always is one."""
    demand = demand_of(store)
    submit(store, BATCH)
    assert drain(store, demand) == BATCH
    submit(store, 1)
    [kept] = claim(store, demand)
    walk_far(store, demand)
    start_behind(store, demand, walks)
    submit(store, 5)
    under_way = store.claim(demand).start()
    statement = next(under_way)
    store.run(store.settle([release(kept.id, kept.token)]))
    monkeypatch.setattr(marks_module, "PERIOD", 600.0)
    store.run(store.survey())
    with store.transaction() as own, pytest.raises(StopIteration) as answered:
        under_way.send(execute(own, statement))
    assert len(answered.value.value) == 5
    assert [job.id for job in claim(store, demand)] == [kept.id]


def test_marks_are_given_up_when_there_is_nothing_to_walk_over(
    store: PostgresStore,
    held_horizon: psycopg.Connection,
    connection: psycopg.Connection,
    walks: list[int],
) -> None:
    demand = demand_of(store)
    walk_far(store, demand)
    start_behind(store, demand, walks)
    held_horizon.rollback()

    def there_are_none() -> bool:
        # It leaves out pages that a survey is looking at.
        connection.execute("VACUUM duly.jobs")
        claim(store, demand)
        return store.marks is None

    until(there_are_none)
    assert claim(store, demand) == []
    assert walks[-1] < FEW


def test_marks_stay_behind_for_what_commits_late() -> None:
    now = datetime.now(UTC)
    job = draft().stored(now)
    lane = (job.queue, job.task, job.priority)
    began = time.monotonic()
    marks = Marks({lane: (now - timedelta(hours=1), job.id)}, now, began, began)
    marks.move_on([job])
    [moved] = marks.parameters["marked_times"]
    assert now - LAG <= moved <= now - LAG + timedelta(seconds=time.monotonic() - began)


def test_marks_of_long_ago_are_not_used() -> None:
    now = datetime.now(UTC)
    lanes = {(QUEUE, TASK, 5): (now, draft().id)}
    began = time.monotonic()
    assert Marks(lanes, now, began, began).usable
    long_ago = began - PERIOD * TRUSTED_FOR
    assert not Marks(lanes, now, long_ago, long_ago).usable


def test_in_a_crowd_only_a_very_long_walk_is_worth_a_survey(store: PostgresStore) -> None:
    def is_due_after(read: int, crowded: bool) -> bool:
        store._walked(read, 100, crowded)
        return store.survey_is_due

    assert not is_due_after(marks_module.MANY, crowded=False)
    assert is_due_after(marks_module.MANY + 1_000, crowded=False)
    assert not is_due_after(marks_module.MANY_IN_CROWD, crowded=True)
    assert is_due_after(marks_module.MANY_IN_CROWD + 1_000, crowded=True)
