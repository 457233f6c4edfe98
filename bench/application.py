"""The tasks that are measured, and the app that workers are started with.

A worker process finds its database in DULY_URL.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duly
from duly.client.task import Task

TARGET = "bench.application:app"


async def warm_up() -> None:
    """Do nothing, before anything is measured."""


async def noop() -> None:
    """Do nothing, on the event loop."""


def noop_blocking() -> None:
    """Do nothing, in a thread."""


async def stamp(given: int) -> int:
    """Answer with the microsecond at which this code runs."""
    return time.time_ns() // 1000


def outlive(starts: str) -> None:
    """Note the start in a file; the first time, stay until the process is killed."""
    path = Path(starts)
    first = not path.exists()
    with path.open("a", encoding="utf-8") as lines:
        lines.write(f"{time.time_ns() // 1000}\n")
    if first:
        time.sleep(600)


@dataclass(frozen=True, slots=True)
class Application:
    """An app with the tasks registered."""

    app: duly.App
    warm_up: Task[[], None]
    noop: Task[[], None]
    noop_blocking: Task[[], None]
    stamp: Task[[int], int]
    outlive: Task[[str], None]


def build(url: str | None = None) -> Application:
    """An app at this URL, by default that of the environment."""
    app = duly.App(url)
    return Application(
        app=app,
        warm_up=app.task(queue="warm_up")(warm_up),
        noop=app.task(noop),
        noop_blocking=app.task(noop_blocking),
        stamp=app.task(stamp),
        outlive=app.task(outlive),
    )


app: Any = build().app
