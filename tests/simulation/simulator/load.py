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
        "key": context.idempotency_key,
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


@app.task(retries=3, backoff="500ms")
async def work(number: int) -> str:
    with noted() as note:
        await asyncio.sleep(stage[-1].chance.choice((0.0, 0.5, 4.0, 6.0)))
        if stage[-1].chance.random() < 0.2:
            raise ValueError("a bad day")
        return outcome(note, number)


@app.task(retries=2, backoff="500ms", timeout="3s")
async def hurried(number: int) -> str:
    with noted() as note:
        await asyncio.sleep(stage[-1].chance.uniform(0, 4))
        return outcome(note, number)


@app.task(delivery="at_most_once")
async def once(number: int) -> str:
    with noted() as note:
        await asyncio.sleep(stage[-1].chance.expovariate(2.0))
        return outcome(note, number)


@app.task(transactional=True, retries=3, backoff="500ms")
def pay(number: int) -> int:
    context = duly.current()
    context.connection.execute(
        "INSERT INTO paid (job, token) VALUES (?, ?)", (context.id.bytes, context.job.token)
    )
    return number


@app.task(retries=3, backoff="500ms")
async def stepped(number: int) -> str:
    context = duly.current()
    with noted() as note:
        await context.step("first", double, number)
        await context.sleep(stage[-1].chance.choice(("1s", "2s")), key="nap")
        await context.step("second", double, number + 1)
        return outcome(note, number)


async def double(number: int) -> int:
    await asyncio.sleep(stage[-1].chance.uniform(0, 0.5))
    return 2 * number


@app.task
async def beat() -> None:
    with noted():
        await asyncio.sleep(stage[-1].chance.uniform(0, 1))


@app.task(retries=1, backoff="500ms")
async def node(name: str, before: list[str]) -> str:
    with noted():
        await asyncio.sleep(stage[-1].chance.uniform(0, 0.5))
    return name


KINDS = (work, work, hurried, once, pay, stepped)


def submit_flow() -> None:
    """A diamond: one, then two beside each other, then one that needs both."""
    with app.flow("diamond") as flow:
        first = node.job("first", [])
        sides = [node.job(name, [first.output]).named(name) for name in ("left", "right")]
        node.job("last", [side.output for side in sides]).named("last")
    flow.submit()
