"""The tasks of the mixed load, and how their notes are read."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec

from duly.policy.stepping import GIVEN
from duly.testing import Effect
from tests.chaos.inside import INSIDE

TASKS = (
    INSIDE
    + '''
def note(word, step="-", result="-"):
    """What the code did, outside of the store."""
    job = duly.current().job
    key = duly.current().idempotency_key
    effect(word, job.id, job.token, duly.current().attempt, key, os.getpid(), real_time(),
           step, result)


def judge(number):
    """Some fail at first, few for ever; the rest return the token they ran under."""
    ctx = duly.current()
    if number % 101 == 100 or (number % 11 == 10 and ctx.attempt == 1):
        raise ValueError(f"number {number}")
    note("end", result=ctx.job.token)
    return ctx.job.token


@app.task(retries=3, backoff=0.05)
def block(number: int) -> int:
    note("begin")
    time.sleep(0.02)
    return judge(number)


@app.task(retries=3, backoff=0.05)
async def wait(number: int) -> int:
    note("begin")
    await asyncio.sleep(0.02)
    return judge(number)


@app.task(retries=3, backoff=0.05)
async def slow(number: int) -> int:
    """Long enough for another to have claimed it when its holder is given up and goes on."""
    note("begin")
    await asyncio.sleep(0.5 + number % 10 / 5)
    return judge(number)


@app.task(retries=3, backoff=0.05, isolate=True)
def alone(number: int) -> int:
    note("begin")
    return judge(number)


@app.task(retries=0, delivery="at_most_once")
def once(number: int) -> int:
    note("begin")
    time.sleep(0.02)
    return judge(number)


@app.task(retries=0, max_crashes=2)
def hostile(kind: str) -> int:
    """What no task should do."""
    note("begin")
    if kind == "kill":
        os.kill(os.getpid(), 9)
    elif kind == "exit":
        os._exit(0)
    elif kind == "crash":
        os.kill(os.getpid(), 11)
    elif kind == "fork" and os.fork() == 0:
        os._exit(0)
    elif kind == "hold":
        sum(range(10**8))
    return judge(0)


@app.task(retries=3, backoff=0.05, delivery="transactional")
def pay(number: int) -> int:
    ctx = duly.current()
    ctx.connection.execute(
        f"INSERT INTO ledger (job, token) VALUES ('{ctx.id}', {ctx.job.token})"
    )
    time.sleep(0.02)
    if number % 11 == 10 and ctx.attempt == 1:
        raise ValueError(f"number {number}")
    return ctx.job.token


def charge(place):
    note("begin", place)
    return place * 7


@app.task(retries=3, backoff=0.05, max_crashes=1000)
async def stepped(number: int) -> int:
    ctx = duly.current()
    note("begin")
    for place in range(3):
        value = await ctx.using(key=place).step("charge", charge, place)
        note("recorded", place, value)
        if place == 0:
            await ctx.sleep(0.1)
        elif place == 1:
            try:
                await ctx.wait_for("go", key=str(number % 5), timeout=1)
            except duly.WaitTimeout:
                pass
    return judge(number)


@app.task(retries=3, backoff=0.05, max_crashes=1000)
async def parent(number: int) -> int:
    note("begin")
    await duly.current().spawn(block, number * 11)
    return judge(number)


@app.task
def numbers(count: int) -> list[int]:
    return list(range(count))


@app.task(retries=3, backoff=0.05)
def total(rows: list[int]) -> int:
    return len(rows)


@app.on("paid")
def react(event: duly.Event) -> None:
    note("begin")
    note("end")


@app.every(seconds=1, overlap="allow", catch_up="all")
def often() -> None:
    note("begin")
    note("end")


@app.every(seconds=2, overlap="skip", catch_up="latest")
def careful() -> None:
    note("begin")
    time.sleep(0.1)
    note("end")
'''
)

HOSTILE = ("kill", "exit", "crash", "fork", "hold")
SCHEDULES = ("often", "careful")


class Noted(msgspec.Struct, frozen=True):
    """One line of the notes."""

    word: str
    job_id: UUID
    token: int
    attempt: int
    key: str
    node: str
    at: datetime
    step: str | None
    result: str | None


def effects_in(lines: list[str]) -> list[Effect]:
    """What the code did, from its notes, in the order in which it began."""
    found: list[Effect] = []
    place: dict[tuple[UUID, int, str | None], int] = {}
    for line in lines:
        noted = _read(line)
        if noted is None:
            continue
        which = (noted.job_id, noted.token, noted.step)
        if noted.word == "begin":
            place[which] = len(found)
            found.append(
                Effect(
                    job_id=noted.job_id,
                    token=noted.token,
                    attempt=noted.attempt,
                    key=noted.key if noted.step is None else None,
                    node=noted.node,
                    started=noted.at,
                    step=noted.step,
                )
            )
        elif which in place:
            # A step that was recorded before is only told so; it does not begin.
            number = place[which]
            found[number] = msgspec.structs.replace(
                found[number],
                ended=noted.at,
                result=noted.result,
                recorded=noted.word == "recorded",
            )
    return found


def _read(line: str) -> Noted | None:
    words = line.split()
    if len(words) != 9:
        return None
    word, job, token, attempt, key, pid, at, step, result = words
    return Noted(
        word,
        UUID(job),
        int(token),
        int(attempt),
        key,
        pid,
        datetime.fromtimestamp(float(at), UTC),
        None if step == "-" else f"charge:{GIVEN}{step}",
        None if result == "-" else result,
    )
