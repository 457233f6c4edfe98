"""Who does the writing on SQLite: the caller while he is alone, else the writer's thread."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import apsw
import pytest

from duly.errors import StoreError
from duly.model.identifiers import new_id
from duly.model.job import Alike, State
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.sqlite.connection import connect
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import Scene, draft, queued, until

PATIENCE = 30.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(tmp_path / "duly.db"))) as store:
        store.run(store.counts())
        yield store


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)


def telling(store: SqliteStore, told: list[int]) -> Operation[None]:
    """An operation that tells which thread runs it."""

    def steps() -> Steps[None]:
        told.append(threading.get_ident())
        yield from store.enqueue([draft()]).start()

    return Operation(steps)


def interrupted(by: BaseException) -> Operation[None]:
    """An operation in the middle of which its thread is interrupted."""

    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
        raise by

    return Operation(steps)


def test_who_is_alone_writes_in_his_own_thread(store: SqliteStore) -> None:
    told: list[int] = []
    store.run(telling(store, told))
    assert told == [threading.get_ident()]


def test_who_comes_while_another_writes_queues_for_the_writer_s_thread(store: SqliteStore) -> None:
    told: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        with store.transaction():
            waiting = threads.submit(store.run, telling(store, told))
            until(lambda: len(store._open().writer._queue) == 1)
            assert not told
        waiting.result(PATIENCE)
    assert told == [store._open().writer._thread.ident]


def test_who_comes_while_others_are_waited_for_shares_their_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.gathering.LONGEST", PATIENCE)
    writer = store._open().writer
    with store.transaction():
        first = [queued(writer, store.enqueue([draft()])) for _ in range(2)]
    for future in first:
        future.result(PATIENCE)
    with ThreadPoolExecutor(2) as threads:
        again = threads.submit(store.run, store.enqueue([draft()]))
        until(lambda: len(writer._queue) == 1)
        other = threads.submit(store.run, store.enqueue([draft()]))
        assert len(again.result(PATIENCE)) == len(other.result(PATIENCE)) == 1


@pytest.mark.parametrize("by", [KeyboardInterrupt(), SystemExit(), ValueError("not now")])
def test_an_interrupted_caller_leaves_nothing_behind(
    scene: Scene, store: SqliteStore, by: BaseException
) -> None:
    with pytest.raises(type(by)):
        store.run(interrupted(by))
    scene.submit()
    assert scene.counts() == {("default", State.PENDING): 1}


def test_one_who_could_not_even_undo_is_undone_by_the_next(
    scene: Scene, store: SqliteStore
) -> None:
    connection = store._open().writer._transactions.connection
    assert connection is not None
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
    scene.submit()
    with store.transaction() as mine:
        assert mine.execute("SELECT count(*) FROM lanes WHERE queue = 'q'") == [(0,)]
    assert scene.counts() == {("default", State.PENDING): 1}


def test_a_signal_handler_does_not_wait_for_the_code_it_interrupted(
    scene: Scene, store: SqliteStore
) -> None:
    refused: list[str] = []

    def handler(number: int, frame: FrameType | None) -> None:
        with pytest.raises(StoreError) as caught:
            store.run(store.enqueue([draft()]))
        refused.append(str(caught.value))

    def steps() -> Steps[None]:
        signal.raise_signal(signal.SIGUSR1)
        yield from store.enqueue([draft()]).start()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        store.run(Operation(steps))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "in a signal handler" in refused[0]
    scene.submit()
    assert scene.counts() == {("default", State.PENDING): 2}


def test_a_fork_in_the_middle_of_a_write_is_refused_in_the_child_and_harms_nobody(
    scene: Scene, store: SqliteStore
) -> None:
    statuses: list[int] = []

    def steps() -> Steps[None]:
        child = os.fork()
        if child == 0:
            try:
                store.run(store.enqueue([draft()]))
            except StoreError:
                os._exit(3)
            os._exit(0)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        yield from store.enqueue([draft()]).start()

    store.run(Operation(steps))
    assert statuses == [3]
    scene.submit()
    assert scene.counts() == {("default", State.PENDING): 2}


def test_a_fork_waits_for_another_thread_s_write(scene: Scene, store: SqliteStore) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        yield from store.enqueue([draft()]).start()
        writing.set()
        go_on.wait(PATIENCE)

    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(store.run, Operation(steps))
        assert writing.wait(PATIENCE)
        threading.Timer(0.2, go_on.set).start()
        child = os.fork()
        if child == 0:
            store.run(store.enqueue([draft()]))
            os._exit(0)
        assert go_on.is_set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        written.result(PATIENCE)
    assert scene.counts() == {("default", State.PENDING): 2}


def test_a_fork_waits_for_a_connection_that_is_being_opened(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on = threading.Event(), threading.Event()

    def slowly(path: str) -> apsw.Connection:
        opening.set()
        go_on.wait(PATIENCE)
        return connect(path)

    writer = store._open().writer
    with ThreadPoolExecutor(1) as threads:
        store.suspend()
        monkeypatch.setattr("duly.store.sqlite.transactions.connect", slowly)
        written = threads.submit(writer.run, store.enqueue([draft()]))
        until(lambda: len(writer._queue) == 1)
        store.resume()
        assert opening.wait(PATIENCE)
        threading.Timer(0.2, go_on.set).start()
        store.suspend()
        assert go_on.is_set()
        assert writer._transactions.connection is None
        store.resume()
        written.result(PATIENCE)


def test_an_event_loop_goes_on_while_a_fork_waits_for_a_write(store: SqliteStore) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        yield from store.enqueue([draft()]).start()
        writing.set()
        go_on.wait(PATIENCE)

    writer = store._open().writer
    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(store.run, Operation(steps))
        assert writing.wait(PATIENCE)
        suspended = threads.submit(writer.suspend)
        until(lambda: writer._suspending)
        handed_in = queued(writer, store.enqueue([draft()]))
        assert not suspended.done()
        go_on.set()
        suspended.result(PATIENCE)
        writer.resume()
        handed_in.result(PATIENCE)
        written.result(PATIENCE)


def test_a_reader_who_was_interrupted_is_no_trouble_to_the_next(
    scene: Scene, store: SqliteStore
) -> None:
    scene.submit()
    assert scene.counts()
    readers = store._open()._readers
    assert readers is not None
    used = [place.connection for place in readers._places if place.connection is not None]
    assert used
    for connection in used:
        connection.execute("BEGIN")
    for _ in range(10):
        assert scene.counts() == {("default", State.PENDING): 1}


SHARED = """
import sys
from pathlib import Path

from duly.store.sqlite.store import SqliteStore
from tests.support.stores import draft

store = SqliteStore(sys.argv[1])
for _ in range(200):
    store.run(store.enqueue([draft()]))
"""


def test_two_processes_and_several_threads_lose_nothing(scene: Scene, store: SqliteStore) -> None:
    others = [subprocess.Popen([sys.executable, "-c", SHARED, store.path]) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        done = threads.map(lambda _: store.run(store.enqueue([draft()])), range(400))
        assert len(list(done)) == 400
    assert [each.wait(PATIENCE) for each in others] == [0, 0]
    assert scene.counts() == {("default", State.PENDING): 800}


@pytest.mark.parametrize("wake", list(Wake))
def test_a_commit_wakes_only_those_whom_it_concerns(store: SqliteStore, wake: Wake) -> None:
    with (
        closing(store.watch(Wake.WORKERS)) as workers,
        closing(store.watch(Wake.WAITERS)) as waiters,
        closing(store.watch(Wake.SCHEDULERS)) as schedulers,
    ):
        watches = {Wake.WORKERS: workers, Wake.WAITERS: waiters, Wake.SCHEDULERS: schedulers}
        # To open a database as root sets the owner of its files, and that is heard too.
        until(lambda: not any(watch.wait(0.05) for watch in watches.values()))

        def steps() -> Steps[None]:
            yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")

        store.run(Operation(steps, wakes=frozenset({wake})))
        assert {each: watch.wait(0.1) for each, watch in watches.items()} == {
            each: each is wake for each in Wake
        }


def test_what_its_author_could_not_tell_of_is_noticed_all_the_same(store: SqliteStore) -> None:
    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")

    with closing(store.watch(Wake.WORKERS)) as watch:
        until(lambda: not watch.wait(0.05))
        store.run(Operation(steps))
        assert watch.wait(PATIENCE)


@pytest.mark.parametrize("known", [True, False], ids=["one is known", "all are new"])
def test_submissions_that_are_stored_as_one_are_answered_each_for_itself(
    store: SqliteStore, scene: Scene, known: bool
) -> None:
    first = scene.submit()
    template = draft()
    ids = [first.id if known else new_id(), *(new_id() for _ in range(4))]
    with store.transaction():
        submitted = [
            queued(store._open().writer, store.enqueue(Alike(template, [each.bytes], ["2"])))
            for each in ids
        ]
    answers = [future.result(PATIENCE) for future in submitted]
    assert [len(answer) for answer in answers] == [1] * 5
    assert [answer[0].job.id for answer in answers] == ids
    assert [answer[0].created for answer in answers] == [not known] + [True] * 4
    assert [job.arguments for job in map(scene.get, ids)] == ["{}" if known else "2"] + ["2"] * 4


def test_a_submission_is_as_of_when_it_has_the_file(store: SqliteStore, scene: Scene) -> None:
    scene.submit()
    with closing(connect(store.path)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("BEGIN IMMEDIATE")
        submission = store.enqueue(Alike(draft(), [new_id().bytes], ["1"]))
        assert submission.hopefully is not None
        waiting = store._open().writer._transactions._patience
        submitted = threads.submit(store.run, submission)
        until(lambda: waiting._begun)
        before = datetime.now(UTC)
        other.execute("ROLLBACK")
        ((answer,),) = (submitted.result(PATIENCE),)
    assert answer.job.created_at >= before


def test_a_submission_is_not_part_of_what_somebody_was_interrupted_in(
    store: SqliteStore, scene: Scene
) -> None:
    scene.submit()
    connection = store._open().writer._transactions.connection
    assert connection is not None
    connection.execute("BEGIN IMMEDIATE")
    (answer,) = store.run(store.enqueue(Alike(draft(), [new_id().bytes], ["1"])))
    with closing(connect(store.path)) as other:
        ((found,),) = other.execute(
            "SELECT count(*) FROM jobs WHERE id = ?", (answer.job.id.bytes,)
        )
    assert found == 1


async def _cancelled(store: SqliteStore, number: int) -> None:
    tasks = [asyncio.ensure_future(store.arun(store.enqueue([draft()]))) for _ in range(number)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_submissions_that_are_all_cancelled_hold_up_nobody(
    store: SqliteStore, scene: Scene
) -> None:
    with store.transaction():
        asyncio.run(_cancelled(store, 5))
    scene.submit()
    assert scene.counts() == {("default", State.PENDING): 1}
