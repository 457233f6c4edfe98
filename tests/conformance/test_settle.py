"""The end of an attempt is written under its token, once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.model.attempt import Failure, Outcome
from duly.model.identifiers import new_id
from duly.model.job import Delivery, State
from duly.model.settlement import Settlement, bury, cancel, release, retry, snooze, succeed
from tests.support.stores import Scene, failure


def test_success(scene: Scene) -> None:
    job = scene.submit(tags=("a",), metadata="{}")
    taken = scene.take()
    scene.advance(1.5)
    done = scene.succeed(taken, '{"answer":42}')
    assert done.state is State.SUCCEEDED
    assert (done.result, done.finished_at, done.error) == ('{"answer":42}', scene.now, None)
    assert (done.attempt, done.token, done.worker) == (1, 1, taken.worker)
    assert (done.started_at, done.created_at, done.tags) == (
        taken.started_at,
        job.created_at,
        ("a",),
    )


def test_success_without_a_result(scene: Scene) -> None:
    scene.submit()
    assert scene.succeed(scene.take()).result is None


def test_retry_is_due_after_its_delay(scene: Scene) -> None:
    scene.submit(max_attempts=3, run_at=scene.now - timedelta(hours=1))
    taken = scene.take()
    scene.advance(2)
    job = scene.fail(taken, delay=7.25)
    assert job.state is State.PENDING
    assert job.run_at == scene.now + timedelta(seconds=7.25)
    assert (job.attempt, job.error) == (1, failure())
    assert (job.worker, job.started_at) == (None, None)
    again = scene.hire()
    scene.advance(7.249999)
    assert scene.claim(again) == []
    scene.advance(0.000001)
    assert scene.take().attempt == 2


def test_success_after_a_retry_shows_no_error(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    scene.fail(scene.take())
    second = scene.take()
    assert second.error == failure()
    done = scene.succeed(second)
    assert (done.error, done.attempt) == (None, 2)


def test_death(scene: Scene) -> None:
    scene.submit()
    job = scene.kill(scene.take(), "exhausted")
    assert (job.state, job.reason, job.error) == (State.DEAD, "exhausted", failure())
    assert (job.finished_at, job.attempt) == (scene.now, 1)


def test_death_without_a_new_error_keeps_the_last(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    scene.fail(scene.take(), message="first")
    taken = scene.take()
    assert scene.settle(bury(taken.id, taken.token, "gave up", None)) == [True]
    assert scene.get(taken.id).error == failure("first")


def test_a_new_error_replaces_every_part_of_the_last(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    scene.fail(scene.take(), message="first")
    taken = scene.take()
    bare = Failure("TypeError", "")
    scene.settle(retry(taken.id, taken.token, timedelta(0), bare))
    assert scene.get(taken.id).error == bare
    taken = scene.take()
    scene.settle(bury(taken.id, taken.token, "exhausted", Failure("KeyError", "k", None, "f")))
    assert scene.get(taken.id).error == Failure("KeyError", "k", None, "f")


def test_cancelled_while_running(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    taken = scene.take()
    assert scene.settle(cancel(taken.id, taken.token, "stopped")) == [True]
    job = scene.get(taken.id)
    assert (job.state, job.reason, job.attempt) == (State.CANCELLED, "stopped", 0)
    assert job.finished_at == scene.now


def test_release_keeps_the_place_and_charges_nothing(scene: Scene) -> None:
    due = scene.now - timedelta(seconds=30)
    scene.submit(run_at=due, max_attempts=1)
    taken = scene.take()
    scene.advance(5)
    assert scene.settle(release(taken.id, taken.token)) == [True]
    job = scene.get(taken.id)
    assert (job.state, job.run_at, job.attempt, job.token) == (State.PENDING, due, 0, 1)
    assert (job.worker, job.started_at, job.error, job.alone) == (None, None, None, False)
    again = scene.take()
    assert (again.attempt, again.token) == (1, 2)


def test_snooze_waits_and_charges_nothing(scene: Scene) -> None:
    scene.submit()
    taken = scene.take()
    assert scene.settle(snooze(taken.id, taken.token, timedelta(minutes=5))) == [True]
    job = scene.get(taken.id)
    assert (job.state, job.attempt) == (State.PENDING, 0)
    assert job.run_at == scene.now + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("outcome", "charged"),
    [
        (Outcome.FAILED, 1),
        (Outcome.TIMED_OUT, 1),
        (Outcome.LOST, 1),
        (Outcome.CRASHED, 0),
        (Outcome.RELEASED, 0),
        (Outcome.SNOOZED, 0),
        (Outcome.CANCELLED, 0),
    ],
)
def test_what_is_charged(scene: Scene, outcome: Outcome, charged: int) -> None:
    for state in (State.PENDING, State.DEAD):
        scene.submit(max_attempts=5)
        taken = scene.take()
        settlement = Settlement(job_id=taken.id, token=taken.token, outcome=outcome, state=state)
        assert scene.settle(settlement) == [True]
        assert scene.get(taken.id).attempt == charged
        scene.cancel(taken.id)


def test_every_kind_of_late_settlement_is_refused(scene: Scene) -> None:
    scene.submit(max_attempts=9)
    late = scene.take()
    scene.crash(late)
    current = scene.take()
    before = scene.get(current.id)
    late_ones = [
        succeed(late.id, late.token, "1"),
        retry(late.id, late.token, timedelta(0), failure()),
        bury(late.id, late.token, "x", failure()),
        cancel(late.id, late.token, "x"),
        release(late.id, late.token),
        snooze(late.id, late.token, timedelta(0)),
        succeed(late.id, current.token + 1, "1"),
        retry(late.id, current.token + 1, timedelta(0), failure()),
    ]
    for settlement in late_ones:
        assert scene.settle(settlement) == [False]
    assert scene.settle(*late_ones) == [False] * len(late_ones)
    assert scene.get(current.id) == before
    assert len(scene.attempts(current.id)) == 1
    assert scene.succeed(current).state is State.SUCCEEDED
    assert scene.settle(*late_ones) == [False] * len(late_ones)


def test_only_a_running_job_is_settled(scene: Scene) -> None:
    pending = scene.submit(delay=timedelta(hours=1))
    assert scene.settle(
        succeed(pending.id, 0, None), release(pending.id, 0), succeed(new_id(), 1, None)
    ) == [False, False, False]
    assert scene.get(pending.id) == pending
    scene.submit()
    taken = scene.take()
    scene.settle(release(taken.id, taken.token))
    assert scene.settle(succeed(taken.id, taken.token, None)) == [False]
    assert scene.state(taken.id) is State.PENDING


def test_an_attempt_is_settled_once(scene: Scene) -> None:
    scene.submit()
    taken = scene.take()
    done = scene.succeed(taken, "1")
    assert scene.settle(succeed(taken.id, taken.token, "2")) == [False]
    assert scene.settle(bury(taken.id, taken.token, "x", failure())) == [False]
    assert scene.get(taken.id) == done
    assert len(scene.attempts(taken.id)) == 1


def test_one_settlement_given_twice_lands_once(scene: Scene) -> None:
    scene.submit()
    taken = scene.take()
    given = succeed(taken.id, taken.token, "1")
    assert scene.settle(given, given) == [True, False]
    assert len(scene.attempts(taken.id)) == 1


def test_the_first_of_several_for_one_attempt_lands(scene: Scene) -> None:
    scene.submit(max_attempts=5)
    taken = scene.take()
    assert scene.settle(
        retry(taken.id, taken.token, timedelta(0), failure()),
        succeed(taken.id, taken.token, "1"),
        bury(taken.id, taken.token, "x", failure()),
    ) == [True, False, False]
    assert scene.state(taken.id) is State.PENDING
    taken = scene.take()
    assert scene.settle(succeed(taken.id, taken.token, "1"), release(taken.id, taken.token)) == [
        True,
        False,
    ]
    assert scene.get(taken.id).result == "1"


def test_a_stale_token_does_not_stand_in_the_way_of_the_right_one(scene: Scene) -> None:
    scene.submit(max_attempts=5)
    scene.fail(stale := scene.take())
    taken = scene.take()
    assert scene.settle(
        succeed(taken.id, stale.token, "1"),
        release(taken.id, stale.token),
        succeed(taken.id, taken.token, "2"),
    ) == [False, False, True]
    assert scene.get(taken.id).result == "2"
    assert [attempt.token for attempt in scene.attempts(taken.id)] == [stale.token, taken.token]


def test_a_stale_token_does_not_stand_in_the_way_of_the_right_failure(scene: Scene) -> None:
    scene.submit(max_attempts=5)
    scene.fail(stale := scene.take())
    taken = scene.take()
    assert scene.settle(
        bury(taken.id, stale.token, "too late", failure("stale")),
        retry(taken.id, taken.token, timedelta(0), failure("right")),
    ) == [False, True]
    job = scene.get(taken.id)
    assert (job.state, job.error) == (State.PENDING, failure("right"))
    assert [attempt.token for attempt in scene.attempts(taken.id)] == [stale.token, taken.token]


def test_a_mixed_batch_is_answered_in_order(scene: Scene) -> None:
    scene.submit_many(5, max_attempts=3)
    a, b, c, d, e = scene.claim(scene.hire())
    assert scene.settle(
        retry(d.id, d.token, timedelta(0), failure()),
        succeed(b.id, b.token, '"b"'),
        succeed(new_id(), 1, None),
        bury(a.id, a.token, "x", failure()),
        release(e.id, e.token + 1),
        succeed(c.id, c.token, '"c"'),
    ) == [True, True, False, True, False, True]
    states = [
        job and job.state
        for job in scene.store.run(scene.store.get([j.id for j in (a, b, c, d, e)]))
    ]
    assert states == [
        State.DEAD,
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.PENDING,
        State.RUNNING,
    ]


def test_successes_of_one_token_land_each_for_itself(scene: Scene) -> None:
    """Some at once, a keyed one on its own way, and one that has lost its lease not at all."""
    for key in (None, None, "k", None):
        scene.submit(key=key)
    jobs = scene.claim(scene.hire())
    assert {job.token for job in jobs} == {1}
    gone = jobs[1]
    assert scene.settle(release(gone.id, gone.token)) == [True]
    again = scene.take()
    answers = scene.settle(*(succeed(job.id, job.token, f'"{job.id}"') for job in jobs))
    assert answers == [True, False, True, True]
    assert scene.get(again.id) == again
    for job in jobs:
        if job.id != gone.id:
            assert scene.get(job.id).result == f'"{job.id}"'


def test_an_empty_batch_is_nothing(scene: Scene) -> None:
    assert scene.settle() == []


def test_five_thousand_in_one_batch(scene: Scene) -> None:
    scene.submit_many(5000, max_attempts=2)
    claimed = scene.claim(scene.hire(), 5000)
    answers = scene.settle(
        *(
            succeed(job.id, job.token, str(number))
            if number % 2
            else retry(job.id, job.token, timedelta(0), failure(str(number)))
            for number, job in enumerate(claimed)
        )
    )
    assert answers == [True] * 5000
    assert scene.counts() == {
        ("default", State.SUCCEEDED): 2500,
        ("default", State.PENDING): 2500,
    }
    jobs = scene.store.run(scene.store.get([job.id for job in claimed]))
    assert [job and (job.result or (job.error and job.error.message)) for job in jobs] == [
        str(number) for number in range(5000)
    ]


def test_a_requested_cancellation_turns_a_retry_into_a_cancellation(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    taken = scene.take()
    scene.cancel(taken.id)
    job = scene.fail(taken, delay=60)
    assert job.state is State.CANCELLED
    assert job.reason == "cancelled on request"
    assert (job.error, job.attempt, job.finished_at) == (failure(), 1, scene.now)
    assert [each.outcome for each in scene.attempts(job.id)] == [Outcome.FAILED]
    assert scene.claim(scene.hire()) == []


@pytest.mark.parametrize("kind", ["release", "snooze", "crash"])
def test_a_requested_cancellation_holds_for_every_way_back(scene: Scene, kind: str) -> None:
    scene.submit(max_attempts=3)
    taken = scene.take()
    scene.cancel(taken.id)
    if kind == "release":
        scene.settle(release(taken.id, taken.token))
    elif kind == "snooze":
        scene.settle(snooze(taken.id, taken.token, timedelta(1)))
    else:
        (reaped,) = scene.reap(taken.worker or new_id(), expired_only=False)
        assert reaped.state is State.CANCELLED
    assert scene.state(taken.id) is State.CANCELLED


def test_a_requested_cancellation_does_not_undo_a_result_or_a_death(scene: Scene) -> None:
    scene.submit_many(2)
    one, two = scene.claim(scene.hire())
    scene.cancel(one.id, two.id)
    assert scene.succeed(one, "1").state is State.SUCCEEDED
    assert scene.kill(two).state is State.DEAD


def test_a_job_that_never_began_has_no_attempt_row(scene: Scene) -> None:
    scene.submit(delivery=Delivery.AT_MOST_ONCE)
    taken = scene.take()
    scene.settle(release(taken.id, taken.token))
    assert scene.attempts(taken.id) == []
