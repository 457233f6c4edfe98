"""A claim takes due jobs in order, each for one worker, and nothing that it must not."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from duly.errors import LeaseLost
from duly.model.identifiers import new_id
from duly.model.job import Delivery, JobRecord, Priority, State
from duly.model.settlement import release
from tests.support.stores import LEASE, Scene, draft


def _ids(jobs: list[JobRecord]) -> list[UUID]:
    return [job.id for job in jobs]


def test_a_claim_makes_the_job_running_under_the_worker(scene: Scene) -> None:
    job = scene.submit()
    holder = scene.hire()
    scene.advance(2)
    (claimed,) = scene.claim(holder)
    assert claimed == scene.get(job.id)
    assert claimed.state is State.RUNNING
    assert (claimed.worker, claimed.token, claimed.attempt) == (holder, 1, 1)
    assert claimed.started_at == scene.now
    assert claimed.run_at == job.run_at
    assert scene.claim(holder) == []


def test_priority_then_due_time_then_id(scene: Scene) -> None:
    def at(seconds: float, priority: int) -> UUID:
        return scene.submit(run_at=scene.now + timedelta(seconds=seconds), priority=priority).id

    low = at(-100, Priority.LOW)
    normal_late, normal_early = at(-1, 5), at(-50, 5)
    twin_one, twin_two = at(-20, 5), at(-20, 5)
    between = at(-3, 7)
    urgent = at(0, Priority.URGENT)
    at(0.001, 100)
    order = [urgent, between, normal_early, twin_one, twin_two, normal_late, low]
    holder = scene.hire()
    assert _ids(scene.claim(holder, 3)) == order[:3]
    assert _ids(scene.claim(holder, 1)) == order[3:4]
    assert _ids(scene.claim(holder, 10)) == order[4:]


def test_a_claim_tells_all_of_jobs_that_differ(scene: Scene) -> None:
    day = timedelta(days=1)
    jobs = [
        scene.submit(**fields)
        for turn in range(2)
        for fields in (
            {},
            {"arguments": '{"a": 1}'},
            {"run_at": scene.now - 10_000 * day},
            {"queue": "second"},
            {"priority": 6},
            {"key": f"key {turn}", "key_window": 1.5},
            {"owner": "owner", "tenant": "tenant"},
            {"max_attempts": 7, "max_crashes": 8},
            {"timeout": 2.5},
            {"expires_at": scene.now + day},
            {"tags": ("one", "two"), "metadata": '{"b": 2}'},
            {"schedule_id": "nightly", "scheduled_for": scene.now - day},
            {"delivery": Delivery.AT_MOST_ONCE},
        )
    ]
    claimed = scene.claim(scene.hire(), 100, queues=())
    assert sorted(_ids(claimed)) == sorted(_ids(jobs))
    assert claimed == [scene.get(job.id) for job in claimed]


def test_order_runs_across_the_lanes_of_one_priority(scene: Scene) -> None:
    jobs = [
        scene.submit(task=task, queue=queue, run_at=scene.now - timedelta(seconds=age))
        for age, (task, queue) in enumerate([("a", "x"), ("b", "y"), ("a", "y"), ("b", "x")] * 3)
    ]
    holder = scene.hire()
    claimed = scene.claim(holder, 5, ["x", "y"], ["a", "b"])
    claimed += scene.claim(holder, 50, ["x", "y"], ["a", "b"])
    assert _ids(claimed) == _ids(jobs[::-1])


def test_only_what_is_due(scene: Scene) -> None:
    job = scene.submit(delay=timedelta(seconds=10))
    holder = scene.hire()
    scene.advance(9.999999)
    assert scene.claim(holder) == []
    scene.advance(0.000001)
    assert _ids(scene.claim(holder)) == [job.id]


def test_no_more_than_the_limit(scene: Scene) -> None:
    scene.submit_many(20)
    holder = scene.hire()
    assert len(scene.claim(holder, 7)) == 7
    assert len(scene.claim(holder, 100)) == 13
    assert scene.claim(holder, 0) == []


def test_only_the_demanded_queues_and_tasks(scene: Scene) -> None:
    wanted = scene.submit(queue="mail", task="send")
    scene.submit(queue="mail", task="other")
    scene.submit(queue="other", task="send")
    holder = scene.hire()
    assert _ids(scene.claim(holder, 10, ["mail"], ["send"])) == [wanted.id]
    assert scene.claim(holder, 10, ["mail"], []) == []
    assert scene.claim(holder, 10, ["nowhere"], ["unheard"]) == []


def test_no_queues_means_every_queue(scene: Scene) -> None:
    jobs = [scene.submit(queue=queue) for queue in ("one", "two", "three")]
    assert scene.next_due([], ["work"]) == 0
    scene.store.run(scene.store.pause_queue("two"))
    holder = scene.hire()
    assert _ids(scene.claim(holder, 10, [], ["work"])) == [jobs[0].id, jobs[2].id]
    assert scene.claim(holder, 10, [], []) == []


def test_jobs_of_an_unknown_task_wait_until_somebody_knows_it(scene: Scene) -> None:
    waiting = scene.submit(task="removed", priority=100)
    scene.submit()
    holder = scene.hire()
    assert [job.task for job in scene.claim(holder)] == ["work"]
    job = scene.get(waiting.id)
    assert (job.state, job.token, job.attempt) == (State.PENDING, 0, 0)
    assert _ids(scene.claim(holder, tasks=["work", "removed"])) == [waiting.id]


def test_paused_queues_are_left_alone(scene: Scene) -> None:
    kept = scene.submit(queue="paused", priority=100)
    other = scene.submit(queue="open")
    scene.store.run(scene.store.pause_queue("paused"))
    holder = scene.hire()
    assert _ids(scene.claim(holder, 10, ["paused", "open"])) == [other.id]
    assert scene.state(kept.id) is State.PENDING
    scene.store.run(scene.store.resume_queue("paused"))
    assert _ids(scene.claim(holder, 10, ["paused", "open"])) == [kept.id]


def test_the_share_of_the_longest_waiting(scene: Scene) -> None:
    low = [
        scene.submit(priority=1, run_at=scene.now - timedelta(hours=hours)) for hours in (3, 2, 1)
    ]
    high = scene.submit_many(10, priority=10)
    claimed = scene.claim(scene.hire(), 5, longest_waiting=2)
    assert _ids(claimed) == _ids(high[:3] + low[:2])


def test_the_longest_waiting_may_be_of_any_priority(scene: Scene) -> None:
    middle = scene.submit(priority=5, run_at=scene.now - timedelta(hours=2))
    low = scene.submit(priority=1, run_at=scene.now - timedelta(hours=3))
    high = scene.submit_many(10, priority=10)
    claimed = scene.claim(scene.hire(), 4, longest_waiting=2)
    assert _ids(claimed) == [high[0].id, high[1].id, middle.id, low.id]


def test_the_share_is_filled_up_by_whatever_is_due(scene: Scene) -> None:
    jobs = scene.submit_many(6)
    claimed = scene.claim(scene.hire(), 5, longest_waiting=2)
    assert _ids(claimed) == _ids(jobs[:5])
    assert len(scene.claim(scene.hire(), 5, longest_waiting=5)) == 1


def test_the_share_includes_those_already_chosen_by_priority(scene: Scene) -> None:
    oldest = scene.submit(priority=10, run_at=scene.now - timedelta(days=1))
    low = scene.submit(priority=1, run_at=scene.now - timedelta(hours=1))
    rest = scene.submit_many(4, priority=10)
    claimed = scene.claim(scene.hire(), 3, longest_waiting=1)
    assert _ids(claimed) == [oldest.id, rest[0].id, low.id]


def test_tokens_always_increase(scene: Scene) -> None:
    scene.submit(max_attempts=100)
    tokens = []
    for turn in range(6):
        job = scene.take()
        tokens.append(job.token)
        if turn % 3 == 0:
            scene.fail(job)
        elif turn % 3 == 1:
            scene.settle(release(job.id, job.token))
        else:
            scene.crash(job)
    assert tokens == [1, 2, 3, 4, 5, 6]
    scene.kill(job := scene.take())
    scene.replay(job.id)
    assert scene.take().token == 8


def test_no_claim_without_a_lease(scene: Scene) -> None:
    job = scene.submit()
    stranger = new_id()
    with pytest.raises(LeaseLost) as lost:
        scene.claim(stranger)
    assert lost.value.worker == stranger
    assert scene.state(job.id) is State.PENDING


def test_no_claim_after_the_lease(scene: Scene) -> None:
    holder = scene.hire()
    job = scene.submit(delay=LEASE)
    scene.advance(LEASE.total_seconds() - 0.000001)
    assert scene.claim(holder) == []
    scene.advance(0.000001)
    with pytest.raises(LeaseLost):
        scene.claim(holder)
    assert scene.state(job.id) is State.PENDING
    scene.store.run(scene.store.renew([holder], LEASE, scene.now))
    assert _ids(scene.claim(holder)) == [job.id]


def test_no_claim_after_the_worker_was_reaped(scene: Scene) -> None:
    holder = scene.hire()
    scene.reap(holder, expired_only=False)
    scene.submit()
    with pytest.raises(LeaseLost):
        scene.claim(holder)


def test_a_claim_ahead_is_made_as_of_then(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit(delay=timedelta(seconds=10))
    later = scene.submit(delay=timedelta(seconds=11))
    moment = scene.now + timedelta(seconds=10)
    assert scene.claim(holder) == []
    (job,) = scene.claim(holder, due_by=moment)
    assert job.started_at == job.run_at == moment
    assert scene.state(later.id) is State.PENDING


def test_each_job_of_a_claim_ahead_is_claimed_as_of_its_own_time(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit_many(1)
    scene.submit(delay=timedelta(seconds=1))
    scene.submit(delay=timedelta(seconds=2))
    jobs = scene.claim(holder, due_by=scene.now + timedelta(seconds=3))
    after = [timedelta(seconds=seconds) for seconds in (0, 1, 2)]
    assert [job.started_at for job in jobs] == [scene.now + each for each in after]


def test_a_claim_ahead_judges_by_the_time_of_each_whether_it_has_expired(scene: Scene) -> None:
    holder = scene.hire()
    due = scene.now + timedelta(seconds=1)
    inside = scene.submit(run_at=due, expires_at=due + timedelta(seconds=1))
    outside = scene.submit(run_at=due, expires_at=due)
    taken = scene.claim(holder, due_by=due + timedelta(seconds=5))
    assert _ids(taken) == [inside.id]
    assert scene.state(outside.id) is State.CANCELLED


def test_a_claim_ahead_that_comes_late_is_one_like_any_other(scene: Scene) -> None:
    holder = scene.hire()
    scene.submit_many(2, delay=timedelta(seconds=1))
    moment = scene.now + timedelta(seconds=1)
    scene.advance(LEASE.total_seconds() - 1)
    (job,) = scene.claim(holder, 1, due_by=moment)
    assert job.started_at == scene.now
    scene.advance(2)
    with pytest.raises(LeaseLost):
        scene.claim(holder, 1, due_by=moment)


def test_two_workers_share_without_overlap(scene: Scene) -> None:
    jobs = scene.submit_many(9)
    one, two = scene.hire(), scene.hire()
    taken = _ids(scene.claim(one, 4) + scene.claim(two, 4) + scene.claim(one, 4))
    assert taken == _ids(jobs)
    assert scene.get(jobs[5].id).worker == two


def test_at_most_once_starts_with_begin(scene: Scene) -> None:
    job = scene.submit(delivery=Delivery.AT_MOST_ONCE)
    taken = scene.take()
    assert taken.started_at is None
    scene.advance(3)
    assert scene.begin(taken)
    began = scene.now
    scene.advance(3)
    assert not scene.begin(taken), "its code may have run"
    assert scene.get(job.id).started_at == began


def test_begin_with_a_stale_token_changes_nothing(scene: Scene) -> None:
    job = scene.submit(delivery=Delivery.AT_MOST_ONCE)
    first = scene.take()
    scene.settle(release(first.id, first.token))
    assert not scene.begin(first)
    second = scene.take()
    assert not scene.begin(first)
    assert scene.get(job.id).started_at is None
    assert scene.begin(second)
    scene.succeed(second)
    assert not scene.begin(second)
    assert not scene.store.run(scene.store.begin(new_id(), 1, scene.now))


def test_five_thousand_in_one_claim(scene: Scene) -> None:
    drafts = [draft(priority=number % 3) for number in range(5000)]
    scene.enqueue(*drafts)
    claimed = scene.claim(scene.hire(), 5000)
    assert _ids(claimed) == [
        each.id for each in sorted(drafts, key=lambda each: (-each.priority, each.id))
    ]


def test_next_due(scene: Scene) -> None:
    assert scene.next_due() is None
    scene.submit(delay=timedelta(seconds=90.5), priority=1)
    scene.submit(delay=timedelta(seconds=200), priority=100)
    scene.submit(task="other", delay=timedelta(seconds=5))
    scene.submit(queue="other", delay=timedelta(seconds=4))
    assert scene.next_due() == 90.5
    assert scene.next_due(tasks=["work", "other"]) == 5
    assert scene.next_due(queues=["default", "other"]) == 4
    assert scene.next_due(tasks=["unknown"]) is None
    scene.advance(100)
    assert scene.next_due() == -9.5
    scene.take()
    assert scene.next_due() == 100
    scene.store.run(scene.store.pause_queue("default"))
    assert scene.next_due() is None


def test_run_now(scene: Scene) -> None:
    later = scene.submit(delay=timedelta(hours=1))
    early = scene.submit(run_at=scene.now - timedelta(hours=1), priority=100)
    running = scene.take()
    assert running.id == early.id
    done = scene.finished()
    assert scene.run_now(later.id, running.id, done.id, new_id(), later.id) == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert scene.get(later.id).run_at == scene.now
    assert scene.get(running.id) == running
    assert scene.take().id == later.id


def test_run_now_does_not_put_a_due_job_back_in_the_line(scene: Scene) -> None:
    due = scene.submit(run_at=scene.now - timedelta(seconds=10))
    assert scene.run_now(due.id) == [True]
    assert scene.get(due.id).run_at == due.run_at
