"""Events are stored once and start one job for each subscription; what is old is forgotten."""

from __future__ import annotations

from datetime import timedelta

from duly.model.catalogue import CatalogueEntry
from duly.model.event import Emitted, EventRecord, Subscription
from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.settlement import suspend
from tests.conformance.test_suspension import record, steps_of, wait_event, write
from tests.support.stores import Scene


def event(name: str = "order.paid", **fields: object) -> EventRecord:
    """An event, some of its fields given."""
    given = {"id": str(new_id()), "name": name, "payload": "null", **fields}
    return EventRecord(**given)  # type: ignore[arg-type]


def subscription(name: str, pattern: str, **where: object) -> Subscription:
    """A subscription of the task `work`."""
    entry = CatalogueEntry(name="work", schema={})
    return Subscription(name=name, pattern=pattern, where=where, entry=entry, argument="event")


def emit(scene: Scene, *events: EventRecord) -> list[Emitted]:
    """Emit in one transaction."""
    return scene.store.run(scene.store.emit(events, scene.now))


def subscribe(scene: Scene, *subscriptions: Subscription, unless: float = 0) -> None:
    """Declare subscriptions."""
    window = timedelta(seconds=unless)
    scene.store.run(scene.store.subscribe(subscriptions, window, scene.now))


def test_a_batch_with_repeats_counts_each_id_once(scene: Scene) -> None:
    subscribe(scene, subscription("all", "*"))
    emit(scene, event(id="old"))
    answers = emit(scene, event(id="a"), event(id="b", key="k"), event(id="a"), event(id="old"))
    assert [each.created for each in answers] == [True, True, False, False]
    assert [len(each.started) for each in answers] == [1, 1, 0, 0]
    assert scene.counts() == {("default", State.PENDING): 3}
    assert emit(scene) == []


def test_each_subscription_that_fits_gets_a_job(scene: Scene) -> None:
    subscribe(
        scene,
        subscription("all", "*"),
        subscription("paid", "order.paid"),
        subscription("euros", "order.*", currency="EUR"),
    )
    (one,) = emit(scene, event(payload='{"currency":"EUR"}'))
    (two,) = emit(scene, event("order.placed", payload='{"currency":"USD"}'))
    assert (len(one.started), len(two.started)) == (3, 1)
    (signal,) = emit(scene, event(job_id=new_id()))
    assert signal.started == ()


def test_the_latest_word_on_a_subscription_holds(scene: Scene) -> None:
    subscribe(scene, subscription("s", "a.*"), subscription("t", "*"))
    subscribe(scene, subscription("s", "b.*"))
    stored = scene.store.run(scene.store.subscriptions())
    assert [(each.name, each.pattern) for each in stored] == [("s", "b.*"), ("t", "*")]
    assert scene.store.run(scene.store.unsubscribe(["t", "unknown"])) == 1
    assert [each.name for each in scene.store.run(scene.store.subscriptions())] == ["s"]


def test_subscriptions_that_nobody_declares_are_forgotten(scene: Scene) -> None:
    subscribe(scene, subscription("kept", "*"), subscription("gone", "*"))
    scene.advance(100)
    subscribe(scene, subscription("kept", "*"), unless=1000)
    limit = scene.now - timedelta(seconds=50)
    subscribe(scene, subscription("kept", "*"), unless=10)
    assert scene.store.run(scene.store.forget_subscriptions(limit)) == 1
    assert [each.name for each in scene.store.run(scene.store.subscriptions())] == ["kept"]


def test_events_are_listed_latest_first_and_forgotten_by_age(scene: Scene) -> None:
    emit(scene, event("a", id="1", key="x"))
    scene.advance(10)
    emit(scene, event("b", id="2", key="x"), event("a", id="3"))
    store = scene.store
    assert [each.id for each in store.run(store.events(10))] == ["3", "2", "1"]
    assert [each.id for each in store.run(store.events(1, before="3"))] == ["2"]
    assert [each.id for each in store.run(store.events(10, name="a"))] == ["3", "1"]
    assert [each.id for each in store.run(store.events(10, key="x"))] == ["2", "1"]
    assert store.run(store.purge_events(scene.now, 10)) == 1
    assert [each.id for each in store.run(store.events(10))] == ["3", "2"]


def test_steps_go_when_their_job_is_forgotten(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    record(scene, write(job))
    scene.succeed(job)
    scene.advance(100)
    store = scene.store
    assert store.run(store.purge_steps(scene.now, 10)) == 0
    assert store.run(store.purge(State.SUCCEEDED, scene.now, 10)) == 1
    assert store.run(store.purge_steps(scene.now, 10)) == 1
    assert steps_of(scene, job) == {}


def test_waits_of_jobs_that_are_gone_wake_nobody(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    scene.settle(suspend(job.id, job.token, wait_event(job, "order.paid")))
    scene.cancel(job.id)
    (emitted,) = emit(scene, event())
    assert scene.state(job.id) is State.CANCELLED
    assert emitted.created
    scene.store.run(scene.store.purge_steps(scene.now, 10))
