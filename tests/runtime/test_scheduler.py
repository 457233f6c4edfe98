"""Schedulers at work: each tick once, however many of them there are and whatever befalls them."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

import duly
from duly import App, ScheduleConflict, TickOutcome
from duly.model.job import JobRecord
from duly.model.query import JobFilter
from duly.model.schedule import CatchUp, Definition, Overlap, ScheduleRecord, Tick
from duly.policy.reconciling import GRACE, REMOVAL_GRACE
from duly.policy.recurrence import Cron, Recurrence, every
from duly.policy.schedule_changes import begun
from duly.registry.scheduling import DeclaredSchedules
from duly.runtime.reconciler import Reconciler
from duly.runtime.scheduler import Scheduler
from duly.service.schedules import Schedules
from duly.store.conversation import converse
from tests.support import scheduler_process
from tests.support.brute_force_cron import Walk
from tests.support.fleet import until

ROOT = Path(__file__).parent.parent.parent
START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def define(rule: Recurrence | None = None, **fields: object) -> Definition:
    recurrence = rule or Recurrence((every(minutes=1),))
    made = Definition(task="t", arguments="{}", recurrence=msgspec.json.encode(recurrence).decode())
    return msgspec.structs.replace(made, **fields)


def add(app: App, schedule: ScheduleRecord) -> None:
    assert app.store.run(app.store.add_schedules([schedule])) == [True]


def drain(app: App, clock: Clock) -> int:
    """Tick until nothing is due; answers how many rounds that took."""
    scheduler = Scheduler(app.store, clock)
    rounds = 0
    while app.store.run(app.store.due_schedules(1, clock.now)):
        asyncio.run(scheduler.tick())
        rounds += 1
    return rounds


def ticks_of(app: App, name: str) -> list[Tick]:
    return app.store.run(app.store.ticks(name, 100_000))[::-1]


def jobs_of(app: App, name: str) -> list[JobRecord]:
    jobs, before = [], None
    while page := app.store.run(app.store.find(JobFilter(), 5_000, before)):
        jobs += [job for job in page if job.schedule_id == name]
        before = page[-1].id
    return jobs[::-1]


def test_a_declared_schedule_runs_inside_a_program(app: App) -> None:
    seen: list[tuple[datetime | None, object]] = []

    @app.every(seconds=1, arguments={"by": 2})
    def count(by: int) -> int:
        context = duly.current()
        seen.append((context.scheduled_for, context.last_success))
        return len(seen) * by

    with app.running(workers=2):
        until(lambda: len(seen) >= 3)
        app.schedules.pause("count", "enough")
    nominals = [nominal for nominal, _ in seen]
    assert all(nominal is not None and nominal.microsecond == 0 for nominal in nominals)
    assert len(set(nominals)) == len(nominals)
    assert seen[0][1] is None
    assert seen[1][1] == duly.LastSuccess(nominals[0], 2)  # type: ignore[arg-type]
    fired = [tick for tick in app.schedules.ticks("count") if tick.outcome is TickOutcome.FIRED]
    assert [tick.nominal for tick in fired][::-1] == nominals
    schedule = app.schedules.get("count")
    assert (schedule.declared, schedule.paused, schedule.note) == (True, True, "enough")


def test_a_program_without_a_scheduler_fires_nothing(app: App) -> None:
    @app.task
    def work() -> None: ...

    app.schedules.add("soon", work, timedelta(seconds=1))
    with app.running(scheduler=False):
        time.sleep(1.5)
    assert app.schedules.ticks("soon") == []


def test_a_new_schedule_is_noticed_at_once(app: App) -> None:
    done: list[datetime] = []

    @app.task
    def work() -> None:
        done.append(datetime.now(UTC))

    with app.running(workers=2):
        time.sleep(0.3)
        app.schedules.add("soon", work, timedelta(seconds=1))
        until(lambda: done)
    (first,) = app.schedules.ticks("soon")[-1:]
    assert done[0] - first.nominal < timedelta(seconds=1)


def test_a_fixed_delay_runs_one_after_another(app: App) -> None:
    spans: list[tuple[datetime, datetime]] = []

    @app.every(seconds=1, after_finish=True)
    def slow() -> None:
        begun_at = datetime.now(UTC)
        time.sleep(0.4)
        spans.append((begun_at, datetime.now(UTC)))

    with app.running(workers=4):
        until(lambda: len(spans) >= 3)
    for (_, ended), (started, _) in itertools.pairwise(spans):
        assert started - ended >= timedelta(seconds=0.95)


def test_what_waits_is_started_when_the_job_before_ends(app: App) -> None:
    spans: list[tuple[float, float]] = []

    @app.every(seconds=1, overlap="buffer_all")
    def slow() -> None:
        started = time.monotonic()
        time.sleep(1.3)
        spans.append((started, time.monotonic()))

    with app.running(workers=4):
        until(lambda: len(spans) >= 3)
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    assert all(gap >= 0 for gap in gaps), "no two at once"
    assert gaps[-1] < 0.9, "the second waited for the end of the first, not for the next tick"


@pytest.mark.parametrize(
    ("overlap", "catch_up", "jobs"),
    [("allow", "all", 1560), ("buffer_all", "all", 1560), ("skip", "latest", 1)],
)
def test_26_hours_of_downtime(app: App, overlap: str, catch_up: str, jobs: int) -> None:
    clock = Clock()
    made = define(overlap=Overlap(overlap), catch_up=CatchUp(catch_up))
    add(app, begun("s", made, clock.now))
    clock.now += timedelta(hours=26)
    assert drain(app, clock) <= 10
    ticks = ticks_of(app, "s")
    assert sum(tick.count for tick in ticks) == 1560
    owed = [tick for tick in ticks if tick.outcome in (TickOutcome.FIRED, TickOutcome.BUFFERED)]
    assert len(owed) == jobs
    assert len(jobs_of(app, "s")) == (jobs if overlap == "allow" else 1)


def test_a_year_of_every_second_is_a_handful_of_rows(app: App) -> None:
    clock = Clock()
    for overlap in Overlap:
        made = define(Recurrence((every(seconds=1),)), overlap=overlap)
        add(app, begun(overlap.value, made, clock.now))
    clock.now += timedelta(days=365)
    assert drain(app, clock) == 1
    for overlap in Overlap:
        rows = ticks_of(app, overlap.value)
        assert [(tick.outcome.value, tick.count) for tick in rows] == [
            ("coalesced", 365 * 86_400 - 1),
            ("fired", 1),
        ]


@pytest.mark.parametrize(
    ("expression", "zone", "day"),
    [
        ("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28, tzinfo=UTC)),
        ("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 24, tzinfo=UTC)),
        ("*/20 * * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),
        ("15,45 1-3 * * *", "America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
        ("0 0 * * *", "America/Santiago", datetime(2026, 9, 5, tzinfo=UTC)),
    ],
)
def test_days_of_dst(app: App, expression: str, zone: str, day: datetime) -> None:
    clock = Clock(day)
    rule = Recurrence((Cron(expression, zone),))
    add(app, begun("s", define(rule, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL), clock.now))
    end = day + timedelta(days=2)
    while clock.now < end:
        clock.now += timedelta(minutes=7)
        drain(app, clock)
    expected = Walk(ZoneInfo(zone), day + MINUTE, clock.now, MINUTE).fires(expression)
    assert [job.scheduled_for for job in jobs_of(app, "s")] == expected


def test_a_change_of_the_rule_loses_and_doubles_nothing(app: App) -> None:
    clock = Clock()
    made = define(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    add(app, begun("s", made, clock.now))
    clock.now += timedelta(hours=8, seconds=30)
    other = define(Recurrence((every(minutes=7),)), overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    use = Schedules(app.store, clock.now)
    converse(use.update("s", lambda before: other), app.store.run)
    clock.now += timedelta(hours=1)
    drain(app, clock)
    nominals = [(job.scheduled_for or START) - START for job in jobs_of(app, "s")]
    old = [n * MINUTE for n in range(1, 481)]
    new = [n * MINUTE for n in range(1, 600) if (START + n * MINUTE).timestamp() % 420 == 0]
    assert nominals == old + [
        at for at in new if timedelta(hours=8, seconds=30) < at <= clock.now - START
    ]


def test_pause_resume_trigger_and_backfill(app: App) -> None:
    @app.task
    def report() -> None: ...

    app.schedules.add("hourly", report, "0 * * * *", overlap="allow")
    app.schedules.pause("hourly", "moving")
    job = app.schedules.trigger("hourly")
    assert (job.record.schedule_id, job.task) == ("hourly", "report")
    assert app.schedules.trigger("hourly").id != job.id
    now = datetime.now(UTC)
    yesterday = now - timedelta(days=1)
    assert app.schedules.backfill("hourly", yesterday, now).made == 24
    again = app.schedules.backfill("hourly", yesterday - timedelta(hours=2), now)
    assert (again.made, again.already) == (2, 24)
    assert not app.schedules.resume("hourly").paused
    assert not app.schedules.resume("hourly").paused
    assert len(jobs_of(app, "hourly")) == 28
    app.schedules.update("hourly", tags=["slow"], overlap="skip", arguments={})
    app.schedules.remove("hourly")
    with pytest.raises(duly.UnknownSchedule):
        app.schedules.get("hourly")


def test_the_same_without_blocking(app: App) -> None:
    @app.task
    def report(day: str) -> None: ...

    async def story() -> list[str]:
        schedules = app.schedules
        made = await schedules.aadd("a", report, "@daily", tz="Asia/Tokyo", arguments={"day": "x"})
        assert await schedules.aget("a") == made
        await schedules.apause("a")
        await schedules.aresume("a")
        await schedules.aupdate("a", "@hourly", arguments={"day": "y"})
        job = await schedules.atrigger("a")
        assert job.record.arguments == '{"day":"y"}'
        now = datetime.now(UTC)
        assert (await schedules.abackfill("a", now - timedelta(hours=3), now)).made == 3
        names = [schedule.id for schedule in await schedules.alist()]
        assert len(await schedules.aticks("a")) == 4
        await schedules.aremove("a")
        return names

    assert asyncio.run(story()) == ["a"]


def test_what_cannot_be_is_refused(app: App) -> None:
    @app.task
    def report(day: str) -> None: ...

    add_ = app.schedules.add
    with pytest.raises(duly.InvalidSchedule, match="never"):
        add_("a", report, "0 0 30 2 *", arguments={"day": "x"})
    past = duly.Moments((datetime(2020, 1, 1, tzinfo=UTC),))
    with pytest.raises(duly.InvalidSchedule, match="no time to come"):
        add_("a", report, past, arguments={"day": "x"})
    with pytest.raises(duly.InvalidArguments):
        add_("a", report, "@daily")
    with pytest.raises(duly.UnknownTask):
        add_("a", "nobody.knows", "@daily")
    with pytest.raises(duly.InvalidOption, match="overlap"):
        add_("a", report, "@daily", arguments={"day": "x"}, overlap="sometimes")
    with pytest.raises(duly.InvalidOption, match="after_finish"):
        add_(
            "a",
            report,
            duly.every(minutes=1),
            arguments={"day": "x"},
            after_finish=True,
            overlap="allow",
        )
    with pytest.raises(duly.InvalidSchedule, match="one interval"):
        add_("a", report, "@daily", arguments={"day": "x"}, after_finish=True)
    add_("a", report, "@daily", arguments={"day": "x"})
    with pytest.raises(ScheduleConflict, match="of this name"):
        add_("a", report, "@daily", arguments={"day": "x"})
    app.schedules.update("a", duly.every(seconds=1))
    with pytest.raises(duly.InvalidOption, match="backfill"):
        app.schedules.backfill("a", START - timedelta(days=3650), START)
    app.schedule("twice", report, "@daily", arguments={"day": "x"})
    with pytest.raises(duly.ConfigurationError, match="another name"):
        app.schedule("twice", report, "@hourly", arguments={"day": "x"})


def test_several_schedules_of_one_task(app: App) -> None:
    @app.cron("0 9 * * mon-fri", tz="Europe/Berlin", name="open")
    @app.cron("0 17 * * mon-fri", tz="Europe/Berlin", name="close", priority=duly.HIGH)
    @app.task(queue="doors")
    def turn() -> None: ...

    declared = app.registry.schedules.definitions()
    assert sorted(declared) == ["close", "open"]
    assert declared["close"].template.priority == duly.HIGH
    assert {each.template.queue for each in declared.values()} == {"doors"}
    assert turn.name == "turn"


class Node:
    """A node with some version of the code."""

    def __init__(self, app: App, clock: Clock, **definitions: Definition) -> None:
        declared = DeclaredSchedules()
        for name, definition in definitions.items():
            declared.add(name, definition)
        self._reconciler = Reconciler(app.store, declared, clock)

    def reconcile(self) -> None:
        asyncio.run(self._reconciler.tick())


def in_force(app: App, name: str) -> Definition | None:
    (look,) = app.store.run(app.store.look([name]))
    return None if look is None else look.schedule.definition


def test_two_versions_do_not_flap_and_a_rollback_takes_over(app: App) -> None:
    clock = Clock()
    old, new = define(), define(Recurrence((every(minutes=2),)))
    first, second = Node(app, clock, s=old), Node(app, clock, s=new)
    first.reconcile()
    assert in_force(app, "s") == old
    clock.now += timedelta(seconds=20)
    second.reconcile()
    assert in_force(app, "s") == new
    revision = app.schedules.get("s").revision
    for _ in range(6):
        clock.now += timedelta(seconds=20)
        first.reconcile()
        second.reconcile()
        assert in_force(app, "s") == new
    assert app.schedules.get("s").revision == revision, "nothing was written"
    clock.now += GRACE
    first.reconcile()
    assert in_force(app, "s") == new, "seen a minute ago"
    clock.now += timedelta(seconds=20)
    first.reconcile()
    assert in_force(app, "s") == old
    clock.now += timedelta(seconds=20)
    second.reconcile()
    assert in_force(app, "s") == new


def test_what_nobody_declares_any_more_is_removed_after_a_while(app: App) -> None:
    clock = Clock()
    Node(app, clock, gone=define(), stays=define()).reconcile()
    add(app, begun("run_time", define(), clock.now))
    rest = Node(app, clock, stays=define())
    waited = timedelta()
    while waited <= REMOVAL_GRACE:
        assert in_force(app, "gone") is not None
        clock.now += timedelta(minutes=5)
        waited += timedelta(minutes=5)
        rest.reconcile()
    assert in_force(app, "gone") is None
    assert in_force(app, "stays") is not None
    assert in_force(app, "run_time") is not None
    assert [each.schedule_id for each in app.store.run(app.store.declarations())] == ["stays"]


def test_a_schedule_made_at_run_time_keeps_its_name(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    mine = begun("s", define(overlap=Overlap.ALLOW), clock.now)
    add(app, mine)
    node = Node(app, clock, s=define())
    for _ in range(3):
        node.reconcile()
    assert in_force(app, "s") == mine.definition
    assert caplog.text.count("was made at run time and keeps it") == 1


def test_a_declared_schedule_is_changed_in_the_code(app: App) -> None:
    node = Node(app, Clock(datetime.now(UTC)), s=define())
    node.reconcile()
    with pytest.raises(ScheduleConflict, match="change it there"):
        app.schedules.update("s", overlap="allow")
    with pytest.raises(ScheduleConflict, match="running code declares it"):
        app.schedules.remove("s")
    app.schedules.pause("s", "holidays")
    node.reconcile()
    assert app.schedules.get("s").paused


def test_a_declared_change_accounts_for_what_was_owed(app: App) -> None:
    clock = Clock()
    minutely = define(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    slower = define(Recurrence((every(minutes=5),)), overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    Node(app, clock, s=minutely).reconcile()
    clock.now += timedelta(minutes=10, seconds=30)
    Node(app, clock, s=slower).reconcile()
    clock.now += timedelta(minutes=10)
    drain(app, clock)
    minutes = [((job.scheduled_for or START) - START) // MINUTE for job in jobs_of(app, "s")]
    assert minutes == [*range(1, 11), 15, 20]


def test_a_schedule_that_cannot_be_decided_holds_up_nobody(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    add(app, begun("good", define(), clock.now))
    broken = begun("bad", define(), clock.now)
    text = broken.definition.recurrence.replace('"UTC"', '"Mars/Olympus"')
    definition = msgspec.structs.replace(broken.definition, recurrence=text)
    add(app, msgspec.structs.replace(broken, definition=definition))
    clock.now += MINUTE
    assert drain(app, clock) == 1
    assert len(jobs_of(app, "good")) == 1
    assert app.schedules.get("bad").due_at == clock.now + MINUTE
    assert "schedule bad cannot be decided" in caplog.text


def test_thousands_due_at_once(app: App) -> None:
    clock = Clock()
    count = 5_000
    definition = define(Recurrence((Cron("* * * * *", "Europe/Berlin"),)))
    schedules = [begun(f"s{n:05}", definition, clock.now) for n in range(count)]
    app.store.run(app.store.add_schedules(schedules))
    clock.now += MINUTE
    started = time.perf_counter()
    rounds = drain(app, clock)
    seconds = time.perf_counter() - started
    print(f"{count} schedules fired in {seconds:.2f} s, {rounds} rounds, on {app.store.url}")
    pending = sum(each.jobs for each in app.counts())
    assert pending == count
    assert seconds < 20


EXPECTED = {
    "berlin": ("0 9 * * mon-fri", "Europe/Berlin"),
    "new_york": ("30 2 * * *", "America/New_York"),
    "lord_howe": ("*/30 * * * *", "Australia/Lord_Howe"),
    "cairo": ("0 0,6,12,18 * * *", "Africa/Cairo"),
}
MONTH = datetime(2026, 3, 15, tzinfo=UTC)


class Schedulers:
    """Five processes that schedule by one clock, and what befalls them."""

    def __init__(self, url: str, clock: Path, dice: random.Random) -> None:
        self._command = [sys.executable, "-m", "tests.support.scheduler_process", url, str(clock)]
        self._dice = dice
        self._processes = [self._start() for _ in range(5)]
        self._stopped: list[subprocess.Popen[bytes]] = []
        self.kills = self.stops = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT)

    def strike(self) -> None:
        """Kill one, stop one, or let a stopped one go on."""
        if self._stopped:
            self._stopped.pop().send_signal(signal.SIGCONT)
            return
        victim = self._dice.randrange(len(self._processes))
        process = self._processes[victim]
        if self._dice.random() < 0.5:
            process.kill()
            process.wait()
            self._processes[victim] = self._start()
            self.kills += 1
        else:
            process.send_signal(signal.SIGSTOP)
            self._stopped.append(process)
            self.stops += 1

    def close(self) -> None:
        """End them all; a survivor must have ended well."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            try:
                code = process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            assert code == 0


@pytest.fixture
def dice() -> random.Random:
    return random.Random(20260315)


@pytest.fixture
def virtual_time(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "clock"
    scheduler_process.write(file, MONTH)
    yield file
    file.unlink(missing_ok=True)


def test_five_schedulers_over_a_month_of_kills_and_stops(
    app: App, url: str, virtual_time: Path, dice: random.Random
) -> None:
    window = timedelta(days=60).total_seconds()
    for name, (expression, zone) in EXPECTED.items():
        rule = Recurrence((Cron(expression, zone),))
        every_one = define(
            rule, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, catch_up_window=window
        )
        add(app, begun(name, every_one, MONTH))
        # Nobody runs its jobs: after the first tick all are skipped, or coalesced.
        add(app, begun(f"{name}, skipping", define(rule), MONTH))
    end = MONTH + timedelta(days=31)
    schedulers = Schedulers(url, virtual_time, dice)
    try:
        now = MONTH
        while now < end:
            now = min(end, now + dice.choice([20, 45, 90, 240]) * MINUTE)
            scheduler_process.write(virtual_time, now)
            time.sleep(dice.uniform(0.0, 0.04))
            if dice.random() < 0.15:
                schedulers.strike()
        until(lambda: not app.store.run(app.store.due_schedules(1, end)), 60)
    finally:
        virtual_time.unlink()
        schedulers.close()
    assert schedulers.kills > 5
    assert schedulers.stops > 5
    for name, (expression, zone) in EXPECTED.items():
        oracle = Walk(ZoneInfo(zone), MONTH + MINUTE, end, MINUTE).fires(expression)
        _every_tick_once(app, name, oracle)
        _every_tick_in_one_row(ticks_of(app, f"{name}, skipping"), oracle)


def _every_tick_once(app: App, name: str, oracle: list[datetime]) -> None:
    ticks = ticks_of(app, name)
    assert [tick.nominal for tick in ticks] == oracle
    assert {tick.outcome for tick in ticks} == {TickOutcome.FIRED}
    jobs: dict[UUID, JobRecord] = {job.id: job for job in jobs_of(app, name)}
    assert Counter(job.scheduled_for for job in jobs.values()) == Counter(oracle)
    assert {tick.job_id: tick.nominal for tick in ticks} == {
        job_id: job.scheduled_for for job_id, job in jobs.items()
    }


def _every_tick_in_one_row(ticks: list[Tick], oracle: list[datetime]) -> None:
    covered: list[datetime] = []
    for tick in ticks:
        inside = [at for at in oracle if tick.nominal <= at <= (tick.until or tick.nominal)]
        assert len(inside) == tick.count
        covered += inside
    assert covered == oracle
