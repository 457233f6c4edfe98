"""A key makes a job unique while it is live, and for a window after it finished."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly.errors import KeyConflict
from duly.model.job import KeyPolicy, State
from duly.model.query import Replay
from duly.model.settlement import cancel, release, snooze, succeed
from tests.support.stores import Scene, draft

RETURN, REPLACE, REJECT = KeyPolicy.RETURN, KeyPolicy.REPLACE, KeyPolicy.REJECT


def test_return_answers_with_the_holder(scene: Scene) -> None:
    holder = scene.submit(key="k", arguments="1")
    (answer,) = scene.enqueue(draft(key="k", arguments="2"))
    assert (answer.created, answer.replaced) == (False, False)
    assert answer.job == holder == scene.get(holder.id)


def test_keys_belong_to_their_task(scene: Scene) -> None:
    scene.submit(key="k", task="one")
    assert scene.enqueue(draft(key="k", task="two"))[0].created


def test_reject_raises_and_names_the_holder(scene: Scene) -> None:
    holder = scene.submit(key="k")
    with pytest.raises(KeyConflict) as conflict:
        scene.submit(key="k", key_policy=REJECT)
    assert conflict.value.holder == holder.id


def test_replace_gives_the_holder_the_new_contents(scene: Scene) -> None:
    holder = scene.submit(key="k", arguments="1", delay=timedelta(hours=1), tags=("old",))
    scene.advance(10)
    given = draft(
        key="k",
        key_policy=REPLACE,
        key_window=5.0,
        arguments="2",
        queue="other",
        priority=50,
        delay=timedelta(seconds=30),
        max_attempts=9,
        max_crashes=8,
        owner="o",
        tenant="t",
        timeout=3.5,
        expires_after=timedelta(hours=2),
        tags=("new", "tags"),
        metadata="{}",
    )
    (answer,) = scene.enqueue(given)
    job = scene.get(holder.id)
    assert answer.job == job
    assert (answer.created, answer.replaced) == (False, True)
    assert (job.id, job.created_at) == (holder.id, holder.created_at)
    assert job.run_at == scene.now + timedelta(seconds=30)
    assert job.expires_at == scene.now + timedelta(hours=2)
    names = ("arguments", "queue", "priority", "max_attempts", "max_crashes", "key_window")
    for name in (*names, "owner", "tenant", "timeout", "tags", "metadata"):
        assert getattr(job, name) == getattr(given, name), name
    assert scene.store.run(scene.store.get([given.id])) == [None]
    scene.advance(30)
    assert [each.id for each in scene.claim(scene.hire(), queues=["other"])] == [holder.id]


def test_replace_comes_too_late_for_a_running_job(scene: Scene) -> None:
    scene.submit(key="k", arguments="1")
    running = scene.take()
    (answer,) = scene.enqueue(draft(key="k", arguments="2", key_policy=REPLACE))
    assert (answer.created, answer.replaced) == (False, False)
    assert answer.job == running == scene.get(running.id)


def test_replace_comes_too_late_for_a_job_between_attempts(scene: Scene) -> None:
    scene.submit(key="k", arguments="1", max_attempts=3)
    waiting = scene.fail(scene.take(), delay=60)
    (answer,) = scene.enqueue(draft(key="k", arguments="2", key_policy=REPLACE))
    assert not answer.replaced
    assert answer.job == waiting == scene.get(waiting.id)


def test_replace_reaches_a_job_that_was_given_back(scene: Scene) -> None:
    scene.submit(key="k", arguments="1")
    taken = scene.take()
    scene.settle(release(taken.id, taken.token))
    (answer,) = scene.enqueue(draft(key="k", arguments="2", key_policy=REPLACE))
    assert answer.replaced
    job = scene.get(taken.id)
    assert (job.arguments, job.token) == ("2", 1)
    assert scene.take().token == 2


def test_replace_starts_a_crashed_job_afresh_but_still_alone(scene: Scene) -> None:
    scene.submit(key="k", max_crashes=5)
    for _ in range(3):
        scene.crash(scene.take())
    (answer,) = scene.enqueue(draft(key="k", arguments="2", key_policy=REPLACE))
    job = scene.get(answer.job.id)
    assert answer.job == job
    assert (job.arguments, job.crashes, job.error, job.alone) == ("2", 0, None, True)


def test_replace_of_a_finished_job_within_its_window_changes_nothing(scene: Scene) -> None:
    scene.submit(key="k", key_window=60.0)
    done = scene.succeed(scene.take())
    (answer,) = scene.enqueue(draft(key="k", arguments="2", key_policy=REPLACE))
    assert (answer.created, answer.replaced) == (False, False)
    assert answer.job == done == scene.get(done.id)


def test_a_succeeded_job_lets_go_of_its_key(scene: Scene) -> None:
    scene.submit(key="k")
    scene.succeed(scene.take())
    assert scene.enqueue(draft(key="k", key_policy=REJECT))[0].created


@pytest.mark.parametrize("window", [None, 60.0])
def test_jobs_that_end_together_let_go_of_their_own_keys_only(
    scene: Scene, window: float | None
) -> None:
    ending = [
        scene.submit(task=task, key=key, key_window=window)
        for task, key in (("one", "a"), ("two", "b"))
    ]
    staying = [scene.submit(task=task, key=key) for task, key in (("one", "b"), ("two", "a"))]
    taken = {job.id: job for job in scene.claim(scene.hire(), tasks=("one", "two"))}
    assert scene.settle(*(succeed(job.id, taken[job.id].token, "1") for job in ending)) == [
        True,
        True,
    ]
    for job in staying:
        assert scene.submit(task=job.task, key=job.key).id == job.id
    for job in ending:
        assert (scene.submit(task=job.task, key=job.key).id == job.id) is (window is not None)
    scene.advance(60.0)
    for job in staying:
        assert scene.submit(task=job.task, key=job.key).id == job.id


def test_a_dead_job_lets_go_of_its_key(scene: Scene) -> None:
    scene.submit(key="k")
    scene.kill(scene.take())
    assert scene.enqueue(draft(key="k", key_policy=REJECT))[0].created


def test_a_cancelled_job_lets_go_of_its_key(scene: Scene) -> None:
    scene.cancel(scene.submit(key="k").id)
    assert scene.enqueue(draft(key="k", key_policy=REJECT))[0].created
    taken = scene.take()
    scene.settle(cancel(taken.id, taken.token, "no"))
    assert scene.enqueue(draft(key="k", key_policy=REJECT))[0].created


def test_an_expired_job_lets_go_of_its_key(scene: Scene) -> None:
    scene.submit(key="a", expires_after=timedelta(seconds=1))
    scene.submit(key="b", expires_after=timedelta(seconds=1))
    scene.advance(1)
    assert scene.claim(scene.hire(), 1) == []
    assert scene.expire() == 1
    answers = scene.enqueue(draft(key="a", key_policy=REJECT), draft(key="b", key_policy=REJECT))
    assert all(answer.created for answer in answers)


@pytest.mark.parametrize("outcome", ["retry", "release", "snooze", "crash"])
def test_a_job_that_goes_back_keeps_its_key(scene: Scene, outcome: str) -> None:
    scene.submit(key="k", max_attempts=5)
    job = scene.take()
    if outcome == "retry":
        scene.fail(job)
    elif outcome == "release":
        scene.settle(release(job.id, job.token))
    elif outcome == "snooze":
        scene.settle(snooze(job.id, job.token, timedelta(seconds=1)))
    else:
        scene.crash(job)
    (answer,) = scene.enqueue(draft(key="k"))
    assert (answer.created, answer.job.id) == (False, job.id)


@pytest.mark.parametrize("ending", ["succeed", "die", "cancel", "expire"])
def test_a_window_holds_the_key_for_its_time(scene: Scene, ending: str) -> None:
    expiry = timedelta(seconds=1) if ending == "expire" else None
    job = scene.submit(key="k", key_window=60.5, expires_after=expiry)
    if ending == "succeed":
        scene.succeed(scene.take())
    elif ending == "die":
        scene.kill(scene.take())
    elif ending == "cancel":
        scene.cancel(job.id)
    else:
        scene.advance(1)
        assert scene.expire() == 1
    scene.advance(60.4)
    (answer,) = scene.enqueue(draft(key="k"))
    assert (answer.created, answer.job.id) == (False, job.id)
    assert answer.job == scene.get(job.id)
    with pytest.raises(KeyConflict):
        scene.submit(key="k", key_policy=REJECT)
    scene.advance(0.1)
    assert scene.enqueue(draft(key="k", key_policy=REJECT))[0].created


def test_a_finished_id_submitted_again_within_its_window_is_answered_with_the_job(
    scene: Scene,
) -> None:
    given = draft(key="k", key_window=60.0)
    scene.enqueue(given)
    done = scene.succeed(scene.take())
    (answer,) = scene.enqueue(given)
    assert (answer.created, answer.job) == (False, done)
    assert scene.claim(scene.hire()) == []
    assert scene.counts() == {("default", State.SUCCEEDED): 1}


def test_a_purged_holder_does_not_hold(scene: Scene) -> None:
    scene.submit(key="k", key_window=3600.0)
    scene.succeed(scene.take())
    scene.advance(1)
    assert scene.store.run(scene.store.purge(State.SUCCEEDED, scene.now, 10)) == 1
    (answer,) = scene.enqueue(draft(key="k", key_policy=REJECT))
    assert answer.created
    scene.advance(7200)
    assert not scene.enqueue(draft(key="k"))[0].created


def test_a_new_holder_s_own_window_counts(scene: Scene) -> None:
    scene.submit(key="k", key_window=60.0)
    scene.succeed(scene.take())
    scene.advance(60)
    second = scene.submit(key="k")
    scene.advance(1000)
    assert scene.enqueue(draft(key="k"))[0].job.id == second.id
    scene.succeed(scene.take())
    assert scene.enqueue(draft(key="k"))[0].created


def test_repeats_in_one_batch_are_one_job(scene: Scene) -> None:
    first, second, other = draft(key="k"), draft(key="k"), draft(key="l")
    answers = scene.enqueue(first, second, other)
    assert [answer.created for answer in answers] == [True, False, True]
    assert [answer.job.id for answer in answers] == [first.id, first.id, other.id]
    assert scene.counts() == {("default", State.PENDING): 2}


def test_a_repeat_that_replaces_wins_over_the_first(scene: Scene) -> None:
    first = draft(key="k", arguments="1")
    second = draft(key="k", arguments="2", key_policy=REPLACE)
    third = draft(key="k", arguments="3")
    answers = scene.enqueue(first, second, third)
    assert {answer.job.id for answer in answers} == {second.id}
    assert {answer.job.arguments for answer in answers} == {"2"}
    assert [answer.created for answer in answers] == [False, True, False]
    assert scene.counts() == {("default", State.PENDING): 1}


def test_a_repeat_that_rejects_fails_the_batch(scene: Scene) -> None:
    with pytest.raises(KeyConflict):
        scene.enqueue(draft(key="k"), draft(key="k", key_policy=REJECT))
    assert scene.counts() == {}


def test_repeats_of_a_held_key_all_get_the_holder(scene: Scene) -> None:
    holder = scene.submit(key="k")
    answers = scene.enqueue(draft(key="k"), draft(), draft(key="k", key_policy=REPLACE))
    assert [answer.job.id == holder.id for answer in answers] == [True, False, True]
    assert [answer.replaced for answer in answers] == [False, False, True]


def test_replay_takes_the_key_again(scene: Scene) -> None:
    job = scene.dead(key="k")
    assert scene.replay(job.id) == [Replay.REPLAYED]
    (answer,) = scene.enqueue(draft(key="k"))
    assert (answer.created, answer.job.id) == (False, job.id)


def test_replay_finds_the_key_held_by_another(scene: Scene) -> None:
    job = scene.dead(key="k")
    scene.submit(key="k")
    assert scene.replay(job.id) == [Replay.KEY_HELD]
    assert scene.state(job.id) is State.DEAD
    scene.succeed(scene.take())
    assert scene.replay(job.id) == [Replay.REPLAYED]


def test_replay_finds_the_key_held_by_a_window(scene: Scene) -> None:
    job = scene.dead(key="k")
    scene.submit(key="k", key_window=60.0)
    scene.succeed(scene.take())
    assert scene.replay(job.id) == [Replay.KEY_HELD]
    scene.advance(60)
    assert scene.replay(job.id) == [Replay.REPLAYED]


def test_a_job_replayed_within_its_own_window_keeps_the_key_beyond_it(scene: Scene) -> None:
    job = scene.dead(key="k", key_window=60.0)
    scene.advance(30)
    assert scene.replay(job.id) == [Replay.REPLAYED]
    scene.advance(1000)
    (answer,) = scene.enqueue(draft(key="k"))
    assert (answer.created, answer.job.id) == (False, job.id)


def test_two_dead_jobs_of_one_key_replayed_together_the_first_gets_it(scene: Scene) -> None:
    older = scene.dead(key="k")
    newer = scene.dead(key="k")
    assert scene.replay(newer.id, older.id) == [Replay.REPLAYED, Replay.KEY_HELD]
    assert scene.state(older.id) is State.DEAD
    assert scene.enqueue(draft(key="k"))[0].job.id == newer.id


@pytest.mark.parametrize("fields", [{}, {"key_window": 30.0}])
def test_a_key_has_one_live_job_at_most(scene: Scene, fields: dict[str, Any]) -> None:
    seen = set()
    for _ in range(10):
        seen.add(scene.submit(key="k", **fields).id)
        assert scene.counts()["default", State.PENDING] == 1
        scene.succeed(scene.take())
        scene.advance(30)
    assert len(seen) == 10
