"""Durable steps in workers: async, in threads, in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import duly
from duly import App, JobFailed, ManualClock, State, StepFailed, StoreUnavailable
from duly.policy.verdict import REASON_GAVE_UP
from duly.runtime.steps.port import StorePort
from tests.runtime.conftest import MakeFleet


@pytest.fixture
def clock() -> ManualClock:
    """The time of the app below."""
    return ManualClock()


@pytest.fixture
def app(url: str, clock: ManualClock) -> Iterator[App]:
    """An app in virtual time."""
    app = App(url, lease=60, clock=clock)
    app.migrate()
    yield app
    app.close()


class Effects:
    """What was done outside, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, what: Any) -> Any:
        self.seen.append(what)
        return what


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_a_recorded_step_is_not_run_again(app: App, kind: str, clock: ManualClock) -> None:
    effect = Effects()

    @app.task(retries=2, backoff=60, jitter=False)
    async def async_work() -> str:
        ctx = duly.current()
        first = await ctx.step("first", effect, "a")
        second = await ctx.step("second", effect, "b")
        if len(effect.seen) < 3:
            effect("fail")
            raise ValueError
        return f"{first}{second}"

    @app.task(retries=2, backoff=60, jitter=False)
    def blocking_work() -> str:
        ctx = duly.current_blocking()
        first = ctx.step("first", effect, "a")
        second = ctx.step("second", effect, "b")
        if len(effect.seen) < 3:
            effect("fail")
            raise ValueError
        return f"{first}{second}"

    job = (async_work if kind == "async" else blocking_work).enqueue()
    app.run_until_idle()
    clock.advance(timedelta(seconds=61))
    app.run_until_idle()
    assert job.result(timeout=5) == "ab"
    assert effect.seen == ["a", "b", "fail"]
    assert [step.name for step in app.steps(job.id)] == ["first", "second"]


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_sleeping_for_days(app: App, kind: str, clock: ManualClock) -> None:
    effect = Effects()

    @app.task
    async def async_drip(to: str) -> int:
        ctx = duly.current()
        for day in range(3):
            await ctx.step("send", effect, (to, day))
            await ctx.sleep("3d")
        return len(effect.seen)

    @app.task
    def blocking_drip(to: str) -> int:
        ctx = duly.current_blocking()
        for day in range(3):
            ctx.step("send", effect, (to, day))
            ctx.sleep("3d")
        return len(effect.seen)

    job = (async_drip if kind == "async" else blocking_drip).enqueue("ada")
    for day in range(3):
        assert app.run_until_idle() == 1
        assert effect.seen == [("ada", each) for each in range(day + 1)]
        assert job.refresh().state is State.WAITING
        assert app.run_until_idle() == 0
        clock.advance(timedelta(days=3))
    app.run_until_idle()
    assert job.result(timeout=5) == 3
    assert [attempt.number for attempt in job.attempts()] == [1]


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_what_sleepers_have_recorded_is_read_for_all_of_them_at_once(
    app: App, kind: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands may wake at one moment: a question for each would take most of their time."""

    @app.task(name="async")
    async def async_work() -> None:
        await duly.current().sleep("1d")

    @app.task(name="blocking")
    def blocking_work() -> None:
        duly.current_blocking().sleep("1d")

    jobs = [app.enqueue(kind) for _ in range(20)]
    app.run_until_idle()
    readings: list[int] = []
    reading = app.store.steps_of

    def counted(job_ids: Sequence[UUID], *args: Any) -> Any:
        readings.append(len(job_ids))
        return reading(job_ids, *args)

    def refused(*args: Any) -> Any:
        raise AssertionError("read one by one")

    monkeypatch.setattr(app.store, "steps_of", counted, raising=False)
    monkeypatch.setattr(app.store, "steps", refused, raising=False)
    clock.advance(timedelta(days=1))
    app.run_until_idle(workers=20)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert sum(readings) == 20
    assert len(readings) < 20


def test_an_event_in_either_order_and_a_timeout(app: App, clock: ManualClock) -> None:
    @app.task
    async def wait(key: str) -> Any:
        ctx = duly.current()
        try:
            event = await ctx.wait_for("order.paid", key=key, timeout="1h")
        except duly.WaitTimeout:
            return "late"
        return event.payload

    app.emit("order.paid", {"amount": 1}, key="early")
    jobs = [wait.enqueue(key) for key in ("early", "waited", "never")]
    app.run_until_idle()
    assert app.emit("order.paid", {"amount": 2}, key="waited").woken == 1
    app.run_until_idle()
    clock.advance(timedelta(hours=2))
    app.run_until_idle()
    app.emit("order.paid", {"amount": 3}, key="never")
    results = [job.result(timeout=5) for job in jobs]
    assert results == [{"amount": 1}, {"amount": 2}, "late"]


def test_two_waits_get_two_events(app: App) -> None:
    @app.task
    async def two() -> list[Any]:
        ctx = duly.current()
        first = await ctx.wait_for("n")
        second = await ctx.wait_for("n")
        return [first.payload, second.payload]

    job = two.enqueue()
    for number in range(2):
        app.run_until_idle()
        app.emit("n", number)
    app.run_until_idle()
    assert job.result(timeout=5) == [0, 1]


def test_a_signal_is_for_one_job(app: App) -> None:
    @app.task
    def wait() -> Any:
        return duly.current_blocking().wait_for("go").payload

    one, other = wait.enqueue(), wait.enqueue()
    app.run_until_idle()
    app.emit("go", 7, job=one.id)
    app.run_until_idle()
    assert one.result(timeout=5) == 7
    assert other.refresh().state is State.WAITING


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_a_child_s_result_and_its_failure(app: App, kind: str) -> None:
    @app.task(retries=0)
    def half(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number // 2

    @app.task(retries=0)
    async def async_parent(number: int) -> int:
        return await duly.current().spawn(half, number) + 100

    @app.task(retries=0)
    def blocking_parent(number: int) -> int:
        return duly.current_blocking().spawn(half, number) + 100

    parent = async_parent if kind == "async" else blocking_parent
    good, bad = parent.enqueue(4), parent.enqueue(5)
    app.run_until_idle()
    assert good.result(timeout=5) == 102
    with pytest.raises(JobFailed, match="odd"):
        bad.result(timeout=5)
    assert len(app.list(task="half")) == 2


def test_gathered_steps_are_all_recorded_before_it_waits(app: App, clock: ManualClock) -> None:
    effect = Effects()

    async def slow(number: int) -> int:
        await asyncio.sleep(0.05)
        effect(number)
        return number

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def gathered() -> list[int]:
        ctx = duly.current()

        async def nap() -> int:
            await ctx.sleep("1h")
            return -1

        return await asyncio.gather(
            nap(),
            *(ctx.step("slow", slow, number) for number in range(3)),
            *(ctx.spawn(double, number) for number in range(3)),
        )

    job = gathered.enqueue()
    app.run_until_idle()
    assert sorted(effect.seen) == [0, 1, 2]
    clock.advance(timedelta(hours=1))
    app.run_until_idle()
    assert job.result(timeout=5) == [-1, 0, 1, 2, 0, 2, 4]
    assert sorted(effect.seen) == [0, 1, 2]


def test_a_task_group_may_wait_too(app: App, clock: ManualClock) -> None:
    async def _nap(ctx: duly.JobContext) -> None:
        await ctx.sleep("1h")

    @app.task
    async def in_group() -> str:
        ctx = duly.current()
        async with asyncio.TaskGroup() as group:
            group.create_task(_nap(ctx))
        return "awake"

    job = in_group.enqueue()
    app.run_until_idle()
    assert job.refresh().state is State.WAITING
    clock.advance(timedelta(hours=1))
    app.run_until_idle()
    assert job.result(timeout=5) == "awake"


def test_a_step_s_own_retries_and_its_failure(app: App, clock: ManualClock) -> None:
    tries = Effects()

    def flaky(until: int) -> str:
        tries(until)
        if tries.seen.count(until) < until:
            raise OSError("busy")
        return "done"

    @app.task(retries=0)
    async def work() -> list[str]:
        ctx = duly.current()
        good = await ctx.using(retries=3, backoff="1h").step("flaky", flaky, 3)
        try:
            await ctx.using(retries=1, backoff=0.01).step("hopeless", flaky, 99)
        except StepFailed as failed:
            await ctx.sleep("1d")
            return [good, failed.type, failed.message]
        return []

    job = work.enqueue()
    for _ in range(6):
        app.run_until_idle()
        clock.advance(timedelta(days=2))
    assert job.result(timeout=5) == ["done", "OSError", "busy"]
    assert (tries.seen.count(3), tries.seen.count(99)) == (3, 2)


def test_a_step_s_time_limit(app: App) -> None:
    @app.task(retries=0)
    async def slow_async() -> str:
        try:
            await duly.current().using(timeout=0.1).step("slow", asyncio.sleep, 30)
        except StepFailed as failed:
            return failed.type
        return ""

    @app.task(retries=0)
    def slow_blocking() -> str:
        try:
            duly.current_blocking().using(timeout=0.1).step("spin", spin)
        except StepFailed as failed:
            return failed.type
        return ""

    def spin() -> None:
        for _ in range(10_000):
            time.sleep(0.01)

    jobs = [slow_async.enqueue(), slow_blocking.enqueue()]
    app.run_until_idle()
    assert [job.result(timeout=5) for job in jobs] == ["StepTimeLimit", "StepTimeLimit"]


def test_values_are_recorded(app: App, clock: ManualClock) -> None:
    seen = Effects()

    @app.task
    async def work() -> None:
        ctx = duly.current()
        seen((await ctx.now(), await ctx.random(), await ctx.random(), await ctx.uuid()))
        await ctx.sleep(60)

    work.enqueue()
    app.run_until_idle()
    clock.advance(timedelta(minutes=2))
    app.run_until_idle()
    first, second = seen.seen
    assert first == second
    assert first[0] == datetime(2030, 1, 1, tzinfo=UTC)
    assert first[1] != first[2]


def test_idempotency_keys_are_stable_and_differ(app: App) -> None:
    keys = Effects()

    def note(number: int) -> None:
        keys(duly.current().idempotency_key)

    @app.task(retries=1, backoff=0)
    def work() -> None:
        ctx = duly.current_blocking()
        for number in range(2):
            ctx.using(key=number).step("note", note, number)
        if ctx.attempt == 1:
            ctx.step("again", note, 2)
            raise ValueError
        assert ctx.idempotency_key == str(ctx.id)

    job = work.enqueue()
    app.run_until_idle()
    assert keys.seen[:2] == [f"{job.id}:note:0", f"{job.id}:note:1"]
    assert len(set(keys.seen)) == 3


def test_a_result_that_is_too_large_is_refused(url: str, clock: ManualClock) -> None:
    app = App(url, payload_limit=1000, clock=clock)
    app.migrate()

    @app.task(retries=0)
    def work() -> str:
        try:
            duly.current_blocking().step("big", lambda: "x" * 2000)
        except StepFailed as failed:
            return f"{failed.type}: {failed.message}"
        return ""

    job = work.enqueue()
    app.run_until_idle()
    assert "the result of step 'big' would take 2,002 bytes" in job.result(timeout=5)
    app.close()


def test_a_transactional_step_commits_with_its_record(app: App) -> None:
    with app.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry TEXT)")

    def book(entry: str) -> str:
        duly.current().connection.execute(f"INSERT INTO ledger VALUES ('{entry}')")
        if entry == "bad":
            raise ValueError("no")
        return entry

    @app.task(retries=0)
    async def work() -> None:
        ctx = duly.current()
        await ctx.using(transactional=True).step("good", book, "good")
        await ctx.using(transactional=True).step("bad", book, "bad")

    @app.task(retries=0)
    def blocking() -> None:
        duly.current_blocking().using(transactional=True).step("sync", book, "sync")

    work.enqueue()
    blocking.enqueue()
    app.run_until_idle()
    with app.transaction() as connection:
        rows = list(connection.execute("SELECT entry FROM ledger"))
    assert sorted(row[0] for row in rows) == ["good", "sync"]


def _ledger(app: App) -> list[str]:
    with app.transaction() as connection:
        return sorted(row[0] for row in connection.execute("SELECT entry FROM ledger"))


def test_a_transactional_step_that_took_too_long_is_rolled_back(app: App) -> None:
    """Its thread cannot be stopped, and comes to its end beside the next try."""
    with app.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry TEXT)")
    given_up = threading.Event()
    tries = Effects()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            given_up.set()

    def book() -> None:
        tries("book")
        if len(tries.seen) == 1:
            given_up.wait(60)
        duly.current().connection.execute("INSERT INTO ledger VALUES ('booked')")

    @app.task(retries=0)
    async def work() -> None:
        steps = duly.current().using(transactional=True, timeout=1, retries=20, backoff=0)
        await steps.step("book", book)

    job = work.enqueue()
    listener = Listener(logging.WARNING)
    logging.getLogger("duly.steps").addHandler(listener)
    try:
        app.run_until_idle()
    finally:
        logging.getLogger("duly.steps").removeHandler(listener)
    job.result(timeout=30)
    assert len(tries.seen) > 1
    assert _ledger(app) == ["booked"]


@pytest.mark.parametrize("retries", [0, 3])
def test_a_transactional_step_whose_commit_was_not_answered_is_done(
    app: App, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry TEXT)")
    committing = StorePort.transaction

    @contextmanager
    def without_an_answer(port: StorePort) -> Iterator[Any]:
        with committing(port) as given:
            yield given
        raise StoreUnavailable("the connection broke off")

    def book() -> str:
        duly.current().connection.execute("INSERT INTO ledger VALUES ('booked')")
        return "booked"

    @app.task(retries=0)
    def work() -> str:
        steps = duly.current_blocking().using(transactional=True, retries=retries, backoff=0)
        return steps.step("book", book)

    monkeypatch.setattr(StorePort, "transaction", without_an_answer)
    job = work.enqueue()
    app.run_until_idle()
    assert job.result(timeout=5) == "booked"
    assert _ledger(app) == ["booked"]


def test_a_transactional_step_is_blocking(app: App) -> None:
    async def book() -> None: ...

    @app.task(retries=0)
    async def work() -> None:
        await duly.current().using(transactional=True).step("book", book)

    job = work.enqueue()
    app.run_until_idle()
    with pytest.raises(JobFailed, match="its function must be a blocking one"):
        job.result(timeout=5)


def test_a_step_whose_result_cannot_be_stored_is_not_tried_again(app: App) -> None:
    """Its effect has happened: another try would have it again, for nothing."""
    effect = Effects()

    def charge() -> object:
        effect("charge")
        return object()

    @app.task(retries=5, backoff=0)
    def work() -> None:
        duly.current_blocking().using(retries=5, backoff=0).step("charge", charge)

    job = work.enqueue()
    app.run_until_idle()
    with pytest.raises(JobFailed, match="cannot be stored as JSON"):
        job.result(timeout=5)
    assert job.refresh().record.reason == REASON_GAVE_UP
    assert effect.seen == ["charge"]


def test_a_step_may_be_any_callable(app: App) -> None:
    @dataclass
    class Unhashable:
        number: int

        def __call__(self) -> int:
            return self.number

    @app.task(retries=0)
    def work() -> int:
        return duly.current_blocking().step("call", Unhashable(7))

    job = work.enqueue()
    app.run_until_idle()
    assert job.result(timeout=5) == 7


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_a_step_has_no_steps_of_its_own(app: App, kind: str) -> None:
    """It would wait for itself to rest."""

    async def async_inner() -> None:
        await duly.current().sleep(60)

    def blocking_inner() -> None:
        duly.current_blocking().sleep(60)

    @app.task(retries=0, name="async")
    async def async_work() -> None:
        await duly.current().step("outer", async_inner)

    @app.task(retries=0, name="blocking")
    def blocking_work() -> None:
        duly.current_blocking().step("outer", blocking_inner)

    job = app.enqueue(kind)
    app.run_until_idle(timeout=60)
    with pytest.raises(JobFailed, match="has no steps, sleeps or waits of its own"):
        job.result(timeout=5)


def test_a_sleep_until_a_moment_that_is_another_each_time_is_refused(
    app: App, clock: ManualClock
) -> None:
    """The job would begin a new sleep whenever it wakes, for ever."""

    @app.task(retries=0)
    async def endless() -> None:
        await duly.current().sleep_until(clock.now() + timedelta(days=1))

    @app.task(retries=0)
    async def recorded() -> str:
        ctx = duly.current()
        await ctx.sleep_until(await ctx.now() + timedelta(days=1))
        await ctx.sleep_until(await ctx.now() + timedelta(days=1))
        await ctx.sleep("1d")
        await asyncio.gather(ctx.sleep("1h"), ctx.sleep("2h"), ctx.sleep("3h"))
        return "awake"

    jobs = [endless.enqueue(), recorded.enqueue()]
    for _ in range(6):
        app.run_until_idle()
        clock.advance(timedelta(days=1, seconds=1))
    with pytest.raises(JobFailed, match="would sleep for ever"):
        jobs[0].result(timeout=5)
    assert jobs[1].result(timeout=5) == "awake"


def test_what_is_started_is_a_task(app: App) -> None:
    @app.task(retries=0)
    def work(how: str) -> None:
        ctx: Any = duly.current_blocking()
        (ctx.spawn if how == "spawn" else ctx.on_failure)(work.job("spawn"))

    for how in ("spawn", "on_failure"):
        job = work.enqueue(how)
        app.run_until_idle()
        with pytest.raises(JobFailed, match=rf"as in ctx\.{how}\(.*, 7\); got Prepared"):
            job.result(timeout=5)


def test_a_transactional_task_has_no_steps(app: App) -> None:
    @app.task(retries=0, transactional=True)
    def work() -> None:
        duly.current_blocking().step("one", int)

    job = work.enqueue()
    app.run_until_idle()
    with pytest.raises(JobFailed, match="make its steps transactional"):
        job.result(timeout=5)


def test_steps_added_and_moved_between_deploys(app: App, clock: ManualClock) -> None:
    effect = Effects()
    version = Effects()
    version(1)

    @app.task
    def work() -> str:
        ctx = duly.current_blocking()
        if len(version.seen) == 1:
            ctx.step("a", effect, "a")
            ctx.step("b", effect, "b")
        else:
            ctx.step("b", effect, "b")
            ctx.step("new", effect, "new")
            ctx.step("a", effect, "a")
        ctx.sleep("1h")
        return "".join(effect.seen)

    job = work.enqueue()
    app.run_until_idle()
    version(2)
    clock.advance(timedelta(hours=1))
    app.run_until_idle()
    assert job.result(timeout=5) == "abnew"


def test_a_changed_step_is_refused_and_a_removed_one_reported(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effects()
    version = Effects()
    version(1)

    @app.task(retries=0)
    def changed() -> None:
        ctx = duly.current_blocking()
        ctx.step("charge", effect, 100 * len(version.seen))
        ctx.sleep("1h")

    @app.task(retries=0)
    def removed() -> None:
        ctx = duly.current_blocking()
        if len(version.seen) == 1:
            ctx.step("reserve", effect, "reserve")
        ctx.sleep("1h")

    jobs = [changed.enqueue(), removed.enqueue()]
    app.run_until_idle()
    version(2)
    clock.advance(timedelta(hours=1))
    with caplog.at_level(logging.WARNING, "duly.steps"):
        app.run_until_idle()
    with pytest.raises(JobFailed, match="recorded with other arguments"):
        jobs[0].result(timeout=5)
    assert effect.seen == [100, "reserve"]
    assert jobs[1].refresh().state is State.SUCCEEDED
    assert "recorded steps were not reached by this run: reserve" in caplog.text


def test_a_result_of_another_type_than_it_was_is_refused(app: App, clock: ManualClock) -> None:
    old: Any = None

    def as_text() -> str:
        return "seven"

    def as_number() -> int:
        return 7

    @app.task(retries=0)
    async def work() -> str:
        ctx = duly.current()
        value = await ctx.step("count", old)
        await ctx.sleep("1d")
        return str(value)

    old = as_text
    job = work.enqueue()
    app.run_until_idle()
    old = as_number
    clock.advance(timedelta(days=2))
    app.run_until_idle()
    with pytest.raises(JobFailed, match="StepChanged: step 'count': what is recorded of it cannot"):
        job.result(timeout=5)


@pytest.mark.parametrize("keep", [True, False])
def test_a_replay_keeps_the_steps_or_forgets_them(app: App, keep: bool) -> None:
    effect = Effects()

    @app.task(retries=0)
    def work() -> None:
        duly.current_blocking().step("once", effect, "once")
        raise ValueError

    job = work.enqueue()
    app.run_until_idle()
    app.replay(job.id, keep_steps=keep)
    app.run_until_idle()
    assert effect.seen == ["once"] * (1 if keep else 2)


def test_a_replay_goes_on_where_the_job_died(app: App) -> None:
    effect = Effects()

    @app.task(retries=0)
    def work() -> str:
        ctx = duly.current_blocking()
        ctx.step("once", effect, "once")
        if len(effect.seen) < 2:
            effect("failed")
            raise ValueError
        return "done"

    job = work.enqueue()
    app.run_until_idle()
    app.replay(job.id)
    app.run_until_idle()
    assert job.result(timeout=5) == "done"
    assert effect.seen == ["once", "failed"]


def test_a_failed_step_is_run_again_when_its_job_is(app: App, clock: ManualClock) -> None:
    """Also in a replay, whose attempts are counted anew."""
    effect = Effects()
    mended: list[int] = []

    def charge(order: int) -> str:
        effect(order)
        if order not in mended:
            raise OSError("the bank is down")
        return f"receipt {order}"

    @app.task(retries=1, backoff=60, jitter=False)
    def pay(order: int) -> str:
        return duly.current_blocking().step("charge", charge, order)

    @app.task(retries=0)
    def hopeless() -> None:
        raise OSError("the shop is closed")

    @app.task(retries=0)
    def visit() -> None:
        duly.current_blocking().spawn(hopeless)

    job, visitor = pay.enqueue(1), visit.enqueue()
    with app.flow("payments") as payments:
        pay.job(2)
    flow = payments.submit()
    for _ in range(2):
        app.run_until_idle()
        clock.advance(timedelta(seconds=61))
    assert effect.seen.count(1) == effect.seen.count(2) == 2
    assert {each.refresh().state for each in (job, visitor)} == {State.DEAD}
    mended += [1, 2]
    app.replay(job.id)
    app.replay(visitor.id)
    flow.retry()
    app.run_until_idle()
    assert job.result(timeout=5) == "receipt 1"
    assert flow.refresh().state is duly.FlowState.SUCCEEDED
    assert effect.seen.count(1) == effect.seen.count(2) == 3
    assert len(app.list(task="hopeless")) == 2


def test_compensations_run_in_reverse_order(app: App) -> None:
    done = Effects()

    @app.task(retries=1, backoff=0)
    def undo(what: str) -> None:
        done(f"undo {what}")
        if what == "b" and done.seen.count("undo b") == 1:
            raise OSError

    @app.task(retries=0)
    async def saga() -> None:
        ctx = duly.current()
        for what in "abc":
            await ctx.on_failure(undo, what)
            await ctx.step(what, done, what)
        raise ValueError("no shipment")

    job = saga.enqueue()
    app.run_until_idle()
    with pytest.raises(JobFailed, match="no shipment"):
        job.result(timeout=5)
    assert done.seen == ["a", "b", "c", "undo c", "undo b", "undo b", "undo a"]
    assert job.refresh().record.undoing is State.DEAD


def test_compensations_of_a_cancelled_sleeper(app: App) -> None:
    done = Effects()

    @app.task
    def undo(what: str) -> None:
        done(f"undo {what}")

    @app.task(retries=0)
    def saga() -> None:
        ctx = duly.current_blocking()
        ctx.on_failure(undo, "stock")
        ctx.sleep("30d")

    job = saga.enqueue()
    app.run_until_idle()
    job.cancel("changed my mind")
    app.run_until_idle()
    assert done.seen == ["undo stock"]
    ended = job.refresh().record
    assert (ended.state, ended.reason) == (State.CANCELLED, "changed my mind")


def test_a_cancelled_job_s_children_are_jobs_of_their_own(app: App) -> None:
    @app.task
    def child() -> None:
        duly.current_blocking().sleep("1d")

    @app.task
    def parent() -> None:
        duly.current_blocking().spawn(child)

    job = parent.enqueue()
    app.run_until_idle()
    job.cancel()
    (started,) = [step.child_id for step in app.steps(job.id) if step.child_id]
    assert [job.refresh().state, app.get(started).state] == [State.CANCELLED, State.WAITING]
    app.cancel(started)
    assert app.get(started).state is State.CANCELLED


def test_success_undoes_nothing(app: App) -> None:
    done = Effects()

    @app.task
    def undo() -> None:
        done("undo")

    @app.task
    def saga() -> str:
        duly.current_blocking().on_failure(undo)
        return "fine"

    job = saga.enqueue()
    app.run_until_idle()
    assert job.result(timeout=5) == "fine"
    assert done.seen == []


ISOLATED = """
@app.task(isolate=True, retries=0)
def isolated(path: str) -> int:
    ctx = duly.current_blocking()
    for number in range(3):
        ctx.using(key=number).step("append", append, path, number)
    ctx.sleep(0.2)
    return len(open(path).read())

@app.task(isolate=True, retries=0)
async def isolated_async(path: str) -> int:
    ctx = duly.current()
    await asyncio.gather(*(ctx.step("append", append, path, number) for number in range(3)))
    await ctx.sleep(0.2)
    return len(open(path).read())

def append(path: str, number: int) -> None:
    with open(path, "a") as file:
        file.write(str(number))
"""


@pytest.mark.parametrize("task", ["isolated", "isolated_async"])
def test_in_a_process_of_its_own(fleet: MakeFleet, tmp_path: Path, task: str) -> None:
    tasks = fleet(ISOLATED)
    tasks.start()
    job = tasks.app.named(task, unchecked=True).enqueue(path=str(tmp_path / task))
    assert job.result(timeout=40) == 3
