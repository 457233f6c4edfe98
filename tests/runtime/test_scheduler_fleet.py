"""Five schedulers on one store, killed and stopped at random, over a month of virtual time."""

from __future__ import annotations

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

import pytest

from duly import App, TickOutcome
from duly.model.job import JobRecord
from duly.model.schedule import CatchUp, Overlap, Tick
from duly.policy.recurrence import Cron, Recurrence
from duly.policy.schedule_changes import begun
from tests.support import scheduler_process
from tests.support.brute_force_cron import Walk
from tests.support.fleet import until
from tests.support.timetables import MINUTE, add, define, jobs_of, ticks_of

ROOT = Path(__file__).parent.parent.parent
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
