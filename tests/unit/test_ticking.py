"""What becomes of ticks, against a model that walks second by second and decides one by one."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.model.schedule import (
    CatchUp,
    Definition,
    Look,
    Overlap,
    ScheduleRecord,
    Step,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.policy import ticking
from duly.policy.recurrence import Cron, Moments, Recurrence, every
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
from duly.policy.ticking import GRACE, LONGEST_REST, decide, rest_of, unfinished

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

EVERY_COMBINATION = list(itertools.product(Overlap, CatchUp))


def definition(recurrence: Recurrence | None = None, **fields: object) -> Definition:
    made = recurrence or Recurrence((every(minutes=1),))
    text = msgspec.json.encode(made).decode()
    return msgspec.structs.replace(Definition(task="t", arguments="{}", recurrence=text), **fields)


class World:
    """One schedule and its rows, kept the way a store keeps them."""

    def __init__(self, made: Definition, now: datetime = START) -> None:
        self.schedule = begun("s", made, now)
        self.rows: dict[tuple[str, datetime, TickKind], Tick] = {}
        self.live: list[UUID] = []
        self.jobs: list[tuple[datetime, UUID]] = []
        self.now = now

    def look(self) -> Look:
        waiting = sorted(
            (row for row in self.rows.values() if row.outcome is TickOutcome.BUFFERED),
            key=lambda row: (row.nominal, row.kind),
        )
        return Look(self.schedule, bool(self.live), tuple(waiting[:200]), self.now)

    def write(self, step: Step) -> None:
        assert step.revision == self.schedule.revision
        cancelled = step.cancels is not None
        if cancelled:
            self.live.clear()
        step = with_jobs(self.schedule, step, uuid4)
        for tick in step.ticks:
            assert tick.key not in self.rows, "a row is written once"
            self.rows[tick.key] = tick
        for tick in step.resolved:
            assert self.rows[tick.key].outcome is TickOutcome.BUFFERED
            self.rows[tick.key] = tick
        if step.extended is not None:
            row = self.rows[step.extended.key]
            assert row.outcome is TickOutcome.SKIPPED
            assert row.reason == step.extended.reason
            self.rows[row.key] = msgspec.structs.replace(
                row, until=step.extended.until, count=row.count + step.extended.count
            )
        for draft in step.drafts:
            assert draft.scheduled_for is not None
            self.live.append(draft.id)
            self.jobs.append((draft.scheduled_for, draft.id))
        if cancelled:
            # The ends of the cancelled jobs reach the schedule, as in a store.
            step = msgspec.structs.replace(step, due_at=self.now)
        self._replace(applied(self.schedule, step))

    def run(self) -> int:
        """What a scheduler does when the schedule is due; answers how many steps it took."""
        steps = 0
        while self.schedule.due_at is not None and self.schedule.due_at <= self.now:
            self.write(decide(self.look()))
            steps += 1
            assert steps < 10_000
        return steps

    def end_job(self) -> None:
        if self.live:
            self.live.pop(0)
            due_at = self.now if self.schedule.awaits_end else self.schedule.due_at
            self._replace(
                msgspec.structs.replace(self.schedule, last_finished_at=self.now, due_at=due_at)
            )

    def account(self) -> None:
        """Everything up to now, as it is done before a change."""
        while True:
            look = self.look()
            step = decide(look, everything=True)
            self.write(step)
            if not unfinished(look, step):
                return

    def _replace(self, schedule: ScheduleRecord) -> None:
        self.schedule = msgspec.structs.replace(schedule, revision=self.schedule.revision + 1)

    def change(self, schedule: ScheduleRecord) -> None:
        self._replace(schedule)

    def told(self) -> list[tuple[str, int]]:
        """Outcome and count of each row of the rule, by nominal time."""
        return [
            (row.outcome.value, row.count)
            for row in sorted(self.rows.values(), key=lambda row: row.nominal)
            if row.kind is TickKind.TICK
        ]


class Model:
    """The same, tick by tick, by the words of the policies."""

    def __init__(self, made: Definition, fires: list[datetime]) -> None:
        self.overlap, self.catch_up = made.overlap, made.catch_up
        jitter = msgspec.json.decode(made.recurrence, type=Recurrence).jitter_seconds
        self.window = timedelta(seconds=made.catch_up_window + jitter)
        self.grace = GRACE + timedelta(seconds=jitter)
        self.fires = fires
        self.cursor = START
        self.fate: dict[datetime, str] = {}
        self.live = 0
        self.waiting: list[datetime] = []

    def run(self, now: datetime, due: dict[datetime, datetime]) -> None:
        come = list(
            itertools.takewhile(
                lambda fire: due[fire] <= now,
                (fire for fire in self.fires if self.cursor < fire <= now),
            )
        )
        owed = self.owed(come, now)
        if self.overlap is not Overlap.CANCEL_OTHER or not owed:
            while self.waiting and (self.live == 0 or self.overlap is Overlap.ALLOW):
                self.fire(self.waiting.pop(0))
        for fire in owed:
            self.decide(fire, last=fire is owed[-1])
        if come:
            self.cursor = come[-1]
        if self.live == 0 and self.waiting:
            self.fire(self.waiting.pop(0))

    def owed(self, come: list[datetime], now: datetime) -> list[datetime]:
        if self.catch_up is CatchUp.LATEST:
            self.fate |= dict.fromkeys(come[:-1], "coalesced")
            return come[-1:]
        oldest = self.window if self.catch_up is CatchUp.ALL else self.grace
        self.fate |= dict.fromkeys((fire for fire in come if now - fire > oldest), "skipped")
        return [fire for fire in come if now - fire <= oldest]

    def decide(self, fire: datetime, last: bool) -> None:
        match self.overlap:
            case Overlap.ALLOW:
                self.fire(fire)
            case Overlap.CANCEL_OTHER if not last:
                self.fate[fire] = "skipped"
            case Overlap.CANCEL_OTHER:
                self.fate |= dict.fromkeys(self.waiting, "skipped")
                self.waiting = []
                if self.live:
                    self.live = 0
                    self.wait(fire)
                else:
                    self.fire(fire)
            case _ if self.live == 0:
                self.fire(fire)
            case Overlap.BUFFER_ALL:
                self.wait(fire)
            case Overlap.BUFFER_ONE if not self.waiting:
                self.wait(fire)
            case _:
                self.fate[fire] = "skipped"

    def fire(self, fire: datetime) -> None:
        self.fate[fire] = "fired"
        self.live += 1

    def wait(self, fire: datetime) -> None:
        self.fate[fire] = "buffered"
        self.waiting.append(fire)


def fates(rows: list[Tick], fires: list[datetime]) -> dict[datetime, str]:
    """What the rows say of each tick; every row covers ticks, and no tick is in two."""
    told: dict[datetime, str] = {}
    for row in rows:
        until = row.until or row.nominal
        covered = fires[bisect_left(fires, row.nominal) : bisect_right(fires, until)]
        assert covered, f"{row} covers no tick"
        assert covered[0] == row.nominal
        assert covered[-1] == until
        assert len(covered) == row.count
        assert row.count == 1 or row.outcome in (TickOutcome.SKIPPED, TickOutcome.COALESCED)
        assert (row.job_id is not None) == (row.outcome is TickOutcome.FIRED)
        assert (row.reason is None) == (row.outcome in (TickOutcome.FIRED, TickOutcome.BUFFERED))
        for fire in covered:
            assert fire not in told, f"{fire} is in two rows"
            told[fire] = row.outcome.value
    return told


recurrences = st.builds(
    lambda seconds, start, length, jitter, excluded: Recurrence(
        (every(seconds=seconds),),
        start=None if start is None else START + start * SECOND,
        end=None if start is None or length is None else START + (start + length) * SECOND,
        jitter_seconds=jitter,
        # One that excludes everything is searched for some seconds before it is refused.
        excluded_rules=()
        if excluded is None or seconds % excluded == 0
        else (every(seconds=excluded),),
    ),
    st.integers(1, 120),
    st.none() | st.integers(-100, 600),
    st.none() | st.integers(200, 3000),
    st.just(0) | st.integers(1, 90),
    st.none() | st.integers(7, 50),
)
events = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 5, 30, 60, 61, 150, 400]) | st.integers(0, 600),
        st.sampled_from(["look", "end", "end and look"]),
    ),
    max_size=10,
)


@pytest.mark.parametrize(("overlap", "catch_up"), EVERY_COMBINATION)
@settings(max_examples=60, deadline=None)
@given(
    recurrence=recurrences,
    story=events,
    window=st.sampled_from([30.0, 300.0, 604_800.0]),
    portion=st.sampled_from([1, 7, 200]),
)
def test_the_policy_and_the_model_agree(
    overlap: Overlap,
    catch_up: CatchUp,
    recurrence: Recurrence,
    story: list[tuple[int, str]],
    window: float,
    portion: int,
) -> None:
    horizon = START + sum(wait for wait, _ in story) * SECOND
    try:
        recurrence.check_fires()
    except ValueError:
        return
    fires = [
        instant
        for offset in range(1, int((horizon - START).total_seconds()) + 1)
        if _fires_at(recurrence, instant := START + offset * SECOND)
    ]
    due = {fire: recurrence.due_at("s", fire) for fire in fires}
    made = definition(recurrence, overlap=overlap, catch_up=catch_up, catch_up_window=window)
    world, model = World(made), Model(made, fires)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ticking, "MOST_TICKS", portion)
        for wait, what in story:
            world.now += wait * SECOND
            if "end" in what:
                world.end_job()
                model.live -= model.live > 0
            if "look" in what:
                world.run()
                model.run(world.now, due)
                assert len(world.live) == model.live
                assert [tick.nominal for tick in world.look().buffered] == model.waiting[:200]
                told = fates(list(world.rows.values()), fires)
                assert told == model.fate
                accounted = [fire for fire in fires if fire <= model.cursor]
                assert sorted(told) == accounted, "each tick that has come, and no other"
                _check_due(world, fires, due)
    assert Counter(nominal for nominal, _ in world.jobs) == Counter(
        fire for fire, fate in model.fate.items() if fate == "fired"
    )


def _fires_at(recurrence: Recurrence, instant: datetime) -> bool:
    seconds = int(instant.timestamp())
    return (
        any(seconds % rule.seconds == 0 for rule in recurrence.rules)  # type: ignore[union-attr]
        and not any(
            seconds % rule.seconds == 0  # type: ignore[union-attr]
            for rule in recurrence.excluded_rules
        )
        and (recurrence.start is None or instant >= recurrence.start)
        and (recurrence.end is None or instant <= recurrence.end)
    )


def _check_due(world: World, fires: list[datetime], due: dict[datetime, datetime]) -> None:
    """A scheduler will look in time for the next tick, and does not look without a reason."""
    schedule = world.schedule
    to_come = [fire for fire in fires if fire > schedule.accounted_until]
    if to_come:
        assert schedule.next_at == to_come[0]
        assert schedule.due_at == min(due[to_come[0]], world.now + rest_of("s"))
    assert schedule.due_at is None or schedule.due_at > world.now
    assert schedule.awaits_end == bool(world.look().buffered)


def test_26_hours_of_downtime() -> None:
    expected = {
        (Overlap.ALLOW, CatchUp.ALL): 1560,
        (Overlap.BUFFER_ALL, CatchUp.ALL): 1560,
        (Overlap.SKIP, CatchUp.ALL): 1,
        (Overlap.ALLOW, CatchUp.LATEST): 1,
        (Overlap.BUFFER_ALL, CatchUp.LATEST): 1,
        (Overlap.SKIP, CatchUp.LATEST): 1,
        (Overlap.ALLOW, CatchUp.NONE): 2,
        (Overlap.SKIP, CatchUp.NONE): 1,
    }
    for (overlap, catch_up), jobs in expected.items():
        world = World(definition(overlap=overlap, catch_up=catch_up))
        world.now += timedelta(hours=26)
        world.run()
        while world.live and overlap is Overlap.BUFFER_ALL:
            assert len(world.live) == 1
            world.end_job()
            world.run()
        assert len(world.jobs) == jobs, (overlap, catch_up)
        assert sum(row.count for row in world.rows.values()) == 1560


@pytest.mark.parametrize(("overlap", "catch_up"), EVERY_COMBINATION)
def test_a_year_of_every_second_is_few_rows(overlap: Overlap, catch_up: CatchUp) -> None:
    """With a short window `all` owes few ticks; every row of the rest covers a range."""
    made = definition(
        Recurrence((every(seconds=1),)),
        overlap=overlap,
        catch_up=catch_up,
        catch_up_window=120.0,
    )
    world = World(made)
    world.now += timedelta(days=365)
    steps = world.run()
    assert sum(row.count for row in world.rows.values()) == 365 * 86_400
    assert len(world.rows) <= 130
    assert steps <= 2


def test_a_year_of_a_minutely_cron_is_counted_not_walked() -> None:
    world = World(definition(Recurrence((Cron("* * * * *", "Europe/Berlin"),))))
    world.now += timedelta(days=365)
    assert world.run() == 1
    assert world.told() == [("coalesced", 365 * 1440 - 1), ("fired", 1)]


def test_all_owed_ticks_come_in_portions() -> None:
    world = World(definition(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL))
    world.now += timedelta(hours=26)
    look = world.look()
    step = decide(look)
    assert len(step.ticks) == ticking.MOST_TICKS
    assert unfinished(look, step)
    assert world.run() == 8


def test_a_fall_back_hour_is_served_as_the_rule_says() -> None:
    """Berlin, 2026-10-25: 02:30 happens twice, a fixed time fires once; `*` fires in both."""
    night = datetime(2026, 10, 24, 20, tzinfo=UTC)
    for expression, fires in (("30 2 * * *", 1), ("*/30 * * * *", 24)):
        made = definition(
            Recurrence((Cron(expression, "Europe/Berlin"),)),
            overlap=Overlap.ALLOW,
            catch_up=CatchUp.ALL,
        )
        world = World(made, night)
        for _ in range(12 * 60):
            world.now += MINUTE
            world.run()
        assert len(world.jobs) == fires
        assert len({nominal for nominal, _ in world.jobs}) == fires


def test_a_paused_range_is_one_row() -> None:
    world = World(definition())
    world.change(paused(world.schedule, "moving"))
    world.now += timedelta(days=3)
    world.account()
    world.change(resumed(world.schedule, world.now))
    (row,) = world.rows.values()
    assert (row.outcome, row.count, row.reason) == (TickOutcome.SKIPPED, 4320, "paused: moving")
    assert not world.schedule.paused
    world.now += MINUTE
    world.run()
    assert world.told() == [("skipped", 4320), ("fired", 1)]


def test_a_changed_rule_loses_and_doubles_nothing() -> None:
    old = definition(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    world = World(old)
    world.now += 150 * SECOND
    world.account()
    new = definition(Recurrence((every(seconds=50),)), overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    world.change(redefined(world.schedule, new, world.now))
    world.now += 100 * SECOND
    world.run()
    offsets = [(nominal - START) // SECOND for nominal, _ in world.jobs]
    assert offsets == [60, 120, 200, 250]


def test_a_tick_within_its_jitter_is_not_late() -> None:
    hourly = Recurrence((every(hours=1),), jitter_seconds=3000)
    world = World(definition(hourly, catch_up=CatchUp.NONE))
    assert world.schedule.due_at is not None
    world.now = world.schedule.due_at
    assert world.now - START > timedelta(hours=1) + GRACE
    world.run()
    assert world.told() == [("fired", 1)]


def test_jitter_is_not_waited_for_before_a_change() -> None:
    world = World(definition(Recurrence((every(minutes=1),), jitter_seconds=600)))
    world.now += 61 * SECOND
    world.account()
    assert world.told() == [("fired", 1)]


def test_another_queue_is_no_reason_to_account() -> None:
    before = begun("s", definition(), START)
    other = definition(pause_after_failures=3)
    changed = redefined(before, other, START + 30 * SECOND)
    assert (changed.next_at, changed.due_at) == (before.next_at, before.due_at)
    assert changed.definition == other


def test_what_waits_is_looked_at_when_the_overlap_policy_changes() -> None:
    world = World(definition(overlap=Overlap.BUFFER_ALL))
    for _ in range(3):
        world.now += MINUTE
        world.run()
    world.change(redefined(world.schedule, definition(overlap=Overlap.ALLOW), world.now))
    world.run()
    assert world.told() == [("fired", 1)] * 3


def test_a_fixed_delay() -> None:
    world = World(definition(Recurrence((every(minutes=5),)), after_finish=300.0))
    world.run()
    assert world.jobs[0][0] == START
    world.now += timedelta(hours=2)
    world.run()
    assert len(world.jobs) == 1
    world.end_job()
    world.run()
    assert world.schedule.next_at == world.now + timedelta(minutes=5)
    world.now += timedelta(hours=5)
    world.run()
    assert [nominal for nominal, _ in world.jobs] == [
        START,
        START + timedelta(hours=2, minutes=5),
    ]


def test_a_fixed_delay_within_its_bounds() -> None:
    bounds = Recurrence(
        (every(minutes=5),), start=START + timedelta(hours=1), end=START + timedelta(hours=2)
    )
    world = World(definition(bounds, after_finish=300.0))
    assert world.run() == 0
    world.now += timedelta(hours=1)
    world.run()
    world.now += timedelta(minutes=50)
    world.end_job()
    world.run()
    world.now += timedelta(minutes=10)
    world.run()
    world.end_job()
    world.run()
    assert [(nominal - START) // MINUTE for nominal, _ in world.jobs] == [60, 115]
    assert (world.schedule.next_at, world.schedule.due_at) == (None, None)


def test_a_fixed_delay_paused_and_resumed() -> None:
    world = World(definition(Recurrence((every(minutes=5),)), after_finish=300.0))
    world.run()
    world.end_job()
    world.run()
    world.change(paused(world.schedule, None))
    world.now += timedelta(hours=1)
    world.account()
    world.change(resumed(world.schedule, world.now))
    world.run()
    assert world.told() == [("fired", 1), ("skipped", 1), ("fired", 1)]


def test_a_job_run_by_hand_moves_a_fixed_delay() -> None:
    world = World(definition(Recurrence((every(minutes=5),)), after_finish=300.0))
    world.run()
    world.end_job()
    world.run()
    world.now += timedelta(minutes=4)
    world.write(triggered(world.look()))
    world.now += timedelta(minutes=3)
    world.run()
    assert len(world.jobs) == 2
    world.end_job()
    world.run()
    assert world.schedule.next_at == world.now + timedelta(minutes=5)


def test_a_schedule_ends_with_its_last_time() -> None:
    moments = Recurrence((Moments((START + MINUTE, START + 2 * MINUTE)),))
    world = World(definition(moments, overlap=Overlap.ALLOW))
    for _ in range(3):
        world.now += MINUTE
        world.run()
    assert world.told() == [("fired", 1), ("fired", 1)]
    assert (world.schedule.next_at, world.schedule.due_at) == (None, None)


def test_far_away_times_are_looked_at_daily() -> None:
    world = World(definition(Recurrence((Cron("0 0 1 1 *"),))))
    assert world.schedule.next_at == datetime(2031, 1, 1, tzinfo=UTC)
    assert world.schedule.due_at == START + rest_of("s")
    world.now += rest_of("s")
    world.run()
    assert world.rows == {}
    assert world.schedule.due_at == START + 2 * rest_of("s")


def test_a_time_that_a_new_tz_database_moves_is_not_lost() -> None:
    """The stored next time is a hint: what has come since the last accounted time counts."""
    made = World(definition(Recurrence((Cron("0 9 * * *", "UTC"),))))
    stale = msgspec.structs.replace(made.schedule, next_at=START + timedelta(hours=10))
    made.change(stale)
    made.now += timedelta(hours=10)
    made.run()
    assert [nominal for nominal, _ in made.jobs] == [START + timedelta(hours=9)]


def test_a_backfill_waits_its_turn_unless_jobs_may_overlap() -> None:
    past = [START - 2 * MINUTE, START - MINUTE]
    for overlap, live in ((Overlap.SKIP, 1), (Overlap.ALLOW, 2)):
        world = World(definition(overlap=overlap))
        world.write(backfilled(world.look(), past))
        world.run()
        assert len(world.live) == live
        world.end_job()
        world.run()
        assert [nominal for nominal, _ in world.jobs] == past


def test_cancel_other_leaves_a_backfill_alone() -> None:
    world = World(definition(overlap=Overlap.CANCEL_OTHER))
    past = [START - 2 * MINUTE, START - MINUTE]
    world.write(backfilled(world.look(), past))
    world.run()
    world.now += MINUTE
    world.run()
    for _ in range(3):
        world.end_job()
        world.schedule = msgspec.structs.replace(world.schedule, due_at=world.now)
        world.run()
    assert sorted(nominal for nominal, _ in world.jobs) == [*past, START + MINUTE]


def test_a_step_that_changes_nothing() -> None:
    world = World(definition())
    before = world.schedule
    world.write(unchanged(world.look()))
    assert world.schedule == msgspec.structs.replace(before, revision=before.revision + 1)


def test_looks_at_rest_are_spread_over_the_day() -> None:
    yearly = definition(Recurrence((Cron("0 0 1 1 *"),)))
    looks: Counter[int] = Counter()
    for number in range(20_000):
        schedule = begun(f"customer:{number}", yearly, START + SECOND)
        assert schedule.due_at is not None
        rest = schedule.due_at - START
        assert LONGEST_REST / 2 <= rest <= LONGEST_REST + SECOND
        looks[rest // (60 * SECOND)] += 1
    assert max(looks.values()) < 100, "20,000 looks in the 720 minutes of half a day"
