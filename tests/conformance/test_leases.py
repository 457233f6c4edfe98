"""A worker's jobs are its own while its lease holds, and are taken back when it is gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.model.attempt import Outcome
from duly.model.identifiers import new_id
from duly.model.job import Delivery, State
from duly.model.query import Reaped
from duly.model.settlement import release, succeed
from duly.policy.verdict import Verdict, settlement
from tests.support.stores import LEASE, Scene, failure, worker


def test_a_registered_worker_is_known(scene: Scene) -> None:
    given = worker(name="a", machine="m", pid=4_000_000, process_started=2**40, version="1.2.3")
    scene.store.run(scene.store.register_worker(given, LEASE, scene.now))
    started = scene.now
    scene.advance(20.5)
    (known,) = scene.store.run(scene.store.workers(scene.now))
    for name in set(given.__struct_fields__) - {"started_at", "lease_left"}:
        assert getattr(known, name) == getattr(given, name), name
    assert (known.started_at, known.lease_left) == (started, 39.5)
    scene.advance(40)
    (known,) = scene.store.run(scene.store.workers(scene.now))
    assert known.lease_left == -0.5


def test_registering_again_starts_the_lease_again(scene: Scene) -> None:
    given = worker()
    scene.store.run(scene.store.register_worker(given, LEASE, scene.now))
    scene.advance(10)
    scene.store.run(scene.store.register_worker(given, LEASE, scene.now))
    (known,) = scene.store.run(scene.store.workers(scene.now))
    assert known.lease_left == LEASE.total_seconds()


def test_renew_extends_and_answers_whose(scene: Scene) -> None:
    one, two, stranger = scene.hire(), scene.hire(), new_id()
    scene.advance(50)
    renewed = scene.store.run(scene.store.renew([one, stranger], LEASE, scene.now))
    assert renewed == {one}
    scene.advance(20)
    assert scene.reap(one, two) == []
    assert [each.id for each in scene.store.run(scene.store.workers())] == [one]
    assert scene.store.run(scene.store.renew([], LEASE, scene.now)) == frozenset()


def test_an_ended_lease_that_nobody_reaped_is_renewed(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit()
    job = scene.take(holder)
    scene.advance(1000)
    assert scene.store.run(scene.store.renew([holder], LEASE, scene.now)) == {holder}
    assert scene.reap(holder) == []
    assert scene.succeed(job).state is State.SUCCEEDED


def test_a_reaped_worker_cannot_renew(scene: Scene) -> None:
    holder = scene.hire()
    scene.advance(LEASE.total_seconds())
    scene.reap(holder)
    assert scene.store.run(scene.store.renew([holder], LEASE, scene.now)) == frozenset()


def test_a_worker_whose_lease_holds_is_left_alone(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit()
    job = scene.take(holder)
    scene.advance(LEASE.total_seconds() - 0.000001)
    assert scene.reap(holder, new_id()) == []
    assert scene.get(job.id) == job
    scene.advance(0.000001)
    assert scene.reap(holder) == [Reaped(job.id, holder, State.PENDING)]
    assert scene.store.run(scene.store.workers()) == []


def test_by_force_a_worker_is_reaped_within_its_lease(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit()
    job = scene.take(holder)
    assert scene.reap(holder, expired_only=False) == [Reaped(job.id, holder, State.PENDING)]
    assert scene.reap(holder, expired_only=False) == []
    assert scene.store.run(scene.store.workers()) == []


def test_several_workers_at_once(scene: Scene) -> None:
    one, two, three = scene.hire(), scene.hire(), scene.hire()
    scene.submit_many(6)
    mine = {job.id: one for job in scene.claim(one, 2)}
    mine |= {job.id: two for job in scene.claim(two, 3)}
    kept = scene.take(three)
    reaped = scene.reap(one, two, one, expired_only=False)
    assert {each.job_id: each.worker for each in reaped} == mine
    assert len(reaped) == 5
    assert scene.get(kept.id) == kept


def test_a_started_job_goes_back_to_run_alone_uncharged(scene: Scene) -> None:
    due = scene.now - timedelta(seconds=5)
    scene.submit(run_at=due, max_attempts=1)
    taken = scene.take()
    scene.advance(3)
    job = scene.crash(taken)
    assert (job.state, job.alone, job.crashes, job.attempt) == (State.PENDING, True, 0, 0)
    assert job.run_at == scene.now
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("WorkerCrashed", "killed")
    (attempt,) = scene.attempts(job.id)
    assert (attempt.outcome, attempt.worker) == (Outcome.CRASHED, taken.worker)
    again = scene.take()
    assert (again.attempt, again.token, again.alone) == (1, 2, True)


def test_the_death_of_a_worker_is_charged_to_nobody(scene: Scene) -> None:
    """What runs alone runs in a process beside its worker, which is not to blame."""
    scene.submit(max_crashes=1)
    for _ in range(4):
        job = scene.crash(scene.take())
        assert (job.state, job.crashes, job.attempt) == (State.PENDING, 0, 0)
    assert [each.outcome for each in scene.attempts(job.id)] == [Outcome.CRASHED] * 4


def test_crashes_alone_are_counted(scene: Scene) -> None:
    scene.submit(max_attempts=9, max_crashes=2)
    scene.crash(scene.take())
    taken = scene.take()
    assert scene.settle(settlement(taken, Verdict(Outcome.CRASHED, error=failure()))) == [True]
    job = scene.fail(scene.take())
    assert (job.crashes, job.attempt, job.alone) == (1, 1, True)
    taken = scene.take()
    assert scene.settle(settlement(taken, Verdict(Outcome.CRASHED, error=failure()))) == [True]
    job = scene.get(taken.id)
    assert (job.state, job.reason, job.crashes) == (State.DEAD, "crashed", 2)


def test_an_at_most_once_job_that_began_is_lost(scene: Scene) -> None:
    scene.submit(delivery=Delivery.AT_MOST_ONCE, max_attempts=5)
    taken = scene.take()
    assert scene.begin(taken)
    (reaped,) = scene.reap(taken.worker or new_id(), expired_only=False)
    assert reaped.state is State.DEAD
    job = scene.get(taken.id)
    assert (job.state, job.reason, job.attempt) == (State.DEAD, "lost", 1)
    assert [each.outcome for each in scene.attempts(job.id)] == [Outcome.LOST]


def test_an_at_most_once_job_that_did_not_begin_goes_back_as_it_was(scene: Scene) -> None:
    due = scene.now - timedelta(seconds=5)
    job = scene.submit(delivery=Delivery.AT_MOST_ONCE, run_at=due)
    taken = scene.take()
    scene.advance(1)
    back = scene.crash(taken)
    assert (back.state, back.run_at, back.attempt) == (State.PENDING, due, 0)
    assert (back.alone, back.error) == (False, None)
    assert scene.attempts(job.id) == []
    assert scene.begin(scene.take())


def test_a_transactional_job_goes_back(scene: Scene) -> None:
    scene.submit(delivery=Delivery.TRANSACTIONAL)
    assert scene.crash(scene.take()).state is State.PENDING


def test_the_zombie_of_a_reaped_worker_changes_nothing(scene: Scene) -> None:
    scene.submit()
    zombie = scene.take()
    scene.crash(zombie)
    assert scene.settle(succeed(zombie.id, zombie.token, "1")) == [False]
    successor = scene.take()
    assert scene.settle(succeed(zombie.id, zombie.token, "1")) == [False]
    assert scene.succeed(successor, "2").result == "2"


def test_settled_jobs_are_not_reaped(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit_many(3)
    one, two, three = scene.claim(holder)
    scene.succeed(one)
    scene.settle(release(two.id, two.token))
    reaped = scene.reap(holder, expired_only=False)
    assert [each.job_id for each in reaped] == [three.id]


def test_orphans_are_taken_back(scene: Scene) -> None:
    holder, other = scene.hire(), scene.hire()
    scene.submit_many(3)
    mine = scene.take(holder)
    theirs = scene.take(other)
    scene.submit(delay=timedelta(hours=1))
    assert scene.store.run(scene.store.reap_orphans("orphaned", scene.now)) == []
    scene.forget(holder)
    reaped = scene.store.run(scene.store.reap_orphans("orphaned", scene.now))
    assert reaped == [Reaped(mine.id, holder, State.PENDING)]
    assert scene.get(theirs.id) == theirs
    job = scene.get(mine.id)
    assert (job.state, job.alone) == (State.PENDING, True)
    assert job.error is not None
    assert job.error.message == "orphaned"


@pytest.mark.parametrize("count", [1000])
def test_many_jobs_of_one_worker(scene: Scene, count: int) -> None:
    holder = scene.hire()
    scene.submit_many(count)
    assert len(scene.claim(holder, count)) == count
    assert len(scene.reap(holder, expired_only=False)) == count
    assert scene.counts() == {("default", State.PENDING): count}


def test_what_a_worker_holds(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit_many(3)
    one, two, three = scene.claim(holder)
    scene.succeed(two)
    assert sorted(scene.store.run(scene.store.held(holder))) == [
        (one.id, one.token),
        (three.id, three.token),
    ]
    assert scene.store.run(scene.store.held(new_id())) == []
