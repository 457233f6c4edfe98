"""Events: emitted once, delivered once to each subscriber, in the caller's transaction too."""

from __future__ import annotations

import asyncio
import threading

import pytest

import duly
from duly import App, ConfigurationError, InvalidOption, JobRecord, State
from tests.runtime.conftest import MakeFleet


def _jobs(app: App, task: str) -> list[JobRecord]:
    return [job.record for job in app.list(task=task)]


def test_each_event_starts_one_job_for_each_subscriber(app: App) -> None:
    seen: list[object] = []

    @app.on("order.*")
    def everything(event: duly.Event) -> None:
        seen.append(("everything", event.name, event.key, event.payload))

    @app.on("order.paid", where={"currency": "EUR", "customer.country": ["DE", "AT"]})
    async def euros(event: duly.Event) -> None:
        seen.append(("euros", event.payload["amount"]))

    german = {"currency": "EUR", "customer": {"country": "DE"}, "amount": 1}
    emitted = app.emit("order.paid", german, key="42")
    assert (emitted.created, len(emitted.started)) == (True, 2)
    assert len(app.emit("order.paid", {"currency": "USD"}).started) == 1
    assert len(app.emit("order.refund.asked").started) == 1
    assert app.emit("invoice.paid", german).started == ()
    app.run_until_idle()
    assert sorted(map(repr, seen)) == sorted(
        map(
            repr,
            [
                ("everything", "order.paid", "42", german),
                ("euros", 1),
                ("everything", "order.paid", None, {"currency": "USD"}),
                ("everything", "order.refund.asked", None, None),
            ],
        )
    )


def test_an_id_counts_once_in_a_storm_of_duplicates(app: App) -> None:
    @app.on("order.paid")
    def paid(event: duly.Event) -> None:
        assert event.id.startswith("payment-")

    app.publish()
    results: list[bool] = []

    def storm() -> None:
        for number in range(20):
            results.append(app.emit("order.paid", number, id=f"payment-{number}").created)

    threads = [threading.Thread(target=storm) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(results), sum(results)) == (80, 20)
    assert len(_jobs(app, "paid")) == 20
    assert len(app.events(name="order.paid")) == 20


def test_in_the_callers_transaction_or_not_at_all(app: App) -> None:
    @app.on("order.placed")
    def placed(event: duly.Event) -> None: ...

    @app.task
    def waiter() -> None:
        duly.current_blocking().wait_for("order.placed")

    job = waiter.enqueue()
    app.run_until_idle()

    def rolled_back() -> None:
        with app.transaction():
            app.emit("order.placed")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rolled_back()
    assert (_jobs(app, "placed"), app.events()) == ([], [])
    assert job.refresh().state is State.WAITING
    with app.transaction() as connection:
        app.emit("order.placed", connection=connection)
    assert len(_jobs(app, "placed")) == 1
    app.run_until_idle()
    assert job.refresh().state is State.SUCCEEDED


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_rollback_does_not_forget_what_the_app_is_subscribed_to(app: App, kind: str) -> None:
    """The first emission declares the app's subscriptions, in its transaction."""

    @app.on("order.placed")
    def placed(event: duly.Event) -> None: ...

    def emit() -> duly.Emitted:
        return app.emit("order.placed") if kind == "blocking" else asyncio.run(aemit())

    async def aemit() -> duly.Emitted:
        return await app.aemit("order.placed")

    def rolled_back() -> None:
        with app.transaction():
            assert len(emit().started) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rolled_back()
    with app.transaction():
        assert len(emit().started) == 1
    assert len(emit().started) == 1
    assert len(_jobs(app, "placed")) == 2


def test_subscriptions_outlive_their_workers(app: App, url: str) -> None:
    @app.on("order.paid")
    def paid(event: duly.Event) -> str:
        return event.name

    app.run_until_idle()
    producer = App(url)
    assert len(producer.emit("order.paid").started) == 1
    producer.close()
    app.run_until_idle()
    assert [job.state for job in _jobs(app, "paid")] == [State.SUCCEEDED]


def test_bad_input_is_refused(app: App) -> None:
    with pytest.raises(InvalidOption, match=r'such as "order\.paid"'):
        app.emit("order paid")
    with pytest.raises(InvalidOption, match="not a pattern"):
        app.on("order.**")(print)
    with pytest.raises(ConfigurationError, match=r"event: duly\.Event"):

        @app.on("order.paid")
        def nothing() -> None: ...

    with pytest.raises(ConfigurationError, match=r"declare its argument 'event' as duly\.Event"):

        @app.on("order.paid")
        def number(event: int) -> None: ...


TASKS = """
@app.task
async def waiter(key: str) -> int:
    event = await duly.current().wait_for("go", key=key)
    return event.payload
"""


def test_a_fleet_is_woken_by_another_process(fleet: MakeFleet) -> None:
    tasks = fleet(TASKS)
    tasks.start()
    tasks.start()
    waiter = tasks.app.named("waiter", unchecked=True)
    early = [str(number) for number in range(10)]
    for key in early:
        tasks.app.emit("go", int(key), key=key)
    jobs = [waiter.enqueue(key=str(number)) for number in range(20)]
    for number in range(10, 20):
        tasks.app.emit("go", number, key=str(number))
    assert [job.result(timeout=40) for job in jobs] == list(range(20))
