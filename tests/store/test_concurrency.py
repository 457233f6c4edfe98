"""Many at once: each job to one claimer, one winner for each attempt, no deadlock, nothing lost.

`DULY_HAMMER_SECONDS` sets for how long the processes hammer one file.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import psycopg
import pytest

from duly.errors import KeyConflict, LeaseLost, StoreError
from duly.model.flow import FlowState
from duly.model.job import Draft, JobRecord, KeyPolicy, State
from duly.model.query import Cancellation, Demand, Enqueued, JobFilter
from duly.model.settlement import bury, release, succeed
from duly.store import gathering as gathering_module
from duly.store.awaiting import Blocked
from duly.store.operation import Operation
from duly.store.postgres.choosing import Expected
from duly.store.postgres.sharing import SharedSubmissions
from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.writer import Writer
from tests.support.flows import FlowScene
from tests.support.stores import (
    LEASE,
    TASK,
    Scene,
    draft,
    failure,
    opened,
    queued,
    until,
    worker,
)

PROCESSES = 16
SECONDS = float(os.environ.get("DULY_HAMMER_SECONDS", "3"))
PATIENCE = 30.0
T = TypeVar("T")


def at_once(acts: Sequence[Callable[[], T]]) -> list[T]:
    """Run all in threads that start together; answers in order."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        start.wait(PATIENCE)
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        futures = [threads.submit(run, act) for act in acts]
        return [future.result(4 * PATIENCE) for future in futures]


# Both engines


def test_a_backlog_claimed_by_many_threads_is_shared_out(scene: Scene) -> None:
    jobs = scene.submit_many(600)
    workers = [scene.hire() for _ in range(8)]

    def drain(holder: UUID) -> list[UUID]:
        mine: list[UUID] = []
        while batch := scene.claim(holder, 7):
            mine += [job.id for job in batch]
        return mine

    taken = at_once([lambda holder=holder: drain(holder) for holder in workers])  # type: ignore[misc]
    rest = drain(workers[0])
    everything = Counter(job_id for each in taken for job_id in each) + Counter(rest)
    assert everything == Counter(job.id for job in jobs)


def test_submissions_at_once_keep_to_themselves(scene: Scene) -> None:
    store = scene.store
    unstorable = draft(arguments=cast("str", None))

    def submit(number: int) -> list[tuple[UUID, Enqueued]]:
        answers = []
        for turn in range(20):
            mine = draft()
            (answer,) = store.run(store.enqueue([mine]))
            answers.append((mine.id, answer))
            if turn == number:
                with pytest.raises(StoreError):
                    store.run(store.enqueue([unstorable]))
        return answers

    told = at_once([partial(submit, number) for number in range(16)])
    for mine, answer in itertools.chain(*told):
        assert (answer.job.id, answer.created) == (mine, True)
    assert scene.counts() == {("default", State.PENDING): 16 * 20}


def test_two_hundred_submissions_of_one_key_make_one_job(scene: Scene) -> None:
    def submit() -> tuple[UUID, bool]:
        (answer,) = scene.enqueue(draft(key="once"))
        return answer.job.id, answer.created

    answers = at_once([submit] * 200)
    assert len({job_id for job_id, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    assert scene.counts() == {("default", State.PENDING): 1}


def test_two_hundred_rejecting_submissions_of_one_key_make_one_job(scene: Scene) -> None:
    def submit() -> bool:
        try:
            return scene.enqueue(draft(key="once", key_policy=KeyPolicy.REJECT))[0].created
        except KeyConflict:
            return False

    assert sum(at_once([submit] * 50)) == 1
    assert scene.counts() == {("default", State.PENDING): 1}


@pytest.mark.parametrize("turn", range(6))
def test_an_attempt_has_one_end(scene: Scene, turn: int) -> None:
    scene.submit(max_attempts=1)
    job = scene.take()
    acts = [
        lambda: scene.settle(succeed(job.id, job.token, "1"))[0],
        lambda: scene.settle(succeed(job.id, job.token, "2"))[0],
        lambda: scene.settle(bury(job.id, job.token, "x", failure()))[0],
        lambda: scene.settle(release(job.id, job.token))[0],
        lambda: bool(scene.reap(job.worker or job.id, expired_only=False)),
    ]
    random.Random(turn).shuffle(acts)
    assert sum(at_once(acts)) == 1
    assert len(scene.attempts(job.id)) == 1


@pytest.mark.parametrize("turn", range(4))
def test_cancel_against_settle(scene: Scene, turn: int) -> None:
    scene.submit_many(40, max_attempts=5)
    jobs = scene.claim(scene.hire(), 40)
    random.Random(turn).shuffle(jobs)
    ended, released = jobs[:20], jobs[20:]

    def settle() -> list[bool]:
        ends = [succeed(job.id, job.token, "1") for job in ended]
        return scene.settle(*ends, *(release(job.id, job.token) for job in released))

    def cancel() -> list[bool]:
        ids = [job.id for job in random.sample(jobs, len(jobs))]
        return [answer is not Cancellation.UNKNOWN for answer in scene.cancel(*ids)]

    assert at_once([settle, cancel, cancel]) == [[True] * 40] * 3
    assert {scene.state(job.id) for job in ended} == {State.SUCCEEDED}
    # Asked before it went back, or while it was pending: a cancellation is never forgotten.
    assert {scene.state(job.id) for job in released} == {State.CANCELLED}


def test_keyed_batches_in_any_order_do_not_deadlock(scene: Scene) -> None:
    keys = [f"key {number}" for number in range(12)]

    def submit(seed: int) -> int:
        chance = random.Random(seed)
        made = 0
        for _ in range(6):
            batch = [
                draft(key=key, key_policy=chance.choice([KeyPolicy.RETURN, KeyPolicy.REPLACE]))
                for key in chance.sample(keys, len(keys))
            ]
            answers = scene.enqueue(*batch)
            made += sum(answer.created for answer in answers)
            assert [answer.job.key for answer in answers] == [each.key for each in batch]
            if seed % 2:
                scene.cancel(*(answer.job.id for answer in chance.sample(answers, 6)))
        return made

    made = at_once([lambda seed=seed: submit(seed) for seed in range(6)])  # type: ignore[misc]
    live = scene.counts().get(("default", State.PENDING), 0)
    gone = scene.counts().get(("default", State.CANCELLED), 0)
    assert live + gone == sum(made)
    assert live <= len(keys)


@pytest.mark.parametrize("turn", range(4))
def test_replace_against_cancel_and_claim(scene: Scene, turn: int) -> None:
    job = scene.submit(key="k", arguments="0")
    holder = scene.hire()

    def replace() -> UUID:
        given = draft(key="k", arguments="1", key_policy=KeyPolicy.REPLACE)
        return scene.enqueue(given)[0].job.id

    def cancel() -> UUID:
        assert scene.cancel(job.id) != [Cancellation.UNKNOWN]
        return job.id

    def claim() -> UUID:
        return next((each.id for each in scene.claim(holder)), job.id)

    acts = [replace, cancel, claim]
    random.Random(turn).shuffle(acts)
    ids = set(at_once(acts))
    assert len([each for each in _pending_or_running(scene) if each.key == "k"]) <= 1
    assert all(scene.get(job_id).key == "k" for job_id in ids)


def _pending_or_running(scene: Scene) -> list[JobRecord]:
    states = frozenset({State.PENDING, State.RUNNING})
    return scene.store.run(scene.store.find(JobFilter(states=states), 100))


@pytest.mark.parametrize("turn", range(5))
def test_reap_against_claim_leaves_no_orphan(scene: Scene, turn: int) -> None:
    scene.submit_many(20 + turn)
    holder = scene.hire()

    def claim() -> int:
        taken = 0
        try:
            while batch := scene.claim(holder, 3):
                taken += len(batch)
        except LeaseLost:
            return taken
        return taken

    taken, reaped = at_once([claim, lambda: len(scene.reap(holder, expired_only=False))])
    assert taken == reaped
    assert ("default", State.RUNNING) not in scene.counts()


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, str]]:
    """A store, and where other processes find it."""

    def url() -> str:
        return str(request.getfixturevalue("shared_database"))

    with opened(request.param, tmp_path, url) as store:
        yield store, url() if request.param == "postgres" else str(tmp_path / "duly.db")


@pytest.mark.timeout(120 + 4 * SECONDS)
def test_many_processes_on_one_store(shared: tuple[Store, str]) -> None:
    store, where = shared
    count = PROCESSES if isinstance(store, SqliteStore) else 6
    store.run(store.counts())
    command = [sys.executable, "-m", "tests.support.hammer", where, str(SECONDS)]
    started = time.monotonic()
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    did: dict[str, list[str]] = {"enqueued": [], "claimed": [], "succeeded": []}
    for process in processes:
        output, problems = process.communicate(timeout=100 + 4 * SECONDS)
        assert (process.returncode, problems) == (0, "")
        for name, values in json.loads(output).items():
            did[name] += values
    took = time.monotonic() - started
    scene = Scene(store)
    demand = _demand(scene)
    while jobs := store.run(store.claim(demand)):
        store.run(store.settle([succeed(job.id, job.token, "1") for job in jobs]))
        did["claimed"] += [f"{job.id}:{job.token}" for job in jobs]
        did["succeeded"] += [str(job.id) for job in jobs]
    assert len(set(did["claimed"])) == len(did["claimed"]), "a claim was given twice"
    assert Counter(did["succeeded"]) == Counter(did["enqueued"]), "a job was lost or done twice"
    assert scene.counts() == {("default", State.SUCCEEDED): len(did["enqueued"])}
    print(f"{count} processes: {len(did['succeeded']) / took:.0f} jobs/s, start-up included")


def _demand(scene: Scene) -> Demand:
    hired = worker()
    scene.store.run(scene.store.register_worker(hired, LEASE))
    return Demand(worker=hired.id, queues=(), tasks=(TASK,), limit=500)


# SQLite: callers share commits


def test_of_a_shared_commit_one_bad_operation_fails_alone(tmp_path: Path) -> None:
    scene = Scene(SqliteStore(str(tmp_path / "duly.db")))
    store = scene.store
    assert isinstance(store, SqliteStore)
    scene.submit(key="taken")
    bad = store.enqueue([draft(), draft(key="taken", key_policy=KeyPolicy.REJECT)], scene.now)
    worse: Operation[Any] = store.enqueue([draft(), draft(arguments=None)], scene.now)
    good = [store.enqueue([draft()], scene.now) for _ in range(40)]
    with store.transaction():
        futures: list[Future[Any]] = [
            queued(store._open().writer, each) for each in (*good[:20], bad, worse, *good[20:])
        ]
    problems = [type(future.exception(PATIENCE)).__name__ for future in futures]
    assert problems == ["NoneType"] * 20 + ["KeyConflict", "StoreError"] + ["NoneType"] * 20
    assert scene.counts() == {("default", State.PENDING): 41}
    store.close()


# PostgreSQL: who waits for whom


def test_long_transactions_one_after_another_let_others_in(tmp_path: Path) -> None:
    """Another process's heartbeat gets its turn between them, not after the last."""
    path = str(tmp_path / "jobs.db")
    with closing(SqliteStore(path)) as busy, closing(SqliteStore(path)) as other:
        holder = Scene(other).hire()
        transactions = 30
        waiting = transactions

        def hold() -> None:
            nonlocal waiting
            with busy.transaction():
                waiting -= 1
                time.sleep(0.1)

        renewals = 0
        with ThreadPoolExecutor(transactions) as threads:
            for _ in range(transactions):
                threads.submit(hold)
            while waiting:
                assert other.run(other.renew([holder], LEASE)) == {holder}
                renewals += 1
                before = waiting
                while waiting == before and waiting:
                    time.sleep(0.005)
        print(f"{renewals} renewals between {transactions} transactions")
        assert renewals > transactions / 3


def counted_commits(writer: Writer) -> list[int]:
    """How many jobs the writer stores together, for each time that it does."""
    together: list[int] = []
    enqueue = writer._transactions._enqueue

    def counted(drafts: Sequence[Draft]) -> Operation[Sequence[Enqueued]]:
        together.append(len(drafts))
        return enqueue(drafts)

    writer._transactions._enqueue = counted
    return together


def test_submissions_that_wait_together_are_stored_as_one(tmp_path: Path) -> None:
    with closing(SqliteStore(str(tmp_path / "jobs.db"))) as store:
        store.run(store.counts())
        writer = store._open().writer
        together = counted_commits(writer)
        with ThreadPoolExecutor(12) as threads:
            with store.transaction():
                submitted = [
                    threads.submit(store.run, store.enqueue([draft(), draft()])) for _ in range(12)
                ]
                until(lambda: len(writer._queue) == 12)
            answers = [answer for future in submitted for answer in future.result(PATIENCE)]
        assert together == [24]
        assert len({answer.job.id for answer in answers}) == 24


def test_those_who_shared_a_commit_are_waited_for_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering_module, "LONGEST", PATIENCE)
    monkeypatch.setattr("duly.store.sqlite.writer.RETURN", 0.0)
    with closing(SqliteStore(str(tmp_path / "jobs.db"))) as store:
        store.run(store.counts())
        writer = store._open().writer
        together = counted_commits(writer)
        with store.transaction():
            first = [queued(writer, store.enqueue([draft()])) for _ in range(4)]
        for future in first:
            future.result(PATIENCE)
        until(lambda: writer._gathering._enough == 4)
        again: list[Future[Any]] = []
        for _ in range(4):
            assert not any(future.done() for future in again)
            again.append(queued(writer, store.enqueue([draft()])))
        for future in again:
            future.result(PATIENCE)
        assert together == [4, 4]


def test_on_postgresql_too_those_who_were_stored_together_are_waited_for(
    postgres: Scene, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering_module, "LONGEST", PATIENCE)
    store = postgres.store
    assert isinstance(store, PostgresStore)
    store.run(store.counts())
    shared = store._open().submissions
    together: list[int] = []

    def noted(batch: list[Any]) -> None:
        together.append(len(batch))
        SharedSubmissions._store(shared, batch)

    monkeypatch.setattr(shared, "_store", noted)
    with ThreadPoolExecutor(8) as threads:
        with psycopg.connect(shared_database) as blocker:
            blocker.execute("LOCK TABLE duly.jobs IN EXCLUSIVE MODE")
            alone = threads.submit(store.run, store.enqueue([draft()]))
            until(shared._alone.locked)
            first = [threads.submit(store.run, store.enqueue([draft()]))]
            until(lambda: together == [1])
            first += [threads.submit(store.run, store.enqueue([draft()])) for _ in range(3)]
            until(lambda: len(shared._waiting) == 3)
        for future in [alone, *first]:
            future.result(PATIENCE)
        assert together == [1, 3]
        until(lambda: shared._gathering._enough == 3)
        again = [threads.submit(store.run, store.enqueue([draft()])) for _ in range(2)]
        until(lambda: len(shared._waiting) == 2)
        assert not any(future.done() for future in again)
        again.append(threads.submit(store.run, store.enqueue([draft()])))
        for future in again:
            future.result(PATIENCE)
        assert together == [1, 3, 3]


class InterruptedFirst:
    """Threads that wait for what is stored together, the first of which is interrupted before it
    can wake another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._unlucky = ThreadPoolExecutor(1, "unlucky")
        self._others = ThreadPoolExecutor(8, "others")
        self._waiting: list[Blocked[Any]] = []
        wait = Blocked.wait

        def sometimes_interrupted(blocked: Blocked[Any]) -> Any:
            self._waiting.append(blocked)
            if threading.current_thread().name.startswith("unlucky"):
                blocked._set.acquire()
                raise KeyboardInterrupt
            return wait(blocked)

        monkeypatch.setattr(Blocked, "wait", sometimes_interrupted)

    def submit(self, store: Store, queue: Sized) -> list[Future[Any]]:
        """Have six submissions wait in the queue."""
        first = self._unlucky.submit(store.run, store.enqueue([draft()]))
        until(lambda: len(queue) == 1)
        rest = [self._others.submit(store.run, store.enqueue([draft()])) for _ in range(5)]
        until(lambda: len(queue) == 6)
        return [first, *rest]

    def judge(self, submitted: list[Future[Any]]) -> None:
        try:
            assert isinstance(submitted[0].exception(PATIENCE), KeyboardInterrupt)
            assert all(future.result(PATIENCE)[0].created for future in submitted[1:])
        finally:
            for blocked in self._waiting:
                blocked.wake()


@pytest.mark.parametrize("waits", [True, False])
def test_one_who_is_interrupted_holds_up_none_of_those_stored_together_on_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Whether the writer waits for their return or not."""
    threads = InterruptedFirst(monkeypatch)
    with closing(SqliteStore(str(tmp_path / "jobs.db"))) as store:
        store.run(store.counts())
        if not waits:
            store._open().writer._gathering._rests_until = math.inf
        with store.transaction():
            submitted = threads.submit(store, store._open().writer._queue)
        threads.judge(submitted)


def test_one_who_is_interrupted_holds_up_none_of_those_stored_together_on_postgresql(
    postgres: Scene, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres.store
    assert isinstance(store, PostgresStore)
    shared = store._open().submissions
    threads = InterruptedFirst(monkeypatch)
    with ThreadPoolExecutor(2) as earlier:
        with psycopg.connect(shared_database) as blocker:
            blocker.execute("LOCK TABLE duly.jobs IN EXCLUSIVE MODE")
            alone = earlier.submit(store.run, store.enqueue([draft()]))
            until(shared._alone.locked)
            taken = earlier.submit(store.run, store.enqueue([draft()]))
            until(lambda: shared._storing and not shared._waiting)
            submitted = threads.submit(store, shared._waiting)
        threads.judge([*submitted, alone, taken])


@pytest.fixture
def postgres(shared_database: str, tmp_path: Path) -> Iterator[Scene]:
    with opened("postgres", tmp_path, lambda: shared_database) as store:
        yield Scene(store)


class Caller:
    """A caller's own connection, in a transaction that is open until it says so."""

    def __init__(self, scene: Scene, url: str) -> None:
        self._connection = psycopg.connect(url)
        self._carrier = scene.store.carry(self._connection)

    def run(self, operation: Operation[T]) -> T:
        """Do it in the open transaction."""
        return self._carrier.run(operation)

    def commit(self) -> None:
        """End the transaction."""
        self._connection.commit()

    def close(self) -> None:
        """Roll back what was not committed."""
        self._connection.close()


@pytest.fixture
def caller(postgres: Scene, shared_database: str) -> Iterator[Caller]:
    caller = Caller(postgres, shared_database)
    yield caller
    caller.close()


@pytest.fixture
def someone_waits(shared_database: str) -> Callable[[], bool]:
    """Asks whether a session waits for another's lock."""

    def ask() -> bool:
        with psycopg.connect(shared_database, autocommit=True) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
        return row is not None and row[0] > 0

    return ask


@contextmanager
def in_thread(act: Callable[[], T]) -> Iterator[Future[T]]:
    """Do it elsewhere, without waiting for it."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(act)


def _claim(scene: Scene, holder: UUID, limit: int = 10) -> Operation[list[JobRecord]]:
    demand = Demand(worker=holder, queues=(), tasks=(TASK,), limit=limit)
    return scene.store.claim(demand, scene.now)


def test_submissions_that_come_together_share_commits(
    postgres: Scene, shared_database: str
) -> None:
    store = postgres.store
    assert isinstance(store, PostgresStore)
    shared = store._open().submissions
    with ThreadPoolExecutor(24) as threads, psycopg.connect(shared_database) as blocker:
        blocker.execute("LOCK TABLE duly.jobs IN EXCLUSIVE MODE")
        submitted = [threads.submit(store.run, store.enqueue([draft()]))]
        until(shared._alone.locked)
        # One goes alone, the thread takes another, and the rest wait to be taken together.
        submitted += [threads.submit(store.run, store.enqueue([draft()]))]
        until(lambda: shared._storing and not shared._waiting)
        submitted += [threads.submit(store.run, store.enqueue([draft()])) for _ in range(22)]
        until(lambda: len(shared._waiting) == 22)
        blocker.commit()
        assert all(future.result(PATIENCE)[0].created for future in submitted)
        row = blocker.execute(
            "SELECT count(*), count(DISTINCT xmin::text) FROM duly.jobs"
        ).fetchone()
    assert row is not None
    jobs, commits = row
    assert jobs == 24
    assert commits < 24


def test_a_reap_waits_for_an_open_claim_and_takes_it_back(
    postgres: Scene, caller: Caller, someone_waits: Callable[[], bool]
) -> None:
    scene = postgres
    scene.submit_many(3)
    holder = scene.hire()
    claimed = caller.run(_claim(scene, holder))
    with in_thread(lambda: scene.reap(holder, expired_only=False)) as reaping:
        until(lambda: reaping.done() or someone_waits())
        caller.commit()
        reaped = reaping.result(PATIENCE)
    assert {each.job_id for each in reaped} == {job.id for job in claimed}
    assert scene.counts() == {("default", State.PENDING): 3}


def test_a_claim_waits_for_an_open_reap_and_gets_nothing(
    postgres: Scene, caller: Caller, someone_waits: Callable[[], bool]
) -> None:
    scene = postgres
    scene.submit_many(3)
    holder = scene.hire()
    caller.run(scene.store.reap([holder], "killed", expired_only=False, now=scene.now))
    with in_thread(lambda: scene.claim(holder)) as claiming:
        until(lambda: claiming.done() or someone_waits())
        caller.commit()
        with pytest.raises(LeaseLost):
            claiming.result(PATIENCE)
    assert scene.counts() == {("default", State.PENDING): 3}


@pytest.mark.parametrize("expected", list(Expected))
def test_a_claim_holds_its_worker_if_it_takes_something(
    postgres: Scene, shared_database: str, expected: Expected
) -> None:
    """One in vain writes nothing: it does not wait for the disk."""
    scene = postgres
    store = cast(PostgresStore, scene.store)
    holder = scene.hire()

    def written() -> bool:
        store.expected = expected
        scene.claim(holder)
        with psycopg.connect(shared_database) as connection:
            row = connection.execute("SELECT xmax::text <> '0' FROM duly.workers").fetchone()
        assert row is not None
        return bool(row[0])

    assert not written()
    scene.submit()
    assert written()


def test_a_heartbeat_does_not_wait_for_an_open_claim(postgres: Scene, caller: Caller) -> None:
    scene = postgres
    scene.submit()
    holder = scene.hire()
    assert len(caller.run(_claim(scene, holder))) == 1
    with in_thread(lambda: scene.store.run(scene.store.renew([holder], LEASE))) as renewing:
        try:
            assert renewing.result(10) == {holder}
        finally:
            caller.commit()


def test_a_claim_passes_by_what_another_has_locked(postgres: Scene, caller: Caller) -> None:
    scene = postgres
    jobs = scene.submit_many(5)
    one, two = scene.hire(), scene.hire()
    first = caller.run(_claim(scene, one, 3))
    with in_thread(lambda: scene.claim(two, 5)) as claiming:
        try:
            second = claiming.result(10)
        finally:
            caller.commit()
    assert [job.id for job in first] == [job.id for job in jobs[:3]]
    assert [job.id for job in second] == [job.id for job in jobs[3:]]


@pytest.mark.parametrize("policy", [KeyPolicy.RETURN, KeyPolicy.REPLACE])
def test_a_long_transaction_with_a_key_does_not_hold_up_its_holder(
    postgres: Scene, caller: Caller, policy: KeyPolicy
) -> None:
    scene = postgres
    scene.submit(key="k")
    job = scene.take()
    (answer,) = caller.run(scene.store.enqueue([draft(key="k", key_policy=policy)], scene.now))
    assert answer.job.id == job.id
    with in_thread(lambda: scene.succeed(job)) as settling:
        try:
            assert settling.result(10).state is State.SUCCEEDED
        finally:
            caller.commit()
    assert scene.enqueue(draft(key="k", key_policy=KeyPolicy.REJECT))[0].created


def test_a_long_transaction_with_a_new_lane_does_not_hold_up_others(
    postgres: Scene, caller: Caller
) -> None:
    scene = postgres
    caller.run(scene.store.enqueue([draft(queue="new")], scene.now))
    with in_thread(lambda: scene.submit(queue="new")) as submitting:
        try:
            job = submitting.result(10)
        finally:
            caller.commit()
    assert job.id in {each.id for each in scene.claim(scene.hire(), queues=["new"])}


def test_a_key_in_an_open_transaction_is_waited_for(
    postgres: Scene, caller: Caller, someone_waits: Callable[[], bool]
) -> None:
    scene = postgres
    mine = draft(key="k")
    caller.run(scene.store.enqueue([mine], scene.now))
    with in_thread(lambda: scene.enqueue(draft(key="k"))) as submitting:
        until(lambda: submitting.done() or someone_waits())
        caller.commit()
        (answer,) = submitting.result(PATIENCE)
    assert (answer.created, answer.job.id) == (False, mine.id)


def test_a_deadlock_is_tried_again(
    postgres: Scene, caller: Caller, someone_waits: Callable[[], bool]
) -> None:
    """The server ends one of two that wait for each other; the store's own is run again."""
    scene = postgres
    one, two = scene.submit(key="a"), scene.submit(key="b")
    scene.claim(scene.hire())
    caller.run(scene.store.cancel([two.id], None, scene.now))
    with in_thread(lambda: scene.cancel(one.id, two.id)) as cancelling:
        until(lambda: cancelling.done() or someone_waits())
        try:
            caller.run(scene.store.cancel([one.id], None, scene.now))
        except psycopg.errors.DeadlockDetected:
            caller.close()
        else:
            caller.commit()
        answers = cancelling.result(PATIENCE)
    assert answers == [Cancellation.REQUESTED, Cancellation.REQUESTED]


def test_two_flows_that_come_together_do_not_both_take_the_last_place(
    postgres: Scene, caller: Caller, someone_waits: Callable[[], bool]
) -> None:
    first, second = (FlowScene(postgres, "one at a time").node("a") for _ in range(2))
    caller.run(postgres.store.submit_flow(first.draft(max_active=1), postgres.now))
    with in_thread(lambda: second.submit(max_active=1)) as submitting:
        until(lambda: submitting.done() or someone_waits(), PATIENCE)
        caller.commit()
        submitting.result(PATIENCE)
    states = {first.record().state, second.record().state}
    assert states == {FlowState.RUNNING, FlowState.QUEUED}
