"""Suspended jobs: rows that wake by time, by events and by the ends of their children."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from duly.model.attempt import Outcome
from duly.model.event import EventRecord
from duly.model.identifiers import new_id
from duly.model.job import JobRecord, State
from duly.model.query import Cancellation, Replay
from duly.model.settlement import suspend
from duly.model.step import EventWait, Step, StepKind, StepState, StepWrite, Wait
from duly.policy.verdict import Verdict, settlement
from duly.store.protocol import Store
from tests.support.stores import Scene, draft


def step(job: JobRecord, name: str = "one", **fields: object) -> Step:
    """A step of the job, done unless it is said otherwise."""
    given = {
        "job_id": job.id,
        "name": name,
        "key": "",
        "kind": StepKind.CALL,
        "state": StepState.DONE,
        "number": 1,
        "attempt": job.attempt,
        **fields,
    }
    return Step(**given)  # type: ignore[arg-type]


def write(job: JobRecord, name: str = "one", **fields: object) -> StepWrite:
    """The same, to be recorded under the job's token."""
    return StepWrite(token=job.token, step=step(job, name, **fields))


def sleep(job: JobRecord, seconds: float) -> Wait:
    """A durable sleep."""
    asleep = step(job, "sleep", kind=StepKind.SLEEP, state=StepState.WAITING)
    return Wait(write=StepWrite(token=job.token, step=asleep, delay=timedelta(seconds=seconds)))


def wait_event(
    job: JobRecord, name: str = "paid", key: str | None = None, seconds: float | None = None
) -> Wait:
    """A wait for an event."""
    waiting = step(job, name, kind=StepKind.EVENT, state=StepState.WAITING)
    delay = None if seconds is None else timedelta(seconds=seconds)
    return Wait(
        write=StepWrite(token=job.token, step=waiting, delay=delay),
        event=EventWait(name=name, key=key),
    )


def wait_job(job: JobRecord, child: JobRecord) -> Wait:
    """A wait for a child's end."""
    waiting = step(job, "child", kind=StepKind.JOB, state=StepState.WAITING, child_id=child.id)
    return Wait(write=StepWrite(token=job.token, step=waiting), child_id=child.id)


def emit(scene: Scene, name: str = "paid", **fields: object) -> bool:
    """Emit an event; answers whether it was new."""
    given = {"id": str(new_id()), "name": name, "payload": "null", **fields}
    event = EventRecord(**given)  # type: ignore[arg-type]
    (emitted,) = scene.store.run(scene.store.emit([event], scene.now))
    return emitted.created


def end(scene: Scene, verdict: Verdict) -> None:
    """Claim one job and end its attempt."""
    assert scene.settle(settlement(scene.take(), verdict)) == [True]


def steps_of(scene: Scene, job: JobRecord) -> dict[str, Step]:
    """The job's recorded steps by name."""
    return {each.name: each for each in scene.store.run(scene.store.steps(job.id)).steps}


def record(scene: Scene, *writes: StepWrite) -> list[Step | None]:
    """Record steps in one batch."""
    return scene.store.run(scene.store.record(writes, scene.now))


def test_a_recorded_step_is_there_for_the_next_attempt(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    job = scene.take()
    (stored,) = record(scene, write(job, result='{"id": 7}', tries=1))
    assert stored is not None
    scene.fail(job)
    again = scene.take()
    assert again.stepped
    assert steps_of(scene, again) == {"one": stored}
    assert (stored.result, stored.at) == ('{"id": 7}', scene.now)


def test_a_done_step_never_changes(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    record(scene, write(job, result="1"))
    (second,) = record(scene, write(job, result="2"))
    assert second is not None
    assert second.result == "1"


def test_a_zombie_records_nothing(scene: Scene) -> None:
    scene.submit()
    zombie = scene.take()
    scene.crash(zombie)
    assert record(scene, write(zombie)) == [None]
    taken = scene.take()
    assert record(scene, write(zombie), write(taken, "two")) == [
        None,
        steps_of(scene, taken)["two"],
    ]
    assert list(steps_of(scene, taken)) == ["two"]
    found = scene.store.run(
        scene.store.take_event(zombie.token, step(zombie), EventWait(name="paid"), scene.now)
    )
    assert found == (False, None)


def test_a_zombie_suspends_nothing(scene: Scene) -> None:
    scene.submit()
    zombie = scene.take()
    scene.crash(zombie)
    taken = scene.take()
    assert scene.settle(suspend(zombie.id, zombie.token, sleep(zombie, 60))) == [False]
    assert scene.state(taken.id) is State.RUNNING
    assert steps_of(scene, taken) == {}


def test_a_zombie_beside_the_right_one_suspends_nothing(scene: Scene) -> None:
    scene.submit()
    zombie = scene.take()
    scene.crash(zombie)
    taken = scene.take()
    assert scene.settle(
        suspend(zombie.id, zombie.token, wait_event(zombie, "stale")),
        suspend(taken.id, taken.token, wait_event(taken, "right")),
    ) == [False, True]
    assert sorted(steps_of(scene, taken)) == ["right"]
    emit(scene, "stale")
    assert scene.state(taken.id) is State.WAITING
    emit(scene, "right")
    assert scene.state(taken.id) is State.PENDING


def test_a_job_started_by_a_step_is_stored_with_it_or_not_at_all(scene: Scene) -> None:
    scene.submit()
    zombie = scene.take()
    scene.crash(zombie)
    job = scene.take()
    lost, kept = draft(parent_id=job.id), draft(parent_id=job.id)
    refused = StepWrite(token=zombie.token, step=step(zombie, "a"), draft=lost)
    accepted = StepWrite(token=job.token, step=step(job, "b", child_id=kept.id), draft=kept)
    record(scene, refused, accepted)
    assert scene.store.run(scene.store.get([lost.id])) == [None]
    assert scene.get(kept.id).parent_id == job.id
    record(scene, accepted)
    assert scene.counts()["default", State.PENDING] == 1


def test_a_sleeping_job_is_a_row_until_its_time(scene: Scene) -> None:
    scene.submit(expires_after=timedelta(seconds=10))
    job = scene.take()
    assert scene.settle(suspend(job.id, job.token, sleep(job, 60))) == [True]
    asleep = scene.get(job.id)
    assert (asleep.state, asleep.attempt, asleep.worker) == (State.WAITING, 0, None)
    assert asleep.run_at == scene.now + timedelta(seconds=60)
    assert steps_of(scene, job)["sleep"].until == asleep.run_at
    assert scene.attempts(job.id) == []
    assert scene.next_due() == 60
    scene.advance(59.9)
    assert scene.claim(scene.hire()) == []
    scene.advance(0.1)
    woken = scene.take()
    assert (woken.id, woken.attempt, woken.token) == (job.id, 1, 2)
    assert scene.succeed(woken).state is State.SUCCEEDED


def test_a_thousand_sleeps_charge_nothing(scene: Scene) -> None:
    scene.submit(max_attempts=2)
    holder = scene.hire(timedelta(days=1))
    for _ in range(50):
        job = scene.take(holder)
        scene.settle(suspend(job.id, job.token, sleep(job, 0)))
    job = scene.take(holder)
    assert (job.attempt, job.token) == (1, 51)
    assert scene.fail(job).attempt == 1
    assert len(scene.attempts(job.id)) == 1


@pytest.mark.parametrize("order", ["event first", "waiter first"])
@pytest.mark.parametrize("key", [None, "42"])
def test_an_event_and_its_waiter_meet_in_either_order(
    scene: Scene, order: str, key: str | None
) -> None:
    scene.submit()
    job = scene.take()
    if order == "event first":
        emit(scene, key="42")
    scene.settle(suspend(job.id, job.token, wait_event(job, key=key)))
    if order == "waiter first":
        assert scene.state(job.id) is State.WAITING
        emit(scene, key="42")
    assert scene.state(job.id) is State.PENDING
    woken = scene.take()
    _, got = scene.store.run(
        scene.store.take_event(
            woken.token, step(woken, "paid"), EventWait(name="paid", key=key), scene.now
        )
    )
    assert got is not None
    assert got.state is StepState.DONE


def test_only_what_fits_wakes(scene: Scene) -> None:
    scene.submit_many(2)
    job, other = scene.claim(scene.hire(), 2)
    scene.settle(suspend(job.id, job.token, wait_event(job, key="42")))
    emit(scene, key="41")
    emit(scene, "shipped", key="42")
    emit(scene)
    emit(scene, key="42", job_id=other.id)
    assert scene.state(job.id) is State.WAITING
    emit(scene, key="42", job_id=job.id)
    assert scene.state(job.id) is State.PENDING


def test_only_what_fits_counts_that_came_before(scene: Scene) -> None:
    scene.submit_many(2)
    job, other = scene.claim(scene.hire(), 2)
    emit(scene, key="41")
    emit(scene, "shipped", key="42")
    emit(scene)
    emit(scene, key="42", job_id=other.id)
    wait = EventWait(name="paid", key="42")
    taking = scene.store.take_event(job.token, step(job, "paid"), wait, scene.now)
    assert scene.store.run(taking) == (True, None)
    scene.settle(suspend(job.id, job.token, wait_event(job, key="42")))
    assert scene.state(job.id) is State.WAITING
    emit(scene, key="42")
    assert scene.state(job.id) is State.PENDING


def test_each_wait_gets_the_next_event(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    for number in range(3):
        emit(scene, payload=str(number))
        scene.advance(1)
    payloads = []
    for name in ("a", "b", "c", "d"):
        taking = scene.store.take_event(
            job.token, step(job, name), EventWait(name="paid"), scene.now
        )
        _, got = scene.store.run(taking)
        if got is not None:
            payloads.append(got.result)
    assert len(set(payloads)) == 3
    late = EventWait(name="paid", since=scene.now)
    assert scene.store.run(scene.store.take_event(job.token, step(job, "e"), late, scene.now)) == (
        True,
        None,
    )


@pytest.mark.parametrize("more", [0, 1])
def test_a_call_whose_answer_was_lost_gets_the_same_event(scene: Scene, more: int) -> None:
    scene.submit()
    job = scene.take()
    emit(scene, payload='"first"')
    wait = EventWait(name="paid")
    taking = scene.store.take_event(job.token, step(job, "paid"), wait, scene.now)
    first = scene.store.run(taking)
    for _ in range(more):
        emit(scene, payload='"second"')
    assert first[1] is not None
    assert scene.store.run(taking) == first


def test_a_timeout_wakes_as_well(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    scene.settle(suspend(job.id, job.token, wait_event(job, seconds=30)))
    scene.advance(30)
    woken = scene.take()
    assert woken.id == job.id
    emit(scene)
    assert scene.state(job.id) is State.RUNNING


@pytest.mark.parametrize("ending", ["succeed", "kill", "cancel", "expire"])
@pytest.mark.parametrize("order", ["child first", "parent first", "together"])
def test_a_child_s_end_wakes_its_parent(scene: Scene, ending: str, order: str) -> None:
    scene.submit(priority=9)
    parent = scene.take()
    child = scene.submit(parent_id=parent.id, expires_after=timedelta(seconds=60))
    ends: dict[str, Callable[[], object]] = {
        "succeed": lambda: end(scene, Verdict(Outcome.SUCCEEDED)),
        "kill": lambda: end(scene, Verdict(Outcome.FAILED, final=True)),
        "cancel": lambda: scene.cancel(child.id),
        "expire": lambda: (scene.advance(61), scene.expire()),
    }
    asleep = suspend(parent.id, parent.token, wait_job(parent, child))
    if order == "child first":
        ends[ending]()
    if order == "together" and ending in ("succeed", "kill"):
        running = scene.take()
        verdict = (
            Verdict(Outcome.SUCCEEDED)
            if ending == "succeed"
            else Verdict(Outcome.FAILED, final=True)
        )
        assert scene.settle(settlement(running, verdict), asleep) == [True, True]
    else:
        scene.settle(asleep)
        if order != "child first":
            assert scene.state(parent.id) is State.WAITING
            ends[ending]()
    assert scene.state(parent.id) is State.PENDING
    assert scene.take(queues=["default"]).id == parent.id


def test_a_waiting_job_can_be_cancelled_and_expires_no_more(scene: Scene) -> None:
    scene.submit(expires_after=timedelta(seconds=10))
    job = scene.take()
    scene.settle(suspend(job.id, job.token, wait_event(job)))
    scene.advance(3600)
    assert scene.expire() == 0
    assert scene.cancel(job.id, reason="no more") == [Cancellation.CANCELLED]
    assert scene.get(job.id).reason == "no more"
    emit(scene)
    assert scene.state(job.id) is State.CANCELLED


def test_a_request_to_cancel_wins_over_a_suspension(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    scene.cancel(job.id)
    scene.settle(suspend(job.id, job.token, sleep(job, 60)))
    assert scene.state(job.id) is State.CANCELLED


def test_the_steps_of_several_jobs(scene: Scene) -> None:
    for _ in range(3):
        scene.submit()
    jobs = [scene.take() for _ in range(3)]
    record(scene, write(jobs[0], "a", number=1), write(jobs[2], "c", number=2))
    record(scene, write(jobs[2], "b", number=1))
    asked = [job.id for job in reversed(jobs)]
    found = scene.store.run(scene.store.steps_of(asked, scene.now))
    assert [[step.name for step in each.steps] for each in found] == [["b", "c"], [], ["a"]]
    assert {each.now for each in found} == {scene.now}
    assert scene.store.run(scene.store.steps_of([], scene.now)) == []


def test_a_stepped_job_is_not_replaced(scene: Scene) -> None:
    scene.submit(key="k")
    job = scene.take()
    scene.settle(suspend(job.id, job.token, sleep(job, 0)))
    replacing = draft(key="k", key_policy="replace", arguments='{"other": 1}')
    (answer,) = scene.enqueue(replacing)
    assert (answer.replaced, answer.job.id) == (False, job.id)
    assert scene.get(job.id).arguments == "{}"


@pytest.mark.parametrize("keep", [True, False])
def test_a_replay_keeps_the_steps_unless_told_otherwise(scene: Scene, keep: bool) -> None:
    scene.submit()
    job = scene.take()
    record(scene, write(job, result="1"))
    scene.kill(job)
    replay = scene.store.replay([job.id], None, scene.now, keep_steps=keep)
    assert scene.store.run(replay) == [Replay.REPLAYED]
    again = scene.take()
    assert (again.stepped, again.generation) == (keep, 2)
    assert list(steps_of(scene, again)) == (["one"] if keep else [])


# Compensations


def undo(job: JobRecord, number: int) -> StepWrite:
    """A registered compensation."""
    return write(job, f"undo {number}", kind=StepKind.UNDO, state=StepState.READY, number=number)


@pytest.mark.parametrize("ending", ["dead", "cancelled while running", "cancelled while waiting"])
def test_compensations_come_before_the_end(scene: Scene, ending: str) -> None:
    scene.submit(key="k")
    job = scene.take()
    record(scene, undo(job, 1))
    if ending == "dead":
        diverted = scene.kill(job, "exhausted")
        assert diverted.error is not None
    elif ending == "cancelled while running":
        scene.cancel(job.id)
        diverted = scene.fail(job)
    else:
        scene.settle(suspend(job.id, job.token, sleep(job, 60)))
        assert scene.cancel(job.id, reason="why") == [Cancellation.REQUESTED]
        diverted = scene.get(job.id)
        assert diverted.reason == "why"
    aim = State.DEAD if ending == "dead" else State.CANCELLED
    assert (diverted.state, diverted.undoing) == (State.PENDING, aim)
    assert scene.enqueue(draft(key="k"))[0].created is False
    running = scene.take()
    assert (running.id, running.undoing) == (job.id, aim)
    assert scene.cancel(job.id) == [Cancellation.REQUESTED]
    scene.settle(suspend(job.id, running.token, sleep(running, 1)))
    scene.advance(1)
    last = scene.take()
    assert (last.undoing, last.reason) == (aim, diverted.reason)

    assert scene.settle(settlement(last, Verdict(Outcome.UNDONE))) == [True]
    ended = scene.get(job.id)
    assert (ended.state, ended.reason) == (aim, diverted.reason)
    assert scene.enqueue(draft(key="k"))[0].created is True


def test_a_replay_after_compensations_starts_afresh(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    record(scene, write(job), undo(job, 2))
    scene.kill(job)

    scene.settle(settlement(scene.take(), Verdict(Outcome.UNDONE)))
    assert scene.replay(job.id) == [Replay.REPLAYED]
    again = scene.take()
    assert (again.stepped, again.undos, again.undoing) == (False, 0, None)
    assert steps_of(scene, again) == {}


# Races


def _race(store: Store, *actions: Callable[[], object]) -> None:
    """All at once, each in a thread of its own."""
    barrier = threading.Barrier(len(actions))
    problems: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not problems


def test_a_thousand_races_of_events_and_waiters(store: Store) -> None:
    scene = Scene(store)
    rounds = 40
    scene.submit_many(rounds)
    jobs = scene.claim(scene.hire(), rounds)
    for number, job in enumerate(jobs):
        asleep = suspend(job.id, job.token, wait_event(job, key=str(number)))
        event = EventRecord(id=str(new_id()), name="paid", key=str(number), payload="1")
        _race(
            store,
            partial(store.run, store.settle([asleep])),
            partial(store.run, store.emit([event])),
        )
    still = [job for job in jobs if scene.state(job.id) is State.WAITING]
    # One that could not be sure looks again a second later.
    soon = datetime.now(UTC) + timedelta(seconds=2)
    assert [job for job in still if scene.get(job.id).run_at > soon] == []


def test_races_of_children_and_parents(store: Store) -> None:
    scene = Scene(store)
    rounds = 40
    scene.submit_many(rounds)
    parents = scene.claim(scene.hire(), rounds)
    for parent in parents:
        child = scene.submit(parent_id=parent.id)
        (taken,) = scene.claim(scene.hire(), 1)
        assert taken.id == child.id
        asleep = suspend(parent.id, parent.token, wait_job(parent, child))

        ended = settlement(taken, Verdict(Outcome.SUCCEEDED, result="1"))
        _race(
            store,
            partial(store.run, store.settle([asleep])),
            partial(store.run, store.settle([ended])),
        )
        assert scene.state(parent.id) is State.PENDING
        scene.cancel(parent.id)
