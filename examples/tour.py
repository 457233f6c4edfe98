"""A tour of Duly on the embedded engine: every part says what it does, and checks that it did.

Run it with `make demo`, or with Python in any environment that has Duly. It needs no server and
leaves nothing behind. The exit code is 0 only if every part did what it says.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

import duly

FOLDER = tempfile.TemporaryDirectory(prefix="duly-tour-")
os.environ["DULY_TOUR_URL"] = f"sqlite:///{Path(FOLDER.name) / 'tour.db'}"

from tour_tasks import (  # noqa: E402 - its app reads the URL that was set above
    add_up,
    app,
    book,
    charge,
    fetch_report,
    greet,
    long_export,
    note,
    order,
    orders_of,
    poison,
    price,
    started,
)

console = Console(highlight=False, soft_wrap=True)


class TourFailure(Exception):
    """A part did not do what it says."""


def check(condition: bool, claim: str) -> None:
    """Say what was seen, or stop the tour."""
    if not condition:
        raise TourFailure(claim)
    console.print(f"   [green]✓[/] {claim}")


def immediate() -> None:
    """Immediate: a job runs as soon as it is submitted"""
    begun = time.perf_counter()
    job = greet.enqueue("Ada")
    console.print(f"   submitted {job.id}: durable before this line was printed")
    result = job.result(timeout=10)
    milliseconds = (time.perf_counter() - begun) * 1000
    check(result == "Hello, Ada!", f"{result!r} after {milliseconds:.0f} ms")


def delayed() -> None:
    """Delayed: a job for later starts on time, not at the next poll"""
    job = note.using(delay="1.5s").enqueue("delayed")
    console.print(f"   status now: {job.status.value}, due at {job.record.run_at:%H:%M:%S.%f} UTC")
    job.result(timeout=10)
    record = job.record
    assert record.started_at is not None
    late = (record.started_at - record.run_at).total_seconds() * 1000
    check(0 <= late < 1000, f"started {late:.1f} ms after it was due")


def priorities() -> None:
    """Priorities: what matters most goes first, whenever it was submitted"""
    submitted = [
        ("low", duly.LOW),
        ("normal", duly.NORMAL),
        ("urgent", duly.URGENT),
        ("high", duly.HIGH),
    ]
    for label, priority in submitted:
        note.using(queue="counter", priority=priority).enqueue(label)
    console.print(f"   submitted in the order {[label for label, _ in submitted]}")
    started.clear()
    app.run_until_idle(workers=1, queues=["counter"])
    check(started == ["urgent", "high", "normal", "low"], f"ran in the order {started}")


def retries() -> None:
    """Retries: a failure is tried again after a growing pause"""
    job = fetch_report.enqueue("2026-11-15")
    result = job.result(timeout=20)
    for attempt in job.attempts():
        error = f": {attempt.error.message}" if attempt.error else ""
        console.print(f"   attempt {attempt.number} {attempt.outcome.value}{error}")
    check(len(job.attempts()) == 3, result)


def dead_letters() -> None:
    """Dead letters: what cannot be done is kept, and replayed when it is mended"""
    job = charge.enqueue(order=7, amount=-5)
    try:
        job.result(timeout=20)
    except duly.JobFailed as failure:
        console.print(f"   {failure}")
    check(job.refresh().state is duly.State.DEAD, "it is in the dead letters, nothing is lost")
    app.replay(job.id, arguments={"order": 7, "amount": 5})
    result = job.result(timeout=20)
    check(result == "order 7: charged 5", f"replayed with other arguments: {result}")
    check(job.record.generation == 2, "as its second generation, under the same id")


def cancellation() -> None:
    """Cancel: at once while it waits, between two pieces while it runs"""
    waiting = greet.using(delay="1h").enqueue("nobody")
    check(waiting.cancel() is duly.Cancellation.CANCELLED, "a waiting job is cancelled at once")
    running = long_export.enqueue()
    wait_until(lambda: running.refresh().state is duly.State.RUNNING)
    running.cancel()
    try:
        running.result(timeout=10)
    except duly.JobCancelled as cancelled:
        check(
            cancelled.reason == "stopped between two pieces", f"a running one: {cancelled.reason}"
        )
    else:
        raise TourFailure("the export was not cancelled")


def uniqueness() -> None:
    """Keys: two submissions with one key make one job"""
    first = greet.using(key="welcome:42", delay="1h").enqueue("Grace")
    second = greet.using(key="welcome:42", delay="1h").enqueue("Grace")
    check(first.id == second.id and not second.created, "the second submission got the first job")
    first.cancel()


def crashes() -> None:
    """Crashes: a task that takes its process down harms only itself"""
    job = poison.enqueue()
    neighbours = [greet.enqueue(f"neighbour {number}") for number in range(20)]
    for neighbour in neighbours:
        neighbour.result(timeout=30)
    check(True, "20 neighbours have finished meanwhile")
    try:
        job.result(timeout=30)
    except duly.JobFailed as failure:
        error = failure.error_message or ""
        check("SIGSEGV" in error, f"given up after {job.record.crashes} crashes: {error}")


def exactly_once() -> None:
    """Exactly once: a task's own writes commit together with its completion"""
    with app.transaction() as connection:
        connection.execute("CREATE TABLE bookings (number INTEGER)")
        job = book.enqueue(1)
        console.print("   the table and the job were committed in one transaction")
    job.result(timeout=10)
    with app.transaction() as connection:
        rows = connection.execute("SELECT number FROM bookings")
    check(rows == [(1,)], "one booking, committed with the completion of its job")


def recurring() -> None:
    """Recurring: each tick runs once, and every tick is accounted for"""
    schedules = app.schedules
    wait_until(lambda: schedules.get("heartbeat").last_success_for is not None)
    schedules.pause("heartbeat", "a look at the clock")
    fired = [tick for tick in schedules.ticks("heartbeat") if tick.outcome == "fired"]
    times = [f"{tick.nominal:%H:%M:%S}" for tick in reversed(fired)]
    check(len(set(times)) == len(times), f"declared in code, it ticked at {', '.join(times[-3:])}")
    by_hand = schedules.trigger("heartbeat")
    by_hand.result(timeout=10)
    check(by_hand.record.schedule_id == "heartbeat", "paused, and run once by hand")
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    (fire,) = schedules.preview("30 2 * * *", tz="Europe/Berlin", after=spring, count=1)
    console.print(f"   preview of 02:30 in Berlin: {fire.local:%Y-%m-%d %H:%M %Z}")
    check(fire.local.hour == 3, fire.notes[0])


def durable_steps() -> None:
    """Durable steps: a job that waits is a row, and goes on from the step it was at"""
    paid, unpaid = order.enqueue("a lamp"), order.enqueue("a chair")
    wait_until(lambda: paid.refresh().state is duly.State.WAITING)
    console.print(f"   {paid.explain().sentence}")
    app.emit("order.paid", {"amount": 30}, key="a lamp", id="payment-1")
    again = app.emit("order.paid", {"amount": 30}, key="a lamp", id="payment-1")
    result = paid.result(timeout=10)
    check(result == "reservation of a lamp, paid 30", f"woken by the event: {result}")
    check(started.count("a lamp reserved") == 1, "its first step ran once, its code twice")
    wait_until(lambda: "order.paid a lamp" in started)
    check(not again.created, "the event was sent twice and started one subscribed job")
    wait_until(lambda: unpaid.refresh().state is duly.State.DEAD)
    check("a chair put back" in started, "the other was not paid in time: its step was undone")


def flows() -> None:
    """Flows: jobs that wait for each other, and for lists of any length"""
    with app.flow("orders") as flow:
        orders = orders_of.job("2026-11-15")
        prices = price.job(duly.each(orders))
        add_up.job(amounts=prices.outputs)
        flow.at_end(greet.job("the end of the flow"))
    run = flow.submit()
    console.print(f"   {len(run.nodes())} nodes stored in one transaction")
    run.wait(timeout=20)
    for node in run.nodes():
        items = f", {node.items} jobs" if node.items else ""
        after = f" after {', '.join(node.parents)}" if node.parents else ""
        console.print(f"   {node.name}{after}: {node.state.value}{items}")
    check(run.job("add_up").result() == 600, "each order priced by a job of its own, added up: 600")
    check(run.record.total == 6, f"{run.record.succeeded} jobs, released as their parents ended")


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for ten seconds at most."""
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            raise TourFailure("waited for ten seconds in vain")
        time.sleep(0.01)


PARTS: list[Callable[[], None]] = [
    immediate,
    delayed,
    priorities,
    retries,
    dead_letters,
    cancellation,
    uniqueness,
    crashes,
    exactly_once,
    recurring,
    durable_steps,
    flows,
]


def main() -> int:
    """Run every part."""
    begun = time.monotonic()
    console.print(f"[bold]Duly {duly.__version__}[/]: a tour on {app.config.url}")
    console.print(f"[dim]{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, one worker in this process[/]")
    try:
        with app.running(workers=4, queues=["default"]):
            for number, part in enumerate(PARTS, 1):
                console.print(f"\n[bold cyan]{number}. {part.__doc__}[/]")
                part()
    except (TourFailure, duly.DulyError) as problem:
        console.print(f"   [red]✗ {problem}[/]")
        return 1
    finally:
        app.close()
        FOLDER.cleanup()
    seconds = time.monotonic() - begun
    console.print(f"\n[bold green]All {len(PARTS)} parts did what they say[/] in {seconds:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
