"""Many jobs at one moment, lateness, order, memory. Figures are printed, bounds are generous."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from duly import State
from tests.chaos.conftest import MakeFleet, Storm
from tests.support.fleet import LONG, long_only, until

TASKS = """
@app.task(retries=0)
def note(number: int) -> float:
    return time.time()


@app.task(retries=0)
async def nothing() -> None:
    return None


@app.task(retries=0, priority=1)
def low() -> None:
    ran("low")


@app.task(retries=0, priority=20)
def urgent() -> None:
    ran("urgent")
"""


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def test_thousands_due_in_the_same_second(fleet: MakeFleet, url: str) -> None:
    count = 10_000 if LONG else 2_000
    site = fleet(url, TASKS)
    site.start("--processes", 2, "--concurrency", 20)
    due = datetime.now(UTC) + timedelta(seconds=6 if LONG else 3)
    jobs = site.app.enqueue_many(
        site.tasks.note.using(run_at=due).job(number) for number in range(count)
    )
    records = site.settled(jobs, 180)
    assert Counter(record.state for record in records) == {State.SUCCEEDED: count}
    starts = [float(record.result or 0) - due.timestamp() for record in records]
    assert min(starts) >= -0.01, "nothing runs before its time"
    print(f"{count} jobs due at once: first after {min(starts):.3f} s, last {max(starts):.2f} s")


def test_delayed_jobs_start_on_time(fleet: MakeFleet, url: str, storm: Storm) -> None:
    site = fleet(url, TASKS)
    site.start("--concurrency", 10)
    now = datetime.now(UTC) + timedelta(seconds=2)
    count = 200 if LONG else 60
    dues = [now + timedelta(seconds=storm.chance.uniform(0, count / 15)) for _ in range(count)]
    jobs = site.app.enqueue_many(
        site.tasks.note.using(run_at=due).job(number) for number, due in enumerate(dues)
    )
    records = site.settled(jobs, 120)
    late = [
        float(record.result or 0) - due.timestamp()
        for record, due in zip(records, dues, strict=True)
    ]
    assert min(late) >= -0.01
    p50, p99 = _percentile(late, 0.5), _percentile(late, 0.99)
    print(f"lateness of {count} jobs: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")
    assert p99 < 10


def test_the_urgent_first_and_nothing_starves(fleet: MakeFleet, url: str) -> None:
    site = fleet(url, TASKS)
    low = site.app.enqueue_many(site.tasks.low.job() for _ in range(20))
    urgent = site.app.enqueue_many(site.tasks.urgent.job() for _ in range(600))
    site.start("--concurrency", 4)
    site.settled([*low, *urgent])
    order = [effect.word for effect in site.effects()]
    first_low = order.index("low")
    shared = order[:600].count("low")
    print(f"the first low job was number {first_low}; {shared} ran among the 600 urgent ones")
    assert order[:5].count("urgent") >= 3
    assert shared >= 5, "a share of the claims goes to those that wait for longest"


@long_only
def test_memory_of_a_child_after_many_jobs(fleet: MakeFleet, url: str) -> None:
    site = fleet(url, TASKS)
    worker = site.start("--concurrency", 20)
    (child,) = worker.children()
    sizes = []
    for _ in range(5):
        started = time.monotonic()
        jobs = site.app.enqueue_many(site.tasks.nothing.job() for _ in range(10_000))
        until(lambda: _live(site) == 0, 300)
        rate = len(jobs) / (time.monotonic() - started)
        sizes.append(child.memory_info().rss / 1e6)
        print(f"resident memory {sizes[-1]:.1f} MB, {rate:.0f} jobs a second")
    assert [each.pid for each in worker.children()] == [child.pid]
    assert sizes[-1] - sizes[0] < 30, "it does not grow with the number of jobs"


def _live(site: object) -> int:
    app = site.app  # type: ignore[attr-defined]
    live = (State.PENDING, State.RUNNING)
    return sum(count.jobs for count in app.counts() if count.state in live)
