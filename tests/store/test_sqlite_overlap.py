"""Threads that submit to SQLite are told of one commit while the next is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from duly.errors import StoreError, StoreUnavailable
from duly.model.identifiers import new_id
from duly.model.job import Alike, Draft
from duly.model.query import Enqueued
from duly.store import awaiting, gathering
from duly.store.awaiting import Blocked
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.sqlite import transactions as transactions_module
from duly.store.sqlite import writer as writer_module
from duly.store.sqlite.connection import connect, execute
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.submission import INSERT_ALIKE_HOPEFULLY
from duly.store.sqlite.writer import Writer
from tests.support.stores import draft, queued, until

PATIENCE = 30.0
ALWAYS, NEVER = PATIENCE, 0.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(tmp_path / "duly.db"))) as store:
        store.run(store.counts())
        yield store


class Rounds:
    """What the writer stores as one, round by round: of each, how many jobs; and what is done by
    its thread in the middle of a round, when they are written but not committed."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.writer = store._open().writer
        self.sizes: list[int] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.first: list[Future[Any]] = []
        """The submissions of the first round: known before it begins."""
        self._enqueue = self.writer._transactions._enqueue
        self.writer._transactions._enqueue = self._noted

    def submit(self, number: int) -> list[Future[Any]]:
        return [queued(self.writer, self.store.enqueue([draft()])) for _ in range(number)]

    def begin(self, number: int) -> list[Future[Any]]:
        """Have so many submissions stored as one."""
        with self.store.transaction():
            self.first = self.submit(number)
        return self.first

    def _noted(self, drafts: Sequence[Draft]) -> Operation[Sequence[Enqueued]]:
        self.sizes.append(len(drafts))
        operation = self._enqueue(drafts)

        def steps() -> Steps[Sequence[Enqueued]]:
            answer = yield from operation.start()
            if self.meanwhile:
                self.meanwhile.pop(0)()
            return answer

        return Operation(steps)


@pytest.fixture
def rounds(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """Commits are short beside the return of threads."""
    monkeypatch.setattr(writer_module, "RETURN", ALWAYS)
    return Rounds(store)


def results(futures: list[Future[Any]]) -> int:
    return sum(future.result(PATIENCE)[0].created for future in futures)


def test_those_who_are_stored_hear_of_it_when_the_next_are_written(rounds: Rounds) -> None:
    later: list[Future[Any]] = []
    seen: list[tuple[bool, bool]] = []
    rounds.meanwhile = [
        lambda: later.extend(rounds.submit(3)),
        lambda: seen.append((any(each.done() for each in rounds.first), later[0].done())),
    ]
    first = rounds.begin(2)
    assert (results(first), results(later)) == (2, 3)
    assert rounds.sizes == [2, 3]
    assert seen == [(False, False)]


def test_they_hear_of_it_before_the_next_are_committed(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the second round does not end before those of the first have gone on."""
    later: list[Future[Any]] = []
    told: list[bool] = []
    relay = rounds.writer._relay
    begin = relay.begin

    def noted(outcomes: Any) -> None:
        begin(outcomes)
        told.append(bool(rounds.sizes == [2, 3] and not any(each.done() for each in later)))

    monkeypatch.setattr(relay, "begin", noted)
    rounds.meanwhile = [lambda: later.extend(rounds.submit(3))]
    first = rounds.begin(2)
    assert (results(first), results(later)) == (2, 3)
    assert told[0]


def test_they_hear_of_it_before_one_statement_stores_the_next(
    rounds: Rounds, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run(store.enqueue([draft()]))
    template = draft()
    later: list[Future[Any]] = []
    heard: list[list[bool]] = []

    def submission() -> Operation[Sequence[Enqueued]]:
        return store.enqueue(Alike(template, [new_id().bytes], ["1"]))

    def noted(connection: apsw.Connection, statement: Statement) -> list[Row]:
        assert statement.text == INSERT_ALIKE_HOPEFULLY
        if not later:
            later.extend(queued(rounds.writer, submission()) for _ in range(3))
        heard.append([each.done() for each in (*first, *later)])
        return execute(connection, statement)

    monkeypatch.setattr(rounds.writer._transactions, "_enqueue", store.enqueue)
    with store.transaction():
        first = [queued(rounds.writer, submission()) for _ in range(2)]
        monkeypatch.setattr(transactions_module, "execute", noted)
    assert (results(first), results(later)) == (2, 3)
    assert heard == [[False] * 5, [True, True, False, False, False]]


def test_they_hear_of_it_although_the_next_fail(rounds: Rounds) -> None:
    later: list[Future[Any]] = []

    def broken() -> None:
        raise StoreError("not this time")

    rounds.meanwhile = [lambda: later.extend(rounds.submit(2)), broken]
    first = rounds.begin(2)
    assert results(first) == 2
    # They are tried again, each for itself.
    assert results(later) == 2


def test_they_hear_of_it_although_the_next_cannot_be_stored_at_all(rounds: Rounds) -> None:
    later: list[Future[Any]] = []
    seen: list[bool] = []

    def broken() -> None:
        later.extend(rounds.submit(2))
        raise StoreUnavailable("not this time")

    rounds.meanwhile = [
        lambda: later.extend(rounds.submit(2)),
        broken,
        lambda: seen.append(all(future.done() for future in rounds.first)),
    ]
    first = rounds.begin(2)
    assert results(first) == 2
    assert results(later[2:]) == 2
    assert seen == [True]
    for future in later[:2]:
        assert isinstance(future.exception(PATIENCE), StoreUnavailable)


def test_what_may_take_long_is_not_waited_for(rounds: Rounds, store: SqliteStore) -> None:
    go_on = threading.Event()

    def steps() -> Steps[None]:
        go_on.wait(PATIENCE)
        yield Statement("SELECT 1")

    rounds.meanwhile = [lambda: slow.append(queued(rounds.writer, Operation(steps)))]
    slow: list[Future[Any]] = []
    first = rounds.begin(2)
    assert results(first) == 2
    assert not slow[0].done()
    go_on.set()
    slow[0].result(PATIENCE)


def test_somebody_s_transaction_is_not_waited_for(rounds: Rounds, store: SqliteStore) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def transaction() -> None:
        with store.transaction():
            begun.set()
            go_on.wait(PATIENCE)

    other = threading.Thread(target=transaction)

    def start() -> None:
        other.start()
        until(lambda: len(rounds.writer._queue) == 1)

    rounds.meanwhile = [start]
    first = rounds.begin(2)
    assert results(first) == 2
    assert begun.wait(PATIENCE)
    go_on.set()
    other.join()


def test_another_process_that_has_the_file_is_not_waited_for(
    rounds: Rounds, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = rounds.writer._transactions
    committed = transactions._committed
    with closing(connect(store.path)) as other:

        def lock(wakes: frozenset[Wake]) -> None:
            monkeypatch.setattr(transactions, "_committed", committed)
            other.execute("BEGIN IMMEDIATE")

        later: list[Future[Any]] = []

        def also() -> None:
            later.extend(rounds.submit(2))
            monkeypatch.setattr(transactions, "_committed", lock)

        rounds.meanwhile = [also]
        first = rounds.begin(2)
        assert results(first) == 2
        assert not any(future.done() for future in later)
        other.execute("ROLLBACK")
    assert results(later) == 2


def test_half_of_those_who_return_are_waited_for(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LONGEST", PATIENCE)
    assert results(rounds.begin(8)) == 8
    until(lambda: rounds.writer._gathering._enough == 4)
    again = rounds.submit(3)
    assert not any(future.done() for future in again)
    again += rounds.submit(1)
    assert results(again) == 4
    assert rounds.sizes == [8, 4]


def test_where_commits_take_longer_all_are_waited_for_and_share_one(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those who had come back before: two crowds become one."""
    monkeypatch.setattr(writer_module, "RETURN", NEVER)
    monkeypatch.setattr(gathering, "LONGEST", PATIENCE)
    later: list[Future[Any]] = []
    rounds.meanwhile = [lambda: later.extend(rounds.submit(2))]
    first = rounds.begin(3)
    assert results(first) == 3
    until(lambda: rounds.writer._gathering._enough == 5)
    later += rounds.submit(2)
    assert not any(future.done() for future in later)
    later += rounds.submit(1)
    assert results(later) == 5
    assert rounds.sizes == [3, 5]


def test_what_is_no_submission_does_not_wait_for_any(
    rounds: Rounds, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETURN", NEVER)
    monkeypatch.setattr(writer_module, "SHARED_COMMIT", 1)
    monkeypatch.setattr(gathering, "LONGEST", PATIENCE)
    with store.transaction():
        (submission,) = rounds.submit(1)
        others = [queued(rounds.writer, store.pause_queue("mail")) for _ in range(2)]
    for future in [submission, *others]:
        future.result(PATIENCE / 2)


class Stranded:
    """Threads that wait for what is stored with somebody's who is interrupted before he could wake
    the next."""

    def __init__(self, store: SqliteStore, writer: Writer, number: int) -> None:
        writer.hand_in(store.enqueue([draft()]), Blocked())
        self.threads = [
            threading.Thread(target=store.run, args=(store.enqueue([draft()]),), daemon=True)
            for _ in range(number)
        ]
        for thread in self.threads:
            thread.start()
        until(lambda: len(writer._queue) == number + 1)

    def all_went_on(self) -> bool:
        for thread in self.threads:
            thread.join(PATIENCE)
        return not any(thread.is_alive() for thread in self.threads)


def test_who_is_stranded_does_not_wait_for_the_next_commit(
    rounds: Rounds, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETURN", NEVER)
    monkeypatch.setattr(gathering, "LONGEST", PATIENCE)
    monkeypatch.setattr(awaiting, "LONG", 0.0)
    went_on: list[bool] = []

    def committing() -> bool:
        went_on.append(stranded.all_went_on())
        return False

    with store.transaction():
        stranded = Stranded(store, rounds.writer, 3)
    until(lambda: rounds.writer._gathering._enough == 4)
    connection = rounds.writer._transactions.connection
    assert connection is not None
    connection.set_commit_hook(committing)
    assert results(rounds.submit(4)) == 4
    assert went_on == [True]


def test_who_is_stranded_goes_on_when_the_store_is_closed(rounds: Rounds) -> None:
    with rounds.store.transaction():
        stranded = Stranded(rounds.store, rounds.writer, 5)
    rounds.store.close()
    assert stranded.all_went_on()


def test_a_fork_waits_for_nobody_who_was_not_told(rounds: Rounds, store: SqliteStore) -> None:
    later: list[Future[Any]] = []

    def also() -> None:
        later.extend(rounds.submit(2))
        with rounds.writer._filled:
            rounds.writer._suspending = True

    rounds.meanwhile = [also]
    first = rounds.begin(2)
    try:
        assert results(first) == 2
        assert not any(future.done() for future in later)
    finally:
        rounds.writer.resume()
    assert results(later) == 2
