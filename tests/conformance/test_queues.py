"""Queues can be paused; tasks are catalogued for those who submit by name."""

from __future__ import annotations

from datetime import timedelta

from duly.model.catalogue import CatalogueEntry
from duly.model.job import Delivery
from duly.model.query import QueueState, Waiting
from tests.support.stores import Scene


def test_pause_and_resume(scene: Scene) -> None:
    store = scene.store
    assert store.run(store.queues()) == []
    scene.submit(queue="mail")
    store.run(store.pause_queue("mail", "provider is down"))
    store.run(store.pause_queue("empty"))
    assert store.run(store.queues()) == [
        QueueState("empty", True),
        QueueState("mail", True, "provider is down"),
    ]
    store.run(store.pause_queue("mail", "still down"))
    assert store.run(store.queues())[1] == QueueState("mail", True, "still down")
    assert store.run(store.resume_queue("mail"))
    assert not store.run(store.resume_queue("mail"))
    assert not store.run(store.resume_queue("unheard"))
    assert store.run(store.queues()) == [QueueState("empty", True), QueueState("mail", False)]


def test_submission_goes_on_while_paused(scene: Scene) -> None:
    scene.store.run(scene.store.pause_queue("default"))
    job = scene.submit()
    assert scene.claim(scene.hire()) == []
    scene.store.run(scene.store.resume_queue("default"))
    assert scene.take().id == job.id


def test_a_queue_is_known_after_its_jobs_are_gone(scene: Scene) -> None:
    scene.finished(queue="mail")
    assert scene.store.run(scene.store.queues()) == [QueueState("mail", False)]


def test_the_catalogue_keeps_every_field(scene: Scene) -> None:
    store = scene.store
    assert store.run(store.catalogue()) == []
    entry = CatalogueEntry(
        name="send",
        schema={"type": "object", "properties": {"to": {"type": "string", "x": ["é", None, 1.5]}}},
        queue="mail",
        priority=20,
        max_attempts=4,
        max_crashes=2,
        timeout=1.5,
        expires_after=60.0,
        delivery=Delivery.AT_MOST_ONCE,
        tags=("a", "b"),
    )
    store.run(store.publish_tasks([entry, CatalogueEntry(name="add", schema={})]))
    assert store.run(store.catalogue()) == [CatalogueEntry(name="add", schema={}), entry]


def test_the_latest_word_holds(scene: Scene) -> None:
    store = scene.store
    old, new = (CatalogueEntry(name="send", schema={"v": number}) for number in (1, 2))
    store.run(store.publish_tasks([old]))
    store.run(store.publish_tasks([new]))
    assert store.run(store.catalogue()) == [new]
    store.run(store.publish_tasks([new, old]))
    assert store.run(store.catalogue()) == [old]
    store.run(store.publish_tasks([]))
    assert store.run(store.catalogue()) == [old]


def test_the_longest_waiting_of_each_queue(scene: Scene) -> None:
    def waiting() -> list[Waiting]:
        return scene.store.run(scene.store.longest_waiting(scene.now))

    assert waiting() == []
    scene.submit(queue="mail", delay=timedelta(hours=1))
    assert waiting() == []
    first = scene.submit(queue="mail", priority=0, task="nobody_knows")
    scene.submit(queue="bulk")
    scene.advance(60)
    second = scene.submit(queue="mail", priority=50)
    bulk = scene.submit(queue="bulk", priority=1)
    taken = scene.take(queues=("bulk",))
    assert taken.run_at == first.run_at
    scene.store.run(scene.store.pause_queue("mail"))
    assert waiting() == [Waiting("bulk", bulk.run_at), Waiting("mail", first.run_at)]
    scene.cancel(first.id, bulk.id)
    assert waiting() == [Waiting("mail", second.run_at)]
