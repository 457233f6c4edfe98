"""What became of a job: get, list, counts, cancel, replay, and waiting for results."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest

from duly import (
    App,
    Cancellation,
    Failure,
    InvalidArguments,
    InvalidOption,
    Job,
    JobCancelled,
    JobFailed,
    PayloadTooLarge,
    Replay,
    ResultTimeout,
    State,
    Status,
    UnknownJob,
)
from duly.client.bell import Bell
from duly.client.waiting import LINGER
from duly.store.operation import Operation
from tests.client.driving import Hand
from tests.support.stores import until


@dataclass
class Receipt:
    number: int
    at: datetime


ISSUED = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


# Get, list, counts


def test_an_unknown_job_is_said_to_be_unknown(app: App) -> None:
    missing = uuid4()
    with pytest.raises(UnknownJob) as caught:
        app.get(missing)
    assert caught.value.job_id == missing
    assert str(missing) in str(caught.value)
    with pytest.raises(UnknownJob):
        asyncio.run(app.aget(str(missing)))
    for wrong in ("42", "", None, 7):
        with pytest.raises(InvalidOption, match="job id"):
            app.get(wrong)  # type: ignore[arg-type]
    assert app.cancel(missing) is Cancellation.UNKNOWN
    assert app.replay(missing) is Replay.UNKNOWN
    with pytest.raises(UnknownJob):
        app.replay(missing, {"value": 1})


def test_the_jobs_of_a_schedule(app: App) -> None:
    @app.task
    def one() -> None: ...

    app.schedules.add("nightly", one, "0 3 * * *")
    one.enqueue()
    assert app.list(schedule="nightly") == []
    triggered = app.schedules.trigger("nightly")
    assert [job.id for job in app.list(schedule="nightly")] == [triggered.id]


def test_list_filters_by_everything(app: App) -> None:
    @app.task
    def one(value: int) -> None: ...

    @app.task(queue="mail")
    def two() -> None: ...

    first = one.using(key="k", owner="billing", tenant="acme", tags=["a", "b"]).enqueue(1)
    second = one.using(tags=["b"], tenant="other").enqueue(2)
    third = two.enqueue()
    third.cancel()

    def ids(**conditions: Any) -> list[UUID]:
        return [job.id for job in app.list(**conditions)]

    assert ids() == [third.id, second.id, first.id]
    assert ids(task="one") == [second.id, first.id]
    assert ids(queue="mail") == [third.id]
    assert ids(state="cancelled") == [third.id]
    assert ids(state=[State.PENDING, "dead"]) == [second.id, first.id]
    assert ids(state=[]) == []
    assert ids(key="k") == [first.id]
    assert ids(owner="billing") == [first.id]
    assert ids(tenant="other") == [second.id]
    assert ids(tags=["b"]) == [second.id, first.id]
    assert ids(tags=["b", "a"]) == [first.id]
    assert ids(task="one", tenant="acme") == [first.id]
    assert ids(task="one", queue="mail") == []
    assert ids(created_from=second.record.created_at) == [third.id, second.id]
    assert ids(created_before=second.record.created_at) == [first.id]
    assert ids(created_from=datetime.now(UTC) + timedelta(hours=1)) == []
    assert ids(limit=2) == [third.id, second.id]
    assert ids(limit=2, before=second.id) == [first.id]
    assert ids(limit=2, before=str(first.id)) == []
    for conditions, option in (
        ({"state": "ready"}, "state"),
        ({"state": 5}, "state"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"queue": "a b"}, "queue"),
        ({"owner": "a\0b"}, "owner"),
        ({"before": "x"}, "job id"),
        ({"tags": "b"}, "tags"),
    ):
        with pytest.raises(InvalidOption) as caught:
            ids(**conditions)
        assert caught.value.option == option


def test_counts_tell_each_queue_and_state(app: App) -> None:
    @app.task
    def work() -> None: ...

    jobs = [work.enqueue() for _ in range(3)]
    work.using(queue="mail").enqueue()
    jobs[0].cancel()
    Hand(app).succeed(jobs[1])
    assert {(each.queue, each.state): each.jobs for each in app.counts()} == {
        ("default", State.PENDING): 1,
        ("default", State.CANCELLED): 1,
        ("default", State.SUCCEEDED): 1,
        ("mail", State.PENDING): 1,
    }
    assert asyncio.run(app.acounts()) == app.counts()


# Cancel and replay


def test_cancel_at_once_or_by_request(app: App) -> None:
    @app.task
    def work() -> None: ...

    waiting = work.using(delay=60).enqueue()
    assert waiting.cancel("no longer needed") is Cancellation.CANCELLED
    assert waiting.refresh().state is State.CANCELLED
    assert waiting.record.reason == "no longer needed"
    assert waiting.cancel() is Cancellation.FINISHED
    assert app.cancel(str(waiting.id)) is Cancellation.FINISHED

    running = work.enqueue()
    Hand(app).claim("work")
    assert app.cancel(running.id) is Cancellation.REQUESTED
    assert running.refresh().state is State.RUNNING
    assert running.record.cancel_requested_at is not None


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "x" * 5000])
def test_a_reason_that_cannot_be_stored_is_refused(app: App, reason: str) -> None:
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    for cancel in (job.cancel, lambda reason: asyncio.run(app.acancel(job.id, reason))):
        with pytest.raises(InvalidOption, match="reason"):
            cancel(reason)
    assert job.refresh().state is State.PENDING


def test_replay_runs_a_dead_job_again(app: App) -> None:
    @app.task
    def work(value: int) -> int:
        return value

    hand = Hand(app)
    job = work.using(key="k").enqueue(1)
    assert app.replay(job.id) is Replay.NOT_DEAD
    hand.bury(job, Failure("ValueError", "bad"))
    assert job.refresh().state is State.DEAD

    assert app.replay(job.id, {"value": 2}) is Replay.REPLAYED
    record = job.refresh().record
    assert (record.state, record.generation, record.attempt) == (State.PENDING, 2, 0)
    assert record.arguments == '{"value":2}'
    hand.bury(job)

    other = work.using(key="k").enqueue(3)
    assert app.replay(job.id) is Replay.KEY_HELD
    other.cancel()
    assert asyncio.run(app.areplay(job.id, {"value": 4})) is Replay.REPLAYED
    hand.succeed(job, 4)
    assert job.result(timeout=10) == 4
    assert [attempt.generation for attempt in job.attempts()] == [1, 2, 3]


def test_replay_checks_new_arguments_like_a_submission(url: str) -> None:
    worker, other = App(url, payload_limit=1000), App(url, payload_limit=1000)
    asyncio.run(worker.amigrate())

    @worker.task
    def work(value: int, text: str = "") -> None: ...

    try:
        asyncio.run(worker.apublish())
        job = work.enqueue(1)
        Hand(worker).bury(job)
        for app in (worker, other):
            with pytest.raises(InvalidArguments, match="'value'"):
                app.replay(job.id, {"value": "x"})
            with pytest.raises(InvalidArguments, match="'extra'"):
                asyncio.run(app.areplay(job.id, {"value": 1, "extra": 1}))
            with pytest.raises(PayloadTooLarge):
                app.replay(job.id, {"value": 1, "text": "x" * 1000})
        assert job.refresh().state is State.DEAD
        assert other.replay(job.id, {"value": 5}) is Replay.REPLAYED
    finally:
        worker.close()
        other.close()


# Results


def both_ways(job: Job[object], timeout: float | str | None) -> list[Callable[[], object]]:
    """Ask for the result, blocking and asynchronously."""
    return [lambda: job.result(timeout), lambda: asyncio.run(job.aresult(timeout))]


def test_results_are_typed(app: App) -> None:
    @app.task
    def issue(number: int) -> Receipt:
        return Receipt(number, ISSUED)

    @app.task
    async def nothing() -> None: ...

    hand = Hand(app)
    job = issue.enqueue(7)
    hand.succeed(job, Receipt(7, ISSUED))
    assert job.result(timeout=10) == Receipt(7, ISSUED)
    assert job.state is State.SUCCEEDED
    assert asyncio.run(issue.enqueue(7).arefresh()).state is State.PENDING
    assert app.get(job.id).result(timeout="10s") == Receipt(7, ISSUED)
    assert asyncio.run(app.get(job.id).aresult(timeout=timedelta(seconds=10))) == Receipt(7, ISSUED)
    assert job.result(timeout=0) == Receipt(7, ISSUED)
    assert asyncio.run(job.aresult(timeout=0)) == Receipt(7, ISSUED)

    empty = nothing.enqueue()
    hand.succeed(empty)
    value: object = asyncio.run(empty.aresult(timeout=10))
    assert value is None

    stranger = App(app.config.url)
    try:
        assert stranger.get(job.id).result(timeout=10) == {
            "number": 7,
            "at": "2030-01-02T03:04:05Z",
        }
    finally:
        stranger.close()


def test_a_dead_job_raises_with_its_error(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.enqueue()
    Hand(app).bury(job, Failure("shop.OutOfStock", "no more", "Traceback ..."))
    for ask in both_ways(job, 10):
        with pytest.raises(JobFailed) as caught:
            ask()
        error = caught.value
        assert (error.job_id, error.reason) == (job.id, "out of attempts")
        assert (error.error_type, error.error_message) == ("shop.OutOfStock", "no more")
        assert error.traceback == "Traceback ..."
        assert "shop.OutOfStock: no more" in str(error)


def test_a_cancelled_job_raises(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.enqueue()
    job.cancel("not today")
    for ask in both_ways(job, None):
        with pytest.raises(JobCancelled, match="not today") as caught:
            ask()
        assert caught.value.reason == "not today"


def test_a_result_that_takes_too_long(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.enqueue()
    for ask in (*both_ways(job, "200ms"), *both_ways(job, 0)):
        with pytest.raises(ResultTimeout, match="ready") as caught:
            ask()
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.job_id == job.id
    Hand(app).claim("work")
    with pytest.raises(ResultTimeout) as caught:
        job.result(timeout=0.3)
    assert caught.value.status == "running"
    assert job.status is Status.RUNNING
    with pytest.raises(InvalidOption):
        job.result(timeout=-1)


def test_the_result_of_a_vanished_job(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.enqueue()
    job.cancel()
    finished = datetime.now(UTC) + timedelta(minutes=1)
    assert app.store.run(app.store.purge(State.CANCELLED, finished, 10)) == 1
    for ask in both_ways(job, 10):
        with pytest.raises(UnknownJob):
            ask()


def test_a_waiting_thread_is_woken_by_the_end(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    hand = Hand(app)
    # The store is warm, and the watch is at rest: what is measured is the wake-up.
    jobs = [work.enqueue() for _ in range(5)]
    with ThreadPoolExecutor(1) as threads:
        for job in jobs:
            future = threads.submit(job.result, 20)
            with pytest.raises(ResultTimeout):
                job.result(timeout=0.6)
            hand.succeed(job, 5)
            settled = time.monotonic()
            assert future.result() == 5
            assert time.monotonic() - settled < 0.5


class Looks:
    """Counts how often a store is asked."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.looked = threading.Event()
        self._run = app.store.run
        monkeypatch.setattr(app.store, "run", self._counted)

    def _counted(self, operation: Operation[Any]) -> Any:
        self.number += 1
        answer = self._run(operation)
        self.looked.set()
        return answer


def test_waiting_does_not_poll_hot(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.enqueue()
    looks = Looks(app, monkeypatch)
    with pytest.raises(ResultTimeout):
        job.result(timeout=2)
    assert 1 <= looks.number <= 10


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "duly-waiting"]


def test_five_hundred_waiters_share_one_thread(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work(index: int) -> int:
        return index

    jobs = app.enqueue_many(work.job(index) for index in range(500))
    hand = Hand(app)
    looks = Looks(app, monkeypatch)

    async def go() -> list[int]:
        results = asyncio.gather(*[job.aresult(timeout=60) for job in jobs])
        await asyncio.to_thread(looks.looked.wait, 30)
        assert len(waiting_threads()) == 1
        await asyncio.to_thread(hand.succeed_all, "work", lambda arguments: arguments["index"])
        return await results

    assert asyncio.run(go()) == list(range(500))
    assert looks.number < 60


def test_a_late_waiter_does_not_wait_for_the_others_patience(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.client.waiting.FIRST_LOOK", 60.0)
    monkeypatch.setattr("duly.client.waiting.LONGEST_SILENCE", 60.0)

    @app.task
    def work() -> int:
        return 1

    finished, endless = work.enqueue(), work.using(delay=600).enqueue()
    Hand(app).succeed(finished, 3)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(endless.result, 60)
        with pytest.raises(ResultTimeout):
            endless.result(timeout=0.5)
        # The watch is at rest, and nothing will change.
        for _ in range(3):
            assert finished.result(timeout=20) == 3
        endless.cancel()
        with pytest.raises(JobCancelled):
            other.result()


def test_waits_one_after_another_share_one_watch(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work(index: int) -> int:
        return index

    jobs = app.enqueue_many(work.job(index) for index in range(20))
    Hand(app).succeed_all("work", lambda arguments: arguments["index"])
    watch = Mock(side_effect=app.store.watch)
    monkeypatch.setattr(app.store, "watch", watch)
    looks = Looks(app, monkeypatch)
    rests = Mock(side_effect=Bell.wait, autospec=True)
    monkeypatch.setattr(Bell, "wait", lambda *arguments: rests(*arguments))
    for index, job in enumerate(jobs):
        rests.reset_mock()
        assert job.result(timeout=20) == index
        until(lambda: [call for call in rests.mock_calls if call.args[1:] == (LINGER,)])
    assert watch.call_count == 1
    assert looks.number <= 25


def test_a_closed_app_leaves_no_thread_but_for_those_who_wait(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.client.waiting.LONGEST_END", 60.0)

    @app.task
    def work() -> int:
        return 1

    finished, endless = work.enqueue(), work.using(delay=600).enqueue()
    Hand(app).succeed(finished, 3)
    assert finished.result(timeout=20) == 3
    (lingering,) = waiting_threads()
    app.close()
    assert not lingering.is_alive()
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(endless.result, 30)
        until(waiting_threads)
        app.close()
        assert finished.result(timeout=20) == 3
        endless.cancel()
        with pytest.raises(JobCancelled):
            other.result()


def test_those_who_give_up_leave_nothing_behind(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.using(delay=600).enqueue()

    async def cancelled() -> None:
        waiting = asyncio.ensure_future(job.aresult())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    with pytest.raises(ResultTimeout):
        job.result(timeout=0.1)
    deadline = time.monotonic() + 10
    while waiting_threads() and time.monotonic() < deadline:
        for thread in waiting_threads():
            thread.join(1)
    assert waiting_threads() == []


def test_waiters_are_told_when_the_store_cannot_be_used(postgres_url: str) -> None:
    app, unmigrated = App(postgres_url), App(postgres_url, schema="elsewhere")
    app.migrate()
    try:
        job = app.named("work", unchecked=True).enqueue()
        lost = unmigrated.client.job(job.record)
        with pytest.raises(Exception, match="duly db migrate"):
            lost.result(timeout=20)
        with pytest.raises(Exception, match="duly db migrate"):
            asyncio.run(lost.aresult(timeout=20))
    finally:
        app.close()
        unmigrated.close()


def test_a_job_explains_itself(app: App) -> None:
    @app.task
    def explained() -> None: ...

    job = explained.enqueue()
    assert job.explain().cause == "no_worker"
    job.cancel("not wanted")
    assert "not wanted" in asyncio.run(job.aexplain()).sentence
