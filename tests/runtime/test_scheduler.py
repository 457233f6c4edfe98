"""Schedulers at work: each tick once, however many of them there are and whatever befalls them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

import duly
from duly import App, ScheduleConflict, TickOutcome
from duly.model.schedule import CatchUp, Overlap
from duly.policy.recurrence import Cron, Recurrence, every
from duly.policy.schedule_changes import begun
from duly.service.schedules import Schedules
from duly.store.conversation import converse
from tests.runtime.conftest import MakeFleet
from tests.support.brute_force_cron import Walk
from tests.support.fleet import until
from tests.support.timetables import MINUTE, START, Clock, add, define, drain, jobs_of, ticks_of


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


TASKS = """
@app.every(seconds=1, overlap="allow", catch_up="all")
def beat() -> None: ...
"""


def test_worker_processes_share_the_scheduling(fleet: MakeFleet) -> None:
    """Two process trees; each tick once and none lost, also when one of the trees is killed."""
    here = fleet(TASKS)
    first = here.start()
    here.start()
    until(lambda: len(ticks_of(here.app, "beat")) >= 2)
    first.kill()
    seen = len(ticks_of(here.app, "beat"))
    until(lambda: len(ticks_of(here.app, "beat")) >= seen + 2)
    nominals = [tick.nominal for tick in ticks_of(here.app, "beat")]
    assert nominals == [nominals[0] + n * timedelta(seconds=1) for n in range(len(nominals))]
    jobs = Counter(job.scheduled_for for job in jobs_of(here.app, "beat"))
    assert jobs.keys() >= set(nominals)
    assert set(jobs.values()) == {1}
