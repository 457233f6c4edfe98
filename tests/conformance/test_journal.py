"""The journal: every change of a job is in it, on every engine, when the database keeps one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from duly.errors import SchemaBehind
from duly.model.identifiers import new_id
from duly.model.job import Delivery, State
from duly.model.journal import Journal, JournalEntry
from duly.model.settlement import cancel, release, snooze, suspend
from duly.model.step import Step, StepKind, StepState, StepWrite, Wait
from duly.policy.states import is_legal
from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import ENGINES, FILES, Scene, draft, opened

Change = tuple[str | None, str]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each engine that keeps the journal."""

    def shared() -> str:
        return str(request.getfixturevalue("shared_database"))

    with opened(request.param, tmp_path, shared, Journal.FULL) as made:
        yield made
    if request.param == "postgres":
        PostgresStore(shared(), journal=Journal.OFF).migrate()


def _entries(scene: Scene, job_id: UUID) -> list[JournalEntry]:
    return scene.store.run(scene.store.journal(1000, job_ids=[job_id]))


def _changes(scene: Scene, job_id: UUID) -> list[Change]:
    found = _entries(scene, job_id)
    assert found[0].before is None
    for earlier, later in pairwise(found):
        assert later.number > earlier.number
        assert later.before is earlier.after
        assert later.at >= earlier.at
        assert later.before is later.after or is_legal(earlier.after, later.after)
    return [(entry.before, entry.after) for entry in found]


def test_from_submission_to_success(scene: Scene) -> None:
    began = datetime.now(UTC)
    job = scene.submit()
    claimed = scene.take()
    scene.succeed(claimed, "1")
    assert _changes(scene, job.id) == [
        (None, "pending"),
        ("pending", "running"),
        ("running", "succeeded"),
    ]
    stored, running, ended = _entries(scene, job.id)
    assert (stored.token, stored.worker, stored.generation) == (0, None, 1)
    assert (running.token, running.attempt, running.worker) == (1, 1, claimed.worker)
    assert (ended.token, ended.attempt, ended.worker) == (1, 1, claimed.worker)
    assert stored.due == job.run_at
    margin = timedelta(seconds=1)
    assert began - margin <= stored.at <= datetime.now(UTC) + margin


@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"key": "k", "key_window": 60.0}])
def test_success_of_every_kind_of_job(scene: Scene, fields: dict[str, object]) -> None:
    job = scene.finished(**fields)
    assert _changes(scene, job.id)[-1] == ("running", "succeeded")


def test_retries_death_and_replay(scene: Scene) -> None:
    job = scene.submit(max_attempts=2)
    scene.fail(scene.take())
    scene.kill(scene.take(), "exhausted")
    scene.replay(job.id)
    scene.succeed(scene.take())
    assert _changes(scene, job.id) == [
        (None, "pending"),
        ("pending", "running"),
        ("running", "pending"),
        ("pending", "running"),
        ("running", "dead"),
        ("dead", "pending"),
        ("pending", "running"),
        ("running", "succeeded"),
    ]
    entries = _entries(scene, job.id)
    assert [entry.token for entry in entries] == [0, 1, 1, 2, 2, 2, 3, 3]
    assert [entry.attempt for entry in entries] == [0, 1, 1, 2, 2, 0, 1, 1]
    assert [entry.generation for entry in entries] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert [entry.reason for entry in entries[2:6]] == ["ValueError", None, "exhausted", None]


def test_what_is_not_charged(scene: Scene) -> None:
    job = scene.submit()
    first = scene.take()
    scene.settle(release(first.id, first.token))
    second = scene.take()
    scene.settle(snooze(second.id, second.token, timedelta(0)))
    scene.crash(scene.take())
    lost = scene.take()
    scene.advance(3600)
    assert lost.worker is not None
    scene.reap(lost.worker)
    entries = _entries(scene, job.id)
    assert [entry.after for entry in entries[2::2]] == [State.PENDING] * 4
    assert [entry.attempt for entry in entries[2::2]] == [0] * 4
    assert [entry.reason for entry in entries[2::2]] == [None, None, "WorkerCrashed", None]
    _changes(scene, job.id)


def test_suspension_and_waking(scene: Scene) -> None:
    job = scene.submit()
    claimed = scene.take()
    nap = Step(
        job_id=job.id, name="nap", key="1", kind=StepKind.SLEEP, state=StepState.WAITING,
        number=1, attempt=1,
    )  # fmt: skip
    write = StepWrite(token=claimed.token, step=nap, delay=timedelta(seconds=60))
    scene.settle(suspend(job.id, claimed.token, Wait(write=write)))
    assert _changes(scene, job.id)[-1][1] == "waiting"
    assert _entries(scene, job.id)[-1].due == scene.now + timedelta(seconds=60)
    scene.advance(61)
    scene.succeed(scene.take())
    assert _changes(scene, job.id)[-2:] == [("waiting", "running"), ("running", "succeeded")]


def test_cancellation_before_and_while_it_runs(scene: Scene) -> None:
    early = scene.submit()
    scene.cancel(early.id, reason="not wanted")
    assert _changes(scene, early.id) == [(None, "pending"), ("pending", "cancelled")]
    assert _entries(scene, early.id)[-1].reason == "not wanted"
    late = scene.submit()
    claimed = scene.take()
    scene.cancel(late.id)
    scene.settle(cancel(late.id, claimed.token, "cancelled on request"))
    assert _changes(scene, late.id)[1:] == [
        ("pending", "running"),
        ("running", "running"),
        ("running", "cancelled"),
    ]
    assert [entry.cancelling for entry in _entries(scene, late.id)] == [False, False, True, True]


def test_expiry_by_the_janitor_and_by_a_claim(scene: Scene) -> None:
    swept = scene.submit(expires_after=timedelta(seconds=5))
    scene.advance(6)
    scene.expire()
    met = scene.submit(expires_after=timedelta(seconds=5))
    scene.advance(6)
    assert scene.claim(scene.hire()) == []
    for job in (swept, met):
        assert _changes(scene, job.id) == [(None, "pending"), ("pending", "cancelled")]


def test_another_time(scene: Scene) -> None:
    job = scene.submit(delay=timedelta(hours=1))
    scene.run_now(job.id)
    scene.run_now(job.id)
    assert _changes(scene, job.id) == [(None, "pending"), ("pending", "pending")]
    assert _entries(scene, job.id)[-1].due == scene.now


def test_a_job_that_is_lost(scene: Scene) -> None:
    job = scene.submit(delivery=Delivery.AT_MOST_ONCE)
    claimed = scene.take()
    scene.begin(claimed)
    scene.crash(claimed)
    assert _changes(scene, job.id)[1:] == [("pending", "running"), ("running", "dead")]
    assert _entries(scene, job.id)[-1].reason == "lost"


def test_what_is_rolled_back_is_not_written(scene: Scene) -> None:
    store = scene.store

    def submit_and_regret() -> None:
        with store.transaction() as connection:
            store.carry(connection).run(store.enqueue([draft()], scene.now))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        submit_and_regret()
    kept = scene.submit()
    assert {entry.job_id for entry in store.run(store.journal(1000))} == {kept.id}


def test_pages_and_choices(scene: Scene) -> None:
    store = scene.store
    jobs = scene.submit_many(5)
    scene.claim(scene.hire())
    everything = store.run(store.journal(1000))
    assert len(everything) == 10
    pages: list[JournalEntry] = []
    while page := store.run(store.journal(3, pages[-1].number if pages else 0)):
        pages += page
    assert pages == everything
    two = [jobs[1].id, jobs[3].id]
    chosen = store.run(store.journal(1000, job_ids=two))
    assert chosen == [entry for entry in everything if entry.job_id in two]
    assert store.run(store.journal(1000, job_ids=[new_id()])) == []


def test_it_is_forgotten_with_its_jobs(scene: Scene) -> None:
    store = scene.store
    gone, kept, live = scene.finished(), scene.dead(), scene.submit()
    assert store.run(store.purge(State.SUCCEEDED, scene.now + timedelta(days=1), 100)) == 1
    later = datetime.now(UTC) + timedelta(hours=1)
    assert store.run(store.purge_journal(datetime.now(UTC) - timedelta(hours=1), 100)) == 0
    assert store.run(store.purge_journal(later, 2)) == 2
    assert store.run(store.purge_journal(later, 100)) == 1
    assert {entry.job_id for entry in store.run(store.journal(100))} == {kept.id, live.id}
    assert _entries(scene, gone.id) == []


@pytest.mark.parametrize("engine", FILES)
def test_it_is_a_property_of_the_database(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Switched on and off by those who say so; those without a word leave it as it is."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else ""

    def store_with(journal: Journal | None) -> Store:
        if engine == "postgres":
            return PostgresStore(url, journal=journal)
        return SqliteStore(str(tmp_path / "duly.db"), journal)

    def written(journal: Journal | None) -> int:
        store = store_with(journal)
        store.migrate()
        job = Scene(store).submit()
        found = len(store.run(store.journal(100, job_ids=[job.id])))
        store.close()
        return found

    assert written(None) == 0
    assert written(Journal.FULL) == 1
    assert written(None) == 1
    assert written(Journal.FULL) == 1
    assert written(Journal.OFF) == 0
    assert written(None) == 0
    if engine == "postgres":
        unmigrated = store_with(Journal.FULL)
        with pytest.raises(SchemaBehind, match=r"keeps no journal: run `duly db migrate`"):
            unmigrated.run(unmigrated.counts())
