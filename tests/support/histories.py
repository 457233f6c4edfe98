"""A history in which everything is as it should be: to be broken on purpose."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from duly.clock import ManualClock
from duly.model.catalogue import CatalogueEntry
from duly.model.event import EventRecord, Subscription
from duly.model.job import Delivery, JobRecord
from duly.model.schedule import CatchUp, Overlap, ScheduleRecord
from duly.model.settlement import cancel, succeed
from duly.model.step import Step, StepKind, StepState, StepWrite
from duly.runtime.scheduler import Scheduler
from duly.store.protocol import Store
from duly.testing import Effect, Emission, History, Submission, read_history
from tests.support.flows import FlowScene
from tests.support.stores import Scene
from tests.support.timetables import define


class Life:
    """Jobs that are submitted, run and noted, each under a name."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scene = Scene(store, ManualClock(datetime.now(UTC) - timedelta(minutes=1)))
        self.jobs: dict[str, UUID] = {}
        self.submissions: list[Submission] = []
        self.effects: list[Effect] = []

    def submit(self, name: str, **fields: object) -> UUID:
        """A client submits a job and is told so."""
        job = self.scene.submit(**fields)
        self.jobs[name] = job.id
        self.submissions.append(Submission(job_id=job.id, key=job.key, at=job.created_at))
        return job.id

    def run(self, job: JobRecord, ends: bool = True, result: str | None = None) -> None:
        """A claimed job's code runs, and notes it."""
        self.effects.append(
            Effect(
                job_id=job.id,
                token=job.token,
                attempt=job.attempt,
                key=str(job.id),
                node="here",
                started=self.scene.now,
                ended=self.scene.now if ends else None,
                result=result,
            )
        )

    def succeed(self, job: JobRecord, result: str = "1") -> None:
        """The code runs to its end and the job succeeds."""
        self.run(job, result=result)
        assert self.scene.settle(succeed(job.id, job.token, result, job.flow_id)) == [True]

    def history(self) -> History:
        """All that is known."""
        return read_history(self.store, submissions=self.submissions, effects=self.effects)


def good_history(store: Store) -> tuple[History, dict[str, UUID]]:
    """A life with everything in it, and the jobs by their names. The store keeps a journal."""
    life = Life(store)
    scene = life.scene
    life.submit("plain")
    life.succeed(scene.take())
    life.submit("retried", max_attempts=3)
    first = scene.take()
    life.run(first, ends=False)
    scene.fail(first)
    life.succeed(scene.take())
    life.submit("dead", max_attempts=1)
    doomed = scene.take()
    life.run(doomed, ends=False)
    scene.kill(doomed)
    life.submit("cancelled")
    unwanted = scene.take()
    life.run(unwanted, ends=False)
    scene.cancel(unwanted.id)
    scene.settle(cancel(unwanted.id, unwanted.token, "cancelled on request"))
    life.submit("crashed")
    zombie = scene.take()
    life.run(zombie, result="1")
    scene.crash(zombie)
    life.succeed(scene.take(), "2")
    for number in (1, 2):
        life.submit(f"keyed {number}", key="k")
        life.succeed(scene.take())
    life.submit("transactional", task="pay", delivery=Delivery.TRANSACTIONAL)
    life.succeed(scene.take(tasks=("pay",)))
    life.submit("refused", task="pay", delivery=Delivery.TRANSACTIONAL)
    scene.kill(scene.take(tasks=("pay",)))
    life.submit("once", delivery=Delivery.AT_MOST_ONCE)
    once = scene.take()
    scene.begin(once)
    life.succeed(once)
    flow = FlowScene(scene).node("a").node("b").node("c", "a", "b").submit(max_active=1)
    for names in (("a", "b"), ("c",)):
        for job in flow.take(*names):
            life.succeed(job)
    life.jobs |= flow.ids
    _step(life)
    _event(life)
    _schedule(life)
    history = life.history()
    return msgspec.structs.replace(history, emissions=[Emission(event_id="e-1")]), life.jobs


def _step(life: Life) -> None:
    life.submit("stepped")
    job = life.scene.take()
    step = Step(
        job_id=job.id,
        name="charge",
        key="1",
        kind=StepKind.CALL,
        state=StepState.DONE,
        number=1,
        attempt=1,
        result="7",
    )
    store = life.store
    store.run(store.record([StepWrite(token=job.token, step=step)], life.scene.now))
    life.effects.append(Effect(job_id=job.id, token=1, step="charge:1", result="7", recorded=True))
    life.succeed(job)


def _event(life: Life) -> None:
    store = life.store
    entry = CatalogueEntry(name="react", schema={})
    subscription = Subscription(name="react", pattern="paid", entry=entry, argument="event")
    store.run(store.subscribe([subscription], now=life.scene.now))
    (emitted,) = store.run(
        store.emit([EventRecord(id="e-1", name="paid", payload="{}")], life.scene.now)
    )
    (life.jobs["event"],) = emitted.started
    life.succeed(life.scene.take(tasks=("react",)))


def _schedule(life: Life) -> None:
    """Every minute for five minutes: the first four jobs made at once, then one at a time."""
    store, now = life.store, life.scene.now
    for name, overlap in (("often", Overlap.ALLOW), ("one", Overlap.SKIP)):
        made = now - timedelta(minutes=5)
        schedule = ScheduleRecord(
            id=name,
            definition=define(overlap=overlap, catch_up=CatchUp.ALL),
            accounted_until=made,
            next_at=made,
            due_at=made,
            created_at=made,
            updated_at=made,
        )
        store.run(store.add_schedules([schedule]))
    asyncio.run(Scheduler(store, lambda: now).tick())
    for job in life.scene.claim(life.scene.hire(), 100, tasks=("t",)):
        life.jobs[f"{job.schedule_id} {len(life.jobs)}"] = job.id
        life.succeed(job)
