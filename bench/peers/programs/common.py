"""What the programs of all peers share. Run as: PROGRAM ACTION [COUNT], with the place of the
database in BENCH_URL and a folder for files in BENCH_FOLDER.

Actions: `install` makes the tables; `submit` COUNT jobs that do nothing, by the fastest documented
way, and says how long that took; `work` runs jobs until it is terminated; `wait` until no job is
left, and says when that was; `latency` submits COUNT jobs one by one, with pauses, whose code notes
when it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

URL = os.environ.get("BENCH_URL", "")
FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
BATCH = int(os.environ.get("BENCH_BATCH", "200"))
PAUSE = (0.01, 0.03)
LOOK = 0.02

_begun = False


def started() -> None:
    """Note when the first job of this process starts."""
    global _begun
    if not _begun:
        _begun = True
        (FOLDER / f"first-{os.getpid()}").write_text(str(time.time()))


def stamped(given: int) -> None:
    """Note when a job was submitted, and that its code runs now."""
    now = time.time_ns() // 1000
    with (FOLDER / f"stamps-{os.getpid()}").open("a") as lines:
        lines.write(f"{given} {now}\n")


def microsecond() -> int:
    """The time, as `stamped` takes it."""
    return time.time_ns() // 1000


def action() -> tuple[str, int]:
    """What to do, and how often."""
    return sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0


def tell(**values: float) -> None:
    """Answer whoever has started this program."""
    print(json.dumps(values), flush=True)


def timed(submit: Callable[[], object]) -> None:
    """Tell how long it takes."""
    begun = time.perf_counter()
    submit()
    tell(seconds=time.perf_counter() - begun)


def wait_until_empty(remaining: Callable[[], int]) -> None:
    """Wait until no job is left, and tell when that was."""
    while remaining():
        time.sleep(LOOK)
    tell(ended=time.time())


async def wait_until_empty_async(remaining: Callable[[], Awaitable[int]]) -> None:
    """The same on an event loop."""
    while True:
        if not await remaining():
            return tell(ended=time.time())
        await asyncio.sleep(LOOK)


def one_by_one(count: int, submit: Callable[[int], object]) -> None:
    """Submit with uneven pauses, each job with the moment before its submission."""
    for _ in range(count):
        submit(microsecond())
        time.sleep(random.uniform(*PAUSE))


async def one_by_one_async(count: int, submit: Callable[[int], Awaitable[object]]) -> None:
    """The same on an event loop."""
    for _ in range(count):
        await submit(microsecond())
        await asyncio.sleep(random.uniform(*PAUSE))
