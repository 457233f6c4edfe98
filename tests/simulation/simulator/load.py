"""What the simulated nodes have to do: jobs of every kind, and notes of what their code did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

import duly
from duly.testing import Effect
from tests.simulation.simulator.node import here

if TYPE_CHECKING:
    from tests.simulation.simulator.world import World

app = duly.App("sqlite://", application="simulator")
AnyTask = duly.Task[[int], Any] | duly.AsyncTask[[int], Any]
stage: list[World] = []
"""The world that the tasks are in: the last one."""


@contextmanager
def noted(step: str | None = None) -> Iterator[dict[str, Any]]:
    """Note that code begins, and if it gets there, that it ends, with its result."""
    world, context, node = stage[-1], duly.current(), here.get()
    note: dict[str, Any] = {
        "job_id": context.id,
        "token": context.job.token,
        "attempt": context.attempt,
        "key": context.idempotency_key if step is None else None,
        "node": "" if node is None else node.name,
        "started": world.clock.now(),
        "step": step,
    }
    world.notes.append(note)
    yield note
    note["ended"] = world.clock.now()


def effects(world: World) -> list[Effect]:
    """What the code of all jobs did."""
    return [Effect(**note) for note in world.notes]


def outcome(note: dict[str, Any], number: int) -> str:
    """A result that tells which run it is from."""
    result = f"{number} by {note['token']}"
    note["result"] = msgspec.json.encode(result).decode()
    return result


async def labour(*choices: float) -> None:
    """Take one of these times."""
    await asyncio.sleep(stage[-1].chance.choice(choices))


def fail(likelihood: float) -> None:
    """Perhaps."""
    if stage[-1].chance.random() < likelihood:
        raise ValueError("a bad day")


async def step(name: str, number: int) -> None:
    """A step that notes when it runs, and when the code was told that it is recorded."""
    runs: list[dict[str, Any]] = []

    async def perform() -> int:
        with noted(name) as note:
            runs.append(note)
            await labour(0.0, 0.2)
            return number

    value = await duly.current().step(name, perform)
    for note in runs:
        note.update(recorded=True, result=str(value))


@app.task(retries=3, backoff="200ms")
async def work(number: int) -> str:
    with noted() as note:
        await labour(0.0, 0.2, 0.6, 1.5)
        fail(0.2)
        return outcome(note, number)


@app.task(retries=2, backoff="200ms", timeout="500ms")
async def hurried(number: int) -> str:
    with noted() as note:
        await labour(0.1, 0.3, 0.499, 0.7)
        return outcome(note, number)


@app.task(delivery="at_most_once")
async def once(number: int) -> str:
    with noted() as note:
        await labour(0.0, 0.2, 0.7)
        return outcome(note, number)


@app.task(transactional=True, retries=3, backoff="200ms")
def pay(number: int) -> int:
    context = duly.current()
    context.connection.execute(
        "INSERT INTO paid (job, token) VALUES (?, ?)", (context.id.bytes, context.job.token)
    )
    return number


@app.task(retries=3, backoff="200ms")
async def stepped(number: int) -> str:
    context = duly.current()
    with noted() as note:
        await step("first", number)
        await context.sleep(stage[-1].chance.choice(("200ms", "500ms")), key="nap")
        await context.using(transactional=True).step("charge", charge)
        fail(0.2)
        await step("second", number + 1)
        return outcome(note, number)


def charge() -> None:
    context = duly.current()
    context.connection.execute("INSERT INTO charged (job) VALUES (?)", (context.id.bytes,))


@app.task(retries=2, backoff="200ms")
async def waiting(number: int) -> str:
    context = duly.current()
    with noted() as note:
        for turn in ("one", "two"):
            try:
                await context.wait_for("go", key=str(number % 2), timeout="500ms")
            except duly.WaitTimeout:
                continue
            await step(turn, number)
        return outcome(note, number)


@app.task(retries=2, backoff="200ms")
async def parent(number: int) -> str:
    context = duly.current()
    with noted() as note:
        try:
            await context.spawn(work, 10 * number)
        except (duly.JobFailed, duly.JobCancelled):
            await step("without", number)
        return outcome(note, number)


@app.task(retries=1, backoff="200ms")
async def saga(number: int) -> str:
    context = duly.current()
    with noted() as note:
        await context.on_failure(undo, number)
        await step("book", number)
        await context.on_failure(undo, number + 1)
        await labour(0.0, 0.5)
        fail(0.6)
        return outcome(note, number)


@app.task(retries=2, backoff="200ms")
async def undo(number: int) -> str:
    with noted() as note:
        await labour(0.0, 0.2)
        fail(0.2)
        return outcome(note, number)


@app.on("paid")
async def react(event: duly.Event) -> str:
    with noted() as note:
        await labour(0.0, 0.2)
        return outcome(note, 0)


@app.task
async def beat() -> None:
    with noted():
        await labour(0.0, 0.2, 0.8)


@app.task(retries=1, backoff="200ms")
async def node(name: str, before: list[str]) -> str:
    with noted():
        await labour(0.0, 0.2)
        fail(0.1)
        return name


@app.task(retries=1, backoff="200ms")
async def names(count: int) -> list[str]:
    with noted():
        await labour(0.0, 0.2)
        return [f"item {number}" for number in range(count)]


@app.task(retries=1, backoff="200ms")
async def item(name: str) -> str:
    with noted():
        await labour(0.0, 0.2)
        fail(0.1)
        return name


KINDS: tuple[AnyTask, ...] = (work, hurried, once, pay, stepped, waiting, parent, saga)


def some_flow(world: World) -> duly.Flow:
    """A diamond, or one job for each of a list, and one when all have ended."""
    chance = world.chance
    with app.flow("some", on_failure=chance.choice(("cancel", "continue"))) as flow:
        if chance.random() < 0.5:
            first = node.job("first", [])
            sides = [node.job(name, [first.output]).named(name) for name in ("left", "right")]
            node.job("last", [side.output for side in sides]).named("last")
        else:
            rows = names.job(chance.randrange(4))
            items = item.job(duly.each(rows))
            node.job("last", items.outputs).named("last")
        if chance.random() < 0.3:
            flow.at_end(node.job("end", []).named("end"))
    return flow
