"""Submission: every option, every kind of refusal, and what is stored in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID, uuid4

import msgspec
import pytest

import duly
from duly import (
    App,
    InvalidArguments,
    InvalidInput,
    InvalidOption,
    InvalidPayload,
    Job,
    KeyConflict,
    PayloadTooLarge,
    SchemaBehind,
    State,
    Status,
    UnknownTask,
)
from duly.client import jobs as jobs_module
from duly.client.client import BATCH
from tests.client.driving import Hand

TOMORROW = datetime(2099, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    street: str
    floors: list[int]


class Order(TypedDict):
    sku: str
    amount: Decimal


class Parcel(msgspec.Struct):
    weight: float
    to: Address


def count(app: App) -> int:
    return sum(each.jobs for each in app.counts())


# One job


def test_a_job_is_stored_as_it_was_returned(app: App) -> None:
    @app.task
    def add(first: int, second: int = 2) -> int:
        return first + second

    job = add.enqueue(1)

    assert job.created
    assert job.task == "add"
    assert job.queue == "default"
    assert job.state is State.PENDING
    assert job.status is Status.READY
    assert job.record.arguments == '{"first":1}'
    assert job.record.max_attempts == 4
    assert job.record.run_at == job.record.created_at
    assert app.get(job.id).record == job.record
    assert add(1, 5) == 6


def test_the_async_side_does_the_same(app: App) -> None:
    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

    async def go() -> None:
        job = await add.aenqueue(1, second=2)
        assert (await app.aget(job.id)).record == job.record
        assert [each.id for each in await app.alist(task="add")] == [job.id]
        assert (await job.arefresh()).state is State.PENDING
        assert await job.aattempts() == []
        assert await job.acancel("not needed") is duly.Cancellation.CANCELLED
        assert (await app.aget(str(job.id))).state is State.CANCELLED
        many = await app.aenqueue_many([add.job(index, 0) for index in range(3)])
        assert [each.record.arguments for each in many] == [
            f'{{"first":{index},"second":0}}' for index in range(3)
        ]
        assert await app.acancel(many[0].id) is duly.Cancellation.CANCELLED
        assert await app.areplay(many[1].id) is duly.Replay.NOT_DEAD
        assert await add(3, 4) == 7

    asyncio.run(go())


def test_every_option_of_using_reaches_the_store(app: App) -> None:
    @app.task(queue="slow", priority=duly.LOW, retries=1, timeout="5m", expires="1h", tags=["a"])
    def work(value: int) -> None: ...

    plain = work.enqueue(1)
    assert plain.record.queue == "slow"
    assert plain.record.priority == 1
    assert plain.record.max_attempts == 2
    assert plain.record.timeout == 300
    assert plain.record.tags == ("a",)
    assert plain.record.expires_at == plain.record.created_at + timedelta(hours=1)

    job = work.using(
        run_at=TOMORROW,
        priority=duly.URGENT,
        queue="mail",
        key="welcome:42",
        key_policy="reject",
        key_window="10m",
        retries=7,
        timeout=timedelta(seconds=1.5),
        expires=TOMORROW + timedelta(days=1),
        tags=["x", "y", "x"],
        tenant="acme",
        owner="billing",
        metadata={"source": "import", "line": 7, "nested": {"ok": [True, None]}},
    ).enqueue(2)
    record = app.get(job.id).record
    assert record == job.record
    assert record.run_at == TOMORROW
    assert record.priority == 20
    assert record.queue == "mail"
    assert record.key == "welcome:42"
    assert record.key_window == 600
    assert record.max_attempts == 8
    assert record.timeout == 1.5
    assert record.expires_at == TOMORROW + timedelta(days=1)
    assert record.tags == ("x", "y")
    assert record.tenant == "acme"
    assert record.owner == "billing"
    assert record.metadata is not None
    assert msgspec.json.decode(record.metadata) == {
        "source": "import",
        "line": 7,
        "nested": {"ok": [True, None]},
    }
    assert job.status is Status.SCHEDULED
    assert work.using(tags=[]).enqueue(3).record.tags == ()


def test_options_lie_over_one_another_and_leave_the_task_alone(app: App) -> None:
    @app.task
    def work(value: int) -> None: ...

    urgent = work.using(priority=duly.URGENT, delay=60)
    both = urgent.using(run_at=TOMORROW, queue="mail").enqueue(1).record
    assert (both.priority, both.queue, both.run_at) == (20, "mail", TOMORROW)
    assert work.enqueue(1).record.priority == duly.NORMAL
    again = urgent.using(run_at=TOMORROW).using(delay="2h").enqueue(1).record
    assert again.run_at == again.created_at + timedelta(hours=2)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(1.5, 1.5), (90, 90), ("90s", 90), ("24h", 86400), ("PT1H30M", 5400), (0, 0)],
)
def test_a_delay_counts_from_the_stores_clock(app: App, delay: float | str, seconds: float) -> None:
    @app.task
    def work() -> None: ...

    record = work.using(delay=delay).enqueue().record
    assert record.run_at == record.created_at + timedelta(seconds=seconds)
    assert app.get(record.id).record == record


def test_another_zone_is_the_same_instant(app: App) -> None:
    @app.task
    def work() -> None: ...

    zone = timezone(timedelta(hours=5, minutes=30))
    record = work.using(run_at=TOMORROW.astimezone(zone)).enqueue().record
    assert record.run_at == TOMORROW
    assert record.run_at.tzinfo is UTC
    assert app.get(record.id).record.run_at == TOMORROW


def test_arguments_of_every_kind_come_back_as_they_went_in(app: App) -> None:
    @app.task
    def ship(
        parcel: Parcel,
        order: Order,
        when: datetime,
        day: date,
        colour: Colour,
        tag: UUID,
        raw: bytes,
        price: Decimal,
        wait: timedelta,
        choice: int | str | None,
        numbers: set[int],
        pair: tuple[int, str],
        *rest: int,
        flag: bool = False,
        **more: float,
    ) -> None: ...

    given: dict[str, Any] = {
        "parcel": Parcel(1.5, Address("Große Straße 1", [1, 2])),
        "order": {"sku": "x", "amount": Decimal("1.10")},
        "when": TOMORROW,
        "day": date(2026, 1, 31),
        "colour": Colour.BLUE,
        "tag": uuid4(),
        "raw": b"\x00\xff",
        "price": Decimal("12.50"),
        "wait": timedelta(seconds=90),
        "choice": None,
        "numbers": {1, 2},
        "pair": (1, "a"),
    }
    job = ship.enqueue(*given.values(), 7, 8, flag=True, extra=0.5)
    stored = app.get(job.id).record
    args, kwargs = ship.definition.arguments.decode(stored.arguments)
    assert args == (*given.values(), 7, 8)
    assert kwargs == {"flag": True, "extra": 0.5}


@pytest.mark.parametrize(
    "text",
    [
        "'; DROP TABLE jobs; --",
        "<script>alert(1)</script>",
        "\x1b[31mred\x1b[0m",
        "line\nline\r\n\ttab",
        "\u202eright to left",
        "../../etc/passwd",
        "🙂 Grüße 日本語",
        "%s %(name)s {0} $1 :name ?",
        "",
    ],
)
def test_odd_texts_are_stored_as_they_are(app: App, text: str) -> None:
    @app.task
    def work(text: str) -> None: ...

    labels = {"key": text, "owner": text, "tenant": text, "tags": [text]} if text else {}
    job = work.using(metadata={text: text}, **labels).enqueue(text)  # type: ignore[arg-type]
    record = app.get(job.id).record
    assert record == job.record
    assert msgspec.json.decode(record.arguments) == {"text": text}
    if text:
        assert [each.id for each in app.list(key=text, owner=text, tags=[text])] == [job.id]


# Refusals: nothing is stored


def refuse(app: App, submit: Callable[[], object], error: type[Exception], *words: str) -> None:
    """The submission raises the error with these words, and nothing is stored."""
    before = count(app)
    with pytest.raises(error) as caught:
        submit()
    for word in words:
        assert word in str(caught.value)
    assert count(app) == before


def test_wrong_arguments_are_refused_by_name(app: App) -> None:
    @app.task
    def send(to: str, times: int = 1, address: Address | None = None) -> None: ...

    call: Callable[..., object] = send.enqueue
    refuse(app, lambda: call(), InvalidArguments, "'send'", "'to'")
    refuse(app, lambda: call("a", times="3"), InvalidArguments, "'times'", "int")
    refuse(app, lambda: call("a", subject="x"), InvalidArguments, "'subject'")
    refuse(app, lambda: call("a", 1, None, 4), InvalidArguments, "send")
    refuse(app, lambda: call("a", to="b"), InvalidArguments, "'to'")
    refuse(app, lambda: call("a", times=True), InvalidArguments, "'times'")
    refuse(
        app,
        lambda: call("a", address=Address("x", ["1"])),  # type: ignore[list-item]
        InvalidArguments,
        "'address'",
        "floors[0]",
    )
    refuse(app, lambda: asyncio.run(send.aenqueue(5)), InvalidArguments, "'to'")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments) as caught:
        call("a", times="3")
    assert (caught.value.task, caught.value.argument) == ("send", "times")


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: list[tuple[object, str]] = [
    (float("nan"), "$.value"),
    (float("inf"), "$.value"),
    (-float("inf"), "$.value"),
    ({"a": [1, float("nan")]}, "$.value.a[1]"),
    (2**63, "$.value"),
    (-(2**63) - 1, "$.value"),
    ([0, 2**200], "$.value[1]"),
    ("a\0b", "$.value"),
    ({"a\0b": 1}, "$.value"),
    ("\ud800", "$.value"),
    ({"x": "\udfff"}, "$.value.x"),
    (deep(100), "$.value"),
    (deep(20_000), "$.value"),
]


@pytest.mark.parametrize(("value", "path"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_json_is_refused_with_its_path(app: App, value: object, path: str) -> None:
    @app.task
    def work(value: Any) -> None: ...

    before = count(app)
    for submit in (
        lambda: work.enqueue(value),
        lambda: app.enqueue("work", value=value),
        lambda: app.named("elsewhere", unchecked=True).enqueue(value=value),
        lambda: asyncio.run(work.aenqueue(value)),
    ):
        with pytest.raises(InvalidInput) as caught:
            submit()
        shown = str(caught.value)
        assert path.removeprefix("$.") in shown or "'value'" in shown
        assert len(shown) < 2000
    with pytest.raises(InvalidPayload) as refused:
        work.using(metadata={"value": value})
    assert refused.value.path.startswith("$.value")
    assert count(app) == before


def test_a_value_that_contains_itself_is_refused(app: App) -> None:
    @app.task
    def work(value: Any) -> None: ...

    loop: list[Any] = []
    loop.append(loop)
    refuse(app, lambda: work.enqueue(loop), InvalidInput, "contains itself")


def test_a_foreign_object_is_refused(app: App) -> None:
    @app.task
    def work(value: Any) -> None: ...

    refuse(app, lambda: work.enqueue(object()), InvalidInput, "object")
    refuse(app, lambda: work.enqueue({"a": {1, 2}}), InvalidInput, "'value'")


def test_payloads_over_the_limit_are_refused(url: str) -> None:
    app = App(url, payload_limit="4KiB")
    app.migrate()
    try:

        @app.task
        def work(text: str) -> None: ...

        fits = 4096 - len('{"text":""}')
        assert work.enqueue("x" * fits).created
        refuse(app, lambda: work.enqueue("x" * (fits + 1)), PayloadTooLarge, "4,097", "4,096")
        refuse(app, lambda: work.enqueue("ä" * fits), PayloadTooLarge, "payload_limit")
        big = work.using(metadata={"text": "ä" * 2100})
        refuse(app, lambda: big.enqueue("a"), PayloadTooLarge, "metadata")
        refuse(app, lambda: app.enqueue("work", text="x" * 5000), PayloadTooLarge)
        unchecked = app.named("other", unchecked=True)
        refuse(app, lambda: unchecked.enqueue(text="x" * 5000), PayloadTooLarge)
    finally:
        app.close()


def test_the_default_limit_is_one_mebibyte(app: App) -> None:
    @app.task
    def work(text: str) -> None: ...

    assert work.enqueue("x" * (1024 * 1024 - 20)).created
    refuse(app, lambda: work.enqueue("x" * 1024 * 1024), PayloadTooLarge, "1,048,576")


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the point of the tests


def test_naive_datetimes_are_refused_with_advice(app: App) -> None:
    @app.task
    def work(when: datetime | None = None, anything: Any = None) -> None: ...

    advice = "datetime.now(UTC)"
    refuse(app, lambda: work.using(run_at=NAIVE).enqueue(), InvalidOption, "run_at", advice)
    refuse(app, lambda: work.using(expires=NAIVE).enqueue(), InvalidOption, "expires", advice)
    refuse(app, lambda: work.enqueue(NAIVE), InvalidArguments, "'when'", advice)
    refuse(app, lambda: work.enqueue({"at": NAIVE}), InvalidArguments, "'when'")  # type: ignore[arg-type]
    refuse(app, lambda: app.enqueue("work", when=NAIVE), InvalidArguments, "'when'", advice)
    refuse(app, lambda: app.list(created_from=NAIVE), InvalidOption, "created_from", advice)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"delay": -1}, "negative"),
        ({"delay": "soon"}, "24h"),
        ({"delay": float("nan")}, "nan"),
        ({"delay": timedelta(days=999_999)}, "100 years"),
        ({"delay": 1, "run_at": TOMORROW}, "not both"),
        ({"run_at": "tomorrow"}, "2026-01-31T09:00:00Z"),
        ({"run_at": date(2026, 1, 1)}, "datetime"),
        ({"priority": 101}, "100"),
        ({"priority": -1}, "100"),
        ({"priority": 5.5}, "integer"),
        ({"priority": True}, "integer"),
        ({"priority": "highest"}, "urgent"),
        ({"queue": ""}, "mail"),
        ({"queue": "a b"}, "mail"),
        ({"queue": "x" * 129}, "128"),
        ({"queue": 7}, "name"),
        ({"key": ""}, "welcome:42"),
        ({"key": "a\0b"}, "NUL"),
        ({"key": "\ud800"}, "Unicode"),
        ({"key": "x" * 513}, "512"),
        ({"key": "x", "key_policy": "overwrite"}, "'replace'"),
        ({"key_policy": "reject"}, "need a key"),
        ({"key_window": 60}, "need a key"),
        ({"retries": -1}, "1000"),
        ({"retries": 1.5}, "integer"),
        ({"timeout": 0}, "zero"),
        ({"timeout": "later"}, "24h"),
        ({"expires": 0}, "zero"),
        ({"tags": "mail"}, "list"),
        ({"tags": [1]}, "text"),
        ({"tags": [f"t{index}" for index in range(33)]}, "32"),
        ({"tenant": ""}, "acme"),
        ({"owner": "x" * 256}, "255"),
        ({"metadata": [1, 2]}, "mapping"),
        ({"metadata": "text"}, "mapping"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_with_an_example(
    sqlite_app: App, options: dict[str, Any], word: str
) -> None:
    @sqlite_app.task
    def work() -> None: ...

    name = next(reversed(options)) if "run_at" not in options or len(options) == 1 else "delay"
    for task in (work, sqlite_app.named("work")):
        with pytest.raises(InvalidOption) as caught:
            task.using(**options)
        assert word in str(caught.value)
        if not name.startswith("key_") or "key" in options:
            assert caught.value.option == name
    assert count(sqlite_app) == 0


def test_an_unknown_option_is_refused(app: App) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(TypeError, match="dealy"):
        work.using(dealy=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"dealy.*delay, run_at"):
        app.named("work").using(dealy=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"colour.*queue, task"):
        app.list(colour="red")  # type: ignore[call-arg]


# Keys


def test_a_key_is_held_while_its_job_lives(app: App) -> None:
    @app.task
    def work(value: int) -> None: ...

    hand = Hand(app)
    first = work.using(key="k").enqueue(1)
    second = work.using(key="k", key_policy="return").enqueue(2)
    assert (first.created, second.created) == (True, False)
    assert second.id == first.id
    assert second.record.arguments == '{"value":1}'

    replaced = work.using(key="k", key_policy="replace", priority=duly.HIGH).enqueue(3)
    assert replaced.id == first.id
    assert not replaced.created
    assert app.get(first.id).record == replaced.record
    assert (replaced.record.arguments, replaced.record.priority) == ('{"value":3}', 10)

    reject = work.using(key="k", key_policy="reject")
    with pytest.raises(KeyConflict) as caught:
        reject.enqueue(4)
    assert (caught.value.key, caught.value.task, caught.value.holder) == ("k", "work", first.id)

    hand.succeed(first)
    fresh = reject.enqueue(5)
    assert fresh.created
    assert fresh.id != first.id
    assert count(app) == 2


def test_a_running_job_is_not_replaced(app: App) -> None:
    @app.task
    def work(value: int) -> None: ...

    first = work.using(key="k").enqueue(1)
    Hand(app).claim("work")
    later = work.using(key="k", key_policy="replace").enqueue(2)
    assert later.id == first.id
    assert (later.state, later.record.arguments) == (State.RUNNING, '{"value":1}')


def test_a_window_holds_the_key_after_the_end(app: App) -> None:
    @app.task
    def work(value: int) -> None: ...

    windowed = work.using(key="k", key_window="1h")
    first = windowed.enqueue(1)
    Hand(app).succeed(first)
    again = windowed.enqueue(2)
    assert (again.id, again.created, again.state) == (first.id, False, State.SUCCEEDED)


def test_keys_belong_to_their_task(app: App) -> None:
    @app.task
    def one() -> None: ...

    @app.task
    def two() -> None: ...

    assert one.using(key="k").enqueue().created
    assert two.using(key="k").enqueue().created


# Many jobs


def test_many_jobs_are_much_like_a_list(app: App) -> None:
    @app.task
    def work(index: int) -> None: ...

    jobs = app.enqueue_many(work.job(index) for index in range(3))
    first, second, third = jobs
    assert (jobs[0], jobs[-1]) == (first, third)
    assert jobs[0] is first
    assert jobs[1:] == [second, third]
    assert list(reversed(jobs)) == [third, second, first]
    assert jobs == [first, second, third]
    assert jobs != [first]
    assert second in jobs
    assert len(jobs) == 3
    assert repr(jobs) == "<3 jobs>"
    with pytest.raises(IndexError):
        jobs[3]
    others = app.enqueue_many([work.job(3)])
    assert jobs + others == [first, second, third, others[0]]
    collected = given = [first]
    collected += others
    assert collected is given
    assert given == [first, others[0]]
    app.cancel(first.id)
    first.refresh()
    assert jobs[0].state is State.CANCELLED


def test_who_is_late_to_make_one_of_many_gets_the_one_that_is_there(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def work() -> None: ...

    jobs = app.enqueue_many([work.job()])
    earlier: list[Job[Any]] = []

    def made_meanwhile(*given: Any) -> Job[Any]:
        monkeypatch.setattr(jobs_module, "Job", Job)
        earlier.append(jobs[0])
        return Job(*given)

    monkeypatch.setattr(jobs_module, "Job", made_meanwhile)
    assert jobs[0] is earlier[0]


def test_each_of_many_has_the_results_of_its_own_task(app: App) -> None:
    @app.task
    def count() -> int:
        return 1

    @app.task
    def tell() -> timedelta:
        return timedelta(seconds=1)

    jobs = app.enqueue_many([count.job(), tell.job()])
    app.run_until_idle()
    assert [job.result() for job in jobs] == [1, timedelta(seconds=1)]


def test_thousands_at_once_keep_their_order(app: App) -> None:
    @app.task
    def work(index: int) -> None: ...

    jobs = app.enqueue_many(work.job(index) for index in range(12_345))
    assert [msgspec.json.decode(job.record.arguments)["index"] for job in jobs] == list(
        range(12_345)
    )
    assert len({job.id for job in jobs}) == 12_345
    assert all(job.created for job in jobs)
    assert count(app) == 12_345
    assert app.get(jobs[12_000].id).record == jobs[12_000].record
    newest_first: list[UUID] = []
    before: UUID | None = None
    while page := app.list(limit=5000, before=before):
        newest_first += [job.id for job in page]
        before = page[-1].id
    assert newest_first == [job.id for job in reversed(jobs)]


def test_many_jobs_take_few_round_trips(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work(index: int) -> None: ...

    app.publish()
    producer = App(app.config.url)
    runs = 0
    run = producer.store.run

    def counted(operation: Any) -> Any:
        nonlocal runs
        runs += 1
        return run(operation)

    monkeypatch.setattr(producer.store, "run", counted)
    try:
        named = producer.named("work")
        producer.enqueue_many(named.job(index=index) for index in range(2 * BATCH))
        nobodys = producer.named("nobodys", unchecked=True)
        producer.enqueue_many(nobodys.job(index=index) for index in range(BATCH))
    finally:
        producer.close()
    assert runs <= 12
    assert count(app) == 3 * BATCH


def test_one_bad_job_stores_nothing_of_its_batch(app: App) -> None:
    @app.task
    def work(index: int) -> None: ...

    held = work.using(key="taken").enqueue(0)
    reject = work.using(key="taken", key_policy="reject")
    jobs = [work.job(index) for index in range(500)]
    with pytest.raises(KeyConflict) as caught:
        app.enqueue_many([*jobs, reject.job(1), *[work.job(index) for index in range(500)]])
    assert caught.value.holder == held.id
    assert count(app) == 1

    with pytest.raises(InvalidArguments):
        app.enqueue_many(work.job("x" if index == 7 else index) for index in range(10))  # type: ignore[arg-type]
    assert count(app) == 1
    assert app.enqueue_many([]) == []


def test_a_batch_that_cannot_be_stored_leaves_those_before_it_and_none_after(app: App) -> None:
    @app.task
    def work(index: int) -> None: ...

    held = work.using(key="taken").enqueue(0)
    jobs = [work.job(index) for index in range(3 * BATCH)]
    jobs[BATCH + 1] = work.using(key="taken", key_policy="reject").job(1)
    with pytest.raises(KeyConflict):
        app.enqueue_many(jobs)
    assert count(app) == 1 + BATCH
    stored = {job.id for job in app.list(limit=10_000)}
    assert stored == {held.id, *(job.draft.id for job in jobs[:BATCH])}

    flow = app.flow("etl")
    with flow:
        node = work.job(1)
    with pytest.raises(InvalidOption, match="submit the flow"):
        app.enqueue_many([*(work.job(index) for index in range(BATCH)), node])
    assert count(app) == 1 + 2 * BATCH


def test_a_batch_of_different_tasks_and_options(app: App) -> None:
    @app.task
    def one(index: int) -> None: ...

    @app.task(queue="mail")
    def two(text: str) -> None: ...

    jobs = app.enqueue_many(
        [
            one.job(1),
            two.using(priority=duly.URGENT, tags=["a", "b"]).job("x"),
            one.using(run_at=TOMORROW, key="k").job(2),
            one.using(key="k").job(3),
            app.named("two").job(text="y"),
        ]
    )
    assert [job.task for job in jobs] == ["one", "two", "one", "one", "two"]
    assert [job.created for job in jobs] == [True, True, True, False, True]
    assert jobs[2].id == jobs[3].id
    assert [app.get(job.id).record for job in jobs] == [job.record for job in jobs]


def test_a_prepared_job_with_a_connection_is_refused(app: App) -> None:
    @app.task
    def work() -> None: ...

    connection = object()
    for task in (work, app.named("work")):
        with pytest.raises(InvalidOption, match=r"enqueue_many\(jobs, connection="):
            task.using(connection=connection).job()


# By name


def test_a_service_without_the_code_submits_by_name(url: str) -> None:
    worker, producer = App(url), App(url)
    worker.migrate()

    @worker.task(queue="mail", priority=duly.HIGH, retries=9, timeout=30, expires="2h", tags=["m"])
    def send(to: str, when: datetime | None = None, self: int = 0, name: str = "") -> None: ...

    try:
        with pytest.raises(UnknownTask, match=r"'send'.*none yet.*unchecked=True"):
            producer.enqueue("send", to="ada")
        worker.publish()

        job = producer.enqueue("send", to="ada", when=TOMORROW, self=3, name="x")
        record = worker.get(job.id).record
        assert (record.queue, record.priority, record.max_attempts) == ("mail", 10, 10)
        assert (record.timeout, record.tags) == (30, ("m",))
        assert record.expires_at == record.created_at + timedelta(hours=2)
        assert send.definition.arguments.decode(record.arguments)[1] == {
            "to": "ada",
            "when": TOMORROW,
            "self": 3,
            "name": "x",
        }
        options = producer.named("send").using(queue="fast", key="k", tags=())
        assert options.enqueue(to="bob").record.queue == "fast"
        assert not options.enqueue(to="bob").created

        async def go() -> None:
            assert (await producer.aenqueue("send", to="eve")).created
            with pytest.raises(InvalidArguments, match="'to'"):
                await producer.aenqueue("send", to=5)
            with pytest.raises(UnknownTask):
                await producer.aenqueue("sned", to="eve")

        asyncio.run(go())
        refuse(worker, lambda: producer.enqueue("send"), InvalidArguments, "'to'", "required")
        refuse(worker, lambda: producer.enqueue("send", to=5), InvalidArguments, "'to'", "str")
        refuse(worker, lambda: producer.enqueue("send", to="a", cc="b"), InvalidArguments, "'cc'")
        refuse(
            worker, lambda: producer.enqueue("send", to="a", when=NAIVE), InvalidArguments, "when"
        )
        refuse(worker, lambda: producer.enqueue("sned", to="a"), UnknownTask, "known: send")
        refuse(worker, lambda: producer.enqueue("bad name"), InvalidOption, "name")

        unchecked = producer.named("later", unchecked=True).enqueue(anything=[1, None])
        assert worker.get(unchecked.id).record.arguments == '{"anything":[1,null]}'
    finally:
        worker.close()
        producer.close()


def test_a_task_published_anew_is_noticed(url: str) -> None:
    old, new, producer = App(url), App(url), App(url)
    old.migrate()

    @old.task(name="work")
    def first(value: int) -> None: ...

    @new.task(name="work")
    def second(value: str) -> None: ...

    try:
        old.publish()
        assert producer.enqueue("work", value=1).created
        new.publish()
        assert producer.enqueue("work", value="one").created
    finally:
        for each in (old, new, producer):
            each.close()


def test_a_local_task_needs_no_catalogue(app: App) -> None:
    @app.task
    def work(value: int) -> None: ...

    assert app.enqueue("work", value=1).record.arguments == '{"value":1}'
    refuse(app, lambda: app.enqueue("work", value="1"), InvalidArguments, "'value'")


# The schema


def test_an_unmigrated_database_says_what_to_do(postgres_url: str) -> None:
    app = App(postgres_url)

    @app.task
    def work() -> None: ...

    try:
        for action in (
            work.enqueue,
            lambda: asyncio.run(work.aenqueue()),
            app.list,
            app.counts,
            lambda: app.enqueue("work"),
            lambda: work.using(connection=object()).enqueue(),
        ):
            with pytest.raises(SchemaBehind, match=r"duly db migrate.*app\.migrate\(\)"):
                action()
        assert app.migrate()
        assert app.migrate() == []
        assert work.enqueue().created
    finally:
        app.close()


def test_a_schema_of_its_own(postgres_url: str) -> None:
    one, two = App(postgres_url), App(postgres_url, schema="jobs_eu")
    try:
        for app in (one, two):
            app.migrate()
        job = two.named("work", unchecked=True).enqueue()
        assert [each.id for each in two.list()] == [job.id]
        assert one.list() == []
    finally:
        one.close()
        two.close()
