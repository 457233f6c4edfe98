"""Schedules: their steps land once, their ticks are unique, and the ends of jobs reach them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from duly.clock import ManualClock
from duly.model.identifiers import new_id
from duly.model.job import Delivery, JobRecord, State
from duly.model.query import Cancellation, JobFilter
from duly.model.schedule import (
    LONGEST_RESULT_KEPT,
    MOST_BUFFERED_SHOWN,
    Definition,
    JobTemplate,
    Look,
    Overlap,
    ScheduleRecord,
    Step,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.model.settlement import bury, cancel, succeed
from duly.policy.recurrence import Recurrence, every
from duly.policy.schedule_changes import (
    applied,
    backfilled,
    begun,
    paused,
    redefined,
    resumed,
    triggered,
    unchanged,
    with_jobs,
)
from duly.policy.ticking import decide
from duly.store.protocol import Store
from tests.support.stores import TASK, Scene, failure

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def definition(**fields: Any) -> Definition:
    """An every-minute schedule, some of its fields given."""
    recurrence = fields.pop("rule", Recurrence((every(minutes=1),)))
    text = msgspec.json.encode(recurrence).decode()
    return Definition(**{"task": TASK, "arguments": "{}", "recurrence": text, **fields})


class Timetable(Scene):
    """A scene with schedules."""

    def add(self, schedule_id: str = "s", **fields: Any) -> ScheduleRecord:
        """Add a schedule, which must not exist."""
        schedule = begun(schedule_id, definition(**fields), self.now)
        assert self.store.run(self.store.add_schedules([schedule])) == [True]
        return schedule

    def look(self, schedule_id: str = "s") -> Look:
        """Look at a schedule, which must exist."""
        (look,) = self.store.run(self.store.look([schedule_id], self.now))
        assert look is not None
        return look

    def schedule(self, schedule_id: str = "s") -> ScheduleRecord:
        """The schedule, which must exist."""
        return self.look(schedule_id).schedule

    def due(self, limit: int = 100) -> list[Look]:
        """What is due now."""
        return self.store.run(self.store.due_schedules(limit, self.now))

    def fire(self, *steps: Step) -> list[bool]:
        """Take steps in one transaction."""
        return self.store.run(self.store.fire(steps, self.now))

    def tick(self) -> int:
        """What a scheduler does, until nothing is due; answers how many steps landed."""
        landed = 0
        while looks := self.due():
            steps = [with_jobs(look.schedule, decide(look), new_id) for look in looks]
            landed += sum(self.fire(*steps))
        return landed

    def change(self, make: Callable[[Look], ScheduleRecord], schedule_id: str = "s") -> bool:
        """Account for everything and change the schedule."""
        look = self.look(schedule_id)
        step = with_jobs(look.schedule, decide(look, everything=True), new_id)
        changed = make(msgspec.structs.replace(look, schedule=applied(look.schedule, step)))
        return self.store.run(self.store.change_schedule(changed, step, self.now))

    def ticks(self, schedule_id: str = "s", limit: int = 1000) -> list[Tick]:
        """What became of the schedule's ticks, earliest first."""
        return self.store.run(self.store.ticks(schedule_id, limit))[::-1]

    def told(self, schedule_id: str = "s") -> list[tuple[str, int, int]]:
        """Outcome, minute and count of each tick, earliest first."""
        return [
            (tick.outcome.value, round((tick.nominal - START) / MINUTE), tick.count)
            for tick in self.ticks(schedule_id)
        ]

    def jobs(self, **criteria: Any) -> list[JobRecord]:
        """Jobs, oldest first."""
        return self.store.run(self.store.find(JobFilter(**criteria), 10_000))[::-1]

    def run_one(self, end: Callable[[JobRecord], Any]) -> JobRecord:
        """Claim the one due job and end it."""
        job = self.take()
        end(job)
        return job


@pytest.fixture
def table(store: Store) -> Timetable:
    return Timetable(store, ManualClock(START))


def test_a_schedule_reads_as_it_was_written(table: Timetable) -> None:
    whole = Definition(
        task="shop.report",
        arguments='{"zone": "żółć"}',
        recurrence=msgspec.json.encode(Recurrence((every(hours=1),), jitter_seconds=5)).decode(),
        template=JobTemplate(
            queue="mail", priority=20, timeout=1.5, tags=("a", "b"), metadata='{"x": 1}'
        ),
        overlap=Overlap.BUFFER_ALL,
        pause_after_failures=3,
    )
    schedule = msgspec.structs.replace(
        begun("reports/daily", whole, table.now, fingerprint="f"),
        note="a note",
        last_finished_at=table.now,
        last_success_for=table.now,
        last_result='{"rows": 7}',
        skipping_since=table.now,
        failures_in_a_row=2,
    )
    assert table.store.run(table.store.add_schedules([schedule])) == [True]
    look = table.look("reports/daily")
    assert look.schedule == schedule
    assert (look.live, look.buffered, look.now) == (False, (), table.now)


def test_a_name_is_taken_once(table: Timetable) -> None:
    first = begun("a", definition(), table.now)
    again = begun("a", definition(overlap=Overlap.ALLOW), table.now)
    other = begun("b", definition(), table.now)
    assert table.store.run(table.store.add_schedules([first])) == [True]
    assert table.store.run(table.store.add_schedules([again, other])) == [False, True]
    assert table.schedule("a") == first
    assert table.store.run(table.store.look(["b", "c", "a"], table.now))[1] is None


def test_listed_in_the_order_of_bytes_page_by_page(table: Timetable) -> None:
    names = ["a", "B", "é", "a-1", "Z", "b", "a1"]
    table.store.run(
        table.store.add_schedules([begun(name, definition(), table.now) for name in names])
    )
    pages, after = [], None
    while page := table.store.run(table.store.schedules(3, after)):
        pages.append([schedule.id for schedule in page])
        after = page[-1].id
    assert [name for page in pages for name in page] == sorted(names, key=str.encode)
    assert [len(page) for page in pages] == [3, 3, 1]


def test_the_clock(table: Timetable) -> None:
    assert table.store.run(table.store.clock(table.now)) == table.now
    assert abs(table.store.run(table.store.clock()) - datetime.now(UTC)) < MINUTE


def test_due_in_order_and_not_before(table: Timetable) -> None:
    table.add("minute")
    table.add("hour", rule=Recurrence((every(hours=1),)))
    assert table.store.run(table.store.next_schedule_due(table.now)) == 60
    table.advance(59.999999)
    assert table.due() == []
    assert table.store.run(table.store.next_schedule_due(table.now)) == pytest.approx(1e-6)
    table.advance(0.000001)
    assert [look.schedule.id for look in table.due()] == ["minute"]
    assert table.store.run(table.store.next_schedule_due(table.now)) == 0
    table.advance(3540)
    assert [look.schedule.id for look in table.due()] == ["minute", "hour"]
    assert [look.schedule.id for look in table.due(1)] == ["minute"]


def test_nothing_is_due_without_schedules(table: Timetable) -> None:
    assert table.due() == []
    assert table.store.run(table.store.next_schedule_due()) is None


def test_a_tick_its_job_and_the_advance_are_one(table: Timetable) -> None:
    made = table.add(
        arguments='{"n": 1}', template=JobTemplate(queue="q", priority=7, expires_after=30.0)
    )
    table.advance(61)
    assert table.tick() == 1
    (tick,) = table.ticks()
    (job,) = table.jobs()
    assert (tick.nominal, tick.outcome, tick.job_id) == (START + MINUTE, TickOutcome.FIRED, job.id)
    assert (tick.kind, tick.until, tick.count, tick.at) == (TickKind.TICK, None, 1, table.now)
    assert (job.schedule_id, job.scheduled_for) == ("s", START + MINUTE)
    assert (job.arguments, job.queue, job.priority) == ('{"n": 1}', "q", 7)
    assert (job.run_at, job.expires_at) == (table.now, table.now + timedelta(seconds=30))
    after = table.schedule()
    assert after.revision == made.revision + 1
    assert (after.accounted_until, after.next_at) == (START + MINUTE, START + 2 * MINUTE)
    assert (after.due_at, after.updated_at) == (START + 2 * MINUTE, table.now)


def test_of_two_schedulers_one_fires(table: Timetable) -> None:
    table.add()
    table.advance(60)
    (look,) = table.due()
    mine, theirs = (with_jobs(look.schedule, decide(look), new_id) for _ in range(2))
    assert table.fire(mine) == [True]
    assert table.fire(theirs) == [False]
    assert len(table.jobs()) == len(table.ticks()) == 1


def test_a_batch_lands_in_part(table: Timetable) -> None:
    for name in ("a", "b", "c"):
        table.add(name)
    table.advance(60)
    steps = [with_jobs(look.schedule, decide(look), new_id) for look in table.due()]
    assert table.fire(*[step for step in steps if step.schedule_id == "b"]) == [True]
    assert table.fire(*steps) == [step.schedule_id != "b" for step in steps]
    assert sorted(str(job.schedule_id) for job in table.jobs()) == ["a", "b", "c"]


def test_the_row_of_a_tick_is_the_second_safety(table: Timetable) -> None:
    """Even with the revision of the schedule, a tick that has its row makes no job."""
    table.add()
    table.advance(60)
    (look,) = table.due()
    assert table.fire(with_jobs(look.schedule, decide(look), new_id)) == [True]
    forged = with_jobs(look.schedule, decide(look), new_id)
    forged = msgspec.structs.replace(forged, revision=table.schedule().revision)
    assert table.fire(forged) == [True]
    assert len(table.jobs()) == len(table.ticks()) == 1


def test_a_schedule_made_anew_is_not_taken_for_the_old_one(table: Timetable) -> None:
    table.add()
    table.advance(60)
    (look,) = table.due()
    stale = with_jobs(look.schedule, decide(look), new_id)
    assert table.store.run(table.store.remove_schedule("s", look.schedule.revision, table.now))
    table.advance(1)
    table.add()
    assert table.fire(stale) == [False]
    assert table.jobs() == []


def test_a_live_job_is_seen(table: Timetable) -> None:
    table.add()
    table.advance(60)
    table.tick()
    assert table.look().live
    job = table.take()
    assert table.look().live
    table.succeed(job)
    assert not table.look().live


def test_skipped_ticks_extend_one_row(table: Timetable) -> None:
    table.add()
    for _ in range(5):
        table.advance(60)
        table.tick()
    assert table.told() == [("fired", 1, 1), ("skipped", 2, 4)]
    assert table.ticks()[1].until == START + 5 * MINUTE
    table.run_one(table.succeed)
    table.advance(60)
    table.tick()
    table.advance(60)
    table.tick()
    assert table.told()[2:] == [("fired", 6, 1), ("skipped", 7, 1)]
    assert len(table.jobs()) == 2


def test_buffered_ticks_are_fired_one_after_another(table: Timetable) -> None:
    table.add(overlap=Overlap.BUFFER_ALL)
    for _ in range(3):
        table.advance(60)
        table.tick()
    assert table.told() == [("fired", 1, 1), ("buffered", 2, 1), ("buffered", 3, 1)]
    assert [tick.nominal for tick in table.look().buffered] == [
        START + 2 * MINUTE,
        START + 3 * MINUTE,
    ]
    assert table.due() == []
    table.run_one(table.succeed)
    assert [look.schedule.id for look in table.due()] == ["s"]
    table.tick()
    assert table.told() == [("fired", 1, 1), ("fired", 2, 1), ("buffered", 3, 1)]
    table.run_one(table.succeed)
    table.tick()
    table.run_one(table.succeed)
    table.tick()
    assert [job.scheduled_for for job in table.jobs()] == [START + n * MINUTE for n in (1, 2, 3)]
    assert {job.state for job in table.jobs()} == {State.SUCCEEDED}
    assert not table.schedule().awaits_end


def test_only_the_first_buffered_ticks_are_shown(table: Timetable) -> None:
    table.add(rule=Recurrence((every(seconds=1),)), overlap=Overlap.BUFFER_ALL, catch_up="all")
    table.advance(1)
    table.tick()
    table.advance(MOST_BUFFERED_SHOWN + 50)
    table.tick()
    shown = [tick.nominal for tick in table.look().buffered]
    assert shown == [START + timedelta(seconds=n + 2) for n in range(MOST_BUFFERED_SHOWN)]


def test_cancel_other_cancels_and_waits_for_the_end(table: Timetable) -> None:
    table.add(overlap=Overlap.CANCEL_OTHER)
    table.advance(60)
    table.tick()
    running = table.take()
    table.advance(60)
    table.tick()
    assert table.told() == [("fired", 1, 1), ("buffered", 2, 1)]
    assert running.worker is not None
    asked = table.store.run(table.store.cancel_requests(running.worker))
    assert asked == [(running.id, running.token)]
    table.advance(60)
    table.tick()
    assert table.told() == [("fired", 1, 1), ("skipped", 2, 1), ("buffered", 3, 1)]
    table.settle(cancel(running.id, running.token, "asked to"))
    table.tick()
    assert table.told() == [("fired", 1, 1), ("skipped", 2, 1), ("fired", 3, 1)]


def test_cancel_other_replaces_a_job_that_has_not_started(table: Timetable) -> None:
    table.add(overlap=Overlap.CANCEL_OTHER)
    table.advance(60)
    table.tick()
    table.advance(60)
    table.tick()
    assert [job.state for job in table.jobs()] == [State.CANCELLED, State.PENDING]
    assert table.told() == [("fired", 1, 1), ("fired", 2, 1)]


def test_a_step_that_does_not_land_cancels_nothing(table: Timetable) -> None:
    table.add(overlap=Overlap.CANCEL_OTHER)
    table.advance(60)
    table.tick()
    table.advance(60)
    (look,) = table.due()
    step = msgspec.structs.replace(decide(look), revision=look.schedule.revision - 1)
    assert step.cancels is not None
    assert table.fire(step) == [False]
    assert [job.state for job in table.jobs()] == [State.PENDING]


def test_a_fixed_delay_counts_from_the_end(table: Timetable) -> None:
    table.add(after_finish=300.0)
    table.tick()
    assert [job.scheduled_for for job in table.jobs()] == [START]
    job = table.take()
    table.advance(1000)
    assert table.due() == []
    table.succeed(job)
    table.tick()
    assert table.schedule().next_at == table.now + timedelta(seconds=300)
    table.advance(299)
    assert table.tick() == 0
    table.advance(1)
    table.tick()
    assert [job.scheduled_for for job in table.jobs()] == [START, START + timedelta(seconds=1300)]


def test_a_success_is_remembered(table: Timetable) -> None:
    table.add()
    table.advance(60)
    table.tick()
    table.run_one(lambda job: table.succeed(job, '{"rows": 3}'))
    schedule = table.schedule()
    assert (schedule.last_success_for, schedule.last_result) == (START + MINUTE, '{"rows": 3}')
    assert (schedule.last_finished_at, schedule.failures_in_a_row) == (table.now, 0)


def test_an_earlier_nominal_time_does_not_undo_a_later_success(table: Timetable) -> None:
    table.add(overlap=Overlap.ALLOW)
    for _ in range(2):
        table.advance(60)
        table.tick()
    early, late = table.claim(table.hire())
    table.succeed(late, '"late"')
    table.succeed(early, '"early"')
    schedule = table.schedule()
    assert (schedule.last_success_for, schedule.last_result) == (START + 2 * MINUTE, '"late"')


def test_the_successes_of_one_batch(table: Timetable) -> None:
    table.add("a", overlap=Overlap.ALLOW)
    table.add("b", overlap=Overlap.ALLOW)
    for _ in range(3):
        table.advance(60)
        table.tick()
    jobs = table.claim(table.hire())
    results = [succeed(job.id, job.token, f'"{job.scheduled_for:%M}"') for job in jobs]
    assert table.settle(*results) == [True] * 6
    for name in ("a", "b"):
        schedule = table.schedule(name)
        assert (schedule.last_success_for, schedule.last_result) == (START + 3 * MINUTE, '"03"')


def test_a_long_result_is_left_out(table: Timetable) -> None:
    table.add()
    table.advance(60)
    table.tick()
    table.run_one(lambda job: table.succeed(job, f'"{"x" * LONGEST_RESULT_KEPT}"'))
    schedule = table.schedule()
    assert (schedule.last_success_for, schedule.last_result) == (START + MINUTE, None)


def test_failures_in_a_row_pause_if_asked(table: Timetable) -> None:
    table.add(pause_after_failures=2)
    for failures in (1, 2):
        table.advance(60)
        table.tick()
        table.run_one(table.kill)
        assert table.schedule().failures_in_a_row == failures
    schedule = table.schedule()
    assert (schedule.paused, schedule.note) == (True, "2 failures in a row")
    table.advance(60)
    assert table.due() == []
    assert table.store.run(table.store.next_schedule_due(table.now)) is None


def test_a_success_ends_the_row_of_failures(table: Timetable) -> None:
    table.add(pause_after_failures=2)
    for end in (table.kill, table.succeed, table.kill):
        table.advance(60)
        table.tick()
        table.run_one(end)
    assert table.schedule().failures_in_a_row == 1
    assert not table.schedule().paused


def test_without_a_limit_failures_are_counted_only(table: Timetable) -> None:
    table.add(overlap=Overlap.ALLOW)
    for _ in range(4):
        table.advance(60)
        table.tick()
    jobs = table.claim(table.hire())
    table.settle(*[bury(job.id, job.token, "exhausted", failure()) for job in jobs])
    assert table.schedule().failures_in_a_row == 4
    assert not table.schedule().paused


def test_a_retry_is_not_an_end(table: Timetable) -> None:
    table.add(template=JobTemplate(max_attempts=2))
    table.advance(60)
    table.tick()
    before = table.schedule()
    table.run_one(table.fail)
    assert table.schedule() == before


def _cancelled(table: Timetable) -> None:
    (job,) = table.jobs()
    assert table.cancel(job.id) == [Cancellation.CANCELLED]


def _reaped(table: Timetable) -> None:
    job = table.take()
    assert table.begin(job)
    table.crash(job)


def _expired(table: Timetable) -> None:
    table.advance(31)
    assert table.expire() == 1


def _expired_at_claim(table: Timetable) -> None:
    table.advance(31)
    assert table.claim(table.hire()) == []


@pytest.mark.parametrize("end", [_cancelled, _reaped, _expired, _expired_at_claim])
def test_every_way_to_end_reaches_the_schedule(
    table: Timetable, end: Callable[[Timetable], None]
) -> None:
    delivery = Delivery.AT_MOST_ONCE if end is _reaped else Delivery.AT_LEAST_ONCE
    template = JobTemplate(delivery=delivery, expires_after=30.0)
    table.add(overlap=Overlap.BUFFER_ALL, template=template)
    table.advance(60)
    table.tick()
    end(table)
    schedule = table.schedule()
    assert schedule.last_finished_at == table.now
    assert schedule.failures_in_a_row == (1 if end is _reaped else 0)
    assert schedule.last_success_for is None


def test_jobs_of_a_schedule_that_is_gone_end_quietly(table: Timetable) -> None:
    made = table.add()
    table.advance(60)
    table.tick()
    assert not table.store.run(table.store.remove_schedule("s", made.revision, table.now))
    assert table.store.run(table.store.remove_schedule("s", table.schedule().revision, table.now))
    assert table.store.run(table.store.look(["s"])) == [None]
    table.run_one(table.succeed)
    assert table.told() == [("fired", 1, 1)]


def test_what_waits_is_skipped_when_the_schedule_is_removed(table: Timetable) -> None:
    table.add(overlap=Overlap.BUFFER_ALL)
    for _ in range(2):
        table.advance(60)
        table.tick()
    table.store.run(table.store.remove_schedule("s", table.schedule().revision, table.now))
    assert table.told() == [("fired", 1, 1), ("skipped", 2, 1)]
    assert table.ticks()[1].reason == "the schedule was removed"


def test_a_paused_range_is_one_row(table: Timetable) -> None:
    table.add()
    table.advance(60)
    table.tick()
    table.run_one(table.succeed)
    assert table.change(lambda look: paused(look.schedule, "maintenance"))
    table.advance(600)
    assert table.due() == []
    assert table.change(lambda look: resumed(look.schedule, look.now))
    assert table.told() == [("fired", 1, 1), ("skipped", 2, 10)]
    assert table.ticks()[1].reason == "paused: maintenance"
    table.advance(60)
    table.tick()
    assert table.told()[2:] == [("fired", 12, 1)]


def test_another_rule_counts_from_now(table: Timetable) -> None:
    table.add(overlap=Overlap.ALLOW, catch_up="all")
    table.advance(150)
    hourly = definition(rule=Recurrence((every(hours=1),)))
    assert table.change(lambda look: redefined(look.schedule, hourly, look.now))
    assert table.told() == [("fired", 1, 1), ("fired", 2, 1)]
    schedule = table.schedule()
    assert schedule.definition == hourly
    assert schedule.next_at == START + timedelta(hours=1)
    assert len(table.jobs()) == 2


def test_a_change_that_lost_the_race_writes_nothing(table: Timetable) -> None:
    table.add()
    table.advance(60)
    look = table.look()
    table.tick()
    step = with_jobs(look.schedule, decide(look), new_id)
    late = table.store.change_schedule(paused(look.schedule, None), step, table.now)
    assert not table.store.run(late)
    assert not table.schedule().paused
    assert len(table.jobs()) == 1


def test_triggered_also_while_paused(table: Timetable) -> None:
    table.add()
    assert table.change(lambda look: paused(look.schedule, None))
    table.advance(7)
    before = table.schedule()
    look = table.look()
    assert table.fire(with_jobs(look.schedule, triggered(look), new_id)) == [True]
    (job,) = table.jobs()
    (tick,) = table.ticks()
    assert (tick.kind, tick.nominal, tick.job_id) == (TickKind.MANUAL, table.now, job.id)
    assert job.scheduled_for == table.now
    after = table.schedule()
    assert (after.next_at, after.paused) == (before.next_at, True)


def test_a_backfill_beside_the_ticks(table: Timetable) -> None:
    table.add(overlap=Overlap.ALLOW)
    table.advance(60)
    table.tick()
    past = [START - n * MINUTE for n in (3, 2, 1)]
    look = table.look()
    assert table.fire(with_jobs(look.schedule, backfilled(look, past), new_id)) == [True]
    assert [tick.kind for tick in table.ticks()] == [TickKind.BACKFILL] * 3 + [TickKind.TICK]
    fired = table.store.run(table.store.fired_ticks("s", START - 2 * MINUTE, START + MINUTE))
    assert fired == [START - 2 * MINUTE, START - MINUTE, START + MINUTE]
    assert len(table.jobs()) == 4


def test_a_backfill_that_waits_its_turn(table: Timetable) -> None:
    table.add()
    look = table.look()
    past = [START - 2 * MINUTE, START - MINUTE]
    table.fire(with_jobs(look.schedule, backfilled(look, past), new_id))
    table.tick()
    assert table.told() == [("fired", -2, 1), ("buffered", -1, 1)]
    table.run_one(table.succeed)
    table.tick()
    assert table.told() == [("fired", -2, 1), ("fired", -1, 1)]


def test_the_latest_tick_of_each(table: Timetable) -> None:
    for name in "abc":
        table.add(name, overlap=Overlap.ALLOW)
    for _ in range(2):
        table.advance(60)
        table.tick()
    table.add("new")
    latest = table.store.run(table.store.latest_ticks(["c", "a", "new", "gone"]))
    assert {(tick.schedule_id, tick.nominal) for tick in latest} == {
        ("a", START + timedelta(seconds=120)),
        ("c", START + timedelta(seconds=120)),
    }
    assert [job.schedule_id for job in table.jobs(schedule_id="b")] == ["b", "b"]


def test_ticks_page_by_page(table: Timetable) -> None:
    table.add(overlap=Overlap.ALLOW)
    for _ in range(5):
        table.advance(60)
        table.tick()
    look = table.look()
    again = backfilled(look, [START + 2 * MINUTE, START + 3 * MINUTE])
    table.fire(with_jobs(look.schedule, again, new_id))
    seen: list[Tick] = []
    while page := table.store.run(table.store.ticks("s", 2, seen[-1] if seen else None)):
        assert len(page) <= 2
        seen += page
    assert len(seen) == 7
    assert len({tick.key for tick in seen}) == 7
    assert [tick.nominal for tick in seen] == sorted((t.nominal for t in seen), reverse=True)


def test_old_ticks_are_purged_but_none_that_waits(table: Timetable) -> None:
    table.add(overlap=Overlap.BUFFER_ALL)
    for _ in range(3):
        table.advance(60)
        table.tick()
    table.advance(1)
    assert table.store.run(table.store.purge_ticks(START, 10)) == 0
    assert table.store.run(table.store.purge_ticks(table.now, 10)) == 1
    assert table.told() == [("buffered", 2, 1), ("buffered", 3, 1)]


def test_an_unchanged_step_moves_nothing_but_the_revision(table: Timetable) -> None:
    made = table.add()
    assert table.fire(unchanged(table.look())) == [True]
    now = table.schedule()
    assert now == msgspec.structs.replace(made, revision=made.revision + 1)


def test_declarations_are_seen_again_and_again(table: Timetable) -> None:
    store = table.store
    one, two = definition(), definition(overlap=Overlap.ALLOW)
    store.run(store.declare("shop", {"a": one, "b": one}, now=table.now))
    table.advance(5)
    store.run(store.declare("shop", {"a": one}, timedelta(seconds=10), now=table.now))
    store.run(store.declare("shop", {"b": two}, now=table.now))
    table.advance(20)
    store.run(store.declare("shop", {"a": one}, timedelta(seconds=10), now=table.now))
    found = {
        (each.schedule_id, each.fingerprint): (each.first_seen - START, each.last_seen - START)
        for each in store.run(store.declarations())
    }
    seconds = timedelta(seconds=1)
    assert found == {
        ("a", one.fingerprint()): (0 * seconds, 25 * seconds),
        ("b", one.fingerprint()): (0 * seconds, 0 * seconds),
        ("b", two.fingerprint()): (5 * seconds, 5 * seconds),
    }
    assert store.run(store.forget_declarations("shop", START + 5 * seconds)) == 1
    assert len(store.run(store.declarations())) == 2


def test_declarations_know_what_is_in_force(table: Timetable) -> None:
    store = table.store
    declared = definition()
    store.run(store.declare("shop", dict.fromkeys("abc", declared), now=table.now))
    store.run(
        store.add_schedules(
            [begun("a", declared, table.now), begun("b", declared, table.now, "other")]
        )
    )
    found = store.run(store.declarations())
    assert [(each.schedule_id, each.exists, each.in_force) for each in found] == [
        ("a", True, None),
        ("b", True, "other"),
        ("c", False, None),
    ]
    assert {each.definition for each in found} == {declared}
    store.run(store.remove_schedule("b", table.schedule("b").revision, table.now))
    assert [each.schedule_id for each in store.run(store.declarations())] == ["a", "c"]


def test_declarations_belong_to_an_application(table: Timetable) -> None:
    store = table.store
    one = definition()
    for application in ("shop", "blog"):
        store.run(store.declare(application, {"a": one}, now=table.now))
    fresh = begun("a", one, table.now, one.fingerprint(), "shop")
    store.run(store.add_schedules([fresh]))
    assert [
        (each.application, each.in_force, each.owner) for each in store.run(store.declarations())
    ] == [("blog", one.fingerprint(), "shop"), ("shop", one.fingerprint(), "shop")]
    later = table.now + timedelta(days=1)
    assert store.run(store.forget_declarations("blog", later)) == 1
    assert [each.application for each in store.run(store.declarations())] == ["shop"]
